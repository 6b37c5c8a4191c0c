"""Light queues beside the real RocketMQ: one that a record names twice, and names that are no plain file name."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.golden.stores import index_in_order, read_files
from tests.oracle.scenarios import FOLDER, java_home
from tests.tools.compare import SMALL, differences
from tests.tools.local_engine import InlineEngine, local_build
from tests.tools.local_verify import kinds, local_verify
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import Message

SEGMENT = 1 << 15
ODD = ("%LMQ%tab\tqueue", "%LMQ%line\nbreak", "%LMQ%\x1b[31m")


def message(names: tuple[str, ...], offsets: list[int]) -> Message:
    properties = {
        "KEYS": "k",
        "INNER_MULTI_DISPATCH": ",".join(names),
        "INNER_MULTI_QUEUE_OFFSET": ",".join(map(str, offsets)),
    }
    return Message(topic="T", properties=properties)


def write_log(folder: Path, version: str) -> int:
    """A log as that broker writes it, which starts anew twice; returns how many records it has.

    5.3 counts a queue up for each time that a record names it (``LmqDispatch.updateLmqOffsets``), 4.9 once a record
    (``MultiDispatch.updateMultiQueueOffset``); both begin at the units that there are.
    """
    units, records = {"%LMQ%a": 0, "%LMQ%b": 0, "%LMQ%c": 0}, 0
    with LogWriter(folder, SEGMENT) as writer:
        for life in range(3):
            counters = dict(units)
            for number in range(24):
                names: tuple[str, ...] = ("%LMQ%a", "%LMQ%b")
                names += ("%LMQ%a",) * bool(number % 3 or life == 1)
                names += ("%LMQ%c",) * (4 if number in (7, 8, 9, 23) else number % 2)
                odd = (ODD[number // 3 % 3],) if number % 3 == 0 else ()
                writer.append(message(names + odd, [counters[name] for name in names] + [0] * len(odd)))
                records += 1
                for name in dict.fromkeys(names):
                    counters[name] += names.count(name) if version[0] == "5" else 1
                    units[name] += 1
    return records


@pytest.mark.parametrize("version", ["5.3.3", "4.9.8"])
def test_as_the_real_store_builds_them(version: str, tmp_path: Path) -> None:
    store, real, out = tmp_path / "store", tmp_path / "real", tmp_path / "out"
    records = write_log(store / "commitlog", version)
    words = ["--cq-file-size", "400", "--hash-slots", "50", "--index-items", "60", "--enable-lmq"]
    command = [str(FOLDER / "run"), version, "Rebuild", str(store), "--out", str(real), *words]
    ran = subprocess.run(command, env=java_home(), capture_output=True, text=True, timeout=900, check=False)
    assert ran.returncode == 0, ran.stderr
    theirs = read_files(real)
    odd = {name for name in theirs if any(queue in name for queue in ODD)}
    assert {name.split("/")[1] for name in odd} == set(ODD), "the broker makes files of such names"
    settings: dict[str, Any] = {"lmq": True, "checkpoint": "broker", "broker_version": version[:3]} | SMALL
    for order in ("logical", "broker", "fail"):
        for size in (0, 300, 5000):
            summary = local_build(
                store, out, InlineEngine(3, 2), overwrite=True, range_size=size, queue_order=order, **settings
            )  # fmt: skip
            assert (summary.exit, summary.error, summary.damage, summary.decisions) == (0, None, [], [])
            ours = read_files(out)
            assert {k: v for k, v in ours.items() if k[0] == "c"} == {
                k: v for k, v in theirs.items() if k[0] == "c" and k not in odd
            }
            assert index_in_order(ours) == index_in_order(theirs)
            assert summary.records == records
            skipped = [warning for warning in summary.warnings if "no plain file name" in warning]
            assert [warning.split()[1] for warning in skipped] == ["24"]
            again = [warning for warning in summary.warnings if "again" in warning]
            assert len(again) == (version[0] == "5")
            assert len(summary.warnings) == len(skipped) + len(again)
        if order != "fail":
            assert differences(store, out, queue_order=order, **settings) == []
    found = local_verify(real, lmq=True, broker_version=version[:3], **SMALL)
    assert set(kinds(found)) <= {"queue-unit-extra"}, "nothing but the queues of odd names"
