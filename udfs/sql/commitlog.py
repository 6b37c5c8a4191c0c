"""``rocketmq-commitlog``: the records of a log as rows, over the functions of the build's scan."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from rocketmq_reindex.storage_format.integers import INT64_MAX
from rocketmq_reindex.storage_format.plurals import counted
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.layout import CRC_NONE
from rocketmq_reindex.storage_format.scan.range_scan import RangeScanner
from rocketmq_reindex.storage_format.scan.range_summary import RangeSpec, RangeSummary
from rocketmq_reindex.storage_format.scan.ranges import Hole, cut_ranges
from rocketmq_reindex.storage_format.scan.settings import Block, ScanSettings
from rocketmq_reindex.storage_format.scan.stale_tail import Damage, StaleTail
from rocketmq_reindex.storage_format.scan.torn_tail import TORN_TAIL_MAX
from rocketmq_reindex.storage_format.walk.state import MessageArrays
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.messages.batches import MessageBatches, fields
from rocketmq_reindex.udfs.scan.segments import list_segments
from rocketmq_reindex.udfs.scan.stale_tails import STALE, framed, judge_segment, reason
from rocketmq_reindex.udfs.sql.base import INT32_MAX, Pushing, Reader, Source, inner_folder
from rocketmq_reindex.udfs.sql.filters import narrow_bounds, narrow_topics
from rocketmq_reindex.udfs.sql.options import FAIL, RANGE_SIZE, ROWS, UNPACKED_MAX, Bounds, Topics, Words

BLOCK_ROWS: Final = 1 << 15


@dataclass
class LogRange(InputPartition):
    """A range of the log. ``followed``: later segments hold something, so zeros at this one's end are damage."""

    spec: RangeSpec
    segment: str
    followed: bool
    missing: Hole | None = None
    """segments missing before this one"""


class CommitlogSource(Source):
    """Options: see the README."""

    known = (
        "commitlog", "topic", "excludeTopic", "startOffset", "endOffset", "startTime", "endTime", "body", "unpack",
        "maxBody", "crc", "brokerVersion", "delayLevels", "rangeSize", "segmentSize",
    )  # fmt: skip

    @classmethod
    def name(cls) -> str:
        return "rocketmq-commitlog"

    def columns(self, words: Words) -> pa.Schema:
        return fields(body=words.flag("body") or words.flag("unpack"), damage=words.text("onDamage") == ROWS)

    def reader(self, schema: StructType) -> CommitlogReader:
        return (PushingCommitlogReader if self.pushing else CommitlogReader)(self, schema)


class CommitlogReader(Reader):
    def __init__(self, source: CommitlogSource, schema: StructType) -> None:
        super().__init__(source, schema)
        words = self.words
        self.roots = words.words("commitlog")
        if not self.roots:
            self.roots = (inner_folder(self.path(), "commitlog"),)
        self.bounds = Bounds.of(words)
        self.topics: Topics | None = Topics(words.words("topic"), words.words("excludeTopic"))
        self.range_size = words.number("rangeSize", RANGE_SIZE, 1)
        self.segment_size = words.number("segmentSize", 0)
        self.crc = words.crc()
        self.unpack = words.number("maxBody", UNPACKED_MAX, 1) if words.flag("unpack") else 0
        self.broker_version = words.chosen("brokerVersion", ("5.3", "4.9"))
        self.delays = words.delays()

    # -- plan ---------------------------------------------------------------------------------------------------------

    def partitions(self) -> Sequence[InputPartition]:
        if self.topics is None or self.bounds.empty:
            return []
        segments = list_segments(self.roots, self.segment_size).segments
        low, high = self.bounds.start_offset, self.bounds.end_offset
        followed, later = {}, False
        for segment in reversed(segments):
            followed[segment.start] = later
            later = later or (segment.data_end > segment.start and _begins(segment.path))
        found: list[LogRange] = []
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

    # -- read ---------------------------------------------------------------------------------------------------------

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

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, LogRange) or self.topics is None:
            return
        spec, holes = partition.spec, [partition.missing] if partition.missing else []
        batches = MessageBatches(self.schema, self.bounds.start_time, min(self.bounds.end_time - 1, INT64_MAX), self.unpack)
        with files.Reader(spec.path) as reader:

            def read(at: int, out: npt.NDArray[np.uint8]) -> None:
                reader.read_into(at - spec.segment_start, out)

            def view(at: int, count: int) -> npt.NDArray[np.uint8] | None:
                return reader.view(at - spec.segment_start, count)

            before = RangeSummary(-1, spec.low, spec.low, True, end=spec.low)
            if not spec.known:
                # Where records begin is known from the segment's start alone: a body may hold the image of any record.
                settings = ScanSettings(
                    CRC_NONE, self.broker_version, want_units=False, want_items=False, want_digests=False,
                    search_crc=self.crc, block_rows=BLOCK_ROWS,
                )  # fmt: skip
                way = RangeScanner(settings)
                for _ in way.scan(dataclasses.replace(spec, low=spec.segment_start, high=spec.low, known=True), read, view):
                    pass
                before = way.summary
            if before.end >= spec.high:
                yield from self._tell(holes)
                return
            if before.end >= 0:
                spec = dataclasses.replace(spec, low=before.end, known=True)
            scanner = RangeScanner(self._settings(self.topics))
            end = _LogEnd(partition, before)
            if end.before(spec.low):
                for block in scanner.scan(spec, read, view):
                    yield from batches.of_block(end.cut(block, scanner.summary))
                holes += end.told(_holes(partition, before, scanner.summary, self.bounds))
        yield from self._tell(holes)

    def _tell(self, holes: list[Hole]) -> Iterator[pa.RecordBatch]:
        """Damage of one range, as the policy wants it."""
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


