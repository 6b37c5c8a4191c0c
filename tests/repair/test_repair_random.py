"""Random logs, damaged at random and repaired: what survives is there, a broker loses nothing, and a rebuild finds the same."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocketmq_reindex.storage_format.record.layout import FILLER
from rocketmq_reindex.storage_format.record.message import Message, read_message
from rocketmq_reindex.storage_format.repair import LOST_FLAG
from tests.preflight.predicted import predict
from tests.preflight.settings import Conf, Sizes
from tests.tools.damaged_log import SEGMENT, SIZES, WAYS, Damaged, copy_of
from tests.tools.local_engine import local_build, local_repair
from tests.tools.log_writer import Put
from tests.tools.make_log import random_log
from tests.tools.seeds import cases

FEATURES = ("blanks", "unicode", "collide", "tags", "transactions", "ipv6", "clock", "compressed")
CONF = Conf(Sizes(SEGMENT, 400, 50, 150))


@pytest.fixture
def whole(seed: int, tmp_path: Path) -> Damaged:
    puts = random_log(tmp_path / "whole/commitlog", seed, records=300, segment_size=SEGMENT, features=FEATURES)
    return Damaged(tmp_path / "whole", tmp_path / "whole", puts, [])


def _damaged(whole: Damaged, tmp_path: Path, seed: int) -> Iterator[tuple[random.Random, Damaged]]:
    for number in range(cases(8, 1)):
        rng = random.Random(f"{seed} {number}")
        damaged = copy_of(whole.whole, tmp_path / f"store-{number}", whole.puts)
        for way in rng.choices(WAYS, k=rng.choice((1, 1, 2, 3))):
            way(damaged, rng)
        yield rng, damaged


def _tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def _records(log: Path) -> Iterator[Message]:
    """The records of a log, one behind the other; fails at anything else but zeros at the end."""
    paths = sorted(log.iterdir())
    for path in paths:
        data, at = path.read_bytes(), 0
        assert len(data) == SEGMENT
        while at < SEGMENT:
            found = read_message(_reads(data[at:]), int(path.name) + at, SEGMENT - at)
            if not isinstance(found, Message):
                assert found == FILLER or path == paths[-1], (path.name, at, found)
                break
            yield found
            at += found.size


def _reads(data: bytes) -> Callable[[int, int], bytes]:
    return lambda low, count: data[low : low + count]


def _parts(out: Path) -> dict[str, bytes]:
    return {name: data for name, data in _tree(out).items() if name.startswith(("consumequeue/", "index/", "checkpoint"))}


def test_what_survives_is_there(whole: Damaged, tmp_path: Path, seed: int) -> None:
    for number, (rng, damaged) in enumerate(_damaged(whole, tmp_path, seed)):
        out, before = tmp_path / f"out-{number}", _tree(damaged.store)
        version = rng.choice(("4.9", "5.3", "5.5"))
        told = local_repair(damaged.store, out, None, broker_version=version, range_size=rng.choice((0, 5000)), **SIZES)
        assert told.error is None, told.error
        assert told.repair is not None
        assert told.exit == (3 if told.repair["ranges"] else 0)
        assert _tree(damaged.store) == before
        found = {message.phy_offset: message for message in _records(out / "commitlog")}
        _has_survivors(damaged, out, found)
        _starts(out, tmp_path, {"4.9": "4.9.8", "5.3": "5.3.3", "5.5": "5.5.1"}[version])
        assert local_build(out, tmp_path / f"built-{number}", None, broker_version=version, **SIZES).error is None
        assert _parts(tmp_path / f"built-{number}") == _parts(out)
        again = local_repair(out, tmp_path / f"again-{number}", None, broker_version=version, **SIZES)
        assert (again.exit, again.repair and again.repair["ranges"]) == (0, [])
        assert _tree(tmp_path / f"again-{number}/commitlog") == _tree(out / "commitlog")


def _bytes(store: Path, put: Put) -> bytes:
    at = put.offset % SEGMENT
    return (store / "commitlog" / f"{put.offset - at:020d}").read_bytes()[at : at + put.size]


def _has_survivors(damaged: Damaged, out: Path, found: dict[int, Message]) -> None:
    fillers = [(offset, offset + message.size) for offset, message in found.items() if message.flag == LOST_FLAG]
    for put in damaged.survivors():
        # A hole that is too small for a record takes a neighbour with it.
        is_taken = any(low <= put.offset < high for low, high in fillers)
        assert is_taken or _bytes(out, put) == _bytes(damaged.whole, put), put


def _starts(out: Path, tmp_path: Path, release: str) -> None:
    """A broker starts, cleanly and after a crash, and loses nothing."""
    for crashed in (False, True):
        if crashed:
            (out / "abort").write_bytes(b"")
        said = predict(out, release, CONF, tmp_path)
        assert isinstance(said, dict), said
        assert said["exit"] == 0, (said["losses"], said["refusals"])
        (out / "abort").unlink(missing_ok=True)


def test_with_a_replica_nothing_is_lost(whole: Damaged, tmp_path: Path, seed: int) -> None:
    for number, (_, damaged) in enumerate(_damaged(whole, tmp_path, seed)):
        out = tmp_path / f"out-{number}"
        told = local_repair(damaged.store, out, None, replicas=(str(whole.whole),), **SIZES)
        assert (told.exit, told.error) == (0, None)
        assert told.repair is not None
        seen = [(entry["offset"], entry["offset"] + entry["length"]) for entry in told.repair["ranges"]]
        for path in sorted((whole.whole / "commitlog").iterdir()):
            right, new = bytearray(path.read_bytes()), (out / "commitlog" / path.name).read_bytes()
            for low, high in damaged.touched:
                # No CRC covers it, and no check can see it.
                if not any(start < high and low < stop for start, stop in seen):
                    at, end = max(0, low - int(path.name)), max(0, high - int(path.name))
                    right[at:end] = new[at:end]
            assert new == bytes(right), path.name


def test_an_undamaged_log_is_unchanged(whole: Damaged, tmp_path: Path) -> None:
    told = local_repair(whole.whole, tmp_path / "out", None, **SIZES)
    assert (told.exit, told.repair and told.repair["ranges"]) == (0, [])
    assert "undamaged" in told.to_text()
    assert _tree(tmp_path / "out/commitlog") == _tree(whole.whole / "commitlog")
    assert not list((tmp_path / "out/quarantine").iterdir())
