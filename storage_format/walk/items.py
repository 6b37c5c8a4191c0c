"""The index items that the record loop finds, as a scan stages them until their file is known."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.kernels.jit import inlined
from rocketmq_reindex.storage_format.text.java_text import index_hash
from rocketmq_reindex.storage_format.walk.state import ITEMS, ITEMS_BEFORE, MAKERS, WAITING

STAGED: Final = np.dtype([("phy_offset", "<i8"), ("time", "<i8"), ("key_hash", "<i4")])
"""An item as a scan stages it, before its file is known."""
MAKER: Final = np.dtype([("item", "<i8"), ("phy_offset", "<i8")])
"""A row of a staged block's table: before this item a record without items was dispatched, at that physical offset.

Such a record makes the next IndexFile, where the one before is full."""


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
