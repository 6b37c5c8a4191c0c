"""Two holes that take the same record between them are one range."""

from __future__ import annotations

from rocketmq_reindex.jobs.repairing.changes import apart
from rocketmq_reindex.storage_format.repair import BLANK, COPY, FILLER, Piece
from rocketmq_reindex.udfs.repair.mend import Mended


def _mended(low: int, high: int, *pieces: Piece, offset: int = -1, length: int = 20, replica: int = 0) -> Mended:
    return Mended(low if offset < 0 else offset, length, low, high, 0, [], replica, list(pieces))


def _copied(low: int, high: int, replica: int) -> Mended:
    return _mended(low, high, Piece(COPY, low, high, f"log-{replica}"), replica=replica)


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


def test_a_record_between_is_of_one_replica() -> None:
    one, other = _copied(100, 200, 1), _copied(150, 300, 2)
    assert [(found.replica, found.low, found.high, *found.pieces) for found in apart([other, one])] == [
        (1, 100, 200, Piece(COPY, 100, 200, "log-1")), (2, 200, 300, Piece(COPY, 200, 300, "log-2")),
    ]  # fmt: skip
    (found,) = apart([_copied(100, 200, 1), _copied(150, 300, 1)])
    assert (found.low, found.high, found.pieces) == (100, 300, [Piece(COPY, 100, 300, "log-1")])


def test_a_record_that_goes_with_a_small_hole_is_of_no_replica() -> None:
    lost = _mended(200, 300, Piece(FILLER, 200, 300))
    found = apart([_copied(100, 250, 1), lost, _copied(250, 400, 2)])
    assert [(one.replica, one.low, one.high, one.pieces[0].low, one.pieces[0].high) for one in found] == [
        (1, 100, 200, 100, 200), (0, 200, 300, 200, 300), (2, 300, 400, 300, 400),
    ]  # fmt: skip
