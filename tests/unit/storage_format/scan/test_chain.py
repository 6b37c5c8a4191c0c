"""Chaining summaries of ranges: guesses, long records, holes, missing segments and torn tails, from made-up summaries."""

from __future__ import annotations

import time

import pytest

from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.scan.chain import Chain, chain_ranges
from rocketmq_reindex.storage_format.scan.ranges import TORN_TAIL_MAX, Hole, RangeSpec, RangeSummary, Segment, cut_ranges

GIB = 1 << 30


def segment(start: int, size: int = 1000, data: int | None = None) -> Segment:
    return Segment(f"{start:020d}", f"/log/{start:020d}", start, start + (size if data is None else data), start + size)


class Log:
    """Segments whose ranges are given one after another, each with what a scan would say of it."""

    def __init__(self, *segments: Segment) -> None:
        self.segments = list(segments)
        self.ranges: dict[int, list[RangeSpec]] = {s.start: [] for s in segments}
        self.summaries: dict[int, RangeSummary] = {}

    def range(self, low: int, high: int, first: int, end: int = -1, **more: object) -> None:
        """``end`` -1 where the walk ended in damage (``tail``); what was guessed and walked well has a last good record."""
        s = next(s for s in reversed(self.segments) if s.start <= low)
        spec = RangeSpec(len(self.summaries), s.path, s.start, s.segment_end, s.data_end, low, high, low == s.start)
        self.ranges[s.start].append(spec)
        summary = RangeSummary(spec.number, low, high, spec.known, first=first, end=end)
        summary.last_good = first
        for name, value in more.items():
            setattr(summary, name, value)
        self.summaries[spec.number] = summary

    def chain(self) -> Chain:
        return chain_ranges(self.segments, self.ranges, self.summaries)


def numbers(chain: Chain) -> list[int]:
    return [summary.number for summary in chain.accepted]


def test_ranges_that_follow_on() -> None:
    log = Log(segment(0), segment(1000, data=700))
    log.range(0, 400, 0, 430)
    log.range(400, 1000, 430, 1000)
    log.range(1000, 1700, 1000, 1700)
    chain = log.chain()
    assert (numbers(chain), chain.rejected, chain.rescans, chain.holes, chain.torn) == ([0, 1, 2], [], [], [], None)


def test_a_record_over_several_ranges() -> None:
    """What was found inside it is passed over; a filler reaches over ranges as well."""
    log = Log(segment(0))
    log.range(0, 100, 0, 450)
    log.range(100, 200, 130, 220)
    log.range(200, 450, -1, -1, tail=200, last_nonzero=449)
    log.range(450, 500, 450, 1000, last_nonzero=480)
    log.range(500, 1000, 600, 1000)
    chain = log.chain()
    assert (numbers(chain), sorted(chain.rejected), chain.holes) == ([0, 3], [1, 2, 4], [])


def test_a_wrong_guess_is_scanned_again_to_the_segments_end() -> None:
    log = Log(segment(0), segment(1000))
    log.range(0, 100, 0, 150)
    log.range(100, 300, 120, 310)
    log.range(300, 1000, 310, 1000)
    log.range(1000, 2000, 1000, 2000)
    chain = log.chain()
    assert (numbers(chain), chain.rejected) == ([0, 3], [1, 2])
    (again,) = chain.rescans
    assert (again.low, again.high, again.known, again.segment_start, again.path) == (150, 1000, True, 0, "/log/" + "0" * 20)
    log.ranges[0] = [log.ranges[0][0], again.__class__(9, again.path, 0, 1000, 1000, 150, 1000, True)]
    log.summaries[9] = RangeSummary(9, 150, 1000, True, first=150, end=1000, last_good=900)
    chain = log.chain()
    assert (numbers(chain), chain.rescans, chain.holes) == ([0, 9, 3], [], [])


