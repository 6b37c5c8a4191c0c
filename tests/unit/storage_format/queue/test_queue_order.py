"""Queue order judged from runs gives what going through the queue record by record gives."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
from hypothesis import example, given, settings, strategies as st

from rocketmq_reindex.storage_format.queue.order import RolledBack, Run, fewer_runs, irregular, join_runs, order_broker
from rocketmq_reindex.storage_format.queue.placement import PlacementTable, order_logical
from tests.reference import queue_order as reference
from tests.reference.consume_queue import BrokerQueue, pack
from tests.reference.queue_order import Unit
from tests.tools.seeds import cases
from tests.unit.storage_format.queue.queue_model import LOGS, QueueLog, blocks_of, runs_of, stand

CUTS = st.lists(st.integers(0, 1000), max_size=6)


def log_of(offsets: list[int], lost: list[tuple[int, int]] | None = None) -> QueueLog:
    return QueueLog([Unit(1000 * number, 900, number, offset) for number, offset in enumerate(offsets)], lost or [])


def as_stand(units: dict[int, Unit]) -> dict[int, tuple[int, int, int]]:
    return {at: (unit.record, unit.size, unit.tags_code) for at, unit in units.items()}


@given(LOGS, CUTS)
@example(log_of([0, 1, 2, 3, 4, 5, 5, 6]), [])
@example(log_of([0, 1, 7, 8], [(2900, 2950)]), [])
@example(log_of([0, 1, 2, 0, 1, 2, 3, 1, 2, 3, 9]), [5])
@example(log_of([5, 6, 7, 2, 3, 4, 20, 21, 22, 10, 11, 12]), [2, 7])
@settings(max_examples=cases(500, 60))
def test_logical(log: QueueLog, cuts: list[int]) -> None:
    verdicts = reference.judge(log.units, log.lost)
    standing, fills = reference.settle(verdicts)
    blocks = blocks_of(log, cuts)
    placement = order_logical(runs_of(blocks), log.holes)
    assert stand(blocks, PlacementTable(placement.kept, placement.fills)) == as_stand(standing | fills)
    out = [(v.unit.record, v.unit.size, v.unit.queue_offset, v.wrong) for v in verdicts if v.does == reference.OUT]
    assert placement.lost == out
    assert placement.filled == len(fills)
    decided = Counter(kind for kind, _, _ in placement.decisions)
    assert decided["out-of-line"] == len(out)
    pending = [v for v in verdicts if v.does == reference.PENDING]
    told = [(offset, count) for kind, offset, count in placement.decisions if kind == "pending"]
    assert told == ([(pending[0].at, len(pending))] if pending else [])
    assert [offset for kind, offset, _ in placement.decisions if kind == "generation"] == [
        v.unit.queue_offset for v in verdicts if v.does == reference.GENERATION
    ]
    assert sum(count for kind, _, count in placement.decisions if kind == "fill") == len(fills)


@given(LOGS, CUTS)
@example(log_of([3, 4, 0, 1, 2, 3, 4, 5, 9, 10]), [])
@example(log_of([0, 0, 0, 1, 2]), [])
@example(log_of([1, 0, 1, 2, 3]), [])
@settings(max_examples=cases(500, 60))
def test_broker(log: QueueLog, cuts: list[int]) -> None:
    queue = BrokerQueue(200)
    for unit in log.units:
        queue.put(unit)
    blocks = blocks_of(log, cuts)
    placement = order_broker(runs_of(blocks))
    found = stand(blocks, PlacementTable(placement.kept, placement.fills))
    expected = dict(enumerate(queue.units, queue.first))
    assert {at: pack(Unit(place, size, code, at)) for at, (place, size, code) in found.items()} == expected
    counts: Counter[str] = Counter()
    for kind, _, count in placement.decisions:
        counts[kind] += count
    assert counts["dropped"] == len(queue.dropped)
    assert counts["misplaced"] + counts["restart"] == len(queue.misplaced)
    assert (placement.lost, placement.fills) == ([], [])


@given(LOGS, CUTS)
def test_any_cut_gives_the_same(log: QueueLog, cuts: list[int]) -> None:
    """The decisions, too, do not tell how the log was cut into ranges and blocks."""
    whole, cut = runs_of(blocks_of(log, [])), runs_of(blocks_of(log, cuts))
    for order in (lambda runs: order_logical(runs, log.holes), order_broker):
        one, other = order(whole), order(cut)
        assert (one.kept, one.fills, one.lost, one.decisions) == (other.kept, other.fills, other.lost, other.decisions)
    assert irregular(whole) == irregular(cut)


@given(LOGS)
def test_only_irregular_queues_are_objected_to(log: QueueLog) -> None:
    offsets = [unit.queue_offset for unit in log.units]
    steps = [(before, after) for before, after in itertools.pairwise(offsets) if after != before + 1]
    found = irregular(runs_of(blocks_of(log, [])))
    assert found == [
        ("repeat", after, before + 1 - after) if after <= before else ("gap", before + 1, after - before - 1)
        for before, after in steps
    ]


def test_a_regular_queue_is_one_stretch() -> None:
    log = log_of(list(range(7, 30)))
    runs = runs_of(blocks_of(log, [3, 4, 11]))
    assert list(join_runs(runs)) == [runs]
    for placement in (order_logical(runs, []), order_broker(runs)):
        assert placement.kept == [(7, 23, 0, 22_900, 0)]
        assert (placement.fills, placement.lost, placement.decisions) == ([], [], [])


def test_what_is_said_of_a_disordered_queue() -> None:
    runs = runs_of(blocks_of(log_of([0, 1, 2, 0, 1, 5, 6, 7, 90]), []))
    logical = order_logical(runs, [])
    assert logical.decisions == [("generation", 0, 3), ("fill", 2, 3), ("fill", 8, 82)]
    assert logical.fills == [(2, 3, 5), (8, 82, 90)]
    assert (logical.lost, logical.pending) == ([], [])
    far = order_logical(runs, [], fill_max=81)
    assert far.decisions == [("generation", 0, 3), ("fill", 2, 3), ("pending", 90, 1)]
    assert far.pending == [(8000, 900, 90, False)]
    followed = order_logical(runs_of(blocks_of(log_of([0, 1, 2, 0, 1, 5, 6, 7, 90, 8]), [])), [])
    assert followed.decisions == [("generation", 0, 3), ("fill", 2, 3), ("out-of-line", 90, 1)]
    assert followed.lost == [(8000, 900, 90, False)]
    assert order_broker(runs).decisions == [("restart", 3, 1), ("dropped", 1, 1), ("misplaced", 5, 3), ("misplaced", 90, 1)]
    assert irregular(runs) == [("repeat", 0, 3), ("gap", 2, 3), ("gap", 8, 82)]


def test_records_out_of_line_are_those_that_are_missing() -> None:
    """A record whose QUEUEOFFSET is spoilt leaves its place free: what follows it in the queue stands where it says."""
    for offsets, missing in (([4, 5, 6, 3, 8], 1), ([4, 5, 6, 0, 8], 1), ([4, 5, 6, 90, 8], 1), ([4, 5, 6, 3, 90, 9], 2)):
        order = order_logical(runs_of(blocks_of(log_of(offsets), [])), [])
        assert order.fills == [(7, missing, 7 + missing)]
        assert [row.queue_offset for row in order.lost] == offsets[3 : 3 + missing]
        assert [row.queue_offset for row in order.lost if row.is_wrong] == [at for at in offsets if at == 90]
        assert order.pending == []
    # Two are missing, where one has another offset.
    order = order_logical(runs_of(blocks_of(log_of([4, 5, 6, 90, 91, 8, 9, 10]), [])), [])
    assert ([row.is_wrong for row in order.lost], order.fills) == ([False, False], [(7, 1, 8)])
    # Lost bytes explain what is missing as well, if they have room for so many records.
    for far, is_wrong in ((19, False), (20, True)):
        order = order_logical(runs_of(blocks_of(log_of([4, 5, 6, far, 8]), [])), [4000])
        assert [(row.queue_offset, row.is_wrong) for row in order.lost] == [(far, is_wrong)]


def test_lost_bytes_explain_as_many_offsets_as_they_have_room_for() -> None:
    """One high bit of a QUEUEOFFSET is flipped behind damage, and the two records behind it go on as if it were not."""
    runs = runs_of(blocks_of(log_of([14, 15, 16 + (1 << 17), 17, 18]), []))
    order = order_logical(runs, [2000])
    assert [row[:2] for row in order.kept] == [(14, 2), (17, 2)]
    assert (order.lost, order.fills, order.pending) == ([(2000, 900, 16 + (1 << 17), True)], [(16, 1, 17)], [])
    # Where lost bytes may have had more, it stays, though it is out of line: so few records do not prove it.
    order = order_logical(runs_of(blocks_of(log_of([14, 15, 17 + (1 << 13), 18, 19]), [])), [2000])
    assert (order.lost, order.pending) == ([(2000, 900, 17 + (1 << 13), False)], [])
    assert [row[:2] for row in order.kept] == [(14, 2), (18, 2)]
    # At the queue's end nothing tells, and so many are not filled.
    order = order_logical(runs_of(blocks_of(log_of([14, 15, 16 + (1 << 17)]), [])), [2000])
    assert [row.queue_offset for row in order.pending] == [16 + (1 << 17)]
    # What has room may be lost: the two behind it may be of a queue that began again.
    wide = [
        Unit(1000, 900, 0, 14),
        Unit(2000, 900, 0, 15),
        *(Unit(9000 + 1000 * k, 900, 0, at) for k, at in enumerate((32, 17, 18))),
    ]
    order = order_logical(runs_of(blocks_of(QueueLog(wide, []), [])), [9000])
    assert ([row.queue_offset for row in order.pending], order.lost) == ([17, 18], [])
    assert [row[:2] for row in order.kept] == [(14, 2), (32, 1)]


def test_a_record_that_nothing_contradicts_gets_its_unit() -> None:
    """A jump at a queue's end, before a queue that begins again, and beside damage behind it."""
    for offsets, lost, kept in (
        ([0, 1, 2, 5, 6], [], [(0, 3), (5, 2)]),
        ([0, 1, 2, 5], [], [(0, 3), (5, 1)]),
        ([0, 1, 2, 5, 6], [4000], [(0, 3), (5, 2)]),
        ([0, 1, 2, 5, 9], [], [(0, 3), (5, 1), (9, 1)]),
        ([0, 1, 2, 5, 6, 0, 1], [], [(0, 2)]),
        ([0, 1, 2, 5, 6, 2, 3, 4], [], [(0, 2), (2, 3)]),
    ):
        order = order_logical(runs_of(blocks_of(log_of(offsets), [])), lost)
        assert [row[:2] for row in order.kept] == kept, offsets
        assert (order.lost, order.pending) == ([], [])


