"""What the record loop fills: arrays of queues, units and index items, and the numbers that it keeps between calls."""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.kernels.java_text import index_hash, java_hash
from rocketmq_reindex.storage_format.kernels.jit import inlined, jit
from rocketmq_reindex.storage_format.kernels.raw_bytes import find_byte
from rocketmq_reindex.storage_format.layouts import INT32_MIN, INT64_MAX, UINT32_MAX
from rocketmq_reindex.storage_format.record import frame as f, layout as r
from rocketmq_reindex.storage_format.record.entry import EntryPlace, check_order, entry_at, follower_at

# ------------------------------------------------------------------------------------------------------------------------ state

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
    ENTRY_INDEX,
    ENTRY_TERM,
    ENTRY_TIME,
    ENTRY_END,
    FIRST_INDEX,
    FIRST_TERM,
    FIRST_TIME,
    FIRST_START,
    COMMITTED,
) = range(40)
STATE_SIZE: Final = 40


def new_state() -> State:
    """Return the state before the first record of a range."""
    state = np.zeros(STATE_SIZE, np.int64)
    for k in (FIRST_DISPATCHED, LAST_DISPATCHED, LAST_UNIT, WAITING, LAST_GOOD, LOST_START, LOST_END, ENTRY_INDEX, FIRST_INDEX):
        state[k] = -1
    state[COMMITTED] = INT64_MAX
    return state


LOOK_AHEAD: Final = 16 << 20
"""Bytes of the longest entry that is looked behind."""


@jit
def _check_followers(stretch: f.Stretch, at: int, entry: EntryPlace, committed: int, rec: npt.NDArray[np.int64]) -> int:
    """Return BAD_ORDER where the two entries behind the one at ``data[at]`` follow on each other, and not on it; else GOOD.

    No CRC protects an index: where none before it tells, those behind it do. Where there is one alone, the index ``committed``
    decides between the two. AHEAD sets ``rec[TOTAL]`` to the bytes wanted, those of the entry among them.
    """
    data, base = stretch.data, stretch.base
    end = min(stretch.segment_end, stretch.data_end) - base - r.ENTRY_HEAD
    follower = at + rec[f.TOTAL]
    if follower > end:
        return r.GOOD
    if follower + r.ENTRY_HEAD > stretch.filled:
        rec[f.TOTAL] += r.ENTRY_HEAD
        return r.AHEAD
    number, term, size = follower_at(data, follower, base)
    # One of an older term is what a truncation left, and tells nothing.
    if number < 0 or number == entry.number + 1 or term < entry.term:
        return r.GOOD
    second = follower + size
    if size <= LOOK_AHEAD and second <= end:
        if second + r.ENTRY_HEAD > stretch.filled:
            rec[f.TOTAL] += size + r.ENTRY_HEAD
            return r.AHEAD
        after, _, _ = follower_at(data, second, base)
        if after == number + 1:
            return r.BAD_ORDER
        if after == entry.number + 2:
            return r.GOOD
    return r.BAD_ORDER if number <= committed and committed < entry.number else r.GOOD


@inlined
def entry_order(stretch: f.Stretch, at: int, record: f.RecordArrays, state: State) -> int:
    """Return GOOD for the entry of DLedger at ``data[at]`` if it follows on those before it, and is committed; else why not.

    One that does not follow at once on a known one is not taken by its own word: those behind it have to be in memory (AHEAD).
    """
    start = stretch.base + at
    entry = entry_at(stretch.data, at, record.rec[f.STORE_TIME], start + record.rec[f.TOTAL])
    before = EntryPlace(state[ENTRY_INDEX], state[ENTRY_TERM], state[ENTRY_TIME], state[ENTRY_END])
    code = check_order(before, entry, start)
    if code == r.GOOD and (before.number < 0 or entry.number != before.number + 1):
        code = _check_followers(stretch, at, entry, state[COMMITTED], record.rec)
    return r.UNCOMMITTED if code == r.GOOD and entry.number > state[COMMITTED] else code


