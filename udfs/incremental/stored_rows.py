"""Rows of scanned ranges in files, how they come back, and what an incremental build takes over of the earlier one."""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketmq_reindex import files
from rocketmq_reindex.storage_format import digest as storage_format_digest, errors, showing
from rocketmq_reindex.storage_format.queue import cells
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.incremental.scan_store import ScanEntry, ScanStore
from rocketmq_reindex.udfs.staging import StagingFolder
from rocketmq_reindex.udfs.write.queues import FilesResult

# ------------------------------------------------------------------------------------------------------------------ stored rows
# Rows of scanned ranges in files, and how they come back into a shuffle that may have other buckets.

Keys = npt.NDArray[np.uint64]
Int64s = npt.NDArray[np.int64]
_COLUMNS = {
    handover.UNITS: cells.UNIT_COLUMNS,
    handover.RUNS: cells.RUN_COLUMNS,
    handover.BATCHES: cells.BATCH_COLUMNS,
    handover.BATCH_RUNS: cells.BATCH_RUN_COLUMNS,
    handover.TOPICS: cells.TOPIC_COLUMNS,
}
_HELD_BYTES = 4 << 20


class RowWriter:
    """Writes rows into the file ``path`` as Arrow streams of ``handover.ROWS``, one behind the other, each of a few MiB."""

    def __init__(self, temporary: str, path: str) -> None:
        self.path = path
        self._writer = files.Writer(temporary, path)
        self._hasher = storage_format_digest.new_digest()
        self._held: list[handover.Row] = []
        self._bytes = 0
        self.rows = 0

    def add(self, row: handover.Row) -> None:
        """Write one more row."""
        self._held.append(row)
        self._bytes += len(row.data)
        self.rows += 1
        if self._bytes >= _HELD_BYTES:
            self._flush()

    def _flush(self) -> None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, handover.ROWS) as stream:
            for batch in handover.batches(self._held):
                stream.write_batch(batch)
        data = memoryview(sink.getvalue())
        self._hasher.update(data)
        self._writer.append(data)
        self._held, self._bytes = [], 0

    def finish(self) -> str:
        """Finish the file. Return its digest in hex, or "" when there was no row, and then there is no file."""
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


def stored_rows(path: str, digest: str) -> Iterator[handover.Row]:
    """Yield the rows that a ``RowWriter`` left. Raises InputError when the file no longer has that digest."""
    data = files.read_bytes(path, files.MAPPED_MAX)
    if storage_format_digest.new_digest([data]).digest().hex() != digest:
        raise errors.InputError(
            f"{showing.escape(path)}: is not as an earlier run wrote it: remove the folder that data/ lies in"
        )
    source = pa.BufferReader(data)
    while source.tell() < len(data):
        for batch in pa.ipc.open_stream(source):
            yield from handover.rows_of(batch)


def queue_keys(names: Iterable[bytes], queue_ids: npt.NDArray[np.int32]) -> Keys:
    """Return a number for each queue (uint64), from topics in UTF-8 and queue ids; queues that share one are written
    together."""
    crc = np.fromiter((zlib.crc32(name) for name in names), np.uint64, len(queue_ids))
    return cells.mix((crc << np.uint64(32)) | queue_ids.astype(np.uint32).astype(np.uint64))


def file_keys(queues: Keys, file_numbers: Int64s) -> Keys:
    """Return a number for each file (uint64), from the ``queue_keys`` of queues and the numbers of files in them."""
    with np.errstate(over="ignore"):
        return cells.mix(queues + file_numbers.astype(np.uint64))


def among(keys: Keys, sorted_keys: Keys) -> npt.NDArray[np.bool_]:
    """Return for each of ``keys`` whether it is in ``sorted_keys``, which is sorted (bool)."""
    is_among: npt.NDArray[np.bool_] = np.searchsorted(sorted_keys, keys, "left") < np.searchsorted(sorted_keys, keys, "right")
    return is_among


def pack_keys(*arrays: Keys) -> bytes:
    """Return several arrays of keys as the content of one file."""
    return b"".join([np.array([len(arrays), *map(len, arrays)], np.int64).tobytes(), *(keys.tobytes() for keys in arrays)])


def unpack_keys(data: bytes) -> list[Keys]:
    """Return the inverse of ``pack_keys``."""
    count = int(np.frombuffer(data, np.int64, 1)[0])
    lengths = np.frombuffer(data, np.int64, count, 8)
    keys = np.frombuffer(data, np.uint64, offset=8 + 8 * count)
    return np.split(keys, np.cumsum(lengths)[:-1])


