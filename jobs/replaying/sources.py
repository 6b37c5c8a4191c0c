"""What a replay reads, and what it sends of each row.

It reads the log of a store, or an export of one, whose rows say what its records were.
"""

from __future__ import annotations

import os
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_reindex import files
from rocketmq_reindex.files.digests import file_digest
from rocketmq_reindex.jobs.exporting import delta, iceberg
from rocketmq_reindex.jobs.exporting.run import Export
from rocketmq_reindex.jobs.importing import rows as importing_rows, sources
from rocketmq_reindex.jobs.querying import message_rows
from rocketmq_reindex.storage_format import layouts
from rocketmq_reindex.storage_format.digest import new_digest
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.record import meaning
from rocketmq_reindex.storage_format.record.layout import FLAG_INNER_BATCH, as_number
from rocketmq_reindex.storage_format.showing import escape
from rocketmq_reindex.udfs.exporting import formats
from rocketmq_reindex.udfs.exporting.choosing import Chooser, Chosen
from rocketmq_reindex.udfs.messages.batches import BODY, COLUMNS, counts_in

T = TypeVar("T")
Mask = npt.NDArray[np.bool_]


NORMAL, FIFO, DELAY, TRANSACTION, LITE, PRIORITY = 1, 2, 3, 4, 5, 6
"""``MessageType`` of the protocol"""


# --------------------------------------------------------------------------------------------------------------------- messages
# What is sent of a row of an export.

GROUP: Final = "__SHARDINGKEY"
"""the property with a message's group"""
_LITE_TOPIC: Final = "__LITE_TOPIC"
_PRIORITY: Final = "_SYS_MSG_PRIORITY_"
_LIGHT_QUEUES: Final = "INNER_MULTI_DISPATCH"
_NOT_COPIED: Final = frozenset({
    GROUP,
    "1ST_POP_TIME", "ARRIVE_TIME", "BORN_TIMESTAMP", "BUYER_ID", "CHECK_IMMUNITY_TIME_IN_SECONDS", "CLUSTER",
    "CONSUME_START_TIME", "CORRECTION_FLAG", "CORRELATION_ID", "DELAY", "DLQ_ORIGIN_MESSAGE_ID", "DLQ_ORIGIN_TOPIC",
    "DUP_INFO", "EXTEND_UNIQ_INFO", "INNER_BASE", "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "INNER_NUM",
    "INSTANCE_ID", "KEYS", "MAX_OFFSET", "MAX_RECONSUME_TIMES", "MIN_OFFSET", "MQ2_FLAG", "MSG_REGION", "MSG_TYPE",
    "ORIGIN_GROUP", "ORIGIN_MESSAGE_ID", "PGROUP", "POP_CK", "POP_CK_OFFSET", "PROPERTY_FORWARD_QUEUE_ID",
    "PUSH_REPLY_TIME", "REAL_QID", "REAL_TOPIC", "RECONSUME_TIME", "REDIRECT", "REPLY_TO_CLIENT", "RETRY_TOPIC", "TAGS",
    "TIMER_DELAY_LEVEL", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS", "TIMER_DEL_UNIQKEY", "TIMER_DEQUEUE_MS",
    "TIMER_ENQUEUE_MS", "TIMER_OUT_MS", "TIMER_ROLL_TIMES", "TRACE_CONTEXT", "TRACE_ON", "TRANSACTION_CHECK_TIMES",
    "TRANSFER_FLAG", "TRAN_MSG", "TRAN_PREPARED_QUEUE_OFFSET", "TTL", "UNIQ_KEY", "WAIT", "_SYS_MSG_PRIORITY_",
    "__BORNHOST", "__CRC32#", "__LITE_TOPIC", "__transactionId__",
})  # fmt: skip
"""properties of RocketMQ's own (``MessageConst``): broker and client set those anew that the message needs"""
_TRANSIENT: Final = "__RMQ.TRANSIENT."
ROW: Final = (
    "topic", "queueId", "consumeQueueOffset", "realTopic", "realQueueId", "deliverTimestamp", "storeTimestamp", "storeHost",
    "bornTimestamp", "uniqKey", "keys", "tags", "batchSize", "sysFlag", "commitLogOffset", "properties", formats.PACKED, BODY,
    "kind",
)  # fmt: skip
"""the columns that ``Outgoing`` is made of"""


