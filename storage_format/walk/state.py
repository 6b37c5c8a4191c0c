"""What the record loop fills: arrays of queues, units and items, and the numbers that it keeps between calls."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.integers import UINT32_MAX
from rocketmq_reindex.storage_format.kernels.jit import inlined, jit

Bytes = npt.NDArray[np.uint8]
State = npt.NDArray[np.int64]
"""STATE_SIZE numbers that the loop keeps between calls, by the names below"""

# What the loop keeps between calls, in the int64 array ``state``.
(
    UNITS,
    ITEMS,
    MAKERS,
    QUEUES,
    RECORDS,
    UNIT_RECORDS,
    EXCLUDED,
    FIRST_DISPATCHED,
    LAST_DISPATCHED,
    LAST_TIME,
    LAST_UNIT,
    LAST_UNIT_TIME,
    TIME_MIN,
    TIME_MAX,
    WAITING,
    ITEMS_BEFORE,
    TAG_ITEMS,
    LAST_GOOD,
    LMQ_SLASH,
    LMQ_NO_FILE,
    LMQ_BAD,
    NAME_START,
    NAME_END,
    INNER_BATCHES,
    BATCHES,
    BATCHES_REFUSED,
    BATCHES_EMPTY,
    MESSAGES,
    AGAIN,
    LOST_START,
    LOST_END,
) = range(31)
STATE_SIZE: Final = 31


def new_state() -> State:
    """The state before the first record of a range."""
    state = np.zeros(STATE_SIZE, np.int64)
    for k in (FIRST_DISPATCHED, LAST_DISPATCHED, LAST_UNIT, WAITING, LAST_GOOD, LOST_START, LOST_END):
        state[k] = -1
    return state


class QueueArrays(NamedTuple):
    """The queues met, by number, in a hash table with open addressing over ``slots``.

    ``name`` is an entry of the name table; ``last`` the physical offset of the record that last gave the queue a unit.
    """

    slots: npt.NDArray[np.int32]
    name: npt.NDArray[np.int32]
    queue_id: npt.NDArray[np.int32]
    last: npt.NDArray[np.int64]


class UnitArrays(NamedTuple):
    """ConsumeQueue units in commitlog order; ``queue`` is a number of QueueArrays.

    A row of size 0 is no unit: the record of the unit before it named its light queue again.
    """

    queue: npt.NDArray[np.int32]
    offset: npt.NDArray[np.int64]
    phy_offset: npt.NDArray[np.int64]
    size: npt.NDArray[np.int32]
    tags_code: npt.NDArray[np.int64]


class BatchArrays(NamedTuple):
    """Units of batch ConsumeQueues in commitlog order; ``base`` is the queue offset of the first of a unit's ``messages``."""

    queue: npt.NDArray[np.int32]
    base: npt.NDArray[np.int64]
    phy_offset: npt.NDArray[np.int64]
    size: npt.NDArray[np.int32]
    tags_code: npt.NDArray[np.int64]
    store_time: npt.NDArray[np.int64]
    messages: npt.NDArray[np.int32]


class MessageArrays(NamedTuple):
    """The records dispatched, in commitlog order: what their DispatchRequest has that is derived from their bytes."""

    phy_offset: npt.NDArray[np.int64]
    size: npt.NDArray[np.int32]
    tags_code: npt.NDArray[np.int64]
    base: npt.NDArray[np.int64]
    messages: npt.NDArray[np.int32]


@inlined
def enter_queue(queues: QueueArrays, state: npt.NDArray[np.int64], name: int, queue_id: int) -> int:
    """The number of a queue, which is entered if it is new. The caller has made sure that there is room."""
    mask = len(queues.slots) - 1
    slot = ((name * 0x9E3779B1 + (queue_id & UINT32_MAX) * 0x85EBCA77) >> 7) & mask
    while True:
        entry = queues.slots[slot]
        if entry < 0:
            entry = state[QUEUES]
            state[QUEUES] += 1
            queues.slots[slot] = entry
            queues.name[entry] = name
            queues.queue_id[entry] = queue_id
            queues.last[entry] = -1
            return int(entry)
        if queues.name[entry] == name and queues.queue_id[entry] == queue_id:
            return int(entry)
        slot = (slot + 1) & mask


def new_queues(slots: int) -> QueueArrays:
    """Room for ``slots // 2`` queues; ``slots`` is a power of two."""
    return QueueArrays(
        np.full(slots, -1, np.int32), np.zeros(slots // 2, np.int32),
        np.zeros(slots // 2, np.int32), np.full(slots // 2, -1, np.int64),
    )  # fmt: skip


def grown_queues(queues: QueueArrays, state: State) -> QueueArrays:
    """The same queues under the same numbers, with room for twice as many."""
    grown, count = new_queues(2 * len(queues.slots)), int(state[QUEUES])
    state[QUEUES] = 0
    for k in range(count):
        enter_queue(grown, state, int(queues.name[k]), int(queues.queue_id[k]))
    grown.last[:count] = queues.last[:count]
    return grown


@inlined
def put_unit(
    units: UnitArrays,
    queues: QueueArrays,
    state: npt.NDArray[np.int64],
    queue: int,
    offset: int,
    phy_offset: int,
    size: int,
    tags_code: int,
) -> None:
    """Add a unit of ``queue``, which is a number of ``queues``."""
    queues.last[queue] = phy_offset
    n = state[UNITS]
    units.queue[n] = queue
    units.offset[n] = offset
    units.phy_offset[n] = phy_offset
    units.size[n] = size
    units.tags_code[n] = tags_code
    state[UNITS] = n + 1


@jit
def put_again(units: UnitArrays, state: npt.NDArray[np.int64], queue: int, offset: int, phy_offset: int) -> None:
    """A record names an LMQ once more: it gets no unit (maxPhysicOffset in ``ConsumeQueue.putMessagePositionInfo``)."""
    n = state[UNITS]
    units.queue[n] = queue
    units.offset[n] = offset
    units.phy_offset[n] = phy_offset
    units.size[n] = 0
    units.tags_code[n] = 0
    state[UNITS] = n + 1
    state[AGAIN] += 1


@jit
def put_batch(
    batches: BatchArrays,
    state: npt.NDArray[np.int64],
    queue: int,
    base: int,
    phy_offset: int,
    size: int,
    tags_code: int,
    store_time: int,
    messages: int,
) -> None:
    """Add a unit of a batch ConsumeQueue; ``messages`` is how many messages its record has."""
    n = state[BATCHES]
    batches.queue[n] = queue
    batches.base[n] = base
    batches.phy_offset[n] = phy_offset
    batches.size[n] = size
    batches.tags_code[n] = tags_code
    batches.store_time[n] = store_time
    batches.messages[n] = messages
    state[BATCHES] = n + 1
    if messages == 0:
        state[BATCHES_EMPTY] += 1


@inlined
def put_message(
    messages: MessageArrays, state: npt.NDArray[np.int64], phy_offset: int, size: int, tags_code: int, base: int, count: int
) -> None:
    """Add a record that is dispatched; ``base`` is the queue offset of the first of its ``count`` messages."""
    n = state[MESSAGES]
    messages.phy_offset[n] = phy_offset
    messages.size[n] = size
    messages.tags_code[n] = tags_code
    messages.base[n] = base
    messages.messages[n] = count
    state[MESSAGES] = n + 1
