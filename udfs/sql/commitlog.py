"""The data source ``rocketmq-commitlog``: the records of a log as rows, by the scan that a build uses."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from rocketmq_reindex.storage_format.integers import INT32_MAX, INT64_MAX
from rocketmq_reindex.storage_format.plurals import counted
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.layout import CRC_NONE
from rocketmq_reindex.storage_format.scan.range_scan import RangeScanner
from rocketmq_reindex.storage_format.scan.ranges import Hole, RangeSpec, RangeSummary, Segment, cut_ranges
from rocketmq_reindex.storage_format.scan.settings import ScanSettings
from rocketmq_reindex.storage_format.scan.stale_tail import STALE
from rocketmq_reindex.storage_format.versions import VERSIONS
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.messages.batches import MessageBatches, fields
from rocketmq_reindex.udfs.scan.segment_reader import SegmentReader
from rocketmq_reindex.udfs.scan.segments import list_segments
from rocketmq_reindex.udfs.sql.base import Reader, Source
from rocketmq_reindex.udfs.sql.commitlog_damage import LogEnd, LogRange, holes_of
from rocketmq_reindex.udfs.sql.filters import narrow_bounds, narrow_topics
from rocketmq_reindex.udfs.sql.folders import commitlog_folder
from rocketmq_reindex.udfs.sql.one_line import in_one_line
from rocketmq_reindex.udfs.sql.options import FAIL, RANGE_SIZE, ROWS, UNPACKED_MAX, Bounds, Topics, Words

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
        """All columns that these options give."""
        return fields(body=words.flag("body") or words.flag("unpack"), damage=words.text("onDamage") == ROWS)

    def located(self, words: Words) -> tuple[str, ...]:
        """The folders of segments."""
        return words.words("commitlog") or (commitlog_folder(words.path()),)

    def reader(self, schema: StructType) -> CommitlogReader:
        """A reader of the columns ``schema``. Raises the errors of ``schema``, which Spark does not ask where it has one."""
        with in_one_line():
            return CommitlogReader(self, schema)


class CommitlogReader(Reader):
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
        self.broker_version = words.chosen("brokerVersion", VERSIONS)
        self.delays = words.delays()

    def narrow(self, filters: list[Any]) -> None:
        """Read less where the filters allow it."""
        self.bounds = narrow_bounds(self.bounds, filters)
        self.topics = narrow_topics(self.topics, filters) if self.topics is not None else None

    def plan(self) -> list[InputPartition]:
        """The ranges to read. Raises InputError for a folder that is no commitlog."""
        if self.topics is None or self.bounds.empty:
            return []
        segments = list_segments(self.located, self.segment_size).segments
        low, high = self.bounds.start_offset, self.bounds.end_offset
        followed = _followed(segments)
        found: list[InputPartition] = []
        end = segments[0].start if segments else 0
        names = {segment.start: segment.name for segment in segments}
        for spec in cut_ranges(segments, self.range_size, high):
            missing = None
            if spec.low == spec.segment_start:
                if spec.low > end and spec.low > low:
                    missing = Hole(f"{end:020d}", max(end, low), spec.low - max(end, low), r.MISSING_SEGMENT)
                end = spec.segment_end
            if spec.high > low:
                start = max(spec.low, low)
                cut = dataclasses.replace(spec, low=start, known=spec.known and start == spec.low)
                found.append(LogRange(cut, names[spec.segment_start], followed[spec.segment_start], missing))
        return found

    def _settings(self, topics: Topics) -> ScanSettings:
        return ScanSettings(
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
        """The records of one range, and its damage as the option onDamage says. Raises RefusedError with onDamage fail."""
        if not isinstance(partition, LogRange) or self.topics is None:
            return
        spec, holes = partition.spec, [partition.missing] if partition.missing else []
        batches = MessageBatches(self.schema, self.bounds.start_time, min(self.bounds.end_time - 1, INT64_MAX), self.unpack)
        with SegmentReader(spec.path, spec.segment_start, ahead=min(spec.high, spec.data_end)) as segment:
            before = self._walk_to(spec, segment)
            if before.end >= spec.high:
                yield from self._damage(holes)
                return
            if before.end >= 0:
                spec = dataclasses.replace(spec, low=before.end, known=True)
            scanner = RangeScanner(self._settings(self.topics))
            end = LogEnd(partition, before)
            if end.before(spec.low):
                for block in scanner.scan(spec, segment.read, segment.view):
                    yield from batches.of_block(end.cut(block, scanner.summary))
                holes += end.holes(holes_of(partition, before, scanner.summary, self.bounds))
        yield from self._damage(holes)

    def _walk_to(self, spec: RangeSpec, segment: SegmentReader) -> RangeSummary:
        """The summary of a scan from the segment's start up to the range.

        Only from there it is known where records begin: a body may hold the image of any record.
        """
        if spec.known:
            return RangeSummary(-1, spec.low, spec.low, True, end=spec.low)
        settings = ScanSettings(
            CRC_NONE, self.broker_version, want_units=False, want_items=False, want_digests=False,
            search_crc=self.crc, block_rows=BLOCK_ROWS,
        )  # fmt: skip
        scanner = RangeScanner(settings)
        way = dataclasses.replace(spec, low=spec.segment_start, high=spec.low, known=True)
        for _ in scanner.scan(way, segment.read, segment.view):
            pass
        return scanner.summary

    def _damage(self, holes: list[Hole]) -> Iterator[pa.RecordBatch]:
        """Skip the damage of one range, refuse it, or make rows of it, as the option onDamage says."""
        if not holes:
            return
        lost = [hole for hole in holes if not hole.reason.startswith(("torn tail", STALE))]
        first = (lost or holes)[0]
        text = f"offset {first.offset}, {counted(first.length, 'byte')}: {first.reason}"
        if self.on_damage == FAIL and lost:
            self.refuse(f"segment {first.segment}", text)
        if self.on_damage == ROWS:
            yield from self.damage_rows(
                [{"commitLogOffset": h.offset, "msgSize": min(h.length, INT32_MAX), "damage": h.reason} for h in holes]
            )
        else:
            self.skipped(f"segment {first.segment}", len(holes), text)


def _followed(segments: Sequence[Segment]) -> dict[int, bool]:
    """For each segment, by its first offset, whether a later one holds data."""
    followed, later = {}, False
    for segment in reversed(segments):
        followed[segment.start] = later
        later = later or (segment.data_end > segment.start and _begins(segment.path))
    return followed


def _begins(path: str) -> bool:
    """Whether the first bytes of a segment are not all zero."""
    with files.Reader(path) as reader:
        return any(reader.read(0, min(r.FILLER_MIN, reader.size())))
