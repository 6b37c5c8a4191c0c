"""All messages of a log as Arrow batches, in the order of the log: one thread scans, others make the rows."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_reindex.storage_format.errors import RefusedError
from rocketmq_reindex.storage_format.record.state import MessageArrays
from rocketmq_reindex.storage_format.scan.ranges import Hole
from rocketmq_reindex.storage_format.scan.settings import Block
from rocketmq_reindex.udfs.messages import log_rows
from rocketmq_reindex.udfs.messages.batches import MessageBatches, damage_rows, fields

T = TypeVar("T")
R = TypeVar("R")
Batches = Iterator[pa.RecordBatch]

# ---------------------------------------------------------------------------------------------------------------------- pieces
# What makes the rows of a block, so that other threads do it while the scan goes on.

_KEYED: Final = pa.schema([fields(body=False, damage=False).field(name) for name in ("commitLogOffset", "keys", "uniqKey")])
"""the columns that tell whether a message has one of the keys"""
_SEPARATOR: Final = " "
"""``MessageConst.KEY_SEPARATOR``"""


@dataclass(frozen=True)
class LogPieces:
    """Reads the messages of a log in pieces.

    ``keys`` are words of KEYS or whole unique keys; without any all messages are taken. ``damage`` is one of
    ``log_rows.SHOWN_DAMAGE``.
    """

    rows: log_rows.LogRowReader
    keys: tuple[str, ...] = ()
    damage: str = log_rows.ROWS

    def read(
        self,
        log_ranges: Sequence[log_rows.LogRange],
        make: Callable[[pa.RecordBatch], Iterator[T]],
        threads: int,
        ends: list[int] | None = None,
    ) -> Iterator[T]:
        """Return what ``make`` makes of the batches, in their order, in so many threads.

        ``ends`` gets the offset behind the last record of each range, wanted or not. With ``damage`` fail, RefusedError is
        raised where damage is met.
        """
        return in_order((partial(_made, piece, make) for piece in self._pieces(log_ranges, ends)), threads)

    def _pieces(self, log_ranges: Sequence[log_rows.LogRange], ends: list[int] | None) -> Iterator[Callable[[], Batches]]:
        """Scan the log. Yield what makes the rows of each block, and of the damage in each segment."""
        for log_range in log_ranges:
            holes: list[Hole] = []
            for block in self.rows.blocks(log_range, holes, ends):
                if len(block.messages.phy_offset):
                    yield partial(self._of_block, self.rows.batches, _kept(block))
            yield partial(self._damage, holes)

    def _of_block(self, batches: MessageBatches, block: Block) -> Batches:
        yield from batches.of_block(with_keys(batches, block, self.keys) if self.keys else block)

    def _damage(self, holes: Sequence[Hole]) -> Batches:
        lost = log_rows.lost(holes)
        if self.damage == log_rows.FAIL and lost:
            where = f"segment {lost[0].segment}: damage: {lost[0].text}"
            raise RefusedError(f'{where}: read with damage="skip" or damage="rows"')
        if self.damage == log_rows.ROWS and holes:
            yield damage_rows(self.rows.schema, holes)


def itself(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the batch."""
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
