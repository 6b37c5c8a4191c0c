"""Where the index items of the log and of the IndexFiles are read from, for a comparison of stretches of the log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.checks.items import Found
from rocketmq_reindex.storage_format.index.file import ITEM, STAGED
from rocketmq_reindex.storage_format.index.header import HEADER_SIZE, ITEM_SIZE, SLOT_SIZE
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.verify.index import CHUNK, CHUNK_ITEMS

PIECE_ITEMS: Final = 1 << 20
"""Staged items that are read at once."""


@dataclass(frozen=True)
class Span:
    """The phy_offsets [low, high) of the log, and the file ``block`` with the ``items`` staged items of them."""

    low: int
    high: int
    block: str
    items: int

    def pieces(self) -> Iterator[tuple[int, int, npt.NDArray[np.void]]]:
        """The staged items (dtype ``STAGED``) a piece at a time, each behind the [low, high) that it stands for.

        No record is cut in two.
        """
        low, size = self.low, STAGED.itemsize
        if not self.items:
            yield self.low, self.high, np.empty(0, STAGED)
            return
        with files.Reader(self.block) as reader:
            held = np.empty(0, STAGED)
            for start in range(0, self.items, PIECE_ITEMS):
                more = np.frombuffer(reader.read(start * size, min(PIECE_ITEMS, self.items - start) * size), STAGED)
                held = np.concatenate([held, more])
                if start + PIECE_ITEMS >= self.items:
                    yield low, self.high, held
                    return
                cut = int(np.searchsorted(held["phy_offset"], held["phy_offset"][-1]))
                if cut:
                    high = int(held["phy_offset"][cut])
                    yield low, high, held[:cut]
                    low, held = high, held[cut:]


@dataclass(frozen=True)
class IndexItems:
    """A checked IndexFile: what the comparison of items has to know of it."""

    name: str
    path: str
    slots: int
    used: int
    """items in use"""
    begin_time: int
    end_time: int
    """of its header, in milliseconds"""
    inherited: int
    """endTimestamp of the file before, in milliseconds; -1: unknown"""
    low: int
    high: int
    """lowest and highest phy_offset of its items"""
    chunks: str
    """path of the ``CHUNK`` of each CHUNK_ITEMS items"""


class ItemReader:
    """Reads the items of all IndexFiles that point into the span; the chunks show where those may be."""

    def __init__(self, tables: list[IndexItems], span: Span) -> None:
        self._near: list[tuple[int, IndexItems, npt.NDArray[np.void]]] = []
        for number, table in enumerate(tables):
            if table.used and table.low < span.high and table.high >= span.low:
                self._near.append((number, table, np.frombuffer(files.read_bytes(table.chunks), CHUNK)))

    def between(self, low: int, high: int) -> Found:
        """The items that point into [low, high), by file and number."""
        parts = [self._of(number, table, chunks, low, high) for number, table, chunks in self._near]
        none = [np.zeros(0, np.int64), *(np.zeros(0, np.int32) for _ in range(4))]
        columns = [np.concatenate([empty, *(part[k] for part in parts)]) for k, empty in enumerate(none)]
        return Found(*columns)

    @staticmethod
    def _of(number: int, table: IndexItems, chunks: npt.NDArray[np.void], low: int, high: int) -> Found:
        wanted = np.flatnonzero((chunks["low"] < high) & (chunks["high"] >= low))
        if not len(wanted):
            none = np.zeros(0, np.int32)
            return Found(np.zeros(0, np.int64), none, none, none, none)
        start = HEADER_SIZE + table.slots * SLOT_SIZE
        rows, numbers = [], []
        with files.Reader(table.path) as reader:
            for run in np.split(wanted, np.flatnonzero(np.diff(wanted) != 1) + 1):
                first = 1 + int(run[0]) * CHUNK_ITEMS
                count = min((int(run[-1]) + 1) * CHUNK_ITEMS, table.used) + 1 - first
                # A broker maps a file that is too short in full: with zeros behind its end.
                at, size = start + first * ITEM_SIZE, reader.size()
                raw = reader.read(at, max(0, min(count * ITEM_SIZE, size - at))).ljust(count * ITEM_SIZE, b"\0")
                items = np.frombuffer(raw, ITEM)
                phy_offset = items["phy_offset"].astype(np.int64)
                mine = np.flatnonzero((phy_offset >= low) & (phy_offset < high))
                rows.append(items[mine])
                numbers.append(first + mine)
        items = np.concatenate(rows)
        return Found(
            items["phy_offset"].astype(np.int64),
            items["key_hash"].astype(np.int32),
            items["time_diff"].astype(np.int32),
            np.full(len(items), number, np.int32),
            np.concatenate(numbers).astype(np.int32),
        )
