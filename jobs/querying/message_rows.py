"""All messages of a log as Arrow batches, in the order of the log: one thread scans, others make the rows."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, NamedTuple, TypeVar, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_reindex import files
from rocketmq_reindex.jobs.local.engines import own_cores
from rocketmq_reindex.jobs.store.settings import check_is_folder, check_is_store, roots_of
from rocketmq_reindex.storage_format.errors import RefusedError, UsageError
from rocketmq_reindex.storage_format.record import meaning
from rocketmq_reindex.storage_format.record.system_bodies import op_offsets
from rocketmq_reindex.storage_format.scan.ranges import Hole
from rocketmq_reindex.storage_format.scan.settings import Block
from rocketmq_reindex.storage_format.showing import escape
from rocketmq_reindex.storage_format.topics import DISCARD_TOPIC, OP_TAG, OP_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from rocketmq_reindex.storage_format.walk.state import MessageArrays
from rocketmq_reindex.udfs.messages import log_rows
from rocketmq_reindex.udfs.messages.batches import DAMAGE, MessageBatches, fields
from rocketmq_reindex.udfs.messages.log_rows import UNPACKED_MAX, Bounds, LogRange, LogRowReader, Topics

T = TypeVar("T")
R = TypeVar("R")
Batches = Iterator[pa.RecordBatch]

# ----------------------------------------------------------------------------------------------------------------------- wanted
# Which messages are wanted, which columns of them, and what makes their rows.

Body = Literal["unpacked", "stored", "none"]
BODIES: Final = get_args(Body)
_KEYED: Final = pa.schema([fields(body=False, damage=False).field(name) for name in ("commitLogOffset", "keys", "uniqKey")])
"""the columns that tell whether a message has one of the keys"""
_SEPARATOR: Final = " "
"""``MessageConst.KEY_SEPARATOR``"""
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
        return self.read_as(schema, _itself)

    def read_as(self, schema: pa.Schema, make: Callable[[pa.RecordBatch], Iterator[T]]) -> Iterator[T]:
        """Return what ``make`` makes of the batches of ``read``, in their order. It does so in several threads."""
        rows = self._rows(schema)
        pieces = self._pieces(rows, rows.plan(), schema)
        return in_order((partial(_made, piece, make) for piece in pieces), own_cores())

    def by_segment(
        self, schema: pa.Schema, make: Callable[[pa.RecordBatch], Iterator[T]]
    ) -> list[tuple[LogRange, Callable[[list[int]], Iterator[T]]]]:
        """Return the segments of a log, each with what reads it alone, as ``read_as``, and adds its records' end to a list."""
        rows = self._rows(schema)

        def read(log_range: LogRange, ends: list[int]) -> Iterator[T]:
            pieces = self._pieces(rows, [log_range], schema, ends)
            return in_order((partial(_made, piece, make) for piece in pieces), own_cores())

        return [(log_range, partial(read, log_range)) for log_range in rows.plan()]

    def _rows(self, schema: pa.Schema) -> LogRowReader:
        if self.store:
            check_is_folder(self.store)
            if not self.commitlogs:
                check_is_store(self.store)
        bounds = Bounds(
            start_time=Bounds.start_time if self.since is None else self.since,
            end_time=Bounds.end_time if self.until is None else self.until,
        )
        unpack = self.max_body if self.body == BODIES[0] else 0
        return LogRowReader(
            schema, self.roots, bounds, Topics(self.topics), _WHOLE, self.segment_size, unpack=unpack, delays=self.delays
        )

    def _pieces(
        self, rows: LogRowReader, log_ranges: Sequence[LogRange], schema: pa.Schema, ends: list[int] | None = None
    ) -> Iterator[Callable[[], Batches]]:
        """Scan the log. Yield what makes the rows of each block, and of the damage in each segment."""
        for log_range in log_ranges:
            holes: list[Hole] = []
            for block in rows.blocks(log_range, holes, ends):
                if len(block.messages.phy_offset):
                    yield partial(self._of_block, rows.batches, _kept(block))
            yield partial(self._damage, schema, holes)

    def _of_block(self, batches: MessageBatches, block: Block) -> Batches:
        yield from batches.of_block(with_keys(batches, block, self.keys) if self.keys else block)

    def _damage(self, schema: pa.Schema, holes: Sequence[Hole]) -> Batches:
        lost = log_rows.lost(holes)
        if self.damage == log_rows.FAIL and lost:
            where = f"segment {lost[0].segment}: damage: {log_rows.hole_text(lost[0])}"
            raise RefusedError(f'{where}: read with damage="skip" or damage="rows"')
        if self.damage == log_rows.ROWS and holes:
            yield log_rows.damage_rows(schema, holes)


