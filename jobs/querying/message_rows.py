"""What may be asked of all messages of a log, and what became of half messages and delayed ones."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeVar, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_reindex import files
from rocketmq_reindex.jobs.engines.local import own_cores
from rocketmq_reindex.jobs.store.settings import check_is_folder, check_is_store, roots_of
from rocketmq_reindex.storage_format.errors import UsageError
from rocketmq_reindex.storage_format.record import meaning
from rocketmq_reindex.storage_format.record.layout import op_offsets
from rocketmq_reindex.storage_format.showing import escape
from rocketmq_reindex.storage_format.topics import DISCARD_TOPIC, OP_TAG, OP_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from rocketmq_reindex.udfs.messages import log_rows
from rocketmq_reindex.udfs.messages.batches import DAMAGE, fields
from rocketmq_reindex.udfs.messages.log_rows import UNPACKED_MAX, Bounds, LogRowReader, Topics
from rocketmq_reindex.udfs.messages.pieces import Batches, LogPieces, itself

T = TypeVar("T")

# ----------------------------------------------------------------------------------------------------------------------- wanted
# Which messages are wanted, which columns of them, and what makes their rows.

Body = Literal["unpacked", "stored", "none"]
BODIES: Final = get_args(Body)
_WHOLE: Final = 1 << 62
"""bytes of a range: each segment is one, so that its records are known from its start on"""


@dataclass(frozen=True)
class MessageQuestion:
    """The wanted messages of a log. Times are milliseconds since 1970: from ``since`` on, and before ``until``.

    ``topics`` are names or globs, ``keys`` words of KEYS or whole unique keys; without any of them all are wanted. ``columns``
    are names of ``batches.fields``, none means all. ``body`` is one of BODIES, ``max_body`` bytes, ``damage`` one of
    ``log_rows.SHOWN_DAMAGE``.
    """

    store: str = ""
    commitlogs: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None
    columns: tuple[str, ...] = ()
    body: str = BODIES[0]
    max_body: int = UNPACKED_MAX
    damage: str = log_rows.ROWS
    segment_size: int = 0
    """bytes; 0 is that of the files"""
    delays: tuple[int, ...] = LogRowReader.delays
    """milliseconds of each delay level, from 1 on"""

    @property
    def roots(self) -> tuple[str, ...]:
        """The folders of segments."""
        return tuple(map(files.absolute, roots_of(self.store, self.commitlogs)))

    def schema(self) -> pa.Schema:
        """Return the columns of the batches. Raises UsageError for what cannot be asked."""
        self._check()
        every = fields(body=self.body != "none", damage=self.damage == log_rows.ROWS)
        for name in self.columns:
            if name not in every.names:
                raise UsageError(f"messages: columns: there is no {escape(name)}: take of {', '.join(every.names)}")
        if not self.columns:
            return every
        # Without its column a damaged stretch would be a row that says nothing.
        damage = [DAMAGE] if DAMAGE in every.names and DAMAGE not in self.columns else []
        return pa.schema([every.field(name) for name in (*self.columns, *damage)])

    def _check(self) -> None:
        if not self.store and not self.commitlogs:
            raise UsageError("messages: name a store, or commitlog folders")
        for name, value, choices in (("body", self.body, BODIES), ("damage", self.damage, log_rows.SHOWN_DAMAGE)):
            if value not in choices:
                raise UsageError(f"messages: {name} {value!a}: take {' or '.join(choices)}")
        if self.max_body < 1:
            raise UsageError(f"messages: max_body {self.max_body}: take a number of bytes above 0")
        if self.segment_size < 0:
            raise UsageError(f"messages: segment_size {self.segment_size}: take a number of bytes above 0")
        if "" in (*self.topics, *self.keys):
            raise UsageError("messages: a topic and a key have at least one character")
        if len(set(self.columns)) < len(self.columns):
            raise UsageError("messages: columns: one is named twice: name it once")

    def read(self, schema: pa.Schema) -> Batches:
        """Return the messages in batches with the columns ``schema``. Raises InputError at once for what is no log.

        With ``damage`` fail, RefusedError is raised where damage is met.
        """
        return self.read_as(schema, itself)

    def read_as(self, schema: pa.Schema, make: Callable[[pa.RecordBatch], Iterator[T]]) -> Iterator[T]:
        """Return what ``make`` makes of the batches of ``read``, in their order. It does so in several threads."""
        pieces = self.pieces(schema)
        return pieces.read(pieces.rows.plan(), make, own_cores())

    def pieces(self, schema: pa.Schema) -> LogPieces:
        """Return what reads the messages. Raises InputError for what is no store."""
        if self.store:
            check_is_folder(self.store)
            if not self.commitlogs:
                check_is_store(self.store)
        bounds = Bounds(
            start_time=Bounds.start_time if self.since is None else self.since,
            end_time=Bounds.end_time if self.until is None else self.until,
        )
        unpack = self.max_body if self.body == BODIES[0] else 0
        rows = LogRowReader(
            schema, self.roots, bounds, Topics(self.topics), _WHOLE, self.segment_size, unpack=unpack, delays=self.delays
        )
        return LogPieces(rows, self.keys, self.damage)


# ----------------------------------------------------------------------------------------------------------------- transactions
# What became of half messages.

_OF_HALVES: Final = ("topic", "kind", "queueId", "consumeQueueOffset", "uniqKey", "tags", "commitLogOffset", "body")
_ORIGIN: Final = "originOffset"


class _Told(NamedTuple):
    """What one batch says of half messages: their rows and those of what decides them, and which are committed."""

    rows: pa.RecordBatch
    origins: npt.NDArray[np.int64]
    """offsets in the log of the half messages of committed ones (int64)"""
    keys: pa.Array
    """unique keys of committed messages (string)"""


def _told(batch: pa.RecordBatch) -> Iterator[_Told]:
    kinds = batch.column("kind")
    told = batch.filter(pc.is_in(kinds, value_set=pa.array([meaning.HALF, meaning.OP, meaning.GIVEN_UP])))
    committed = batch.filter(pc.and_(pc.equal(kinds, meaning.MESSAGE), pc.is_valid(batch.column(_ORIGIN))))
    # A slice would keep what else is in the batch.
    told = told.select(_OF_HALVES).take(pa.array(np.arange(told.num_rows)))
    yield _Told(told, committed.column(_ORIGIN).to_numpy(), committed.column("uniqKey").drop_null())


def undecided(asked: MessageQuestion) -> npt.NDArray[np.int64]:
    """Return the offsets in the log of half messages that nobody has decided (int64, sorted).

    An op message decides, and so does a committed message: a broker that dies may have stored it, and no op message yet. A
    broker that asks for a half message stores it once more (``putBackHalfMsgQueue``): what decides one copy, or gives it up,
    decides about all with its unique key, and the newest stands for them.
    """
    columns = (*_OF_HALVES, _ORIGIN)
    question = dataclasses.replace(asked, topics=(), keys=(), since=None, until=None, columns=columns, body="stored")
    decided, closed = set[tuple[int, int]](), set[str]()
    places, keys = list[tuple[int, int, int]](), list[str | None]()
    origins, committed_keys = [np.empty(0, np.int64)], [pa.array([], pa.string())]
    for told in question.read_as(question.schema(), _told):
        origins.append(told.origins)
        committed_keys.append(told.keys)
        for topic, kind, queue, offset, key, tags, phy_offset, body in zip(
            *(told.rows.column(name).to_pylist() for name in _OF_HALVES), strict=True
        ):
            if kind == meaning.HALF:
                places.append((queue, offset, phy_offset))
                keys.append(key)
            elif topic == OP_TOPIC and tags == OP_TAG:
                decided.update((queue, half) for half in op_offsets(body))
            elif topic == DISCARD_TOPIC and key is not None:
                closed.add(key)
    is_committed = np.isin(np.array([place[2] for place in places], np.int64), np.concatenate(origins))
    of_key = pc.is_in(pa.array(keys, pa.string()), value_set=pa.chunked_array(committed_keys))
    is_decided = [
        committed or by_key or (queue, offset) in decided
        for committed, by_key, (queue, offset, _) in zip(is_committed.tolist(), of_key.to_pylist(), places, strict=True)
    ]
    closed.update(key for key, done in zip(keys, is_decided, strict=True) if key and done)
    newest: dict[str | int, int] = {}
    for (_, _, phy_offset), key, done in zip(places, keys, is_decided, strict=True):
        if not done and key not in closed:
            newest[phy_offset if key is None else key] = phy_offset
    return np.array(sorted(newest.values()), np.int64)


# ------------------------------------------------------------------------------------------------------------------------ delay
# Which delayed messages wait.

_SAME: Final = ("uniqKey", "bornTimestamp", "bodyCRC")
"""what a delayed message and the copy that was delivered have in common"""
_OF_DELAYED: Final = ("realTopic", *_SAME, "commitLogOffset", "properties")
_ROLLS: Final = "TIMER_ROLL_TIMES"
_RECALLS: Final = "TIMER_DEL_UNIQKEY"


def waiting(asked: MessageQuestion) -> npt.NDArray[np.int64]:
    """Return the offsets in the log of delayed and timer messages that were not delivered, nor recalled (int64, sorted)."""
    question = dataclasses.replace(
        asked, topics=(SCHEDULE_TOPIC, TIMER_TOPIC), keys=(), since=None, until=None, columns=_OF_DELAYED, body="none"
    )
    every = dataclasses.replace(question, topics=(), columns=("topic", *_SAME))
    return undelivered(question.read(question.schema()), lambda make: every.read_as(every.schema(), make))


def undelivered(
    delayed: Iterable[pa.RecordBatch],
    every: Callable[[Callable[[pa.RecordBatch], Iterator[list[tuple[Any, ...]]]]], Iterator[list[tuple[Any, ...]]]],
) -> npt.NDArray[np.int64]:
    """Return the offsets of those of ``delayed`` that were not delivered, nor recalled, where ``every`` reads all messages.

    Each copy in the topic settles one record of the same message. A timer message is stored once more when it rolls: the newest
    record stands for it.
    """
    stored: dict[tuple[Any, ...], list[int]] = {}
    rolled, recalled = Counter[tuple[Any, ...]](), set[str]()
    for batch in delayed:
        for *same, offset, pairs in zip(*(batch.column(name).to_pylist() for name in _OF_DELAYED), strict=True):
            properties, identity = dict(pairs or ()), tuple(same)
            if mark := properties.get(_RECALLS):
                recalled.add(mark)
            elif same[0] is not None:
                stored.setdefault(identity, []).append(offset)
                rolled[identity] += properties.get(_ROLLS, "0") not in ("", "0")
    if not stored:
        return np.empty(0, np.int64)
    keys = pa.array({key for _, key, *_ in stored if key is not None}, pa.string())
    has_none = any(key is None for _, key, *_ in stored)
    columns = ("topic", *_SAME)

    def copies(batch: pa.RecordBatch) -> Iterator[list[tuple[Any, ...]]]:
        found = pc.is_in(batch.column("uniqKey"), value_set=keys)
        rows = batch.filter(pc.or_(found, pc.is_null(batch.column("uniqKey"))) if has_none else found)
        yield list(zip(*(rows.column(name).to_pylist() for name in columns), strict=True))

    delivered = Counter[tuple[Any, ...]]()
    for rows in every(copies):
        delivered.update(identity for identity in rows if identity in stored)
    left = list[int]()
    for identity, offsets in stored.items():
        topic, key, *_ = identity
        is_recalled = key is not None and not recalled.isdisjoint((key, f"{topic}+{key}"))
        count = max(1, len(offsets) - rolled[identity]) - delivered[identity]
        left += offsets[-count:] if count > 0 and not is_recalled else []
    return np.array(sorted(left), np.int64)
