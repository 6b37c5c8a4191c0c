"""Arrow batches of messages: the columns of ``rocketmq-commitlog``, over the buffers of ``storage_format``."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_reindex.storage_format.layouts import INT32_MAX, INT64_MAX
from rocketmq_reindex.storage_format.queue.extended import NO_FILTERS, ConsumerFilters
from rocketmq_reindex.storage_format.record import columns as m, layout as r
from rocketmq_reindex.storage_format.record.message import FLAG_COMPRESSED, compression_of
from rocketmq_reindex.storage_format.record.state import MessageArrays
from rocketmq_reindex.storage_format.record.text_columns import (
    MapColumn,
    TextColumn,
    read_bytes,
    read_hosts,
    read_maps,
    read_texts,
)
from rocketmq_reindex.storage_format.scan.ranges import Hole
from rocketmq_reindex.storage_format.scan.settings import Block
from rocketmq_reindex.udfs.messages.meaning_columns import MeaningArrays, MeantRecords, meaning_arrays
from rocketmq_reindex.udfs.messages.unpack_body import unpack
from rocketmq_reindex.udfs.scan.extended import Matcher

# ---------------------------------------------------------------------------------------------------------------- arrow columns
# Columns of ``storage_format`` as Arrow arrays over the same buffers: no value is copied by itself.


def bitmap(valid: npt.NDArray[np.bool_]) -> pa.Buffer | None:
    """Return Arrow's validity bits of a bool array; None when all values are valid."""
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def texts(column: TextColumn, kind: pa.DataType | None = None) -> pa.Array:
    """Return a column of texts as a string array, or as an array of ``kind`` (binary)."""
    buffers = [bitmap(column.valid), pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind or pa.string(), len(column.valid), buffers)


def maps(column: MapColumn) -> pa.Array:
    """Return a column of maps as an array of map<string, string>."""
    entries = pa.StructArray.from_arrays(
        [texts(column.names), texts(column.values)],
        fields=[pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string())],
    )
    kind = pa.map_(pa.string(), pa.string())
    return pa.Array.from_buffers(kind, len(column.offsets) - 1, [None, pa.py_buffer(column.offsets)], children=[entries])


