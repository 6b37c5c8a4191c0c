"""Rows of an export, read again: what is read of one, and the files of texts, JSON lines and CSV."""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.showing import escape, listed
from rocketmq_reindex.udfs.exporting import formats
from rocketmq_reindex.udfs.messages.batches import BODY, COLUMNS

Mask = npt.NDArray[np.bool_]

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
_NEEDED_NAMES: Final = frozenset(_NEEDED)
ROWS: Final = 1 << 12
BYTES: Final = 16 << 20
"""of bodies, at which a batch ends"""
_CSV_BLOCK: Final = 128 << 20
"""Bytes of CSV that are parsed at once: a row has to fit in."""


class Rows(NamedTuple):
    """Some rows with the columns that were asked for: what the source lacks is null."""

    batch: pa.RecordBatch
    place: Callable[[int], str]
    """says where a row stands, by its number in the batch"""
    named: Mapping[str, Mask]
    """by the columns that the source has: which rows have it (bool)"""
    position: int
    """bytes of the source, or rows of Parquet, up to here"""


def check_columns(names: set[str], where: str) -> frozenset[str]:
    """Return the names of the columns of a source. Raises InputError for one that no export has, or that is missing."""
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


def read_texts(path: str, schema: pa.Schema) -> Iterator[Rows]:
    """Yield the rows of a file of texts, whose name ends as one of READERS, with the columns ``schema``."""
    held, size = list[_Read](), 0
    for row in READERS[os.path.splitext(path)[1].lower()](path):
        if not _NEEDED_NAMES <= row.values.keys() <= _KNOWN:
            check_columns(set(row.values), f"{escape(path)} {row.where}")
        if held and (len(held) == ROWS or size > BYTES):
            yield _as_batch(path, held, schema)
            held, size = [], 0
        held.append(row)
        body = row.values.get(BODY)
        size += len(body) if isinstance(body, (str, bytes)) else 0
    if held:
        yield _as_batch(path, held, schema)


def _as_batch(path: str, rows: list[_Read], schema: pa.Schema) -> Rows:
    columns, named = [], dict[str, Mask]()
    for field in schema:
        values: list[Any] = []
        try:
            values.extend(_value(row.values, field.name, field.type) for row in rows)
        except ValueError as error:
            raise InputError(f"{escape(path)} {rows[len(values)].where}: {field.name}: {error}") from None
        columns.append(pa.array(values, field.type))
        has_it = np.array([field.name in row.values for row in rows], np.bool_)
        if has_it.any():
            named[field.name] = has_it
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
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
                for values in (row for at in range(0, len(batch), ROWS) for row in batch.slice(at, ROWS).to_pylist()):
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
    kind = COLUMNS[name][0] if name in COLUMNS else None
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


READERS: Final = {".jsonl": _json_lines, ".ndjson": _json_lines, ".json": _json_lines, ".csv": _csv}
"""what reads a file of texts, by the ending of its name"""