@dataclass(frozen=True)
class QueueFilesToWrite:
    """ConsumeQueue files to write: all files of some queues, and single files. Keys are sorted and unique."""

    queues: Keys
    files: Keys

    def __bool__(self) -> bool:
        return bool(len(self.queues) or len(self.files))

    def having(self, queues: Keys, file_numbers: Int64s | None) -> npt.NDArray[np.bool_]:
        """Return for each file, by the key of its queue and its number, whether it is wanted; without numbers for each
        queue."""
        is_wanted = among(queues, self.queues)
        return is_wanted if file_numbers is None else is_wanted | among(file_keys(queues, file_numbers), self.files)


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
    def by(cls, rows: Iterable[handover.Row], units_per_file: int) -> Touched:
        """Return what the runs touch among the rows of a range; ``units_per_file`` is the size of a plain queue's file in
        units."""
        nothing = cls.union([])
        parts = [nothing]
        for row in rows:
            if row.kind == handover.RUNS:
                pieces = cells.unpack(row.data, cells.RUN_COLUMNS)
                keys = queue_keys(pieces.names, pieces.queue_ids)
                first = pieces.columns[0] // units_per_file
                spans = (pieces.columns[0] + pieces.columns[1] - 1) // units_per_file - first + 1
                numbers = file_keys(np.repeat(np.repeat(keys, pieces.counts), spans), cells.rows_of(first, spans))
                parts.append(cls(keys, numbers, nothing.batches))
            elif row.kind == handover.BATCH_RUNS:
                pieces = cells.unpack(row.data, cells.BATCH_RUN_COLUMNS)
                keys = queue_keys(pieces.names, pieces.queue_ids)
                parts.append(cls(keys, nothing.files, keys))
        return cls.union(parts)

    @classmethod
    def union(cls, parts: Sequence[Touched]) -> Touched:
        """Return all that any of the parts has."""
        none = np.zeros(0, np.uint64)
        columns = zip(*((part.queues, part.files, part.batches) for part in parts), strict=True) if parts else [(none,)] * 3
        return cls(*(np.unique(np.concatenate(column)) for column in columns))


def rows_again(
    rows: Iterable[handover.Row],
    number: int,
    keys: tuple[int, ...],
    units_per_file: int,
    to_write: QueueFilesToWrite | None = None,
) -> Iterator[handover.Row]:
    """Yield stored rows as a scan would leave them in this run: as range ``number``, for these buckets, of the wanted files
    only.

    ``keys[b]`` is the key of bucket b, ``units_per_file`` the size of a plain queue's file in units.
    """
    for row in rows:
        kind = row.kind
        pieces = cells.unpack(row.data, _COLUMNS[kind])
        queues = queue_keys(pieces.names, pieces.queue_ids)
        if kind == handover.BATCHES:
            # Such a cell has one queue, and so has its bucket (``batch_rows``).
            if to_write is None or to_write.having(queues, None).all():
                yield row._replace(key=keys[row.bucket % len(keys)], range_number=number)
            continue
        counts = pieces.counts.astype(np.int64)
        starts = np.cumsum(counts) - counts
        part = pieces.columns[0][starts] // units_per_file if kind == handover.UNITS else np.zeros_like(starts)
        chosen = np.arange(len(starts))
        if to_write is not None:
            chosen = np.flatnonzero(to_write.having(queues, part))
        crc = np.fromiter((zlib.crc32(pieces.names[k]) for k in chosen), np.uint32, len(chosen))
        target = cells.bucket_of(crc, pieces.queue_ids[chosen], part[chosen], len(keys))
        for bucket, cell in cells.cut_cells(
            target, pieces.names, chosen, pieces.queue_ids[chosen], starts[chosen], counts[chosen], pieces.columns
        ):
            yield handover.Row(kind, bucket, keys[bucket], number, cell, row.sort_key)


# ---------------------------------------------------------------------------------------------------------------- carried files
# Take over files of the earlier build: in a bucket by a copy within it, on a disk by a hard link where that is safe.
#
# A broker never writes into a full file again. It does write into a file with room, through a mapping that may outlive the
# rename which publishes a build. So on a disk a file with room is copied, never linked. Where each build has a folder of its
# own, it also has files of its own: the earlier build can be removed as a whole.

_COPY_BYTES: Final = 1 << 18
_SENT_BYTES: Final = 8 << 20
"""Bytes of one request where a file has to come here and be sent again."""
_AT_ONCE: Final = 8
"""Files of one task at the same time, behind a URI: most of the time each waits for its store."""


def carry(staging: StagingFolder, source: str, target: str, size: int, used: int) -> None:
    """Link or copy the file ``source`` to ``target`` in the staging folder.

    ``used`` bytes are written; zeros follow up to ``size`` bytes. Behind a URI ``source`` is stored as this run would store it.
    Raises InputError when ``source`` is gone.
    """
    if files.copy_in_store(source, target) if staging.build else size == used and files.link(source, target):
        return
    piece = min(_SENT_BYTES if staging.build else _COPY_BYTES, used)
    try:
        with files.Reader(source) as reader, files.writing(staging.temporary, target) as writer:
            buffer = np.empty(piece, np.uint8)
            for at in range(0, used, max(1, piece)):
                part = buffer[: min(piece, used - at)]
                reader.read_into(at, part)
                if part.any():
                    # The slots of an IndexFile are mostly holes.
                    writer.write_at(at, part)
            writer.finish(staging.stored(size))
    except FileNotFoundError:
        if files.entry_of(source).kind != files.ABSENT:
            raise
        raise errors.InputError(
            f"{showing.escape(source)}: is gone: others have replaced the build that this one goes on from: again"
        ) from None


