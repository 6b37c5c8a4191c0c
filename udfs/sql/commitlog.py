"""The data source ``rocketmq-commitlog``: the records of a log as rows, by the scan that a build uses."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from rocketmq_reindex import files
from rocketmq_reindex.storage_format import layouts, showing, versions
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.layout import CRC_NONE
from rocketmq_reindex.storage_format.scan import range_scan, ranges, settings as scan_settings, stale_tail
from rocketmq_reindex.storage_format.walk.state import MessageArrays
from rocketmq_reindex.udfs.messages.batches import MessageBatches, fields
from rocketmq_reindex.udfs.scan.ranges import SegmentReader, find_stale_tail
from rocketmq_reindex.udfs.scan.segments import list_segments
from rocketmq_reindex.udfs.sql.base import Source, SourceReader, in_one_line, narrow_bounds, narrow_topics
from rocketmq_reindex.udfs.sql.options import FAIL, RANGE_SIZE, ROWS, UNPACKED_MAX, Bounds, Topics, Words, commitlog_folder

# ------------------------------------------------------------------------------------------------------------- commitlog damage
# Damage in one range of the log, as ``rocketmq-commitlog`` shows it, and old records behind the log's end.


@dataclass
class LogRange(InputPartition):
    """A range of the log, which one task reads."""

    spec: ranges.RangeSpec
    segment: str
    """name of its segment"""
    followed: bool
    """whether a later segment holds data: then zeros at the end of this one are damage"""
    missing: ranges.Hole | None = None
    """segments missing before this one"""


class LogEndSearch:
    """Finds where the log ends in a range of its last segment with data, if old records lie behind that end.

    ``before`` is the summary of the scan of the segment up to the range.
    """

    def __init__(self, partition: LogRange, before: ranges.RangeSummary) -> None:
        self._partition, self._before = partition, before
        self._seen = 0
        self._stale: stale_tail.StaleTail | None = None
        if before.holes:
            self._look_for_tail(stale_tail.damage_of(before.holes))

    def _look_for_tail(self, holes: list[stale_tail.DamagedStretch]) -> None:
        spec = self._partition.spec
        if self._stale is None and not self._partition.followed and len(holes) > self._seen:
            tail = find_stale_tail(spec.path, (spec.segment_start, spec.data_end, spec.segment_end), holes)
            self._stale = tail if isinstance(tail, stale_tail.StaleTail) else None
        self._seen = len(holes)

    def before(self, low: int) -> bool:
        """Return whether the log goes on at the phy_offset ``low``, as far as that is known yet."""
        return self._stale is None or low < self._stale.offset

    def cut(self, block: scan_settings.Block, summary: ranges.RangeSummary) -> scan_settings.Block:
        """Return a block without old records. The summary has all damage before the block's last record by now."""
        holes = stale_tail.damage_of(self._before.holes)
        if self._before.tail >= 0 and summary.first > self._before.tail:
            holes.append(stale_tail.DamagedStretch(self._before.tail, summary.first - self._before.tail, framed=False))
        self._look_for_tail(holes + stale_tail.damage_of(summary.holes))
        if self._stale is None:
            return block
        count = int(np.searchsorted(block.messages.phy_offset, self._stale.offset))
        kept = MessageArrays(*(column[:count] for column in block.messages))  # type: ignore[arg-type]  # of two dtypes
        return dataclasses.replace(block, messages=kept)

    def holes(self, holes: list[ranges.Hole]) -> list[ranges.Hole]:
        """Return the damage of the range, with old records as one stretch, where they begin."""
        if self._stale is None:
            return holes
        kept = [hole for hole in holes if hole.offset < self._stale.offset]
        if len(kept) < len(holes):
            kept.append(ranges.Hole(self._partition.segment, self._stale.offset, self._stale.length, self._stale.reason))
        return kept


