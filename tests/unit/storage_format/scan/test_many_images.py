"""Logs full of made-up records that all but hold: a search through them takes time by their bytes, not by their square."""

from __future__ import annotations

import random
import struct
import time
import zlib

import numpy as np
import pytest

from rocketmq_reindex.storage_format.kernels.raw_bytes import SUM_STEP, crc32_of_range, prefix_sums
from rocketmq_reindex.storage_format.record.layout import CRC_ALL, CRC_BODY, MAGIC_V1
from rocketmq_reindex.storage_format.scan.range_scan import RangeScanner
from rocketmq_reindex.storage_format.scan.ranges import RangeSpec, RangeSummary
from rocketmq_reindex.storage_format.scan.settings import ScanSettings
from tests.tools.encode import Message, encode

HEAD = 88
TAIL = b"\x01T\x00\x00"
"""topic T, no properties"""


def image(place: int, total: int, body_crc: int = 5) -> bytes:
    """The 88 bytes that begin a record of ``total`` bytes which ends in TAIL."""
    head = struct.pack(
        ">iiiiiqqiqqqqiqi", total, MAGIC_V1, body_crc, 0, 0, 0, place, 0, 0, 0, 0, 0, 0, 0, total - HEAD - len(TAIL)
    )
    assert len(head) == HEAD
    return head


def all_to_the_end(size: int) -> bytearray:
    """An image every 88 bytes, each said to reach to the end; the first has no magic."""
    out = bytearray(size)
    for place in range(0, size - HEAD - len(TAIL), HEAD):
        out[place : place + HEAD] = image(place, size - place)
    out[4] = 0
    out[-len(TAIL) :] = TAIL
    return out


def all_as_long(size: int, total: int) -> bytearray:
    """An image every 88 bytes, each of so many bytes; they end where others tell where they were born, which nobody checks."""
    out = bytearray(size)
    total = total // HEAD * HEAD + 56
    for place in range(0, size - HEAD, HEAD):
        out[place : place + HEAD] = image(place, total)
        out[place + 52 : place + 56] = TAIL
    out[4] = 0
    return out


def scan(log: bytes | bytearray, crc_mode: int = CRC_BODY, chunk: int = 1 << 20) -> tuple[RangeSummary, list[int]]:
    """(summary, bytes of each read)."""
    data, reads = np.frombuffer(bytes(log), np.uint8), []

    def read(at: int, out: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> None:
        reads.append(len(out))
        out[:] = data[at : at + len(out)]

    scanner = RangeScanner(ScanSettings(crc_mode, chunk=chunk, block_rows=70_000))
    list(scanner.scan(RangeSpec(0, "", 0, len(log), len(log), 0, len(log), True), read))
    return scanner.summary, reads


def seconds(log: bytearray) -> float:
    scan(all_to_the_end(1 << 14))  # compiled, or loaded
    started = time.process_time()
    summary, _ = scan(log)
    assert (summary.tail, summary.records) == (0, 0)
    return time.process_time() - started


def test_images_that_all_reach_to_the_end() -> None:
    """Summing each of them up would read 2 TB here: minutes. It takes half a second."""
    assert seconds(all_to_the_end(16 << 20)) < 20


def test_images_longer_than_the_buffer() -> None:
    """Each wants a little more than the buffer holds: moving it each time took 17 s here. It takes 0.15 s."""
    log = all_as_long(8 << 20, (1 << 20) + 500)
    assert seconds(log) < 6
    _, reads = scan(log)
    # Read once, and once more for records that all lie elsewhere than they say: no record stands in the whole segment.
    assert sum(reads) < 2 * len(log) + 100
    assert len(reads) < 100


@pytest.mark.parametrize("crc_mode", [CRC_BODY, CRC_ALL])
def test_a_true_record_among_them_is_found(crc_mode: int, seed: int) -> None:
    """Behind them, or between them with a body of any length."""
    rng = random.Random(seed)
    for _ in range(20):
        size = rng.randrange(20_000, 60_000)
        log, place = all_to_the_end(size), rng.randrange(10_000, size - 9_000)
        body = rng.randbytes(rng.choice((0, 10, SUM_STEP, 8_000)))
        record = encode(Message(body=body, properties={"KEYS": "k"}, crc_property=rng.random() < 0.5), place)
        log[place : place + len(record)] = record
        log += encode(Message(body=b"behind"), size)
        summary, _ = scan(log, crc_mode, chunk=rng.choice((4096, 1 << 20)))
        assert (summary.first, summary.records) == (0, 2)
        assert summary.holes == [[0, place, 20], [place + len(record), size - place - len(record), summary.holes[1][2]]]


def test_a_wrong_sum_of_the_record_among_them(seed: int) -> None:
    """With ``--crc all`` a record whose body is right and whose ``__CRC32#`` is not is none, however it is summed up."""
    rng = random.Random(seed)
    size = 40_000
    for body in (b"", rng.randbytes(6_000)):
        record = bytearray(encode(Message(body=body, properties={"KEYS": "k"}, crc_property=True), 20_000))
        record[40] ^= 1  # BORNTIMESTAMP
        log = all_to_the_end(size)
        log[20_000 : 20_000 + len(record)] = record
        log += encode(Message(body=b"behind"), size)
        assert scan(log, CRC_BODY)[0].records == 2
        assert scan(log, CRC_ALL)[0].records == 1


def test_sums_of_ranges(seed: int) -> None:
    rng = random.Random(seed)
    raw = rng.randbytes(rng.randrange(3 * SUM_STEP, 6 * SUM_STEP))
    for filled in (0, 1, SUM_STEP - 1, SUM_STEP, SUM_STEP + 1, len(raw)):
        data = np.frombuffer(raw, np.uint8)
        sums = prefix_sums(data, filled)
        assert len(sums) == filled // SUM_STEP + 1
        edges = [0, filled, *(rng.randrange(filled + 1) for _ in range(20))]
        for start in edges:
            for end in edges:
                if start <= end:
                    assert crc32_of_range(data, sums, start, end) == zlib.crc32(raw[start:end])
