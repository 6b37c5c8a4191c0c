"""The work that forged heads behind a gap cost: by the bytes that are summed up, not by a clock."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from rocketmq_reindex.storage_format.layouts import INT64_MAX
from rocketmq_reindex.storage_format.record import layout as r, state as w, window as passes
from rocketmq_reindex.storage_format.record.frame import Stretch, new_record
from rocketmq_reindex.storage_format.record.name_table import NameTable

STEP = 96
END = b"\x01T" + bytes(2)
"""a topic and no properties"""


def heads(count: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """A log of record heads, one behind the other, that each say to be of a record up to its very end. No CRC holds."""
    data, size = bytearray(), count * STEP + len(END)
    for place in range(0, count * STEP, STEP):
        total = size - place
        head = bytearray(r.HEADER_SIZE)
        struct.pack_into(">iii", head, 0, total, r.MAGIC_V1, -1)
        struct.pack_into(">q", head, r.AT_PHYSICAL_OFFSET, place)
        struct.pack_into(">i", head, r.AT_BODY_LENGTH, total - r.HEADER_SIZE - len(END))
        data += head.ljust(STEP, b"\xff")
    return np.frombuffer(bytes(data + END), np.uint8)


def look(count: int) -> tuple[int, int, int, int]:
    """What the pass over such a log returns, the bytes that were summed up, and the bytes of the log."""
    data = heads(count)
    size = len(data)
    state, queue_state = np.zeros(passes.STATE_SIZE, np.int64), np.zeros(w.STATE_SIZE, np.int64)
    state[passes.FIRST], state[passes.LIVE_TIME] = -1, INT64_MAX
    queues = w.QueueArrays(np.full(8, -1, np.int32), np.zeros(4, np.int32), np.zeros(4, np.int32), np.full(4, -1, np.int64))
    code, at = passes.note_queues(
        Stretch(data, size, 0, size, size), 0, size - passes.HEAD + 1, 0, NameTable("5.3", (), ()).arrays, queues,
        passes.OffsetArrays(np.full(4, -1, np.int64), np.full(4, -1, np.int64)), queue_state, state, new_record(),
    )  # fmt: skip
    return int(code), int(at), int(state[passes.SUMMED]), size


@pytest.mark.parametrize("count", [1_000, 8_000])
def test_forged_heads_are_summed_up_so_often_and_no_more(count: int) -> None:
    """Each costs the bytes that it says to have: together they would cost the square of the log. Then it is damage."""
    code, at, summed, size = look(count)
    most = 8 * passes.LONGEST + size
    assert count * size // 2 > most or count == 1_000, "more than the limit, if nothing stops it"
    assert summed <= most + size
    if count == 1_000:
        assert (code, summed) == (r.LIMIT, sum(size - place for place in range(STEP, at, STEP)))
    else:
        assert code == r.NOT_FOUND
        assert at < size // 2, "it ends where the limit is met"
