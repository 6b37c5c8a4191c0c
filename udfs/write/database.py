"""Write the tables of a RocksDB database of ConsumeQueues: units spooled by queue, then tables in the order of their keys.

Rows come by queue in the order of hashes, a database has its keys in order, and nobody knows the queues before. So each task
of the shuffle spools the units of its queues, and tells which these are, in order. The driver merges what all tasks tell, and
cuts it into stretches of equally many units: each is a table, whatever the tasks were.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketmq_reindex import files
from rocketmq_reindex.files.rocksdb import library, write_table
from rocketmq_reindex.storage_format.queue import cells, consume_queue, rocksdb
from rocketmq_reindex.storage_format.queue.rocksdb import SPOOLED, QueueName
from rocketmq_reindex.storage_format.topics import LMQ_PREFIX
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.placements import Placements, placement_table
from rocketmq_reindex.udfs.scan import extended as scanned
from rocketmq_reindex.udfs.staging import StagingFolder
from rocketmq_reindex.udfs.write.queues import LINES_MAX

TABLE_UNITS: int = 4_000_000
"""units of one table: some 64 MiB"""
_BATCH: Final = 1 << 15
"""units that are put at once"""
_ENDS: Final = 1 << 12
_OPEN: Final = 64
_LIGHT: Final = LMQ_PREFIX.encode()
Rows = npt.NDArray[np.int64]


# -------------------------------------------------------------------------------------------------------------------- spooling


@dataclass
class SpooledQueue:
    """A queue whose units lie in ``spool``, in the order of their queue offsets.

    ``pieces`` are (byte, units) of each stretch there; ``first`` and ``last`` are (phy_offset, queue offset) of units. A queue
    without a unit has no ``spool``, and ends with ``last`` all the same.
    """

    topic: str
    queue_id: int
    spool: str = ""
    pieces: list[list[int]] = field(default_factory=list)
    first: tuple[int, int] = (0, 0)
    last: tuple[int, int] = (-1, -1)

    @property
    def name(self) -> QueueName:
        """The queue as keys have it."""
        return QueueName(self.topic.encode("utf-8", "surrogateescape"), self.queue_id)

    @property
    def key(self) -> bytes:
        """What lines of queues are sorted by: the keys of their units have the same order."""
        return rocksdb.unit_prefix(self.name)

    @property
    def units(self) -> int:
        """How many units it has."""
        return sum(count for _, count in self.pieces)

    def to_line(self) -> bytes:
        """Return it as one line."""
        return json.dumps(list(vars(self).values())).encode() + b"\n"

    @staticmethod
    def from_line(line: bytes) -> SpooledQueue:
        """Return the inverse of ``to_line``."""
        topic, queue_id, spool, pieces, first, last = json.loads(line)
        return SpooledQueue(topic, queue_id, spool, pieces, (first[0], first[1]), (last[0], last[1]))


def key_of(line: bytes) -> bytes:
    """Return the key of a queue of its line, without the line's end."""
    return SpooledQueue.from_line(line).key


@dataclass
class SpoolResult(handover.TaskResult):
    """What one task spooled: ``part`` has a line for each of its queues, in order."""

    part: str
    units: int = 0