@inlined
def note_good(stretch: f.Stretch, at: int, record: f.RecordArrays, state: State) -> None:
    """Note that a good record stands at ``data[at]``."""
    state[LAST_GOOD] = stretch.base + at + stretch.lead
    if stretch.lead:
        entry = entry_at(stretch.data, at, record.rec[f.STORE_TIME], stretch.base + at + record.rec[f.TOTAL])
        if state[FIRST_INDEX] < 0:
            state[FIRST_INDEX] = entry.number
            state[FIRST_TERM] = entry.term
            state[FIRST_TIME] = entry.time
            state[FIRST_START] = stretch.base + at
        state[ENTRY_INDEX] = entry.number
        state[ENTRY_TERM] = entry.term
        state[ENTRY_TIME] = entry.time
        state[ENTRY_END] = entry.end


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
    """Return the number of a queue, which is entered if it is new. The caller has made sure that there is room."""
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
    """Return room for ``slots // 2`` queues; ``slots`` is a power of two."""
    return QueueArrays(
        np.full(slots, -1, np.int32), np.zeros(slots // 2, np.int32),
        np.zeros(slots // 2, np.int32), np.full(slots // 2, -1, np.int64),
    )  # fmt: skip


def grown_queues(queues: QueueArrays, state: State) -> QueueArrays:
    """Return the same queues under the same numbers, with room for twice as many."""
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


# ------------------------------------------------------------------------------------------------------------------ index_items
# The index items of a record, by its keys and tags, as a scan stages them until their file is known.

STAGED: Final = np.dtype([("phy_offset", "<i8"), ("time", "<i8"), ("key_hash", "<i4")])
"""An item as a scan stages it, before its file is known."""
MAKER: Final = np.dtype([("item", "<i8"), ("phy_offset", "<i8")])
"""A row of a staged block's table: before this item a record without items was dispatched, at that physical offset.

Such a record makes the next IndexFile, where the one before is full."""
SEPARATOR: Final = ord("#")
SPACE: Final = ord(" ")
TAG_TYPE: Final = ord("T")
"""``MessageConst.INDEX_TAG_TYPE``"""
NO_TAGS, TAGS, MARKED_TAGS = range(3)
"""Whether TAGS give items; a marked one has a negative keyHash, 2**31 below its own: no broker writes one."""


class ItemArrays(NamedTuple):
    """Index items (dtype STAGED) in commitlog order, and the makers among them (dtype MAKER).

    A maker is the first record without items dispatched after the item before: ``item`` is the number in the range of the item
    that follows it, ``phy_offset`` its physical offset. It makes the next IndexFile where the one before is full.
    """

    staged: npt.NDArray[np.void]
    makers: npt.NDArray[np.void]


@inlined
def put_item(items: ItemArrays, state: npt.NDArray[np.int64], key_hash: int, phy_offset: int, time: int) -> None:
    """Add an index item, and before it the record without items that was dispatched since the item before, if any."""
    n = state[ITEMS]
    if state[WAITING] >= 0 and state[WAITING] != phy_offset:
        m = state[MAKERS]
        items.makers["item"][m] = state[ITEMS_BEFORE] + n
        items.makers["phy_offset"][m] = state[WAITING]
        state[MAKERS] = m + 1
    state[WAITING] = -1
    items.staged["phy_offset"][n] = phy_offset
    items.staged["time"][n] = time
    items.staged["key_hash"][n] = index_hash(key_hash)
    state[ITEMS] = n + 1


@inlined
def tag_seed(seed: int) -> int:
    """Return the hash of ``topic#T#``; ``seed`` is that of ``topic#``."""
    return (seed * 961 + TAG_TYPE * 31 + SEPARATOR) & UINT32_MAX


@inlined
def index_record(
    data: npt.NDArray[np.uint8],
    spans: npt.NDArray[np.int64],
    items: ItemArrays,
    state: npt.NDArray[np.int64],
    seed: int,
    phy_offset: int,
    time: int,
    tag_items: int,
) -> bool:
    """Put the items of a record (``IndexService.buildIndex``, 4.9 to 5.5); return whether it has any.

    UNIQ_KEY comes first, then each of KEYS, split on single spaces without empty pieces; then, unless
    ``tag_items`` is NO_TAGS, TAGS as one text behind ``topic#T#`` (5.4.0 on). ``seed`` is the hash of ``topic#``.
    """
    before = state[ITEMS]
    if spans[2 * f.UNIQ_KEY] >= 0:
        h = java_hash(data, spans[2 * f.UNIQ_KEY], spans[2 * f.UNIQ_KEY + 1], seed)
        put_item(items, state, h, phy_offset, time)
    at = spans[2 * f.KEYS]
    if at >= 0:
        end = spans[2 * f.KEYS + 1]
        while at < end:
            stop = find_byte(data, at, end, SPACE, SPACE)
            if stop > at:
                put_item(items, state, java_hash(data, at, stop, seed), phy_offset, time)
            at = stop + 1
    if tag_items != NO_TAGS and spans[2 * f.TAGS] >= 0:
        h = java_hash(data, spans[2 * f.TAGS], spans[2 * f.TAGS + 1], tag_seed(seed))
        put_item(items, state, h, phy_offset, time)
        state[TAG_ITEMS] += 1
        if tag_items == MARKED_TAGS:
            items.staged["key_hash"][state[ITEMS] - 1] += INT32_MIN
    return bool(state[ITEMS] > before)
