"""The keys of a record, and the index items that they give."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.kernels.jit import inlined
from rocketmq_reindex.storage_format.record import properties as p
from rocketmq_reindex.storage_format.text.java_text import java_hash
from rocketmq_reindex.storage_format.walk.state import ITEMS, ItemArrays, put_item


@inlined
def index_record(
    data: npt.NDArray[np.uint8],
    spans: npt.NDArray[np.int64],
    items: ItemArrays,
    state: npt.NDArray[np.int64],
    seed: int,
    phy_offset: int,
    time: int,
) -> bool:
    """Put the items of a record (``IndexService.buildIndex`` of 4.9 and 5.3); whether it has any.

    UNIQ_KEY comes first, then each of KEYS, split on single spaces without empty pieces. ``seed`` is the hash of ``topic#``.
    """
    before = state[ITEMS]
    if spans[2 * p.UNIQ_KEY] >= 0:
        h = java_hash(data, spans[2 * p.UNIQ_KEY], spans[2 * p.UNIQ_KEY + 1], seed)
        put_item(items, state, h, phy_offset, time)
    at = spans[2 * p.KEYS]
    if at >= 0:
        end = spans[2 * p.KEYS + 1]
        while at < end:
            stop = at
            while stop < end and data[stop] != 0x20:
                stop += 1
            if stop > at:
                put_item(items, state, java_hash(data, at, stop, seed), phy_offset, time)
            at = stop + 1
    return bool(state[ITEMS] > before)
