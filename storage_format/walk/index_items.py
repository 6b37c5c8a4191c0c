"""The index items of a record, by its keys and tags, as a scan stages them until their file is known."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.integers import INT32_MIN, UINT32_MAX
from rocketmq_reindex.storage_format.kernels.jit import inlined
from rocketmq_reindex.storage_format.kernels.words import find_byte
from rocketmq_reindex.storage_format.record import properties as p
from rocketmq_reindex.storage_format.text.java_text import index_hash, java_hash
from rocketmq_reindex.storage_format.walk.state import ITEMS, ITEMS_BEFORE, MAKERS, TAG_ITEMS, WAITING

STAGED: Final = np.dtype([("phy_offset", "<i8"), ("time", "<i8"), ("key_hash", "<i4")])
"""An item as a scan stages it, before its file is known."""
MAKER: Final = np.dtype([("item", "<i8"), ("phy_offset", "<i8")])
"""A row of a staged block's table: before this item a record without items was dispatched, at that physical offset.

Such a record makes the next IndexFile, where the one before is full."""
SEPARATOR: Final = ord("#")
SPACE: Final = ord(" ")
TAG_TYPE: Final = ord("T")
"""``MessageConst.INDEX_TAG_TYPE``"""
NO_TAGS, TAGS, MARKED_TAGS = range(3)
"""Whether TAGS give items; a marked one has a negative keyHash, 2**31 below its own: no broker writes one."""


class ItemArrays(NamedTuple):
    """Index items (dtype STAGED) in commitlog order, and the makers among them (dtype MAKER).

    A maker is the first record without items dispatched after the item before: ``item`` is the number in the range of the item
    that follows it, ``phy_offset`` its physical offset. It makes the next IndexFile where the one before is full.
    """

    staged: npt.NDArray[np.void]
    makers: npt.NDArray[np.void]


@inlined
def put_item(items: ItemArrays, state: npt.NDArray[np.int64], key_hash: int, phy_offset: int, time: int) -> None:
    """Add an index item, and before it the record without items that was dispatched since the item before, if any."""
    n = state[ITEMS]
    if state[WAITING] >= 0 and state[WAITING] != phy_offset:
        m = state[MAKERS]
        items.makers["item"][m] = state[ITEMS_BEFORE] + n
        items.makers["phy_offset"][m] = state[WAITING]
        state[MAKERS] = m + 1
    state[WAITING] = -1
    items.staged["phy_offset"][n] = phy_offset
    items.staged["time"][n] = time
    items.staged["key_hash"][n] = index_hash(key_hash)
    state[ITEMS] = n + 1


@inlined
def tag_seed(seed: int) -> int:
    """The hash of ``topic#T#``; ``seed`` is that of ``topic#``."""
    return (seed * 961 + TAG_TYPE * 31 + SEPARATOR) & UINT32_MAX


@inlined
def index_record(
    data: npt.NDArray[np.uint8],
    spans: npt.NDArray[np.int64],
    items: ItemArrays,
    state: npt.NDArray[np.int64],
    seed: int,
    phy_offset: int,
    time: int,
    tag_items: int,
) -> bool:
    """Put the items of a record (``IndexService.buildIndex``, 4.9 to 5.5); whether it has any.

    UNIQ_KEY comes first, then each of KEYS, split on single spaces without empty pieces; then, unless
    ``tag_items`` is NO_TAGS, TAGS as one text behind ``topic#T#`` (5.4.0 on). ``seed`` is the hash of ``topic#``.
    """
    before = state[ITEMS]
    if spans[2 * p.UNIQ_KEY] >= 0:
        h = java_hash(data, spans[2 * p.UNIQ_KEY], spans[2 * p.UNIQ_KEY + 1], seed)
        put_item(items, state, h, phy_offset, time)
    at = spans[2 * p.KEYS]
    if at >= 0:
        end = spans[2 * p.KEYS + 1]
        while at < end:
            stop = find_byte(data, at, end, SPACE, SPACE)
            if stop > at:
                put_item(items, state, java_hash(data, at, stop, seed), phy_offset, time)
            at = stop + 1
    if tag_items != NO_TAGS and spans[2 * p.TAGS] >= 0:
        h = java_hash(data, spans[2 * p.TAGS], spans[2 * p.TAGS + 1], tag_seed(seed))
        put_item(items, state, h, phy_offset, time)
        state[TAG_ITEMS] += 1
        if tag_items == MARKED_TAGS:
            items.staged["key_hash"][state[ITEMS] - 1] += INT32_MIN
    return bool(state[ITEMS] > before)
