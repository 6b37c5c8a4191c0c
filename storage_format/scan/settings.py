"""What a scan is asked for, and what it hands out block by block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.integers import INT64_MAX
from rocketmq_reindex.storage_format.record.layout import CRC_BODY
from rocketmq_reindex.storage_format.versions import NEWEST
from rocketmq_reindex.storage_format.walk import state as w
from rocketmq_reindex.storage_format.walk.index_items import MAKER, STAGED, ItemArrays
from rocketmq_reindex.storage_format.walk.loop import RowArrays
from rocketmq_reindex.storage_format.walk.window import Window

CHUNK: Final = 32 << 20


@dataclass(frozen=True)
class ScanSettings:
    """What a scan looks for and how it reads.

    Times are milliseconds since 1970, ``delays`` the milliseconds of each delay level from 1 on. ``window`` is the length in
    milliseconds of the time windows by which IndexFiles are cut, 0 for none. ``search_crc`` is what a record that is searched
    for must pass besides ``crc_mode``. ``mark_tags``: TAGS give items whatever the version, with marks that tell them apart
    (``walk.index_items.MARKED_TAGS``). ``chunk`` is bytes that are read at once, ``block_rows`` the most rows of a block.
    """

    crc_mode: int = CRC_BODY
    broker_version: str = NEWEST
    lmq: bool = False
    strict_lmq: bool = False
    """a record whose light queues stop the broker that dispatches it is damage"""
    need_crc: bool = False
    """a record without ``__CRC32#`` is damage (``forceVerifyPropCRC``)"""
    delays: tuple[int, ...] = (1000,)
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    until_time: int = INT64_MAX
    want_units: bool = True
    want_items: bool = True
    mark_tags: bool = False
    want_topics: bool = False
    want_messages: bool = False
    want_digests: bool = True
    search_crc: int = CRC_BODY
    batch_topics: tuple[str, ...] = ()
    window: int = 0
    stop_at_damage: bool = False
    chunk: int = CHUNK
    block_rows: int = 1 << 20


@dataclass(frozen=True)
class Block:
    """Units, index items and records met since the block before, as views that the next block overwrites.

    ``data`` uint8 is the log from absolute offset ``base`` on: all of ``messages`` lie in it.
    """

    units: w.UnitArrays
    batches: w.BatchArrays
    items: ItemArrays
    messages: w.MessageArrays
    data: npt.NDArray[np.uint8]
    base: int


def row_buffers(settings: ScanSettings) -> RowArrays:
    """Return room for ``block_rows`` units, items and makers, and for as many batch units and records where they are wanted."""
    rows = settings.block_rows
    batch_rows = rows if settings.batch_topics else 0
    message_rows = rows if settings.want_messages else 0
    return RowArrays(
        w.UnitArrays(
            np.empty(rows, np.int32), np.empty(rows, np.int64), np.empty(rows, np.int64),
            np.empty(rows, np.int32), np.empty(rows, np.int64),
        ),
        w.BatchArrays(
            np.empty(batch_rows, np.int32), np.empty(batch_rows, np.int64), np.empty(batch_rows, np.int64),
            np.empty(batch_rows, np.int32), np.empty(batch_rows, np.int64), np.empty(batch_rows, np.int64),
            np.empty(batch_rows, np.int32),
        ),
        ItemArrays(np.empty(rows, STAGED), np.empty(rows, MAKER)),
        w.MessageArrays(
            np.empty(message_rows, np.int64), np.empty(message_rows, np.int32), np.empty(message_rows, np.int64),
            np.empty(message_rows, np.int64), np.empty(message_rows, np.int32),
        ),
    )  # fmt: skip


def block_of(rows: RowArrays, state: w.State, window: Window) -> Block:
    """Return the rows that ``state`` counts, as views."""
    units, batches, items, makers, messages = (int(state[k]) for k in (w.UNITS, w.BATCHES, w.ITEMS, w.MAKERS, w.MESSAGES))
    return Block(
        w.UnitArrays(*(column[:units] for column in rows.units)),  # type: ignore[arg-type]  # of two dtypes
        w.BatchArrays(*(column[:batches] for column in rows.batches)),  # type: ignore[arg-type]  # of two dtypes
        ItemArrays(rows.items.staged[:items], rows.items.makers[:makers]),
        w.MessageArrays(*(column[:messages] for column in rows.messages)),  # type: ignore[arg-type]  # of two dtypes
        window.data,
        window.base,
    )


def empty_rows(state: w.State) -> None:
    """Note that the rows were handed out: the loop fills the buffers from their start again."""
    state[w.ITEMS_BEFORE] += state[w.ITEMS]
    state[w.UNITS] = state[w.BATCHES] = state[w.ITEMS] = state[w.MAKERS] = state[w.MESSAGES] = state[w.AGAIN] = 0
