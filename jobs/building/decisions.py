"""What the policies make of damage and of queues out of order, from summaries alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import NoReturn

from rocketmq_reindex.jobs.building import notices, stale_tails
from rocketmq_reindex.jobs.building.odd_queues import Lowest, OddQueues
from rocketmq_reindex.jobs.building.scanning import Scan
from rocketmq_reindex.jobs.building.settings import BuildSettings
from rocketmq_reindex.jobs.building.summary import DAMAGE_MAX, Summary
from rocketmq_reindex.storage_format.errors import RefusedError
from rocketmq_reindex.storage_format.integers import INT64_MAX
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.plurals import counted
from rocketmq_reindex.storage_format.queue.order import RolledBack
from rocketmq_reindex.storage_format.scan.chain import Chain
from rocketmq_reindex.storage_format.scan.range_notes import HOLES_MAX
from rocketmq_reindex.storage_format.scan.range_summary import RangeSummary
from rocketmq_reindex.storage_format.scan.ranges import Hole, Segment
from rocketmq_reindex.storage_format.scan.segment_chain import MISNAMED
from rocketmq_reindex.udfs import schemas
from rocketmq_reindex.udfs.order.judge import Judge

FEW_RUNS = 100_000
"""So many runs are judged by the driver, 40 bytes each: starting reducers takes longer."""


@dataclass
class Order:
    """Queues out of order: the plan (``PlanWriter``) of where their units go, or nothing."""

    placements: str = ""
    batches: str = ""
    """that of batch queues (``BatchPlacement``)"""
    opened: list[tuple[str, int, int]] = field(default_factory=list)
    """(topic, queue id, position) of files without any unit that a broker of 4.9 leaves at a queue's end"""
    extra_units: int = 0
    """units that stand for no record: pre-blank and fills"""
    odd: OddQueues | None = None
    """those queues, one by one"""


def decide(
    scan: Scan, settings: BuildSettings, segments: list[Segment], chain: Chain, summary: Summary
) -> tuple[list[RangeSummary], Order]:
    """The ranges to build from, and where the units of disordered queues go; all of it is told in the summary.

    Raises RefusedError as the policies say.
    """
    stop, accepted, holes, tail = settings.on_damage == "stop", chain.accepted, chain.holes, chain.stale or chain.torn
    offsets = [hole.offset for hole in holes]
    if holes and stop:
        holes, tail = holes[:1], None
        accepted = scan.cut(accepted, holes[0].offset)
    notices.unmarked_batches(settings, accepted, summary)
    if len(holes) > HOLES_MAX:
        _report(summary, holes[:1], Lowest(), None)
        first = holes[0]
        raise RefusedError(
            f"segment {first.segment}: damage at offset {first.offset}: {first.reason}"
            f" (more than {HOLES_MAX:,} in all): is this a commitlog? Choose --on-damage stop"
        )
    if holes and settings.on_damage == "fail":
        _report(summary, holes, Lowest(), tail)
        # A wrong name tells of more than the gap that it leaves.
        first = next((hole for hole in holes if hole.reason.startswith(MISNAMED)), holes[0])
        advice = "rename it" if first.reason.startswith(MISNAMED) else stale_tails.advice(chain)
        raise RefusedError(
            f"segment {first.segment}: damage at offset {first.offset}: {first.reason} ({len(holes)} in all): {advice}"
        )
    if chain.doubt and not stop:
        summary.warnings.append(stale_tails.doubts(chain.doubt))
    back = chain.rolled_back
    odd = _judge(scan, settings, accepted, offsets, INT64_MAX, back)
    if settings.queue_order == "fail" and any(True for _ in odd.decisions()):
        _report(summary, holes, Lowest(), tail)
        _refuse_order(summary, odd)
    verdict = odd.verdict(segments, "all")
    if verdict.lost.first and stop:
        # What the whole log says of the records below the cut stays true; what lies behind it is not built.
        holes, tail = verdict.lost.first[:1], None
        odd = _judge(scan, settings, accepted, offsets, holes[0].offset, back)
        verdict = odd.verdict(segments, "cut")
        accepted, verdict.lost = scan.cut(accepted, holes[0].offset), Lowest()
    lost = verdict.lost
    _report(summary, holes, lost, tail)
    if holes and stop:
        summary.warnings.append(f"built up to offset {holes[0].offset}; what follows is left out")
    summary.take_order(verdict.told)
    if lost.first and settings.on_damage == "fail":
        raise RefusedError(
            f"segment {lost.first[0].segment}: damage at offset {lost.first[0].offset}: {lost.first[0].reason}"
            f" ({verdict.lost_records} in all): choose --on-damage stop or salvage"
        )
    if verdict.filled > settings.max_fill:
        raise RefusedError(
            f"queues: {verdict.filled} missing offsets would have to be filled, more than --max-fill {settings.max_fill}"
        )
    batches = "" if settings.queue_order == "broker" else verdict.batches
    return accepted, Order(verdict.placements, batches, verdict.opened, odd.pre_blank + verdict.filled, odd)