def _itself(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    yield batch


def _made(piece: Callable[[], Batches], make: Callable[[pa.RecordBatch], Iterator[T]]) -> Iterator[T]:
    for batch in piece():
        yield from make(batch)


def with_keys(batches: MessageBatches, block: Block, keys: Sequence[str]) -> Block:
    """Return a block with the messages that have one of the keys: as a word of KEYS, or as their unique key."""
    found = [np.empty(0, np.int64)]
    for batch in dataclasses.replace(batches, schema=_KEYED).of_block(block):
        words = pc.binary_join_element_wise(pa.scalar(""), batch.column("keys"), pa.scalar(""), pa.scalar(_SEPARATOR))
        has_one = pc.is_in(batch.column("uniqKey"), value_set=pa.array(keys, pa.string()))
        for key in keys:
            if _SEPARATOR not in key:
                is_word = pc.match_substring(words, f"{_SEPARATOR}{key}{_SEPARATOR}")
                has_one = pc.or_(has_one, pc.fill_null(is_word, fill_value=False))
        found.append(batch.column("commitLogOffset").filter(has_one).to_numpy())
    wanted = np.isin(block.messages.phy_offset, np.concatenate(found))
    columns = (column[wanted] for column in block.messages)
    return dataclasses.replace(block, messages=MessageArrays(*columns))  # type: ignore[arg-type]  # of two dtypes


def _kept(block: Block) -> Block:
    """Return a block that holds after the scan has gone on: what the scan writes anew is copied, what is mapped is not."""
    messages = MessageArrays(*(column.copy() for column in block.messages))
    # The window's own buffer owns its bytes, a view of a mapped file does not.
    data = np.array(block.data) if block.data.flags.owndata else block.data
    return dataclasses.replace(block, messages=messages, data=data)


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


# ------------------------------------------------------------------------------------------------------------------------ order
# Work in several threads whose results come in order.

_STEP: Final = 2
"""results that a piece makes at once"""


def _step(results: Iterator[T]) -> list[T]:
    return list(itertools.islice(results, _STEP))


def _fail(error: Exception, _: int) -> Any:
    raise error


def _to_the_end(pieces: Iterator[Callable[[], Iterator[T]]]) -> Generator[Callable[[], Iterator[T]]]:
    """Yield the pieces. What ends the iteration over them is raised by a last piece: behind the results of those before it."""
    try:
        yield from pieces
    except Exception as error:  # noqa: BLE001  who takes the results raises it
        yield partial(map, partial(_fail, error), [0])


def _begin(pool: ThreadPoolExecutor, work: Callable[..., R], *given: Any) -> Future[R]:
    """Begin a piece of work in a thread; where Python ends, and starts no more of it, do it here: somebody still reads."""
    try:
        return pool.submit(work, *given)
    except RuntimeError:
        done = Future[R]()
    try:
        done.set_result(work(*given))
    except Exception as error:  # noqa: BLE001  who takes the result raises it
        done.set_exception(error)
    return done


def in_order(pieces: Iterator[Callable[[], Iterator[T]]], threads: int) -> Iterator[T]:
    """Yield the results of all pieces in their order. ``threads`` of them are worked on at once, while the next one is taken.

    No thread waits for somebody who takes results: a piece makes a few, and goes on when these are wanted. So a program ends,
    too, that leaves a reading half way. Raises what a piece raises, or the iteration over them.
    """
    workers = set[int]()
    pool = ThreadPoolExecutor(threads + 1, "messages", lambda: workers.add(threading.get_ident()))
    taking, begun, at_end = _to_the_end(pieces), deque[tuple[Iterator[T], Future[list[T]]]](), False
    try:
        taken = _begin(pool, next, taking, None)
        while begun or not at_end:
            may_begin = not at_end and len(begun) < threads
            awaited: list[Future[Any]] = [*(step for _, step in list(begun)[:1]), *([taken] if may_begin else [])]
            wait(awaited, return_when=FIRST_COMPLETED)
            if may_begin and taken.done():
                if (piece := taken.result()) is None:
                    at_end = True
                else:
                    results = piece()
                    begun.append((results, _begin(pool, _step, results)))
                    taken = _begin(pool, next, taking, None)
            if begun and begun[0][1].done():
                results, step = begun.popleft()
                made = step.result()
                if len(made) == _STEP:
                    begun.appendleft((results, _begin(pool, _step, results)))
                yield from made
    finally:
        # Python may close what nobody refers to in any thread, in one of these, too.
        pool.shutdown(wait=threading.get_ident() not in workers, cancel_futures=True)
        # A segment may be open.
        taking.close()
