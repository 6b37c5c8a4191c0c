"""What the policies make of damage and of queues out of order, from summaries alone."""

from __future__ import annotations

import json
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any, NoReturn

from jobs.scanning import Scan
from jobs.settings import BuildSettings
from jobs.summary import DAMAGE_MAX, Summary
from storage_format import record as r
from storage_format.chain import Chain, Hole, Segment
from storage_format.errors import RefusedError
from storage_format.names import escape
from storage_format.queue_order import BREAKS_MAX
from storage_format.range_scan import HOLES_MAX
from storage_format.range_summary import RangeSummary
from storage_format.walk_state import INT64_MAX
from udfs import schemas
from udfs.judge import Judge


@dataclass
class Order:
    """Queues out of order: where it is said where their units go (``Reroute.placements``)."""

    placements: list[list[Any]] = field(default_factory=list)
    batches: list[list[Any]] = field(default_factory=list)
    """batch queues out of order (``BatchPlacement``)"""
    opened: list[tuple[str, int, int]] = field(default_factory=list)
    """(topic, queue id, position) of files without any unit that a broker of 4.9 leaves at a queue's end"""
    extra_units: int = 0
    """units that stand for no record: pre-blank and fills"""


def segment_of(segments: list[Segment], offset: int) -> str:
    found = bisect_right(segments, offset, key=lambda segment: segment.start)
    return segments[found - 1].name if found else ""


def decide(
    scan: Scan, settings: BuildSettings, segments: list[Segment], chain: Chain, summary: Summary
) -> tuple[list[RangeSummary], Order]:
    """The ranges to build from, and where the units of disordered queues go; all of it is told in the summary.

    Raises RefusedError as the policies say.
    """
    stop, accepted, holes, torn = settings.on_damage == "stop", chain.accepted, chain.holes, chain.torn
    offsets = [hole.offset for hole in holes]
    if holes and stop:
        holes, torn = holes[:1], None
        accepted = scan.cut(accepted, holes[0].offset)
    if len(holes) > HOLES_MAX:
        _report(summary, holes[:1], None)
        first = holes[0]
        raise RefusedError(
            f"segment {first.segment}: damage at offset {first.offset}: {first.reason}"
            f" (more than {HOLES_MAX:,} in all): is this a commitlog? Choose --on-damage stop"
        )
    if holes and settings.on_damage == "fail":
        _report(summary, holes, torn)
        first = holes[0]
        raise RefusedError(
            f"segment {first.segment}: damage at offset {first.offset}: {first.reason}"
            f" ({len(holes)} in all): choose --on-damage stop or salvage"
        )
    words, pre_blank = _judge(scan, settings, accepted, offsets, INT64_MAX)
    if settings.queue_order == "fail" and words:
        _report(summary, holes, torn)
        _refuse_order(summary, words)
    lost = _lost(segments, words)
    if lost and stop:
        # What the whole log says of the records below the cut stays true; what lies behind it is not built.
        holes, torn = lost[:1], None
        words, pre_blank = _judge(scan, settings, accepted, offsets, holes[0].offset)
        accepted, lost = scan.cut(accepted, holes[0].offset), []
    _report(summary, [*holes, *lost], torn)
    if holes and stop:
        summary.warnings.append(f"built up to offset {holes[0].offset}; what follows is left out")
    _tell(summary, words)
    if lost and settings.on_damage == "fail":
        raise RefusedError(
            f"segment {lost[0].segment}: damage at offset {lost[0].offset}: {lost[0].reason}"
            f" ({sum(_lost_count(word) for word in words)} in all): choose --on-damage stop or salvage"
        )
    filled = sum(word["filled"] for word in words)
    if filled > settings.max_fill:
        raise RefusedError(
            f"queues: {filled} missing offsets would have to be filled, more than --max-fill {settings.max_fill}"
        )
    order = Order(extra_units=pre_blank + filled)
    for word in words:
        placements = order.batches if word["batch"] else order.placements
        placements.append([word["topic"], word["queue"], word["where"]])
        if word["opened"] >= 0:
            order.opened.append((word["topic"], word["queue"], word["opened"]))
    if settings.queue_order == "broker":
        order.batches = []
    return accepted, order


