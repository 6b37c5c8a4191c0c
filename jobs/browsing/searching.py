"""Search in the log itself, part by part: each request reads a bounded part of it, and says how far it came.

A place in such a search is a cursor: the number of the store among those that are searched, and an offset of its log, as in
``0.1073741824``. It stands in an address, so it may be any: the records behind it are found by a walk from the start of their
segment, since a body may hold the image of a record. Compiles, or loads compiled code, once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from rocketmq_reindex import files
from rocketmq_reindex.jobs.browsing import facts, search_pages
from rocketmq_reindex.jobs.exporting import options
from rocketmq_reindex.jobs.querying import answer, options as query_options
from rocketmq_reindex.jobs.store import contents, folders, queue as store_queue
from rocketmq_reindex.jobs.tracing.timeline import TracedStore
from rocketmq_reindex.storage_format import errors, layouts
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.message import FLAG_COMPRESSED, Message
from rocketmq_reindex.storage_format.scan import ranges
from rocketmq_reindex.storage_format.showing import counted, escape, reason
from rocketmq_reindex.udfs.exporting import choosing, formats
from rocketmq_reindex.udfs.messages import batches, log_rows, pieces
from rocketmq_reindex.udfs.scan.segments import committed_index

HITS_MAX: Final = 100
"""messages of one part: with the last of them it ends"""
PART_BYTES: Final = 256 << 20
"""bytes of the log behind which a part ends"""
PART_SECONDS: Final = 0.5
"""behind which a part ends, at the next batch of records"""
RANGE: Final = 128 << 20
"""bytes that are scanned at once: for each of them the segment is walked anew from its start"""
PIECE_BYTES: Final = 2 << 20
"""bytes of records in whose bodies is searched before the clock is looked at"""
PACKED_BYTES: Final = 256 << 10
"""the same where bodies are packed: they may unpack to a thousand times as much"""
DAMAGE_SHOWN: Final = 20
MARGIN: Final = 3_600_000
"""milliseconds by which a clock may have been set without harm: a segment is passed over only where it is further away"""
PLACES_KEPT: Final = 100_000
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
    deadline: float = float("inf")
    hits: list[FoundRecord] = dataclasses.field(default_factory=list)
    spans: list[ReadSpan] = dataclasses.field(default_factory=list)
    damage: list[tuple[int, ranges.Hole]] = dataclasses.field(default_factory=list)
    unsearched: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    """store and offset of messages in whose body nothing could be looked for"""
    warnings: list[str] = dataclasses.field(default_factory=list)

    def begin_clock(self) -> None:
        """From now on, unless it runs already, the part has its seconds."""
        self.deadline = min(self.deadline, time.monotonic() + PART_SECONDS)

    @property
    def is_full(self) -> bool:
        """Whether the part ends here."""
        looked = sum(span.end - span.begin for span in self.spans if not span.passed)
        return len(self.hits) >= HITS_MAX or looked >= PART_BYTES or time.monotonic() >= self.deadline

    def moved(self, end: int, *, passed: bool = False) -> None:
        """Note that the log was looked at up to ``end``."""
        if end > self.cursor.offset:
            self.spans.append(ReadSpan(self.cursor.store, self.cursor.offset, end, passed))
            self.cursor = self.cursor._replace(offset=end)


# ----------------------------------------------------------------------------------------------------------------------- search


class KnownPlaces:
    """What earlier parts have found: the store times of the first records of segments, and where records begin.

    A segment that has a record keeps it. Where the walk from a segment's start met no damage, the next part goes on at once.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], int] = {}
        self._starts: set[tuple[str, int]] = set()

    def begins(self, segment: contents.SegmentFile, offset: int) -> bool:
        """Return whether a record is known to begin at an offset, and no damage lies before it in the segment."""
        return offset == segment.start or (segment.path, offset) in self._starts

    def add(self, segment: contents.SegmentFile, offset: int) -> None:
        """Note that a record begins at an offset. In a log of DLedger the entry before it has to be known, too."""
        if not segment.lead:
            if len(self._starts) >= PLACES_KEPT:
                self._starts.clear()
            self._starts.add((segment.path, offset))

    def of(self, log: contents.StoreLog) -> list[int | None]:
        """Return the time of each segment's first record (milliseconds), None where no record stands there."""
        times = list[int | None]()
        for segment in log.segments:
            key = segment.path, segment.start
            if key not in self._known and isinstance(first := log.message(segment.start), Message):
                if len(self._known) >= PLACES_KEPT:
                    self._known.clear()
                self._known[key] = first.store_time
            times.append(self._known.get(key))
        return times

    def outside(self, log: contents.StoreLog, since: int | None, until: int | None) -> set[int]:
        """Return the starts of segments that have no record of a span of time; none where times do not rise along the log.

        A broker stores with the time of its clock, so a segment has times between its own first one and that of the next. A
        clock that is set back breaks this: so MARGIN is kept on both sides, and where one first record is older than that of an
        earlier segment nothing is passed over.
        """
        if since is None and until is None:
            return set()
        times = self.of(log)
        known = [each for each in times if each is not None]
        if known != sorted(known):
            return set()
        found = set[int]()
        for segment, first, behind in zip(log.segments, times, [*times[1:], None], strict=True):
            is_before = since is not None and first is not None and behind is not None and behind + MARGIN < since
            is_behind = until is not None and first is not None and first - MARGIN >= until
            if is_before or is_behind:
                found.add(segment.start)
        return found