def _ask(scan: Scan, accepted: list[RangeSummary], kind: int, judge: Judge) -> list[str]:
    """What the judge says of the runs of one kind: here when they are few, else by reducers."""
    left_out = scan.left_out(accepted)
    if sum(summary.runs for summary in accepted) > FEW_RUNS:
        return scan.engine.reduce(kind, left_out, None, judge)
    cells = scan.engine.collect(kind, left_out)
    return [
        word for batch in judge(schemas.batches((kind, 0, 0, 0, cell, 0) for cell in cells)) for word in batch[0].to_pylist()
    ]


def _judge(
    scan: Scan, settings: BuildSettings, accepted: list[RangeSummary], holes: list[int], cut: int, back: RolledBack | None
) -> OddQueues:
    """What reducers say of queues out of order, below the offset ``cut``; ``back`` is where old records came back."""
    said: list[str] = []
    if any(summary.units for summary in accepted):
        # 5.3 opens such files just the same, and then fails to load: ConsumeQueue.correctMinOffset reads before their start.
        opens = settings.broker_version == "4.9"
        judge = Judge(scan.stage, settings.queue_order, scan.task.units_per_file, tuple(holes), cut, opens, rolled_back=back)
        said += _ask(scan, accepted, schemas.RUNS, judge)
    if any(summary.batch_units for summary in accepted):
        units_per_file = scan.task.units_per_file
        judge = Judge(scan.stage, settings.queue_order, units_per_file, tuple(holes), cut, batch=True, rolled_back=back)
        said += _ask(scan, accepted, schemas.BATCH_RUNS, judge)
    return OddQueues(scan.stage, said)


def _refuse_order(summary: Summary, odd: OddQueues) -> NoReturn:
    summary.add_decisions(odd.decisions())
    kind, topic, queue, offset, count = next(islice(odd.decisions(), 1))
    raise RefusedError(
        f"queue {escape(topic)}/{queue}: {kind} of {count} at queue offset {offset}"
        f" ({counted(sum(1 for _ in odd.words()), 'queue')} out of order): choose --queue-order logical or broker"
    )


def _report(summary: Summary, holes: list[Hole], lost: Lowest, tail: Hole | None) -> None:
    ordered = sorted([*holes, *lost.first], key=lambda hole: (hole.offset, hole.reason))
    for hole in ordered[:DAMAGE_MAX]:
        summary.add_damage(hole.segment, hole.offset, hole.length, hole.reason)
    if rest := ordered[DAMAGE_MAX:]:
        size = lost.more_bytes + sum(hole.length for hole in rest)
        end = max(lost.more_end, *(hole.offset + hole.length for hole in rest))
        reason = f"{counted(len(rest) + lost.more, 'more damaged place')}, up to offset {end}"
        summary.add_damage(rest[0].segment, rest[0].offset, size, reason)
    if tail:
        summary.add_damage(tail.segment, tail.offset, tail.length, tail.reason, lost=False)
