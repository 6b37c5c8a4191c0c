"""Tombstones: a record for each lost queue offset, as far as there is room."""

from __future__ import annotations

from rocketmq_reindex.jobs.repairing.changes import Gap, with_tombstones
from rocketmq_reindex.storage_format.repair import BLANK, FILLER, TOMBSTONE, Demands, Piece, tombstone_min
from rocketmq_reindex.udfs.repair.mend import Mended

SIZE = tombstone_min(b"T", Demands())
ENDS = {0: 10_000}


def _lost(low: int, high: int, kind: str = FILLER) -> Mended:
    return Mended(low, high - low, low, high, 0, [], 0, [Piece(kind, low, high, time=7, range=0)])


def _pieces(one: Mended) -> list[tuple[str, int, int, int]]:
    return [(piece.kind, piece.low, piece.high, piece.queue_offset) for piece in one.pieces]


def test_each_offset_gets_a_record() -> None:
    (found,), left = with_tombstones([_lost(1000, 2000)], [Gap("T", 3, 8, 2, 900, 2100)], ENDS)
    middle = 1000 + SIZE
    assert _pieces(found) == [
        (TOMBSTONE, 1000, middle, 8), (TOMBSTONE, middle, middle + SIZE, 9), (FILLER, middle + SIZE, 2000, 0),
    ]  # fmt: skip
    assert left == 0


def test_a_rest_too_small_for_a_record_is_the_last_ones_body() -> None:
    high = 1000 + SIZE + 50
    (found,), _ = with_tombstones([_lost(1000, high)], [Gap("T", 3, 8, 1, 900, high)], ENDS)
    assert _pieces(found) == [(TOMBSTONE, 1000, high, 8)]
    assert len(b"".join(found.pieces[0].made())) == high - 1000


def test_up_to_a_segments_end_blank_follows() -> None:
    (found,), _ = with_tombstones([_lost(9000, 10_000, BLANK)], [Gap("T", 3, 8, 1, 900, 20_000)], ENDS)
    assert _pieces(found) == [(TOMBSTONE, 9000, 9000 + SIZE, 8), (BLANK, 9000 + SIZE, 10_000, 0)]


def test_what_finds_no_room_is_counted() -> None:
    (first, second), left = with_tombstones(
        [_lost(1000, 1000 + SIZE), _lost(3000, 3000 + 2 * SIZE)], [Gap("T", 3, 8, 4, 900, 4000)], ENDS
    )
    assert [piece[3] for piece in _pieces(first) + _pieces(second)] == [8, 9, 10]
    assert left == 1


def test_a_range_that_one_gap_alone_can_have_goes_to_that() -> None:
    gaps = [Gap("T", 0, 5, 1, 900, 9000), Gap("T", 1, 6, 1, 900, 2000)]
    (first, second), left = with_tombstones([_lost(1000, 1000 + SIZE), _lost(3000, 3000 + SIZE)], gaps, ENDS)
    assert ([piece.queue for piece in first.pieces], [piece.queue for piece in second.pieces], left) == ([1], [0], 0)