class _LogEnd:
    """Where the log ends in a range of its last segment with data, if old records lie behind its end."""

    def __init__(self, partition: LogRange, before: RangeSummary) -> None:
        self._partition, self._before = partition, before
        self._asked = 0
        self._stale: StaleTail | None = None
        if before.holes:
            self._ask(framed(before.holes))

    def _ask(self, holes: list[Damage]) -> None:
        spec = self._partition.spec
        if self._stale is None and not self._partition.followed and len(holes) > self._asked:
            found = judge_segment(spec.path, (spec.segment_start, spec.data_end, spec.segment_end), holes)
            self._stale = found if isinstance(found, StaleTail) else None
        self._asked = len(holes)

    def before(self, low: int) -> bool:
        """Whether anything from there on is of the log, as far as that is known yet."""
        return self._stale is None or low < self._stale.offset

    def cut(self, block: Block, summary: RangeSummary) -> Block:
        """A block without old records; all damage in front of its last record is in the summary by now."""
        holes = framed(self._before.holes)
        if self._before.tail >= 0 and summary.first > self._before.tail:
            holes.append(Damage(self._before.tail, summary.first - self._before.tail, framed=False))
        self._ask(holes + framed(summary.holes))
        if self._stale is None:
            return block
        count = int(np.searchsorted(block.messages.phy_offset, self._stale.offset))
        kept = MessageArrays(*(column[:count] for column in block.messages))  # type: ignore[arg-type]  # of two dtypes
        return dataclasses.replace(block, messages=kept)

    def told(self, holes: list[Hole]) -> list[Hole]:
        """The damage of the range; of old records it is told where the first of them lies."""
        if self._stale is None:
            return holes
        kept = [hole for hole in holes if hole.offset < self._stale.offset]
        if len(kept) < len(holes):
            kept.append(Hole(self._partition.segment, self._stale.offset, self._stale.length, reason(self._stale)))
        return kept


class PushingCommitlogReader(Pushing, CommitlogReader):
    def narrow(self, filters: list[Any]) -> None:
        self.bounds = narrow_bounds(self.bounds, filters)
        self.topics = narrow_topics(self.topics, filters) if self.topics is not None else None


def _begins(path: str) -> bool:
    """Whether anything stands at the start of a segment."""
    with files.Reader(path) as reader:
        return any(reader.read(0, min(r.FILLER_MIN, reader.size())))


def _holes(partition: LogRange, before: RangeSummary, summary: RangeSummary, bounds: Bounds) -> list[Hole]:
    """The damage that ends in a range: of what begins in one before it, too, since ``before`` knows where."""
    spec, name = partition.spec, partition.segment
    found = [Hole(name, offset, length, r.REASONS[code]) for offset, length, code in summary.holes]
    open_at, code = max(before.tail, bounds.start_offset) if before.tail >= 0 else -1, before.tail_code
    if open_at >= 0 and summary.first >= 0:
        if summary.first > open_at:
            found.insert(0, Hole(name, open_at, summary.first - open_at, r.REASONS[code]))
        open_at = -1
    if open_at < 0 and summary.tail >= 0:
        open_at, code = summary.tail, summary.tail_code
    if open_at < 0 or spec.high < min(spec.data_end, bounds.end_offset):
        return found
    if partition.followed:
        return [*found, Hole(name, open_at, spec.high - open_at, r.REASONS[code])]
    last = max(before.last_nonzero, summary.last_nonzero)
    if last >= open_at:
        length = last + 1 - open_at
        sound = max(before.last_sound, summary.last_sound) >= open_at
        torn = "torn tail: " if length <= TORN_TAIL_MAX and not sound else ""
        found.append(Hole(name, open_at, length, f"{torn}{r.REASONS[code]}"))
    return found
