"""The units of ConsumeQueue files, plain and batch ones: their fields, sizes and marks, and how those of one queue are found.

In a plain queue (``ConsumeQueue``) unit i lies at logical byte i x 20. A batch queue (``BatchConsumeQueue``, 5.x) has one unit
for each record, and they follow one another from byte 0 on, whatever their queue offsets: a broker finds them by a binary
search. A file is named by its first logical byte and has its full size from the start; zeros follow its last unit. The files
of a queue have one size and follow one another, but any may be missing or short.

Each start reads this, so it imports no numpy: units are found in plain Python, over a reader of bytes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final, NamedTuple

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.layouts import INT16, INT16_MAX, INT32, INT32_MAX, INT64, Field, Layout

# ------------------------------------------------------------------------------------------------------------------------ units


UNIT_LAYOUT: Final = Layout(
    Field("phy_offset", "phy_offset", INT64),
    Field("size", "size", INT32),
    Field("tagsCode", "tags_code", INT64),
)
"""``ConsumeQueue.putMessagePositionInfo`` of 4.9 to 5.5; ``CQ_STORE_UNIT_SIZE``"""
UNIT_SIZE: Final = UNIT_LAYOUT.size
ROCKSDB_UNIT_SIZE: Final = UNIT_SIZE + 8
"""bytes of a unit in RocksDB, where a store time follows the fields (``RocksDBConsumeQueueTable.CQ_UNIT_SIZE``, 5.3.3)"""
PRE_BLANK_SIZE: Final = INT32_MAX
"""``ConsumeQueue.fillPreBlank``: (0, 2147483647, 0) stands before a queue's first unit in its first file."""
FILL_MAX: Final = 100_000
"""Missing offsets that are filled if nothing else is asked for (``--max-fill``)."""

BATCH_LAYOUT: Final = Layout(
    *UNIT_LAYOUT.fields,
    Field("storeTimestamp", "store_time", INT64),
    Field("baseOffset", "base", INT64),  # queue offset of the record's first message
    Field("batchNum", "count", INT16),  # messages in the record
    Field("compactedOffset", "compacted", INT32),
    Field("reserved", "reserved", INT32),
)
"""``BatchConsumeQueue.putBatchMessagePositionInfo`` of 5.3; ``CQ_STORE_UNIT_SIZE``"""
BATCH_UNIT_SIZE: Final = BATCH_LAYOUT.size
BATCH_COUNT_MAX: Final = INT16_MAX
NOT_COMPACTED: Final = -1
"""``BatchConsumeQueue.INVALID_POS``: compactedOffset of a record that was not compacted"""

EXT_LAYOUT: Final = Layout(
    Field("size", "size", INT16),
    Field("tagsCode", "tags_code", INT64),
    Field("msgStoreTime", "store_time", INT64),
    Field("bitMapSize", "bit_map_size", INT16),
)
"""``ConsumeQueueExt.CqExtUnit``, before its bit map"""
EXT_SIZE_MIN: Final = EXT_LAYOUT.size
END_BLANK: Final = 4
"""``END_BLANK_DATA_LENGTH``: so many bytes at a file's end hold no unit"""
EXT_FILE_MIN: Final = EXT_SIZE_MIN + END_BLANK
ERROR_RATE: Final = 20
"""``maxErrorRateOfBloomFilter``, in percent, of a broker without that setting"""
CONSUMERS: Final = 32
"""``expectConsumerNumUseFilter`` of a broker without that setting"""


class QueueUnit(NamedTuple):
    """A unit at a position of a queue."""

    topic: str
    queue_id: int
    position: int
    phy_offset: int
    size: int
    tags_code: int


# ----------------------------------------------------------------------------------------------------------------------- lookup


Read = Callable[[int, int, int], bytes]
"""(number of the file, byte of the file, bytes wanted) -> those bytes, fewer at the file's end"""

# What may stand in a slot.
UNIT: Final = "unit"
EMPTY: Final = "empty"
PRE_BLANK: Final = "pre-blank"
BAD: Final = "no unit"
MISSING: Final = "file missing"


class Unit(NamedTuple):
    """What stands in one slot.

    ``kind`` is one of those above; ``position`` the slot's number in the queue: its logical byte / the size of a unit. ``base``
    is the queue offset of the first of the unit's ``messages``.
    """

    kind: str
    position: int
    phy_offset: int = 0
    size: int = 0
    tags_code: int = 0
    base: int = 0
    messages: int = 1


