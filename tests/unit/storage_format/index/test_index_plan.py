"""IndexFiles planned from the counts of ranges are those that dispatching the records one by one makes."""

from __future__ import annotations

import random

import pytest

from rocketmq_reindex.storage_format.errors import RefusedError
from rocketmq_reindex.storage_format.index.layout import WINDOWED_FILES_MAX, BlockItems, IndexFilePlan, plan_index_files
from rocketmq_reindex.storage_format.scan.ranges import RangeSummary
from tests.unit.storage_format.index.index_model import Dispatched, File, Range, cut, one_by_one, random_records, sum_up

Item = tuple[int, int, str]


def taken(ranges: list[Range], stretch: BlockItems) -> list[Item]:
    """The items a stretch names, and that it names items which are there."""
    items = next(r.items for r in ranges if r.summary.block == stretch.block)
    assert 0 <= stretch.start < stretch.start + stretch.count <= len(items)
    return items[stretch.start : stretch.start + stretch.count]


def maker_of(ranges: list[Range], plan: IndexFilePlan) -> int:
    """The record that made the file, looked up as a writer does where the plan leaves it open."""
    if plan.maker >= 0:
        return plan.maker
    first = plan.stretches[0]
    mine = next(r for r in ranges if r.summary.block == first.block)
    if plan.maker_table[1]:
        assert plan.maker_table == (len(mine.items), len(mine.makers))
    table = dict(mine.makers) if plan.maker_table[1] else {}
    return table.get(first.start, mine.items[first.start][0])


def check(records: list[Dispatched], ranges: list[Range], index_items: int, window: int = 0) -> list[IndexFilePlan]:
    plans = plan_index_files([r.summary for r in ranges], index_items)
    found = [
        File(maker_of(ranges, plan), [item for stretch in plan.stretches for item in taken(ranges, stretch)]) for plan in plans
    ]
    expected = one_by_one(records, index_items, window)
    assert found == expected
    everything = [item for file in expected for item in file.items]
    done = 0
    for number, (plan, file) in enumerate(zip(plans, expected, strict=True)):
        assert plan.number == number
        assert plan.items == len(file.items)
        assert plan.full == (len(file.items) == index_items - 1)
        assert plan.last == (number == len(plans) - 1)
        before = taken(ranges, plan.before) if plan.before else []
        assert before == everything[max(0, done - 1) : done]
        done += len(file.items)
    return plans


@pytest.mark.parametrize("window", [0, 1_000, 10_000])
def test_random_logs_cut_anywhere(seed: int, window: int) -> None:
    rng = random.Random(seed)
    for _ in range(150):
        records = random_records(rng, rng.randrange(30), rng.choice((0.0, 0.3, 0.9, 1.0)))
        ranges = [sum_up(k, part, window) for k, part in enumerate(cut(rng, records, rng.randrange(1, 8)))]
        check(records, ranges, rng.choice((2, 3, 5, 8, 100)), window)


def record(place: int, *keys: str, time: int = 1) -> Dispatched:
    return Dispatched(place, time, keys)


CASES = {
    "nothing": ([], []),
    "keyless": ([[record(0), record(9)], [record(20)]], [(0, 0)]),
    "exactly full": ([[record(0, "a", "b")], [record(9, "c")]], [(0, 3)]),
    "full, then a keyless record": ([[record(0, "a", "b", "c")], [record(9)]], [(0, 3), (9, 0)]),
    "full, then a keyed one": ([[record(0, "a", "b", "c"), record(9, "d")]], [(0, 3), (9, 1)]),
    "full, a keyless one in the next range makes the file of the one after": (
        [[record(0, "a", "b", "c")], [record(9)], [record(20, "d")]],
        [(0, 3), (9, 1)],
    ),
    "full, a keyless one in the same range": ([[record(0, "a", "b", "c"), record(9), record(20, "d")]], [(0, 3), (9, 1)]),
    "keys of one record in two files": ([[record(0, "a", "b"), record(9, "c", "d")]], [(0, 3), (9, 1)]),
    "keys of one record in three files": ([[record(5, *"abcdefg")]], [(5, 3), (5, 3), (5, 1)]),
    "keyless first": ([[record(7)], [], [record(9, "a")]], [(7, 1)]),
}


@pytest.mark.parametrize("name", CASES)
def test_cases(name: str) -> None:
    parts, expected = CASES[name]
    ranges = [sum_up(k, part) for k, part in enumerate(parts)]
    plans = check([r for part in parts for r in part], ranges, 4)
    assert [(maker_of(ranges, plan), plan.items) for plan in plans] == expected


def test_windows_cut_where_time_first_rises() -> None:
    """At multiples of the window, in commitlog order: a clock that goes back cuts nothing."""
    times = (10, 19, 20, 15, 29, 30, 12, 55)
    records = [record(100 * k, f"k{k}", time=time) for k, time in enumerate(times)]
    for parts in ([records], [records[:3], records[3:5], records[5:]], [[r] for r in records]):
        plans = check(records, [sum_up(k, part, 10) for k, part in enumerate(parts)], 100, 10)
        assert [plan.items for plan in plans] == [2, 3, 2, 1]


def test_a_clock_that_jumps_is_refused() -> None:
    rises = [[k, k] for k in range(WINDOWED_FILES_MAX + 1)]
    summary = RangeSummary(0, 0, 1, True, items=len(rises), first_dispatched=0, windows=rises)
    with pytest.raises(RefusedError, match="choose a longer window"):
        plan_index_files([summary], 100)
    summary.windows.pop()
    assert len(plan_index_files([summary], 20_000)) == WINDOWED_FILES_MAX
