"""Rows of an export, read again: JSON lines, CSV, or Parquet as one file or a folder by topic and day."""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from rocketmq_reindex.jobs.exporting import formats
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.showing import escape, listed
from rocketmq_reindex.udfs.messages.batches import BODY, COLUMNS

# ---------------------------------------------------------------------------------------------------------------------- columns

_READ: Final = (
    "topic", "queueId", "consumeQueueOffset", "commitLogOffset", "storeTimestamp", "storeHost", "bornTimestamp", "bornHost",
    "uniqKey", "keys", "tags", "flag", "sysFlag", "reconsumeTimes", "preparedTransactionOffset", "properties",
)  # fmt: skip
SCHEMA: Final = pa.schema([
    *((name, COLUMNS[name][0]) for name in _READ), (formats.PACKED, pa.string()), (BODY, pa.binary()),
])  # fmt: skip
"""what is read of a row. All else that an export has follows from it, or says where the message was"""
_KNOWN: Final = {*formats.WRITTEN, formats.PACKED, BODY, formats.BODY_FORMAT, "day"}
_NEEDED: Final = ("topic", "storeTimestamp", BODY)
_ROWS: Final = 1 << 12
_BYTES: Final = 16 << 20
"""of bodies, at which a batch ends"""
_CSV_BLOCK: Final = 128 << 20
"""Bytes of CSV that are parsed at once: a row has to fit in."""


class Rows(NamedTuple):
    """Some rows with the columns SCHEMA: what the source lacks is null."""

    batch: pa.RecordBatch
    place: Callable[[int], str]
    """says where a row stands, by its number in the batch"""
    named: frozenset[str]
    """the columns that the source has"""
    position: int
    """bytes of the source, or rows of Parquet, up to here"""


class Source(NamedTuple):
    """Where rows come from: what there is to do, in the unit of ``Rows.position``, and the rows, in the order of the log."""

    size: int
    rows: Iterator[Rows]


def open_source(path: str) -> Source:
    """Return the rows of a file or folder, by the ending of its name. Raises InputError for what is no export."""
    if os.path.isdir(path):
        return _parquet(sorted(_below(path)), path)
    if not os.path.isfile(path):
        raise InputError(f"{escape(path)}: there is no such file or folder")
    ending = os.path.splitext(path)[1].lower()
    if ending == ".parquet":
        return _parquet([path], os.path.dirname(path))
    readers = {".jsonl": _json_lines, ".ndjson": _json_lines, ".json": _json_lines, ".csv": _csv}
    if ending not in readers:
        raise InputError(f"{escape(path)}: its name ends with none of {listed([*readers, '.parquet'])}: rename it")
    return Source(os.path.getsize(path), _batched(path, readers[ending](path)))


def _check_columns(names: set[str], where: str) -> frozenset[str]:
    if others := names - _KNOWN:
        known = listed(sorted(_KNOWN))
        raise InputError(f"{where}: {listed(sorted(escape(name, 40) for name in others))}: an export has only {known}")
    if missing := [name for name in _NEEDED if name not in names]:
        raise InputError(f"{where}: has no {listed(missing)}, which each message needs")
    return frozenset(names)


# ------------------------------------------------------------------------------------------------------------------------ texts


class _Read(NamedTuple):
    """One row as texts: what a file says, and where it stands."""

    values: dict[str, Any]
    where: str
    position: int


_BITS: Final = {pa.int32(): 32, pa.int64(): 64}


def _batched(path: str, rows: Iterator[_Read]) -> Iterator[Rows]:
    held, size = list[_Read](), 0
    for row in rows:
        if held and (len(held) == _ROWS or size > _BYTES or row.values.keys() != held[0].values.keys()):
            yield _as_batch(path, held)
            held, size = [], 0
        held.append(row)
        body = row.values.get(BODY)
        size += len(body) if isinstance(body, (str, bytes)) else 0
    if held:
        yield _as_batch(path, held)