def holes_of(
    partition: LogRange, before: ranges.RangeSummary, summary: ranges.RangeSummary, bounds: Bounds
) -> list[ranges.Hole]:
    """Return the damage that ends in a range.

    Damage may begin before the range: ``before``, the summary of the scan up to it, has the offset.
    """
    spec, name = partition.spec, partition.segment
    holes = [ranges.Hole(name, offset, length, r.REASONS[code]) for offset, length, code in summary.holes]
    open_at, code = max(before.tail, bounds.start_offset) if before.tail >= 0 else -1, before.tail_code
    if open_at >= 0 and summary.first >= 0:
        if summary.first > open_at:
            holes.insert(0, ranges.Hole(name, open_at, summary.first - open_at, r.REASONS[code]))
        open_at = -1
    if open_at < 0 and summary.tail >= 0:
        open_at, code = summary.tail, summary.tail_code
    if open_at < 0 or spec.high < min(spec.data_end, bounds.end_offset):
        return holes
    if partition.followed:
        return [*holes, ranges.Hole(name, open_at, spec.high - open_at, r.REASONS[code])]
    last = max(before.last_nonzero, summary.last_nonzero)
    if last >= open_at:
        length = last + 1 - open_at
        sound = max(before.last_sound, summary.last_sound) >= open_at
        torn = "torn tail: " if length <= ranges.TORN_TAIL_MAX and not sound else ""
        holes.append(ranges.Hole(name, open_at, length, f"{torn}{r.REASONS[code]}"))
    return holes


# -------------------------------------------------------------------------------------------------------------------- commitlog

BLOCK_ROWS: Final = 1 << 15


class CommitlogSource(Source):
    """Makes readers of the log of a store. Its options: docs/reference/sql.md.

    Columns have the names of ``DispatchRequest`` and ``MessageExt`` (RocketMQ 5.3) where those have them.
    """

    known = (
        "commitlog", "topic", "excludeTopic", "startOffset", "endOffset", "startTime", "endTime", "body", "unpack",
        "maxBody", "crc", "brokerVersion", "delayLevels", "rangeSize", "segmentSize",
    )  # fmt: skip

    @classmethod
    def name(cls) -> str:
        return "rocketmq-commitlog"

    def columns(self, words: Words) -> pa.Schema:
        """Return all columns that these options give."""
        return fields(body=words.flag("body") or words.flag("unpack"), damage=words.text("onDamage") == ROWS)

    def located(self, words: Words) -> tuple[str, ...]:
        """Return the folders of segments."""
        return words.words("commitlog") or (commitlog_folder(words.path()),)

    def reader(self, schema: StructType) -> CommitlogReader:
        """Return a reader of the columns ``schema``. Raises the errors of ``schema``, which Spark does not ask where it has
        one."""
        with in_one_line():
            return CommitlogReader(self, schema)


