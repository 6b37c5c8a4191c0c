"""Apply the policies to damage and to queues out of order, from the summaries of ranges and the runs of queues."""

import dataclasses
import heapq
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from rocketmq_reindex import files
from rocketmq_reindex.jobs.building import inputs, scanning
from rocketmq_reindex.jobs.building.advice import no_place, refusal
from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.building.summary import DAMAGE_MAX, Warnings
from rocketmq_reindex.jobs.publishing.output import few_parts
from rocketmq_reindex.storage_format.errors import RefusedError
from rocketmq_reindex.storage_format.layouts import INT64_MAX
from rocketmq_reindex.storage_format.queue import order, placement, units as queue_units
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.scan import chain as scan_chain, ranges
from rocketmq_reindex.storage_format.scan.range_notes import HOLES_MAX
from rocketmq_reindex.storage_format.showing import counted, escape
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.placements import PlanWriter
from rocketmq_reindex.udfs.queue_order import DecideOrder, OddQueue, OrderResult
from rocketmq_reindex.udfs.staging import StagingFolder

# ------------------------------------------------------------------------------------------------------------------- odd_queues
# Go through the queues out of order one by one: there may be as many as there are queues.


class QueueDecision(NamedTuple):
    """One decision about the order of a queue."""

    kind: str
    topic: str
    queue: int
    offset: int
    """queue offset of the first unit"""
    units: int


class EmptyFile(NamedTuple):
    """A ConsumeQueue file without any unit, at a queue's end."""

    topic: str
    queue: int
    position: int
    """queue offset of the file's first slot"""


def segment_of(segments: list[ranges.Segment], offset: int) -> str:
    """Return the name of the segment that has a phy_offset; "" when it lies before all of them."""
    number = bisect_right(segments, offset, key=lambda segment: segment.start)
    return segments[number - 1].name if number else ""


def _key(queue: OddQueue) -> tuple[str, int]:
    return queue.topic, queue.queue


def _decisions(queue: OddQueue) -> Iterator[QueueDecision]:
    for kind, offset, count in queue.decisions:
        yield QueueDecision(kind, queue.topic, queue.queue, offset, count)


@dataclass
class FirstHoles:
    """The first ones of very many holes, in order; of the others their number, their bytes and the farthest end."""

    first: list[ranges.Hole] = field(default_factory=list)
    more: int = 0
    more_bytes: int = 0
    more_end: int = 0

    def add(self, hole: ranges.Hole) -> None:
        """Take in one more hole."""
        self.first.append(hole)
        if len(self.first) >= 4 * DAMAGE_MAX:
            self.settle()

    def settle(self) -> None:
        """Sort the holes, and keep only one more than the summary lists."""
        self.first.sort(key=lambda hole: (hole.offset, hole.reason))
        for hole in self.first[DAMAGE_MAX + 1 :]:
            self.more, self.more_bytes = self.more + 1, self.more_bytes + hole.length
            self.more_end = max(self.more_end, hole.offset + hole.length)
        del self.first[DAMAGE_MAX + 1 :]


@dataclass
class OrderOutcome:
    """What the decisions on all queues out of order amount to."""

    warnings: Warnings = field(default_factory=Warnings)
    """of the decisions"""
    lost: FirstHoles = field(default_factory=FirstHoles)
    """records out of line, as damage"""
    lost_records: int = 0
    filled: int = 0
    """units that stand for missing records"""
    opened: list[EmptyFile] = field(default_factory=list)
    placements: str = ""
    """the plan (``PlanWriter``) of plain queues; empty where none is out of order"""
    batches: str = ""
    """the plan of batch queues"""


