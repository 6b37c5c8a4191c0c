"""Apply the policies to damage and to queues out of order, from the summaries of ranges and the runs of queues."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from rocketmq_reindex.jobs.building import notices, stale_tails
from rocketmq_reindex.jobs.building.advice import no_place, refusal
from rocketmq_reindex.jobs.building.odd_queues import EmptyFile, FirstHoles, OddQueues, OrderOutcome
from rocketmq_reindex.jobs.building.scanning import Scan
from rocketmq_reindex.jobs.building.settings import BuildSettings
from rocketmq_reindex.jobs.building.summary import DAMAGE_MAX, Summary
from rocketmq_reindex.storage_format.errors import RefusedError
from rocketmq_reindex.storage_format.integers import INT64_MAX
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.plurals import counted
from rocketmq_reindex.storage_format.queue.logical_order import LogEvidence
from rocketmq_reindex.storage_format.queue.units import UNIT_SIZE
from rocketmq_reindex.storage_format.scan.chain import Chain, misnamed
from rocketmq_reindex.storage_format.scan.range_notes import HOLES_MAX
from rocketmq_reindex.storage_format.scan.ranges import Hole, RangeSummary, Segment
from rocketmq_reindex.udfs import schemas
from rocketmq_reindex.udfs.order.decide import DecideOrder
from rocketmq_reindex.udfs.order.results import OrderResult

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


def decide(
    scan: Scan, settings: BuildSettings, segments: list[Segment], chain: Chain, summary: Summary
) -> tuple[list[RangeSummary], Order]:
    """Apply the policies to damage and to queues out of order, and report both in the summary.

    Returns the ranges to build from, and where the units of queues out of order go. Raises RefusedError as the policies say.
    """
    return _Decisions(scan, settings, segments, chain, summary).decide()


def odd_queues(scan: Scan, settings: BuildSettings, segments: list[Segment], chain: Chain) -> OddQueues:
    """Return the queues out of order, before any policy is applied."""
    return _Decisions(scan, settings, segments, chain, Summary()).odd_queues()


def too_much(first: Hole) -> str:
    """Return what to say where there is more damage than any disk makes; ``first`` is the first of it."""
    return (
        f"segment {first.segment}: damage at offset {first.offset}: {first.reason} (more than {HOLES_MAX:,} in all): is this a "
        "commitlog?"
    )


class _Decisions:
    """The ranges to build from and the damage, while one policy after another is applied."""

    def __init__(self, scan: Scan, settings: BuildSettings, segments: list[Segment], chain: Chain, summary: Summary) -> None:
        self.scan, self.settings, self.segments, self.chain, self.summary = scan, settings, segments, chain, summary
        self.stop = settings.on_damage == "stop"
        self.accepted, self.holes, self.tail = chain.accepted, chain.holes, chain.stale or chain.torn

    def decide(self) -> tuple[list[RangeSummary], Order]:
        """The steps, in their order."""
        if self.holes and self.stop:
            self._stop_at(self.holes[0])
        batches = notices.unmarked_batches(self.settings, self.accepted, self.summary)
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
        if self.holes and self.stop:
            self.summary.warnings.append(f"built up to offset {self.holes[0].offset}; what follows is left out")
        self.summary.take_order(outcome.notes)
        self._refuse_outcome(outcome, odd, batches)
        plan = "" if self.settings.queue_order == "broker" else outcome.batches
        return self.accepted, Order(outcome.placements, plan, outcome.opened, odd.pre_blank + outcome.filled, odd)

    def odd_queues(self) -> OddQueues:
        """The queues out of order in all of the log."""
        return self._order(INT64_MAX)

    def _stop_at(self, hole: Hole) -> None:
        """Build only what lies before a hole."""
        self.holes, self.tail = [hole], None
        self.accepted = self.scan.cut(self.accepted, hole.offset)

    def _refuse_damage(self) -> None:
        """Refuse more damage than any disk makes, and with --on-damage fail any damage; warn about a doubtful tail."""
        holes, settings, summary = self.holes, self.settings, self.summary
        if len(holes) > HOLES_MAX:
            self.tail = None
            self._report(holes[:1], FirstHoles())
            raise RefusedError(f"{too_much(holes[0])} Choose --on-damage stop")
        if holes and settings.on_damage == "fail":
            self._report(holes, FirstHoles())
            # A wrong name explains more than the gap that it leaves.
            wrong = misnamed(holes)
            first, advice = (wrong, "rename it") if wrong else (holes[0], stale_tails.advice(settings, self.chain))
            raise RefusedError(
                f"segment {first.segment}: damage at offset {first.offset}: {first.reason} ({len(holes)} in all): {advice}"
            )
        if self.chain.doubt and not self.stop:
            summary.warnings.append(stale_tails.doubts(self.chain.doubt))

    def _order(self, cut: int) -> OddQueues:
        """The queues out of order, with decisions on their records before the phy_offset ``cut``."""
        settings = self.settings
        # The holes behind a cut count as well.
        from_zero = bool(self.segments) and self.segments[0].start == 0
        gaps = self.chain.gaps(self.chain.holes)
        log = LogEvidence(gaps, self.chain.rolled_back, settings.max_fill, from_zero)
        units_per_file = settings.cq_file_size // UNIT_SIZE
        plain = DecideOrder(self.scan.staging, settings.queue_order, units_per_file, log, cut)
        found: list[OrderResult] = []
        if any(summary.units for summary in self.accepted):
            # 5.3 and 5.4 make such files as well, and then do not load.
            opens = settings.rules.opens_empty_queue_file
            found += self._run(schemas.RUNS, dataclasses.replace(plain, opens=opens))
        if any(summary.batch_units for summary in self.accepted):
            found += self._run(schemas.BATCH_RUNS, dataclasses.replace(plain, units_per_file=1, batch=True))
        return OddQueues(self.scan.staging, found)

    def _run(self, kind: int, decide_order: DecideOrder) -> list[OrderResult]:
        """Decide from the runs of one kind: in this process when there are few, else in tasks."""
        engine, left_out = self.scan.engine, self.scan.left_out(self.accepted)
        if sum(summary.runs for summary in self.accepted) > FEW_RUNS:
            return OrderResult.read(engine.reduce(kind, left_out, None, decide_order))
        rows = (schemas.Row(kind, 0, 0, 0, cell) for cell in engine.collect(kind, left_out))
        return OrderResult.read(text for batch in decide_order(schemas.batches(rows)) for text in batch[0].to_pylist())

    def _refuse_order(self, odd: OddQueues) -> None:
        """With --queue-order fail refuse the first queue out of order."""
        if self.settings.queue_order != "fail":
            return
        first = next(odd.decisions(), None)
        if first is None:
            return
        self._report(self.holes, FirstHoles())
        self.summary.add_decisions(odd.decisions())
        raise RefusedError(
            f"queue {escape(first.topic)}/{first.queue}: {first.kind} of {first.units} at queue offset {first.offset}"
            f" ({counted(sum(1 for _ in odd.queues()), 'queue')} out of order): choose --queue-order logical or broker"
        )

    def _refuse_outcome(self, outcome: OrderOutcome, odd: OddQueues, batches: int) -> None:
        """With --on-damage fail refuse records out of line, and fills in the place of batches; refuse too many fills.

        ``batches`` records are inner batches of topics that nobody called batch topics: their queues jump.
        """
        if outcome.lost.first and self.settings.on_damage == "fail":
            first = outcome.lost.first[0]
            advice = refusal(self.settings, first.offset) if odd.wrong_places() else no_place(first.offset)
            raise RefusedError(
                f"segment {first.segment}: damage at offset {first.offset}: {first.reason}"
                f" ({outcome.lost_records} in all): {advice}"
            )
        if batches and outcome.filled and self.settings.on_damage == "fail":
            raise RefusedError(
                f"queues: {outcome.filled:,} missing offsets would have to be filled, and {counted(batches, 'record')} of inner"
                " batches may have them: give --topics-config, or choose --on-damage salvage"
            )
        most = self.chain.fills(self.settings.max_fill)
        if outcome.filled > most:
            explained = most - self.settings.max_fill
            raise RefusedError(
                f"queues: {outcome.filled:,} missing offsets would have to be filled,"
                f" more than --max-fill {self.settings.max_fill}{f' and {explained} for lost bytes' if explained else ''}"
            )

    def _report(self, holes: list[Hole], lost: FirstHoles) -> None:
        """List damage, records out of line and the tail in the summary: the first ones, and the others as one."""
        ordered = sorted([*holes, *lost.first], key=lambda hole: (hole.offset, hole.reason))
        for hole in ordered[:DAMAGE_MAX]:
            self.summary.add_damage(hole.segment, hole.offset, hole.length, hole.reason)
        if rest := ordered[DAMAGE_MAX:]:
            size = lost.more_bytes + sum(hole.length for hole in rest)
            end = max(lost.more_end, *(hole.offset + hole.length for hole in rest))
            reason = f"{counted(len(rest) + lost.more, 'more damaged place')}, up to offset {end}"
            self.summary.add_damage(rest[0].segment, rest[0].offset, size, reason)
        if self.tail:
            self.summary.add_damage(self.tail.segment, self.tail.offset, self.tail.length, self.tail.reason, lost=False)
