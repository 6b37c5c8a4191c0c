"""The tasks of an engine's processes, and the rows that a task leaves for other tasks."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketmq_reindex import files
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.handover import Batches

# -------------------------------------------------------------------------------------------------------------------- kept rows
# Rows that a task leaves for other tasks (``handover.ROWS``), in files of the machine that all of them run on.
#
# Each task writes one file. What it holds back in memory is bounded; what it has is written as a chunk: the cells of the chunk,
# sorted by kind, key, bucket and ``sort_key``, then an entry for each of them. At the end of the file a table says where the
# entries of each kind and key are. So a task that takes the rows of one key reads stretches of cells, and of the rest nothing.
#
#     cells, entries (ENTRY), cells, entries, ..., table (PART), int64 rows of the table

HELD_BYTES: Final = 16 << 20
"""Cells that a task holds back before it writes a chunk."""
BATCH_BYTES: Final = 4 << 20
BATCH_ROWS: Final = 4096
"""A batch ends before it has more, unless a single cell has."""

ENTRY: Final = np.dtype(
    [
        ("kind", "<i4"),
        ("key", "<i4"),
        ("bucket", "<i4"),
        ("range_number", "<i4"),
        ("sort_key", "<i8"),
        ("at", "<i8"),
        ("size", "<i8"),
    ]
)
"""One row; its cell is ``size`` bytes from the byte ``at`` of the file on."""
PART: Final = np.dtype([("kind", "<i4"), ("key", "<i4"), ("at", "<i8"), ("rows", "<i8")])
"""``rows`` entries of one kind and key, from the byte ``at`` of the file on."""
_COUNT: Final = np.dtype("<i8")
_PLAIN: Final = ("kind", "key", "bucket", "range_number", "sort_key")
Entries = npt.NDArray[np.void]


class RowsWriter:
    """Writes the rows of one task into the file ``path``, which is made with the first of them. Use it as a context."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._entries: list[Entries] = []
        self._cells: list[memoryview] = []
        self._held = self._at = 0
        self._parts: list[Entries] = []

    @property
    def wrote(self) -> bool:
        """Whether there is a file, once the context has ended."""
        return self._file is not None

    def __enter__(self) -> RowsWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._end()
        finally:
            if self._file is not None:
                self._file.close()

    def take(self, batch: pa.RecordBatch) -> list[bytes]:
        """Keep the rows of a batch of ``handover.ROWS``. Return the data of its summaries, which are not kept."""
        data = batch.column(batch.schema.get_field_index("data"))
        entries = np.zeros(len(data), ENTRY)
        for name in _PLAIN:
            entries[name] = batch.column(batch.schema.get_field_index(name)).to_numpy(zero_copy_only=False)
        _, offsets, cells = data.buffers()
        bounds = np.frombuffer(offsets, np.int32)[data.offset : data.offset + len(data) + 1].tolist()
        view = memoryview(cells) if cells is not None else memoryview(b"")
        kept = entries["kind"] != handover.SUMMARY
        summaries = [bytes(view[bounds[k] : bounds[k + 1]]) for k in np.flatnonzero(~kept).tolist()]
        if kept.any():
            numbers = np.flatnonzero(kept).tolist()
            entries["size"] = np.diff(bounds)
            self._entries.append(entries[kept])
            self._cells += [view[bounds[k] : bounds[k + 1]] for k in numbers]
            self._held += int(entries["size"][kept].sum())
            if self._held >= HELD_BYTES:
                self._chunk()
        return summaries

    def _chunk(self) -> None:
        """Write what is held back."""
        if not self._entries:
            return
        entries = np.concatenate(self._entries)
        order = np.lexsort((entries["sort_key"], entries["bucket"], entries["key"], entries["kind"]))
        entries = entries[order]
        entries["at"] = self._at + np.cumsum(entries["size"]) - entries["size"]
        with files.naming(self._path):
            if self._file is None:
                self._file = open(self._path, "xb", buffering=1 << 20)  # noqa: SIM115  closed as the context ends
            for k in order.tolist():
                self._file.write(self._cells[k])
            self._file.write(entries.data)
        self._at += int(entries["size"].sum())
        begins = np.flatnonzero(np.concatenate([[True], (np.diff(entries["kind"]) != 0) | (np.diff(entries["key"]) != 0)]))
        parts = np.zeros(len(begins), PART)
        parts["kind"], parts["key"] = entries["kind"][begins], entries["key"][begins]
        parts["at"] = self._at + begins * ENTRY.itemsize
        parts["rows"] = np.diff(np.append(begins, len(entries)))
        self._parts.append(parts)
        self._at += entries.nbytes
        self._entries, self._cells, self._held = [], [], 0

    def _end(self) -> None:
        self._chunk()
        if self._file is None:
            return
        table = np.concatenate(self._parts)
        with files.naming(self._path):
            self._file.write(table.data)
            self._file.write(np.array([len(table)], _COUNT).data)
            self._file.flush()


