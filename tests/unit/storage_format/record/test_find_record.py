"""The next good record after damage: the first place, tried byte by byte, where one stands."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from rocketmq_reindex.storage_format.record import frame, layout as r
from tests.reference import records
from tests.reference.settings import Settings
from tests.tools.encode import Message, blank, encode

BASE, SEGMENT_END = 1 << 20, 2 << 20


def find(log: bytes, start: int, limit: int, step: int = 0, crc: int = r.CRC_BODY) -> tuple[int, int]:
    """find_record, handed ``step`` bytes more whenever it asks for more (0: all at once)."""
    data = np.frombuffer(log, np.uint8)
    record = frame.new_record()
    filled, at = (min(start + step, len(log)) if step else len(log)), start
    while True:
        seen = np.concatenate([data[:filled], np.full(len(data) - filled, 0xDA, np.uint8)])
        stretch = frame.Stretch(seen, filled, BASE, SEGMENT_END, BASE + len(log))
        code, at = frame.find_record(stretch, at, limit, crc, record)
        if code != r.MORE:
            return int(code), int(at)
        wanted = at + int(record.rec[frame.TOTAL])
        assert filled < wanted <= len(log)
        filled = max(wanted, min(filled + step, len(log)))


def brute_force(log: bytes, start: int, limit: int) -> tuple[int, int]:
    for at in range(start, limit):
        found = records.parse(log, at, BASE, SEGMENT_END, Settings())
        if isinstance(found, records.Record) or (isinstance(found, records.Bad) and found.stands):
            return r.GOOD, at
    return r.NOT_FOUND, limit


@pytest.mark.parametrize("step", [0, 1, 64])
def test_finds_what_trying_every_byte_finds(seed: int, step: int) -> None:
    rng = random.Random(seed)
    for _ in range(40):
        log = bytearray()
        for _ in range(rng.randrange(1, 4)):
            log += rng.choice((b"", bytes(3), b"\xda\xa3\x20\xa7" * 3, rng.randbytes(40), b"\xcb\xd4\x31\x94", bytes(7)))
            message = Message(body=rng.randbytes(rng.randrange(60)), properties={"KEYS": "k"} if rng.random() < 0.5 else {})
            if rng.random() < 0.3:
                inner = encode(Message(topic="Evil"), BASE + len(log) + 88)
                message = replace(message, body=inner, body_crc=rng.choice((0, None)))
            log += encode(message, BASE + len(log) + rng.choice((0, 0, 0, 1)))
        for _ in range(rng.randrange(3)):
            log[rng.randrange(len(log))] ^= 1 << rng.randrange(8)
        if rng.random() < 0.3:
            del log[rng.randrange(len(log)) :]
        start = rng.randrange(len(log) + 1)
        limit = rng.choice((len(log), rng.randrange(start, len(log) + 1)))
        assert find(bytes(log), start, limit, step) == brute_force(bytes(log), start, limit)


def test_no_filler_is_looked_for() -> None:
    """A body may hold a filler that fits; to believe it would cost the rest of the segment."""
    log = b"lost" + blank(SEGMENT_END - BASE - 4) + bytes(50)
    record = encode(Message(), BASE + len(log))
    assert find(log + record, 0, len(log) + 1) == (r.GOOD, len(log))
    assert find(log + record, 0, len(log)) == (r.NOT_FOUND, len(log))


def test_a_bad_body_is_found_only_without_crc() -> None:
    record = bytearray(encode(Message(body=b"x" * 20), BASE + 5))
    record[88] ^= 1
    log = b"?????" + bytes(record)
    assert find(log, 0, len(log)) == (r.NOT_FOUND, len(log))
    assert find(log, 0, len(log), crc=r.CRC_NONE) == (r.GOOD, 5)


def test_a_head_at_the_end_of_what_was_read_so_far() -> None:
    """Records in one another, all with a wrong CRC: the search then takes prefix sums. The next record is found all the same,
    wherever its head is cut off.
    """
    nest = b"x" * 200
    for level in (3, 2, 1, 0):
        nest = encode(Message(body=nest, body_crc=0), BASE + 88 * level)
    good = encode(Message(body=b"y" * 30, born_host=("::1", 1), store_host=("::2", 1)), BASE + len(nest))
    log = nest + good
    assert brute_force(log, 0, len(log)) == (r.GOOD, len(nest))
    for step in range(len(nest), len(log) + 1):
        assert find(log, 0, len(log), step) == (r.GOOD, len(nest))
