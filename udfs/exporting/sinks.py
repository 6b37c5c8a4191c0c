"""Where an export writes to: a file, a folder of Parquet files with a part for each topic and day, or whole records."""

from __future__ import annotations

import contextlib
import hashlib
import os
import urllib.parse
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rocketmq_reindex import files
from rocketmq_reindex.storage_format.record.making import Texts
from rocketmq_reindex.storage_format.showing import escape
from rocketmq_reindex.udfs.exporting.formats import NewRecords

TOPIC: Final = "topic"
"""the column by which a folder of Parquet files is parted first"""
DATA: Final = "data"
"""the folder of such files in an Iceberg table"""


class WrittenFile(NamedTuple):
    """A file of an export, with the topic of its rows, and their day (YYYY-MM-DD): "" and None where it has those of several.

    ``day`` is None, too, where the store time is none.
    """

    path: str
    topic: str
    day: str | None


_COPIED: Final = 4 << 20
"""bytes that are copied at once"""


class Sink(Protocol):
    """Takes what was encoded, in the order of the log, and writes it below the staging folder."""

    def add(self, encoded: Any) -> None:
        """Write some messages."""

    def finish(self) -> list[str]:
        """Write what is left. Return what is odd about the files."""

    def abandon(self) -> None:
        """Close all files. Raises nothing."""


class SegmentSink(Sink, Protocol):
    """A sink that keeps files of each segment apart, so that they outlast a run that is stopped."""

    def begin(self, name: str) -> None:
        """Begin a segment with this name: no other has it."""

    def end(self) -> list[WrittenFile]:
        """Make the files of the segment whole, and durable. Return them."""

    def take_over(self, written: list[WrittenFile]) -> None:
        """Take the files of a segment that an earlier run made whole."""


def sync(path: str) -> None:
    """Make a file, or the names in a folder, durable."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class FileSink:
    """One file."""

    def __init__(self, path: str, head: bytes = b"") -> None:
        self._file = open(path, "xb")  # noqa: SIM115  finish or abandon closes it
        self._file.write(head)

    def add(self, encoded: bytes) -> None:
        """Write some lines."""
        self._file.write(encoded)

    def finish(self) -> list[str]:
        """Close the file, and make it durable. Return nothing odd."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return []

    def abandon(self) -> None:
        """Close the file."""
        self._file.close()


class PiecesSink:
    """One file, whose pieces are files of ``folder`` until all are there."""

    def __init__(self, folder: str, path: str, head: bytes = b"") -> None:
        self._folder, self._path, self._head = folder, path, head
        self._pieces: list[WrittenFile] = []
        self._piece: FileSink | None = None

    def begin(self, name: str) -> None:
        """Begin a piece."""
        self._pieces.append(WrittenFile(os.path.join(self._folder, name), "", None))
        self._piece = FileSink(self._pieces[-1].path)

    def add(self, encoded: bytes) -> None:
        """Write some lines."""
        assert self._piece is not None
        self._piece.add(encoded)

    def end(self) -> list[WrittenFile]:
        """Make the piece whole. Return it."""
        assert self._piece is not None
        self._piece.finish()
        return self._pieces[-1:]

    def take_over(self, written: list[WrittenFile]) -> None:
        """Take a piece that is there."""
        self._pieces += written

    def finish(self) -> list[str]:
        """Join the pieces in their order. Return nothing odd."""
        whole = FileSink(self._path, self._head)
        try:
            for piece in self._pieces:
                with open(piece.path, "rb") as file:
                    while data := file.read(_COPIED):
                        whole.add(data)
        except BaseException:
            whole.abandon()
            raise
        return whole.finish()

    def abandon(self) -> None:
        """Close the piece."""
        if self._piece is not None:
            self._piece.abandon()


# ---------------------------------------------------------------------------------------------------------------------- records
# Whole records on their way into a new store, in a file of each segment: only who has all before them knows their offsets.

_RECORD: Final = "record"


