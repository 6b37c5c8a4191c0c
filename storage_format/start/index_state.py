"""The IndexFiles while a broker starts (``IndexService.load`` and ``buildIndex``)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.index.header import HEADER_SIZE, ITEM_LAYOUT, ITEM_SIZE, SLOT_SIZE, IndexHeader
from rocketmq_reindex.storage_format.kernels.jit import jit
from rocketmq_reindex.storage_format.start.counting import are_among
from rocketmq_reindex.storage_format.start.queue_state import Int64s, ascending
from rocketmq_reindex.storage_format.start.record_loop import LIGHT, ROLLBACK, TAGGED, Rows
from rocketmq_reindex.storage_format.start.store import IndexFileData, StartSettings

_COUNT, _END, _FILES = range(3)


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


@jit
def _missing(
    at: npt.NDArray[np.int64],
    items: npt.NDArray[np.uint16],
    flags: npt.NDArray[np.uint8],
    tag_hash: npt.NDArray[np.int32],
    places: npt.NDArray[np.int64],
    hashes: npt.NDArray[np.int64],
) -> int:
    """``IndexState.missing``: ``places``, ascending, and ``hashes`` are those of the items that there are."""
    total, k = 0, 0
    for row in range(len(at)):
        if items[row] == 0:
            continue
        if k > 0 and places[k - 1] >= at[row]:
            k = 0
        while k < len(places) and places[k] < at[row]:
            k += 1
        there, tags_there = 0, 0
        while k < len(places) and places[k] == at[row]:
            there += 1
            if flags[row] & TAGGED and hashes[k] == tag_hash[row]:
                tags_there = 1
            k += 1
        keys = items[row] - (1 if flags[row] & TAGGED else 0)
        if there - tags_there < keys:
            total += max(0, items[row] - there)
    return total


class IndexState:
    """The IndexFiles of a start; ``limit`` is the checkpoint's indexMsgTimestamp, which an abnormal start asks."""

    def __init__(self, files: Sequence[IndexFileData], settings: StartSettings, limit: int) -> None:
        self._settings = settings
        self._state = np.zeros(3, np.int64)
        self._kept: list[IndexFileData] = []
        self._gone: list[IndexFileData] = []
        self._places: list[Int64s] = [np.zeros(0, np.int64)]
        self._hashes: list[Int64s] = [np.zeros(0, np.int64)]
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
        counts = rows.items[added]
        self._places.append(np.repeat(rows.phy_offset[added], counts))
        # Which of a record's items is that of its tags is all that is asked of the others.
        hashes = np.full(int(counts.sum()), -1, np.int64)
        tagged = (rows.flags[added] & TAGGED) > 0
        hashes[np.cumsum(counts)[tagged] - 1] = rows.tag_hash[added][tagged]
        self._hashes.append(hashes)

    def items_lost(self, lowest: int, highest: int) -> int:
        """Items in the deleted files of records in [lowest, highest) that got none again."""
        lost = ascending([self._items(file)[0] for file in self._gone])
        lost = lost[(lost >= lowest) & (lost < highest)]
        return int(np.count_nonzero(~are_among(lost, ascending(self._places)))) if len(lost) else 0

    def missing(self, rows: Rows) -> int:
        """How many items of ``rows``, the records of the kept log, are in no file after the start.

        Where all keys of a record are there and its tags are not, a broker before 5.4 indexed it: then nothing is missing.
        """
        if not self._settings.message_index:
            return 0
        kept = [self._items(file) for file in self._kept]
        places = np.concatenate([file_places for file_places, _ in kept] + self._places)
        hashes = np.concatenate([file_hashes for _, file_hashes in kept] + self._hashes)
        order = np.argsort(places, kind="stable") if (places[1:] < places[:-1]).any() else slice(None)
        return int(_missing(rows.at, rows.items, rows.flags, rows.tag_hash, places[order], hashes[order]))

    def _items(self, file: IndexFileData) -> tuple[Int64s, Int64s]:
        """phy_offset and key hash of each of a file's items. Zeros, as where the file was cut off, are no item."""
        start = HEADER_SIZE + SLOT_SIZE * self._settings.hash_slots
        count = max(0, min(_header(file).index_count, self._settings.index_items) - 1)
        data = file.data[start + ITEM_SIZE : start + ITEM_SIZE * (count + 1)]
        cells = data[: len(data) - len(data) % ITEM_SIZE].reshape(-1, ITEM_SIZE)
        places, hashes = _column(cells, "phy_offset", ">i8"), _column(cells, "key_hash", ">i4")
        there = (places != 0) | (hashes != 0)
        return places[there], hashes[there]


def _column(cells: npt.NDArray[np.uint8], column: str, kind: str) -> Int64s:
    at, size = ITEM_LAYOUT.at[column], np.dtype(kind).itemsize
    return np.ascontiguousarray(cells[:, at : at + size]).view(kind).ravel().astype(np.int64)


def _header(file: IndexFileData) -> IndexHeader:
    # A file that is too short is mapped with zeros behind it.
    return IndexHeader.from_bytes(file.data[:HEADER_SIZE].tobytes().ljust(HEADER_SIZE, b"\0"))
