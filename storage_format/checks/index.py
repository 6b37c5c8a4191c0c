"""Check the IndexFiles of a store: each by itself, then each beside the one before it."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.checks.checkpoint import A_DAY
from rocketmq_reindex.storage_format.errors import Finding, NoListener, ProgressListener, from_bits
from rocketmq_reindex.storage_format.index.file import IndexView
from rocketmq_reindex.storage_format.index.layout import HEADER_SIZE, ITEM_LAYOUT, ITEM_SIZE, SLOT_SIZE, IndexHeader
from rocketmq_reindex.storage_format.kernels.jit import jit
from rocketmq_reindex.storage_format.kernels.raw_bytes import int32_at, int64_at
from rocketmq_reindex.storage_format.layouts import INT32_MAX, as_long

# ------------------------------------------------------------------------------------------------------------------------ index
# Check an IndexFile by itself. One pass over its items says what each slot and each link should be.
#
# Items stand in the order in which they were put (``IndexFile.putKey``): an item's link is what its slot held before, and in
# the end each slot holds its newest item. Only where that fails are the chains themselves walked.

Bytes = npt.NDArray[np.uint8]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

_AT_PHY_OFFSET: Final = ITEM_LAYOUT.at["phy_offset"]
_AT_TIME_DIFF: Final = ITEM_LAYOUT.at["time_diff"]
_AT_PREV: Final = ITEM_LAYOUT.at["prev"]
ITEM_FAULTS: Final = (
    "index-item-hash", "index-item-place", "index-item-time", "index-link-range", "index-link-foreign", "index-link-gap",
    "index-link-circular", "index-item-lost",
)  # fmt: skip
LINK_FAULTS: Final = ("index-link-range", "index-link-foreign", "index-link-gap")
SLOT_FAULTS: Final = ("index-slot-range", "index-slot-foreign", "index-slot-old")
_HASH, _PHY_OFFSET, _TIME, _RANGE, _FOREIGN, _GAP, _CIRCULAR, _LOST = (1 << k for k in range(len(ITEM_FAULTS)))
ITEM_STEP: Final = 1 << 20
"""items that are looked at before the next word on how far that is"""
_SLOT_RANGE, _SLOT_FOREIGN, _SLOT_OLD = (1 << k for k in range(len(SLOT_FAULTS)))


@dataclass(frozen=True)
class IndexCheck:
    """What a check found.

    ``item_fault``, uint8 by item number (0 is unused), has a bit for each of ITEM_FAULTS; ``slot_fault``, uint8 by slot, one
    for each of SLOT_FAULTS.
    """

    items: int
    """items that count: up to indexCount, or to the last one written in a sealed file"""
    slots_used: int
    item_fault: Bytes
    slot_fault: Bytes
    findings: list[Finding]


@jit
def _slot_of(data: Bytes, item_start: int, slots: int, item: int) -> int:
    """Return the slot to which an item's hash leads, -1 for none."""
    key_hash = int32_at(data, item_start + ITEM_SIZE * item)
    return key_hash % slots if key_hash >= 0 else -1


@jit
def _check_items(data: Bytes, slots: int, first: int, stop: int, newest: Int32s, fault: Bytes) -> int:
    """Set ``fault`` of the items ``first`` to ``stop``, and the newest item of each slot. Return all bits set."""
    item_start = HEADER_SIZE + SLOT_SIZE * slots
    all_bits, before = 0, np.int64(0)
    if first > 1:
        before = int64_at(data, item_start + ITEM_SIZE * (first - 1) + _AT_PHY_OFFSET)
    for item in range(first, stop):
        at = item_start + ITEM_SIZE * item
        slot = _slot_of(data, item_start, slots, item)
        phy_offset = int64_at(data, at + _AT_PHY_OFFSET)
        prev = int32_at(data, at + _AT_PREV)
        bits = 0
        if phy_offset < before or phy_offset < 0:
            bits |= _PHY_OFFSET
        before = phy_offset
        if int32_at(data, at + _AT_TIME_DIFF) < 0:
            bits |= _TIME
        expected = np.int64(-1)
        if slot < 0:
            bits |= _HASH
        else:
            expected = np.int64(newest[slot])
            newest[slot] = item
        if prev < 0 or prev >= item:
            bits |= _RANGE
        elif slot >= 0 and prev != expected:
            bits |= _GAP if prev == 0 or _slot_of(data, item_start, slots, prev) == slot else _FOREIGN
        fault[item] = bits
        all_bits |= bits
    return all_bits


