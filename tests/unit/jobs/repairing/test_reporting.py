"""Two holes that take the same record between them are one range."""

from __future__ import annotations

from rocketmq_reindex.jobs.repairing.reporting import apart
from rocketmq_reindex.storage_format.repair.pieces import BLANK, FILLER, Piece
from rocketmq_reindex.udfs.repair.mend import Mended


def _mended(low: int, high: int, *pieces: Piece, offset: int = -1, length: int = 20) -> Mended:
    return Mended(low if offset < 0 else offset, length, low, high, 0, "bad", 0, list(pieces))


def test_ranges_that_overlap_become_one() -> None:
    one = _mended(100, 250, Piece(FILLER, 100, 250))
    other = _mended(120, 300, Piece(FILLER, 120, 300), offset=250)
    (found,) = apart([other, one])
    assert (found.low, found.high, found.offset, found.length) == (100, 300, 100, 170)
    assert found.pieces == [Piece(FILLER, 100, 300)]


def test_the_end_of_a_segment_stays_blank() -> None:
    one = _mended(100, 250, Piece(FILLER, 100, 250))
    other = _mended(120, 300, Piece(BLANK, 120, 300), offset=250)
    assert apart([one, other])[0].pieces == [Piece(BLANK, 100, 300)]
    first = _mended(0, 250, Piece(FILLER, 0, 250))
    assert apart([first, other])[0].pieces == [Piece(FILLER, 0, 250), Piece(BLANK, 250, 300)]


def test_others_stay_apart() -> None:
    one, other = _mended(100, 200, Piece(FILLER, 100, 200)), _mended(200, 300, Piece(FILLER, 200, 300))
    assert apart([other, one]) == [one, other]