@dataclass(frozen=True)
class SpoolUnits:
    """Reduces rows of EXTENDED to spooled units, with ``words`` of bits in each row; leaves results (``SpoolResult``).

    Rows come by bucket and ``sort_key``. ``placements`` is the plan of the queues out of order (``PlanWriter``), or "".
    ``lite``: of records of these topics alone, in all queues that they name (``CombineConsumeQueueStore``, 5.5.1). Where it is
    empty, the lite topics are not known: of light queues by their names. None: of all.
    """

    staging: StagingFolder
    placements: str
    words: int
    lite: frozenset[bytes] | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        odd, lines = Placements(self.placements, placement_table), list[tuple[bytes, bytes]]()
        path, at, units = files.join(self.staging.tables, f"spool-{uuid.uuid4().hex}"), 0, 0
        with files.writing(self.staging.temporary, path) as writer:
            for cells_of_bucket in handover.by_bucket(batches):
                queues: dict[tuple[bytes, int], SpooledQueue] = {}
                for cell in cells_of_bucket:
                    pieces = cells.unpack(cell.data, scanned.COLUMNS + self.words)
                    key = pieces.names[0], int(pieces.queue_ids[0])
                    placement, rows = odd.get(key), pieces.columns[: scanned.COLUMNS]
                    if placement is not None:
                        rows = placement.apply(rows)
                        rows = rows[:, np.argsort(rows[0], kind="stable")]
                    rows = rows[: scanned.IS_LIGHT, self._taken(key[0], rows[scanned.IS_LIGHT])]
                    if rows.shape[1]:
                        queue = queues.setdefault(key, SpooledQueue(key[0].decode(), key[1], path))
                        self._take(queue, rows, at)
                        writer.append(rocksdb.spooled(*rows).view(np.uint8))
                        at, units = at + rows.shape[1] * SPOOLED.itemsize, units + rows.shape[1]
                lines += [(queue.key, queue.to_line()) for queue in queues.values()]
                if len(lines) >= LINES_MAX:
                    yield self._result(lines, units)
                    lines, units = [], 0
            if at:
                writer.finish()
            else:
                writer.abandon()
        if lines:
            yield self._result(lines, units)

    def _result(self, lines: list[tuple[bytes, bytes]], units: int) -> pa.RecordBatch:
        part = files.join(self.staging.tables, f"queues-{uuid.uuid4().hex}")
        files.write_bytes(self.staging.temporary, part, [line for _, line in sorted(lines)])
        return handover.batch([SpoolResult(part, units)])

    def _taken(self, topic: bytes, is_light: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which units of a queue the database has."""
        if self.lite:
            taken: npt.NDArray[np.bool_] = (is_light == scanned.OF_LITE) | ((is_light == 0) & (topic in self.lite))
            return taken
        return np.full(len(is_light), self.lite is None or topic.startswith(_LIGHT))

    def _take(self, queue: SpooledQueue, rows: Rows, at: int) -> None:
        """Note rows, at rising positions, that are spooled from the byte ``at`` on."""
        steps = np.diff(rows[0], prepend=queue.last[1] if queue.pieces else rows[0, 0] - 1)
        # Where the database has units of some records alone, others leave gaps.
        if (steps < 1).any() or ((steps > 1).any() and not self.lite):
            raise consume_queue.UnitGapError(f"{queue.topic}/{queue.queue_id}: units are missing")
        if not queue.pieces:
            queue.first = int(rows[1, 0]), int(rows[0, 0])
        queue.last = int(rows[1, -1]), int(rows[0, -1])
        if queue.pieces and queue.pieces[-1][0] + queue.pieces[-1][1] * SPOOLED.itemsize == at:
            queue.pieces[-1][1] += rows.shape[1]
        else:
            queue.pieces.append([at, rows.shape[1]])


# ---------------------------------------------------------------------------------------------------------------------- tables


@dataclass(frozen=True)
class UnitStretch:
    """The units of one table: ``units`` from the ``skip``-th on of the queue whose line begins at byte ``at`` of the list."""

    at: int
    skip: int
    units: int


def cut(lines: Iterable[bytes], table_units: int) -> Iterator[tuple[bytes, UnitStretch | None]]:
    """Yield the lines of the list of queues, in order, each with the stretch that ends in it, if any.

    A queue that ends several stretches comes with each; its line is then empty but once. All have ``table_units`` units but the
    last one.
    """
    at = begin = skip = taken = 0
    for line in lines:
        units = SpooledQueue.from_line(line).units
        behind, shown = 0, line
        while taken + units - behind >= table_units:
            behind += table_units - taken
            yield shown, UnitStretch(begin, skip, table_units)
            begin, skip, taken, shown = at, behind, 0, b""
        taken += units - behind
        if shown:
            yield shown, None
        at += len(line)
    if taken:
        yield b"", UnitStretch(begin, skip, taken)


@dataclass
class TableResult(handover.TaskResult):
    """A table that a task wrote."""

    family: str
    number: int
    path: str


@dataclass(frozen=True)
class WriteTables:
    """Writes the tables of a database: number 0 that of the ends of queues, others those of units; leaves ``TableResult``.

    ``queues`` is the list of all queues (``SpooledQueue``), in order, ``plan`` that of the stretches (``UnitStretch``).
    ``checkpoint`` is how far the log is dispatched, -1 for not at all; ``log_start`` where it begins.
    """

    staging: StagingFolder
    queues: str
    plan: str
    checkpoint: int
    log_start: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        library()
        stretches = [UnitStretch(*fields) for fields in handover.read_plan(self.plan)]
        for number in handover.numbers(batches):
            path = files.join(self.staging.tables, f"{number}-{uuid.uuid4().hex}.sst")
            family = rocksdb.UNITS if number else rocksdb.OFFSETS
            if number:
                write_table(path, self._units(stretches[number - 1]), compressed=True)
            else:
                write_table(path, self._ends(), compressed=False)
            yield handover.batch([TableResult(family, number, path)])

    def _units(self, stretch: UnitStretch) -> Iterator[tuple[list[bytes], list[bytes]]]:
        skip, left = stretch.skip, stretch.units
        with open(self.queues, "rb") as lines, contextlib.closing(_Spools()) as spools:
            lines.seek(stretch.at)
            while left:
                queue = SpooledQueue.from_line(next(lines))
                for rows in spools.units(queue, skip, left):
                    left -= len(rows)
                    yield rocksdb.pairs_of(queue.key, rows)
                skip = 0

    def _ends(self) -> Iterator[tuple[list[bytes], list[bytes]]]:
        pairs = list[tuple[bytes, bytes]]()
        checkpoint = rocksdb.CHECKPOINT_KEY, rocksdb.checkpoint_value(self.checkpoint)
        is_due = self.checkpoint >= 0
        with open(self.queues, "rb") as lines:
            for _, of_topic in groupby(map(SpooledQueue.from_line, lines), key=lambda queue: queue.topic):
                ends = dict(end for queue in of_topic for end in self._ends_of(queue))
                if is_due and ends and max(ends) >= checkpoint[0]:
                    # A broker writes it behind the ends of a batch.
                    ends[checkpoint[0]], is_due = checkpoint[1], False
                pairs += sorted(ends.items())
                if len(pairs) >= _ENDS:
                    yield _columns(pairs)
                    pairs = []
        if is_due:
            pairs.append(checkpoint)
        if pairs:
            yield _columns(pairs)

    def _ends_of(self, queue: SpooledQueue) -> Iterator[tuple[bytes, bytes]]:
        """Yield both ends of a queue as a broker has them that was asked for the first one.

        Where all of its records have expired, it begins behind its last unit, with the log
        (``RocksDBConsumeQueueOffsetTable.correctMinCqOffset``, 5.3.3).
        """
        first = queue.first if queue.pieces else (self.log_start, queue.last[1] + 1)
        for is_max, (phy_offset, queue_offset) in ((True, queue.last), (False, first)):
            yield rocksdb.end_key(queue.name, is_max), rocksdb.end_value(phy_offset, queue_offset)


def _columns(pairs: list[tuple[bytes, bytes]]) -> tuple[list[bytes], list[bytes]]:
    return [key for key, _ in pairs], [value for _, value in pairs]


class _Spools:
    """The spools of all tasks; a few are open, since neighbours in the order of keys come from anywhere."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, files.Reader] = OrderedDict()

    def units(self, queue: SpooledQueue, skip: int, most: int) -> Iterator[rocksdb.Units]:
        """Yield the units of a queue from the ``skip``-th on, at most so many, some at once."""
        for at, count in queue.pieces:
            low = min(skip, count)
            skip -= low
            while low < count and most:
                taken = min(_BATCH, count - low, most)
                data = self._reader(queue.spool).read(at + low * SPOOLED.itemsize, taken * SPOOLED.itemsize)
                yield np.frombuffer(data, SPOOLED)
                low, most = low + taken, most - taken

    def _reader(self, path: str) -> files.Reader:
        if path not in self._open:
            if len(self._open) >= _OPEN:
                self._open.popitem(last=False)[1].__exit__(None, None, None)
            self._open[path] = files.Reader(path).__enter__()
        self._open.move_to_end(path)
        return self._open[path]

    def close(self) -> None:
        """Close all."""
        for reader in self._open.values():
            reader.__exit__(None, None, None)