class OddQueues:
    """The queues out of order, by topic and queue id; ``results`` are those of all tasks (``DecideOrder``)."""

    def __init__(self, staging: StagingFolder, results: list[OrderResult]) -> None:
        self._staging = staging
        parts = [result.part for result in results if result.part]
        self._parts = few_parts(staging, parts, lambda line: _key(OddQueue.from_json(line)))
        self.pre_blank = sum(result.pre_blank for result in results)
        """units that stand before the first one of a queue in its first file, of all queues"""

    def __bool__(self) -> bool:
        return bool(self._parts)

    def queues(self) -> Iterator[OddQueue]:
        """Yield the queues. Raises RefusedError at one that is out of order more often than damage can explain."""
        for queue in heapq.merge(*(map(OddQueue.from_json, files.lines(part)) for part in self._parts), key=_key):
            if queue.breaks:
                raise RefusedError(
                    f"queue {escape(queue.topic)}/{queue.queue}: its offsets break {queue.breaks} times"
                    f" (at most {order.BREAKS_MAX:,}): is this a commitlog? Choose --exclude-topic for its topic"
                )
            yield queue

    def wrong_places(self) -> tuple[int, ...]:
        """Return the offsets of records whose queue offsets are sure to be wrong: of those out of line a repair mends these."""
        return tuple(record.phy_offset for queue in self.queues() for record in queue.lost if record.is_wrong)

    def decisions(self) -> Iterator[QueueDecision]:
        """Return the decisions on all queues."""
        return (decision for queue in self.queues() for decision in _decisions(queue))

    def outcome(self, segments: list[ranges.Segment], name: str, most: int = INT64_MAX) -> OrderOutcome:
        """Return what the decisions on all queues amount to; the plans are written under ``name``.

        A queue that would take more than ``most`` fills is not in them.
        """
        outcome = OrderOutcome()
        if not self:
            return outcome
        staging = self._staging
        units = PlanWriter(staging.temporary, files.join(staging.plans, f"placements-{name}"))
        batches = PlanWriter(staging.temporary, files.join(staging.plans, f"batch-placements-{name}"))

        def taken() -> Iterator[QueueDecision]:
            for queue in self.queues():
                self._take(outcome, segments, queue)
                if queue.filled <= most:
                    (batches if queue.batch else units).put(queue.topic, queue.queue, queue.where)
                yield from _decisions(queue)

        try:
            outcome.warnings.add_decisions(taken())
            outcome.lost.settle()
            outcome.placements, outcome.batches = units.finish(), batches.finish()
        except BaseException:
            units.abandon()
            batches.abandon()
            raise
        return outcome

    @staticmethod
    def _take(outcome: OrderOutcome, segments: list[ranges.Segment], queue: OddQueue) -> None:
        """Add one queue; its records out of line that are not listed one by one are one more hole, with all their bytes."""
        outcome.filled += queue.filled
        if queue.opened >= 0:
            outcome.opened.append(EmptyFile(queue.topic, queue.queue, queue.opened))
        name = f"(queue {escape(queue.topic)}/{queue.queue})"
        for record in queue.lost:
            outcome.lost_records += 1
            segment = segment_of(segments, record.phy_offset)
            outcome.lost.add(ranges.Hole(segment, record.phy_offset, record.size, f"{r.OUT_OF_LINE} {name}"))
        if queue.more_lost:
            count, phy_offset, end, size = queue.more_lost
            outcome.lost_records += count
            reason = f"{r.OUT_OF_LINE} {name}: {counted(count, 'more record')}, up to offset {end}"
            outcome.lost.add(ranges.Hole(segment_of(segments, phy_offset), phy_offset, size, reason))


# -------------------------------------------------------------------------------------------------------------------- decisions

FEW_RUNS = 100_000
"""The driver decides on so many runs itself, at 40 bytes each: starting tasks takes longer."""


@dataclass
class Order:
    """The queues out of order: the plan (``PlanWriter``) of where their units go, or ""."""

    placements: str = ""
    batches: str = ""
    """the same of batch queues (``BatchPlacement``)"""
    opened: list[EmptyFile] = field(default_factory=list)
    """files without any unit that a broker of 4.9 leaves at a queue's end"""
    extra_units: int = 0
    """units that stand for no record: pre-blank and fills"""
    odd: OddQueues | None = None
    """those queues, one by one"""


