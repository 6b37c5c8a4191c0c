"""Where the delivery of delayed messages goes on after a start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rocketmq_reindex.storage_format.broker_start.delayed import (
    DelayedOutcome,
    DueUnits,
    StoreTimes,
    delayed,
    due_in_files,
    due_in_log,
    kept_offsets,
    newest_time,
)
from rocketmq_reindex.storage_format.broker_start.loading import Prediction, QueueOutcome
from rocketmq_reindex.storage_format.broker_start.store import StoreFile
from rocketmq_reindex.storage_format.queue.consume_queue import UNIT
from rocketmq_reindex.storage_format.topics import SCHEDULE_TOPIC
from tests.tools.dledger_log import HEAD, as_dledger
from tests.tools.encode import EPOCH, PREPARED, Message
from tests.tools.log_writer import LogWriter


def queue(low: int, end: int, added: int = 0, log_min: int = -1) -> QueueOutcome:
    return QueueOutcome(SCHEDULE_TOPIC, 0, low, end, 0, added, log_min, end, 0)


def level(one: QueueOutcome | None, kept: dict[int, int], release: str = "5.5.1", due: int = 0) -> DelayedOutcome:
    found = Prediction(release, True, queues=(one,) if one else ())
    (outcome,) = delayed(found, [1000], kept, {0: DueUnits(due)})
    return outcome


def test_a_kept_offset_within_the_queue() -> None:
    found = level(queue(2, 10), {1: 7}, due=1)
    assert (found.begins, found.begins_least, found.end, found.waiting) == (7, 7, 10, 3)
    assert (found.due, found.again, found.skipped) == (1, 0, 0)


def test_no_kept_offset() -> None:
    """Delivery begins at the queue's first message: what is due has been delivered before."""
    found = level(queue(2, 10), {}, due=6)
    assert (found.kept, found.begins, found.waiting, found.again, found.skipped) == (-1, 2, 8, 6, 0)


def test_a_kept_offset_below_the_queue() -> None:
    assert level(queue(5, 10, log_min=3), {1: 1}).skipped == 2
    assert level(queue(5, 10, log_min=5), {1: 1}).skipped == 0


@pytest.mark.parametrize(("release", "least"), [("4.9.8", 8), ("5.3.3", 4)])
def test_a_queue_that_is_filled_while_the_delivery_starts(release: str, least: int) -> None:
    found = level(queue(0, 10, added=6), {1: 8}, release)
    assert (found.begins, found.begins_least, found.again) == (8, least, 8 - least)


def test_a_level_without_a_queue() -> None:
    found = level(None, {1: 8})
    assert (found.begins, found.end, found.waiting, found.again) == (0, 0, 0, 0)


@pytest.mark.parametrize(("config", "found"), [
    (None, {}), ([], {}), ({"offsetTable": None}, {}),
    ({"offsetTable": {"1": 5, "2": "x", "-3": 4, "٣": 4, "4": 2**70}}, {1: 5}),
])  # fmt: skip
def test_kept_offsets(config: Any, found: dict[int, int]) -> None:
    assert kept_offsets(config) == found


def test_due_units() -> None:
    files = []
    for start in (0, 5):
        units = np.zeros(5, UNIT)
        units["tags_code"] = np.arange(start, start + 5) * 100
        files.append(StoreFile(f"{start * 20:020d}", units.view(np.uint8)))
    log = StoreTimes([], 0, 0)
    assert due_in_files(files, 0, 10, 450, 1000, None, log) == DueUnits(5)
    assert due_in_files(files, 3, 7, 10_000, 1000, None, log) == DueUnits(4)
    assert due_in_files(files, 7, 3, 10_000, 1000, None, log) == DueUnits(0)
    # A time that is later than any message of the level can have is an error, and the message delivered at once.
    assert due_in_files(files, 0, 10, 450, 300, None, log) == DueUnits(7)


def test_due_records(tmp_path: Path) -> None:
    """By store time and delay; prepared records, other topics and queues beyond the levels do not count."""
    with LogWriter(tmp_path, 1 << 11) as writer:
        for number in range(60):
            sort = number % 6
            writer.append(Message(
                topic="other" if sort == 1 else SCHEDULE_TOPIC, queue_id={2: 1, 3: 9}.get(sort, 0),
                sysflag=PREPARED if sort == 4 else 0, store_timestamp=EPOCH + number * 100,
                born_host=("::1", 1) if sort == 5 else ("10.0.0.1", 1), store_host=("::2", 1) if sort == 0 else ("10.0.0.1", 1),
            ))  # fmt: skip
        puts, end = writer.puts, writer.end
    segments = [
        StoreFile(path.name, np.frombuffer(bytearray(path.read_bytes()), np.uint8)) for path in sorted(tmp_path.iterdir())
    ]
    assert len(segments) > 2
    assert newest_time(segments, end) == EPOCH + 5900
    assert newest_time(segments, puts[7].offset) == EPOCH + 600
    assert newest_time([], 0) == 0
    now, delays = EPOCH + 5000, [1000, 4000]
    wanted = [
        sum(put.message.topic == SCHEDULE_TOPIC and put.message.queue_id == number and put.message.sysflag != PREPARED
            and put.message.store_timestamp + delay <= now for put in puts[6:])
        for number, delay in enumerate(delays)
    ]  # fmt: skip
    assert due_in_log(segments, puts[6].offset, end, delays, now) == wanted
    assert min(wanted) > 0
    assert due_in_log(segments, 5, end, delays, now) == [0, 0], "no record stands there"
    entries = as_dledger(tmp_path, tmp_path.with_name("node"), 1 << 11)
    folder = tmp_path.with_name("node") / "dledger-n0" / "data"
    files = [
        StoreFile(path.name, np.frombuffer(bytearray(path.read_bytes()), np.uint8), HEAD) for path in sorted(folder.iterdir())
    ]
    assert newest_time(files, sum(entries[-1])) == EPOCH + 5900
    for low in (entries[6][0], entries[6][0] + HEAD):
        assert due_in_log(files, low, sum(entries[-1]), delays, now) == wanted