@jit
def _check_slots(data: Bytes, slots: int, used: int, newest: Int32s, fault: Bytes) -> tuple[int, int]:
    """Set ``fault`` of each slot. Return all bits set and the number of slots in use."""
    item_start = HEADER_SIZE + SLOT_SIZE * slots
    all_bits, in_use = 0, 0
    for slot in range(slots):
        head = int32_at(data, HEADER_SIZE + SLOT_SIZE * slot)
        if head != 0:
            in_use += 1
        if head != newest[slot]:
            if head < 0 or head > used:
                fault[slot] = _SLOT_RANGE
            elif head == 0 or _slot_of(data, item_start, slots, head) == slot:
                fault[slot] = _SLOT_OLD
            else:
                fault[slot] = _SLOT_FOREIGN
            all_bits |= np.int64(fault[slot])
    return all_bits, in_use


@jit
def _next_item(data: Bytes, item_start: int, used: int, item: int) -> int:
    """Return the item that a lookup reads after ``item``, 0 where it ends (``IndexFile.selectPhyOffset``)."""
    at = item_start + ITEM_SIZE * item
    prev = int32_at(data, at + _AT_PREV)
    if int32_at(data, at + _AT_TIME_DIFF) < 0 or prev <= 0 or prev > used or prev == item:
        return 0
    return prev


@jit
def _find_circles(data: Bytes, slots: int, used: int, walk: Int32s, fault: Bytes) -> int:
    """Mark items in circles. Each has a link to a later item, so walks start there; ``walk`` says which one met an item."""
    item_start = HEADER_SIZE + SLOT_SIZE * slots
    all_bits, number = 0, 0
    for start in range(1, used + 1):
        if not fault[start] & _RANGE or walk[start] != 0:
            continue
        number += 1
        item = start
        while item > 0 and walk[item] == 0:
            walk[item] = number
            item = _next_item(data, item_start, used, item)
        if item > 0 and walk[item] == number:
            all_bits = _CIRCULAR
            while not fault[item] & _CIRCULAR:
                fault[item] |= _CIRCULAR
                item = _next_item(data, item_start, used, item)
    return all_bits


@jit
def _find_lost(data: Bytes, slots: int, used: int, met: Int32s, fault: Bytes) -> int:
    """Mark items that their slot does not lead to over items of its own alone. ``met`` comes in as zeros."""
    item_start = HEADER_SIZE + SLOT_SIZE * slots
    for slot in range(slots):
        item = int32_at(data, HEADER_SIZE + SLOT_SIZE * slot)
        if item < 0 or item > used:
            continue
        while item > 0 and met[item] == 0 and _slot_of(data, item_start, slots, item) == slot:
            met[item] = 1
            item = _next_item(data, item_start, used, item)
    all_bits = 0
    for item in range(1, used + 1):
        if met[item] == 0 and not fault[item] & _HASH:
            fault[item] |= _LOST
            all_bits = _LOST
    return all_bits


