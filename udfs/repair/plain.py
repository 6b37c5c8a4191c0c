"""Write the segments of a plain log out of the records of another one, and the table of their offsets."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from rocketmq_reindex import files
from rocketmq_reindex.files.digests import UsedDigest
from rocketmq_reindex.storage_format import digest as storage_format_digest, layouts, repair
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.record import columns as m, layout as r, making
from rocketmq_reindex.storage_format.record.making import Texts
from rocketmq_reindex.storage_format.record.text_columns import read_texts
from rocketmq_reindex.storage_format.scan.ranges import Segment
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.repair.places import Moves, PlannedSegment, Rows, read_rows
from rocketmq_reindex.udfs.scan.segments import RecordBytes
from rocketmq_reindex.udfs.staging import Position, StagingFolder

Int64s = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
_BYTES: Final = 16 << 20
"""bytes of records that are held at once, unless one is longer"""

TABLE: Final = pa.schema([
    ("topic", pa.string()), ("queueId", pa.int32()), ("consumeQueueOffset", pa.int64()), ("commitLogOffset", pa.int64()),
    ("oldCommitLogOffset", pa.int64()),
])  # fmt: skip
"""Of each record; one Parquet file for each new segment."""


class ToldKind(NamedTuple):
    """Records of one kind that are told: how many, and the old offset of the first, -1 for none."""

    records: int = 0
    first: int = -1

    def and_(self, more: ToldKind) -> ToldKind:
        """Return both together; ``more`` lie behind these."""
        return ToldKind(self.records + more.records, self.first if self.records else more.first)

    @classmethod
    def where(cls, chosen: npt.NDArray[np.bool_], old: Int64s) -> ToldKind:
        """Return those that are ``chosen`` of records at these old offsets."""
        at = np.flatnonzero(chosen)
        return cls(len(at), int(old[at[0]])) if len(at) else cls()


@dataclass
class PlainSegment(handover.TaskResult):
    """A segment that was written: entries of the manifest, and what is told of its records, as the fields of ``ToldKind``."""

    entries: list[dict[str, Any]]
    records: int
    halves: list[int] = field(default_factory=list)
    """records whose half message is found"""
    lost_halves: list[int] = field(default_factory=list)
    """records whose half message the old log does not have"""
    wrong: list[int] = field(default_factory=list)
    """records with a wrong ``__CRC32#``"""
    ids: list[int] = field(default_factory=list)
    """records with a property that names an old offset"""


@dataclass(frozen=True)
class WritePlain:
    """Writes a task's share of the new segments, and the table of their offsets; leaves results (``PlainSegment``).

    ``plan`` is the plan of the old log's segments, and of the new ones (``PlannedSegment``). ``need_crc``: fillers have
    ``__CRC32#`` whatever the records beside them have.
    """

    staging: StagingFolder
    plan: str
    tasks: int
    segment_size: int
    need_crc: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        old, new = handover.read_plan(self.plan)
        planned = [PlannedSegment(*fields) for fields in new]
        records, moves = RecordBytes([Segment(*fields) for fields in old]), Moves(planned)
        for task in handover.numbers(batches):
            numbers = handover.share(range(len(planned)), task, self.tasks)
            yield handover.batch([_Written(self, planned[k], records, moves).write() for k in numbers])


