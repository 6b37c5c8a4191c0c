"""State what a start did, and count what it left out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.broker_start import (
    database_state,
    index_state,
    kept as start_kept,
    listing,
    loading,
    other_queue_states,
    queue_state,
    record_loop,
    recovery,
    store as start_store,
)
from rocketmq_reindex.storage_format.errors import ProgressListener
from rocketmq_reindex.storage_format.layouts import INT64_MAX, INT64_MIN
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.versions import START_RULES

_QUEUES: Final = 64
_NUMBERS: Final = tuple(one.name for one in dataclasses.fields(loading.QueueOutcome))[2:]
"""of a queue, all but its name"""
AnyQueueState = queue_state.QueueState | other_queue_states.BatchQueueState | database_state.DatabaseQueueState
Queues = Mapping[tuple[str, int], AnyQueueState]


@dataclass(frozen=True)
class Started:
    """A store behind its start. ``rows`` are the whole records that the recovery read, and ``unread`` the stretches of the kept
    log that it did not read: segment, first byte, end. ``covered`` is the queues' max physic
    offset before it; ``dispatched`` has (the lowest PHYSICALOFFSET, how many) of each dispatch. ``stopped_at``: as in
    DispatchOutcome.
    """

    start: recovery.Start
    unread: list[tuple[start_store.StoreFile, int, int]]
    end: recovery.End
    rows: start_kept.KeptRows
    log: recovery.KeptLog
    queues: Queues
    index: index_state.IndexState
    reader: start_store.LogReader
    dispatched: list[tuple[int, int]]
    stopped_at: int
    covered: int


def outcome(
    store: start_store.Store,
    settings: start_store.StartSettings,
    started: Started,
    count_limit: int,
    progress: ProgressListener,
) -> loading.Prediction:
    """Return the statements about a start."""
    below = started.unread
    size = sum(end - first for _, first, end in below)
    count = _KeptCount(settings, started, size <= count_limit)
    progress.begin("compare", (size if count.whole else 0) + started.rows.bytes)
    if count.whole and below:
        with started.reader.handing_to(count.take_any):
            start_kept.read_sound(below, recovery.counting_of(settings, START_RULES[settings.release]), started.reader)
    for rows in started.rows.chunks():
        count.take(rows)
        progress.moved(start_kept.bytes_of(rows))
    count.end(progress)
    return loading.Prediction(
        settings.release,
        True,
        log=_log(store, settings, started, count_limit, progress),
        dispatch=_dispatch(started, count),
        queues=_queues(started, count, settings.segment_size),
        index=_index(started, count),
        in_order=count.in_order if count.whole else None,
        notes=tuple(dict.fromkeys(started.reader.notes)),
    )


_LOW, _HIGH, _HIDDEN, _EARLIER, _IS_MET, _IS_LIGHT = range(6)
"""columns of what is counted of a queue: its lowest offset, and the highest plus 1, of records that are of no earlier life; how
many no consumer gets; how many are of earlier lives, and whether the record was met with which the queue began again"""
_EARLIER_AT: Final = slice(6, 10)
"""where records of earlier lives lie: first byte, end, lowest offset, highest plus 1"""
_NO_COUNT: Final = np.array([INT64_MAX, INT64_MIN, 0, 0, 0, 0, INT64_MAX, -1, INT64_MAX, INT64_MIN], np.int64)


class _Stretch(NamedTuple):
    """So many records of a queue in the bytes [first, end) of the log, with offsets from ``low`` to below ``high``."""

    records: int
    first: int
    end: int
    low: int
    high: int
    is_light: bool

    @staticmethod
    def of(rows: start_kept.QueueRows, chosen: start_kept.Int64s) -> _Stretch:
        """Return those of the rows that are named."""
        at, offsets = rows.at[chosen], rows.offset[chosen]
        return _Stretch(
            len(chosen), int(at.min()), int((at + rows.size[chosen]).max()), int(offsets[offsets >= 0].min(initial=INT64_MAX)),
            int((offsets + rows.messages[chosen]).max()), bool(rows.flags[chosen[0]] & record_loop.LIGHT),
        )  # fmt: skip


class _KeptCount:
    """What is counted of the sound records of the kept log, chunk by chunk. ``whole``: none of them is left out.

    Where a topic is deleted and made again, its queue begins again at offset 0, and no consumer is to be given what the log has
    in front of that. So records are of an earlier life if they lie in front of one with offset 0 to which the queue's unit
    at position 0 points. Any other record without a unit is one that consumers should be given, and are not.
    """

    def __init__(self, settings: start_store.StartSettings, started: Started, whole: bool) -> None:
        self._started, self._keeps_index, self.whole = started, settings.message_index, whole
        self.items_missing = 0
        self.misplaced, self.misplaced_from = 0, -1
        """records elsewhere than they say, to which no unit leads, and where the first of them lies; -1 for none"""
        self._counts = np.tile(_NO_COUNT, (_QUEUES, 1))
        """a row for each queue, by its number"""
        self._first, self._end, self._hidden = INT64_MAX, -1, 0
        """of the records that no consumer gets, without those of light queues: first byte, end, number"""
        self.in_order = True
        """the offsets of each queue count up by one, as far as the rows were taken in the log's order"""
        self._by_queue = start_kept.RowsByQueue(started.rows.spool)
        """rows of a log with many queues, to be counted when all are there"""
        self._next = np.full(_QUEUES, -1, np.int64)
        """of each queue the offset behind its last record, by its number; -1 where none was met"""

    def take_any(self, rows: record_loop.LogRows) -> None:
        """Count those of the rows that are whole."""
        self.take(self._started.reader.whole_rows(rows))

    def take(self, rows: record_loop.LogRows) -> None:
        """Count the next rows. A record that lies elsewhere than it says is not sound, and is counted by itself."""
        elsewhere = rows.at != rows.phy_offset
        if elsewhere.any():
            self._take_misplaced(start_store.chosen(rows, elsewhere))
            rows = start_store.chosen(rows, ~elsewhere)
        counted = start_kept.QueueRows.of(rows, rows.at)
        self._follow(counted)
        if not self._by_queue.takes(counted):
            self._take_queues(counted)
        if self.whole and self._keeps_index:
            self.items_missing += self._started.index.missing(rows)

    def _take_misplaced(self, rows: record_loop.LogRows) -> None:
        """Count those to which no unit leads in a queue: the start makes one that leads to where the record says."""
        counted = start_kept.QueueRows.of(rows, rows.at)
        of_queues = [np.zeros(0, np.int64)]
        for number, queue_rows in start_kept.by_queue(counted):
            at = counted.at[queue_rows]
            of_queues.append(at[self._are_hidden(number, at)])
        # A record that names light queues is one record.
        lost = np.unique(np.concatenate(of_queues))
        if len(lost):
            self.misplaced_from = min(int(lost[0]), self.misplaced_from if self.misplaced else INT64_MAX)
            self.misplaced += len(lost)

    def _take_queues(self, rows: start_kept.QueueRows) -> None:
        for number, queue_rows in start_kept.by_queue(rows):
            while number >= len(self._counts):
                self._counts = np.concatenate((self._counts, np.tile(_NO_COUNT, (len(self._counts), 1))))
            hidden = self._are_hidden(number, rows.at[queue_rows]) if self.whole else np.zeros(len(queue_rows), np.bool_)
            if hidden.any():
                queue_rows = self._take_hidden(number, rows, queue_rows, hidden)
            elif self._counts[number, _EARLIER]:
                self._meet_beginning(number, rows, queue_rows)
            self._take_offsets(number, rows, queue_rows)

    def _follow(self, rows: start_kept.QueueRows) -> None:
        """Note whether the next rows go on where their queues ended."""
        if not self.in_order or not len(rows.queue):
            return
        in_order = np.lexsort((rows.at, rows.queue))
        queue, first = rows.queue[in_order], rows.offset[in_order]
        behind = first + rows.messages[in_order]
        self._next = np.concatenate((self._next, np.full(max(0, int(queue[-1]) + 1 - len(self._next)), -1, np.int64)))
        begins = np.concatenate(([True], queue[1:] != queue[:-1]))
        expected = np.where(begins, self._next[queue], np.roll(behind, 1))
        odd = np.flatnonzero((expected >= 0) & (first != expected))
        # A build takes a queue that began again, as the broker did.
        self.in_order = all(first[k] == 0 and rows.at[in_order[k]] <= self._beginning(int(queue[k])) for k in odd.tolist())
        ends = np.concatenate((begins[1:], [True]))
        self._next[queue[ends]] = behind[ends]

    def _take_offsets(self, number: int, rows: start_kept.QueueRows, queue_rows: start_kept.Int64s) -> None:
        offsets = rows.offset[queue_rows]
        self._counts[number, _LOW] = min(self._counts[number, _LOW], offsets[offsets >= 0].min(initial=INT64_MAX))
        highest = (offsets + rows.messages[queue_rows]).max(initial=INT64_MIN)
        self._counts[number, _HIGH] = max(self._counts[number, _HIGH], highest)

    def _state(self, number: int) -> AnyQueueState | None:
        return self._started.queues.get(self._started.reader.queue_name(number))

    def _beginning(self, number: int) -> int:
        """Return the physical offset to which the queue's unit at position 0 points; -1 where it has none."""
        queue = self._state(number)
        return -1 if queue is None else queue.first_unit

    def _are_hidden(self, number: int, at: start_kept.Int64s) -> npt.NDArray[np.bool_]:
        """Return which of a queue's records have no unit that points to them, though they get one."""
        queue = self._state(number)
        if queue is None:
            return np.ones(len(at), np.bool_)
        if (at[1:] < at[:-1]).any():
            order = np.argsort(at)
            are_hidden = np.empty(len(at), np.bool_)
            are_hidden[order] = ~queue.are_pointed_to(at[order])
            return are_hidden
        return ~queue.are_pointed_to(at)

    def _take_hidden(
        self, number: int, rows: start_kept.QueueRows, queue_rows: start_kept.Int64s, hidden: npt.NDArray[np.bool_]
    ) -> start_kept.Int64s:
        """Count those of a queue's rows that have no unit. Return the rows that are of no earlier life."""
        earlier = hidden & (rows.at[queue_rows] < self._beginning(number))
        self._meet_beginning(number, rows, queue_rows)
        now = hidden & ~earlier
        if now.any():
            self._add_hidden(number, _Stretch.of(rows, queue_rows[now]))
        if earlier.any():
            stretch = _Stretch.of(rows, queue_rows[earlier])
            kept = self._counts[number, _EARLIER_AT]
            self._counts[number, _EARLIER] += stretch.records
            self._counts[number, _EARLIER_AT] = (
                min(kept[0], stretch.first), max(kept[1], stretch.end), min(kept[2], stretch.low), max(kept[3], stretch.high)
            )  # fmt: skip
            self._counts[number, _IS_LIGHT] = stretch.is_light
        return queue_rows[~earlier]

    def _meet_beginning(self, number: int, rows: start_kept.QueueRows, queue_rows: start_kept.Int64s) -> None:
        """Note whether the rows have the record with which the queue began again. A broken unit may point anywhere."""
        if not self._counts[number, _IS_MET]:
            is_beginning = (rows.at[queue_rows] == self._beginning(number)) & (rows.offset[queue_rows] == 0)
            self._counts[number, _IS_MET] = is_beginning.any()

    def _add_hidden(self, number: int, stretch: _Stretch) -> None:
        counts = self._counts[number]
        counts[_HIDDEN] += stretch.records
        counts[_LOW], counts[_HIGH] = min(counts[_LOW], stretch.low), max(counts[_HIGH], stretch.high)
        if not stretch.is_light:
            self._first, self._end = min(self._first, stretch.first), max(self._end, stretch.end)
            self._hidden += stretch.records

    def end(self, progress: ProgressListener) -> None:
        """All rows were taken. Records in front of a beginning that was not met are hidden like others."""
        self._by_queue.hand_over(self._take_queues, "compare queues", progress)
        for number in np.flatnonzero((self._counts[:, _EARLIER] > 0) & (self._counts[:, _IS_MET] == 0)).tolist():
            records, is_light = self._counts[number, [_EARLIER, _IS_LIGHT]].tolist()
            first, end, low, high = self._counts[number, _EARLIER_AT].tolist()
            self._add_hidden(number, _Stretch(records, first, end, low, high, bool(is_light)))
            self._counts[number, _EARLIER] = 0

    def numbers(self) -> list[int]:
        """Return the queues that were met."""
        met: list[int] = np.flatnonzero((self._counts[:, _HIGH] > INT64_MIN) | (self._counts[:, _EARLIER] > 0)).tolist()
        return met

    def queue(self, number: int) -> tuple[int, int, int, int]:
        """Return lowest offset, highest plus 1, hidden records, records of earlier lives of a queue."""
        low, high, hidden, earlier = self._counts[number, [_LOW, _HIGH, _HIDDEN, _EARLIER]].tolist()
        return low, high if high > INT64_MIN else -1, hidden, earlier

    def hidden(self) -> tuple[int, int, int]:
        """Return (first byte, end, number) of the records that no consumer gets; (-1, -1, 0) if there are none."""
        return (self._first, self._end, self._hidden) if self._hidden else (-1, -1, 0)