class RecordsSink:
    """Files of Arrow batches below ``folder``: the columns of ``NewRecords``, and the bytes of each record."""

    def __init__(self, folder: str) -> None:
        self._folder, self._path = folder, ""
        self._file: pa.ipc.RecordBatchStreamWriter | None = None

    def begin(self, name: str) -> None:
        """Begin a file. It is there once it has a record."""
        self._path = os.path.join(self._folder, name)

    def add(self, encoded: NewRecords) -> None:
        """Write some records."""
        offsets, data = (pa.py_buffer(part) for part in (encoded.records.offsets, encoded.records.data))
        records = pa.Array.from_buffers(pa.large_binary(), encoded.rows.num_rows, [None, offsets, data])
        batch = encoded.rows.append_column(_RECORD, records)
        if self._file is None:
            self._file = pa.ipc.new_stream(self._path, batch.schema)
        self._file.write_batch(batch)

    def end(self) -> list[WrittenFile]:
        """Make the file whole. Return it, if there is one."""
        if self._file is None:
            return []
        self._file.close()
        self._file = None
        return [WrittenFile(self._path, "", None)]

    def take_over(self, _written: list[WrittenFile]) -> None:
        """Take the files of another segment: who reads them knows them."""

    def finish(self) -> list[str]:
        """Return nothing odd: all is written."""
        return []

    def abandon(self) -> None:
        """Close the file."""
        with contextlib.suppress(OSError, ValueError):
            if self._file is not None:
                self._file.close()


def read_records(path: str) -> Iterator[NewRecords]:
    """Yield what ``RecordsSink`` wrote, piece by piece. Raises OSError and ValueError (pyarrow) where the file is broken."""
    with pa.OSFile(path) as file, pa.ipc.open_stream(file) as batches:
        for batch in batches:
            records = batch.column(_RECORD)
            _, offsets, data = records.buffers()
            yield NewRecords(
                Texts(np.frombuffer(offsets, np.int64)[: len(records) + 1], np.frombuffer(data, np.uint8).copy()),
                batch.drop_columns([_RECORD]),
            )


# ---------------------------------------------------------------------------------------------------------------------- Parquet
# A folder for each topic, in it one for each day, named as Hive names them. Rows wait until a part of the folder has many:
# the topics of a log are mixed, and small row groups are slow to read.

BUFFER: Final = 128 << 20
"""Bytes of rows that wait, of all parts."""
_SLICE_COST: Final = 1 << 13
"""What a few rows take besides their values."""
OPEN_MAX: Final = 64
"""Files that are open at once."""
GROUP_BYTES: Final = 32 << 20
"""Bytes of rows, at which those of one part are written."""
FILE_BYTES: Final = 512 << 20
"""Bytes of rows, at which the next file of a part begins."""
TOPIC_KEY: Final = b"topic"
"""says in a file of what topic it is: the name of its folder may be cut"""
_NO_DAY: Final = "__HIVE_DEFAULT_PARTITION__"
_NAME_MAX: Final = 240
"""Bytes of a folder's name, without ``topic=``: file systems take 255."""
_DIGEST: Final = 24

Part = tuple[str, str]
"""the topic and the day of a part"""


def topic_folder(topic: str) -> str:
    """Return the name of a topic's folder: what is no letter, digit, ``_``, ``-`` or ``.`` is written as ``%25``.

    A name that is too long is cut, and ends with ``~`` and a digest of the whole; so does one that readers take for null.
    """
    name = _quoted(topic)
    if len(name) > _NAME_MAX or topic == _NO_DAY:
        digest = f"~{hashlib.sha256(topic.encode()).hexdigest()[:_DIGEST]}"
        head = topic[:_NAME_MAX]
        while len(_quoted(head)) > _NAME_MAX - len(digest):
            head = head[:-1]
        name = f"{_quoted(head)}{digest}"
    return f"topic={name}"


def _quoted(text: str) -> str:
    return urllib.parse.quote(text, safe="").replace("~", "%7E")


