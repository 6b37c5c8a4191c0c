"""Put into statements what a start did, and count what it left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rocketmq_reindex.storage_format.integers import INT64_MAX
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.start.batch_queue_state import BatchQueueState
from rocketmq_reindex.storage_format.start.counting import are_among, by_queue, last_byte, read_sound
from rocketmq_reindex.storage_format.start.index_state import IndexState
from rocketmq_reindex.storage_format.start.log_reader import LogReader, chosen, concatenated
from rocketmq_reindex.storage_format.start.prediction import (
    DispatchOutcome,
    IndexOutcome,
    LogOutcome,
    Prediction,
    QueueOutcome,
)
from rocketmq_reindex.storage_format.start.queue_state import QueueState
from rocketmq_reindex.storage_format.start.record_loop import HAS_UNIT, LIGHT, Rows
from rocketmq_reindex.storage_format.start.recovery import REASONS, End, Start, counting_of
from rocketmq_reindex.storage_format.start.reput import KeptLog
from rocketmq_reindex.storage_format.start.rules import RULES
from rocketmq_reindex.storage_format.start.store import StartSettings, Store

Queues = Mapping[tuple[str, int], QueueState | BatchQueueState]


@dataclass(frozen=True)
class Started:
    """A store behind its start. ``rows`` are the records that the recovery read, ``covered`` the queues' max physic offset
    before it; ``dispatched`` has (the lowest PHYSICALOFFSET, how many) of each dispatch. ``stopped_at``: as in DispatchOutcome.
    """

    start: Start
    end: End
    rows: Rows
    log: KeptLog
    queues: Queues
    index: IndexState
    reader: LogReader
    dispatched: list[tuple[int, int]]
    stopped_at: int
    covered: int


def outcome(store: Store, settings: StartSettings, started: Started, count_limit: int) -> Prediction:
    """The statements about a start."""
    rows, counted = _kept_rows(store, settings, started, count_limit)
    rows = chosen(rows, started.reader.are_sound(rows))
    hidden = _hidden(rows, started) if counted else None
    return Prediction(
        settings.release,
        True,
        log=_log(store, settings, started, count_limit),
        dispatch=_dispatch(rows, started, hidden),
        queues=_queues(rows, started, hidden),
        index=_index(rows, settings, started, counted),
        notes=tuple(dict.fromkeys(started.reader.notes)),
    )


def _kept_rows(store: Store, settings: StartSettings, started: Started, count_limit: int) -> tuple[Rows, bool]:
    """The records of the kept log, and whether that is all of them: not where too many bytes lie below the recovery's start."""
    start = started.start
    below = [(segment, 0, segment.size) for segment in store.segments[: start.index]]
    if start.at:
        below.append((store.segments[start.index], 0, start.at))
    if not below:
        return started.rows, True
    if sum(end for _, _, end in below) > count_limit:
        return started.rows, False
    reading = counting_of(settings, RULES[settings.release])
    return concatenated([read_sound(below, reading, started.reader), started.rows]), True


def _hidden(rows: Rows, started: Started) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which rows have no unit that points to them, though their records get one."""
    hidden = np.zeros(len(rows.at), np.bool_)
    for number, which in by_queue(rows, (rows.flags & HAS_UNIT) > 0):
        queue = started.queues.get(started.reader.queue_name(number))
        hidden[which] = True if queue is None else ~are_among(rows.at[which], queue.pointed_to())
    return hidden


def _log(store: Store, settings: StartSettings, started: Started, count_limit: int) -> LogOutcome:
    segments, log = store.segments, started.log
    if not segments:
        return LogOutcome(settings.abnormal, "", 0, False, -1, 0, 0, "", 0, 0, ())
    start, end = started.start, started.end
    at = end.offset - segments[end.index].start
    live = -1 if end.code == r.FILLER else last_byte(segments, end.index, at)
    cut = max(0, live - end.offset)
    records = 0
    if cut:
        stretches = [(segments[end.index], at, segments[end.index].size)]
        stretches += [(segment, 0, segment.size) for segment in segments[end.index + 1 :]]
        records = -1
        if sum(high - low for _, low, high in stretches) <= count_limit:
            found = read_sound(stretches, counting_of(settings, RULES[settings.release]), started.reader)
            records = int(np.count_nonzero((found.flags & LIGHT) == 0))
    kept = {segment.name for segment in log.segments}
    return LogOutcome(
        abnormal=settings.abnormal,
        start_segment=segments[start.index].name,
        start_offset=segments[start.index].start + start.at,
        limited=start.limited,
        min_offset=log.min_offset,
        max_offset=log.max_offset,
        end=max(live, log.max_offset),
        cut_reason=REASONS[end.code] if cut else "",
        cut_bytes=cut,
        cut_records=records,
        deleted_segments=tuple(segment.name for segment in segments if segment.name not in kept),
    )


def _dispatch(rows: Rows, started: Started, hidden: np.ndarray[tuple[int], np.dtype[np.bool_]] | None) -> DispatchOutcome:
    first, last, count = -1, -1, -1
    if hidden is not None:
        which = np.flatnonzero(hidden & ((rows.flags & LIGHT) == 0))
        count = len(which)
        if count:
            first, last = int(rows.at[which[0]]), int(rows.at[which[-1]] + rows.size[which[-1]])
    elif started.start.limited:
        first = max(started.log.min_offset, started.covered)
        last = started.log.segments[started.start.index].start
        first, last = (first, last) if first < last else (-1, -1)
    return DispatchOutcome(
        from_offset=min((at for at, records in started.dispatched if records), default=-1),
        records=sum(records for _, records in started.dispatched),
        units=sum(queue.units_added for queue in started.queues.values()),
        items=started.index.items_added,
        hidden_from=first,
        hidden_to=last,
        hidden_records=count,
        stopped_at=started.stopped_at,
    )


def _queues(
    rows: Rows, started: Started, hidden: np.ndarray[tuple[int], np.dtype[np.bool_]] | None
) -> tuple[QueueOutcome, ...]:
    in_log: dict[tuple[str, int], tuple[int, int, int]] = {}
    for number, which in by_queue(rows, (rows.flags & HAS_UNIT) > 0):
        offsets = rows.offset[which]
        low = int(offsets[offsets >= 0].min(initial=INT64_MAX)) if hidden is not None else -1
        low = low if low < INT64_MAX else -1
        high = int((offsets + rows.messages[which]).max())
        in_log[started.reader.queue_name(number)] = (low, high, int(hidden[which].sum()) if hidden is not None else -1)
    absent = (-1, -1, 0 if hidden is not None else -1)
    found = []
    for topic, number in sorted({*started.queues, *in_log}):
        queue = started.queues.get((topic, number))
        low, high, count = in_log.get((topic, number), absent)
        if queue is None:
            found.append(QueueOutcome(topic, number, 0, 0, 0, 0, low, high, count))
            continue
        found.append(QueueOutcome(
            topic, number, queue.min_offset, queue.max_offset, queue.units_cut, queue.units_added, low, high, count
        ))  # fmt: skip
    return tuple(found)


def _index(rows: Rows, settings: StartSettings, started: Started, counted: bool) -> IndexOutcome:
    index, log = started.index, started.log
    missing = 0 if counted else -1
    if counted and settings.message_index:
        missing = index.missing(rows)
    return IndexOutcome(
        files=index.files,
        deleted=index.deleted,
        items_lost=index.items_lost(log.min_offset, log.max_offset),
        items_missing=missing,
    )
