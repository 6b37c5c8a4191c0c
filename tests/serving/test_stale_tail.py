"""A real broker loses records in a crash, cuts its log there, and goes on over them: what lies behind its end is stale."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.storage_format.queue.units import UNIT_SIZE
from tests.golden.stores import read_files
from tests.serving.programs import Program
from tests.serving.stores import SIZES, options
from tests.tools import spoil
from tests.tools.local_engine import local_build
from tests.tools.local_verify import kinds, local_verify

SEGMENT = 1 << 20
OLD, LOST, NEW = 60, 20, 15
TOPIC = "orders-0"


def cut_and_go_on(program: Program, store: Path, name: str, prefix: str) -> int:
    """Put ``OLD`` records; the broker dies, and of the last ``LOST`` the first is not on the disk; ``NEW`` come in their place.

    Returns where the log ends.
    """
    words = options(segment_size=SEGMENT)
    program.step("open", name, store, *words)
    program.step("put", name, TOPIC, "old", OLD)
    program.step("flush", name)
    program.step("close", name)
    (store / "abort").touch()
    at, size = spoil.record_offsets(store)[OLD - LOST]
    with (store / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(at)
        file.write(bytes(size))
    assert int(program.step("open", name, store, *words)) == at, "where the broker cuts its log"
    program.step("put", name, TOPIC, prefix, NEW)
    assert int(program.step("end", name, TOPIC)) == OLD - LOST + NEW
    program.step("close", name)
    return int(program.step("open", name, store, *words))


@pytest.mark.parametrize("version", ["5.3.3", "4.9.8"])
def test_what_a_broker_cut_stays_away(version: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {**SIZES, "broker_version": version[:3]}
    live = OLD - LOST + NEW
    with Program(version, "Crash", tmp_path) as program:
        for name, prefix in (("shorter", "n"), ("longer", "older")):
            store = tmp_path / name
            end = cut_and_go_on(program, store, name, prefix)
            served = int(program.step("end", name, TOPIC))
            program.step("close", name)
            built = [tmp_path / f"{name}-{policy}" for policy in ("fail", "stop", "salvage")]
            for out in built:
                summary = local_build(store, out, on_damage=out.name.rpartition("-")[2], **settings)
                assert (summary.exit, summary.records, summary.error) == (0, live, None), out.name
                (entry,) = summary.damage
                assert entry["offset"] == end
                assert entry["reason"].startswith("stale tail: ")
                assert sum(str(end) in warning for warning in summary.warnings) == 1, "it is told once"
            first, *others = (read_files(out) for out in built)
            assert [other == first for other in others] == [True, True]

            verified = local_verify(store, **settings)
            told = [note for note in verified.notes if "stale tail" in note]
            assert len(told) == 1
            queue = [kind for kind in kinds(verified) if kind.startswith("queue-")]
            # A unit that points in front of the log's end comes back to life at the broker's next start: a true difference.
            back = stale_units(store, live, end)
            assert served == live + back
            assert (back > 0) == (name == "longer")
            assert queue == (["queue-unit-no-record"] if back else [])
            assert kinds(verified).get("queue-unit-no-record", 0) == back
            assert not back or verified.exit == 4
            if not back:
                assert (verified.exit, verified.findings) == (0, [])

            # What was built takes the place of the broker's own: it serves the live records, and no others.
            summary = local_build(store, tmp_path / f"{name}-own", **settings)
            mended = tmp_path / f"{name}-mended"
            mended.mkdir()
            (store / "commitlog").rename(mended / "commitlog")
            for path in (tmp_path / f"{name}-own").iterdir():
                path.rename(mended / path.name)
            assert local_verify(mended, **settings).exit == 0
            assert int(program.step("open", f"{name}-mended", mended, *options(segment_size=SEGMENT))) == end
            assert int(program.step("end", f"{name}-mended", TOPIC)) == live
            program.step("close", f"{name}-mended")


def stale_units(store: Path, live: int, end: int) -> int:
    """Units behind the queue's last one, up to the first that points behind the log's end: these the broker drops."""
    (path,) = (store / "consumequeue" / TOPIC / "0").iterdir()
    data = path.read_bytes()[live * UNIT_SIZE :]
    count = 0
    for (place,) in struct.iter_unpack(">q12x", data[: len(data) // UNIT_SIZE * UNIT_SIZE]):
        if place == 0 or place >= end:
            break
        count += 1
    return count
