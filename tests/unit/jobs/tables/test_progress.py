"""How often a run says how far it is, and that it stops when the run is over."""

from __future__ import annotations

import threading
import time

import pytest

from rocketmq_reindex.jobs.tables import recorder
from rocketmq_reindex.jobs.tables.recorder import Progress
from tests.tools.local_engine import QuietReporter


def updates(seconds: float) -> int:
    age, count = recorder.pause(0), 0
    while age < seconds:
        age, count = age + recorder.pause(age), count + 1
    return count


def test_a_long_run_leaves_few_versions() -> None:
    assert [updates(59), updates(600)] == [0, 9]
    assert 100 < updates(86_400) < 160
    assert recorder.pause(86_400) < 3600


def test_stages_and_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest of them; an update that fails ends nothing; the end of the run does."""
    monkeypatch.setattr(recorder, "INTERVAL", 0.01)
    monkeypatch.setattr("rocketmq_reindex.jobs.watching.progress.INTERVAL", 0.01)
    reporter, told, enough = QuietReporter(), list[tuple[str, int, int]](), threading.Event()

    def update(*words: object) -> None:
        told.append(words)  # type: ignore[arg-type]
        if words == ("scan", 5, 9):
            enough.set()
        raise OSError("no answer")

    class NoSpark:
        pass

    with Progress(NoSpark(), reporter, update).watching():  # type: ignore[arg-type]
        with reporter.stage("scan", "ranges", 3, 9, lambda: (1, 5 / 9)):
            assert enough.wait(60)
        with reporter.step("decide"):
            end = time.monotonic() + 60
            while told[-1] != ("decide", 0, 0) and time.monotonic() < end:
                time.sleep(0.01)
    assert told[-1] == ("decide", 0, 0)
    assert reporter.shown == []
    count = len(told)
    time.sleep(0.1)
    assert len(told) == count
    assert not [thread for thread in threading.enumerate() if thread.name == "tables-progress"]
