"""What the policies make of damage and of queues out of order, from summaries alone."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from jobs.scanning import Scan
from jobs.settings import BuildSettings
from jobs.summary import Summary
from storage_format import record as r
from storage_format.chain import Chain, Segment
from storage_format.errors import RefusedError
from storage_format.names import escape
from storage_format.range_summary import RangeSummary
from udfs import schemas
from udfs.judge import Judge

CUTS_MAX = 16
"""How often out-of-line records may move the end of a log that is built up to its first damage."""


@dataclass
class Order:
    """Queues out of order: where their units go (``Reroute.placements``)."""

    placements: list[list[Any]] = field(default_factory=list)


def segment_of(segments: list[Segment], offset: int) -> str:
    return next((s.name for s in reversed(segments) if s.start <= offset), "")


def report_damage(summary: Summary, chain: Chain) -> None:
    for hole in chain.holes:
        summary.add_damage(hole.segment, hole.offset, hole.length, hole.reason)
    if chain.torn:
        torn = chain.torn
        summary.add_damage(torn.segment, torn.offset, torn.length, torn.reason, lost=False)


def decide_damage(scan: Scan, settings: BuildSettings, chain: Chain, summary: Summary) -> list[RangeSummary]:
    """The ranges to build from. Raises RefusedError where the policy is fail and there is damage."""
    accepted = chain.accepted
    if chain.holes and settings.on_damage == "stop":
        first = chain.holes[0]
        summary.add_damage(first.segment, first.offset, first.length, first.reason)
        summary.warnings.append(f"built up to offset {first.offset}; what follows is left out")
        return scan.cut(accepted, first.offset)
    report_damage(summary, chain)
    if chain.holes and settings.on_damage == "fail":
        first = chain.holes[0]
        raise RefusedError(
            f"segment {first.segment}: damage at offset {first.offset}: {first.reason}"
            f" ({len(chain.holes)} in all): choose --on-damage stop or salvage"
        )
    return accepted


def judge_queues(scan: Scan, settings: BuildSettings, accepted: list[RangeSummary], holes: list[int]) -> list[dict[str, Any]]:
    """What reducers say of queues out of order."""
    if not any(summary.units for summary in accepted):
        return []
    judge = Judge(settings.queue_order, tuple(holes))
    words = scan.engine.reduce(schemas.RUNS, scan.left_out(accepted), None, judge)
    return sorted((json.loads(word) for word in words), key=lambda w: (w["topic"], w["queue"]))


def decide_order(
    scan: Scan, settings: BuildSettings, segments: list[Segment], chain: Chain, accepted: list[RangeSummary],
    summary: Summary,
) -> tuple[list[RangeSummary], Order]:  # fmt: skip
    """The ranges to build from, and where the units of disordered queues go. Raises RefusedError as the policies say."""
    holes = [hole.offset for hole in chain.holes]
    for _ in range(CUTS_MAX):
        words = judge_queues(scan, settings, accepted, holes)
        if settings.queue_order == "fail" and words:
            for word in words:
                for kind, offset, count in word["decisions"]:
                    summary.add_decision(kind, word["topic"], word["queue"], offset, count)
            first = words[0]
            kind, offset, count = first["decisions"][0]
            raise RefusedError(
                f"queue {escape(first['topic'])}/{first['queue']}: {kind} of {count} at queue offset {offset}"
                f" ({len(words)} queues out of order): choose --queue-order logical or broker"
            )
        lost = [(place, size, word) for word in words for place, size, _ in word.get("lost", [])]
        lost.sort(key=lambda entry: entry[0])
        if lost and settings.on_damage == "stop":
            place, size, word = lost[0]
            summary.add_damage(segment_of(segments, place), place, size, _out_of_line(word))
            summary.warnings.append(f"built up to offset {place}; what follows is left out")
            accepted = scan.cut(accepted, place)
            continue
        _report_order(summary, segments, words)
        if lost and settings.on_damage == "fail":
            place, _, word = lost[0]
            raise RefusedError(
                f"segment {segment_of(segments, place)}: damage at offset {place}: {_out_of_line(word)}"
                f" ({len(lost)} in all): choose --on-damage stop or salvage"
            )
        filled = sum(rows for word in words for _, rows, _ in word["fills"])
        if filled > settings.max_fill:
            raise RefusedError(
                f"queues: {filled} missing offsets would have to be filled, more than --max-fill {settings.max_fill}"
            )
        return accepted, Order([[w["topic"], w["queue"], w["kept"], w["fills"]] for w in words])
    raise RefusedError("queues: records out of line at too many places: choose --on-damage salvage")


def _out_of_line(word: dict[str, Any]) -> str:
    return f"{r.OUT_OF_LINE} (queue {escape(word['topic'])}/{word['queue']})"


def _report_order(summary: Summary, segments: list[Segment], words: list[dict[str, Any]]) -> None:
    for word in words:
        for place, size, _ in word["lost"]:
            summary.add_damage(segment_of(segments, place), place, size, _out_of_line(word))
        for kind, offset, count in word["decisions"]:
            summary.add_decision(kind, word["topic"], word["queue"], offset, count)
