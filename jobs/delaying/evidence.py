"""Merge what tasks found out of delayed messages: of each queue what was delivered, and what was not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.delay.decide import Bools, doubtful
from rocketmq_reindex.storage_format.delay.evidence import EVIDENCE, SCHEDULED, TIMED, Rows
from rocketmq_reindex.storage_format.timer.files import QueueEnd
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.delay.join import JoinedResult


@dataclass(frozen=True)
class Level:
    """One queue of SCHEDULE_TOPIC_XXXX: the highest offset delivered (-1: none), messages delivered and pending."""

    queue: int
    highest: int
    delivered: int
    pending: int
    undecided: Rows
    reasons: npt.NDArray[np.int64]
    """of each, the number of its reason in ``decide.REASONS``"""


@dataclass(frozen=True)
class Timers:
    """The timer topic: rows of EVIDENCE without a copy, by queue offset; which of them are undecided, and why."""

    end: QueueEnd
    rows: Rows
    reasons: npt.NDArray[np.int64]
    """-1 where a message is pending for sure"""


@dataclass(frozen=True)
class Evidence:
    """All that the log says of delayed and timer messages."""

    levels: list[Level]
    timers: Timers


def merge(found: Sequence[JoinedResult], last_gap: int, last_time: int) -> Evidence:
    """Merge the results of all tasks; see ``decide.doubtful``. Of the levels only undecided messages are held."""
    highest, delivered, pending = dict[int, int](), dict[int, int](), dict[int, int]()
    undecided: dict[int, list[tuple[Rows, npt.NDArray[np.int64]]]] = {}
    timed: list[tuple[Rows, npt.NDArray[np.int64]]] = [(np.zeros(0, EVIDENCE), np.zeros(0, np.int64))]
    for result in found:
        for queue, offset, count in result.delivered:
            highest[queue] = max(highest.get(queue, -1), offset)
            delivered[queue] = delivered.get(queue, 0) + count
    for result in found:
        rows = np.frombuffer(files.read_bytes(result.part), EVIDENCE) if result.part else np.zeros(0, EVIDENCE)
        unclear = np.array(result.unclear, np.int64)
        timers = rows[rows["kind"] == TIMED]
        timed.append((timers, _reasons(doubtful(timers, -1, last_gap, last_time, unclear))))
        for queue in np.unique(rows["queue"][rows["kind"] == SCHEDULED]).tolist():
            mine = rows[(rows["kind"] == SCHEDULED) & (rows["queue"] == queue)]
            reasons = _reasons(doubtful(mine, highest.get(queue, -1), last_gap, last_time, unclear))
            undecided.setdefault(queue, []).append((mine[reasons >= 0], reasons[reasons >= 0]))
            pending[queue] = pending.get(queue, 0) + int((reasons < 0).sum())
    levels = []
    for queue in sorted(highest.keys() | pending.keys()):
        rows, reasons = _sorted(undecided.get(queue, timed[:1]))
        levels.append(Level(queue, highest.get(queue, -1), delivered.get(queue, 0), pending.get(queue, 0), rows, reasons))
    ends = [result.timer_end for result in found if result.timer_end]
    last = max(ends, default=[-1, 0, 0])
    timers = Timers(QueueEnd(last[0] + 1, last[1], last[2]), *_sorted(timed))
    return Evidence(levels, timers)


def _reasons(masks: tuple[Bools, ...]) -> npt.NDArray[np.int64]:
    found = np.full(len(masks[0]), -1, np.int64)
    for number, mask in enumerate(masks):
        found[mask] = number
    return found


def _sorted(parts: list[tuple[Rows, npt.NDArray[np.int64]]]) -> tuple[Rows, npt.NDArray[np.int64]]:
    rows, reasons = np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
    order = np.argsort(rows["queue_offset"], kind="stable")
    return rows[order], reasons[order]