def test_zeros_to_the_end_are_no_damage() -> None:
    log = Log(segment(0), segment(1000))
    log.range(0, 100, 0, 150)
    log.range(100, 500, -1, tail=100, last_nonzero=149)
    log.range(500, 1000, -1, tail=500)
    log.range(1000, 2000, 1000, tail=1000, tail_code=r.ZERO, last_good=-1)
    chain = log.chain()
    assert (chain.holes, chain.torn, chain.rescans) == ([], None, [])


def test_zeros_before_a_good_record_are() -> None:
    log = Log(segment(0), segment(1000))
    log.range(0, 1000, 0, tail=150, tail_code=r.ZERO)
    log.range(1000, 2000, 1000, 2000)
    assert log.chain().holes == [Hole("0" * 20, 150, 850, r.REASONS[r.ZERO])]


def test_a_hole_over_ranges_ends_at_the_next_record_found() -> None:
    log = Log(segment(0))
    log.range(0, 300, 0, tail=200, tail_code=r.BAD_MAGIC, last_nonzero=299)
    log.range(300, 600, -1, tail=300, last_nonzero=599)
    log.range(600, 1000, 720, 1000, holes=[[800, 50, r.BAD_BODY_CRC]], last_good=850)
    chain = log.chain()
    assert chain.holes == [
        Hole("0" * 20, 200, 520, "bad magic code"),
        Hole("0" * 20, 800, 50, "body CRC does not match"),
    ]
    assert numbers(chain) == [0, 2]


