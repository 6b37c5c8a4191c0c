"""Scan ranges of the commitlog: segments read by offsets, the rows that each range gives, one summary of it, its topics."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketmq_reindex import files
from rocketmq_reindex.storage_format.delay.evidence import EVIDENCE, read_evidence
from rocketmq_reindex.storage_format.queue import cells
from rocketmq_reindex.storage_format.queue.consume_queue import batch_runs, by_queue
from rocketmq_reindex.storage_format.queue.extended import ConsumerFilters
from rocketmq_reindex.storage_format.record.state import BatchArrays, UnitArrays
from rocketmq_reindex.storage_format.scan.range_scan import RangeScanner
from rocketmq_reindex.storage_format.scan.ranges import RangeSpec, RangeSummary
from rocketmq_reindex.storage_format.scan.settings import Block, ScanSettings
from rocketmq_reindex.storage_format.scan.stale_tail import DamagedStretch, Doubt, StaleTail, StaleTailSearch
from rocketmq_reindex.storage_format.topics import QUEUES_MAX, SCHEDULE_TOPIC, is_own, is_usual, topic_entry
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.scan.extended import QUEUE_BUCKETS, Matcher, extended_rows
from rocketmq_reindex.udfs.staging import Position, StagingFolder

# ------------------------------------------------------------------------------------------------------------------------- rows
# The rows that a scanned block, or a whole range, gives: units, runs of queue offsets, evidence of delays, topics.
#
# A cell holds units of one queue, or of the queues of one bucket, in the order of the log.

Int64s = npt.NDArray[np.int64]

_BATCH_ROWS: Final = cells.CELL_BYTES // (8 * cells.BATCH_COLUMNS)
_EVIDENCE_ROWS: Final = (1 << 20) // EVIDENCE.itemsize


class RowPieces(NamedTuple):
    """Stretches of rows, each of one queue: piece i has ``counts[i]`` rows of ``columns`` from row ``starts[i]`` on.

    ``queue[i]`` is the queue's number in the scan; ``columns`` is int64, columns by rows.
    """

    queue: Int64s
    starts: Int64s
    counts: Int64s
    columns: Int64s


class BlockCells:
    """The units (at least one) that ``scanner`` found in a block."""

    def __init__(self, scanner: RangeScanner, units: UnitArrays) -> None:
        queues = scanner.queue_count
        self._block = cells.QueueBlock(*units, queues)
        self._names = scanner.queues.name[:queues].astype(np.int64)
        self._ids = scanner.queues.queue_id[:queues]
        self._crc = scanner.names.crc[self._names]
        self._texts = [scanner.names.texts[k].encode() for k in range(len(scanner.names.texts))]

    def pieces(self, units_per_file: int) -> tuple[Int64s, RowPieces]:
        """Return the units (``cells.UNIT_COLUMNS`` columns), cut by queue and file.

        Return for each piece the number of its file (int64), and the pieces.
        """
        queue, file_number, starts, counts = self._block.pieces(units_per_file)
        return file_number, RowPieces(queue, starts, counts, self._block.columns)

    def runs(self) -> RowPieces:
        """Return the runs of queue offsets (``cells.RUN_COLUMNS`` columns), one piece for each queue."""
        queue, columns = self._block.runs()
        return RowPieces(*np.unique(queue, return_index=True, return_counts=True), columns)

    def bucket(self, queue: Int64s, part: Int64s, buckets: int) -> Int64s:
        """Return the bucket of each pair of queue and part (a file number, or 0), out of ``buckets``; all are int64."""
        return cells.bucket_of(self._crc[queue], self._ids[queue], part, buckets)

    def cut(self, bucket: Int64s, pieces: RowPieces) -> list[tuple[int, bytes]]:
        """Return the pieces packed into cells: (bucket, cell) in the order of buckets."""
        names, ids = self._names[pieces.queue], self._ids[pieces.queue]
        return cells.cut_cells(bucket, self._texts, names, ids, pieces.starts, pieces.counts, pieces.columns)


def batch_rows(scanner: RangeScanner, number: int, batches: BatchArrays, keys: tuple[int, ...]) -> Iterator[handover.Row]:
    """Yield the rows of a scanned block of range ``number``: units (BATCHES), and the runs that show their order (BATCH_RUNS).

    ``keys[b]`` is the key of bucket b. Rows of BATCHES are sorted by the phy_offset of their first record.
    """
    if not len(batches.phy_offset):
        return
    columns, bounds = by_queue(batches, scanner.queue_count)
    present = np.flatnonzero(np.diff(bounds))
    names = scanner.queues.name[present].astype(np.int64)
    ids = scanner.queues.queue_id[present]
    texts = [scanner.names.texts[k].encode() for k in names]
    crc, parts = scanner.names.crc[names], np.zeros_like(present)
    runs = []
    for k, queue in enumerate(cells.bucket_of(crc, ids, parts, QUEUE_BUCKETS).tolist()):
        units = columns[:, bounds[present[k]] : bounds[present[k] + 1]]
        for low in range(0, units.shape[1], _BATCH_ROWS):
            part = units[:, low : low + _BATCH_ROWS]
            cell = cells.pack([texts[k]], ids[k : k + 1], np.array([part.shape[1]], np.int32), part)
            yield handover.Row(handover.BATCHES, queue, keys[queue % len(keys)], number, cell, int(part[1, 0]))
        runs.append(batch_runs(units))
    counts = np.array([run.shape[1] for run in runs], np.int64)
    scanner.summary.runs += int(counts.sum())
    with_runs = np.flatnonzero(counts)
    starts = np.cumsum(counts) - counts
    bucket = cells.bucket_of(crc, ids, parts, len(keys))
    for target, cell in cells.cut_cells(
        bucket[with_runs], texts, with_runs, ids[with_runs], starts[with_runs], counts[with_runs], np.concatenate(runs, axis=1)
    ):
        yield handover.Row(handover.BATCH_RUNS, target, keys[target], number, cell)


def delay_rows(block: Block, number: int, keys: tuple[int, ...]) -> Iterator[handover.Row]:
    """Yield rows of DELAYED from a scanned block of range ``number``: cells of EVIDENCE. ``keys[b]`` is the key of bucket b."""
    rows = read_evidence(block.data, block.base, block.messages)
    bucket = rows["digest"] % len(keys)
    order = np.argsort(bucket, kind="stable")
    rows, bounds = rows[order], np.searchsorted(bucket[order], np.arange(len(keys) + 1))
    for target in np.flatnonzero(np.diff(bounds)).tolist():
        for low in range(int(bounds[target]), int(bounds[target + 1]), _EVIDENCE_ROWS):
            cell = rows[low : min(low + _EVIDENCE_ROWS, int(bounds[target + 1]))].tobytes()
            yield handover.Row(handover.DELAYED, target, keys[target], number, cell)


def topic_rows(scanner: RangeScanner, number: int, keys: tuple[int, ...]) -> Iterator[handover.Row]:
    """Yield rows of TOPICS (``cells.TOPIC_COLUMNS`` columns) from the range ``number``, which ``scanner`` has just scanned.

    ``keys[b]`` is the key of bucket b.
    """
    names = scanner.names
    entries = names.topics()
    if not len(entries):
        return
    queues, queue_counts = np.zeros(len(names.texts), np.int64), np.zeros(len(names.texts), np.int64)
    count = scanner.queue_count
    name, highest = scanner.queues.name[:count], scanner.queues.queue_id[:count].astype(np.int64)
    np.maximum.at(queues, name, np.where(highest < QUEUES_MAX, highest + 1, 0))
    np.maximum.at(queue_counts, name, highest >= QUEUES_MAX)
    texts = [names.texts[k].encode() for k in entries]
    ids, counted_once = np.zeros(len(entries), np.int32), np.ones(len(entries), np.int64)
    bucket = cells.bucket_of(names.crc[entries], ids, np.zeros_like(counted_once), len(keys))
    columns = np.stack([queues[entries], queue_counts[entries]])
    rows = np.arange(len(entries))
    for target, cell in cells.cut_cells(bucket, texts, rows, ids, rows, counted_once, columns):
        yield handover.Row(handover.TOPICS, target, keys[target], number, cell)


# --------------------------------------------------------------------------------------------------------------- segment reader
# Read a segment by the offsets of the commitlog, and find out from its bytes whether its damage is a stale tail.
#
# It is apart from the listing of segments, which a query does: numpy and numba would double the time of its start.

_PIECE: Final = 16 << 20
"""bytes that are read at once in the search for one that is not zero"""
Watch = Callable[[int, npt.NDArray[np.uint8]], None]
"""Gets all bytes of the log that are read, each piece with its offset"""


class SegmentReader:
    """The file of one segment, which begins at offset ``start`` of the commitlog; a context manager.

    ``watch`` gets all bytes that are read. Up to offset ``ahead`` of the commitlog bytes are loaded ahead of what is viewed, in
    order; with ``let_go`` they leave the page cache again (``files.Reader.read_ahead``). Raises OSError or InputError as
    ``files.Reader`` does.
    """

    def __init__(self, path: str, start: int, watch: Watch | None = None, ahead: int = 0, let_go: bool = False) -> None:
        self._reader, self._start, self._watch = files.Reader(path), start, watch
        if ahead > start:
            self._reader.read_ahead(ahead - start, let_go)

    def read(self, at: int, out: npt.NDArray[np.uint8]) -> None:
        """Fill ``out`` (uint8) with the bytes from offset ``at`` of the commitlog on."""
        self._reader.read_into(at - self._start, out)
        if self._watch is not None:
            self._watch(at, out)

    def view(self, at: int, count: int) -> npt.NDArray[np.uint8] | None:
        """Return ``count`` bytes (uint8) from offset ``at`` on, mapped into memory; None where only ``read`` works."""
        data = self._reader.view(at - self._start, count)
        if data is not None and self._watch is not None:
            self._watch(at, data)
        return data

    def __enter__(self) -> SegmentReader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._reader.__exit__(kind, error, trace)


def find_stale_tail(
    path: str, bounds: tuple[int, int, int], holes: Sequence[DamagedStretch], checkpoint_times: tuple[int, int] = (0, 0)
) -> StaleTail | Doubt | None:
    """Return the stale tail of the segment at ``path``, doubt whether there is one, or None.

    ``bounds`` are phy_offsets: of the segment's first byte, of its file's end, and of its end when it is whole. ``holes`` are
    stretches without a good record that have one behind them. ``checkpoint_times`` are physicMsgTimestamp and
    logicsMsgTimestamp of the store's checkpoint in milliseconds, 0 where unknown. The caller knows that no later segment has
    data: a truncation (``MappedFileQueue.truncateDirtyFiles``, RocketMQ 5.3) deletes all files behind the one that it cuts.
    """
    start, data_end, segment_end = bounds
    with SegmentReader(path, start) as segment:
        return StaleTailSearch(start, data_end, segment_end, segment.read, segment.view, checkpoint_times).find(holes)


def has_data(path: str, size: int) -> bool:
    """Return whether the file at ``path`` of ``size`` bytes holds a byte that is not zero.

    A broker allocates the next segment ahead: that one holds zeros.
    """
    with files.Reader(path) as reader:
        at = reader.next_data(0)
        while at < size:
            piece = np.empty(min(_PIECE, size - at), np.uint8)
            reader.read_into(at, piece)
            if piece.any():
                return True
            at = reader.next_data(at + len(piece))
    return False


# ----------------------------------------------------------------------------------------------------------------------- ranges
# Scan ranges of the commitlog: cells of units, runs of queue offsets, staged index items, and one summary for each range.


@dataclass(frozen=True)
class ScanTask:
    """Scans a task's share of the ranges; leaves rows (``handover.Row``), of each range its SUMMARY last.

    ``plan`` is the plan of ``RangeSpec`` (``handover.write_plan``) that ``tasks`` tasks share. ``units_per_file`` is the size
    of a ConsumeQueue file in units, ``keys[b]`` the number whose Spark hash leads to the partition of bucket b.
    """

    staging: StagingFolder
    plan: str
    tasks: int
    settings: ScanSettings
    units_per_file: int
    keys: tuple[int, ...]
    topics: bool = False
    """whether rows of TOPICS are wanted, for a draft of config/topics.json"""
    log_bytes: int = 0
    """bytes of all ranges of the plan: what no page cache holds is not kept there"""
    delays: bool = False  # whether rows of DELAYED are wanted: ``settings`` then wants the records, too
    filters: ConsumerFilters | None = None
    """where rows of EXTENDED take the place of those of UNITS: by what their bits are set. ``settings`` wants the records"""
    both: bool = False  # with ``filters``: rows of UNITS, too
    lite: frozenset[str] = frozenset()  # with ``filters``: the lite topics

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        scanner = RangeScanner(self.settings)
        for spec in self.specs(batches):
            yield from handover.batches(self._scan(scanner, spec))

    def specs(self, batches: Iterator[pa.RecordBatch]) -> Iterator[RangeSpec]:
        """Yield the ranges of the tasks whose numbers are in ``batches``."""
        planned = [RangeSpec(*fields) for fields in handover.read_plan(self.plan)]
        for task in handover.numbers(batches):
            yield from handover.share(planned, task, self.tasks)

    def _scan(self, scanner: RangeScanner, spec: RangeSpec) -> Iterator[handover.Row]:
        block_path = files.join(self.staging.blocks, f"{spec.number}-{uuid.uuid4().hex}")
        return self.rows(scanner, spec, self.staging.temporary, block_path)

    def rows(
        self, scanner: RangeScanner, spec: RangeSpec, temporary: str, block_path: str, watch: Watch | None = None
    ) -> Iterator[handover.Row]:
        """Yield the rows of the range ``spec``, its SUMMARY last.

        Its index items (dtype STAGED, then a table of dtype MAKER) go to the file ``block_path``, which is written by way of
        the folder ``temporary``. ``watch`` gets the bytes that are read.
        """
        makers, matcher = list[npt.NDArray[np.void]](), Matcher(self.filters) if self.filters is not None else None
        position = Position(self.staging, f"{spec.number}", spec.high - spec.low)

        def seen(at: int, data: npt.NDArray[np.uint8]) -> None:
            position.moved(at - spec.low)
            if watch is not None:
                watch(at, data)

        ahead, let_go = min(spec.high, spec.data_end), files.outgrows_cache(self.log_bytes)
        segment = SegmentReader(spec.path, spec.segment_start, seen, ahead, let_go)
        with segment, files.writing(temporary, block_path) as writer:
            for block in scanner.scan(spec, segment.read, segment.view):
                if len(block.items.staged):
                    writer.append(block.items.staged)
                    # The next block overwrites them.
                    makers.append(block.items.makers.copy())
                if len(block.units.phy_offset):
                    yield from self._cells(scanner, spec, block, matcher)
                yield from batch_rows(scanner, spec.number, block.batches, self.keys)
                if self.delays:
                    yield from delay_rows(block, spec.number, self.keys)
            summary = scanner.summary
            if summary.items:
                table = np.concatenate(makers)
                summary.makers = len(table)
                writer.append(table)
                writer.finish()
                summary.block = block_path
            else:
                writer.abandon()
        if self.topics:
            yield from topic_rows(scanner, spec.number, self.keys)
        yield handover.summary(spec.number, self.done(summary))

    def done(self, summary: RangeSummary) -> bytes:
        """Stage a range's summary, by which the driver sees how far the scan is. Return it as the data of a row."""
        text = summary.to_json().encode()
        files.write_bytes(self.staging.temporary, files.join(self.staging.ranges, f"{summary.number}"), [text])
        return text

    def _cells(self, scanner: RangeScanner, spec: RangeSpec, block: Block, matcher: Matcher | None) -> Iterator[handover.Row]:
        """Yield the rows of the units, at least one, that a block has, and those of their runs."""
        units, buckets = BlockCells(scanner, block.units), len(self.keys)
        if matcher is not None:
            yield from extended_rows(scanner, spec.number, block, matcher, self.keys, self.lite)
        if matcher is None or self.both:
            file_number, pieces = units.pieces(self.units_per_file)
            for number, cell in units.cut(units.bucket(pieces.queue, file_number, buckets), pieces):
                yield handover.Row(handover.UNITS, number, self.keys[number], spec.number, cell)
        yield from self._runs(scanner, spec, units)

    def _runs(self, scanner: RangeScanner, spec: RangeSpec, block: BlockCells) -> Iterator[handover.Row]:
        """Yield rows of RUNS: those of a queue go to one bucket."""
        runs = block.runs()
        scanner.summary.runs += runs.columns.shape[1]
        for number, cell in block.cut(block.bucket(runs.queue, np.zeros_like(runs.queue), len(self.keys)), runs):
            yield handover.Row(handover.RUNS, number, self.keys[number], spec.number, cell)


