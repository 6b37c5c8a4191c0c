"""Rows of scanned ranges in files, and how they come back into a shuffle that may have other buckets."""

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
    """Writes rows into the file ``path`` as Arrow streams of ``schemas.ROWS``, one behind the other, each of a few MiB."""

    def __init__(self, temporary: str, path: str) -> None:
        self.path = path
        self._writer = files.Writer(temporary, path)
        self._hasher = new_digest()
        self._held: list[schemas.Row] = []
        self._bytes = 0
        self.rows = 0

    def add(self, row: schemas.Row) -> None:
        """Write one more row."""
        self._held.append(row)
        self._bytes += len(row.data)
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
        """Finish the file; returns its digest in hex, or "" when there was no row, and then there is no file."""
        if not self.rows:
            self._writer.abandon()
            return ""
        if self._held:
            self._flush()
        self._writer.finish()
        return self._hasher.digest().hex()

    def abandon(self) -> None:
        """Leave no file."""
        self._writer.abandon()


def stored_rows(path: str, digest: str) -> Iterator[schemas.Row]:
    """The rows that a ``RowWriter`` left. Raises InputError when the file no longer has that digest."""
    data = files.read_bytes(path, files.MAPPED_MAX)
    if new_digest([data]).digest().hex() != digest:
        raise InputError(f"{escape(path)}: is not as an earlier run wrote it: remove the folder that data/ lies in")
    source = pa.BufferReader(data)
    while source.tell() < len(data):
        for batch in pa.ipc.open_stream(source):
            yield from schemas.rows_of(batch)


def queue_keys(names: Iterable[bytes], queue_ids: npt.NDArray[np.int32]) -> Keys:
    """A number for each queue (uint64), from topics in UTF-8 and queue ids; queues that share one are written together."""
    crc = np.fromiter((zlib.crc32(name) for name in names), np.uint64, len(queue_ids))
    return mix((crc << np.uint64(32)) | queue_ids.astype(np.uint32).astype(np.uint64))


def file_keys(queues: Keys, file_numbers: Int64s) -> Keys:
    """A number for each file (uint64), from the ``queue_keys`` of queues and the numbers of files in them."""
    with np.errstate(over="ignore"):
        return mix(queues + file_numbers.astype(np.uint64))


def among(keys: Keys, some: Keys) -> npt.NDArray[np.bool_]:
    """For each of ``keys`` whether it is in ``some``, which is sorted (bool)."""
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
    """ConsumeQueue files to write: all files of some queues, and single files. Keys are sorted and unique."""

    queues: Keys
    files: Keys

    def __bool__(self) -> bool:
        return bool(len(self.queues) or len(self.files))

    def having(self, queues: Keys, file_numbers: Int64s | None) -> npt.NDArray[np.bool_]:
        """For each file, by the key of its queue and its number, whether it is wanted; without numbers for each queue."""
        found = among(queues, self.queues)
        return found if file_numbers is None else found | among(file_keys(queues, file_numbers), self.files)


@dataclass(frozen=True)
class Touched:
    """The queues and files that have units of some ranges. Keys are sorted and unique."""

    queues: Keys
    """queues of either kind"""
    files: Keys
    """files of plain queues, as if all were in order"""
    batches: Keys
    """batch queues: a file more or less at the head moves all of their units"""

    @classmethod
    def by(cls, rows: Iterable[schemas.Row], units_per_file: int) -> Touched:
        """From the runs among the rows of a range; ``units_per_file`` is the size of a plain queue's file in units."""
        found = cls.union([])
        parts = [found]
        for row in rows:
            if row.kind == schemas.RUNS:
                pieces = cells.unpack(row.data, cells.RUN_COLUMNS)
                keys = queue_keys(pieces.names, pieces.queue_ids)
                first = pieces.columns[0] // units_per_file
                spans = (pieces.columns[0] + pieces.columns[1] - 1) // units_per_file - first + 1
                numbers = file_keys(np.repeat(np.repeat(keys, pieces.counts), spans), rows_of(first, spans))
                parts.append(cls(keys, numbers, found.batches))
            elif row.kind == schemas.BATCH_RUNS:
                pieces = cells.unpack(row.data, cells.BATCH_RUN_COLUMNS)
                keys = queue_keys(pieces.names, pieces.queue_ids)
                parts.append(cls(keys, found.files, keys))
        return cls.union(parts)

    @classmethod
    def union(cls, parts: Sequence[Touched]) -> Touched:
        """All that any of the parts has."""
        none = np.zeros(0, np.uint64)
        columns = zip(*((part.queues, part.files, part.batches) for part in parts), strict=True) if parts else [(none,)] * 3
        return cls(*(np.unique(np.concatenate(column)) for column in columns))


def rows_again(
    rows: Iterable[schemas.Row], number: int, keys: tuple[int, ...], units_per_file: int, wanted: Wanted | None = None
) -> Iterator[schemas.Row]:
    """Stored rows as a scan would leave them in this run: as range ``number``, for these buckets, of the wanted files only.

    ``keys[b]`` is the key of bucket b, ``units_per_file`` the size of a plain queue's file in units.
    """
    for row in rows:
        kind = row.kind
        pieces = cells.unpack(row.data, _COLUMNS[kind])
        queues = queue_keys(pieces.names, pieces.queue_ids)
        if kind == schemas.BATCHES:
            # Such a cell has one queue, and so has its bucket (``batch_rows``).
            if wanted is None or wanted.having(queues, None).all():
                yield row._replace(key=keys[row.bucket % len(keys)], range_number=number)
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
            yield schemas.Row(kind, where, keys[where], number, again, row.sort_key)