def _judge(
    scan: Scan, settings: BuildSettings, accepted: list[RangeSummary], holes: list[int], cut: int
) -> tuple[list[dict[str, Any]], int]:
    """What reducers say of queues out of order, below the offset ``cut``; and the pre-blank units of all queues."""
    words: list[str] = []
    if any(summary.units for summary in accepted):
        # 5.3 opens such files just the same, but does not start on them.
        opens = settings.broker_version == "4.9"
        judge = Judge(scan.stage, settings.queue_order, scan.task.units_per_file, tuple(holes), cut, opens)
        words += scan.engine.reduce(schemas.RUNS, scan.left_out(accepted), None, judge)
    if any(summary.batch_units for summary in accepted):
        judge = Judge(scan.stage, settings.queue_order, scan.task.units_per_file, tuple(holes), cut, batch=True)
        words += scan.engine.reduce(schemas.BATCH_RUNS, scan.left_out(accepted), None, judge)
    said = [json.loads(word) for word in words]
    odd = sorted((word for word in said if "topic" in word), key=lambda w: (w["topic"], w["queue"]))
    for word in odd:
        if "breaks" in word:
            raise RefusedError(
                f"queue {escape(word['topic'])}/{word['queue']}: its offsets break {word['breaks']} times"
                f" (at most {BREAKS_MAX:,}): is this a commitlog? Choose --exclude-topic for its topic"
            )
    return odd, sum(word["pre_blank"] for word in said if "topic" not in word)


def _tell(summary: Summary, words: list[dict[str, Any]]) -> None:
    summary.add_decisions(
        (kind, word["topic"], word["queue"], offset, count) for word in words for kind, offset, count in word["decisions"]
    )


def _refuse_order(summary: Summary, words: list[dict[str, Any]]) -> NoReturn:
    _tell(summary, words)
    kind, offset, count = words[0]["decisions"][0]
    raise RefusedError(
        f"queue {escape(words[0]['topic'])}/{words[0]['queue']}: {kind} of {count} at queue offset {offset}"
        f" ({len(words)} queues out of order): choose --queue-order logical or broker"
    )


def _lost(segments: list[Segment], words: list[dict[str, Any]]) -> list[Hole]:
    """Records out of line, as damage; those of a queue that are not told one by one are one more, with all their bytes."""
    found = []
    for word in words:
        queue = f"(queue {escape(word['topic'])}/{word['queue']})"
        for place, size in word["lost"]:
            found.append(Hole(segment_of(segments, place), place, size, f"{r.OUT_OF_LINE} {queue}"))
        if word["more_lost"]:
            count, place, end, size = word["more_lost"]
            reason = f"{r.OUT_OF_LINE} {queue}: {count} more records, up to offset {end}"
            found.append(Hole(segment_of(segments, place), place, size, reason))
    return sorted(found, key=lambda hole: (hole.offset, hole.reason))


def _lost_count(word: dict[str, Any]) -> int:
    return len(word["lost"]) + (word["more_lost"][0] if word["more_lost"] else 0)


def _report(summary: Summary, holes: list[Hole], torn: Hole | None) -> None:
    ordered = sorted(holes, key=lambda hole: (hole.offset, hole.reason))
    for hole in ordered[:DAMAGE_MAX]:
        summary.add_damage(hole.segment, hole.offset, hole.length, hole.reason)
    if rest := ordered[DAMAGE_MAX:]:
        size, end = sum(hole.length for hole in rest), max(hole.offset + hole.length for hole in rest)
        reason = f"{len(rest)} more damaged places, up to offset {end}"
        summary.add_damage(rest[0].segment, rest[0].offset, size, reason)
    if torn:
        summary.add_damage(torn.segment, torn.offset, torn.length, torn.reason, lost=False)
