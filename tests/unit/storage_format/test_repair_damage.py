"""Holes become damaged stretches: joined where they touch, cut at the borders of segments."""

from __future__ import annotations

from rocketmq_reindex.storage_format.repair import SHORT, DamagedPlace, damages, whole_segments
from rocketmq_reindex.storage_format.scan.ranges import Hole, Segment


def _segment(start: int, size: int = 100, of: int = 100) -> Segment:
    return Segment(f"{start:020d}", f"log/{start}", start, start + size, start + of)


def test_missing_segments_are_listed() -> None:
    whole = whole_segments([_segment(100), _segment(400)])
    assert [(one.name, one.path, one.start, one.data_end, one.segment_end) for one in whole] == [
        (f"{100:020d}", "log/100", 100, 200, 200),
        (f"{200:020d}", "", 200, 200, 300),
        (f"{300:020d}", "", 300, 300, 400),
        (f"{400:020d}", "log/400", 400, 500, 500),
    ]


def test_holes_that_touch_are_one_stretch() -> None:
    whole = whole_segments([_segment(0), _segment(100)])
    found = damages([Hole("", 30, 5, "b"), Hole("", 10, 20, "a"), Hole("", 50, 10, "a")], whole, {})
    assert [(one.offset, one.end, one.reason, one.places) for one in found] == [
        (10, 35, "a; b", (DamagedPlace(10, 20, "a"), DamagedPlace(30, 5, "b"))),
        (50, 60, "a", (DamagedPlace(50, 10, "a"),)),
    ]


def test_a_hole_of_several_segments_is_cut() -> None:
    whole = whole_segments([_segment(0), _segment(300)])
    found = damages([Hole("", 100, 200, "segment missing")], whole, {})
    assert [(one.offset, one.length, one.segment.path, one.segment.start) for one in found] == [
        (100, 100, "", 100),
        (200, 100, "", 200),
    ]


def test_a_short_file_is_damage_but_for_the_last() -> None:
    whole = whole_segments([_segment(0, 60), _segment(100, 60)])
    assert damages([], whole, {0: 100}) == []
    assert [(one.offset, one.end) for one in damages([], whole, {0: 40})] == [(40, 100)]
    found = damages([Hole("", 40, 20, "bad magic code")], whole, {0: 60})
    assert [(one.offset, one.end, one.reason) for one in found] == [(40, 100, f"bad magic code; {SHORT}")]