class QueueUnits:
    """The units of a queue, by position.

    ``files`` are (first logical byte, bytes), ascending; ``batch`` whether it is a batch ConsumeQueue. ``behind_gap`` gives a
    position behind one without a unit, up to which none has one; without it, what lies in no file is passed at once.
    """

    left: int | None = None
    """slots that may still be looked at; None for any number. Behind them InputError is raised."""

    def __init__(
        self, files: Sequence[tuple[int, int]], read: Read, batch: bool = False,
        behind_gap: Callable[[int], int] | None = None,
    ) -> None:  # fmt: skip
        self.behind_gap = behind_gap or self._next_in_files
        self.unit_size = BATCH_UNIT_SIZE if batch else UNIT_SIZE
        self._batch = batch
        self._files = files
        self._starts = [start for start, _ in files]
        self._read = read

    @property
    def first(self) -> int:
        """The position of the first slot of the first file."""
        return -(-self._starts[0] // self.unit_size) if self._files else 0

    @property
    def stop(self) -> int:
        """The position behind the last whole slot of the last file."""
        return sum(self._files[-1]) // self.unit_size if self._files else 0

    def at(self, position: int) -> Unit:
        """Return what stands in the slot at a position. Raises InputError where no more slots may be looked at."""
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise InputError(f"the queue has too many slots without a message: none was found up to position {position}")
        logical = position * self.unit_size
        number = bisect_right(self._starts, logical) - 1
        if number < 0:
            return Unit(MISSING, position)
        start, length = self._files[number]
        if logical + self.unit_size > start + length:
            return Unit(MISSING, position)
        raw = self._read(number, logical - start, self.unit_size)
        if len(raw) < self.unit_size:
            return Unit(MISSING, position)
        if self._batch:
            phy_offset, size, tags_code, _, base, count, _, _ = BATCH_LAYOUT.unpack(raw)
        else:
            phy_offset, size, tags_code = UNIT_LAYOUT.unpack(raw)
            base, count = position, 1
        if not any(raw):
            return Unit(EMPTY, position)
        if not self._batch and (phy_offset, size, tags_code) == (0, PRE_BLANK_SIZE, 0):
            return Unit(PRE_BLANK, position)
        kind = UNIT if phy_offset >= 0 and size > 0 and base >= 0 and count > 0 else BAD
        return Unit(kind, position, phy_offset, size, tags_code, base, count)

    def _next_in_files(self, position: int) -> int:
        """Return the position behind one without a unit; behind one in no file, the first of the next file."""
        logical = position * self.unit_size
        number = bisect_right(self._starts, logical) - 1
        inside = number >= 0 and logical + self.unit_size <= sum(self._files[number])
        if inside or number + 1 == len(self._files):
            return position + 1
        return max(position + 1, -(-self._starts[number + 1] // self.unit_size))

    @cached_property
    def end(self) -> int:
        """The position behind the last unit, if only empty slots follow the units; else that behind one of the units."""
        stop = self.stop
        return bisect_left(range(stop), True, self.first, stop, key=lambda position: self.at(position).kind == EMPTY)

    @cached_property
    def begin(self) -> int:
        """The position of the first unit behind the pre-blank."""
        end = self.end
        return bisect_left(range(end), True, self.first, end, key=lambda position: self.at(position).kind != PRE_BLANK)

    def find(self, offset: int) -> int:
        """Return the position of the unit that holds a queue offset; where there is none, that of the first unit behind it.

        A plain queue's unit stands at its offset. A batch unit is looked for as the broker does it
        (``BatchConsumeQueue.binarySearch`` of 5.3), by a binary search, and then among all units: with ``--queue-order broker``
        they may stand out of order.
        """
        if not self._batch:
            return offset
        position = self.first_where(lambda unit: unit.base + unit.messages > offset)
        unit = self.at(position)
        if unit.kind == UNIT and unit.base <= offset < unit.base + unit.messages:
            return position
        number = self.first
        while number < self.stop:
            unit = self.at(number)
            if unit.kind == UNIT and unit.base <= offset < unit.base + unit.messages:
                return number
            number = number + 1 if unit.kind == UNIT else self.behind_gap(number)
        return position

    def first_where(self, reached: Callable[[Unit], bool | None]) -> int:
        """Return the position of the first unit for which ``reached`` is true; it is false up to some unit, and true from there
        on.

        Where ``reached`` gives None, and where a slot holds no unit, the next slot is asked. Where ``reached`` turns more than
        once (a clock went back), it is true at the position returned, and false for the unit before.
        """
        low, high = self.begin, self.end
        while low < high:
            middle = (low + high) // 2
            probe, answer = middle, None
            while probe < high:
                unit = self.at(probe)
                answer = reached(unit) if unit.kind == UNIT else None
                if answer is not None:
                    break
                probe = probe + 1 if unit.kind == UNIT else self.behind_gap(probe)
            if answer is None or answer:
                high = middle
            else:
                low = probe + 1
        # Slots without an answer stand before the first one with it.
        return low