# ----------------------------------------------------------------------------------------------------------------- draft topics
# Put together what the ranges say about topics, as lines of the draft of config/topics.json.

NAMES_MAX = 20
"""Names of topics in one warning."""


@dataclass
class TopicsResult(handover.TaskResult):
    """What one task drafted."""

    part: str
    """path of a file of sorted lines, each [topic, its entry as text]"""
    delayed: bool
    """whether there are delayed messages"""
    refused: int
    """topics left out because RocketMQ's ``TopicValidator`` (5.3) refuses their names"""
    refused_names: list[str] = field(default_factory=list)
    """the first NAMES_MAX of those"""
    many: list[str] = field(default_factory=list)
    """the first NAMES_MAX topics with queue ids from ``topics.QUEUES_MAX`` on, which are left out"""


@dataclass(frozen=True)
class DraftTopics:
    """Reduces rows of TOPICS to results (``TopicsResult``) and staged lines of the draft (``TopicConfig``, RocketMQ 5.3).

    A topic gets as many queues as the range that saw most of them. ``batch`` are the topics of batch ConsumeQueues.
    """

    staging: StagingFolder
    batch: frozenset[str]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        queues: dict[str, int] = {}
        many: set[str] = set()
        for batch in batches:
            for cell in batch.column(batch.schema.get_field_index("data")).to_pylist():
                pieces = cells.unpack(cell, cells.TOPIC_COLUMNS)
                for raw, count, above in zip(pieces.names, *pieces.columns.tolist(), strict=True):
                    name = raw.decode()
                    queues[name] = max(queues.get(name, 0), count)
                    if above:
                        many.add(name)
        wanted = sorted(name for name in queues if not is_own(name))
        # No client could subscribe to a name that TopicValidator refuses, and one such as @type means something else to the
        # broker's JSON parser.
        usual = [name for name in wanted if is_usual(name)]
        if queues:
            part = files.join(self.staging.plans, f"topics-{uuid.uuid4().hex}")
            drafted = [[name, topic_entry(name, queues[name], name in self.batch)] for name in usual if queues[name]]
            files.write_bytes(self.staging.temporary, part, [f"{json.dumps(line)}\n".encode() for line in drafted])
            refused = [name for name in wanted if not is_usual(name)]
            result = TopicsResult(
                part,
                queues.get(SCHEDULE_TOPIC, 0) > 0,
                len(refused),
                refused[:NAMES_MAX],
                [name for name in usual if name in many][:NAMES_MAX],
            )
            yield handover.batch([result])