class Outgoing(NamedTuple):
    """A message as it is sent, and the queue that it comes from. ``deliver_time`` is milliseconds since 1970."""

    topic: str
    id: str
    body: bytes
    tag: str | None
    keys: str | None
    properties: dict[str, str]
    group: str | None
    deliver_time: int | None
    born_time: int
    source: tuple[str, int]
    lite_topic: str | None = None
    priority: int | None = None
    light_queues: str | None = None
    """names, joined by commas, that no gRPC client can give a message"""

    def kind(self, types: frozenset[int]) -> int:
        """Return the type as which it is sent to a topic that takes ``types``."""
        if self.deliver_time is not None and (self.deliver_time > now() or DELAY in types):
            return DELAY
        if self.lite_topic is not None and LITE in types:
            return LITE
        if self.priority is not None and PRIORITY in types:
            return PRIORITY
        if self.group is not None:
            return FIFO
        # What was delayed, or in a transaction, has come to its end: it is sent as such to a topic that takes nothing else.
        return next((kind for kind in (NORMAL, DELAY, TRANSACTION) if kind in types), NORMAL)


def now() -> int:
    """Return the time as milliseconds since 1970."""
    return int(time.time() * 1000)


def flaw(row: Mapping[str, Any]) -> str:
    """Return why a row cannot be sent; "" where it can."""
    if row["batchSize"] > 1 or row["sysFlag"] & FLAG_INNER_BATCH:
        return f"it is a batch of {row['batchSize']} messages in one record, which are not taken apart"
    return "" if row[formats.PACKED] is None else "its body does not unpack, or into more than --body-max"


def topic_of(row: Mapping[str, Any]) -> str:
    """Return the topic that a row is for: of one that waits for its time the topic of its delivery."""
    return str(row["realTopic"] if row["kind"] in (meaning.SCHEDULED, meaning.TIMER) else row["topic"])