def numbers(column: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Return a column of numbers as an array of ``kind``, which may be narrower."""
    return pa.array(column.astype(kind.to_pandas_dtype(), copy=False), type=kind)


TIME: Final = pa.timestamp("us", "UTC")
_TIME_MAX: Final = 9_223_285_600_000
"""Milliseconds: a day less than 64 bits of nanoseconds, as pandas has them. Spark fails where Python has no such date."""


def times(milliseconds: npt.NDArray[np.int64]) -> pa.Array:
    """Return times since 1970 (int64) as an array of TIME; null for one before 1677 or after 2262, which no clock gave."""
    known = (milliseconds >= -_TIME_MAX) & (milliseconds <= _TIME_MAX)
    return pa.array(np.where(known, milliseconds, 0) * 1000, type=TIME, mask=~known)


def some_times(milliseconds: pa.Array) -> pa.Array:
    """Return times since 1970 (int64, or null) as an array of TIME; null where ``times`` gives null."""
    return times(pc.fill_null(milliseconds, fill_value=INT64_MAX).to_numpy())


def nulls(fields: pa.Schema, columns_given: dict[str, pa.Array], count: int) -> pa.RecordBatch:
    """Return a batch of ``count`` rows with the columns in ``columns_given``, and all others null."""
    columns = [columns_given.get(field.name, pa.nulls(count, field.type)) for field in fields]
    return pa.RecordBatch.from_arrays(columns, schema=fields)


def damage_rows(schema: pa.Schema, holes: Sequence[Hole]) -> pa.RecordBatch:
    """Return a row for each damaged stretch: its offset, its length and why, all other columns null."""
    known: dict[str, list[int] | list[str]] = {
        "commitLogOffset": [hole.offset for hole in holes],
        "msgSize": [min(hole.length, INT32_MAX) for hole in holes],
        DAMAGE: [hole.reason for hole in holes],
    }
    columns = {field.name: pa.array(known[field.name], field.type) for field in schema if field.name in known}
    return nulls(schema, columns, len(holes))


def true_in(mask: pa.Array) -> npt.NDArray[np.bool_]:
    """Return where a mask is true (bool): null is not."""
    return np.asarray(pc.fill_null(mask, fill_value=False).to_numpy(zero_copy_only=False), np.bool_)


def counts_in(column: pa.Array) -> dict[Any, int]:
    """Return how often each value stands in a column."""
    return {pair["values"]: pair["counts"] for pair in column.value_counts().to_pylist()}


def string_buffers(array: pa.Array) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """Return offsets (int32, n + 1) and bytes (uint8) of a string or binary array of n values; those of a null mean nothing."""
    if array.type not in (pa.string(), pa.binary()):
        array = array.cast(pa.string())
    _, offsets, data = array.buffers()
    if offsets is None or not len(array):
        return np.zeros(len(array) + 1, np.int32), np.zeros(0, np.uint8)
    bounds = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    return bounds, np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)


# ----------------------------------------------------------------------------------------------------------------------- bodies
# Unpack the bodies of a batch, none into more bytes than allowed: a few packed bytes can stand for gigabytes.


def _whole(raw: bytes, sys_flag: int, size_max: int) -> bytes | None:
    kind = compression_of(sys_flag)
    if kind is None:
        return raw
    unpacked = unpack(raw, kind, size_max)
    return None if unpacked.more or unpacked.fault else unpacked.data


def unpack_bodies(bodies: pa.Array, sys_flag: npt.NDArray[np.int64], size_max: int, room: int) -> pa.Array:
    """Return the first ``bodies`` (binary), with packed ones unpacked.

    ``sys_flag`` (int64) says how each is packed. A body is null where it is broken or would have more than ``size_max`` bytes.
    Once they have more than ``room`` bytes together, the others are left out; one is always there.
    """
    if not (sys_flag & FLAG_COMPRESSED).any():
        return bodies
    unpacked: list[bytes | None] = []
    size = 0
    for body, flag in zip(bodies, sys_flag.tolist(), strict=True):
        data = _whole(body.as_py(), flag, size_max)
        unpacked.append(data)
        size += len(data) if data is not None else 0
        if size > room:
            break
    return pa.array(unpacked, pa.binary())


# ---------------------------------------------------------------------------------------------------------------------- batches
# The columns of a message, as ``rocketmq-commitlog`` has them, and Arrow batches of records with such columns.

BATCH_ROWS: Final = 1 << 14
"""Records in a batch, at most."""
BATCH_BYTES: Final = 16 << 20
"""Bytes of records in a batch, unless a single one is longer. A batch has offsets of 32 bits into its texts."""
UNPACKED_BYTES: Final = 64 << 20
"""Bytes of unpacked bodies at which a batch ends."""


@dataclass(frozen=True)
class BatchRecords:
    """Records of one batch: the bytes of their block (uint8), what the scan found, and their fields.

    ``fields`` is int64, ``record.columns`` by records.
    """

    data: npt.NDArray[np.uint8]
    messages: MessageArrays
    fields: npt.NDArray[np.int64]

    def texts(self, start: int, rows: Any = slice(None)) -> pa.Array:
        """Return the texts that begin at the field ``start``, of all records or some rows, as Java decodes them."""
        return texts(read_texts(self.data, self.fields[start, rows], self.fields[start + 1, rows]))

    @cached_property
    def topics(self) -> pa.Array:
        """The topics (string)."""
        return self.texts(m.TOPIC_START)

    @cached_property
    def meaning(self) -> MeaningArrays:
        """What the records mean."""
        return meaning_arrays(
            MeantRecords(
                self.topics, self.fields[m.QUEUE_ID], self.fields[m.SYS_FLAG], self.fields[m.PREPARED_OFFSET],
                self.messages.tags_code, self.properties, partial(self.texts, m.TAGS_START), self.bodies,
            )
        )  # fmt: skip

    def properties(self, rows: Any = slice(None)) -> pa.Array:
        """Return the properties (map<string, string>) of all records or some rows."""
        return maps(read_maps(self.data, self.fields[m.PROPS_START, rows], self.fields[m.PROPS_END, rows]))

    def bodies(self, rows: Any = slice(None)) -> pa.Array:
        """Return the bodies (binary) of all records or some rows, as they are stored."""
        column = read_bytes(self.data, self.fields[m.BODY_START, rows], self.fields[m.BODY_END, rows])
        return texts(column, pa.binary())


Make = Callable[[BatchRecords], pa.Array]


def _number(kind: pa.DataType, row: int) -> tuple[pa.DataType, Make]:
    return kind, lambda rows: numbers(rows.fields[row], kind)


def _known(kind: pa.DataType, name: str) -> tuple[pa.DataType, Make]:
    return kind, lambda rows: numbers(getattr(rows.messages, name), kind)


def _time(row: int) -> tuple[pa.DataType, Make]:
    return TIME, lambda rows: times(rows.fields[row])


def _text(start: int) -> tuple[pa.DataType, Make]:
    return pa.string(), lambda rows: rows.texts(start)


def _meaning(kind: pa.DataType, name: str) -> tuple[pa.DataType, Make]:
    return kind, lambda rows: getattr(rows.meaning, name)


def _host(at: int, flag: int) -> tuple[pa.DataType, Make]:
    def make(rows: BatchRecords) -> pa.Array:
        return texts(read_hosts(rows.data, rows.fields[at], rows.fields[m.SYS_FLAG] & flag != 0))

    return pa.string(), make


COLUMNS: Final[dict[str, tuple[pa.DataType, Make]]] = {
    # DispatchRequest
    "topic": (pa.string(), lambda rows: rows.topics),
    "queueId": _number(pa.int32(), m.QUEUE_ID),
    "commitLogOffset": _known(pa.int64(), "phy_offset"),
    "msgSize": _known(pa.int32(), "size"),
    "tagsCode": _known(pa.int64(), "tags_code"),
    "storeTimestamp": _number(pa.int64(), m.STORE_TIME),
    "storeTime": _time(m.STORE_TIME),
    "consumeQueueOffset": _number(pa.int64(), m.QUEUE_OFFSET),
    "keys": _text(m.KEYS_START),
    "uniqKey": _text(m.UNIQ_KEY_START),
    "sysFlag": _number(pa.int32(), m.SYS_FLAG),
    "preparedTransactionOffset": _number(pa.int64(), m.PREPARED_OFFSET),
    "msgBaseOffset": _known(pa.int64(), "base"),
    "batchSize": _known(pa.int32(), "messages"),
    # what a broker derives from it
    "hasUnit": (pa.bool_(), lambda rows: pa.array(rows.fields[m.HAS_UNIT] != 0)),
    "keyItems": _number(pa.int32(), m.KEY_ITEMS),
    # MessageExt
    "tags": _text(m.TAGS_START),
    "bornTimestamp": _number(pa.int64(), m.BORN_TIME),
    "bornTime": _time(m.BORN_TIME),
    "bornHost": _host(m.BORN_HOST_AT, r.FLAG_BORN_HOST_V6),
    "storeHost": _host(m.STORE_HOST_AT, r.FLAG_STORE_HOST_V6),
    "flag": _number(pa.int32(), m.FLAG),
    "reconsumeTimes": _number(pa.int32(), m.RECONSUME_TIMES),
    "version": _number(pa.int32(), m.VERSION),
    "bodyLength": _number(pa.int32(), m.BODY_LENGTH),
    "bodyCRC": _number(pa.int32(), m.BODY_CRC),
    "properties": (pa.map_(pa.string(), pa.string()), lambda rows: rows.properties()),
    # what the record means
    "kind": _meaning(pa.string(), "kind"),
    "realTopic": _meaning(pa.string(), "topic"),
    "realQueueId": _meaning(pa.int32(), "queue_id"),
    "realQueueOffset": _meaning(pa.int64(), "queue_offset"),
    "consumerGroup": _meaning(pa.string(), "group"),
    "originOffset": _meaning(pa.int64(), "origin_offset"),
    "deliverTimestamp": _meaning(pa.int64(), "deliver_time"),
    "deliverTime": (TIME, lambda rows: some_times(rows.meaning.deliver_time)),
}
BODY: Final = "body"
BIT_MAP: Final = "bitMap"
DAMAGE: Final = "damage"
_OF_PROPERTIES: Final = {
    "keys", "uniqKey", "tags", "keyItems",
    # Of the meaning: the tag of a record of POP.
    "realTopic", "realQueueId", "realQueueOffset", "consumerGroup", "deliverTimestamp", "deliverTime",
}  # fmt: skip


def fields(*, body: bool, damage: bool, bits: bool = False) -> pa.Schema:
    """Return all columns, with ``bitMap``, ``body`` (both binary) and ``damage`` (string, null in a good record) where
    wanted."""
    optional = [pa.field(BIT_MAP, pa.binary())] if bits else []
    optional += [pa.field(BODY, pa.binary())] if body else []
    optional += [pa.field(DAMAGE, pa.string())] if damage else []
    return pa.schema([*(pa.field(name, kind) for name, (kind, _) in COLUMNS.items()), *optional])


def _some(messages: MessageArrays, selection: Any) -> MessageArrays:
    return MessageArrays(*(column[selection] for column in messages))


@dataclass(frozen=True)
class MessageBatches:
    """Makes batches with the columns ``schema``, of records with a store time in [low, high], in milliseconds.

    ``unpack`` is the most bytes that an unpacked body may have; 0 leaves bodies as they are stored. ``filters`` are the
    registrations by which ``bitMap`` is computed.
    """

    schema: pa.Schema
    low: int
    high: int
    unpack: int = 0
    filters: ConsumerFilters = NO_FILTERS

    @cached_property
    def _matcher(self) -> Matcher:
        return Matcher(self.filters)

    @property
    def _rows_max(self) -> int:
        """Records in a batch, at most: so many that its bit maps have no more than UNPACKED_BYTES."""
        length = self.filters.bits // 8 if BIT_MAP in self.schema.names else 0
        return min(BATCH_ROWS, UNPACKED_BYTES // max(1, length))

    def of_block(self, block: Block) -> Iterator[pa.RecordBatch]:
        """Yield the records of one scanned block, in their order."""
        messages = block.messages
        first = 0
        ends = np.cumsum(messages.size, dtype=np.int64)
        while first < len(messages.phy_offset):
            before = int(ends[first - 1]) if first else 0
            stop = int(np.searchsorted(ends, before + BATCH_BYTES, side="right"))
            stop = min(max(stop, first + 1), first + self._rows_max)
            part = _some(messages, slice(first, stop))
            fields = m.read_fields(block.data, block.base, part.phy_offset, not _OF_PROPERTIES.isdisjoint(self.schema.names))
            times = fields[m.STORE_TIME]
            in_time = (times >= self.low) & (times <= self.high)
            if not in_time.all():
                part = _some(part, in_time)
                fields = np.ascontiguousarray(fields[:, in_time])
            if len(part.phy_offset):
                yield from self._batches(BatchRecords(block.data, part, fields))
            first = stop

    def _batches(self, rows: BatchRecords) -> Iterator[pa.RecordBatch]:
        if BODY not in self.schema.names:
            yield self._batch(rows, None)
            return
        bodies, flags = rows.bodies(), rows.fields[m.SYS_FLAG]
        if not self.unpack:
            yield self._batch(rows, bodies)
            return
        first = 0
        while first < len(bodies):
            unpacked = unpack_bodies(bodies[first:], flags[first:], self.unpack, UNPACKED_BYTES)
            part = slice(first, first + len(unpacked))
            yield self._batch(BatchRecords(rows.data, _some(rows.messages, part), rows.fields[:, part]), unpacked)
            first = part.stop

    def _batch(self, rows: BatchRecords, bodies: pa.Array | None) -> pa.RecordBatch:
        columns: list[Any] = []
        for field in self.schema:
            if field.name == BODY:
                columns.append(bodies)
            elif field.name == BIT_MAP:
                columns.append(self._bit_maps(rows))
            elif field.name == DAMAGE:
                columns.append(pa.nulls(len(rows.messages.phy_offset), pa.string()))
            else:
                columns.append(COLUMNS[field.name][1](rows))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _bit_maps(self, rows: BatchRecords) -> pa.Array:
        """Return the bit maps that a broker's dispatch sets, null for topics without a registration."""
        length = self.filters.bits // 8
        valid = np.zeros(len(rows.messages.phy_offset), np.bool_)
        maps = np.zeros((len(valid), length), np.uint8)
        topics = rows.topics.dictionary_encode()
        for code, topic in enumerate(topics.dictionary.to_pylist()):
            if self._matcher.knows(topic):
                chosen = np.flatnonzero(topics.indices.to_numpy() == code)
                bounds = rows.fields[m.PROPS_START, chosen], rows.fields[m.PROPS_END, chosen]
                maps[chosen] = self.filters.bit_maps(topic, self._matcher.taken(topic, rows.data, *bounds))
                valid[chosen] = True
        offsets = np.zeros(len(valid) + 1, np.int32)
        np.cumsum(valid * length, out=offsets[1:])
        return texts(TextColumn(offsets, maps[valid].reshape(-1), valid), pa.binary())
