"""What a judging task tells the driver of a queue out of order: the first of what it met, and exact sums of the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from rocketmq_reindex.storage_format.queue.order import Placement

TOLD_MAX: Final = 100
"""Decisions, and records out of line, that are told one by one of a queue."""
Decision = tuple[str, int, int]


def cap_decisions(decisions: Sequence[Decision], most: int = TOLD_MAX) -> list[Decision]:
    """The first ones; of the others one for each kind, ("more KIND", lowest queue offset, sum of the counts)."""
    rest: dict[str, tuple[int, int]] = {}
    for kind, offset, count in decisions[most:]:
        lowest, total = rest.get(kind, (offset, 0))
        rest[kind] = (min(lowest, offset), total + count)
    return [*decisions[:most], *((f"more {kind}", *rest[kind]) for kind in sorted(rest))]


def queue_word(
    topic: bytes, queue_id: int, decisions: Sequence[Decision], placement: Placement | None = None
) -> dict[str, Any]:
    """``lost``: [place, bytes] of the first records out of line.

    ``more_lost``: of the others [count, place of the first, end of the last, bytes].
    """
    word: dict[str, Any] = {"topic": topic.decode(), "queue": queue_id, "decisions": cap_decisions(decisions)}
    if placement is not None:
        rest = placement.lost[TOLD_MAX:]
        word["filled"], word["opened"] = placement.filled, placement.opened
        word["lost"] = [[place, size] for place, size, _ in placement.lost[:TOLD_MAX]]
        word["more_lost"] = [len(rest), rest[0][0], rest[-1][0] + rest[-1][1], sum(size for _, size, _ in rest)] if rest else []
    return word
