"""The IndexFiles while a broker starts (``IndexService.load`` and ``buildIndex``)."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.broker_start.kept import Int64s, KeptNumbers, Spool, are_among
from rocketmq_reindex.storage_format.broker_start.record_loop import LIGHT, ROLLBACK, TAGGED, LogRows
from rocketmq_reindex.storage_format.broker_start.store import IndexFileData, StartSettings
from rocketmq_reindex.storage_format.index.layout import HEADER_SIZE, ITEM_LAYOUT, ITEM_SIZE, SLOT_SIZE, IndexHeader
from rocketmq_reindex.storage_format.kernels.jit import jit
from rocketmq_reindex.storage_format.kernels.raw_bytes import int32_at, int64_at

_COUNT, _END, _FILES = range(3)
_AT_PLACE: Final = ITEM_LAYOUT.at["phy_offset"]
_AT_HASH: Final = ITEM_LAYOUT.at["key_hash"]
_ITEMS: Final = 1 << 19
"""of an IndexFile, looked at at once"""


@jit
def _build(
    phy_offset: npt.NDArray[np.int64],
    items: npt.NDArray[np.uint16],
    flags: npt.NDArray[np.uint8],
    capacity: int,
    state: npt.NDArray[np.int64],
    added: npt.NDArray[np.bool_],
) -> int:
    """Do ``buildIndex`` for each row, set ``added`` for rows whose items are put, and return how many. ``state`` has 3
    numbers."""
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
def _count_at(
    cells: npt.NDArray[np.uint8],
    at: npt.NDArray[np.int64],
    flags: npt.NDArray[np.uint8],
    tag_hash: npt.NDArray[np.int32],
    items: npt.NDArray[np.int64],
    tagged: npt.NDArray[np.bool_],
) -> None:
    """Count the items in ``cells`` that lead to each row, whose ``at`` ascend; ``tagged``: one of them is that of its tags."""
    for cell in range(0, len(cells) - ITEM_SIZE + 1, ITEM_SIZE):
        place = np.int64(int64_at(cells, cell + _AT_PLACE))
        key_hash = int32_at(cells, cell + _AT_HASH)
        # Zeros, as where the file was cut off, are no item.
        if place == 0 and key_hash == 0:
            continue
        low, high = 0, len(at)
        while low < high:
            middle = (low + high) // 2
            if at[middle] < place:
                low = middle + 1
            else:
                high = middle
        while low < len(at) and at[low] == place:
            items[low] += 1
            if flags[low] & TAGGED and key_hash == tag_hash[low]:
                tagged[low] = True
            low += 1


@jit
def _span_of(cells: npt.NDArray[np.uint8]) -> tuple[int, int]:
    """Return the lowest and the highest place that items in ``cells`` lead to; (0, -1) for no item."""
    low, high, has_item = np.int64(0), np.int64(-1), False
    for cell in range(0, len(cells) - ITEM_SIZE + 1, ITEM_SIZE):
        place = np.int64(int64_at(cells, cell + _AT_PLACE))
        if place == 0 and int32_at(cells, cell + _AT_HASH) == 0:
            continue
        low, high = (min(low, place), max(high, place)) if has_item else (place, place)
        has_item = True
    return low, high


class _ItemPieces:
    """The items of one IndexFile, in pieces of ITEMS, each with the span of places that its items lead to."""

    def __init__(self, file: IndexFileData, settings: StartSettings) -> None:
        self._file = file
        self._start = HEADER_SIZE + SLOT_SIZE * settings.hash_slots + ITEM_SIZE
        self._count = max(0, min(_header(file).index_count, settings.index_items) - 1)
        self._spans: list[tuple[int, int]] | None = None

    def _piece(self, number: int) -> npt.NDArray[np.uint8]:
        low = self._start + number * _ITEMS * ITEM_SIZE
        high = min(low + _ITEMS * ITEM_SIZE, self._start + self._count * ITEM_SIZE)
        cells = self._file.data[low:high]
        if len(cells) % ITEM_SIZE:
            # A file that is too short is mapped with zeros behind it.
            cells = np.concatenate([cells, np.zeros(ITEM_SIZE - len(cells) % ITEM_SIZE, np.uint8)])
        return cells

    def pieces(self, low: int, high: int) -> Iterator[npt.NDArray[np.uint8]]:
        """Yield the pieces with items of places in [low, high]."""
        if self._spans is None:
            self._spans = []
            for number in range(-(-self._count // _ITEMS)):
                self._spans.append(_span_of(self._piece(number)))
                self._let_go(number)
        for number, (lowest, highest) in enumerate(self._spans):
            if lowest <= high and highest >= low:
                yield self._piece(number)
                self._let_go(number)

    def _let_go(self, number: int) -> None:
        low = self._start + number * _ITEMS * ITEM_SIZE
        self._file.let_go(low, low + _ITEMS * ITEM_SIZE)


class IndexState:
    """The IndexFiles of a start; ``limit`` is the checkpoint's indexMsgTimestamp, which an abnormal start asks."""

    def __init__(self, files: Sequence[IndexFileData], settings: StartSettings, limit: int, spool: Spool) -> None:
        self._settings = settings
        self._state = np.zeros(3, np.int64)
        self._kept: list[_ItemPieces] = []
        self._gone: list[_ItemPieces] = []
        self._added = KeptNumbers(spool)
        """places, as the records say, to which the items of this start lead"""
        self.deleted: list[str] = []
        """the names of the files that the start deletes"""
        self.items_added = 0
        for file in files:
            # A name that is no number is passed over (NumberFormatException).
            if not (file.name.isascii() and file.name.isdigit()):
                continue
            header = _header(file)
            if settings.abnormal and header.end_time > limit:
                self._gone.append(_ItemPieces(file, settings))
                self.deleted.append(file.name)
                continue
            self._kept.append(_ItemPieces(file, settings))
            self._state[:] = max(1, header.index_count), header.end_place, len(self._kept)

    @property
    def files(self) -> int:
        """How many files there are now."""
        return int(self._state[_FILES])

    def build(self, rows: LogRows) -> None:
        """``buildIndex`` of the records dispatched."""
        if not self._settings.message_index or not len(rows.at):
            return
        added = np.zeros(len(rows.at), np.bool_)
        self.items_added += int(_build(rows.phy_offset, rows.items, rows.flags, self._settings.index_items, self._state, added))
        self._added.add(rows.phy_offset[added])

    def items_lost(self, lowest: int, highest: int) -> int:
        """Return items in the deleted files of records in [lowest, highest) that got none again."""
        lost = 0
        for items in self._gone:
            for cells in items.pieces(lowest, highest - 1):
                places = _places(cells)
                places = places[(places >= lowest) & (places < highest)]
                lost += len(places) - int(np.count_nonzero(self._are_added(places)))
        return lost

    def _are_added(self, places: Int64s) -> npt.NDArray[np.bool_]:
        added = np.zeros(len(places), np.bool_)
        if len(places):
            for block in self._added.between(int(places.min()), int(places.max())):
                added |= are_among(places, block)
        return added

    def missing(self, rows: LogRows) -> int:
        """Return how many items of ``rows``, some sound records of the kept log, are in no file after the start.

        Where all keys of a record are there and its tags are not, a broker before 5.4 indexed it: then nothing is missing.
        """
        if not self._settings.message_index:
            return 0
        chosen = rows.items > 0
        chosen[chosen] = ~self._are_added(rows.at[chosen])
        at, flags, tag_hash, count = (
            rows.at[chosen],
            rows.flags[chosen],
            rows.tag_hash[chosen],
            rows.items[chosen].astype(np.int64),
        )
        if not len(at):
            return 0
        if (at[1:] < at[:-1]).any():
            order = np.argsort(at, kind="stable")
            at, flags, tag_hash, count = at[order], flags[order], tag_hash[order], count[order]
        found_items, tagged = np.zeros(len(at), np.int64), np.zeros(len(at), np.bool_)
        for items in self._kept:
            for cells in items.pieces(int(at[0]), int(at[-1])):
                _count_at(cells, at, flags, tag_hash, found_items, tagged)
        lacks_keys = found_items - tagged < count - ((flags & TAGGED) > 0)
        return int(np.maximum(count - found_items, 0)[lacks_keys].sum())


def _places(cells: npt.NDArray[np.uint8]) -> Int64s:
    """Return the places that items lead to. Zeros, as where the file was cut off, are no item."""
    rows = cells.reshape(-1, ITEM_SIZE)
    places, hashes = _column(rows, "phy_offset", ">i8"), _column(rows, "key_hash", ">i4")
    led_to: Int64s = places[(places != 0) | (hashes != 0)]
    return led_to


def _column(cells: npt.NDArray[np.uint8], column: str, kind: str) -> Int64s:
    at, size = ITEM_LAYOUT.at[column], np.dtype(kind).itemsize
    return np.ascontiguousarray(cells[:, at : at + size]).view(kind).ravel().astype(np.int64)


def _header(file: IndexFileData) -> IndexHeader:
    # A file that is too short is mapped with zeros behind it.
    return IndexHeader.from_bytes(file.data[:HEADER_SIZE].tobytes().ljust(HEADER_SIZE, b"\0"))