def _as_batch(path: str, rows: list[_Read]) -> Rows:
    named = _check_columns(set(rows[0].values), f"{escape(path)} {rows[0].where}")
    columns = []
    for field in SCHEMA:
        values: list[Any] = []
        try:
            values.extend(_value(row.values, field.name, field.type) for row in rows)
        except ValueError as error:
            raise InputError(f"{escape(path)} {rows[len(values)].where}: {field.name}: {error}") from None
        columns.append(pa.array(values, field.type))
    batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    return Rows(batch, lambda number: f"{escape(path)} {rows[number].where}", named, rows[-1].position)


def _value(values: dict[str, Any], name: str, kind: pa.DataType) -> Any:
    """Return one value as its column has it. Raises ValueError that says what is wrong with it."""
    value = values.get(name)
    if value is None:
        return None
    if kind in _BITS:
        if isinstance(value, bool) or not isinstance(value, int) or not -(1 << _BITS[kind] - 1) <= value < 1 << _BITS[kind] - 1:
            raise ValueError(f"{escape(repr(value), 40)} is no whole number of {_BITS[kind]} bits")
        return value
    if pa.types.is_map(kind):
        if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
            raise ValueError("is no object of texts")
        return [(_text(key), _text(each)) for key, each in value.items()]
    if not isinstance(value, str):
        raise ValueError("is no text")
    return _body(value, values.get(formats.BODY_FORMAT)) if name == BODY else _text(value)


def _text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("has half of a character (a lone surrogate)") from None
    return value


def _body(value: str, form: str | None) -> bytes:
    if form in (None, formats.TEXT):
        return _text(value).encode()
    if form != formats.BASE64:
        raise ValueError(f"{formats.BODY_FORMAT} {escape(repr(form), 40)}: take {formats.TEXT} or {formats.BASE64}")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("is no base64") from None


def _json_lines(path: str) -> Iterator[_Read]:
    position = 0
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            position += len(line)
            if not line.strip():
                continue
            try:
                values = json.loads(line, object_pairs_hook=_once)
            except (ValueError, RecursionError):
                values = None
            if not isinstance(values, dict):
                raise InputError(f"{escape(path)} line {number}: is no JSON object, or has a name twice")
            yield _Read(values, f"line {number}", position)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(made := dict(pairs)) < len(pairs):
        raise ValueError("a name stands twice")
    return made


_MARKED: Final = re.compile(rf"([;\t\r\n]){formats.MARK}")


def _csv(path: str) -> Iterator[_Read]:
    """Yield the rows of a CSV file: without the marks that keep spreadsheets from taking texts for formulas."""
    _check_quotes(path)
    block = min(_CSV_BLOCK, os.path.getsize(path) + 1)
    number = 0
    try:
        with open(path, "rb") as file, pyarrow.csv.open_csv(
            file,
            pyarrow.csv.ReadOptions(block_size=block),
            pyarrow.csv.ParseOptions(newlines_in_values=True),
            pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(_KNOWN, pa.string()), strings_can_be_null=True, quoted_strings_can_be_null=False,
                null_values=[""],
            ),
        ) as reader:  # fmt: skip
            if len(set(reader.schema.names)) < len(reader.schema.names):
                raise InputError(f"{escape(path)}: a column is named twice")
            for batch in reader:
                for values in (row for at in range(0, len(batch), _ROWS) for row in batch.slice(at, _ROWS).to_pylist()):
                    number += 1
                    try:
                        yield _Read({name: _cell(name, value) for name, value in values.items()}, f"row {number}", file.tell())
                    except ValueError as error:
                        raise InputError(f"{escape(path)} row {number}: {error}") from None
    except pa.ArrowInvalid as error:
        raise InputError(f"{escape(path)} after row {number}: {escape(str(error), 200)}") from None


