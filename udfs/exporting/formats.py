"""The columns of an export, and how rows are encoded: as JSON lines or CSV, as they are for Parquet, as records for a store."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from rocketmq_reindex.storage_format.record.making import Texts
from rocketmq_reindex.storage_format.scan.ranges import Segment
from rocketmq_reindex.udfs.messages.batches import BODY, COLUMNS, fields
from rocketmq_reindex.udfs.scan.segments import RecordBytes

Encode = Callable[[pa.RecordBatch], Any]
"""makes of a batch what the ``Sink`` (udfs/exporting/sinks.py) of its format takes: in any thread"""
BODY_FORMAT: Final = "bodyFormat"
"""how the text in ``body`` stands for the bytes: where the file has texts alone"""
TEXT, BASE64 = "text", "base64"


# ---------------------------------------------------------------------------------------------------------------------- columns
# What is read of a message, and what of it is written: by the names of ``rr.messages``.

PACKED: Final = "bodyCompression"
"""how the body is packed that was written; null where it was unpacked, or never packed"""
WRITTEN: Final = (
    "topic", "queueId", "consumeQueueOffset", "kind", "realTopic", "realQueueId", "consumerGroup", "deliverTimestamp",
    "storeTimestamp", "storeTime", "storeHost", "bornTimestamp", "bornTime", "bornHost", "uniqKey", "keys", "tags", "flag",
    "sysFlag", "reconsumeTimes", "preparedTransactionOffset", "batchSize", "commitLogOffset", "properties",
)  # fmt: skip
"""the columns of an export, before those of the body"""
_READ_TO_COUNT: Final = (
    "topic", "queueId", "consumeQueueOffset", "kind", "realTopic", "realQueueId", "tags", "batchSize", "commitLogOffset",
    "sysFlag",
)  # fmt: skip
SIZE: Final = "msgSize"


def read_columns(*, count: bool, body: bool, properties: bool) -> tuple[str, ...]:
    """Return what is read of each message."""
    names = (*_READ_TO_COUNT, *(["properties"] if properties else [])) if count else WRITTEN
    return (*names, SIZE, *([BODY] if body else []))


def written_schema(*, body: bool) -> pa.Schema:
    """Return the columns that are written."""
    every = fields(body=True, damage=False)
    of_body = [pa.field(PACKED, pa.string()), every.field(BODY)] if body else []
    return pa.schema([*(every.field(name) for name in WRITTEN), *of_body])


# ------------------------------------------------------------------------------------------------------------------------ texts
# Columns as texts. All is done for a whole column at once; only rare values are looked at one by one.

_TURNS: Final = "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
"""ends of lines, and what changes the direction of a text: it shows another text than there is"""
_CONTROLS: Final = rf"[\x00-\x1f\x7f-\x{{9f}}{_TURNS}]"
"""what is escaped in JSON: it would end a line, or be a command to a terminal"""
_OF_TERMINALS: Final = rf"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x{{9f}}{_TURNS}]"
_TURN_CODES: Final = (0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
_ESCAPED: Final = {code: f"\\u{code:04x}" for code in (*range(0x20), *range(0x7F, 0xA0), *_TURN_CODES)}
_SHORT: Final = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))
ESCAPED_MAX: Final = 64 << 20
"""bytes of a body that is a text: its escapes take six times that, and Arrow has offsets of 32 bits"""
_CLOCK: Final = pa.timestamp("ms", "UTC")


def _any(mask: pa.Array) -> bool:
    return bool(pc.any(mask).as_py())


def _with_escapes(text: str) -> str:
    return text.translate(_ESCAPED)


def _changed(texts: pa.Array, pattern: str, change: Callable[[str], str] = _with_escapes) -> pa.Array:
    """Return texts with a change of those in which ``pattern`` is found: escapes in the place of what is not shown."""
    found = pc.fill_null(pc.match_substring_regex(texts, pattern), fill_value=False)
    if not _any(found):
        return texts
    return pc.replace_with_mask(texts, found, pa.array(map(change, texts.filter(found).to_pylist()), pa.string()))


def json_texts(texts: pa.Array) -> pa.Array:
    """Return texts as strings of JSON; null stays null."""
    for character, instead in _SHORT:
        texts = pc.replace_substring(texts, character, instead)
    return pc.binary_join_element_wise('"', _changed(texts, _CONTROLS), '"', "")


def json_maps(maps: pa.Array) -> pa.Array:
    """Return maps (map<string, string>, no slice) as objects of JSON."""
    pairs = pc.binary_join_element_wise(json_texts(maps.keys), pc.fill_null(json_texts(maps.items), "null"), ": ")
    members = pc.binary_join(pa.ListArray.from_arrays(maps.offsets, pairs), ", ")
    return pc.binary_join_element_wise("{", members, "}", "")


def utf8(bodies: pa.Array) -> pa.Array:
    """Return bodies (binary) as texts (string): null where one is not UTF-8."""
    try:
        return bodies.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_text(body) for body in bodies.to_pylist()], pa.string())


def body_texts(bodies: pa.Array, *, unseen: bool) -> tuple[pa.Array, pa.Array]:
    """Return bodies (binary) as texts, and how each is one: ``text`` where it is UTF-8 and not too long, else ``base64``.

    ``unseen``: a body with characters that nobody sees, and that a terminal obeys, is no text either.
    """
    texts = utf8(bodies)
    long = pc.fill_null(pc.greater(pc.binary_length(texts), ESCAPED_MAX), fill_value=False)
    if _any(long):
        texts = pc.if_else(long, pa.scalar(None, pa.string()), texts)
    if unseen:
        hidden = pc.fill_null(pc.match_substring_regex(texts, _OF_TERMINALS), fill_value=False)
        texts = pc.if_else(hidden, pa.scalar(None, pa.string()), texts)
    formats = pc.if_else(pc.is_valid(texts), TEXT, pc.if_else(pc.is_valid(bodies), BASE64, pa.scalar(None, pa.string())))
    coded = pc.equal(formats, BASE64)
    if _any(coded):
        encoded = [base64.b64encode(body).decode() for body in bodies.filter(coded).to_pylist()]
        texts = pc.replace_with_mask(texts, pc.fill_null(coded, fill_value=False), pa.array(encoded, pa.string()))
    return texts, formats


def _text(body: bytes | None) -> str | None:
    try:
        return None if body is None else body.decode()
    except UnicodeDecodeError:
        return None


def _clock(times: pa.Array) -> pa.Array:
    return pc.strftime(times.cast(_CLOCK), format="%Y-%m-%dT%H:%M:%SZ")


def with_texts(batch: pa.RecordBatch, *, unseen: bool) -> tuple[list[str], list[pa.Array]]:
    """Return names and columns of a batch, with the body as text and its format behind it."""
    names, columns = list(batch.schema.names), list(batch.columns)
    if BODY in names:
        at = names.index(BODY)
        names.insert(at + 1, BODY_FORMAT)
        columns[at : at + 1] = body_texts(columns[at], unseen=unseen)
    return names, columns


# ------------------------------------------------------------------------------------------------------------------- JSON lines


def json_lines(batch: pa.RecordBatch) -> bytes:
    """Return each row as one object of JSON on a line of its own, in UTF-8."""
    names, columns = with_texts(batch, unseen=False)
    words: list[Any] = []
    for number, (name, column) in enumerate(zip(names, columns, strict=True)):
        words += [f'{", " if number else "{"}"{name}": ', pc.fill_null(_json(column), "null")]
    return _joined(pc.binary_join_element_wise(*words, "}\n", ""))


def _json(column: pa.Array) -> pa.Array:
    if pa.types.is_map(column.type):
        return json_maps(column)
    if pa.types.is_timestamp(column.type):
        column = _clock(column)
    return json_texts(column) if pa.types.is_string(column.type) else column.cast(pa.string())


def _joined(texts: pa.Array) -> bytes:
    """Return the bytes of texts behind each other."""
    _, offsets, data = texts.buffers()
    if data is None or not len(texts):
        return b""
    ends = np.frombuffer(offsets, np.int32)
    return bytes(memoryview(data)[ends[texts.offset] : ends[texts.offset + len(texts)]])


# -------------------------------------------------------------------------------------------------------------------------- CSV

MARK: Final = "'"
"""stands before a text that a spreadsheet would take for a formula, and before one that begins with it"""
_SIGNS: Final = f"=+\\-@{MARK}\uff1d\uff0b\uff0d\uff20"
_FORMULA: Final = rf"^[{_SIGNS}\t\r\n]"
_INNER: Final = rf"([;\t\r\n])([{_SIGNS}])"
"""where a formula begins for a spreadsheet that ends cells at other characters than a comma"""


def csv_lines(batch: pa.RecordBatch) -> bytes:
    """Return each row as a line of CSV (RFC 4180, in UTF-8). Texts are quoted; a cell without anything is null."""
    names, columns = with_texts(batch, unseen=True)
    out = io.BytesIO()
    table = pa.RecordBatch.from_arrays(list(map(_cell, columns)), names=names)
    pyarrow.csv.write_csv(table, out, pyarrow.csv.WriteOptions(include_header=False))
    return out.getvalue()


def _cell(column: pa.Array) -> pa.Array:
    if pa.types.is_map(column.type):
        return _changed(json_maps(column), _INNER, lambda text: re.sub(_INNER, lambda at: f"{at[1]}\\u{ord(at[2]):04x}", text))
    if pa.types.is_timestamp(column.type):
        return _clock(column)
    if not pa.types.is_string(column.type):
        return column
    texts = pc.replace_substring_regex(_changed(column, _OF_TERMINALS), _INNER, rf"\1{MARK}\2")
    begins = pc.fill_null(pc.match_substring_regex(texts, _FORMULA), fill_value=False)
    return pc.if_else(begins, pc.binary_join_element_wise(MARK, texts, ""), texts) if _any(begins) else texts


def csv_head(schema: pa.Schema) -> bytes:
    """Return the first line: the names of the columns."""
    nothing = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
    return (",".join(with_texts(nothing, unseen=True)[0]) + "\n").encode()


# --------------------------------------------------------------------------------------------------------------------- records
# Records as they are in the log, with all of their bytes: what a new log changes are the two offsets, and their checksum.

TAKEN: Final = ("topic", "queueId", "consumeQueueOffset", "commitLogOffset", "batchSize", "sysFlag", "msgSize")
"""what is asked of each record that goes into a new store"""


def taken_schema() -> pa.Schema:
    """Return the columns TAKEN."""
    return pa.schema([(name, COLUMNS[name][0]) for name in TAKEN])


class NewRecords(NamedTuple):
    """Records on their way into a new log, and of which queues they are."""

    records: Texts
    rows: pa.RecordBatch
    """the columns TAKEN, without msgSize"""
    origin: Callable[[int], str] | None = None
    """says where a record comes from, by its number; None: from a log"""

    def place(self, row: int) -> str:
        """Return where a record comes from, for people."""
        return self.origin(row) if self.origin else f"offset {self.rows.column('commitLogOffset')[row]} of the log"


class RecordReader:
    """Reads the bytes of records from the segments of a log: in any thread."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._records = RecordBytes(segments)

    def __call__(self, batch: pa.RecordBatch) -> NewRecords:
        """Return the records of a batch with the columns TAKEN."""
        starts, sizes = (batch.column(name).to_numpy().astype(np.int64) for name in ("commitLogOffset", SIZE))
        return NewRecords(self._records.read(starts, sizes), batch.drop_columns([SIZE]))


# --------------------------------------------------------------------------------------------------------------------- encoder


def as_it_is(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch: Parquet takes it."""
    return batch


def encoder(kind: str, segments: Sequence[Segment] = ()) -> Encode:
    """Return what encodes batches for a format. A store takes records of ``segments``."""
    if kind == "store":
        return RecordReader(segments)
    return {"jsonl": json_lines, "csv": csv_lines}.get(kind, as_it_is)


def head(kind: str, schema: pa.Schema) -> bytes:
    """Return how a file of a format begins."""
    return csv_head(schema) if kind == "csv" else b""