def outgoing(row: Mapping[str, Any], topics: Mapping[str, str], new_id: str, *, queue_groups: bool) -> Outgoing:
    """Return what is sent of a row. ``topics`` are other names; ``queue_groups``: a queue is a group where there is none."""
    waits = row["kind"] in (meaning.SCHEDULED, meaning.TIMER)
    topic = topic_of(row)
    queue_id = row["realQueueId"] if waits and row["realQueueId"] is not None else row["queueId"]
    properties = dict(row["properties"] or ())
    lite_topic, priority = properties.get(_LITE_TOPIC) or None, as_number(properties.get(_PRIORITY) or "")
    group = properties.get(GROUP) or (f"{topic}-{queue_id}" if queue_groups else None)
    light_queues = (properties.get(_LIGHT_QUEUES) or None) if lite_topic is None else None
    kept = {
        name: value or ""
        for name, value in properties.items()
        if name not in _NOT_COPIED and not name.startswith((_TRANSIENT, meaning.REPLAY_ORIGIN))
    }
    origin = {
        "broker": row["storeHost"], "topic": topic, "queue_id": queue_id,
        "queue_offset": None if waits else row["consumeQueueOffset"], "phy_offset": row["commitLogOffset"],
        "message_id": row["uniqKey"], "born_time": row["bornTimestamp"], "store_time": row["storeTimestamp"],
        "lite_topic": lite_topic, "priority": priority, "light_queues": light_queues,
    }  # fmt: skip
    kept |= {f"{meaning.REPLAY_ORIGIN}{name}": str(value) for name, value in origin.items() if value is not None}
    return Outgoing(
        topics.get(topic, topic), new_id, row[BODY], row["tags"] or None, row["keys"] or None, kept, group,
        row["deliverTimestamp"] if waits else None, row["bornTimestamp"], (topic, queue_id),
        lite_topic, priority if priority is not None and 0 <= priority <= layouts.INT32_MAX else None, light_queues,
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------------- sources
# Where the rows come from.


class Source(Protocol):
    """Messages in the order of their log."""

    extent: tuple[int, int]
    """where they begin, and how long that is, in the unit of ``Chosen.position``"""

    def bound(self) -> dict[str, Any]:
        """Return what tells this source from another one."""

    def chosen(self) -> Iterator[Chosen]:
        """Return what is chosen, with the columns ROW. Raises InputError for what cannot be read."""


def source_of(export: Export) -> Source:
    """Return what there is in the place of a store. Raises InputError for what is neither a log nor an export."""
    place = export.settings.store
    return ExportSource(export) if place and not export.settings.commitlogs and _is_export(place) else StoreSource(export)


def _is_export(place: str) -> bool:
    if files.no_rename(place):
        return False
    if not os.path.isdir(place):
        return os.path.splitext(place)[1].lower() in (*importing_rows.READERS, ".parquet")
    if os.path.lexists(files.join(place, layouts.COMMITLOG)):
        return False
    names = os.listdir(place)
    return iceberg.is_table(place) or any(
        name.startswith("topic=") or name.endswith(".parquet") or name == delta.LOG for name in names
    )


def _takes_waiting(export: Export) -> bool:
    """Return whether delayed messages are taken that wait: they have another queue than the one whose offsets are named."""
    choice = export.settings.choice
    return choice.begin_offset == 0 and choice.end_offset == layouts.INT64_MAX


def _itself(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


# ------------------------------------------------------------------------------------------------------------------------ store

_HEAD: Final = 4096
_PIECE: Final = 4 << 20


class StoreSource:
    """The log of a store."""

    def __init__(self, export: Export) -> None:
        self._export, self.extent = export, export.extent

    def bound(self) -> dict[str, Any]:
        """Return where the log begins and ends, and a digest of its head and its last segment."""
        segments, digest = self._export.segments, new_digest()
        if segments:
            digest.update(files.head(segments[0].path, _HEAD))
            with files.Reader(segments[-1].path) as last:
                size = segments[-1].data_end - segments[-1].start
                for at in range(0, size, _PIECE):
                    piece = np.empty(min(_PIECE, size - at), np.uint8)
                    last.read_into(at, piece)
                    digest.update(piece.data)
        return {
            "begin": segments[0].start if segments else 0,
            "end": segments[-1].data_end if segments else 0,
            "digest": digest.digest().hex(),
        }

    def chosen(self) -> Iterator[Chosen]:
        """Return what is chosen of the log."""
        waiting = message_rows.waiting(self._export.question(())) if _takes_waiting(self._export) else None
        return self._export.read(_itself, waiting)


# ----------------------------------------------------------------------------------------------------------------------- export

_OFFSET: Final = "commitLogOffset"
_SAID: Final = ("topic", "queueId", "consumeQueueOffset", _OFFSET, "storeTimestamp", "bornTimestamp", "batchSize", "sysFlag",
                "kind")  # fmt: skip
"""columns that each row has a value in"""
_BODIES: Final = {formats.PACKED: pa.string(), BODY: pa.binary()}
_SCHEMA: Final = pa.schema([(name, _BODIES[name] if name in _BODIES else COLUMNS[name][0]) for name in ROW])
_WAITING: Final = (meaning.SCHEDULED, meaning.TIMER)


class ExportSource:
    """Rows that ``export`` wrote: a file of JSON lines, CSV or Parquet, a folder of Parquet files, or a Delta table."""

    def __init__(self, export: Export) -> None:
        self._export, self._path = export, export.settings.store
        if export.settings.choice.unconsumed_by is not None and not export.settings.consumer_offsets:
            raise InputError("--unconsumed-by of an export: name files of consumer offsets by --consumer-offsets")
        self._rows = sources.open_source(self._path, _SCHEMA)
        self.extent = 0, self._rows.size

    def bound(self) -> dict[str, Any]:
        """Return the names of the files below the export, and a digest of all of them."""
        digest = new_digest()
        for path in sorted(self._rows.paths):
            name = os.path.relpath(path, self._path).encode("utf-8", "surrogateescape")
            digest.update(b"%d %b %b " % (len(name), name, file_digest(path).encode()))
        return {"export": digest.digest().hex()}

    def chosen(self) -> Iterator[Chosen]:
        """Yield what is chosen of the rows."""
        settings = self._export.settings
        with tempfile.TemporaryDirectory(prefix="rmq-reindex-") as scratch:
            waiting = self._waiting(scratch) if _takes_waiting(self._export) else None
            chooser = Chooser(settings.choice, None, 0, True, _SCHEMA, None, self._export.unread, waiting)
            for rows in self._checked(scratch):
                yield self._choose(chooser, rows)

    def _checked(self, scratch: str) -> Iterator[importing_rows.Rows]:
        """Yield all rows. Raises InputError for one that does not say what a replay needs."""
        last = -1
        for rows in self._rows.read(scratch):
            for name in _SCHEMA.names:
                _refuse(rows, ~rows.named.get(name, np.zeros(rows.batch.num_rows, np.bool_)), name, "there is no such column")
            for name in _SAID:
                _refuse(rows, np.asarray(rows.batch.column(name).is_null()), name, "is missing")
            offsets = rows.batch.column(_OFFSET).to_numpy()
            # A journal knows a message by it, and what is below one that is said is done with.
            _refuse(rows, np.diff(offsets, prepend=last) <= 0, _OFFSET, "is not above that of the row before")
            last = int(offsets[-1])
            yield rows

    def _choose(self, chooser: Chooser, rows: importing_rows.Rows) -> Chosen:
        settings, batch = self._export.settings, rows.batch
        taken, left_out = chooser.without_body(batch)
        times = batch.column("storeTimestamp").to_numpy()
        within = (times >= (settings.since or 0)) & (times < (layouts.INT64_MAX if settings.until is None else settings.until))
        if settings.keys:
            within &= _have_key(batch, frozenset(settings.keys))
        if not within.all():
            left_out = Counter[str]()
        batch = batch.filter(pa.array(taken & within))
        unsearched: tuple[int, ...] = ()
        if settings.choice.needs_body:
            # What is packed did not unpack when it was exported.
            is_packed = batch.column(formats.PACKED).is_valid()
            unsearched, left_out = tuple(batch.column(_OFFSET).filter(is_packed).to_pylist()), Counter[str]()
            found = chooser.by_body(pc.if_else(is_packed, pa.scalar(None, pa.binary()), batch.column(BODY)))
            batch = batch.filter(pa.array(found))
        body = pc.fill_null(batch.column(BODY), b"")
        batch = batch.set_column(batch.schema.get_field_index(BODY), BODY, body)
        size = pc.sum(pc.binary_length(body)).as_py() or 0
        encoded = batch if batch.num_rows else None
        return Chosen(rows.position, encoded, batch.num_rows, size, counts_in(batch.column("topic")), left_out,
                      unsearched=unsearched)  # fmt: skip

    def _waiting(self, scratch: str) -> npt.NDArray[np.int64]:
        """Return the offsets of delayed messages of which the export has no delivered copy (int64, sorted).

        Raises InputError where it has nothing that was delivered: then nobody sees which of them were.
        """
        messages = 0

        def delayed() -> Iterator[pa.RecordBatch]:
            nonlocal messages
            for rows in self._checked(scratch):
                kinds = rows.batch.column("kind")
                messages += int(pc.sum(pc.equal(kinds, meaning.MESSAGE)).as_py() or 0)
                yield _with_crc(rows.batch.filter(pc.is_in(kinds, pa.array(_WAITING))))

        def every(make: Callable[[pa.RecordBatch], Iterator[T]]) -> Iterator[T]:
            for rows in self._checked(scratch):
                yield from make(_with_crc(rows.batch))

        waiting = message_rows.undelivered(delayed(), every)
        if len(waiting) and not messages and self._export.settings.choice.taken_kinds & {meaning.MESSAGE}:
            raise InputError(
                f"{escape(self._path)}: has delayed messages, and none that was delivered: export with --kind all, so that it "
                "shows which of them still wait"
            )
        return waiting


def _refuse(rows: importing_rows.Rows, wrong: Mask, name: str, what: str) -> None:
    if wrong.any():
        needs = "replay needs all columns of an export, in the order of the log, and each message once"
        raise InputError(f"{rows.place(int(wrong.argmax()))}: {name}: {what}: {needs}")


def _have_key(batch: pa.RecordBatch, wanted: frozenset[str]) -> Mask:
    """Return which rows have one of these as a word of their keys, or as their unique key (bool)."""
    pairs = zip(batch.column("keys").to_pylist(), batch.column("uniqKey").to_pylist(), strict=True)
    return np.array([not wanted.isdisjoint([*(keys or "").split(" "), unique]) for keys, unique in pairs], np.bool_)


def _with_crc(batch: pa.RecordBatch) -> pa.RecordBatch:
    sums = [None if body is None else zlib.crc32(body) for body in batch.column(BODY).to_pylist()]
    return batch.append_column("bodyCRC", pa.array(sums, pa.int64()))