def check_index(view: IndexView, progress: ProgressListener | None = None) -> IndexCheck:
    """Return what is wrong in a whole file: header, slots, items and links. ``progress`` is told how far the check is.

    It takes 5 bytes of memory for each slot, and in a broken file 5 for each item.
    """
    header = view.header
    written = view.last_written()
    count = header.index_count if header.index_count > 0 else 1  # IndexHeader.load
    used = min(written, count - 1)
    newest = np.zeros(view.slots, np.int32)
    item_fault, slot_fault = np.zeros(used + 1, np.uint8), np.zeros(view.slots, np.uint8)
    progress, item_bits = progress or NoListener(), 0
    progress.begin("check", ITEM_SIZE * used)
    for first in range(1, used + 1, ITEM_STEP):
        stop = min(used + 1, first + ITEM_STEP)
        item_bits |= _check_items(view.data, view.slots, first, stop, newest, item_fault)
        progress.moved(ITEM_SIZE * (stop - first))
    slot_bits, slots_used = _check_slots(view.data, view.slots, used, newest, slot_fault)
    if item_bits & (_TIME | _RANGE | _FOREIGN | _GAP) or slot_bits:
        if item_bits & _RANGE:
            item_bits |= _find_circles(view.data, view.slots, used, np.zeros(used + 1, np.int32), item_fault)
        item_bits |= _find_lost(view.data, view.slots, used, np.zeros(used + 1, np.int32), item_fault)
    findings = [*view.findings, *_header_findings(view, used, written, slots_used)]
    slots_found, items_found = (
        from_bits(slot_fault, slot_bits, SLOT_FAULTS, 0),
        from_bits(item_fault, item_bits, ITEM_FAULTS, 0),
    )
    findings += [dataclasses.replace(finding, expected=int(newest[finding.at])) for finding in slots_found]
    findings += [
        dataclasses.replace(finding, expected=_expected_link(view, finding.at)) if finding.code in LINK_FAULTS else finding
        for finding in items_found
    ]
    return IndexCheck(used, slots_used, item_fault, slot_fault, findings)


def _expected_link(view: IndexView, item: int) -> int | None:
    """Return the newest item before ``item`` in its slot, 0 for none; None where its hash leads to no slot."""
    key_hash = int(view.read(item, 1).key_hash[0])
    if key_hash < 0:
        return None
    stop = item
    while stop > 1:
        start = max(1, stop - ITEM_STEP)
        hashes = view.read(start, stop - start).key_hash
        same_slot = np.flatnonzero((hashes >= 0) & (hashes % view.slots == key_hash % view.slots))
        if len(same_slot):
            return start + int(same_slot[-1])
        stop = start
    return 0


def _header_findings(view: IndexView, used: int, written: int, slots_used: int) -> list[Finding]:
    header, findings = view.header, []
    zero = view.data[view.item_start : view.item_start + ITEM_SIZE]
    if zero.any():
        findings.append(Finding("index-item-zero", view.item_start + int(np.argmax(zero != 0)), 1))
    if written > used:
        findings.append(Finding("index-item-stray", used + 1, written - used))
    if not used:
        # IndexFile's constructor sets begin and end alike, to the end of the file before, where that is above 0.
        if header.begin_place != header.end_place or header.end_place < 0:
            findings.append(Finding("index-empty-offset", header.end_place, 1))
        if header.begin_time != header.end_time or header.end_time < 0:
            findings.append(Finding("index-empty-time", header.end_time, 1))
    # 0: an empty file of 4.9; as many as there is room for: full, or sealed.
    counts = {used + 1, view.items} if written else {0, 1, view.items}
    if header.index_count not in counts:
        findings.append(Finding("index-count", header.index_count, 1, used + 1))
    if header.slot_count != slots_used:
        findings.append(Finding("index-slot-count", header.slot_count, 1, slots_used))
    if used:
        first, last = view.read(1, 1), view.read(used, 1)
        if header.begin_place != int(first.phy_offset[0]):
            findings.append(Finding("index-begin-offset", header.begin_place, 1, int(first.phy_offset[0])))
        if header.end_place != int(last.phy_offset[0]):
            findings.append(Finding("index-end-offset", header.end_place, 1, int(last.phy_offset[0])))
        if not _end_time_fits(view, used, int(last.time_diff[0])):
            findings.append(Finding("index-end-time", header.end_time, 1))
    return findings