@pytest.mark.parametrize(("length", "torn"), [(1, True), (TORN_TAIL_MAX, True), (TORN_TAIL_MAX + 1, False), (GIB // 2, False)])
def test_a_torn_tail_ends_near_the_last_byte_written(length: int, torn: bool) -> None:
    log = Log(segment(0, GIB))
    log.range(0, GIB // 4, 0, tail=5000, tail_code=r.BAD_SIZE, last_nonzero=min(GIB // 4, 5000 + length) - 1)
    log.range(GIB // 4, GIB, -1, tail=GIB // 4, last_nonzero=5000 + length - 1 if 5000 + length > GIB // 4 else -1)
    chain = log.chain()
    if torn:
        assert chain.torn == Hole("0" * 20, 5000, length, "torn tail: impossible record size")
        assert chain.holes == []
    else:
        assert chain.torn is None
        assert chain.holes == [Hole("0" * 20, 5000, length, "impossible record size")]


def test_a_torn_tail_reaches_into_the_segments_behind() -> None:
    log = Log(segment(0), segment(1000), segment(2000))
    log.range(0, 1000, 0, tail=900, tail_code=r.BAD_MAGIC, last_nonzero=999)
    log.range(1000, 2000, 1000, tail=1000, tail_code=r.BAD_MAGIC, last_good=-1, last_nonzero=1300)
    log.range(2000, 3000, 2000, tail=2000, tail_code=r.ZERO, last_good=-1)
    chain = log.chain()
    assert (chain.torn, chain.holes) == (Hole("0" * 20, 900, 401, "torn tail: bad magic code"), [])


def test_records_that_tell_another_place() -> None:
    """One place a segment, wherever ranges are cut; all of a segment at one distance: its right name."""
    log = Log(segment(0), segment(1000), segment(2000, data=500))
    for low, distance in ((1000, 4000), (1300, 4000), (2000, 7000)):
        high = {1000: 1300, 1300: 2000, 2000: 2500}[low]
        more: dict[str, object] = {"last_good": -1, "last_sound": low + 200, "elsewhere": [distance]}
        log.range(low, high, low, high, holes=[[low, high - low, r.BAD_POSITION]], known=True, **more)
    log.range(0, 1000, 0, 1000, holes=[[600, 400, r.BAD_POSITION]], last_good=500, last_sound=600, elsewhere=[5])
    told = "segment is misnamed: its records tell offsets from {0} on, so its name should be {0:020d}"
    assert log.chain().holes == [
        Hole("0" * 20, 600, 400, r.REASONS[r.BAD_POSITION]),
        Hole(f"{1000:020d}", 1000, 1000, told.format(5000)),
        Hole(f"{2000:020d}", 2000, 500, told.format(9000)),
    ]


def test_an_older_copy_of_records_is_no_segment_with_a_wrong_name() -> None:
    """It begins where no segment does."""
    log = Log(segment(0), segment(1000))
    log.range(0, 1000, 0, 1000)
    log.range(
        1000,
        2000,
        1000,
        2000,
        holes=[[1000, 1000, r.BAD_POSITION]],
        known=True,
        last_good=-1,
        last_sound=1200,
        elsewhere=[-970],
    )
    assert log.chain().holes == [Hole(f"{1000:020d}", 1000, 1000, r.REASONS[r.BAD_POSITION])]


def test_damage_at_the_first_byte_ends_where_a_later_range_begins() -> None:
    """Nothing is scanned again: the bytes between have been searched."""
    log = Log(segment(0))
    log.range(0, 400, -1, tail=0, tail_code=r.BAD_SIZE, last_nonzero=399, last_good=-1)
    log.range(400, 1000, 450, 1000)
    chain = log.chain()
    assert (numbers(chain), chain.rejected, chain.rescans) == ([0, 1], [], [])
    assert chain.holes == [Hole("0" * 20, 0, 450, "impossible record size")]


def test_two_distances_are_no_name() -> None:
    log = Log(segment(0))
    holes = [[0, 400, r.BAD_POSITION], [400, 600, r.BAD_POSITION]]
    log.range(0, 1000, 0, 1000, holes=holes, last_good=-1, last_sound=400, elsewhere=[7, 8])
    assert log.chain().holes == [Hole("0" * 20, 0, 1000, r.REASONS[r.BAD_POSITION])]


def test_missing_segments_are_one_hole() -> None:
    log = Log(segment(0), segment(4000))
    log.range(0, 1000, 0, 1000)
    log.range(4000, 5000, 4000, 5000)
    assert log.chain().holes == [Hole(f"{1000:020d}", 1000, 3000, r.MISSING_SEGMENT)]


@pytest.mark.parametrize("size", [GIB, 4096, 0])
def test_names_far_apart_cost_nothing(size: int) -> None:
    """A segment's name is input, too: what lies between two of them is never gone through."""
    far = 2**62
    log = Log(segment(0, size), segment(far, size))
    for start in (0, far) if size else ():
        log.range(start, start + size, start, start + size)
    begin = time.thread_time()
    chain = log.chain()
    assert time.thread_time() - begin < 1
    assert len(chain.holes) == 1
    assert chain.holes[0].offset + chain.holes[0].length == far


def test_until_a_time() -> None:
    log = Log(segment(0), segment(1000))
    log.range(0, 500, 0, 300, later=300)
    log.range(500, 1000, 520, tail=600, tail_code=r.BAD_MAGIC)
    log.range(1000, 2000, 1000, 2000)
    chain = log.chain()
    assert (numbers(chain), chain.later, chain.holes) == ([0], 300, [])


def test_nothing_at_all() -> None:
    chain = chain_ranges([], {}, {})
    assert (chain.accepted, chain.holes, chain.torn, chain.rescans) == ([], [], None, [])


def test_ranges_cover_the_segments() -> None:
    segments = [segment(0), segment(2000, data=10), segment(3000, data=0)]
    specs = cut_ranges(segments, 300, 2**63 - 1)
    assert [(s.low, s.high, s.known) for s in specs] == [
        (0, 300, True), (300, 600, False), (600, 900, False), (900, 1000, False), (2000, 2010, True),
    ]  # fmt: skip
    assert [s.number for s in specs] == list(range(5))
    assert [(s.low, s.high) for s in cut_ranges(segments, 300, 450)] == [(0, 300), (300, 450)]
    assert cut_ranges(segments, 300, 0) == []