def test_what_is_missing_in_front_of_a_new_beginning() -> None:
    """Of which life the missing records were is not known; between records of one life it is."""
    for offsets, between_lives in (
        ([0, 1, 5, 6, 7, 3, 4, 5], [3]),
        ([0, 1, 2, 3, 4, 2, 3, 4, 8, 9, 10], []),
        ([4, 5, 6, 3, 4, 5, 9, 10, 11], [3]),
        # The beginning at 3 is gone as well.
        ([0, 1, 5, 6, 7, 3, 4, 5, 2, 3, 4], []),
        ([0, 1, 5, 6, 7, 4, 5, 6, 3, 4, 5], [3]),
    ):
        order = order_logical(runs_of(blocks_of(log_of(offsets), [])), [0], file_units=10)
        assert order.between_lives == between_lives, offsets
        assert order.lost == []


def test_what_is_missing_at_a_queues_beginning_repeats_its_first_record() -> None:
    runs = runs_of(blocks_of(log_of([12, 13, 14]), []))
    for lost, file_units, fills in (
        ([0], 10, [(10, 2, 12)]),
        ([0], 20, [(0, 12, 12)]),
        ([0], 12, []),
        ([0], 0, []),
        ([900], 10, []),
        ([], 10, []),
    ):
        assert order_logical(runs, lost, file_units=file_units).fills == fills, (lost, file_units)
    assert order_logical(runs, [0], file_units=10, fill_max=1).fills == []


