"""Timer files that lead to other records, as where a log was cut and has grown again: what preflight says, a broker does.

`make slow` runs each test with the other line, too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from rocketmq_reindex.jobs.cli import main
from rocketmq_reindex.storage_format.delay.settings import TimerSettings
from rocketmq_reindex.storage_format.delay.timer_files import PENDING, TimerQueueEnd, timer_files
from rocketmq_reindex.storage_format.delay.timer_layout import LOG_UNIT
from tests.delayed.cut import run_cut
from tests.delayed.life import SIZES, UNREAD, Life, queues
from tests.delayed.log import Stored
from tests.delayed.test_timer_set import NEWER, OLDER, SETTINGS, TOPICS, commands, told
from tests.reference.java import hash_code, java_text
from tests.tools.encode import Message
from tests.tools.local_verify import kinds, local_verify
from tests.tools.log_writer import LogWriter, Put
from tests.tools.timer_files import put_files

SETTLED = 4.0
"""Seconds: a slot is read within one after its time"""
Unit = tuple[int, int, int, int]
"""Where it leads, the bytes that it reads, its time, its magic"""


def timed(key: str, due: int) -> Message:
    properties = {"UNIQ_KEY": key, "REAL_TOPIC": "T0", "REAL_QID": "0", "TIMER_OUT_MS": str(due)}
    return Message("rmq_sys_wheel_timer", 0, body=b"body", properties=properties, store_timestamp=due - 100_000)


def plain(key: str, now: int) -> Message:
    return Message("T0", 0, body=b"body", properties={"UNIQ_KEY": key}, store_timestamp=now - 100_000)


def written(folder: Path, messages: Sequence[Message]) -> tuple[Path, dict[str, Put]]:
    """A store with queues of these messages, and where each lies by its key."""
    store = folder / "store"
    queues(TOPICS, store)
    with LogWriter(store / "commitlog", SIZES["mappedFileSizeCommitLog"]) as writer:
        for message in messages:
            writer.append(message)
    assert main(["fetch", str(commands(store, folder)), "--to", str(store)]) == 0
    return store, {dict(put.message.properties)["UNIQ_KEY"]: put for put in writer.puts}  # type: ignore[arg-type]


def lead(store: Path, units: Sequence[Unit], last: Put, now: int) -> None:
    """Timer files with these units; the ``last`` message is the end of the queue."""
    topic = hash_code(java_text("T0"))
    rows = np.array([(n, place, size, 0, at, topic, False) for n, (place, size, at, _) in enumerate(units)], PENDING)
    end = TimerQueueEnd(100, last.offset, last.size)
    settings = TimerSettings(log_file_size=int(SETTINGS["mappedFileSizeTimerLog"]))
    put_files(store, timer_files(rows, end, now, settings).files)
    (path,) = (store / "timerlog").iterdir()
    data = bytearray(path.read_bytes())
    for number, (_, _, _, magic) in enumerate(units):
        np.frombuffer(data, LOG_UNIT, 1, number * LOG_UNIT.itemsize)["magic"] = magic
    path.write_bytes(data)


def found_by_verify(store: Path) -> dict[str, int]:
    return kinds(local_verify(store, only=("log",)))


def came(log: Sequence[Stored]) -> Counter[str]:
    """How often each message is in its topic, by key."""
    return Counter(record.key for record in log if record.topic == "T0")


@pytest.mark.parametrize("version", NEWER)
def test_what_comes_instead(version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another timer message, ahead of its time, and a plain one, once more. What leads to no record delivers nothing."""
    now = int(time.time()) * 1000
    at, late = now + 3000, now + 86_400_000
    messages = [plain("P0", now), timed("A", late), timed("B", at), plain("P1", now), timed("Z", at)]
    store, puts = written(tmp_path, messages)
    a, b, z, p0, p1 = (puts[key] for key in ("A", "B", "Z", "P0", "P1"))
    units = [
        (p0.offset + 10, p0.size, at, 1), (p0.offset, p0.size, at, 5), (a.offset, a.size, at, 1), (a.offset, a.size, late, 1),
        (b.offset, b.size - 4, at, 1), (b.offset, b.size, at, 1), (p1.offset, p1.size, at, 3),
        (z.offset + z.size, 200, at, 1), (z.offset, z.size, at, 1),
    ]  # fmt: skip
    lead(store, units, z, now)
    assert found_by_verify(store) == {"timer-other-record": 5, "timer-beyond-log": 1}
    said = {"timer-other": 2, "timer-passed-over": 4, "timer-again": 1}
    assert told(store, tmp_path, version, capsys) == (0, said)
    with Life(version, store, tmp_path, SETTINGS | UNREAD) as life:
        life.wait(lambda log: came(log).total() >= 6, "all that comes")
        life.settle(SETTLED)
        assert came(life.log()) == {"P0": 1, "P1": 2, "A": 1, "B": 1, "Z": 1}
        assert min(record.store_time for record in life.log() if record.key == "A" and record.topic == "T0") < late


@pytest.mark.parametrize("version", OLDER)
def test_a_record_at_which_the_broker_stops(version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No later slot is read, at the next start neither. As preflight advises, each message comes."""
    now = int(time.time()) * 1000
    stuck, at = now + 2000, now + 4000
    store, puts = written(tmp_path, [plain("P", now), timed("B", at), timed("Z", at + 1000)])
    led = {key: (put.offset, put.size) for key, put in puts.items()}
    lead(store, [(*led["P"], stuck, 1), (*led["B"], at, 1), (*led["Z"], at + 1000, 1)], puts["Z"], now)
    assert found_by_verify(store) == {"timer-other-record": 1}
    assert told(store, tmp_path, version, capsys) == (4, {"timer-stuck": 1})
    for _ in range(2):
        with Life(version, store, tmp_path, SETTINGS) as life:
            life.wait(lambda _: time.time() * 1000 > at + 1000 + 1000 * SETTLED, "their time")
            life.settle(SETTLED)
            assert came(life.log()) == {"P": 1}
    words = ["preflight", str(store), "--broker-version", version, "--broker-conf", str(tmp_path / "broker.conf"), "--json"]
    capsys.readouterr()
    assert main(words) == 4
    (loss,) = json.loads(capsys.readouterr().out)["losses"]
    (line,) = loss["commands"]
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-c", line], check=True, env=environment)
    assert told(store, tmp_path, version, capsys) == (0, {})
    assert found_by_verify(store) == {}
    with Life(version, store, tmp_path, SETTINGS | UNREAD) as life:
        life.wait(lambda log: came(log).total() >= 3, "all of them")
        life.settle(SETTLED)
        assert came(life.log()) == {"P": 1, "B": 1, "Z": 1}


@pytest.mark.parametrize(("version", "growth"), [
    ("5.5.1", "plain"), ("5.3.3", "timers"),
    *(pytest.param(*case, marks=pytest.mark.slow) for case in (("5.3.3", "plain"), ("5.5.1", "timers"), ("5.5.1", "ragged"))),
])  # fmt: skip
def test_a_log_that_is_cut_and_grows_again(version: str, growth: str, tmp_path: Path, seed: int) -> None:
    assert run_cut(version, seed, tmp_path, growth).faults == ()