class _Written:
    """One new segment on its way."""

    def __init__(self, task: WritePlain, planned: PlannedSegment, records: RecordBytes, moves: Moves) -> None:
        self._task, self._planned, self._records, self._moves = task, planned, records, moves
        self._name = f"{planned.start:020d}"
        self._digest, self._at = UsedDigest(), 0
        self._told = {name: ToldKind() for name in ("halves", "lost_halves", "wrong", "ids")}
        self._demands = repair.Demands(property_crc=task.need_crc)

    def write(self) -> PlainSegment:
        """Write the segment, and its part of the table."""
        staging, size, start = self._task.staging, self._task.segment_size, self._planned.start
        relative, table = f"{layouts.COMMITLOG}/{self._name}", f"{layouts.MOVED}/{self._name}.parquet"
        position = Position(staging, self._name, size)
        with (
            files.writing(staging.temporary, files.join(staging.tree, relative)) as writer,
            files.writing(staging.temporary, files.join(staging.tree, table)) as table_writer,
        ):
            sink = _Sink(table_writer)
            with pq.ParquetWriter(sink, TABLE, compression="zstd") as parquet:
                for part in _parts(self._planned.path):
                    if part["old"][0] < 0:
                        for row in part:
                            self._put(writer, int(row["new"]) - start, self._filler(row))
                        continue
                    records, batch = self._moved(part)
                    parquet.write_batch(batch)
                    self._put(writer, int(part["new"][0]) - start, records.data)
                    position.moved(self._at)
            if not self._planned.last:
                blank = (size - self._at).to_bytes(4, "big") + r.MAGIC_BLANK.to_bytes(4, "big", signed=True)
                self._put(writer, self._at, np.frombuffer(blank, np.uint8))
            used, digest = self._digest.finish()
            writer.finish(size)
            table_writer.finish()
        entries = [
            {"path": relative, "size": size, "used": used, "digest": digest},
            {"path": table, "size": sink.size, "used": sink.size, "digest": sink.digest.digest().hex()},
        ]
        return PlainSegment(entries, self._planned.records, **{name: list(told) for name, told in self._told.items()})

    def _put(self, writer: files.Writer, at: int, data: Bytes) -> None:
        """Write bytes right behind those before them: zeros stay a hole, where the file system has holes."""
        assert at == self._at
        if used := self._digest.take(data):
            writer.write_at(at, data[:used])
        self._at += len(data)

    def _filler(self, row: np.void) -> Bytes:
        return np.frombuffer(repair.filler(int(row["new"]), int(row["size"]), int(row["time"]), self._demands), np.uint8)

    def _moved(self, rows: Rows) -> tuple[Texts, pa.RecordBatch]:
        """Return records as they are in the new log, and their rows of the table."""
        old, new = rows["old"].astype(np.int64), rows["new"].astype(np.int64)
        records = self._records.read(old, rows["size"].astype(np.int64))
        fields = m.read_fields(records.data, 0, records.offsets[:-1], False)
        prepared, of_ids = (
            fields[m.PREPARED_OFFSET],
            making.offsets_in_ids(records.data, fields[m.PROPS_START], fields[m.PROPS_END]),
        )
        named = np.where(prepared != 0, prepared, -1)
        halves = self._moves.find(named)
        is_lost = (prepared != 0) & (halves < 0)
        failed, wrong = making.move(records, new, np.where(is_lost, 0, halves))
        if failed >= 0:
            raise InputError(f"offset {old[failed]} of the log: is no record any more: did it change meanwhile?")
        for name, chosen in (
            ("halves", halves >= 0), ("lost_halves", is_lost), ("wrong", wrong), ("ids", self._moves.find(of_ids) >= 0)
        ):  # fmt: skip
            self._told[name] = self._told[name].and_(ToldKind.where(chosen, old))
        topics = read_texts(records.data, fields[m.TOPIC_START], fields[m.TOPIC_END])
        columns = [
            pa.Array.from_buffers(pa.string(), len(old), [None, pa.py_buffer(topics.offsets), pa.py_buffer(topics.data)]),
            pa.array(fields[m.QUEUE_ID].astype(np.int32)), pa.array(fields[m.QUEUE_OFFSET].copy()),
            pa.array(new), pa.array(old),
        ]  # fmt: skip
        return records, pa.RecordBatch.from_arrays(columns, schema=TABLE)


def _parts(path: str) -> Iterator[Rows]:
    """Yield the rows of a segment: fillers by themselves, and of records as many as may be held."""
    for rows in read_rows(path):
        for run in np.split(rows, np.flatnonzero(np.diff(rows["old"] < 0)) + 1):
            ends, first = np.cumsum(run["size"], dtype=np.int64), 0
            while first < len(run):
                before = int(ends[first - 1]) if first else 0
                stop = max(first + 1, int(np.searchsorted(ends, before + _BYTES, side="right")))
                yield run[first:stop]
                first = stop


class _Sink(io.RawIOBase):
    """Where a Parquet file goes: a file that appears when it is whole."""

    def __init__(self, writer: files.Writer) -> None:
        super().__init__()
        self._writer = writer
        self.size, self.digest = 0, storage_format_digest.new_digest()

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.size

    def write(self, data: Any) -> int:
        """Append bytes."""
        view = memoryview(data).cast("B")
        self._writer.append(view)
        self.digest.update(view)
        self.size += len(view)
        return len(view)