@dataclass(frozen=True)
class Carry:
    """Takes over files of the folder ``source``: those in the parts whose numbers it is given; leaves ``FilesResult``.

    A part has the lines of a manifest's part (``udfs.write.queues.entry_line``). A file goes to its path in the tree, or to
    ``made``.
    """

    staging: StagingFolder
    source: str
    parts: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in handover.numbers(batches):
            yield handover.batch([self._carry(self.parts[number])])

    def _carry(self, part: str) -> FilesResult:
        lines = [line.partition(b"\t") for line in files.lines(part)]
        entries = [json.loads(text) for text, _, _ in lines]
        into = {files.parent(self._target(entry)) for entry in entries if "made" not in entry}
        for folder in sorted(into):
            # A late attempt finds no tree, and must not make one.
            files.make_folder(folder, below=self.staging.tree)
        if self.staging.build:
            with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="carry") as pool:
                list(pool.map(self._one, entries))
        else:
            for entry in entries:
                self._one(entry)
        return FilesResult(part, len(entries), sum(int(units or 0) for _, _, units in lines))

    def _target(self, entry: dict[str, Any]) -> str:
        return entry.get("made") or files.join(self.staging.tree, entry["path"])

    def _one(self, entry: dict[str, Any]) -> None:
        source = files.join(self.source, entry.get("at", entry["path"]))
        carry(self.staging, source, self._target(entry), entry["size"], entry["used"])


# --------------------------------------------------------------------------------------------------------- ranges written again
# What an incremental build needs of stored ranges before it writes: which files they touch, and their units of some files.


class RowsFile(NamedTuple):
    """A file of rows (``stored_rows``); both are "" when there are no rows."""

    path: str = ""
    digest: str = ""


class StoredRange(NamedTuple):
    """One range of the log in the scan store: its number in this run, and its files of rows."""

    number: int
    runs: RowsFile
    units: RowsFile


def stored_range(store: ScanStore, number: int, entry: ScanEntry) -> StoredRange:
    """Return the range of an entry of the store, as range ``number`` of this run."""

    def file(ending: str) -> RowsFile:
        kept = entry.data.get(ending)
        return RowsFile(files.join(store.data, kept.name), kept.digest) if kept else RowsFile()

    return StoredRange(number, file("runs"), file("units"))


def write_ranges(staging: StagingFolder, ranges: list[StoredRange]) -> str:
    """Write a plan of these ranges. Return its path."""
    return handover.write_plan(staging, f"stored-{uuid.uuid4().hex}", ranges)


def _read_ranges(plan: str) -> list[StoredRange]:
    return [StoredRange(number, RowsFile(*runs), RowsFile(*units)) for number, runs, units in handover.read_plan(plan)]


@dataclass(frozen=True)
class TouchedFiles:
    """Finds the ConsumeQueue files with units of a plan's ranges, which ``tasks`` tasks share.

    Each task stages the keys (``Touched``, by ``pack_keys``), and leaves their path as its result.
    """

    staging: StagingFolder
    plan: str
    tasks: int
    units_per_file: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ranges = _read_ranges(self.plan)
        for task in handover.numbers(batches):
            touched = Touched.union([])
            for stored in handover.share(ranges, task, self.tasks):
                if stored.runs.path:
                    touched = Touched.union([touched, Touched.by(stored_rows(*stored.runs), self.units_per_file)])
            path = files.join(self.staging.plans, f"touched-{uuid.uuid4().hex}")
            data = pack_keys(touched.queues, touched.files, touched.batches)
            files.write_bytes(self.staging.temporary, path, [data])
            yield handover.texts_batch([path])


@dataclass(frozen=True)
class LoadRows:
    """Loads the stored rows of a plan's ranges, which ``tasks`` tasks share, that go into wanted files.

    ``wanted`` is the path of the packed keys of ``QueueFilesToWrite``; "" loads all rows. ``keys[b]`` is the key of bucket b.
    """

    plan: str
    tasks: int
    keys: tuple[int, ...]
    units_per_file: int
    wanted: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ranges = _read_ranges(self.plan)
        to_write = QueueFilesToWrite(*unpack_keys(files.read_bytes(self.wanted))) if self.wanted else None
        for task in handover.numbers(batches):
            for stored in handover.share(ranges, task, self.tasks):
                if stored.units.path and self._has_some(stored, to_write):
                    rows = stored_rows(*stored.units)
                    yield from handover.batches(rows_again(rows, stored.number, self.keys, self.units_per_file, to_write))

    def _has_some(self, stored: StoredRange, to_write: QueueFilesToWrite | None) -> bool:
        """Return whether any of a range's units is wanted: its runs, which are few, show that."""
        if to_write is None or not stored.runs.path:
            return to_write is None
        touched = Touched.by(stored_rows(*stored.runs), self.units_per_file)
        return bool(among(touched.queues, to_write.queues).any() or among(touched.files, to_write.files).any())
