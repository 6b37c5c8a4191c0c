"""config/timercheck."""

from __future__ import annotations

import struct

import pytest

from rocketmq_reindex.storage_format.delay.timer_layout import TimerCheckpoint


@pytest.mark.parametrize("data", [b"", struct.pack(">qqqq", 1, 2, 3, 4), struct.pack(">qq", 1, 2)])
def test_a_file_that_is_too_short(data: bytes) -> None:
    found = TimerCheckpoint.from_bytes(data)
    assert (found.read_time, found.log_flushed, found.queue_offset, found.master_queue_offset) == struct.unpack(
        ">qqqq", data.ljust(32, b"\0")
    )


def test_the_whole_file() -> None:
    check = TimerCheckpoint(1, 2, 3, 4, 5, 6, 7)
    assert check.to_bytes() == struct.pack(">7q", 1, 2, 3, 4, 5, 6, 7) + bytes(4096 - 56)
    assert TimerCheckpoint.from_bytes(check.to_bytes()) == check