def _read(file: BinaryIO, at: int, kind: Any, count: int) -> npt.NDArray[Any]:
    """Return ``count`` values of the dtype ``kind`` from the byte ``at`` on."""
    out = np.empty(count, kind)
    _fill(file, at, out.view(np.uint8))
    return out


def _fill(file: BinaryIO, at: int, out: npt.NDArray[np.uint8]) -> None:
    room = out.data
    while room:
        read_bytes = os.preadv(file.fileno(), [room], at)
        if not read_bytes:
            raise OSError(f"{file.name}: ends within its rows")
        room, at = room[read_bytes:], at + read_bytes


def _entries(path: str, kind: int, key: int | None) -> Iterator[Entries]:
    with files.naming(path), open(path, "rb", buffering=0) as file:
        end = os.fstat(file.fileno()).st_size - _COUNT.itemsize
        count = int(_read(file, end, _COUNT, 1)[0])
        table = _read(file, end - count * PART.itemsize, PART, count)
        chosen = table["kind"] == kind
        if key is not None:
            chosen &= table["key"] == key
        for part in table[chosen]:
            yield _read(file, int(part["at"]), ENTRY, int(part["rows"]))


def read_rows(paths: Sequence[str], kind: int, left_out: Iterable[int], key: int | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one kind in some files, without some ranges, of one key or of all: sorted by bucket and ``sort_key``.

    At most one batch is held in memory, and the entries.
    """
    tables, sources = [np.empty(0, ENTRY)], [np.empty(0, np.int64)]
    for number, path in enumerate(paths):
        for entries in _entries(path, kind, key):
            tables.append(entries)
            sources.append(np.full(len(entries), number, np.int64))
    entries, source = np.concatenate(tables), np.concatenate(sources)
    without = np.fromiter(left_out, np.int64)
    if len(without):
        kept = ~np.isin(entries["range_number"], without)
        entries, source = entries[kept], source[kept]
    order = np.lexsort((entries["at"], source, entries["sort_key"], entries["bucket"]))
    entries, source = entries[order], source[order]
    for low, high in _cut(entries["size"]):
        yield _batch(paths, entries[low:high], source[low:high])


def _cut(sizes: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield where batches of cells of these sizes begin and end."""
    ends, low = np.cumsum(sizes), 0
    while low < len(sizes):
        before = int(ends[low] - sizes[low])
        high = max(low + 1, int(np.searchsorted(ends, before + BATCH_BYTES, "right")))
        high = min(high, low + BATCH_ROWS)
        yield low, high
        low = high


def _batch(paths: Sequence[str], entries: Entries, source: npt.NDArray[np.int64]) -> pa.RecordBatch:
    sizes = entries["size"]
    offsets = np.zeros(len(entries) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    cells = np.empty(int(offsets[-1]), np.uint8)
    # Cells that lie together are read together.
    apart = (entries["at"][1:] != (entries["at"] + sizes)[:-1]) | (source[1:] != source[:-1])
    begins = np.append(np.flatnonzero(np.append(True, apart)), len(entries)).tolist()
    for low, high in itertools.pairwise(begins):
        path = paths[int(source[low])]
        with files.naming(path), open(path, "rb", buffering=0) as file:
            _fill(file, int(entries["at"][low]), cells[offsets[low] : offsets[high]])
    columns = []
    for field in handover.ROWS:
        if field.name == "data":
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(cells)]
        else:
            buffers = [None, pa.py_buffer(np.ascontiguousarray(entries[field.name]))]
        columns.append(pa.Array.from_buffers(field.type, len(entries), buffers))
    return pa.RecordBatch.from_arrays(columns, schema=handover.ROWS)


# --------------------------------------------------------------------------------------------------------------- cells in files
# Where all of Spark's tasks run on one machine, cells stay in files of Spark's local folders, and only their places go through
# the JVM and its shuffle: to carry a cell from a worker through the JVM to another one costs more than to make it.

_PLACE: Final = np.dtype([("mark", "V16"), ("file", "V16"), ("at", "<i8"), ("size", "<i8")])
"""Stands in a row for its cell: ``size`` bytes from the byte ``at`` of a file on."""
_SMALL: Final = _PLACE.itemsize
"""A cell that is no longer than its place stays in its row."""
_TOGETHER: Final = 16
"""cells that are read back at once: a caller's session may send thousands of places in a batch"""


@dataclass(frozen=True)
class CellFolders:
    """The folders of one run. No cell of a hostile log begins with ``mark``, which is random, and so is taken for a place."""

    folders: tuple[str, ...]
    mark: bytes

    def path(self, file: bytes) -> str:
        """Return the path of a file by its random name: files are spread over the folders, as Spark's own are over disks."""
        return files.join(self.folders[file[0] % len(self.folders)], file.hex())

    def whole(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with cells in the place of their places. Raises OSError."""
        number = batch.schema.get_field_index("data")
        cells = [self.cell(data) for data in batch.column(number).to_pylist()]
        return batch.set_column(number, batch.schema.field(number), handover.array_of(pa.binary(), cells))

    def cell(self, data: bytes) -> bytes | memoryview:
        """Return the cell of a row whose data are given. Raises OSError."""
        if len(data) != _PLACE.itemsize or not data.startswith(self.mark):
            return data
        place = np.frombuffer(data, _PLACE)[0]
        path, out = self.path(place["file"].tobytes()), np.empty(int(place["size"]), np.uint8)
        with files.naming(path), open(path, "rb", buffering=0) as file:
            _fill(file, int(place["at"]), out)
        return out.data


@dataclass(frozen=True)
class Placing:
    """Runs a function, and leaves the cells of its rows in a file: in their rows it says where. Each attempt has its own file.

    A worker that cannot write there, as in a sandbox, passes cells on as they are. Raises OSError where the disk is full.
    """

    function: Batches
    cells: CellFolders

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        made = self.function(batches)
        name, at = os.urandom(16), 0
        path = self.cells.path(name)
        try:
            file = open(path, "xb", buffering=0)  # noqa: SIM115  closed below
        except OSError:
            yield from made
            return
        try:
            with file:
                for batch in made:
                    placed, cells = self._placed(batch, name, at)
                    with files.naming(path):
                        _write(file, cells)
                    at += len(cells)
                    yield placed
        except Exception:
            # Nobody takes its rows. The next attempt may need the room.
            files.remove_tree(path)
            raise

    def _placed(self, batch: pa.RecordBatch, name: bytes, at: int) -> tuple[pa.RecordBatch, memoryview]:
        """Return the batch with places, and the bytes that are to be written from ``at`` on."""
        number = batch.schema.get_field_index("data")
        data = batch.column(number)
        _, offsets, cells = data.buffers()
        bounds = np.frombuffer(offsets, np.int32)[data.offset : data.offset + len(data) + 1].astype(np.int64)
        view = memoryview(cells if cells is not None else b"")[bounds[0] : bounds[-1]]
        bounds -= bounds[0]
        sizes = np.diff(bounds)
        kinds = batch.column(batch.schema.get_field_index("kind")).to_numpy(zero_copy_only=False)
        away = (kinds != handover.SUMMARY) & (sizes > _SMALL)
        if not away.any():
            return batch, memoryview(b"")
        places = np.zeros(len(data), _PLACE)
        places["mark"], places["file"] = np.void(self.cells.mark), np.void(name)
        places["at"], places["size"] = at + bounds[:-1], sizes
        values = [places[k].tobytes() if away[k] else view[bounds[k] : bounds[k + 1]] for k in range(len(data))]
        placed = batch.set_column(number, batch.schema.field(number), handover.array_of(pa.binary(), values))
        return placed, view


def _write(file: BinaryIO, data: memoryview) -> None:
    while data:
        data = data[file.write(data) :]


@dataclass(frozen=True)
class PlacedTask:
    """Runs a function over rows whose cells may lie in files."""

    function: Batches
    cells: CellFolders

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        few = (batch.slice(k, _TOGETHER) for batch in batches for k in range(0, batch.num_rows, _TOGETHER))
        return self.function(map(self.cells.whole, few))


# ------------------------------------------------------------------------------------------------------------------------ tasks
# What a process of the local engine is asked to do: each task is called once, in the worker, and its result goes back.


def _number(number: int) -> Iterator[pa.RecordBatch]:
    data = pa.py_buffer(number.to_bytes(8, "little"))
    yield pa.RecordBatch.from_arrays([pa.Array.from_buffers(pa.int64(), 1, [None, data])], ["id"])


def _texts(batches: Iterator[pa.RecordBatch]) -> list[str]:
    return [text for batch in batches for text in batch.column(0).to_pylist()]


@dataclass(frozen=True)
class Number:
    """Runs a function over one number; returns its results."""

    function: Batches
    number: int

    def __call__(self) -> list[str]:
        return _texts(self.function(_number(self.number)))


@dataclass(frozen=True)
class ScanRange:
    """Runs a function over one number, and keeps its rows in the file ``path``.

    Return the data of its summaries, and whether there is a file.
    """

    function: Batches
    number: int
    path: str

    def __call__(self) -> tuple[list[bytes], bool]:
        with RowsWriter(self.path) as rows:
            summaries = [data for batch in self.function(_number(self.number)) for data in rows.take(batch)]
        return summaries, rows.wrote


@dataclass(frozen=True)
class Map:
    """Runs a function over the rows of one kind in the file ``source``, and keeps what it makes of them in the file ``path``.

    Return whether there is a file.
    """

    function: Batches
    source: str
    kind: int
    left_out: tuple[int, ...]
    path: str

    def __call__(self) -> bool:
        with RowsWriter(self.path) as rows:
            for batch in self.function(read_rows([self.source], self.kind, self.left_out)):
                rows.take(batch)
        return rows.wrote


@dataclass(frozen=True)
class Reduce:
    """Runs a function over the rows of one kind and key in the files ``sources``; returns its results."""

    function: Batches
    sources: tuple[str, ...]
    kind: int
    left_out: tuple[int, ...]
    key: int

    def __call__(self) -> list[str]:
        return _texts(self.function(read_rows(self.sources, self.kind, self.left_out, self.key)))