class LogSearch:
    """One search in the logs of some stores: ``words`` are options of ``export``. Raises UsageError."""

    def __init__(self, stores: Sequence[TracedStore], words: Sequence[str], delay_levels: str, known: KnownPlaces) -> None:
        self._stores, self._words, self._known, self._delay_levels = stores, list(words), known, delay_levels
        asked = ["--delay-levels", delay_levels, "--count", *_ALL_KINDS]
        self._asked = [options.parse_export([store.path, *words, *facts.roots_words(store), *asked]) for store in stores]
        needs_body = self._asked[0].choice.needs_body
        names = formats.read_columns(count=True, body=needs_body, properties=False)
        every = batches.fields(body=needs_body, damage=True)
        self._schema = pa.schema([every.field(name) for name in (*names, batches.DAMAGE)])
        self._taken = pa.schema([every.field(name) for name in ("commitLogOffset", formats.SIZE)])

    def part(self, cursor: search_pages.ScanCursor) -> facts.Facts:
        """Return what the next part of the search finds, and where it goes on."""
        part, begin = LogPart(cursor), cursor
        with contextlib.ExitStack() as opened:
            logs = list[contents.StoreLog]()
            for store in self._stores:
                # Only what concerns the part is said: each page would repeat what lies beside the segments.
                logs.append(contents.StoreLog(store.roots, folders.Notes.silent()))
                opened.callback(logs[-1].close)
            passed: dict[int, set[int]] = {}
            while not self._at_end(part, logs):
                number = part.cursor.store
                if number not in passed:
                    passed[number] = self._known.outside(logs[number], self._asked[number].since, self._asked[number].until)
                try:
                    self._look(part, logs[number], passed[number])
                except (OSError, ValueError, errors.InputError) as error:
                    # The rest of its segment cannot be read: the search goes on behind it.
                    segment = _segment_at(logs[number], part.cursor.offset)
                    assert segment is not None
                    text = f"{escape(segment.path)}: from offset {max(segment.start, part.cursor.offset)} on: {reason(error)}"
                    part.warnings.append(f"not searched: {text}")
                    part.cursor = part.cursor._replace(offset=segment.start + segment.size)
                if part.is_full:
                    break
            return self._told(part, begin, logs)

    def _at_end(self, part: LogPart, logs: Sequence[contents.StoreLog]) -> bool:
        """Return whether nothing is left; stores without anything behind the cursor are passed."""
        while _segment_at(logs[part.cursor.store], part.cursor.offset) is None:
            if part.cursor.store + 1 == len(logs):
                return True
            part.cursor = search_pages.ScanCursor(part.cursor.store + 1)
        return False

    def _look(self, part: LogPart, log: contents.StoreLog, passed: set[int]) -> None:
        """Look at the next range of the log, or at its beginning, where the part ends there."""
        segment = _segment_at(log, part.cursor.offset)
        assert segment is not None
        end, low = segment.start + segment.size, max(segment.start, part.cursor.offset)
        part.cursor = part.cursor._replace(offset=low)
        if segment.start in passed:
            part.moved(end, passed=True)
            return
        high = min(end, segment.start + ((low - segment.start) // RANGE + 1) * RANGE)
        begins = self._known.begins(segment, low)
        log_range, holes = _range(log, segment, low, high, known=begins), list[ranges.Hole]()
        settings = self._asked[part.cursor.store]
        reader = log_rows.LogRowReader(self._schema, (), delays=settings.delays)
        with contextlib.closing(reader.blocks(log_range, holes)) as blocks:  # type: ignore[type-var]  # a generator
            stopped, last = self._read(part, blocks, settings)
        # The last record of a range may reach over its end.
        is_known, at = stopped or last >= high, last if stopped else max(last, high)
        part.damage += [(part.cursor.store, hole) for hole in holes if hole.offset < at]
        if begins and is_known and not holes:
            self._known.add(segment, at)
        elif begins and not (is_known or holes or log_range.followed) and _is_zero(segment, max(low, last)):
            # What a broker has allocated ahead.
            at = end
        part.moved(at)

    def _read(self, part: LogPart, blocks: Iterator[Any], settings: options.ExportSettings) -> tuple[bool, int]:
        """Take what is asked for of the blocks of a range.

        Return whether it was left before its end, and the offset behind the last record that was looked at, -1 without any.
        """
        end = -1
        bounds = log_rows.Bounds()
        maker = batches.MessageBatches(
            self._schema,
            bounds.start_time if settings.since is None else settings.since,
            layouts.INT64_MAX if settings.until is None else settings.until - 1,
        )
        chooser = choosing.Chooser(settings.choice, formats.as_it_is, settings.body_max, True, self._taken)
        for block in blocks:
            # Neither the walk from the segment's start is counted, nor the first records: compiled loops are loaded for them.
            places = block.messages.phy_offset
            if not len(places):
                part.begin_clock()
                continue
            end = int(places[-1] + block.messages.size[-1])
            wanted = pieces.with_keys(maker, block, settings.keys) if settings.keys else block
            for batch in maker.of_block(wanted):
                for piece in _pieces(batch):
                    left = self._take(part, chooser(piece))
                    part.begin_clock()
                    if left is None and time.monotonic() >= part.deadline:
                        left = piece.column("commitLogOffset")[-1].as_py() + piece.column(formats.SIZE)[-1].as_py()
                    if left is not None:
                        return True, left
            part.begin_clock()
            if time.monotonic() >= part.deadline:
                return True, end
        return False, end

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

    def _told(self, part: LogPart, begin: search_pages.ScanCursor, logs: Sequence[contents.StoreLog]) -> facts.Facts:
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
            "segments": {"reached": len(reached), "passed": len(passed), "all": len(segments)},
            "damage": {
                "count": len(lost), "bytes": sum(hole.length for _, hole in lost),
                "places": [
                    {"store": self._stores[number].name, "offset": hole.offset, "bytes": hole.length, "text": hole.reason}
                    for number, hole in part.damage[:DAMAGE_SHOWN]
                ],
            },
            "warnings": warnings, "commands": [facts.command("export", store, command) for store in self._stores],
        }  # fmt: skip

    def _rows(self, part: LogPart, logs: Sequence[contents.StoreLog], warnings: list[str]) -> Iterator[facts.Facts]:
        for number, hits in itertools.groupby(part.hits, lambda hit: hit.store):
            store, log, notes = self._stores[number], logs[number], folders.Notes(warnings.append, warnings.append)
            words = ["--physical", "0", "--delay-levels", self._delay_levels, "--body-max", str(contents.BLOCK)]
            query = query_options.parse_query([store.path, *words, *facts.roots_words(store)])
            for hit in hits:
                message = log.message(hit.phy_offset)
                if isinstance(message, str):
                    warnings.append(f"{escape(store.name)}: offset {hit.phy_offset}: is a hit, and now {message}")
                else:
                    yield {"store": store.name, **answer.row_of(store_queue.ServedMessage(message, None), log, query, notes)}


# ---------------------------------------------------------------------------------------------------------------------- the log


def _segment_at(log: contents.StoreLog, offset: int) -> contents.SegmentFile | None:
    """Return the segment that holds an offset, or the next one behind it; None at the log's end."""
    return next((segment for segment in log.segments if segment.start + segment.size > offset), None)


def _range(log: contents.StoreLog, file: contents.SegmentFile, low: int, high: int, *, known: bool) -> log_rows.LogRange:
    """Return the bytes [low, high) of a segment as what is scanned. Segments that are missing before it are a part of it."""
    number = log.segments.index(file)
    longest = max(each.size for each in log.segments)
    end = file.start + (longest if number + 1 == len(log.segments) else file.size)
    segment = ranges.Segment(files.base(file.path), file.path, file.start, file.start + file.size, end, file.lead)
    followed = any(log.message(later.start) != contents.NOTHING for later in log.segments[number + 1 :])
    missing = None
    if number and low == file.start:
        behind = max(each.start + each.size for each in log.segments[:number])
        if behind < low:
            missing = ranges.Hole(f"{behind:020d}", behind, low - behind, r.MISSING_SEGMENT)
    committed = committed_index(files.parent(file.path))
    spec = segment.part(0, low, high, known=known)
    return log_rows.LogRange(spec, segment.name, followed, missing, committed if committed >= 0 else layouts.INT64_MAX)


def _is_zero(segment: contents.SegmentFile, offset: int) -> bool:
    """Return whether there are zeros alone from an offset of a segment on."""
    at, size = offset - segment.start, contents.BLOCK
    with files.Reader(segment.path) as reader:
        while (at := reader.next_data(at)) < segment.size:
            piece = np.empty(min(size, segment.size - at), np.uint8)
            reader.read_into(at, piece)
            if piece.any():
                return False
            at, size = at + len(piece), 16 << 20
    return True


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch in pieces that are looked at without a look at the clock: bodies take time."""
    if batches.BODY not in batch.schema.names:
        yield batch
        return
    is_packed = (batch.column("sysFlag").to_numpy() & FLAG_COMPRESSED).any()
    most = PACKED_BYTES if is_packed else PIECE_BYTES
    ends = np.cumsum(batch.column(formats.SIZE).to_numpy(), dtype=np.int64)
    first = 0
    while first < batch.num_rows:
        before = int(ends[first - 1]) if first else 0
        stop = max(first + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield batch.slice(first, stop - first)
        first = stop


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
