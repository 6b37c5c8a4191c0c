"""What units of ``timerlog`` lead to, and what a broker does with that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rocketmq_reindex.storage_format.broker_start.store import StoreFile
from rocketmq_reindex.storage_format.delay.evidence import FITS, OTHER, PASSED_OVER, STUCK, unit_fates
from rocketmq_reindex.storage_format.delay.timer_layout import LOG_UNIT
from rocketmq_reindex.storage_format.delay.wheel import Units, begin_of, fates_in, rows_at, rows_since
from tests.reference.java import hash_code, java_text
from tests.tools.dledger_log import HEAD, as_dledger
from tests.tools.encode import EPOCH, Message, encode
from tests.tools.log_writer import LogWriter

BASE = 1 << 33
DUE, WRITTEN = EPOCH + 60_000, EPOCH + 1000
PROPERTIES = {"UNIQ_KEY": "K", "REAL_TOPIC": "T", "REAL_QID": "0", "TIMER_OUT_MS": str(DUE)}
TIMED = Message("rmq_sys_wheel_timer", 0, body=b"body", properties=PROPERTIES)
MARK = replace(TIMED, properties={**PROPERTIES, "TIMER_DEL_UNIQKEY": "T+K"})
PLAIN = Message("T", 0, body=b"body", properties={"UNIQ_KEY": "K"})
LEVEL = Message("SCHEDULE_TOPIC_XXXX", 1, body=b"body", properties={"REAL_TOPIC": "T", "REAL_QID": "0", "DELAY": "2"})


def rows(*units: dict[str, Any]) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    """Units that a broker has written for TIMED at BASE, but for what is said."""
    found = np.zeros(len(units), LOG_UNIT)
    size = len(encode(TIMED, BASE))
    own = {
        "size": 52, "magic": 1, "written": WRITTEN, "delayed": DUE - WRITTEN, "phy_offset": BASE, "record_size": size,
        "topic_hash": hash_code(java_text("T")),
    }  # fmt: skip
    for row, unit in zip(found, units, strict=True):
        for name, value in (own | unit).items():
            row[name] = value
    return found


def fate(message: Message, **unit: Any) -> int:
    """Of a unit that leads to the message, and has its size unless that is said."""
    data = encode(message, BASE)
    (found,) = unit_fates(rows({"record_size": len(data)} | unit), np.frombuffer(bytearray(data), np.uint8), BASE).tolist()
    return int(found)


@pytest.mark.parametrize(("message", "unit"), [
    (TIMED, {}),
    (MARK, {"magic": 5}),
    (TIMED, {"magic": 3, "delayed": 30_000}),
    # A build gives what is overdue a slot of its own, in front of the clock.
    (TIMED, {"written": DUE + 5000, "delayed": -9000}),
])  # fmt: skip
def test_the_message_that_it_means(message: Message, unit: dict[str, Any]) -> None:
    assert fate(message, **unit) == FITS


@pytest.mark.parametrize(("message", "unit", "wanted"), [
    (TIMED, {"delayed": 30_000}, OTHER),
    (TIMED, {"magic": 3, "delayed": DUE - WRITTEN + 1}, OTHER),
    (TIMED, {"topic_hash": 7}, OTHER),
    (TIMED, {"magic": 5}, PASSED_OVER),
    (MARK, {}, PASSED_OVER),
    (MARK, {"magic": 3}, OTHER),
    (LEVEL, {}, OTHER),
    (PLAIN, {}, STUCK),
    (PLAIN, {"magic": 5}, PASSED_OVER),
    (PLAIN, {"magic": 3}, OTHER),
    (replace(PLAIN, body=b""), {"magic": 3}, PASSED_OVER),
    (replace(LEVEL, body=b""), {}, PASSED_OVER),
    (replace(LEVEL, properties={"REAL_TOPIC": "T", "REAL_QID": "x"}), {}, STUCK),
    (replace(LEVEL, properties={"REAL_QID": "0"}), {}, STUCK),
    (TIMED, {"phy_offset": BASE + 4}, PASSED_OVER),
    (TIMED, {"phy_offset": BASE - 1}, PASSED_OVER),
    (TIMED, {"phy_offset": -1}, PASSED_OVER),
    (TIMED, {"record_size": -1}, PASSED_OVER),
    (TIMED, {"record_size": 0x7FFFFFFF}, PASSED_OVER),
    (TIMED, {"record_size": 100}, PASSED_OVER),
])  # fmt: skip
def test_other_records(message: Message, unit: dict[str, Any], wanted: int) -> None:
    assert fate(message, **unit) == wanted


def test_a_larger_unit_reads_a_smaller_record() -> None:
    data = encode(PLAIN, BASE)
    larger, room = rows({"record_size": len(data) + 9}), bytes(9)
    assert unit_fates(larger, np.frombuffer(bytearray(data + room), np.uint8), BASE).tolist() == [STUCK]
    assert unit_fates(larger, np.frombuffer(bytearray(data), np.uint8), BASE).tolist() == [PASSED_OVER]


def test_units_in_segments_are_read_in_pieces() -> None:
    """In any order; what lies in no segment, over its end, or behind the log's end, is passed over."""
    size, step = len(encode(TIMED, 0)), 3 << 20
    logs = [bytearray(10 << 20), bytearray(10 << 20)]
    starts = [BASE, BASE + (10 << 20)]
    places = [start + number * step for start in starts for number in range(3)]
    for place in places:
        log, start = (logs[1], starts[1]) if place >= starts[1] else (logs[0], starts[0])
        log[place - start : place - start + size] = encode(TIMED, place)
    reads: list[tuple[int, int, int]] = []

    def read(number: int, at: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        reads.append((number, at, count))
        return np.frombuffer(logs[number], np.uint8)[at : at + count]

    segments = [(start, len(log)) for start, log in zip(starts, logs, strict=True)]
    elsewhere = [BASE - 5, starts[1] - 10, starts[1] + (11 << 20)]
    units = rows(*({"phy_offset": place} for place in reversed([*places, *elsewhere])))
    assert fates_in(units, segments, read, places[-1] + size).tolist() == [PASSED_OVER] * 3 + [FITS] * 6
    assert max(count for _, _, count in reads) == size
    assert fates_in(units, segments, read, places[-1] + size - 1).tolist()[3:] == [PASSED_OVER] + [FITS] * 5
    near = rows({}, {}, {"delayed": 5})
    reads.clear()
    assert fates_in(near, segments, read, places[-1]).tolist() == [FITS, FITS, OTHER]
    assert reads == [(0, 0, size)]


def test_a_unit_that_is_too_small_does_not_deliver() -> None:
    longs = [np.array(column, np.int64) for column in ([10, 10, 20], [1, 2, 3], [1, 1, 1], [99, 100, 50])]
    kept = Units(*longs).of_records(np.array([20, 10], np.int64), np.array([50, 100], np.int64))
    assert (kept.phy_offset.tolist(), kept.slot.tolist()) == ([10, 20], [2, 3])


def test_rows_of_a_log_of_dledger(tmp_path: Path) -> None:
    """Units name the record, which has the head of its entry in front; a walk may begin at either."""
    with LogWriter(tmp_path / "log", 1 << 11) as writer:
        for number in range(30):
            writer.append(replace(TIMED, store_timestamp=EPOCH + number))
    entries = as_dledger(tmp_path / "log", tmp_path / "node", 1 << 11)
    files = [
        StoreFile(path.name, np.frombuffer(bytearray(path.read_bytes()), np.uint8), HEAD)
        for path in sorted((tmp_path / "node" / "dledger-n0" / "data").iterdir())
    ]
    places, sizes = (
        np.array(column, np.int64) for column in zip(*((at + HEAD, size - HEAD) for at, size in entries), strict=True)
    )
    assert rows_at(files, places, sizes)["phy_offset"].tolist() == places.tolist()
    assert len(rows_at(files, places - HEAD, sizes)) == len(rows_at(files, places, sizes + 1)) == 0
    for low in (entries[4][0], int(places[4])):
        found = np.concatenate([*rows_since(files, low, sum(entries[-1]), EPOCH + 6)])
        assert (found["phy_offset"].tolist(), found["size"].tolist()) == (places[6:].tolist(), sizes[6:].tolist())
    assert begin_of(files, EPOCH + 29) == files[-1].start
