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
from rocketmq_reindex.storage_format.walk.items import ItemArrays

CHUNK: Final = 32 << 20


@dataclass(frozen=True)
class ScanSettings:
    """What a scan looks for and how it reads.

    Times are milliseconds since 1970, ``delays`` the milliseconds of each delay level from 1 on. ``window`` is the length in
    milliseconds of the time windows by which IndexFiles are cut, 0 for none. ``search_crc`` is what a record that is searched
    for must pass besides ``crc_mode``. ``mark_tags``: TAGS give items whatever the version, with marks that tell them apart
    (``walk.keys.MARKED_TAGS``). ``chunk`` is bytes that are read at once, ``block_rows`` the most rows of a block.
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
