"""Put into statements what a start did, and count what it left out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.integers import INT64_MAX, INT64_MIN
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.start.batch_queue_state import BatchQueueState
from rocketmq_reindex.storage_format.start.counting import by_queue, last_byte, read_sound
from rocketmq_reindex.storage_format.start.index_state import IndexState
from rocketmq_reindex.storage_format.start.kept import Int64s, KeptRows, bytes_of
from rocketmq_reindex.storage_format.start.lives import Bools, QueueLives
from rocketmq_reindex.storage_format.start.log_reader import LogReader, chosen
from rocketmq_reindex.storage_format.start.on_demand import OnDemand
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
from rocketmq_reindex.storage_format.start.store import StartSettings, Store, StoreFile
from rocketmq_reindex.storage_format.told import Told

_QUEUES: Final = 64
_NUMBERS: Final = tuple(one.name for one in dataclasses.fields(QueueOutcome))[2:]
"""of a queue, all but its name"""
Queues = Mapping[tuple[str, int], QueueState | BatchQueueState]


@dataclass(frozen=True)
class Started:
    """A store behind its start. ``rows`` are the sound records that the recovery read, ``covered`` the queues' max physic
    offset before it; ``dispatched`` has (the lowest PHYSICALOFFSET, how many) of each dispatch. ``stopped_at``: as in
    DispatchOutcome.
    """

    start: Start
    end: End
    rows: KeptRows
    log: KeptLog
    queues: Queues
    index: IndexState
    reader: LogReader
    dispatched: list[tuple[int, int]]
    stopped_at: int
    covered: int


def outcome(store: Store, settings: StartSettings, started: Started, count_limit: int, told: Told) -> Prediction:
    """The statements about a start."""
    below = _below(store, started)
    size = sum(end - first for _, first, end in below)
    count = _Count(settings, started, size <= count_limit)
    told.begin("compare", (size if count.whole else 0) + started.rows.bytes)
    if count.whole and below:
        with started.reader.handing_to(count.take_any):
            read_sound(below, counting_of(settings, RULES[settings.release]), started.reader)
    for rows in started.rows.chunks():
        count.take(rows)
        told.moved(bytes_of(rows))
    return Prediction(
        settings.release,
        True,
        log=_log(store, settings, started, count_limit, told),
        dispatch=_dispatch(started, count),
        queues=_queues(started, count, settings.segment_size),
        index=_index(started, count),
        notes=tuple(dict.fromkeys(started.reader.notes)),
    )


def _below(store: Store, started: Started) -> list[tuple[StoreFile, int, int]]:
    """The stretches of the kept log that the recovery did not read."""
    start = started.start
    below = [(segment, 0, segment.size) for segment in store.segments[: start.index]]
    return [*below, (store.segments[start.index], 0, start.at)] if start.at else below


class _Count:
    """What is counted of the sound records of the kept log, chunk by chunk. ``whole``: none of them is left out."""

    def __init__(self, settings: StartSettings, started: Started, whole: bool) -> None:
        self._started, self._keeps_index, self.whole = started, settings.message_index, whole
        self.items_missing = 0
        self._low, self._high = np.full(_QUEUES, INT64_MAX, np.int64), np.full(_QUEUES, INT64_MIN, np.int64)
        """lowest offset, and highest plus 1, of each queue's records with a unit, by its number"""
        self._lives: dict[int, QueueLives] = {}
        """of queues with records of which a unit should point to each, and none does"""
        self._light = set[int]()

    def take_any(self, rows: Rows) -> None:
        """Count those of the rows that are sound."""
        self.take(chosen(rows, self._started.reader.are_sound(rows)))

    def take(self, rows: Rows) -> None:
        """Count the next rows."""
        for number, which in by_queue(rows, (rows.flags & HAS_UNIT) > 0):
            hidden = self._are_hidden(number, rows.at[which]) if self.whole else np.zeros(len(which), np.bool_)
            if number in self._lives or hidden.any():
                self._take_hidden(number, rows, which, hidden)
                which = which[~hidden]
            self._take_offsets(number, rows.offset[which], rows.messages[which])
        if self.whole and self._keeps_index:
            self.items_missing += self._started.index.missing(rows)

    def _take_offsets(self, number: int, offsets: Int64s, messages: npt.NDArray[np.int16]) -> None:
        while number >= len(self._low):
            self._low = np.concatenate((self._low, np.full(len(self._low), INT64_MAX, np.int64)))
            self._high = np.concatenate((self._high, np.full(len(self._high), INT64_MIN, np.int64)))
        self._low[number] = min(self._low[number], offsets[offsets >= 0].min(initial=INT64_MAX))
        self._high[number] = max(self._high[number], (offsets + messages).max(initial=INT64_MIN))

    def _are_hidden(self, number: int, at: Int64s) -> Bools:
        """Which of a queue's records have no unit that points to them, though they get one."""
        queue = self._started.queues.get(self._started.reader.queue_name(number))
        if queue is None:
            return np.ones(len(at), np.bool_)
        if (at[1:] < at[:-1]).any():
            order = np.argsort(at)
            found = np.empty(len(at), np.bool_)
            found[order] = ~queue.are_pointed_to(at[order])
            return found
        return ~queue.are_pointed_to(at)

    def _take_hidden(self, number: int, rows: Rows, which: Int64s, hidden: Bools) -> None:
        order = np.argsort(rows.at[which], kind="stable")
        which, hidden = which[order], hidden[order]
        if rows.flags[which[0]] & LIGHT:
            self._light.add(number)
        lives = self._lives.setdefault(number, QueueLives())
        lives.take(
            hidden, rows.offset[which], rows.messages[which].astype(np.int64), rows.at[which], rows.size[which].astype(np.int64)
        )

    def numbers(self) -> list[int]:
        """The queues that were met."""
        return sorted({*np.flatnonzero(self._high > INT64_MIN).tolist(), *self._lives})

    def queue(self, number: int) -> tuple[int, int, int, int]:
        """Lowest offset, highest plus 1, hidden records, records of earlier lives of a queue."""
        low, high, lives = int(self._low[number]), int(self._high[number]), self._lives.get(number)
        if lives is None:
            return low, high, 0, 0
        hidden = lives.hidden()
        return min(low, hidden.low), max(high, hidden.high, -1), hidden.count, lives.earlier

    def hidden(self) -> tuple[int, int, int]:
        """(first byte, end, number) of the records that no consumer gets; (-1, -1, 0) if there are none."""
        found = [lives.hidden() for number, lives in self._lives.items() if number not in self._light and not lives.is_empty]
        if not found:
            return -1, -1, 0
        return min(one.first for one in found), max(one.end for one in found), sum(one.count for one in found)


