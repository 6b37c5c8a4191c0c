"""Where the rows of an export come from: a file of texts, or Parquet files, whose rows are put into the order of the log."""

from __future__ import annotations

import contextlib
import os
import urllib.parse
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rocketmq_reindex.jobs.exporting import delta, iceberg
from rocketmq_reindex.jobs.importing.rows import BYTES, READERS, SCHEMA, Rows, check_columns, read_texts
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.showing import escape, listed
from rocketmq_reindex.udfs.exporting import sinks

Int64s = npt.NDArray[np.int64]


class RowSource(NamedTuple):
    """Rows of an export: what there is to do, in the unit of ``Rows.position``, and what reads them in the order of the log.

    ``read`` takes a folder that is there, for rows that do not fit into memory. It may be called again. ``paths`` are the files
    that it reads.
    """

    size: int
    read: Callable[[str], Iterator[Rows]]
    paths: list[str]


def open_source(path: str, schema: pa.Schema = SCHEMA) -> RowSource:
    """Return the rows of a file or folder, by the ending of its name. Raises InputError for what is no export."""
    if os.path.isdir(path):
        if os.path.isdir(os.path.join(path, delta.LOG)):
            return _parquet([(file.path, file.topic) for file in delta.table_files(path)], path, schema)
        found = iceberg.table_files(path) if iceberg.is_table(path) else sorted(_below(path))
        return _parquet([(each, None) for each in found], path, schema)
    if not os.path.isfile(path):
        is_odd = os.path.exists(path)
        raise InputError(f"{escape(path)}: {'is neither a file nor a folder' if is_odd else 'there is no such file or folder'}")
    if os.path.splitext(path)[1].lower() == ".parquet":
        return _parquet([(path, None)], os.path.dirname(path), schema)
    if os.path.splitext(path)[1].lower() not in READERS:
        raise InputError(f"{escape(path)}: its name ends with none of {listed([*READERS, '.parquet'])}: rename it")
    return RowSource(os.path.getsize(path), lambda _: read_texts(path, schema), [path])


# ------------------------------------------------------------------------------------------------------------------------ files

_TOPIC_FOLDER: Final = "topic="
ORDER: Final = "commitLogOffset"
_BUFFER: Final = 1 << 16
"""bytes that are read of a column at once"""
_STEP: Final = 1 << 12
"""rows that are read at once"""
_ROW: Final = 256
"""bytes of a row besides its texts"""

_Place = tuple[int, int]
"""where a row comes in the order of the log: its offset there, and the number of its file, for rows that say the same"""


class _Piece(NamedTuple):
    """Some rows in order, with their places."""

    batch: pa.RecordBatch
    offsets: Int64s
    numbers: Int64s

    def slice(self, first: int, count: int) -> _Piece:
        """Return some of the rows."""
        end = first + count
        return _Piece(self.batch.slice(first, count), self.offsets[first:end], self.numbers[first:end])

    @property
    def last(self) -> _Place:
        """The place of the last row."""
        return int(self.offsets[-1]), int(self.numbers[-1])

    def below(self, place: _Place) -> int:
        """Return how many rows come up to a place."""
        low, high = (int(np.searchsorted(self.offsets, place[0], side)) for side in ("left", "right"))
        return low + int(np.searchsorted(self.numbers[low:high], place[1], "right"))


class _Run(Protocol):
    """Rows in order that are read piece by piece."""

    first: _Place
    last: _Place

    def pieces(self, room: int, /) -> Iterator[_Piece]:
        """Yield the rows: of those with more bytes than ``room`` one alone."""


def _below(folder: str) -> Iterator[str]:
    """Yield the Parquet files below a folder, without what writers leave there under names with ``_`` or ``.`` before them.

    Raises InputError for all else: nothing that may hold messages is passed over.
    """

    def unread(error: OSError) -> None:
        raise InputError(f"{escape(str(error.filename))}: {error.strerror}")

    for root, folders, names in os.walk(folder, onerror=unread):
        if delta.LOG in folders:
            raise InputError(f"{escape(root)}: is a Delta table, whose log says which files count: name this folder")
        if iceberg.METADATA in folders and iceberg.is_table(root):
            raise InputError(f"{escape(root)}: is an Iceberg table, whose metadata say which files count: name this folder")
        folders[:] = sorted(name for name in folders if name[0] not in "_.")
        for path in (os.path.join(root, name) for name in folders if os.path.islink(os.path.join(root, name))):
            raise InputError(f"{escape(path)}: is a link to a folder: name that one")
        for path in (os.path.join(root, name) for name in sorted(names) if name[0] not in "_."):
            if not path.endswith(".parquet") or not os.path.isfile(path):
                raise InputError(f"{escape(path)}: is no Parquet file (.parquet): name a folder that has these alone")
            yield path


