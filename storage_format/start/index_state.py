"""The IndexFiles while a broker starts (``IndexService.load`` and ``buildIndex``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.index.header import HEADER_SIZE, ITEM_LAYOUT, ITEM_SIZE, SLOT_SIZE, IndexHeader
from rocketmq_reindex.storage_format.kernels.jit import jit
from rocketmq_reindex.storage_format.start.queue_state import Int64s, ascending
from rocketmq_reindex.storage_format.start.record_loop import LIGHT, ROLLBACK, Rows
from rocketmq_reindex.storage_format.start.store import IndexFileData, StartSettings

_COUNT, _END, _FILES = range(3)
_NO_ITEMS: Final = ROLLBACK | LIGHT


@jit
def _build(
    phy_offset: npt.NDArray[np.int64],
    items: npt.NDArray[np.uint16],
    flags: npt.NDArray[np.uint8],
    capacity: int,
    state: npt.NDArray[np.int64],
    added: npt.NDArray[np.bool_],
) -> int:
    """``buildIndex`` of each row; sets ``added`` for rows whose items are put, returns how many. ``state`` has 3 numbers."""
    total = 0
    for k in range(len(phy_offset)):
        if flags[k] & LIGHT:
            continue
        if state[_FILES] == 0 or state[_COUNT] >= capacity:
            state[_FILES] += 1
            state[_COUNT] = 1
        if phy_offset[k] < state[_END] or flags[k] & ROLLBACK or items[k] == 0:
            continue
        for _ in range(items[k]):
            if state[_COUNT] >= capacity:
                state[_FILES] += 1
                state[_COUNT] = 1
            state[_COUNT] += 1
        state[_END] = phy_offset[k]
        added[k] = True
        total += items[k]
    return total


class IndexState:
    """The IndexFiles of a start; ``limit`` is the checkpoint's indexMsgTimestamp, which an abnormal start asks."""

    def __init__(self, files: Sequence[IndexFileData], settings: StartSettings, limit: int) -> None:
        self._settings = settings
        self._state = np.zeros(3, np.int64)
        self._kept: list[IndexFileData] = []
        self._gone: list[IndexFileData] = []
        self._added: list[Int64s] = []
        self.items_added = 0
        for file in files:
            # A name that is no number is passed over (NumberFormatException).
            if not (file.name.isascii() and file.name.isdigit()):
                continue
            header = _header(file)
            if settings.abnormal and header.end_time > limit:
                self._gone.append(file)
                continue
            self._kept.append(file)
            self._state[:] = max(1, header.index_count), header.end_place, len(self._kept)

    @property
    def files(self) -> int:
        """How many files there are now."""
        return int(self._state[_FILES])

    @property
    def deleted(self) -> tuple[str, ...]:
        """The names of the files that the start deletes."""
        return tuple(file.name for file in self._gone)

    def build(self, rows: Rows) -> None:
        """``buildIndex`` of the records dispatched."""
        if not self._settings.message_index or not len(rows.at):
            return
        added = np.zeros(len(rows.at), np.bool_)
        self.items_added += int(_build(rows.phy_offset, rows.items, rows.flags, self._settings.index_items, self._state, added))
        self._added.append(np.repeat(rows.phy_offset[added], rows.items[added]))

    def items_lost(self, lowest: int, highest: int) -> int:
        """Items in the deleted files of records in [lowest, highest) that got none again."""
        lost = ascending([self._items(file) for file in self._gone])
        lost = lost[(lost >= lowest) & (lost < highest)]
        return int(np.count_nonzero(~np.isin(lost, ascending(self._added))))

    def places(self) -> Int64s:
        """The phyOffsets of all items that are there after the start, ascending."""
        return ascending([self._items(file) for file in self._kept] + self._added)

    def _items(self, file: IndexFileData) -> Int64s:
        start = HEADER_SIZE + SLOT_SIZE * self._settings.hash_slots
        count = max(0, min(_header(file).index_count, self._settings.index_items) - 1)
        data = file.data[start + ITEM_SIZE : start + ITEM_SIZE * (count + 1)]
        cells = data[: len(data) - len(data) % ITEM_SIZE].reshape(-1, ITEM_SIZE)
        at = ITEM_LAYOUT.at["phy_offset"]
        return np.ascontiguousarray(cells[:, at : at + 8]).view(">i8").ravel().astype(np.int64)


def _header(file: IndexFileData) -> IndexHeader:
    # A file that is too short is mapped with zeros behind it.
    return IndexHeader.from_bytes(file.data[:HEADER_SIZE].tobytes().ljust(HEADER_SIZE, b"\0"))
