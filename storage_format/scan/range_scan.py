"""Scan one byte range of the log in chunks: walk its records, pass over damage, hand out blocks of units and items."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.digest import ChunkDigests
from rocketmq_reindex.storage_format.names import SEEN, TOPIC
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.frame import (
    CRC_BODY,
    REC_SIZE,
    SPANS_SIZE,
    TOTAL,
    addresses_extra,
    find_record,
    int16_at,
    int32_at,
)
from rocketmq_reindex.storage_format.scan.chain import may_lie_elsewhere
from rocketmq_reindex.storage_format.scan.range_summary import RangeSpec, RangeSummary
from rocketmq_reindex.storage_format.scan.refused_records import RefusedRecords
from rocketmq_reindex.storage_format.walk import state as w
from rocketmq_reindex.storage_format.walk.lmq import new_lmqs
from rocketmq_reindex.storage_format.walk.loop import WalkOptions, walk
from rocketmq_reindex.storage_format.walk.name_table import NameTable
from rocketmq_reindex.storage_format.walk.window import ReadInto, View, Window

CHUNK: Final = 32 << 20
UNUSUAL_NAMES_MAX: Final = 20
NAMES_KEPT: Final = 100_000
"""Names that a scanner knows from range to range, and of light queues within one, with those of one record: a broker of many
clients has them without end, and a record of 32 KiB can name thousands."""
WINDOWS_MAX: Final = 10_001
HOLES_MAX: Final = 100_000
"""More damaged places than any disk makes: a log that has more is refused, and a range tells of no more."""


@dataclass(frozen=True)
class ScanSettings:
    """What a scan needs to know. ``window`` is milliseconds, 0 for none; times are milliseconds since 1970."""

    crc_mode: int = CRC_BODY
    broker_version: str = "5.3"
    lmq: bool = False
    delays: tuple[int, ...] = (1000,)
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    until_time: int = w.INT64_MAX
    want_units: bool = True
    want_items: bool = True
    want_topics: bool = False
    want_messages: bool = False
    want_digests: bool = True
    search_crc: int = CRC_BODY
    """a record that is looked for must pass this, and ``crc_mode``"""
    batch_topics: tuple[str, ...] = ()
    window: int = 0
    stop_at_damage: bool = False
    chunk: int = CHUNK
    block_rows: int = 1 << 20


@dataclass(frozen=True)
class Block:
    """Units, items and records met since the block before, as views that the next block overwrites.

    ``data`` is the log from absolute offset ``base`` on: all of ``messages`` lie in it.
    """

    units: w.UnitArrays
    batches: w.BatchArrays
    items: w.ItemArrays
    messages: w.MessageArrays
    data: npt.NDArray[np.uint8]
    base: int


def _pass_over(_at: int, _data: npt.NDArray[np.uint8]) -> None:
    """Takes bytes of which no digest is wanted."""


class RangeScanner:
    """Scans ranges one after another with the same buffers: memory does not grow with the ranges."""

    def __init__(self, settings: ScanSettings) -> None:
        self.settings = settings
        self._forget_names()
        self._options = WalkOptions(
            settings.crc_mode,
            settings.broker_version == "4.9",
            settings.lmq,
            settings.until_time,
            settings.want_units or settings.want_topics,
            settings.want_units,
            settings.want_items,
            settings.want_messages,
            np.array(settings.delays, dtype=np.int64),
        )
        self._search_crc = max(settings.crc_mode, settings.search_crc)
        self._rec = np.zeros(REC_SIZE, np.int64)
        self._spans = np.zeros(SPANS_SIZE, np.int64)
        rows = settings.block_rows
        self._units = w.UnitArrays(
            np.empty(rows, np.int32), np.empty(rows, np.int64), np.empty(rows, np.int64),
            np.empty(rows, np.int32), np.empty(rows, np.int64),
        )  # fmt: skip
        many = rows if settings.batch_topics else 0
        self._batches = w.BatchArrays(
            np.empty(many, np.int32), np.empty(many, np.int64), np.empty(many, np.int64), np.empty(many, np.int32),
            np.empty(many, np.int64), np.empty(many, np.int64), np.empty(many, np.int32),
        )  # fmt: skip
        self._items = w.ItemArrays(
            np.empty(rows, np.int32), np.empty(rows, np.int64), np.empty(rows, np.int64),
            np.empty(rows, np.int64), np.empty(rows, np.int64),
        )  # fmt: skip
        held = rows if settings.want_messages else 0
        self._messages = w.MessageArrays(
            np.empty(held, np.int64), np.empty(held, np.int32), np.empty(held, np.int64),
            np.empty(held, np.int64), np.empty(held, np.int32),
        )  # fmt: skip
        self._window = Window(settings.chunk)
        self._state = np.zeros(w.STATE_SIZE, np.int64)
        self._new_queues(1 << 16)

    def _forget_names(self) -> None:
        settings = self.settings
        self.names = NameTable(settings.broker_version, settings.include, settings.exclude, settings.batch_topics)

    # -- queues of the range ------------------------------------------------------------------------------------------

    def _new_queues(self, slots: int) -> None:
        self.queues = w.QueueArrays(
            np.full(slots, -1, np.int32), np.zeros(slots // 2, np.int32),
            np.zeros(slots // 2, np.int32), np.full(slots // 2, -1, np.int64),
        )  # fmt: skip

    def _grow_queues(self) -> None:
        old, count = self.queues, int(self._state[w.QUEUES])
        self._new_queues(2 * len(old.slots))
        self._state[w.QUEUES] = 0
        for k in range(count):
            w.enter_queue(self.queues, self._state, int(old.name[k]), int(old.queue_id[k]))
        self.queues.last[:count] = old.last[:count]

    @property
    def queue_count(self) -> int:
        return int(self._state[w.QUEUES])

    # -- bytes --------------------------------------------------------------------------------------------------------

    def _more(self, at: int, limit: int, ahead: int = 0) -> int:
        """Get more bytes, at least the ``rec[TOTAL]`` wanted from ``at`` on; returns the new index of that place."""
        return self._window.more(at, int(self._rec[TOTAL]), limit, ahead)

    def _is_sane(self, at: int) -> bool:
        """Before a buffer grows for a record larger than it: do the lengths at its far end add up?"""
        total, place, spec = int(self._rec[TOTAL]), self._window.base + at, self._spec
        if total <= self._window.capacity:
            return True
        data = self._window.data
        extra = addresses_extra(int32_at(data, at + r.AT_SYS_FLAG))
        body = max(0, int32_at(data, at + r.AT_BODY_LENGTH + extra))
        v1 = int32_at(data, at + 4) == r.MAGIC_V1
        topic_at = place + r.HEADER_SIZE + extra + body
        head = np.zeros(2, np.uint8)
        self._read(topic_at, head[1:] if v1 else head)
        topic = int16_at(head, 0)
        end = topic_at + (1 if v1 else 2) + topic
        if topic < 0 or end + 2 > min(place + total, spec.data_end):
            return False
        self._read(end, head)
        return end + 2 + max(0, int16_at(head, 0)) == place + total

    # -- the scan -----------------------------------------------------------------------------------------------------

    def scan(self, spec: RangeSpec, read: ReadInto, view: View | None = None) -> Iterator[Block]:
        """Yield the range's blocks; afterwards ``summary`` says the rest. What ``view`` gives is not read."""
        settings, window = self.settings, self._window
        self._spec, self._read = spec, read
        self._state = np.zeros(w.STATE_SIZE, np.int64)
        for k in (w.FIRST_DISPATCHED, w.LAST_DISPATCHED, w.WAITING, w.LAST_GOOD):
            self._state[k] = -1
        self._new_queues(1 << 16)
        if len(self.names.texts) > NAMES_KEPT:
            self._forget_names()
        self.names.forget_seen()
        self._lmqs = len(self.names.texts)
        self._unusual: set[str] = set()
        self._queues_before = 0
        self._digests = ChunkDigests(spec.segment_start, spec.data_end, spec.low, spec.high)
        window.open(spec.low, spec.data_end, read, view, self._digests.feed if settings.want_digests else _pass_over)
        self.summary = out = RangeSummary(spec.number, spec.low, spec.high, spec.known)
        self._window_seen: int | None = None
        state, rec, spans = self._state, self._rec, self._spans
        refused = RefusedRecords(spec, out, window, self._search_crc, rec, spans, self._more, self._is_sane)
        searching = not spec.known
        hole, hole_code = (-1, r.NOT_FOUND) if spec.known else (spec.low, r.NOT_FOUND)
        hole_length = 0
        at = 0
        if spec.known:
            out.first = spec.low
        while True:
            limit = spec.high - window.base
            if searching:
                before = at
                code, at = find_record(
                    window.data, window.filled, window.base, at, limit, spec.segment_end, spec.data_end,
                    self._search_crc, rec, spans,
                )  # fmt: skip
                code, at = int(code), int(at)
                self._note_nonzero(before, min(at, window.filled))
                if code == r.NOT_FOUND:
                    self._note_rest(spec.high)
                    out.tail, out.tail_code, out.tail_length = hole, hole_code, hole_length
                    break
                if code == r.MORE:
                    if self._is_sane(at):
                        # A search begins anew what it knows of the bytes whenever it is handed more: not for each image alone.
                        at = self._more(at, spec.high, settings.chunk // 2)
                    else:
                        self._note_nonzero(at, at + 1)
                        at += 1
                    continue
                place = window.base + at
                if settings.stop_at_damage and hole_code != r.NOT_FOUND:
                    # Whether the walk would take it, too, is not asked: its frame and CRC make what lies before it damage.
                    out.tail, out.tail_code, out.tail_length, out.after_tail = hole, hole_code, hole_length, place
                    break
                if hole_code != r.NOT_FOUND:
                    self._note_hole(hole, place - hole, hole_code)
                if out.first < 0:
                    out.first = place
                searching = False
                out.last_nonzero = -1
            code, at = walk(
                window.data, window.filled, window.base, at, limit, spec.segment_end, spec.data_end, self._options,
                self.names.arrays, self.queues, self._units, self._batches, self._items, self._messages, state, rec,
                spans,
            )  # fmt: skip
            # As plain Python the loops return numpy's own numbers, which no summary can be written with.
            code, at = int(code), int(at)
            place = window.base + at
            if code == r.MORE and self._is_sane(at):
                if state[w.MESSAGES]:
                    # They are read where they lie: before the window moves.
                    yield self._flush()
                at = self._more(at, spec.high)
            elif code == r.NEW_NAME:
                self._add_name()
            elif code == r.NEW_LMQS:
                if self._lmqs >= NAMES_KEPT:
                    yield self._flush()
                    self._renew_names()
                self._add_lmqs()
            elif code == r.UNITS_FULL or code == r.ITEMS_FULL:
                yield self._flush()
            elif code == r.QUEUES_FULL:
                self._grow_queues()
            elif code == r.LIMIT:
                out.end = place
                break
            elif code == r.FILLER:
                out.end = spec.segment_end
                out.last_nonzero = place + r.FILLER_MIN - 1
                break
            elif code == r.LATER:
                out.end = out.later = place
                break
            else:
                if state[w.MESSAGES]:
                    yield self._flush()
                if code >= r.FIRST_FRAMED:
                    # What follows a record of known extent is looked at behind it, not inside it.
                    at, code = refused.pass_over(at, code)
                    length = window.base + at - place
                    if not settings.stop_at_damage:
                        self._note_hole(place, length, code)
                        continue
                    hole, hole_code, hole_length = place, code, length
                    out.last_nonzero = place + length - 1
                else:
                    hole, hole_code, hole_length = place, r.BAD_LENGTHS if code == r.MORE else code, 0
                    self._note_nonzero(at, at + 1)
                    at += 1
                searching = True
        yield self._flush()
        self._finish()
        if spec.low == spec.segment_start and may_lie_elsewhere([out], spec.low):
            refused.look_elsewhere(read)

    # -- damage and names ---------------------------------------------------------------------------------------------

    def _note_hole(self, place: int, length: int, code: int) -> None:
        if len(self.summary.holes) <= HOLES_MAX:
            self.summary.holes.append([place, length, code])

    def _note_nonzero(self, low: int, high: int) -> None:
        """Remember the last byte that is not zero in ``buffer[low:high]`` as passed over, of those that have been read."""
        window = self._window
        view = window.data[low : min(high, window.filled)]
        if len(view) and view.any():
            self.summary.last_nonzero = window.base + high - 1 - int(np.argmax(view[::-1] != 0))

    def _note_rest(self, high: int) -> None:
        """The last bytes of a range are too few for a record, but not for a filler: they count as not zero all the same."""
        window = self._window
        while window.end < high:
            at = window.more(window.filled, 1, high)
            self._note_nonzero(at, window.filled)

    def _add_name(self) -> None:
        raw = self._window.data[self._state[w.NAME_START] : self._state[w.NAME_END]].tobytes()
        self.names.add(raw)

    def _add_lmqs(self) -> None:
        """Enter all new names of a record's list at once: for each one alone the record would be walked again."""
        data, start, end = self._window.data, int(self._state[w.NAME_START]), int(self._state[w.NAME_END])
        found = np.empty(2 * (end - start + 1), np.int64)
        count = int(new_lmqs(data, start, end, self.names.arrays, found))
        pairs = found[: 2 * count].reshape(-1, 2).tolist()
        new = dict.fromkeys(data[low:high].tobytes() for low, high in pairs)
        for raw in new:
            self.names.add(raw)
        self._lmqs += len(new)

    def _renew_names(self) -> None:
        """Begin the tables of names and queues anew with the topics of the range's records and their queues."""
        names, queues, count = self.names, self.queues, self.queue_count
        self._unusual.update(names.seen_unusual(UNUSUAL_NAMES_MAX))
        self._forget_names()
        kept = {int(entry): self.names.add(names.raw(entry)) for entry in names.topics()}
        for new in kept.values():
            self.names.arrays.flags[new] |= SEEN | TOPIC
        self._state[w.QUEUES] = 0
        self._new_queues(len(queues.slots))
        for k in np.flatnonzero(np.isin(queues.name[:count], list(kept))).tolist():
            w.enter_queue(self.queues, self._state, kept[int(queues.name[k])], int(queues.queue_id[k]))
        self._queues_before += count - self.queue_count
        self._lmqs = 0

    def _flush(self) -> Block:
        state = self._state
        units, batches, items, makers = (int(state[k]) for k in (w.UNITS, w.BATCHES, w.ITEMS, w.MAKERS))
        u, i = self._units, self._items
        messages = int(state[w.MESSAGES])
        block = Block(
            w.UnitArrays(u.queue[:units], u.offset[:units], u.place[:units], u.size[:units], u.tags_code[:units]),
            w.BatchArrays(*(column[:batches] for column in self._batches)),  # type: ignore[arg-type]  # of two dtypes
            w.ItemArrays(i.key_hash[:items], i.place[:items], i.time[:items], i.maker_item[:makers], i.maker_place[:makers]),
            w.MessageArrays(*(column[:messages] for column in self._messages)),  # type: ignore[arg-type]  # of two dtypes
            self._window.data,
            self._window.base,
        )
        before = int(state[w.ITEMS_BEFORE])
        if self.settings.window and items:
            self._note_windows(before, block.items.time)
        if before == 0 and items:
            has_maker = makers and int(block.items.maker_item[0]) == 0
            self.summary.first_item_maker = int(block.items.maker_place[0] if has_maker else block.items.place[0])
        self.summary.units += units - int(state[w.AGAIN])
        self.summary.lmq_again += int(state[w.AGAIN])
        self.summary.batch_units += batches
        self.summary.items += items
        state[w.ITEMS_BEFORE] += items
        state[w.UNITS] = state[w.BATCHES] = state[w.ITEMS] = state[w.MAKERS] = state[w.MESSAGES] = state[w.AGAIN] = 0
        return block

    def _note_windows(self, before: int, times: npt.NDArray[np.int64]) -> None:
        windows = np.maximum.accumulate(times // self.settings.window)
        seen = windows[0] - 1 if self._window_seen is None else self._window_seen
        rises = np.flatnonzero(windows > np.maximum(seen, np.concatenate([[seen], windows[:-1]])))
        # More than a plan takes are not needed to refuse it.
        room = WINDOWS_MAX - len(self.summary.windows)
        self.summary.windows += [[before + int(k), int(windows[k])] for k in rises[: max(0, room)]]
        self._window_seen = max(int(seen), int(windows[-1]))

    def _finish(self) -> None:
        out, state = self.summary, self._state
        if out.later < 0 and self.settings.want_digests:
            self._window.pass_on(self._digests.wanted_until)
        self._window.close()
        out.digests = {str(k): v for k, v in self._digests.chunks.items()}
        out.last_good = int(state[w.LAST_GOOD])
        out.records, out.unit_records = int(state[w.RECORDS]), int(state[w.UNIT_RECORDS])
        out.excluded, out.queues = int(state[w.EXCLUDED]), self._queues_before + int(state[w.QUEUES])
        out.first_dispatched, out.last_dispatched = int(state[w.FIRST_DISPATCHED]), int(state[w.LAST_DISPATCHED])
        out.last_time, out.last_unit_time = int(state[w.LAST_TIME]), int(state[w.LAST_UNIT_TIME])
        out.time_min, out.time_max = int(state[w.TIME_MIN]), int(state[w.TIME_MAX])
        out.waiting = int(state[w.WAITING])
        out.inner_batches = int(state[w.INNER_BATCHES])
        out.batches_refused, out.batches_empty = int(state[w.BATCHES_REFUSED]), int(state[w.BATCHES_EMPTY])
        self._unusual.update(self.names.seen_unusual(UNUSUAL_NAMES_MAX))
        out.unusual_names = sorted(self._unusual)[:UNUSUAL_NAMES_MAX]
        out.lmq_slash, out.lmq_no_file = int(state[w.LMQ_SLASH]), int(state[w.LMQ_NO_FILE])
        out.lmq_malformed = int(state[w.LMQ_BAD])