@contextlib.contextmanager
def _naming(path: str, name: str = "") -> Iterator[None]:
    """Say which file it is that cannot be read, and which column."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{escape(path)}: {f'{name}: ' if name else ''}{escape(str(error), 200)}") from None


class _File:
    """One Parquet file. It is open only while it is read."""

    def __init__(self, path: str, number: int, schema: pa.Schema, topic: str | None) -> None:
        """``topic`` is that of all rows; None where the file or its folder says it."""
        self.path, self._number, self._schema = path, number, schema
        with _naming(path), pq.ParquetFile(path) as file:
            names = set(file.schema_arrow.names)
            if len(names) < len(file.schema_arrow.names):
                raise InputError(f"{escape(path)}: a column is named twice")
            if topic is not None:
                # Spark may write what a Delta table is parted by into its files, too: the table's log says it.
                names -= {sinks.TOPIC, delta.DAY}
            self._topic = topic
            if topic is None and "topic" not in names:
                self._topic = _topic_of(path, file.schema_arrow.metadata)
            self.named = check_columns(names | {"topic"}, escape(path))
            self.rows: int = file.metadata.num_rows
            groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
            # What is coded counts little here, and is not decoded before it is known what it takes.
            self._row_bytes = max((group.total_byte_size // max(1, group.num_rows) for group in groups), default=0) + 1
            leaves = map(file.schema.column, range(len(file.schema)))
            self._coded = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
            self._columns = [name for name in schema.names if name in names]
            self.first = self.last = (0, number)
            if ORDER in names:
                for at, batch in enumerate(file.iter_batches(1 << 16, columns=[ORDER], use_threads=False)):
                    offsets = self._offsets(batch)
                    self.first = (int(offsets[0]), number) if at == 0 else self.first
                    self.last = (max(int(offsets.max()), self.last[0] if at else int(offsets[0])), number)

    def _offsets(self, batch: pa.RecordBatch) -> Int64s:
        """Return the offsets in the log that rows say."""
        return np.asarray(self._cast(ORDER, batch.column(ORDER), pa.int64()).fill_null(0).to_numpy(), np.int64)

    def _batches(self, step: int) -> Iterator[pa.RecordBatch]:
        with _naming(self.path):
            file = pq.ParquetFile(self.path, read_dictionary=self._coded, buffer_size=_BUFFER)
        with file:
            batches = file.iter_batches(step, columns=self._columns, use_threads=False)
            while True:
                with _naming(self.path):
                    if (batch := next(batches, None)) is None:
                        return
                    # Of a damaged page texts may be none, and indices may lie outside of what they are of.
                    batch.validate(full=True)
                if batch.num_rows:
                    yield batch

    def pieces(self, room: int) -> Iterator[_Piece]:
        """Yield the rows, in the order of the file, with the columns of the schema."""
        step, done, last = max(1, min(_STEP, room // self._row_bytes)), 0, self.first[0]
        for read in self._batches(step):
            for part in _cut(read, room):
                batch = self._typed(part)
                offsets = np.full(len(batch), last)
                if ORDER in self.named:
                    # Rows of one file stay in its order.
                    offsets = np.maximum.accumulate(np.maximum(self._offsets(part), last))
                last, done = int(offsets[-1]), done + len(batch)
                yield _Piece(batch, offsets, np.full(len(batch), self._number))
        if done != self.rows or last != self.last[0]:
            raise InputError(f"{escape(self.path)}: it was changed meanwhile")

    def _typed(self, part: pa.RecordBatch) -> pa.RecordBatch:
        columns = []
        for field in self._schema:
            if field.name == "topic" and self._topic is not None:
                columns.append(pa.repeat(pa.scalar(self._topic), part.num_rows))
            elif field.name in part.schema.names:
                columns.append(self._cast(field.name, part.column(field.name), field.type))
            else:
                columns.append(pa.nulls(part.num_rows, field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _cast(self, name: str, column: Any, kind: pa.DataType) -> Any:
        """Return a column with another type: times as milliseconds. Raises InputError where its values have none."""
        with _naming(self.path, name):
            if pa.types.is_timestamp(column.type):
                column = column.cast(pa.timestamp("ms"))
            return column.cast(kind)


def _topic_of(path: str, metadata: dict[bytes, bytes] | None) -> str:
    """Return the topic of a file without that column: of its own words, or of its folder's name, unless that was cut.

    Raises InputError where none says it, and where they say two: someone may have moved the file, or named the folder anew.
    """
    folders = [part for part in os.path.dirname(path).split(os.sep) if part.startswith(_TOPIC_FOLDER)]
    named = urllib.parse.unquote(folders[-1].removeprefix(_TOPIC_FOLDER)) if folders else None
    if metadata and (known := metadata.get(sinks.TOPIC_KEY)):
        told = known.decode(errors="replace")
        if named in (None, told) or folders[-1] == sinks.topic_folder(told):
            return told
        raise InputError(
            f"{escape(path)}: its folder names topic {escape(named, 80)}, and the file says topic {escape(told, 80)}: "
            "write it anew with a column topic, or rename the folder"
        )
    if named is not None and "~" not in folders[-1]:
        return named
    raise InputError(f"{escape(path)}: names no topic: neither in a column nor by its folder")


# ------------------------------------------------------------------------------------------------------------------------ bytes
# What rows take is known before they are decoded: many that are equal stand once in a file.


def _cut(batch: pa.RecordBatch, room: int) -> Iterator[pa.RecordBatch]:
    """Yield a batch in parts, whose rows take at most ``room`` bytes when they are decoded, or are one."""
    ends = np.cumsum(sum((_bytes_of(column) for column in batch.columns), np.full(batch.num_rows, _ROW)))
    first = 0
    while first < batch.num_rows:
        before = int(ends[first - 1]) if first else 0
        count = max(1, int(np.searchsorted(ends, before + room, side="right")) - first)
        yield batch.slice(first, count)
        first += count


def _bytes_of(column: Any) -> Int64s | int:
    """Return the bytes of each value of a column, if that has texts: decoded ones, int64 (n,)."""
    if pa.types.is_dictionary(column.type):
        sizes = _bytes_of(column.dictionary)
        # The last one is that of null.
        codes = column.indices.fill_null(len(column.dictionary)).to_numpy()
        return np.asarray(np.append(sizes, 0)[codes], np.int64)
    if pa.types.is_map(column.type):
        offsets = column.offsets.to_numpy()
        first = int(offsets[0])
        inner = [part.slice(first, int(offsets[-1]) - first) for part in (column.keys, column.items)]
        ends = np.cumsum(sum(map(_bytes_of, inner), np.full(len(inner[0]), 8)))
        return np.asarray(np.diff(np.append(0, ends)[offsets - first]), np.int64)
    kind = column.type
    if any(fits(kind) for fits in (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary)):
        return np.asarray(pc.binary_length(column).fill_null(0).to_numpy(), np.int64)
    return 0


# ----------------------------------------------------------------------------------------------------------------------- merged

_OPEN_MAX: Final = 64
"""Files that are open at once."""


class _Spilled:
    """Rows that were merged, in a file of their own."""

    def __init__(self, pieces: Iterator[_Piece], path: str, schema: pa.Schema) -> None:
        self._path, self._width = path, len(schema)
        self.first = self.last = (0, 0)
        schema = pa.schema([*schema, ("offset", pa.int64()), ("number", pa.int64())])
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, schema, options=options) as writer:
            for at, piece in enumerate(pieces):
                if at == 0:
                    self.first = int(piece.offsets[0]), int(piece.numbers[0])
                self.last = piece.last
                columns = [*piece.batch.columns, pa.array(piece.offsets), pa.array(piece.numbers)]
                for part in _cut(pa.RecordBatch.from_arrays(columns, schema=schema), BYTES // _OPEN_MAX):
                    writer.write_batch(part)

    def pieces(self, _room: int) -> Iterator[_Piece]:
        """Yield the rows, and remove the file behind them: a room was kept when it was written."""
        with pa.OSFile(self._path) as file, pa.ipc.open_stream(file) as reader:
            for batch in reader:
                offsets, numbers = (batch.column(self._width + k).to_numpy() for k in range(2))
                yield _Piece(batch.select(range(self._width)), offsets, numbers)
        os.remove(self._path)


class _Reader:
    """A run that is being read: the piece of it that comes next."""

    def __init__(self, run: _Run, room: int) -> None:
        self._pieces = run.pieces(room)
        self.piece = next(self._pieces, None)

    def take(self, place: _Place) -> _Piece | None:
        """Take the rows up to a place, if there are some; behind the last one of the piece it goes on with the next."""
        assert self.piece is not None
        if not (count := self.piece.below(place)):
            return None
        taken, left = self.piece.slice(0, count), len(self.piece.offsets) - count
        self.piece = self.piece.slice(count, left) if left else next(self._pieces, None)
        return taken


def _merged(runs: list[_Run]) -> Iterator[_Piece]:
    """Yield the rows of runs in order. Only those are open that have rows of one stretch of the log."""
    waiting, opened = deque(sorted(runs, key=lambda run: run.first)), list[_Reader]()
    room = BYTES // min(_OPEN_MAX, max(1, len(runs)))
    while waiting or opened:
        until = min((reader.piece.last for reader in opened if reader.piece), default=None)
        while waiting and (until is None or waiting[0].first <= until):
            reader = _Reader(waiting.popleft(), room)
            if reader.piece is not None:
                opened.append(reader)
                until = reader.piece.last if until is None else min(until, reader.piece.last)
        if until is None:
            return
        taken = [reader.take(until) for reader in opened]
        opened = [reader for reader in opened if reader.piece is not None]
        yield _joined([piece for piece in taken if piece is not None])


def _joined(pieces: list[_Piece]) -> _Piece:
    if len(pieces) == 1:
        return pieces[0]
    offsets, numbers = (np.concatenate(parts) for parts in zip(*((p.offsets, p.numbers) for p in pieces), strict=True))
    order = np.lexsort((numbers, offsets))
    rows = pa.concat_batches([piece.batch for piece in pieces]).take(pa.array(order))
    return _Piece(rows, offsets[order], numbers[order])


def _depth(runs: list[_Run]) -> int:
    """Return how many of these are open at most, while they are merged."""
    firsts, lasts = (sorted(places) for places in zip(*((run.first, run.last) for run in runs), strict=True))
    depth = ended = 0
    for at, first in enumerate(firsts):
        while lasts[ended] < first:
            ended += 1
        depth = max(depth, at + 1 - ended)
    return depth


def _parquet(found: list[tuple[str, str | None]], folder: str, schema: pa.Schema) -> RowSource:
    """Return the rows of files, each with the topic of all its rows, if that is known."""
    if not found:
        raise InputError(f"{escape(folder)}: has no Parquet file")
    opened = [_File(path, number, schema, topic) for number, (path, topic) in enumerate(found)]
    for file in opened:
        if file.named != opened[0].named:
            differ = listed(sorted(file.named ^ opened[0].named))
            raise InputError(f"{escape(file.path)}: has not the columns of {escape(opened[0].path)}: they differ in {differ}")
    return RowSource(
        sum(file.rows for file in opened), lambda scratch: _in_order(opened, scratch, schema), [file.path for file in opened]
    )


def _in_order(opened: list[_File], scratch: str, schema: pa.Schema) -> Iterator[Rows]:
    """Yield the rows of all files in the order of the log; what says no place in it comes file by file."""
    runs: list[_Run] = [file for file in opened if file.rows]
    count = 0
    while runs and _depth(runs) > _OPEN_MAX:
        runs.sort(key=lambda run: run.first)
        groups, runs = [runs[at : at + _OPEN_MAX] for at in range(0, len(runs), _OPEN_MAX)], []
        for group in groups:
            runs.append(_Spilled(_merged(group), os.path.join(scratch, f"rows-{count}"), schema))
            count += 1
    done = 0
    for piece in _merged(runs):
        done += len(piece.offsets)
        named = {name: np.ones(len(piece.offsets), np.bool_) for name in opened[0].named}

        def place(row: int, numbers: Int64s = piece.numbers) -> str:
            return escape(opened[numbers[row]].path)

        yield Rows(piece.batch, place, named, done)
