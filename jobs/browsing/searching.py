"""Search in the log itself, part by part: each request reads a bounded part of it, and says how far it came.

A place in such a search is a cursor: the number of the store among those that are searched, and an offset of its log, as in
``0.1073741824``. It stands in an address, so it may be any: the records behind it are found by a walk from the start of their
segment, or from a place that is known, since a body may hold the image of a record. The walk takes parts, too. Compiles, or
loads compiled code, once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketmq_reindex.jobs.browsing import facts, known_places, options as asked, search_pages
from rocketmq_reindex.jobs.exporting import options
from rocketmq_reindex.jobs.querying import question
from rocketmq_reindex.jobs.store import contents, folders, queue as store_queue
from rocketmq_reindex.jobs.tracing.timeline import TracedStore
from rocketmq_reindex.storage_format import errors, layouts
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.message import FLAG_COMPRESSED
from rocketmq_reindex.storage_format.record.window import ReadInto
from rocketmq_reindex.storage_format.scan import range_scan, ranges, stale_tail
from rocketmq_reindex.storage_format.showing import counted, escape, reason
from rocketmq_reindex.udfs.exporting import choosing, formats
from rocketmq_reindex.udfs.messages import batches, log_rows, pieces
from rocketmq_reindex.udfs.times import DELAY_LEVELS
from rocketmq_reindex.udfs.worker import pool

HITS_MAX: Final = 100
"""messages of one part: with the last of them it ends"""
PART_BYTES: Final = 256 << 20
"""bytes of the log behind which a part ends"""
PART_SECONDS: Final = 0.15
"""behind which a part ends, at the next piece of a chunk"""
CHUNK: Final = 4 << 20
"""bytes of the log that are mapped at once, behind which the clock is looked at"""
RANGE: Final = 32 << 20
"""bytes that are scanned at once"""
PIECE_BYTES: Final = 2 << 20
"""bytes of records in whose bodies is searched before the clock is looked at"""
PACKED_BYTES: Final = 16 << 10, 256 << 10
"""the same where bodies are packed, at first, and at most: they may unpack to ten thousand times as much"""
PACKED_SECONDS: Final = 0.005, 0.02
"""a piece of them that took less is followed by a longer one, and one that took more by a shorter one"""
DAMAGE_SHOWN: Final = 20
_ALL_KINDS: Final = ("--kind", "all")

# ------------------------------------------------------------------------------------------------------------------------- part


class FoundRecord(NamedTuple):
    """A record that is as was asked for."""

    store: int
    phy_offset: int
    size: int


class ReadSpan(NamedTuple):
    """Offsets of a log that were looked at, or passed over by their times."""

    store: int
    begin: int
    end: int
    passed: bool = False


@dataclasses.dataclass
class LogPart:
    """What one request found: the records, what was looked at, and what of it could not be."""

    cursor: search_pages.ScanCursor
    deadline: float
    """of the clock that only goes on, in seconds"""
    hits: list[FoundRecord] = dataclasses.field(default_factory=list)
    spans: list[ReadSpan] = dataclasses.field(default_factory=list)
    damage: list[tuple[int, ranges.Hole]] = dataclasses.field(default_factory=list)
    unsearched: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    """store and offset of messages in whose body nothing could be looked for"""
    warnings: list[str] = dataclasses.field(default_factory=list)
    to_walk: int = 0
    """bytes of a segment in front of the cursor that are still to be walked, so that it is known where records begin"""

    @property
    def is_late(self) -> bool:
        """Whether the part has had its time."""
        return time.monotonic() >= self.deadline

    @property
    def is_full(self) -> bool:
        """Whether the part ends here."""
        looked = sum(span.end - span.begin for span in self.spans if not span.passed)
        return len(self.hits) >= HITS_MAX or looked >= PART_BYTES or self.to_walk > 0 or self.is_late

    def moved(self, end: int, *, passed: bool = False, zeros: int = -1) -> None:
        """Note that the log was looked at up to ``end``: from ``zeros`` on nothing was there, where that is not -1."""
        if end > self.cursor.offset:
            self.spans.append(ReadSpan(self.cursor.store, self.cursor.offset, end, passed))
            begin = self.cursor.end if 0 <= self.cursor.end < zeros else zeros
            self.cursor = self.cursor._replace(offset=end, end=begin)


# ----------------------------------------------------------------------------------------------------------------------- search


class _Segments(NamedTuple):
    """The log of a store, the names of its segments, and the starts of those that are passed over."""

    log: contents.StoreLog
    keys: known_places.SegmentKeys
    passed: set[int]


class LogSearch:
    """One search in the logs of some stores: ``words`` are options of ``export``. Raises UsageError."""

    def __init__(
        self, stores: Sequence[TracedStore], words: Sequence[str], delay_levels: str, known: known_places.KnownPlaces
    ) -> None:
        self._stores, self._words, self._known, self._delay_levels = stores, list(words), known, delay_levels
        more = ["--delay-levels", delay_levels, "--count", *_ALL_KINDS]
        self._asked = [options.parse_export([store.path, *words, *facts.roots_words(store), *more]) for store in stores]
        needs_body = self._asked[0].choice.needs_body
        names = formats.read_columns(count=True, body=needs_body, properties=False)
        every = batches.fields(body=needs_body, damage=True)
        self._schema = pa.schema([every.field(name) for name in (*names, batches.DAMAGE)])
        self._taken = pa.schema([every.field(name) for name in ("commitLogOffset", formats.SIZE)])

    def part(self, cursor: search_pages.ScanCursor) -> asked.Facts:
        """Return what the next part of the search finds, and where it goes on."""
        # What is loaded once is not counted.
        load(lambda: False)
        part, begin = LogPart(cursor, time.monotonic() + PART_SECONDS), cursor
        with contextlib.ExitStack() as opened:
            logs = list[contents.StoreLog]()
            for store in self._stores:
                # Only what concerns the part is said: each page would repeat what lies beside the segments.
                logs.append(contents.StoreLog(store.roots, folders.Notes.silent()))
                opened.callback(logs[-1].close)
            if known_places.is_written(logs[cursor.store], cursor.end):
                # A broker has gone on where the records ended.
                part.cursor = search_pages.ScanCursor(cursor.store, cursor.end)
            places: dict[int, _Segments] = {}
            while not self._at_end(part, logs):
                number = part.cursor.store
                if number not in places:
                    keys, wanted = known_places.SegmentKeys(self._stores[number].roots), self._asked[number]
                    passed = self._known.outside(logs[number], keys, wanted.since, wanted.until)
                    places[number] = _Segments(logs[number], keys, passed)
                try:
                    self._look(part, places[number])
                except (OSError, ValueError, errors.InputError) as error:
                    # The rest of its segment cannot be read: the search goes on behind it.
                    segment = known_places.segment_at(logs[number], part.cursor.offset)
                    assert segment is not None
                    text = f"{escape(segment.path)}: from offset {max(segment.start, part.cursor.offset)} on: {reason(error)}"
                    part.warnings.append(f"not searched: {text}")
                    part.cursor = part.cursor._replace(offset=segment.start + segment.size)
                if part.is_full:
                    break
            return self._told(part, begin, logs)

    def _at_end(self, part: LogPart, logs: Sequence[contents.StoreLog]) -> bool:
        """Return whether nothing is left; stores without anything behind the cursor are passed."""
        while known_places.segment_at(logs[part.cursor.store], part.cursor.offset) is None:
            if part.cursor.store + 1 == len(logs):
                return True
            part.cursor = search_pages.ScanCursor(part.cursor.store + 1)
        return False

    def _look(self, part: LogPart, of: _Segments) -> None:
        """Look at the next range of the log, or at its beginning, where the part ends there."""
        segment = known_places.segment_at(of.log, part.cursor.offset)
        assert segment is not None
        end, low = segment.start + segment.size, max(segment.start, part.cursor.offset)
        part.cursor = part.cursor._replace(offset=low)
        if segment.start in of.passed:
            part.moved(end, passed=True)
            return
        key = of.keys.of(segment)
        way = self._known.way(key, of.log, segment, low)
        while way.at < low:
            if not self._walk(part, of, segment, way, low):
                part.to_walk = low - way.at
                return
        high = min(end, segment.start + ((way.at - segment.start) // RANGE + 1) * RANGE)
        if way.at >= high:
            part.moved(end, zeros=known_places.zeros_from(way.before))
            return
        log_range, holes = known_places.range_of(of.log, segment, way.at, high), list[ranges.Hole]()
        settings = self._asked[part.cursor.store]
        reader = log_rows.LogRowReader(self._schema, (), delays=settings.delays, chunk=CHUNK)
        with contextlib.closing(reader.blocks(log_range, holes, way=way)) as blocks:  # type: ignore[type-var]  # a generator
            stopped, at = self._read(part, blocks, settings, way)
        if not stopped:
            at = max(way.at, high)
        # Damage in which it was left may reach further.
        left_in = way.before.tail if stopped and at < high and way.before.end < 0 else -1
        part.damage += [
            (part.cursor.store, hole) for hole in holes
            if hole.offset + (hole.length if stopped and not hole.reason.startswith(stale_tail.STALE) else 1) <= at
            and hole.offset != left_in
        ]  # fmt: skip
        known = way.before
        if at < way.at:
            known = dataclasses.replace(known, end=at, high=at, tail=-1, holes=[each for each in known.holes if each[0] < at])
        elif known_places.zeros_from(known) >= 0 and not log_range.followed:
            # What a broker has allocated ahead.
            at = max(at, known_places.zeros_until(segment, max(low, known.tail), part.deadline))
            known = dataclasses.replace(known, high=at)
        # In a log of DLedger the entry before a place has to be known, too.
        if at >= way.at or not segment.lead:
            self._known.add(key, known, followed=log_range.followed)
        part.moved(min(at, end), zeros=-1 if log_range.followed else known_places.zeros_from(known))

    def _walk(self, part: LogPart, of: _Segments, segment: contents.SegmentFile, way: log_rows.ScanWay, low: int) -> bool:
        """Walk on to the offset ``low``, or a range of the way. Return whether there is time left."""
        begin = way.at
        log_range = known_places.range_of(of.log, segment, begin, min(low, begin + RANGE))
        reader = log_rows.LogRowReader(self._schema, (), crc=r.CRC_NONE, chunk=CHUNK)
        with contextlib.closing(reader.blocks(log_range, [], way=way)) as blocks:  # type: ignore[type-var]  # a generator
            for _ in blocks:
                if part.is_late and way.at > begin:
                    break
        self._known.add(of.keys.of(segment), way.before, followed=log_range.followed)
        return not part.is_late or way.at >= low

    def _read(
        self, part: LogPart, blocks: Iterator[Any], settings: options.ExportSettings, way: log_rows.ScanWay
    ) -> tuple[bool, int]:
        """Take what is asked for of the blocks of a range.

        Return whether it was left before its end, and the offset up to which it was looked at.
        """
        bounds, begin = log_rows.Bounds(), way.at
        maker = batches.MessageBatches(
            self._schema,
            bounds.start_time if settings.since is None else settings.since,
            layouts.INT64_MAX if settings.until is None else settings.until - 1,
        )
        chooser = choosing.Chooser(settings.choice, formats.as_it_is, settings.body_max, True, self._taken)
        for block in blocks:
            wanted = pieces.with_keys(maker, block, settings.keys) if settings.keys else block
            for batch in maker.of_block(wanted):
                for piece in _pieces(batch):
                    left = self._take(part, chooser(piece))
                    if left is None and part.is_late:
                        left = piece.column("commitLogOffset")[-1].as_py() + piece.column(formats.SIZE)[-1].as_py()
                    if left is not None:
                        return True, left
            if part.is_late and way.at > begin:
                return True, way.at
        return False, way.at

    def over(self, segment: contents.SegmentFile, spec: ranges.RangeSpec, read: ReadInto) -> int:
        """Search in a range of bytes that ``read`` gives. Return how many hits there are."""
        part, settings = LogPart(search_pages.ScanCursor(), float("inf")), self._asked[0]
        scanner = range_scan.RangeScanner(log_rows.LogRowReader(self._schema, (), delays=settings.delays, chunk=CHUNK).settings)
        self._read(part, scanner.scan(spec, read), settings, known_places.from_start(segment))
        return len(part.hits)

    def _take(self, part: LogPart, chosen: Iterator[choosing.Chosen]) -> int | None:
        """Add what was chosen. Return the offset behind the hit with which the part ends, None where it goes on."""
        number = part.cursor.store
        for each in chosen:
            part.unsearched += [(number, offset) for offset in each.unsearched]
            if each.encoded is None:
                continue
            for at, size in zip(*(each.encoded.column(name).to_pylist() for name in self._taken.names), strict=True):
                part.hits.append(FoundRecord(number, at, size))
                if len(part.hits) >= HITS_MAX:
                    part.unsearched = [place for place in part.unsearched if place < (number, at)]
                    return int(at + size)
        return None

    # -- what is told of it -------------------------------------------------------------------------------------------

    def _told(self, part: LogPart, begin: search_pages.ScanCursor, logs: Sequence[contents.StoreLog]) -> asked.Facts:
        is_done = self._at_end(part, logs)
        lost = [(number, hole) for number, hole in part.damage if log_rows.lost([hole])]
        warnings = [*part.warnings, *(
            f"{escape(self._stores[number].name)}: offset {offset}: its body does not unpack, or into too much: not searched"
            for number, offset in part.unsearched[:DAMAGE_SHOWN]
        )]  # fmt: skip
        if len(part.unsearched) > DAMAGE_SHOWN:
            warnings.append(f"{counted(len(part.unsearched) - DAMAGE_SHOWN, 'body', 'bodies')} more could not be searched")
        segments = [(number, each) for number, log in enumerate(logs) for each in log.segments]
        reached = [(n, each) for n, each in segments if is_done or (n, each.start + each.size) <= part.cursor]
        passed = [span for span in part.spans if span.passed]
        looked = sum(span.end - span.begin for span in part.spans if not span.passed)
        here = 0 if is_done else sum(
            max(0, min(each.size, part.cursor.offset - each.start)) for n, each in segments if n == part.cursor.store
        )  # fmt: skip
        of_stores = sum(each.size for n, each in segments if is_done or n < part.cursor.store)
        command = [*self._words, *_ALL_KINDS, "--format", "jsonl", "--to", "hits.jsonl"]
        return {
            "messages": list(self._rows(part, logs, warnings)),
            "from": str(begin), "next": None if is_done else str(part.cursor),
            "spans": [
                {"store": self._stores[span.store].name, "from": span.begin, "to": span.end, "passed": span.passed}
                for span in _joined(part.spans)
            ],
            "bytes": {"part": looked, "reached": of_stores + here, "all": sum(each.size for _, each in segments)},
            "toWalk": part.to_walk, "segments": {"reached": len(reached), "passed": len(passed), "all": len(segments)},
            "damage": {
                "count": len(lost), "bytes": sum(hole.length for _, hole in lost),
                "places": [
                    {"store": self._stores[number].name, "offset": hole.offset, "bytes": hole.length, "text": hole.reason}
                    for number, hole in part.damage[:DAMAGE_SHOWN]
                ],
            },
            "warnings": warnings, "commands": [facts.command("export", store, command) for store in self._stores],
        }  # fmt: skip

    def _rows(self, part: LogPart, logs: Sequence[contents.StoreLog], warnings: list[str]) -> Iterator[asked.Facts]:
        for number, hits in itertools.groupby(part.hits, lambda hit: hit.store):
            store, log, notes = self._stores[number], logs[number], folders.Notes(warnings.append, warnings.append)
            words = ["--physical", "0", "--delay-levels", self._delay_levels, "--body-max", str(contents.BLOCK)]
            query = question.parse_query([store.path, *words, *facts.roots_words(store)])
            for hit in hits:
                message = log.message(hit.phy_offset)
                if isinstance(message, str):
                    warnings.append(f"{escape(store.name)}: offset {hit.phy_offset}: is a hit, and now {message}")
                else:
                    yield {"store": store.name, **question.row_of(store_queue.ServedMessage(message, None), log, query, notes)}


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch in pieces that are looked at without a look at the clock: bodies take time."""
    if batches.BODY not in batch.schema.names:
        yield batch
        return
    is_packed = bool((batch.column("sysFlag").to_numpy() & FLAG_COMPRESSED).any())
    most = PACKED_BYTES[0] if is_packed else PIECE_BYTES
    ends = np.cumsum(batch.column(formats.SIZE).to_numpy(), dtype=np.int64)
    first = 0
    while first < batch.num_rows:
        before, began = int(ends[first - 1]) if first else 0, time.monotonic()
        stop = max(first + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield batch.slice(first, stop - first)
        first, took = stop, time.monotonic() - began
        if is_packed and took < PACKED_SECONDS[0]:
            most = min(2 * most, PACKED_BYTES[1])
        elif is_packed and took > PACKED_SECONDS[1]:
            most //= 4


def _joined(spans: Sequence[ReadSpan]) -> list[ReadSpan]:
    """Return spans, those that follow one another as one."""
    joined = list[ReadSpan]()
    for span in spans:
        before = joined[-1] if joined else None
        if before is not None and (before.store, before.end, before.passed) == (span.store, span.begin, span.passed):
            joined[-1] = before._replace(end=span.end)
        else:
            joined.append(span)
    return joined


# ------------------------------------------------------------------------------------------------------------------------ ahead


def spare_memory() -> None:
    """Have Arrow give back what it no longer needs, and not import pandas: for a process that does nothing beside its pages."""
    sys.meta_path.insert(0, pool.NoPandas())
    pa.set_memory_pool(pa.system_memory_pool())


_loaded: Final = threading.Event()


def load(is_ended: Callable[[], bool]) -> None:
    """Load what a search needs, once, by searches in a log of two records that lies in no file, until ``is_ended``."""
    if _loaded.is_set():
        return
    log = np.frombuffer(known_places.sample(), np.uint8)
    segment = contents.SegmentFile("", 0, len(log))
    spec = ranges.Segment("", "", 0, len(log), len(log)).part(0, 0, len(log), known=True)

    def read(at: int, out: npt.NDArray[np.uint8]) -> None:
        out[:] = log[at : at + len(out)]

    for words in (["--key", "sample", "--topic", "sample", "--tag", "sample"], ["--text", "s", "--regex", "s"]):
        if is_ended():
            return
        LogSearch([TracedStore("sample", "sample")], words, DELAY_LEVELS, known_places.KnownPlaces()).over(segment, spec, read)
    _loaded.set()