def _log(
    store: start_store.Store,
    settings: start_store.StartSettings,
    started: Started,
    count_limit: int,
    progress: ProgressListener,
) -> loading.LogOutcome:
    segments, log = store.segments, started.log
    if not segments:
        return loading.LogOutcome(settings.abnormal, "", 0, False, -1, 0, 0, "", 0, 0, ())
    start, end = started.start, started.end
    at = end.offset - segments[end.index].start
    live = -1 if end.code == r.FILLER else start_kept.last_byte(segments, end.index, at)
    cut = max(0, live - end.offset)
    records = 0
    if cut:
        stretches = [(segments[end.index], at, segments[end.index].size)]
        stretches += [(segment, 0, segment.size) for segment in segments[end.index + 1 :]]
        records = -1
        size = sum(high - low for _, low, high in stretches)
        if size <= count_limit:
            progress.begin("count what is cut off", size)
            counts = list[int]()
            with started.reader.handing_to(
                lambda rows: counts.append(
                    int(np.count_nonzero(((rows.flags & record_loop.LIGHT) == 0) & (rows.at == rows.phy_offset)))
                )
            ):
                start_kept.read_sound(stretches, recovery.counting_of(settings, START_RULES[settings.release]), started.reader)
            records = sum(counts)
    kept = {segment.name for segment in log.segments}
    return loading.LogOutcome(
        abnormal=settings.abnormal,
        start_segment=segments[start.index].name,
        start_offset=segments[start.index].start + start.at,
        limited=start.limited,
        min_offset=log.min_offset,
        max_offset=log.max_offset,
        end=max(live, log.max_offset),
        cut_reason=recovery.REASONS[end.code] if cut else "",
        cut_bytes=cut,
        cut_records=records,
        deleted_segments=tuple(segment.name for segment in segments if segment.name not in kept),
    )


