"""Cells: what goes in comes out, none is much larger than a cell, and a queue's file always has the same bucket."""

from __future__ import annotations

import random
import zlib

import numpy as np
import pytest
from hypothesis import given, strategies as st

from rocketmq_reindex.storage_format.queue import cells
from rocketmq_reindex.storage_format.queue.cells import bucket_of, cut_cells, rows_of

INT64 = st.integers(-(2**63), 2**63 - 1)
PIECES = st.lists(
    st.tuples(st.binary(max_size=9), st.integers(-(2**31), 2**31 - 1), st.lists(st.tuples(INT64, INT64), max_size=4)),
    max_size=6,
)


@given(PIECES)
def test_packed_and_unpacked(pieces: list[tuple[bytes, int, list[tuple[int, int]]]]) -> None:
    rows = [row for _, _, part in pieces for row in part]
    columns = np.array(rows, dtype=np.int64).reshape(-1, 2).T
    ids = np.array([queue_id for _, queue_id, _ in pieces], dtype=np.int32)
    counts = np.array([len(part) for _, _, part in pieces], dtype=np.int32)
    again = cells.unpack(cells.pack([name for name, _, _ in pieces], ids, counts, columns), 2)
    assert again.names == [name for name, _, _ in pieces]
    assert again.queue_ids.tolist() == ids.tolist()
    assert again.counts.tolist() == counts.tolist()
    assert (again.columns == columns).all()


def test_the_layout_is_little_endian() -> None:
    cell = cells.pack([b"ab"], np.array([3], np.int32), np.array([1], np.int32), np.array([[4], [5]], np.int64))
    head = b"\x01" + bytes(7) + b"\x01" + bytes(7)
    table = b"\x02\0\0\0\x03\0\0\0\x01\0\0\0"
    widths = b"\x04" + bytes(7) + b"\x01" + bytes(7) + b"\x05" + bytes(7) + b"\x01" + bytes(7)
    assert cell == head + table + widths + b"\0\0ab"


@pytest.mark.parametrize(
    ("spread", "width"), [(0, 1), (255, 1), (256, 2), (2**16, 4), (2**32 - 1, 4), (2**32, 8), (2**64 - 1, 8)]
)
def test_a_column_is_as_wide_as_it_needs(spread: int, width: int) -> None:
    column = np.array([[-(2**63), -(2**63) + spread]], np.int64)
    cell = cells.pack([b""], np.array([3], np.int32), np.array([2], np.int32), column)
    assert len(cell) == 28 + 16 + 2 * width
    assert (cells.unpack(cell, 1).columns == column).all()


def test_cut_by_bucket_and_size(seed: int) -> None:
    rng = random.Random(seed)
    pieces = [(rng.randrange(3), rng.randrange(5), rng.choice((1, 2, 900, 20_000))) for _ in range(120)]
    names = [b"topic-%d" % k for k in range(5)]
    bucket, name, counts = (np.array([piece[k] for piece in pieces], dtype=np.int64) for k in range(3))
    starts = np.cumsum(counts) - counts
    ids = np.arange(len(pieces), dtype=np.int32)
    columns = np.arange(4 * counts.sum(), dtype=np.int64).reshape(4, -1)
    cut = cut_cells(bucket, names, name, ids, starts, counts, columns)
    assert [number for number, _ in cut] == sorted(number for number, _ in cut)
    seen = []
    for number, cell in cut:
        found = cells.unpack(cell, 4)
        assert len(cell) <= cells.CELL_BYTES + 16 or len(found.names) == 1
        at = 0
        for raw, queue_id, count in zip(found.names, found.queue_ids.tolist(), found.counts.tolist(), strict=True):
            assert (pieces[queue_id][0], names[pieces[queue_id][1]], pieces[queue_id][2]) == (number, raw, count)
            rows = slice(int(starts[queue_id]), int(starts[queue_id] + count))
            assert (found.columns[:, at : at + count] == columns[:, rows]).all()
            at += count
            seen.append(queue_id)
        assert at == found.columns.shape[1]
    assert sorted(seen) == ids.tolist()
    # Few cells: those of a bucket are filled before the next is begun.
    total = int((counts * 32).sum()) + 64 * len(pieces)
    assert len(cut) <= 3 + 2 * (total // cells.CELL_BYTES + 1)


def test_nothing_to_cut() -> None:
    none = np.zeros(0, np.int64)
    assert cut_cells(none, [], none, np.zeros(0, np.int32), none, none, np.zeros((4, 0), np.int64)) == []
    assert rows_of(none, none).tolist() == []


def splitmix(value: int) -> int:
    value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) % 2**64
    value = ((value ^ value >> 27) * 0x94D049BB133111EB) % 2**64
    return value ^ value >> 31


@given(st.text(max_size=5), st.integers(0, 2**31 - 1), st.integers(0, 2**40), st.integers(1, 1000))
def test_buckets_depend_on_the_queue_and_file_alone(name: str, queue_id: int, part: int, buckets: int) -> None:
    crc = zlib.crc32(name.encode())
    expected = (splitmix(crc << 32 | queue_id) + part) % buckets
    columns = np.array([crc], np.uint32), np.array([queue_id], np.int32), np.array([part], np.int64)
    assert bucket_of(*columns, buckets).tolist() == [expected]


def test_buckets_are_even() -> None:
    crc = np.array([zlib.crc32(b"topic-%d" % (k // 8)) for k in range(8000)], np.uint32)
    ids, part = np.arange(8000, dtype=np.int32) % 8, np.zeros(8000, np.int64)
    for buckets in (2, 7, 64):
        filled = np.bincount(bucket_of(crc, ids, part, buckets), minlength=buckets)
        assert 0.5 * 8000 / buckets < filled.min()
        assert filled.max() < 1.6 * 8000 / buckets


@pytest.mark.parametrize("buckets", [1, 2, 7, 64])
def test_a_hot_queue_is_spread_evenly(buckets: int) -> None:
    one = np.full(1000, zlib.crc32(b"hot"), np.uint32), np.zeros(1000, np.int32), np.arange(1000)
    filled = np.bincount(bucket_of(*one, buckets), minlength=buckets)
    assert filled.max() - filled.min() <= 1