class _Waiting:
    """Rows of one part."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.size = 0


class ParquetSink:
    """Writes files below ``root``, the ones of a part into ``topic=TOPIC/day=DAY``. The topic is no column of a file.

    With ``columns`` the files have these, and the topic is one of them. ``inner`` is a folder below ``root`` for all of them.
    """

    def __init__(self, root: str, columns: pa.Schema | None = None, inner: str = "") -> None:
        self._root, self.columns, self._inner = root, columns, inner
        self._waiting: dict[Part, _Waiting] = {}
        self._size = 0
        self._open: OrderedDict[Part, tuple[pq.ParquetWriter, int]] = OrderedDict()
        self._numbers: dict[Part, int] = {}
        self._segment, self._known = "", 0
        self._written: list[WrittenFile] = []

    def begin(self, name: str) -> None:
        """Begin a segment: the names of its files have the name of it."""
        self._segment, self._known = f"{name}-", len(self._written)
        self._numbers.clear()

    def end(self) -> list[WrittenFile]:
        """Write all rows that wait, and close the files. Return those of the segment."""
        self._close()
        made = self._written[self._known :]
        for path in (*(file.path for file in made), *{os.path.dirname(file.path) for file in made}):
            sync(path)
        return made

    def take_over(self, written: list[WrittenFile]) -> None:
        """Take the files of a segment that are there."""
        self._written += written

    def add(self, encoded: pa.RecordBatch) -> None:
        """Take some rows."""
        for part, rows in _by_part(encoded):
            waiting = self._waiting.setdefault(part, _Waiting())
            size = rows.nbytes + _SLICE_COST
            waiting.batches.append(rows)
            waiting.size += size
            self._size += size
            if waiting.size > GROUP_BYTES:
                self._write(part)
        while self._size > BUFFER:
            self._write(max(self._waiting, key=lambda part: self._waiting[part].size))

    def _write(self, part: Part) -> None:
        """Write the rows of a part that wait, as one row group."""
        waiting = self._waiting.pop(part)
        self._size -= waiting.size
        table = self._table(part[0], waiting.batches)
        writer, written = self._open.pop(part) if part in self._open else (self._begin(part, table.schema), 0)
        writer.write_table(table, row_group_size=max(1, len(table)))
        if written + waiting.size > FILE_BYTES:
            writer.close()
        else:
            self._open[part] = (writer, written + waiting.size)
        while len(self._open) > OPEN_MAX:
            self._open.popitem(last=False)[1][0].close()

    def _table(self, topic: str, batches: list[pa.RecordBatch]) -> pa.Table:
        """Return rows of one topic as they are written."""
        rows = pa.Table.from_batches(batches)
        if self.columns is None:
            return rows
        topics = pa.repeat(pa.scalar(topic), len(rows))
        columns = [topics if name == TOPIC else rows.column(name) for name in self.columns.names]
        return pa.table(columns, self.columns.names).cast(self.columns)

    def _begin(self, part: Part, schema: pa.Schema) -> pq.ParquetWriter:
        topic, day = part
        folder = os.path.join(self._root, self._inner, topic_folder(topic), f"day={day}")
        # A late attempt of a task must not make anew what was cleared.
        files.make_folder(folder, below=self._root)
        number = self._numbers.get(part, 0)
        self._numbers[part] = number + 1
        schema = schema.with_metadata({TOPIC_KEY: topic.encode()})
        path = os.path.join(folder, f"part-{self._segment}{number:05d}.parquet")
        self._written.append(WrittenFile(path, topic, None if day == _NO_DAY else day))
        return pq.ParquetWriter(path, schema, compression="zstd")

    def finish(self) -> list[str]:
        """Write all rows that wait, and close the files. Return which topics have no folder of their whole name."""
        self._close()
        cut = sorted({file.topic for file in self._written if "~" in topic_folder(file.topic)})
        return [f"{escape(topic)}: is no name for a folder: it is cut, or gets a digest" for topic in cut]

    def _close(self) -> None:
        for part in sorted(self._waiting):
            self._write(part)
        for writer, _ in self._open.values():
            writer.close()
        self._open.clear()

    def abandon(self) -> None:
        """Close the files."""
        while self._open:
            with contextlib.suppress(OSError, ValueError):
                self._open.popitem()[1][0].close()


def _by_part(batch: pa.RecordBatch) -> list[tuple[Part, pa.RecordBatch]]:
    """Return the rows of a batch by their topic and the day of their store time, without the topic."""
    topics = batch.column("topic").dictionary_encode()
    days = pc.fill_null(pc.strftime(batch.column("storeTime"), format="%Y-%m-%d"), _NO_DAY).dictionary_encode()
    codes = topics.indices.to_numpy().astype(np.int64) * len(days.dictionary) + days.indices.to_numpy()
    rows = batch.drop_columns(["topic"])
    found = []
    for code in np.unique(codes).tolist():
        part = topics.dictionary[code // len(days.dictionary)].as_py(), days.dictionary[code % len(days.dictionary)].as_py()
        chosen = np.flatnonzero(codes == code)
        found.append((part, rows if len(chosen) == len(codes) else rows.take(pa.array(chosen))))
    return found
