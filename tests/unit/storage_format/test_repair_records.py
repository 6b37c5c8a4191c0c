"""Records that stand for lost bytes: exact sizes and sums, each a good record without a unit, an item or a message."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rocketmq_reindex.storage_format import repair
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.columns import is_tombstone
from rocketmq_reindex.storage_format.record.frame import STORE_TIME, TOTAL, VERSION, Stretch, check_record, new_record
from rocketmq_reindex.storage_format.record.layout import CRC_ALL
from rocketmq_reindex.storage_format.record.message import Message, read_message
from rocketmq_reindex.storage_format.repair import LOST_TOPIC, PIECE_MAX, Demands
from tests.reference.java import hash_code
from tests.tools import encode

PLAIN, CRC, DUP, BOTH = Demands(), Demands(property_crc=True), Demands(dup_info=True), Demands(True, True)
EVERY = (PLAIN, CRC, DUP, BOTH)
TIME = 1_700_000_000_123
AT = 5 << 30


def read(data: bytes, offset: int = AT) -> Message:
    """The one record that ``data`` is, all of whose checksums are right."""
    record, end = new_record(), offset + len(data)
    rec = record.rec
    assert check_record(Stretch(np.frombuffer(data, np.uint8), len(data), offset, end, end), 0, CRC_ALL, record) == r.GOOD
    assert (rec[TOTAL], rec[STORE_TIME]) == (len(data), TIME)
    found = read_message(lambda at, count: data[at : at + count], offset, len(data))
    assert isinstance(found, Message)
    assert rec[VERSION] == found.version
    return found


def told(demands: Demands, topic: bytes, body: int, properties: bytes = b"", **more: Any) -> bytes:
    """The same record as the tests' own writer of records has it."""
    text = properties + (b"DUP_INFO\x010_0\x02" if demands.dup_info else b"")
    message = encode.Message(
        topic=topic, body=bytes(body), properties=text, flag=0x4C4F5354, born_timestamp=TIME, store_timestamp=TIME,
        born_host=("127.0.0.1", 0), store_host=("127.0.0.1", 0), crc_property=demands.property_crc,
    )  # fmt: skip
    return encode.encode(replace(message, **more), AT)


@pytest.mark.parametrize(("demands", "least"), [(PLAIN, 92), (CRC, 112), (DUP, 105), (BOTH, 125)])
def test_the_smallest_fillers(demands: Demands, least: int) -> None:
    assert demands.filler_min == least
    assert repair.small_filler(demands) == least + len(LOST_TOPIC) - 1
    for size in range(least, least + 200):
        data = repair.filler(AT, size, TIME, demands)
        found = read(data)
        assert data == told(demands, LOST_TOPIC[: size - least + 1], found.body_size, sysflag=encode.ROLLBACK)
        assert (len(data), found.sys_flag, found.flag, found.is_filler) == (size, 0x0C, 0x4C4F5354, True)
        assert found.topic.encode() == LOST_TOPIC[: size - least + 1]
        assert found.body_size == max(0, size - repair.small_filler(demands))
        assert (found.queue_id, found.queue_offset, found.born_time, found.prepared_offset) == (0, 0, TIME, 0)
        assert list(found.properties) == ["DUP_INFO"] * demands.dup_info + ["__CRC32#"] * demands.property_crc
    for size in range(least):
        with pytest.raises(ValueError, match=f"{least}"):
            repair.filler(AT, size, TIME, demands)


@pytest.mark.parametrize("demands", EVERY)
def test_pieces(demands: Demands, seed: int) -> None:
    """Pieces of at most 4 MiB, whose sizes add up; none is too small for a record."""
    rng = random.Random(seed)
    least = demands.filler_min
    around = [PIECE_MAX + more for more in (-1, 0, 1, least - 1, least, least + 1)]
    sizes = [least, *around, PIECE_MAX + around[rng.randrange(len(around))], 2 * PIECE_MAX + rng.randrange(PIECE_MAX)]
    for size in sizes:
        pieces = list(repair.fillers(AT, size, TIME, demands))
        assert sum(map(len, pieces)) == size
        assert len(pieces) == -(-size // PIECE_MAX)
        assert all(least <= len(piece) <= PIECE_MAX for piece in pieces)
        at = AT
        for piece in pieces:
            assert read(piece, at).topic == LOST_TOPIC.decode()[: len(piece) - least + 1]
            at += len(piece)
    with pytest.raises(ValueError, match="bytes"):
        next(repair.fillers(AT, least - 1, TIME, demands))


def test_a_crc_over_the_whole_record() -> None:
    """Another byte before its ``__CRC32#``, or another digit of it, is seen."""
    data = repair.filler(AT, 200, TIME, CRC)
    for at in [*range(len(data) - 20), *range(len(data) - 11, len(data) - 1)]:
        spoilt = np.frombuffer(data, np.uint8).copy()
        spoilt[at] ^= 1
        code = check_record(Stretch(spoilt, len(data), AT, AT + len(data), AT + len(data)), 0, CRC_ALL, new_record())
        assert code >= r.FIRST_DAMAGE or code == r.MORE, at


@pytest.mark.parametrize("demands", EVERY)
@pytest.mark.parametrize("length", [1, 127, 128, 129, 255, 300, 0x7FFF])
def test_tombstones(demands: Demands, length: int) -> None:
    """An ordinary record with TAGS ``__LOST__``; a topic of 128 bytes and more makes it a V2 record."""
    topic = bytes(97 + number % 26 for number in range(length))
    least = repair.tombstone_min(topic, demands)
    for size in (0, least, least + 1, least + 5000):
        data = repair.tombstone(AT, TIME, demands, topic, 7, 123_456_789_012, size)
        found = read(data)
        assert len(data) == (size or least)
        assert data == told(
            demands, topic, found.body_size, b"TAGS\x01__LOST__\x02", queue_id=7, queue_offset=123_456_789_012
        )  # fmt: skip
        assert (found.topic.encode(), found.queue_id, found.queue_offset) == (topic, 7, 123_456_789_012)
        assert (found.tags, found.flag, found.sys_flag, found.is_filler) == ("__LOST__", 0x4C4F5354, 0, False)
        assert is_tombstone(found.flag, hash_code("__LOST__"))
        assert found.version == (1 if length < 128 else 2)
    with pytest.raises(ValueError, match=f"{least}"):
        repair.tombstone(AT, TIME, demands, topic, 7, 0, least - 1)


def test_too_long() -> None:
    with pytest.raises(ValueError, match="too long"):
        repair.tombstone(AT, TIME, PLAIN, bytes(0x8000), 0, 0)
    with pytest.raises(ValueError, match="too long"):
        repair.record(AT, TIME, CRC, topic=b"T", properties=bytes(0x7FFF - 19))


def test_the_filler_of_a_segments_end() -> None:
    for size in (8, 9, 11, 12, 13, 1 << 30):
        data = repair.blank(size)
        assert data[:8] == encode.blank(size)
        assert data[8:] == (struct.pack(">i", 0x4C4F5354) if size >= 12 else b"")
    with pytest.raises(ValueError, match="at least 8"):
        repair.blank(7)
