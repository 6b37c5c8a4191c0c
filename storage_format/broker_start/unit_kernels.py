"""The loops over units: how far a queue's file is valid, what a dispatch appends, where a cut ends (``ConsumeQueue``).

A queue's content is its files, and behind the byte ``tail_from`` of its logical length the units of this start: ``tail``.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.kernels.jit import inlined, jit
from rocketmq_reindex.storage_format.kernels.raw_bytes import int16_at, int32_at, int64_at
from rocketmq_reindex.storage_format.queue.extended import ADDRESS_MAX
from rocketmq_reindex.storage_format.queue.units import BATCH_LAYOUT, EXT_SIZE_MIN, PRE_BLANK_SIZE, UNIT_LAYOUT, UNIT_SIZE

_AT_SIZE: Final = UNIT_LAYOUT.at["size"]
_AT_TAGS_CODE: Final = UNIT_LAYOUT.at["tags_code"]
_AT_BASE: Final = BATCH_LAYOUT.at["base"]
_AT_COUNT: Final = BATCH_LAYOUT.at["count"]


_LOOKED_AT: Final = 16_000
"""bytes of units for one request (``maxFilterMessageSize`` of 5.x, a constant in 4.9)"""


class FileContent(NamedTuple):
    """A file's bytes, or none for one that this start made; the tail's first byte in it; offsets and sizes of the tail."""

    data: npt.NDArray[np.uint8]
    tail_at: int
    tail_phy: npt.NDArray[np.int64]
    tail_size: npt.NDArray[np.int32]


# What a queue keeps between dispatches, in an int64 array. Of the units of this start BLANKS counts those that come first and
# stand for none, TAIL those in memory, and MOVED those of records with a higher queue offset than the unit's.
MAX_PHYSIC, LAST_START, WROTE, MIN_LOGIC, FIRST_CREATED, FILES_MADE, TAIL, TAIL_FROM, BLANKS, MOVED = range(10)
STATE_SIZE: Final = 10


@inlined
def _is_valid(data: npt.NDArray[np.uint8], at: int, unit: int) -> bool:
    if int64_at(data, at) < 0 or int32_at(data, at + _AT_SIZE) <= 0:
        return False
    return unit == UNIT_SIZE or (int64_at(data, at + _AT_BASE) >= 0 and int16_at(data, at + _AT_COUNT) > 0)


@jit
def valid_prefix(data: npt.NDArray[np.uint8], unit: int) -> int:
    """Return how many valid units stand at the beginning of ``data``."""
    count = 0
    while (count + 1) * unit <= len(data) and _is_valid(data, count * unit, unit):
        count += 1
    return count


@jit
def last_address(data: npt.NDArray[np.uint8], unit: int) -> tuple[int, int]:
    """Return how many bytes the valid units at the beginning of ``data`` take, and the last of their tagsCodes that is an
    address in ``consumequeue_ext``; 1 for none."""
    at, address = 0, np.int64(1)
    while at + unit <= len(data) and _is_valid(data, at, unit):
        tags_code = int64_at(data, at + _AT_TAGS_CODE)
        if tags_code <= ADDRESS_MAX:
            address = tags_code
        at += unit
    return at, address


@jit
def ext_chain(data: npt.NDArray[np.uint8]) -> tuple[int, int]:
    """Return where the units of a file in ``consumequeue_ext`` end, by their sizes alone (``ConsumeQueueExt.recover``); -1 less
    the byte of the unit for one that reaches behind the file, where Java throws. And up to where a broker reads for a unit."""
    at, reach = 0, 0
    while at + 2 <= len(data):
        size = int16_at(data, at)
        if size <= 0:
            return at, reach
        if at + size > len(data):
            break
        reach = max(reach, at + EXT_SIZE_MIN)
        if at + EXT_SIZE_MIN <= len(data):
            reach = max(reach, at + EXT_SIZE_MIN + int16_at(data, at + EXT_SIZE_MIN - 2))
        at += size
    return -1 - at, reach


@jit
def count_valid(data: npt.NDArray[np.uint8], start: int, unit: int) -> int:
    """Return how many valid units that point to a record stand in ``data`` from ``start`` on."""
    count = 0
    for at in range(start, len(data) - unit + 1, unit):
        if _is_valid(data, at, unit) and int32_at(data, at + _AT_SIZE) != PRE_BLANK_SIZE:
            count += 1
    return count


@jit
def append_units(
    phy_offset: npt.NDArray[np.int64],
    size: npt.NDArray[np.int32],
    queue_offset: npt.NDArray[np.int64],
    file_size: int,
    state: npt.NDArray[np.int64],
    tail_phy: npt.NDArray[np.int64],
    tail_size: npt.NDArray[np.int32],
) -> None:
    """Dispatch records of one queue (``ConsumeQueue.putMessagePositionInfo``).

    ``state`` has STATE_SIZE numbers; behind its TAIL the tail has room for a unit of each record. The blanks that fill the
    beginning of a queue's first file are only counted.
    """
    for k in range(len(phy_offset)):
        if phy_offset[k] + size[k] <= state[MAX_PHYSIC]:
            continue
        expected = queue_offset[k] * UNIT_SIZE
        if state[LAST_START] < 0:
            state[LAST_START] = expected - expected % file_size
            state[WROTE] = 0
            state[FIRST_CREATED] = 1
            state[FILES_MADE] += 1
            state[TAIL] = 0
            state[TAIL_FROM] = state[LAST_START]
        elif state[WROTE] == file_size:
            state[LAST_START] += file_size
            state[WROTE] = 0
            state[FIRST_CREATED] = 0
            state[FILES_MADE] += 1
        if queue_offset[k] != 0:
            if state[FIRST_CREATED] and state[WROTE] == 0:
                state[MIN_LOGIC] = expected
                state[BLANKS] = (expected % file_size) // UNIT_SIZE
                state[WROTE] = expected % file_size
            if expected < state[LAST_START] + state[WROTE]:
                continue
            if expected > state[LAST_START] + state[WROTE]:
                state[MOVED] += 1
        state[MAX_PHYSIC] = phy_offset[k] + size[k]
        tail_phy[state[TAIL]] = phy_offset[k]
        tail_size[state[TAIL]] = size[k]
        state[TAIL] += 1
        state[WROTE] += UNIT_SIZE


@jit
def span_of(
    data: npt.NDArray[np.uint8],
    end: int,
) -> tuple[bool, int, int]:
    """Return whether the offsets of the units in ``data[:end]`` never fall; the lowest and the highest of them."""
    ascends, last = True, np.int64(int64_at(data, 0))
    low, high = last, last
    for at in range(UNIT_SIZE, end - UNIT_SIZE + 1, UNIT_SIZE):
        offset = np.int64(int64_at(data, at))
        ascends = ascends and offset >= last
        last, low, high = offset, min(low, offset), max(high, offset)
    return ascends, low, high


@inlined
def _first_from(numbers: npt.NDArray[np.int64], number: int) -> int:
    low, high = 0, len(numbers)
    while low < high:
        middle = (low + high) // 2
        if numbers[middle] < number:
            low = middle + 1
        else:
            high = middle
    return low


@jit
def mark_pointed(
    data: npt.NDArray[np.uint8],
    end: int,
    ascends: bool,
    start: int,
    file_size: int,
    lowest: int,
    highest: int,
    offsets: npt.NDArray[np.int64],
    pointed_to: npt.NDArray[np.bool_],
) -> None:
    """Set ``pointed_to`` for each of ``offsets``, ascending, to which a unit in ``data[:end]`` points.

    Only units count whose byte of the queue's logical length is in [lowest, highest). A unit is looked for at its offset modulo
    the file's size, wherever the file's name (``start``) says that it begins.
    """
    at = 0
    if ascends:
        low, high = 0, end // UNIT_SIZE
        while low < high:
            middle = (low + high) // 2
            if int64_at(data, middle * UNIT_SIZE) < offsets[0]:
                low = middle + 1
            else:
                high = middle
        at = low * UNIT_SIZE
    while at + UNIT_SIZE <= end:
        offset = np.int64(int64_at(data, at))
        if ascends and offset > offsets[len(offsets) - 1]:
            return
        place = start + (at - start) % file_size
        if int32_at(data, at + _AT_SIZE) != PRE_BLANK_SIZE and place >= lowest and place < highest:
            k = _first_from(offsets, offset)
            while k < len(offsets) and offsets[k] == offset:
                pointed_to[k] = True
                k += 1
        at += UNIT_SIZE


@inlined
def unit_at(
    file: FileContent,
    at: int,
) -> tuple[int, int]:
    """Return offset and size of the unit at byte ``at`` of a file; (0, 0) where it ends."""
    k = (at - file.tail_at) // UNIT_SIZE
    if at >= file.tail_at and k < len(file.tail_phy):
        return file.tail_phy[k], np.int64(file.tail_size[k])
    if at + UNIT_SIZE > len(file.data):
        return np.int64(0), np.int64(0)
    return np.int64(int64_at(file.data, at)), np.int64(int32_at(file.data, at + _AT_SIZE))


@jit
def cut_file(
    file: FileContent,
    file_size: int,
    phy_offset: int,
) -> tuple[int, int]:
    """Return ``ConsumeQueue.truncateDirtyLogicFiles`` of a last file: (bytes kept, where the last unit's record ends).

    (0, 0): the whole file goes, since its first unit points to ``phy_offset`` or behind it. Of the first unit nothing else is
    asked: of a file of zeros one unit stays.
    """
    first, first_size = unit_at(file, 0)
    if first >= phy_offset:
        return 0, 0
    kept, ends = UNIT_SIZE, first + first_size
    while kept < file_size:
        offset, size = unit_at(file, kept)
        if offset < 0 or size <= 0 or offset >= phy_offset:
            break
        kept += UNIT_SIZE
        ends = offset + size
    return kept, ends


@jit
def search_min(
    file: FileContent,
    start: int,
    end: int,
    lowest: int,
) -> int:
    """Return the byte of a file from which units point to ``lowest`` or behind it, searched by halves from ``start`` on; -1 for
    none.

    ``ConsumeQueue.correctMinOffset`` of 5.x: where offsets do not rise, it finds what its halves lead to.
    """
    low, high = 0, end - start - UNIT_SIZE
    while high - low > UNIT_SIZE:
        middle = (low + high) // 2 // UNIT_SIZE * UNIT_SIZE
        offset, _ = unit_at(file, start + middle)
        if offset > lowest:
            high = middle
        elif offset == lowest:
            low = middle
            high = middle
        else:
            low = middle
    at = low
    while at <= high:
        if unit_at(file, start + at)[0] >= lowest:
            return start + at
        at += UNIT_SIZE
    return -1


@jit
def first_min(
    file: FileContent,
    end: int,
    lowest: int,
) -> int:
    """Return the byte of the first unit that points to ``lowest`` or behind it; -1 for none (``correctMinOffset`` of 4.9)."""
    for at in range(0, end - UNIT_SIZE + 1, UNIT_SIZE):
        if unit_at(file, at)[0] >= lowest:
            return at
    return -1


@jit
def passed_over(
    file: FileContent,
    start: int,
    end: int,
    segment_size: int,
) -> tuple[int, int, int]:
    """Return what a consumer is not given that begins at the unit at byte ``start``, which may stand for no record.

    Returns (how many messages that have units it is sent past, the byte of the first unit that it is given or may ask for next,
    the offset of the last one that it is sent past, or -1). A broker that cannot read a message passes over all that lie in the
    same segment, in as many units as it looks at for one request (``DefaultMessageStore.getMessage``), and lets the consumer go
    on behind them. ``end`` is the end of the file's units. Units in the place of missing offsets point to the message behind
    them: it counts once.
    """
    passed, at, last = 0, start, np.int64(-1)
    while at + UNIT_SIZE <= end and unit_at(file, at)[1] == PRE_BLANK_SIZE:
        stop = min(end, at + _LOOKED_AT)
        behind = np.int64(-1)
        while at + UNIT_SIZE <= stop:
            offset, size = unit_at(file, at)
            if behind < 0 or offset >= behind:
                if size != PRE_BLANK_SIZE:
                    return passed, at, last
                behind = offset - offset % segment_size + segment_size
            elif size != PRE_BLANK_SIZE:
                passed += offset != last
                last = offset
            at += UNIT_SIZE
    return passed, at, last