def too_much(first: ranges.Hole) -> str:
    """Return what to say where there is more damage than any disk makes; ``first`` is the first of it."""
    return (
        f"segment {first.segment}: damage at offset {first.offset}: {first.reason} (more than {HOLES_MAX:,} in all): is this a "
        "commitlog?"
    )


class Decisions:
    """The ranges to build from and the damage, while one policy after another is applied.

    ``warnings`` has what was found so far, also where a policy refuses it.
    """

    def __init__(
        self, scan: scanning.Scan, settings: BuildSettings, segments: list[ranges.Segment], chain: scan_chain.Chain
    ) -> None:  # fmt: skip
        self.scan, self.settings, self.segments, self.chain = scan, settings, segments, chain
        self.warnings = Warnings()
        self.stop = settings.on_damage == "stop"
        self.accepted, self.holes, self.tail = chain.accepted, chain.holes, chain.stale or chain.torn

    def decide(self) -> tuple[list[ranges.RangeSummary], Order]:
        """Apply the policies to damage and to queues out of order.

        Return the ranges to build from, and where the units of queues out of order go. Raises RefusedError as the policies say.
        """
        if self.holes and self.stop:
            self._stop_at(self.holes[0])
        batches, warnings = inputs.unmarked_batches(self.settings, self.accepted)
        Warnings(warnings).add_to(self.warnings)
        self._refuse_damage()
        odd = self.odd_queues()
        self._refuse_order(odd)
        outcome = odd.outcome(self.segments, "all")
        if outcome.lost.first and self.stop:
            # The runs behind the cut count for the records before it: only then is the log cut.
            first = outcome.lost.first[0]
            odd = self._order(first.offset)
            outcome = odd.outcome(self.segments, "cut")
            outcome.lost = FirstHoles()
            self._stop_at(first)
        self._report(self.holes, outcome.lost)
        self._refuse_batches(outcome, batches)
        if self.holes and self.stop:
            self.warnings.warn(f"built up to offset {self.holes[0].offset}; what follows is left out")
        outcome.warnings.add_to(self.warnings)
        self._refuse_outcome(outcome, odd)
        plan = "" if self.settings.queue_order == "broker" else outcome.batches
        return self.accepted, Order(outcome.placements, plan, outcome.opened, odd.pre_blank + outcome.filled, odd)

    def odd_queues(self) -> OddQueues:
        """Return the queues out of order in all of the log, before any policy is applied."""
        return self._order(INT64_MAX)

    def _stop_at(self, hole: ranges.Hole) -> None:
        """Build only what lies before a hole."""
        self.holes, self.tail = [hole], None
        # A record out of line begins behind the header of its entry.
        is_record = hole.reason.startswith(r.OUT_OF_LINE)
        lead = next((segment.lead for segment in self.segments if is_record and segment.name == hole.segment), 0)
        self.accepted = self.scan.cut(self.accepted, hole.offset - lead)

    def _refuse_damage(self) -> None:
        """Refuse more damage than any disk makes, and with --on-damage fail any damage; warn about a doubtful tail."""
        holes, settings = self.holes, self.settings
        if len(holes) > HOLES_MAX:
            self.tail = None
            self._report(holes[:1], FirstHoles())
            raise RefusedError(f"{too_much(holes[0])} Choose --on-damage stop")
        if holes and settings.on_damage == "fail":
            self._report(holes, FirstHoles())
            # A wrong name explains more than the gap that it leaves.
            wrong = scan_chain.misnamed(holes)
            first, advice = (wrong, " rename it") if wrong else (holes[0], scanning.advice(settings, self.segments, self.chain))
            raise RefusedError(
                f"segment {first.segment}: damage at offset {first.offset}: {first.reason} ({len(holes)} in all):{advice}"
            )
        if self.chain.doubt and not self.stop:
            self.warnings.warn(scanning.doubts(self.chain.doubt))

    def _order(self, cut: int) -> OddQueues:
        """Return the queues out of order, with decisions on their records before the phy_offset ``cut``."""
        settings = self.settings
        # The holes behind a cut count as well.
        from_zero = bool(self.segments) and self.segments[0].start == 0
        gaps = self.chain.gaps(self.chain.holes)
        log = placement.LogEvidence(gaps, self.chain.rolled_back, settings.max_fill, from_zero)
        units_per_file = settings.cq_file_size // queue_units.UNIT_SIZE
        plain = DecideOrder(self.scan.staging, settings.queue_order, units_per_file, log, cut)
        results: list[OrderResult] = []
        if any(summary.units for summary in self.accepted):
            # 5.3 and 5.4 make such files as well, and then do not load.
            opens = settings.rules.opens_empty_queue_file
            results += self._run(handover.RUNS, dataclasses.replace(plain, opens=opens))
        if any(summary.batch_units for summary in self.accepted):
            results += self._run(handover.BATCH_RUNS, dataclasses.replace(plain, units_per_file=1, batch=True))
        return OddQueues(self.scan.staging, results)

    def _run(self, kind: int, decide_order: DecideOrder) -> list[OrderResult]:
        """Decide from the runs of one kind: in this process when there are few, else in tasks."""
        engine, left_out = self.scan.engine, self.scan.left_out(self.accepted)
        if sum(summary.runs for summary in self.accepted) > FEW_RUNS:
            return OrderResult.read(engine.reduce(kind, left_out, None, decide_order))
        rows = (handover.Row(kind, 0, 0, 0, cell) for cell in engine.collect(kind, left_out))
        return OrderResult.read(text for batch in decide_order(handover.batches(rows)) for text in batch[0].to_pylist())

    def _refuse_order(self, odd: OddQueues) -> None:
        """With --queue-order fail refuse the first queue out of order."""
        if self.settings.queue_order != "fail":
            return
        first = next(odd.decisions(), None)
        if first is None:
            return
        self._report(self.holes, FirstHoles())
        self.warnings.add_decisions(odd.decisions())
        raise RefusedError(
            f"queue {escape(first.topic)}/{first.queue}: {first.kind} of {first.units} at queue offset {first.offset}"
            f" ({counted(sum(1 for _ in odd.queues()), 'queue')} out of order): choose --queue-order logical or broker"
        )

    def _refuse_batches(self, outcome: OrderOutcome, batches: int) -> None:
        """With --on-damage fail refuse fills in the place of batches. Each jump of their queues would be a warning.

        ``batches`` records are inner batches of topics that nobody called batch topics: their queues jump.
        """
        if batches and outcome.filled and not outcome.lost.first and self.settings.on_damage == "fail":
            raise RefusedError(
                f"queues: {outcome.filled:,} missing offsets would have to be filled, and {counted(batches, 'record')} of inner"
                " batches may have them: give --topics-config, or choose --on-damage salvage"
            )

    def _refuse_outcome(self, outcome: OrderOutcome, odd: OddQueues) -> None:
        """With --on-damage fail refuse records out of line; refuse too many fills."""
        if outcome.lost.first and self.settings.on_damage == "fail":
            first = outcome.lost.first[0]
            advice = refusal(self.settings, self.segments, first.offset) if odd.wrong_places() else no_place(first.offset)
            raise RefusedError(
                f"segment {first.segment}: damage at offset {first.offset}: {first.reason}"
                f" ({outcome.lost_records} in all):{advice}"
            )
        fills_max = self.chain.fills(self.settings.max_fill)
        if outcome.filled > fills_max:
            explained = fills_max - self.settings.max_fill
            raise RefusedError(
                f"queues: {outcome.filled:,} missing offsets would have to be filled,"
                f" more than --max-fill {self.settings.max_fill}{f' and {explained} for lost bytes' if explained else ''}"
            )

    def _report(self, holes: list[ranges.Hole], lost: FirstHoles) -> None:
        """Warn of damage, records out of line and the tail: the first ones, and the others as one."""
        ordered = sorted([*holes, *lost.first], key=lambda hole: (hole.offset, hole.reason))
        self.warnings.add_damages(ordered, lost.more, lost.more_bytes, lost.more_end)
        if self.tail:
            self.warnings.add_damage(self.tail.segment, self.tail.offset, self.tail.length, self.tail.reason, lost=False)
