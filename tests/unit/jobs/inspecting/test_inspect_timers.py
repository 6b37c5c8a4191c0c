"""``rmq-reindex inspect``: the files of timer messages, whole and spoilt."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rocketmq_reindex.jobs.inspecting.options import inspection, look
from rocketmq_reindex.storage_format.delay.settings import TimerSettings
from rocketmq_reindex.storage_format.delay.timer_files import PENDING, TimerQueueEnd, timer_files
from tests.tools.timer_files import put_files

CLOCK = 1_700_000_000_000


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Eleven messages, one a second; one deletes, the last one rolls; two files of timerlog."""
    rows = [(k, 1000 * k, 200, CLOCK, CLOCK + 1000 * k + (3 * 24 * 3600_000 if k == 10 else 0), 5, k == 4) for k in range(11)]
    settings = TimerSettings(log_file_size=52 * 9 + 40)
    put_files(tmp_path, timer_files(np.array(rows, PENDING), TimerQueueEnd(11, 10_000, 200), CLOCK, settings).files)
    return tmp_path


def test_timercheck(store: Path) -> None:
    found = look(str(store / "config" / "timercheck"), inspection({"files": ["x"], "records": True}))
    assert found.kind == "timercheck"
    assert found.summary["lastReadTimeMs"] == CLOCK - 3_600_000
    assert found.summary["lastReadTime"] == "2023-11-14T21:13:20.000Z"
    fields = {row["field"]: row["value"] for row in found.records}
    assert fields["lastTimerQueueOffset"] == 11
    assert list(fields) == [
        "lastReadTimeMs", "lastTimerLogFlushPos", "lastTimerQueueOffset", "masterTimerQueueOffset", "stateVersion", "timestamp",
        "counter",
    ]  # fmt: skip


def test_timerlog(store: Path) -> None:
    first, last = (
        look(str(path), inspection({"files": ["x"], "records": True})) for path in sorted((store / "timerlog").iterdir())
    )
    assert first.kind == "timerlog"
    told = [
        (one.summary["units"], one.summary["rolled"], one.summary["deleting"], one.summary["closed"]) for one in (first, last)
    ]
    assert told == [(9, 0, 1, True), (2, 1, 0, False)]
    assert [row["physicalOffset"] for row in first.records] == [1000 * k for k in range(9)]
    assert last.summary["last"]["time"] == CLOCK + 2 * 24 * 3600_000
    assert first.summary["findings"] == last.summary["findings"] == []


def test_timerlog_that_is_spoilt(store: Path) -> None:
    path = max((store / "timerlog").iterdir())
    data = bytearray(path.read_bytes())
    data[52 + 12] = 9
    path.write_bytes(data)
    summary = look(str(path), inspection({"files": ["x"], "records": True})).summary
    assert (summary["units"], summary["end"]) == (1, 52)
    assert [(one["code"], one["at"]) for one in summary["findings"]] == [("timer", 52)]


def test_timerwheel(store: Path) -> None:
    path = store / "timerwheel"
    found = look(str(path), inspection({"files": ["x"], "records": True}))
    assert found.kind == "timerwheel"
    assert (found.summary["used"], found.summary["messages"], found.summary["findings"]) == (11, 9, [])
    assert [row["time"] for row in found.records][:10] == [CLOCK // 1000 + k for k in range(10)]
    assert found.summary["first"] == {"time": CLOCK // 1000, "first": 0, "last": 0, "num": 1}
    snapshot = path.rename(store / "timerwheel.104")
    with snapshot.open("r+b") as out:
        out.truncate(3200)
    short = look(str(snapshot), inspection({"files": ["x"], "records": True}))
    assert short.kind == "timerwheel"
    assert [one["at"] for one in short.summary["findings"]] == [3200]
