"""Rows of scanned ranges in files, and their way back into a shuffle whose buckets may be others by now."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketmq_reindex.storage_format.digest import new_digest
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.queue import cells
from rocketmq_reindex.storage_format.queue.grouping import bucket_of, cut_cells, mix, rows_of
from rocketmq_reindex.udfs import files, schemas

Keys = npt.NDArray[np.uint64]
Int64s = npt.NDArray[np.int64]
_COLUMNS = {
    schemas.UNITS: cells.UNIT_COLUMNS,
    schemas.RUNS: cells.RUN_COLUMNS,
    schemas.BATCHES: cells.BATCH_COLUMNS,
    schemas.BATCH_RUNS: cells.BATCH_RUN_COLUMNS,
    schemas.TOPICS: cells.TOPIC_COLUMNS,
}
_HELD_BYTES = 4 << 20


class RowWriter:
    """Writes rows as Arrow streams, one behind the other, a few MiB each."""

    def __init__(self, temporary: str, path: str) -> None:
        self.path = path
        self._writer = files.Writer(temporary, path)
        self._hasher = new_digest()
        self._held: list[schemas.Row] = []
        self._bytes = 0
        self.rows = 0

    def add(self, row: schemas.Row) -> None:
        self._held.append(row)
        self._bytes += len(row[4])
        self.rows += 1
        if self._bytes >= _HELD_BYTES:
            self._flush()

    def _flush(self) -> None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schemas.ROWS) as stream:
            for batch in schemas.batches(self._held):
                stream.write_batch(batch)
        data = memoryview(sink.getvalue())
        self._hasher.update(data)
        self._writer.append(data)
        self._held, self._bytes = [], 0

    def finish(self) -> str:
        """The file's digest; empty when there was no row, and so no file."""
        if not self.rows:
            self._writer.abandon()
            return ""
        if self._held:
            self._flush()
        self._writer.finish()
        return self._hasher.digest().hex()

    def abandon(self) -> None:
        self._writer.abandon()


def stored_rows(path: str, digest: str) -> Iterator[schemas.Row]:
    """The rows that a RowWriter left. Raises InputError when they are not as they were written."""
    data = files.read_bytes(path)
    if new_digest([data]).digest().hex() != digest:
        raise InputError(f"{escape(path)}: is not as an earlier run wrote it: remove the folder that data/ lies in")
    source = pa.BufferReader(data)
    while source.tell() < len(data):
        for batch in pa.ipc.open_stream(source):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def queue_keys(names: Iterable[bytes], queue_ids: npt.NDArray[np.int32]) -> Keys:
    """A number for each queue. Few queues share one, and those are then written together."""
    crc = np.fromiter((zlib.crc32(name) for name in names), np.uint64, len(queue_ids))
    return mix((crc << np.uint64(32)) | queue_ids.astype(np.uint32).astype(np.uint64))


def file_keys(queues: Keys, file_numbers: Int64s) -> Keys:
    """A number for each file of queues whose ``queue_keys`` are given."""
    with np.errstate(over="ignore"):
        return mix(queues + file_numbers.astype(np.uint64))


def among(keys: Keys, some: Keys) -> npt.NDArray[np.bool_]:
    """Which of ``keys`` are in ``some``, which is sorted."""
    found: npt.NDArray[np.bool_] = np.searchsorted(some, keys, "left") < np.searchsorted(some, keys, "right")
    return found


def pack_keys(*some: Keys) -> bytes:
    """Several arrays of keys as the content of one file."""
    return b"".join([np.array([len(some), *map(len, some)], np.int64).tobytes(), *(keys.tobytes() for keys in some)])


def unpack_keys(data: bytes) -> list[Keys]:
    """The inverse of ``pack_keys``."""
    count = int(np.frombuffer(data, np.int64, 1)[0])
    lengths = np.frombuffer(data, np.int64, count, 8)
    keys = np.frombuffer(data, np.uint64, offset=8 + 8 * count)
    return np.split(keys, np.cumsum(lengths)[:-1])


@dataclass(frozen=True)
class Wanted:
    """ConsumeQueue files that are to be written: all of some queues, and single ones. Keys are sorted and unique."""

    queues: Keys
    files: Keys

    def __bool__(self) -> bool:
        return bool(len(self.queues) or len(self.files))

    def having(self, queues: Keys, file_numbers: Int64s | None) -> npt.NDArray[np.bool_]:
        """Which files are wanted; without numbers, which queues as a whole."""
        found = among(queues, self.queues)
        return found if file_numbers is None else found | among(file_keys(queues, file_numbers), self.files)


@dataclass(frozen=True)
class Touched:
    """What has units of some ranges. Keys are sorted and unique."""

    queues: Keys
    """of any kind"""
    files: Keys
    """of plain queues in order"""
    batches: Keys
    """batch queues: one file more or less at the head moves all of their units"""

    @classmethod
    def by(cls, rows: Iterable[schemas.Row], units_per_file: int) -> Touched:
        """As the runs among the rows of a range say."""
        found = cls.union([])
        parts = [found]
        for kind, _, _, _, cell, _ in rows:
            if kind == schemas.RUNS:
                pieces = cells.unpack(cell, cells.RUN_COLUMNS)
                keys = queue_keys(pieces.names, pieces.queue_ids)
                first = pieces.columns[0] // units_per_file
                spans = (pieces.columns[0] + pieces.columns[1] - 1) // units_per_file - first + 1
                numbers = file_keys(np.repeat(np.repeat(keys, pieces.counts), spans), rows_of(first, spans))
                parts.append(cls(keys, numbers, found.batches))
            elif kind == schemas.BATCH_RUNS:
                pieces = cells.unpack(cell, cells.BATCH_RUN_COLUMNS)
                keys = queue_keys(pieces.names, pieces.queue_ids)
                parts.append(cls(keys, found.files, keys))
        return cls.union(parts)

    @classmethod
    def union(cls, parts: Sequence[Touched]) -> Touched:
        none = np.zeros(0, np.uint64)
        columns = zip(*((part.queues, part.files, part.batches) for part in parts), strict=True) if parts else [(none,)] * 3
        return cls(*(np.unique(np.concatenate(column)) for column in columns))


def rows_again(
    rows: Iterable[schemas.Row], number: int, keys: tuple[int, ...], units_per_file: int, wanted: Wanted | None = None
) -> Iterator[schemas.Row]:
    """Stored rows as a scan would hand them on now, as range ``number``: for these buckets, of the wanted files alone."""
    for kind, bucket, _, _, cell, place in rows:
        pieces = cells.unpack(cell, _COLUMNS[kind])
        queues = queue_keys(pieces.names, pieces.queue_ids)
        if kind == schemas.BATCHES:
            # Its bucket is the queue's alone (``batch_rows``).
            if wanted is None or wanted.having(queues, None).all():
                yield kind, bucket, keys[bucket % len(keys)], number, cell, place
            continue
        counts = pieces.counts.astype(np.int64)
        starts = np.cumsum(counts) - counts
        part = pieces.columns[0][starts] // units_per_file if kind == schemas.UNITS else np.zeros_like(starts)
        some = np.arange(len(starts))
        if wanted is not None:
            some = np.flatnonzero(wanted.having(queues, part))
        crc = np.fromiter((zlib.crc32(pieces.names[k]) for k in some), np.uint32, len(some))
        target = bucket_of(crc, pieces.queue_ids[some], part[some], len(keys))
        for where, again in cut_cells(
            target, pieces.names, some, pieces.queue_ids[some], starts[some], counts[some], pieces.columns
        ):
            yield kind, where, keys[where], number, again, place
