"""Delayed and timer messages of a node of DLedger: what preflight says of them is what the node then delivers.

`make slow` runs 5.5.1, too.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest

from rocketmq_reindex.jobs.cli import main
from tests.delayed.judge import LEVELS, TIMERS, Message, delivered, due
from tests.delayed.life import SIZES, UNREAD, Life, Settings, queues
from tests.delayed.log import Stored
from tests.serving.test_leave_dledger import WRITTEN, entries_of
from tests.tools.ports import free_ports

COUNT, WAITS = 20, 80
"""Messages of each kind, and seconds that half of them wait"""
SETTINGS: dict[str, str | int] = {"messageDelayLevel": f"1s {WAITS}s", "mappedFileSizeTimerLog": 52 * 1000}
EARLY = 8
"""Seconds that the others wait"""


class Node(Life):
    """A broker with ``enableDLegerCommitLog``, alone in its group."""

    def __init__(self, version: str, store: Path, scratch: Path, settings: Settings = SETTINGS) -> None:
        (port,) = free_ports(1)
        own = {"enableDLegerCommitLog": "true", "dLegerGroup": "g", "dLegerSelfId": "n0", "dLegerPeers": f"n0-127.0.0.1:{port}"}
        super().__init__(version, store, scratch, dict(settings) | own)

    def log(self) -> list[Stored]:
        return entries_of(self.store)


def lived(version: str, store: Path, scratch: Path) -> list[Stored]:
    """A node that has delivered half of its messages, and was stopped; its log."""
    queues({"T0": 2}, store)
    with Node(version, store, scratch) as life:
        life.step("leads")
        now = int(time.time())
        waits = [f"DELAY={1 + number % 2}" for number in range(2 * COUNT)]
        waits += [f"TIMER_DELIVER_MS={1000 * (now + (EARLY, WAITS)[number % 2])}" for number in range(2 * COUNT)]
        life.send(f"0\tT0\t{number % 2}\ttag\tUNIQ_KEY={number:032X}\t{wait}" for number, wait in enumerate(waits))
        life.step("sent")
        life.wait(lambda log: delivered(log).total() >= 2 * COUNT, "copies of what waits for a short time")
        time.sleep(WRITTEN)
        life.stop()
    log = entries_of(store)
    assert sum(record.topic in (LEVELS, TIMERS) for record in log) == 4 * COUNT
    assert delivered(log).total() == 2 * COUNT, "the machine is too slow for this test"
    return log


def goes_on(version: str, store: Path, scratch: Path, until: float) -> Counter[Message]:
    """How often each message is delivered, when the time of all has come."""
    with Node(version, store, scratch, SETTINGS | UNREAD) as life:
        life.step("leads")
        life.wait(lambda _: time.time() > until, "the time of the last one")
        life.settle(5)
        return delivered(life.log())


def said(store: Path, scratch: Path, version: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, int]]:
    conf = scratch / "broker.conf"
    lines = SIZES | SETTINGS | {"enableDLegerCommitLog": "true", "dLegerSelfId": "n0"}
    conf.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    capsys.readouterr()
    status = main(["preflight", str(store), "--broker-version", version, "--broker-conf", str(conf), "--json"])
    found = json.loads(capsys.readouterr().out)
    short, long = found["delayed"]
    assert (short["end"], short["waiting"]) == (COUNT, COUNT if short["kept"] < 0 else 0)
    assert (long["end"], long["waiting"], long["due"]) == (COUNT, COUNT, 0)
    assert (found["timers"]["goes_on"], found["timers"]["end"]) == (2 * COUNT, 2 * COUNT)
    return status, {one["kind"]: one["count"] for one in (*found["losses"], *found["warnings"])}


@pytest.mark.parametrize("version", ["5.3.3", pytest.param("5.5.1", marks=pytest.mark.slow)])
def test_what_waits(version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As the node leaves it, and without the files that say what was delivered."""
    store, spoilt = tmp_path / "store", tmp_path / "spoilt"
    log = lived(version, store, tmp_path)
    until = max(record.store_time for record in log) / 1000 + WAITS + 2
    shutil.copytree(store, spoilt)
    for path in (spoilt / "config").glob("delayOffset.json*"):
        path.unlink()
    shutil.rmtree(spoilt / "timerlog")
    (spoilt / "timerwheel").unlink()
    assert said(store, tmp_path, version, capsys) == (0, {})
    assert said(spoilt, tmp_path, version, capsys) == (4, {"timer-lost": COUNT, "delayed-again": COUNT})
    assert goes_on(version, store, tmp_path, until) == due(log)
    came = goes_on(version, spoilt, tmp_path, until)
    assert (due(log) - came).total() == COUNT
    assert {message.key for message in due(log) - came} <= {record.key for record in log if record.topic == TIMERS}
    assert (came - due(log)).total() == COUNT
    assert {message.key for message in came - due(log)} <= {record.key for record in log if record.topic == LEVELS}