def test_old_records_take_no_place_from_others() -> None:
    """They are out of line, never pending, also at a queue's end; where all are older no queue begins anew, either."""
    for offsets in ([0, 1, 2, 3, 1, 2, 3, 4], [0, 1, 2, 3, 1], [0, 1, 2, 3, 2, 3]):
        runs = runs_of(blocks_of(log_of(offsets), []))
        for whole in (False, True):
            order = order_logical(runs, [], rolled_back=RolledBack(4000, 9000, whole))
            assert order.kept == [(0, 4, 0, 3900, 0)]
            assert [row[0] for row in order.lost][:1] == [4000]
            assert {kind for kind, _, _ in order.decisions} == {"out-of-line"}
        assert order_logical(runs, [], rolled_back=RolledBack(9000, 9900, True)) == order_logical(runs, [])
    anew = runs_of(blocks_of(log_of([0, 1, 2, 0, 1, 2, 3]), []))
    assert order_logical(anew, [], rolled_back=RolledBack(3000, 9000, False)) == order_logical(anew, [])
    strict = order_logical(anew, [], rolled_back=RolledBack(3000, 9000, True))
    assert (strict.kept, strict.lost) == ([(0, 3, 0, 2900, 0)], [(3000, 3900, 0, False)])


def test_what_follows_offsets_without_a_record() -> None:
    """It stands as far behind the offsets that it names, but where a broker that started counts from the units again."""
    # A light queue: the record at 2 took offset 3 as well.
    before = [Run(0, 3, 0, 2900), Run(3, 1, 2900, 2900), Run(4, 1, 3000, 3900)]
    for first, shift, fills in ((4, 0, []), (6, -1, [(4, 1, 5)])):
        order = order_logical([*before, Run(first, 3, 5000, 7900)], [])
        assert order.kept == [(0, 3, 0, 2900, 0), (4, 1, 3000, 3900, -1), (first, 3, 5000, 7900, shift)]
        assert (order.fills, order.lost) == (fills, [])