class CommitlogReader(SourceReader):
    """Reads ranges of the log. Raises UsageError for options that it does not take."""

    def __init__(self, source: CommitlogSource, schema: StructType) -> None:
        super().__init__(source, schema)
        words = self.words
        self.bounds = Bounds.of(words)
        self.topics: Topics | None = Topics(words.words("topic"), words.words("excludeTopic"))
        self.range_size = words.number("rangeSize", RANGE_SIZE, 1)
        self.segment_size = words.number("segmentSize", 0)
        self.crc = words.crc()
        self.unpack = words.number("maxBody", UNPACKED_MAX, 1) if words.flag("unpack") else 0
        self.broker_version = words.chosen("brokerVersion", versions.VERSIONS)
        self.delays = words.delays()

    def narrow(self, filters: list[Any]) -> None:
        """Read less where the filters allow it."""
        self.bounds = narrow_bounds(self.bounds, filters)
        self.topics = narrow_topics(self.topics, filters) if self.topics is not None else None

    def plan(self) -> list[InputPartition]:
        """Return the ranges to read. Raises InputError for a folder that is no commitlog."""
        if self.topics is None or self.bounds.empty:
            return []
        segments = list_segments(self.located, self.segment_size).segments
        low, high = self.bounds.start_offset, self.bounds.end_offset
        followed = _followed(segments)
        partitions: list[InputPartition] = []
        end = segments[0].start if segments else 0
        names = {segment.start: segment.name for segment in segments}
        for spec in ranges.cut_ranges(segments, self.range_size, high):
            missing = None
            if spec.low == spec.segment_start:
                if spec.low > end and spec.low > low:
                    missing = ranges.Hole(f"{end:020d}", max(end, low), spec.low - max(end, low), r.MISSING_SEGMENT)
                end = spec.segment_end
            if spec.high > low:
                start = max(spec.low, low)
                cut = dataclasses.replace(spec, low=start, known=spec.known and start == spec.low)
                partitions.append(LogRange(cut, names[spec.segment_start], followed[spec.segment_start], missing))
        return partitions

    def _settings(self, topics: Topics) -> scan_settings.ScanSettings:
        return scan_settings.ScanSettings(
            crc_mode=self.crc,
            broker_version=self.broker_version,
            delays=self.delays,
            include=topics.include,
            exclude=topics.exclude,
            want_units=False,
            want_items=False,
            want_messages=True,
            want_digests=False,
            block_rows=BLOCK_ROWS,
        )

    def rows(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one range, and its damage as the option onDamage says. Raises RefusedError with onDamage
        fail."""
        if not isinstance(partition, LogRange) or self.topics is None:
            return
        spec, holes = partition.spec, [partition.missing] if partition.missing else []
        batches = MessageBatches(
            self.schema, self.bounds.start_time, min(self.bounds.end_time - 1, layouts.INT64_MAX), self.unpack
        )
        with SegmentReader(spec.path, spec.segment_start, ahead=min(spec.high, spec.data_end)) as segment:
            before = self._walk_to(spec, segment)
            if before.end >= spec.high:
                yield from self._damage(holes)
                return
            if before.end >= 0:
                spec = dataclasses.replace(spec, low=before.end, known=True)
            scanner = range_scan.RangeScanner(self._settings(self.topics))
            end = LogEndSearch(partition, before)
            if end.before(spec.low):
                for block in scanner.scan(spec, segment.read, segment.view):
                    yield from batches.of_block(end.cut(block, scanner.summary))
                holes += end.holes(holes_of(partition, before, scanner.summary, self.bounds))
        yield from self._damage(holes)

    def _walk_to(self, spec: ranges.RangeSpec, segment: SegmentReader) -> ranges.RangeSummary:
        """Return the summary of a scan from the segment's start up to the range.

        Only from there it is known where records begin: a body may hold the image of any record.
        """
        if spec.known:
            return ranges.RangeSummary(-1, spec.low, spec.low, True, end=spec.low)
        settings = scan_settings.ScanSettings(
            CRC_NONE, self.broker_version, want_units=False, want_items=False, want_digests=False,
            search_crc=self.crc, block_rows=BLOCK_ROWS,
        )  # fmt: skip
        scanner = range_scan.RangeScanner(settings)
        way = dataclasses.replace(spec, low=spec.segment_start, high=spec.low, known=True)
        for _ in scanner.scan(way, segment.read, segment.view):
            pass
        return scanner.summary

    def _damage(self, holes: list[ranges.Hole]) -> Iterator[pa.RecordBatch]:
        """Skip the damage of one range, refuse it, or make rows of it, as the option onDamage says."""
        if not holes:
            return
        lost = [hole for hole in holes if not hole.reason.startswith(("torn tail", stale_tail.STALE))]
        first = (lost or holes)[0]
        text = f"offset {first.offset}, {showing.counted(first.length, 'byte')}: {first.reason}"
        if self.shown_damage == FAIL and lost:
            self.refuse(f"segment {first.segment}", text)
        if self.shown_damage == ROWS:
            yield from self.damage_rows(
                [{"commitLogOffset": h.offset, "msgSize": min(h.length, layouts.INT32_MAX), "damage": h.reason} for h in holes]
            )
        else:
            self.skipped(f"segment {first.segment}", len(holes), text)


def _followed(segments: Sequence[ranges.Segment]) -> dict[int, bool]:
    """Return for each segment, by its first offset, whether a later one holds data."""
    followed, later = {}, False
    for segment in reversed(segments):
        followed[segment.start] = later
        later = later or (segment.data_end > segment.start and _begins(segment.path))
    return followed


def _begins(path: str) -> bool:
    """Return whether the first bytes of a segment are not all zero."""
    with files.Reader(path) as reader:
        return any(reader.read(0, min(r.FILLER_MIN, reader.size())))