def _end_time_fits(view: IndexView, used: int, seconds: int) -> bool:
    """Return whether the last item's timeDiff comes of endTimestamp. The first item's is taken against the file before."""
    begin, end = view.header.begin_time, view.header.end_time
    if used == 1:
        return begin == end
    return seconds == (min(max(as_long(end - begin), 0) // 1000, INT32_MAX) if begin > 0 else 0)


def slot_lengths(view: IndexView, items: int, progress: ProgressListener | None = None) -> Int64s:
    """Return how many of the first ``items`` items each slot has: int64 by slot. ``progress`` is told how far that is."""
    lengths, progress = np.zeros(view.slots, np.int64), progress or NoListener()
    for first in range(1, items + 1, ITEM_STEP):
        hashes = view.read(first, min(ITEM_STEP, items + 1 - first)).key_hash
        progress.moved(ITEM_SIZE * len(hashes))
        lengths += np.bincount(hashes[hashes >= 0] % view.slots, minlength=view.slots)
    return lengths


# ------------------------------------------------------------------------------------------------------------- index neighbours
# Compare the IndexFiles of a store with each other, in the order of their names: the log goes on from one to the next.
#
# A file begins with the end of the one before it (``IndexService.getAndCreateLastIndexFile``), and as long as it has no item,
# its header is all that it has. Its endPhyOffset counts: ``IndexService.buildIndex`` passes over every record below that of the
# last file.

Fields = tuple[tuple[str, int], tuple[str, int]]


@dataclass(frozen=True)
class Neighbour:
    """One file: its header (None where it cannot be read), how many items, and the physical offsets of the first and the
    last."""

    name: str
    header: IndexHeader | None
    items: int
    first: int = -1
    last: int = -1


class LogFacts(NamedTuple):
    """Absolute offsets of the log's first byte and of its last record, and its latest store time in milliseconds.

    ``whole``: no key lacks its item and the files are in order, so each file follows on the one after which it was made.
    """

    start: int
    last: int
    latest: int
    whole: bool


def out_of_order(files: Sequence[Neighbour]) -> Iterator[tuple[Neighbour, Neighbour]]:
    """Yield neighbours of which the second begins before the first ends. The keys of one record may lie in both: that is in
    order."""
    for before, after in pairwise(file for file in files if file.items):
        if after.first < before.last:
            yield before, after


def empty_headers(files: Sequence[Neighbour], log: LogFacts) -> Iterator[tuple[Neighbour, int, str]]:
    """Yield (file, value, what is wrong) of each wrong header field of files without items."""
    before: IndexHeader | None = IndexHeader(0, 0, 0, 0, 0, 0) if log.start == 0 else None
    for file in files:
        header = file.header
        if header is not None and not file.items:
            known = before if log.whole else None
            # Where the file before has expired, or is gone, its end was that of a record all the same.
            phy_offset, time = max(log.last, log.start), log.latest + A_DAY
            offsets = (("beginPhyOffset", header.begin_place), ("endPhyOffset", header.end_place))
            times = (("beginTimestamp", header.begin_time), ("endTimestamp", header.end_time))
            compared = f"where the log's last record lies at {phy_offset}"
            yield from _check_fields(file, offsets, known.end_place if known else None, phy_offset, compared)
            compared = f"where the log's latest store time is {log.latest}"
            yield from _check_fields(file, times, known.end_time if known else None, time, compared)
        before = header


def _check_fields(
    file: Neighbour, fields: Fields, before: int | None, highest: int, compared: str
) -> Iterator[tuple[Neighbour, int, str]]:
    """Check begin and end of a file without items: both are the end of the file ``before``, or alike where that is not
    known."""
    if before is not None:
        for name, value in fields:
            if value != max(0, before):
                yield file, value, f"{name} {value} instead of {max(0, before)}"
        return
    absurd = [field for field in fields if not 0 <= field[1] <= highest]
    for name, value in absurd:
        yield file, value, f"{name} {value} {compared}"
    (begin_name, begin), (end_name, end) = fields
    if not absurd and begin != end:
        yield file, end, f"{begin_name} {begin} and {end_name} {end}, which are alike in a file without items"
