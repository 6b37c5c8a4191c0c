"""The units that a start gives a queue: blanks, then what lies in the spool, then the newest in memory."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.broker_start.kept import Spool
from rocketmq_reindex.storage_format.broker_start.unit_kernels import BLANKS, STATE_SIZE, TAIL
from rocketmq_reindex.storage_format.queue.units import PRE_BLANK_SIZE

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
_BLOCK: Final = 6
"""numbers of a block, int64: its height, its place in the spool, then two spans: of unit numbers and of physical offsets.
A block of height 0 has units. A higher one has _FAN blocks, each one lower than it is"""
_NUMBERS: Final = 2
"""where a block has its span of unit numbers"""
_OFFSETS: Final = 4
"""where a block has its span of physical offsets"""
_FAN: Final = 4
"""blocks of one height in memory are fewer: so memory grows with the logarithm of what a queue has in the spool"""
_UNIT: Final = 12
"""bytes of a unit in the spool: its offset, its size"""
_LEAST: Final = 4
_NO_ROOM: Final = np.empty(0, np.int64)
_NO_BLOCKS: Final = array("q")
_QUEUES: Final = 64


class QueueNumbers:
    """What all queues keep between dispatches: ``rows``, int64 (room, STATE_SIZE), has a row for each."""

    def __init__(self) -> None:
        self.rows = np.zeros((_QUEUES, STATE_SIZE), np.int64)
        self._count = 0

    def add(self) -> int:
        """Return the number of a new row of zeros."""
        if self._count == len(self.rows):
            self.rows = np.concatenate((self.rows, np.zeros_like(self.rows)))
        self._count += 1
        return self._count - 1


class OwnUnits:
    """The units of a queue: the newest are in memory, and ``numbers.rows[row, TAIL]`` counts those."""

    __slots__ = ("_blocks", "_held", "_numbers", "_row", "_spool", "room")

    def __init__(self, spool: Spool, numbers: QueueNumbers, row: int) -> None:
        self._spool, self._numbers, self._row = spool, numbers, row
        self.room = 0
        """for how many units there is room in memory"""
        self.clear()

    def clear(self) -> None:
        """There are none any more."""
        self._state[TAIL] = self._state[BLANKS] = 0
        self._blocks = _NO_BLOCKS
        self._let_go()

    def _let_go(self) -> None:
        self._held, self.room = _NO_ROOM, 0

    @property
    def _state(self) -> Int64s:
        state: Int64s = self._numbers.rows[self._row]
        return state

    @property
    def phy_offset(self) -> Int64s:
        """The offsets of the newest units, with the room behind them."""
        return self._held[: self.room]

    @property
    def size(self) -> Int32s:
        """Their sizes, likewise."""
        return self._held[self.room :].view(np.int32)[: self.room]

    @property
    def blanks(self) -> int:
        """How many blanks they begin with."""
        return int(self._state[BLANKS])

    @property
    def _spooled(self) -> int:
        return self._blocks[_NUMBERS + 1 - _BLOCK] if self._blocks else 0

    @property
    def count(self) -> int:
        """How many there are, blanks and all."""
        return self.blanks + self._spooled + int(self._state[TAIL])

    def make_room(self, units: int) -> None:
        """Have room for so many more in memory."""
        held = int(self._state[TAIL])
        if held + units > self.room:
            room = max(held + units, min(2 * self.room, held + (1 << 16)), _LEAST)
            phy_offset, size = self.phy_offset[:held], self.size[:held]
            # One array for both: there may be as many as there are queues.
            self._held, self.room = np.empty(room + (room + 1) // 2, np.int64), room
            self.phy_offset[:held], self.size[:held] = phy_offset, size

    def spill(self) -> None:
        """Put those in memory into the spool."""
        held = int(self._state[TAIL])
        if held:
            phy_offset, size = self.phy_offset[:held], self.size[:held]
            place = self._spool.put(phy_offset.tobytes() + size.tobytes())
            before = self._spooled
            block = 0, place, before, before + held, int(phy_offset.min()), int(phy_offset.max()) + 1
            self._blocks = _with_block(self._blocks, block, self._spool)
        self._state[TAIL] = 0
        self._let_go()

    def extend(self, phy_offset: Int64s, size: Int32s) -> None:
        """Put some behind them."""
        self.make_room(len(size))
        held = int(self._state[TAIL])
        self.phy_offset[held : held + len(size)] = phy_offset
        self.size[held : held + len(size)] = size
        self._state[TAIL] += len(size)

    def truncate(self, count: int) -> None:
        """Keep the first ``count``."""
        if count >= self.count:
            return
        held = max(0, count - self.blanks - self._spooled)
        self._state[TAIL] = held
        while self._blocks and self.blanks + self._spooled > count:
            height, place, first, end, _, _ = self._blocks[-_BLOCK:]
            self._blocks = self._blocks[:-_BLOCK]
            if height:
                self._blocks += _lower(place, self._spool)
            elif (kept := count - self.blanks - first) > 0:
                phy_offset, size = self._read(place, end - first)
                self.extend(phy_offset[:kept], size[:kept])
        self._state[BLANKS] = min(self.blanks, count)

    def _read(self, place: int, units: int) -> tuple[Int64s, Int32s]:
        data = self._spool.get(place, units * _UNIT)
        return data[: 8 * units].view(np.int64), data[8 * units :].view(np.int32)

    def read(self, low: int, high: int) -> tuple[Int64s, Int32s]:
        """Return offsets and sizes of units ``low`` to ``high``, without it, as far as there are so many."""
        high = min(high, self.count)
        low = min(low, high)
        phy_offset, size = np.zeros(high - low, np.int64), np.full(high - low, PRE_BLANK_SIZE, np.int32)
        for first, more_offsets, more_sizes in self._parts(low, high):
            begin, end = max(low, first), min(high, first + len(more_sizes))
            phy_offset[begin - low : end - low] = more_offsets[begin - first : end - first]
            size[begin - low : end - low] = more_sizes[begin - first : end - first]
        return phy_offset, size

    def _parts(self, low: int, high: int) -> Iterator[tuple[int, Int64s, Int32s]]:
        blanks = self.blanks
        for place, first, units in _leaves(self._blocks, _NUMBERS, low - blanks, high - blanks, self._spool):
            yield (blanks + first, *self._read(place, units))
        first, held = self.blanks + self._spooled, int(self._state[TAIL])
        if first < high and first + held > low:
            yield first, self.phy_offset[:held], self.size[:held]

    def pointing(self, low: int, high: int) -> Iterator[tuple[int, Int64s, Int32s]]:
        """Yield parts with all units that point to [low, high]: the number of the first one, offsets, sizes. Blanks are left
        out."""
        for place, first, units in _leaves(self._blocks, _OFFSETS, low, high + 1, self._spool):
            yield (self.blanks + first, *self._read(place, units))
        held = int(self._state[TAIL])
        if held:
            yield self.blanks + self._spooled, self.phy_offset[:held], self.size[:held]


def _with_block(blocks: array[int], block: tuple[int, ...], spool: Spool) -> array[int]:
    """Return blocks and one more behind them. _FAN of the same height go into the spool, and one block stands for them."""
    blocks = blocks + array("q", block)
    while len(blocks) >= _FAN * _BLOCK and blocks[-_FAN * _BLOCK] == blocks[-_BLOCK]:
        last = blocks[-_FAN * _BLOCK :]
        lowest, highest = min(last[_OFFSETS::_BLOCK]), max(last[_OFFSETS + 1 :: _BLOCK])
        higher = last[0] + 1, spool.put(last.tobytes()), last[_NUMBERS], last[_NUMBERS + 1 - _BLOCK], lowest, highest
        blocks = blocks[: -_FAN * _BLOCK] + array("q", higher)
    return blocks


def _lower(place: int, spool: Spool) -> array[int]:
    """Return the blocks for which a higher one stands."""
    return array("q", spool.get(place, _FAN * _BLOCK * 8).tobytes())


def _leaves(blocks: array[int], span: int, low: int, high: int, spool: Spool) -> Iterator[tuple[int, int, int]]:
    """Yield place, first number and units of each block of units whose span overlaps [low, high), in their order.

    Args:
        blocks: int64 (n * _BLOCK,).
        span: ``_NUMBERS`` or ``_OFFSETS``.
        low: the lowest number or offset that is wanted.
        high: behind the highest.
        spool: where they lie.
    """
    for at in range(0, len(blocks), _BLOCK):
        if blocks[at + span] < high and blocks[at + span + 1] > low:
            height, place, first, end = blocks[at : at + _OFFSETS]
            if height:
                yield from _leaves(_lower(place, spool), span, low, high, spool)
            else:
                yield place, first, end - first