def _dispatch(started: Started, count: _KeptCount) -> loading.DispatchOutcome:
    first, last, hidden = count.hidden()
    if not count.whole and started.start.limited:
        first = max(started.log.min_offset, started.covered)
        last = started.log.segments[started.start.index].start
        first, last = (first, last) if first < last else (-1, -1)
    return loading.DispatchOutcome(
        from_offset=min((at for at, records in started.dispatched if records), default=-1),
        records=sum(records for _, records in started.dispatched),
        units=sum(queue.units_added for queue in started.queues.values()),
        items=started.index.items_added,
        hidden_from=first,
        hidden_to=last,
        hidden_records=hidden if count.whole else -1,
        stopped_at=started.stopped_at,
        misplaced=count.misplaced,
        misplaced_from=count.misplaced_from,
    )


def _queues(started: Started, count: _KeptCount, segment_size: int) -> Sequence[loading.QueueOutcome]:
    in_log = {started.reader.queue_name(number): number for number in count.numbers()}
    names = sorted({*started.queues, *in_log})
    numbers = np.empty((len(names), len(_NUMBERS)), np.int64)
    for row, name in enumerate(names):
        queue, queue_number = started.queues.get(name), in_log.get(name)
        low, high, hidden, earlier = (INT64_MAX, -1, 0, 0) if queue_number is None else count.queue(queue_number)
        low = low if count.whole and low < INT64_MAX else -1
        hidden = hidden if count.whole else -1
        if queue is None:
            numbers[row] = 0, 0, 0, 0, low, high, hidden, 0, -1, False, earlier, 0, -1, 0
            continue
        passed, given_from, ends_blank, moved, gap_at, behind_gap = 0, -1, False, 0, -1, 0
        if isinstance(queue, queue_state.QueueState):
            (passed, given_from), ends_blank, moved = queue.passed_over(segment_size), queue.ends_blank, queue.moved
        elif isinstance(queue, database_state.DatabaseQueueState) and count.whole:
            gap_at, behind_gap = queue.gap()
        numbers[row] = (
            queue.min_offset, queue.max_offset, queue.units_cut, queue.units_added, low, high, hidden, passed,
            given_from if passed else -1, ends_blank, earlier, moved, gap_at, behind_gap,
        )  # fmt: skip

    def outcome_of(row: int) -> loading.QueueOutcome:
        fields = dict(zip(_NUMBERS, numbers[row].tolist(), strict=True))
        return loading.QueueOutcome(*names[row], **fields | {"ends_blank": bool(fields["ends_blank"])})

    return listing.OnDemand(len(names), outcome_of)


def _index(started: Started, count: _KeptCount) -> loading.IndexOutcome:
    index, log = started.index, started.log
    return loading.IndexOutcome(
        files=index.files,
        deleted=tuple(index.deleted),
        items_lost=index.items_lost(log.min_offset, log.max_offset),
        items_missing=count.items_missing if count.whole else -1,
    )