def _check_quotes(path: str) -> None:
    """Raise InputError for an odd number of quotes: with one too few, rows would become part of a body."""
    with open(path, "rb") as file:
        count = sum(piece.count(b'"') for piece in iter(lambda: file.read(1 << 20), b""))
    if count % 2:
        raise InputError(f"{escape(path)}: has an odd number of quotes ({count:,}): one is missing, or one too many")


def _cell(name: str, value: str | None) -> Any:
    if value is None or (name not in COLUMNS and name != BODY):
        return value
    kind = SCHEMA.field(name).type if name in SCHEMA.names else None
    if kind in _BITS:
        if re.fullmatch(r"-?[0-9]{1,19}", value) is None:
            raise ValueError(f"{name}: {escape(repr(value), 40)} is no whole number")
        return int(value)
    if kind is not None and pa.types.is_map(kind):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            raise ValueError(f"{name}: is no JSON object") from None
    return _MARKED.sub(r"\1", value.removeprefix(formats.MARK))


# ---------------------------------------------------------------------------------------------------------------------- Parquet
# The files of a folder are read side by side, so that the rows come in the order of the log: only those are open that have
# rows of the same time.

_TOPIC_FOLDER: Final = "topic="
_MERGED_ROWS: Final = 1 << 14
ORDER: Final = "commitLogOffset"


def _below(folder: str) -> Iterator[str]:
    """Yield the Parquet files below a folder, without what writers leave there under names with ``_`` or ``.`` before them.

    Raises InputError for all else: nothing that may hold messages is passed over.
    """

    def unread(error: OSError) -> None:
        raise InputError(f"{escape(str(error.filename))}: {error.strerror}")

    for root, folders, names in os.walk(folder, onerror=unread):
        if "_delta_log" in folders:
            raise InputError(f"{escape(root)}: is a Delta table, whose log says which files count: write them anew as Parquet")
        folders[:] = sorted(name for name in folders if name[0] not in "_.")
        for path in (os.path.join(root, name) for name in folders if os.path.islink(os.path.join(root, name))):
            raise InputError(f"{escape(path)}: is a link to a folder: name that one")
        for path in (os.path.join(root, name) for name in sorted(names) if name[0] not in "_."):
            if not path.endswith(".parquet") or not os.path.isfile(path):
                raise InputError(f"{escape(path)}: is no Parquet file (.parquet): name a folder that has these alone")
            yield path