def _log(store: Store, settings: StartSettings, started: Started, count_limit: int, told: Told) -> LogOutcome:
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
        size = sum(high - low for _, low, high in stretches)
        if size <= count_limit:
            told.begin("count what is cut off", size)
            counts = list[int]()
            with started.reader.handing_to(lambda rows: counts.append(int(np.count_nonzero((rows.flags & LIGHT) == 0)))):
                read_sound(stretches, counting_of(settings, RULES[settings.release]), started.reader)
            records = sum(counts)
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


def _dispatch(started: Started, count: _Count) -> DispatchOutcome:
    first, last, hidden = count.hidden()
    if not count.whole and started.start.limited:
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
        hidden_records=hidden if count.whole else -1,
        stopped_at=started.stopped_at,
    )


def _queues(started: Started, count: _Count, segment_size: int) -> Sequence[QueueOutcome]:
    in_log = {started.reader.queue_name(number): number for number in count.numbers()}
    names = sorted({*started.queues, *in_log})
    numbers = np.empty((len(names), len(_NUMBERS)), np.int64)
    for row, name in enumerate(names):
        queue, found = started.queues.get(name), in_log.get(name)
        low, high, hidden, earlier = (INT64_MAX, -1, 0, 0) if found is None else count.queue(found)
        low = low if count.whole and low < INT64_MAX else -1
        hidden = hidden if count.whole else -1
        if queue is None:
            numbers[row] = 0, 0, 0, 0, low, high, hidden, 0, -1, False, earlier
            continue
        passed, given_from = (0, -1) if isinstance(queue, BatchQueueState) else queue.passed_over(segment_size)
        numbers[row] = (
            queue.min_offset, queue.max_offset, queue.units_cut, queue.units_added, low, high, hidden, passed,
            given_from if passed else -1, isinstance(queue, QueueState) and queue.ends_blank, earlier,
        )  # fmt: skip

    def outcome_of(row: int) -> QueueOutcome:
        found = dict(zip(_NUMBERS, numbers[row].tolist(), strict=True))
        return QueueOutcome(*names[row], **found | {"ends_blank": bool(found["ends_blank"])})

    return OnDemand(len(names), outcome_of)


def _index(started: Started, count: _Count) -> IndexOutcome:
    index, log = started.index, started.log
    return IndexOutcome(
        files=index.files,
        deleted=tuple(index.deleted),
        items_lost=index.items_lost(log.min_offset, log.max_offset),
        items_missing=count.items_missing if count.whole else -1,
    )
