"""The arrays that the record loop fills, allocated once and handed out as the views of one block after another."""

from __future__ import annotations

import numpy as np

from rocketmq_reindex.storage_format.scan.settings import Block, ScanSettings
from rocketmq_reindex.storage_format.walk import state as w
from rocketmq_reindex.storage_format.walk.items import MAKER, STAGED, ItemArrays
from rocketmq_reindex.storage_format.walk.window import Window


class RowBuffers:
    """Room for ``block_rows`` units, items and makers, and for as many batch units and records where they are wanted."""

    def __init__(self, settings: ScanSettings) -> None:
        rows = settings.block_rows
        batch_rows = rows if settings.batch_topics else 0
        message_rows = rows if settings.want_messages else 0
        self.units = w.UnitArrays(
            np.empty(rows, np.int32), np.empty(rows, np.int64), np.empty(rows, np.int64),
            np.empty(rows, np.int32), np.empty(rows, np.int64),
        )  # fmt: skip
        self.batches = w.BatchArrays(
            np.empty(batch_rows, np.int32), np.empty(batch_rows, np.int64), np.empty(batch_rows, np.int64),
            np.empty(batch_rows, np.int32), np.empty(batch_rows, np.int64), np.empty(batch_rows, np.int64),
            np.empty(batch_rows, np.int32),
        )  # fmt: skip
        self.items = ItemArrays(np.empty(rows, STAGED), np.empty(rows, MAKER))
        self.messages = w.MessageArrays(
            np.empty(message_rows, np.int64), np.empty(message_rows, np.int32), np.empty(message_rows, np.int64),
            np.empty(message_rows, np.int64), np.empty(message_rows, np.int32),
        )  # fmt: skip

    def block(self, state: w.State, window: Window) -> Block:
        """The rows that ``state`` counts, as views."""
        units, batches, items, makers, messages = (int(state[k]) for k in (w.UNITS, w.BATCHES, w.ITEMS, w.MAKERS, w.MESSAGES))
        u, i = self.units, self.items
        return Block(
            w.UnitArrays(u.queue[:units], u.offset[:units], u.phy_offset[:units], u.size[:units], u.tags_code[:units]),
            w.BatchArrays(*(column[:batches] for column in self.batches)),  # type: ignore[arg-type]  # of two dtypes
            ItemArrays(i.staged[:items], i.makers[:makers]),
            w.MessageArrays(*(column[:messages] for column in self.messages)),  # type: ignore[arg-type]  # of two dtypes
            window.data,
            window.base,
        )


def empty(state: w.State) -> None:
    """The rows were handed out: the loop fills the buffers from their start again."""
    state[w.ITEMS_BEFORE] += state[w.ITEMS]
    state[w.UNITS] = state[w.BATCHES] = state[w.ITEMS] = state[w.MAKERS] = state[w.MESSAGES] = state[w.AGAIN] = 0