class _File:
    """One Parquet file, read on from where it was left."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._file: pq.ParquetFile | None = None
        self._rest: pa.RecordBatch | None = None
        with _opened(path) as file:
            names = set(file.schema_arrow.names)
            if len(names) < len(file.schema_arrow.names):
                raise InputError(f"{escape(path)}: a column is named twice")
            self.topic = None if "topic" in names else _topic_of(path, file.schema_arrow.metadata)
            self.named = _check_columns(names | {"topic"}, escape(path))
            self.rows: int = file.metadata.num_rows
            groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
            row_bytes = max((group.total_byte_size // max(1, group.num_rows) for group in groups), default=0)
            self.step = max(1, min(_MERGED_ROWS, _BYTES // max(1, row_bytes)))
            """rows that are held at once"""
            if ORDER in names:
                keys = _cast(path, ORDER, file.read([ORDER]).column(ORDER), pa.int64()).fill_null(0).to_numpy()
            else:
                keys = np.zeros(self.rows, np.int64)
        # Rows of one file stay in its order.
        self.order = np.maximum.accumulate(keys) if len(keys) else keys

    def take(self, count: int) -> pa.Table:
        """Return the next rows, with the columns SCHEMA."""
        parts: list[pa.RecordBatch] = []
        while count:
            if self._rest is None or not self._rest.num_rows:
                if self._batches is None:
                    self._file = _opened(self.path)
                    self._batches = self._file.iter_batches(self.step, columns=[n for n in SCHEMA.names if n in self.named])
                self._rest = next(self._batches, None)
                if self._rest is None:
                    raise InputError(f"{escape(self.path)}: has fewer rows than before: it was changed meanwhile")
            part = self._rest.slice(0, count)
            self._rest = self._rest.slice(part.num_rows)
            count -= part.num_rows
            parts.append(self._typed(part))
        return pa.Table.from_batches(parts, SCHEMA)

    def _typed(self, part: pa.RecordBatch) -> pa.RecordBatch:
        columns = []
        for field in SCHEMA:
            if field.name == "topic" and self.topic is not None:
                columns.append(pa.array([self.topic] * part.num_rows, pa.string()))
            elif field.name in part.schema.names:
                columns.append(_cast(self.path, field.name, part.column(field.name), field.type))
            else:
                columns.append(pa.nulls(part.num_rows, field.type))
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)

    def close(self) -> None:
        """Close the file: all rows are read."""
        if self._file is not None:
            self._file.close()
            self._file = self._batches = self._rest = None


def _cast(path: str, name: str, column: Any, kind: pa.DataType) -> Any:
    """Return a column of a file with another type: times as milliseconds. Raises InputError where its values have none."""
    try:
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("ms"))
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise InputError(f"{escape(path)}: {name}: {escape(str(error), 200)}") from None


def _opened(path: str) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise InputError(f"{escape(path)}: {escape(str(error), 200)}") from None


def _topic_of(path: str, metadata: dict[bytes, bytes] | None) -> str:
    """Return the topic of a file without that column: of its own words, or of its folder's name, unless that was cut."""
    if metadata and (told := metadata.get(formats.TOPIC_KEY)):
        return told.decode(errors="replace")
    for part in reversed(os.path.dirname(path).split(os.sep)):
        if part.startswith(_TOPIC_FOLDER) and "~" not in part:
            return urllib.parse.unquote(part.removeprefix(_TOPIC_FOLDER))
    raise InputError(f"{escape(path)}: names no topic: neither in a column nor by its folder")


def _parquet(paths: list[str], folder: str) -> Source:
    if not paths:
        raise InputError(f"{escape(folder)}: has no Parquet file")
    opened = [_File(path) for path in paths]
    for file in opened:
        if file.named != opened[0].named:
            differ = listed(sorted(file.named ^ opened[0].named))
            raise InputError(f"{escape(file.path)}: has not the columns of {escape(opened[0].path)}: they differ in {differ}")
    return Source(sum(file.rows for file in opened), _merged(opened))


def _merged(opened: list[_File]) -> Iterator[Rows]:
    """Yield the rows of all files in the order of the log; what says no place in it comes file by file."""
    order = np.concatenate([file.order for file in opened])
    numbers = np.repeat(np.arange(len(opened)), [file.rows for file in opened])
    sorted_numbers: npt.NDArray[np.int64] = numbers[np.argsort(order, kind="stable")]
    left = np.array([file.rows for file in opened])
    step = min(file.step for file in opened)
    for first in range(0, len(sorted_numbers), step):
        some = sorted_numbers[first : first + step]
        which, counts = np.unique(some, return_counts=True)
        parts = [opened[number].take(count) for number, count in zip(which.tolist(), counts.tolist(), strict=True)]
        rows = pa.concat_tables(parts).combine_chunks()
        # Of each file they come in its order: where the k-th of a file stands among those that were taken.
        back = np.empty(len(some), np.int64)
        back[np.argsort(some, kind="stable")] = np.arange(len(some))
        for batch in rows.take(pa.array(back)).combine_chunks().to_batches():
            paths = [opened[number].path for number in some.tolist()]
            yield Rows(batch, lambda row, paths=paths: escape(paths[row]), opened[0].named, first + len(some))  # type: ignore[misc]
        np.subtract.at(left, which, counts)
        for number in which[left[which] == 0].tolist():
            opened[number].close()