def test_offsets_without_a_record_behind_one_out_of_line() -> None:
    """They stand behind that record, and are no record of their own."""
    before = [Run(0, 5, 0, 4900), Run(2, 1, 6000, 6900), Run(3, 1, 6900, 6900)]
    order = order_logical(before, [])
    assert (order.kept, order.lost) == ([(0, 5, 0, 4900, 0)], [])
    assert [(offset, count) for kind, offset, count in order.decisions if kind == "pending"] == [(2, 1)]
    order = order_logical([*before, Run(5, 3, 8000, 10_900)], [])
    assert (order.kept, order.lost) == ([(0, 5, 0, 4900, 0), (5, 3, 8000, 10_900, 0)], [(6000, 900, 2, False)])


def test_empty() -> None:
    assert order_logical([], []).kept == order_broker([]).kept == []
    assert irregular([]) == []


@given(LOGS, CUTS)
@example(log_of([0, 1, 2]), [1, 2])
@settings(max_examples=cases(300, 40))
def test_fewer_runs_say_the_same(log: QueueLog, cuts: list[int]) -> None:
    """What follows on from block to block is one run; nothing else changes."""
    runs = runs_of(blocks_of(log, cuts))
    if not runs:
        return
    fewer = fewer_runs(np.array([run[:4] for run in runs], np.int64).T)
    assert order_logical(fewer, log.holes) == order_logical(runs, log.holes)
    assert order_broker(fewer, 5) == order_broker(runs, 5)
    assert irregular(fewer) == irregular(runs)
    assert len(fewer) <= 2 * len(list(join_runs(runs)))
