"""ConsumeQueue files, plain and batch ones, made from units and read as columns. The layout: ``queue.units``."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.errors import Finding, UnreadableError, from_bits
from rocketmq_reindex.storage_format.kernels.jit import jit
from rocketmq_reindex.storage_format.kernels.raw_bytes import int32_at, int64_at, swapped32
from rocketmq_reindex.storage_format.layouts import INT64_MAX
from rocketmq_reindex.storage_format.queue.cells import BATCH_RUN_COLUMNS
from rocketmq_reindex.storage_format.queue.units import BATCH_LAYOUT, NOT_COMPACTED, PRE_BLANK_SIZE, UNIT_LAYOUT, UNIT_SIZE
from rocketmq_reindex.storage_format.record.state import BatchArrays
from rocketmq_reindex.storage_format.showing import counted

# ---------------------------------------------------------------------------------------------------------------- consume queue
# Make a ConsumeQueue file (RocketMQ ``ConsumeQueue``, 4.9 to 5.5) from units. The layout: ``queue.units``.

Int64s = npt.NDArray[np.int64]

UNIT: Final = UNIT_LAYOUT.dtype


class UnitGapError(ValueError):
    """The units given for a file are not consecutive. This is an internal error: such a file is never written."""


@jit
def _put_units(
    start: int, position: Int64s, phy_offset: Int64s, size: Int64s, tags_code: Int64s, out: npt.NDArray[np.uint32]
) -> int:
    """Put units into ``out``, the file's units as words. Return how many places they took that were free."""
    taken = 0
    for i in range(len(position)):
        k = position[i] - start
        if out[k, 2] == 0 and size[i] > 0:
            taken += 1
        out[k, 0] = swapped32(phy_offset[i] >> 32)
        out[k, 1] = swapped32(phy_offset[i])
        out[k, 2] = swapped32(size[i])
        out[k, 3] = swapped32(tags_code[i] >> 32)
        out[k, 4] = swapped32(tags_code[i])
    return taken


def file_units(units_per_file: int, file_number: int, parts: Sequence[Int64s]) -> tuple[int, int, npt.NDArray[np.void]]:
    """Return the units of one file: (first logical byte of the file, bytes used, units of dtype UNIT from the file's start on).

    ``parts``: each int64 (4, n) with position in the queue, physical offset, size, tagsCode; all of this file, together
    consecutive, in any order. Pre-blank stands before the first (``ConsumeQueue.fillPreBlank`` of 4.9 to 5.5). Raises
    UnitGapError.
    """
    start = file_number * units_per_file
    low = min(int(rows[0].min()) for rows in parts) - start
    used = max(int(rows[0].max()) for rows in parts) - start + 1
    count = sum(rows.shape[1] for rows in parts)
    image = np.zeros(used if low >= 0 and used - low == count else 0, dtype=UNIT)
    taken = 0
    if len(image):
        image["size"][:low] = PRE_BLANK_SIZE
        words = image.view(np.uint32).reshape(-1, UNIT_SIZE // 4)
        for rows in parts:
            position, phy_offset, size, tags_code = (np.ascontiguousarray(column) for column in rows)
            taken += _put_units(start, position, phy_offset, size, tags_code, words)
    if used > units_per_file or taken != count:
        raise UnitGapError(f"file {file_number}: {counted(count, 'unit')} for positions {low}..{used}")
    return start * UNIT_SIZE, used * UNIT_SIZE, image


# ------------------------------------------------------------------------------------------------------------------ batch queue
# Make batch ConsumeQueue files (RocketMQ ``BatchConsumeQueue``, 5.x) from units. The layout: ``queue.units``.

BATCH_UNIT: Final = BATCH_LAYOUT.dtype
_COLUMNS: Final = ("base", "phy_offset", "size", "tags_code", "store_time", "count")
"""of a unit, in the order of ``cells.BATCH_COLUMNS``"""


def by_queue(batches: BatchArrays, queues: int) -> tuple[Int64s, Int64s]:
    """Return the batch units of a block, grouped by queue: (int64 (BATCH_COLUMNS, n), bounds).

    Queue k has the rows ``bounds[k]:bounds[k + 1]``.
    """
    order = np.argsort(batches.queue, kind="stable")
    columns = np.stack(
        [
            column[order].astype(np.int64)
            for column in (
                batches.base,
                batches.phy_offset,
                batches.size,
                batches.tags_code,
                batches.store_time,
                batches.messages,
            )
        ]
    )
    bounds = np.zeros(queues + 1, np.int64)
    np.cumsum(np.bincount(batches.queue, minlength=queues), out=bounds[1:])
    return columns, bounds


def batch_runs(columns: Int64s) -> Int64s:
    """Return the runs of one queue, int64 (BATCH_RUN_COLUMNS, n): in a run each unit's offsets begin where those of the one
    before end.

    ``columns``: int64 (BATCH_COLUMNS, n). Units without a message are in no run. A run of two is given as two runs of one, as
    in ``QueueBlock.runs``.
    """
    columns = columns[:, columns[5] > 0]
    base, phy_offset, size, count = columns[0], columns[1], columns[2], columns[5]
    n = len(base)
    if n == 0:
        return np.zeros((BATCH_RUN_COLUMNS, 0), np.int64)
    first = np.ones(n, dtype=bool)
    first[1:] = base[1:] != base[:-1] + count[:-1]
    starts = np.flatnonzero(first)
    pairs = starts[np.diff(np.append(starts, n)) == 2]
    first[pairs + 1] = True
    starts = np.flatnonzero(first)
    ends = np.append(starts[1:], n)
    messages = base[ends - 1] + count[ends - 1] - base[starts]
    return np.stack([base[starts], messages, phy_offset[starts], phy_offset[ends - 1] + size[ends - 1], ends - starts])


def batch_units(columns: Int64s) -> npt.NDArray[np.void]:
    """Return units as they stand in the file, of dtype BATCH_UNIT. ``columns``: int64 (BATCH_COLUMNS, n)."""
    image = np.zeros(columns.shape[1], dtype=BATCH_UNIT)
    for name, column in zip(_COLUMNS, columns, strict=True):
        image[name] = column
    image["compacted"] = NOT_COMPACTED
    return image


# ----------------------------------------------------------------------------------------------------------------------- reader
# Read a ConsumeQueue file (``ConsumeQueue`` of 4.9 to 5.5): its slots as columns, what each is, and what is wrong with it.
#
# A sound file is pre-blank (only at the start of a queue's first file), then units, then zeros. Physical offsets never fall. A
# unit that repeats the one before it exactly is a filled offset (``--queue-order logical``) and no fault. The layout:
# ``queue.units``.

Bytes = npt.NDArray[np.uint8]
Int32s = npt.NDArray[np.int32]

EMPTY, HAS_UNIT, PRE_BLANK, BAD = range(4)
"""what a slot is: all zeros, a unit, (0, 2147483647, 0), anything else"""

_AT_SIZE: Final = UNIT_LAYOUT.at["size"]
_AT_TAGS_CODE: Final = UNIT_LAYOUT.at["tags_code"]
FAULTS: Final = ("queue-unit", "queue-hole", "queue-pre-blank", "queue-backwards", "queue-overlap")
_UNIT, _HOLE, _PRE_BLANK, _BACKWARDS, _OVERLAP = (1 << k for k in range(len(FAULTS)))
# The numbers that ``_check`` leaves in ``counts``.
_USED, _LEAD, _PRESENT, _UNITS, _REPEATS, _SEEN, _FIRST, _LAST = range(8)


@dataclass(frozen=True)
class QueueFile:
    """One file as columns with a row for each slot.

    ``phy_offset`` (physical offset) and ``tags_code`` are int64, ``size`` is int32, ``kind`` and ``fault`` are uint8; ``fault``
    is not 0 where something is wrong with the slot.
    """

    start: int
    """first logical byte, the file's name"""
    length: int
    """bytes of the file"""
    phy_offset: Int64s
    size: Int32s
    tags_code: Int64s
    kind: Bytes
    fault: Bytes
    used: int
    """slots up to the last that is not empty"""
    pre_blank: int
    """pre-blank slots at the start"""
    present: int
    """slots that a broker's recovery takes for units (``ConsumeQueue.recover``): up to the first without offset or size"""
    units: int
    repeats: int
    """units that repeat the one before them"""
    first_unit: int
    """slot of the first unit, -1 for none"""
    last_unit: int
    findings: list[Finding]

    @property
    def position(self) -> int:
        """The position of the first slot in the queue, which is its queue offset."""
        return self.start // UNIT_SIZE

    def unit(self, slot: int) -> tuple[int, int, int]:
        """Return the physical offset, size and tagsCode in a slot."""
        return int(self.phy_offset[slot]), int(self.size[slot]), int(self.tags_code[slot])

    @property
    def first_bad(self) -> int:
        """The position in the queue of the first slot with a fault, -1 for none."""
        return self.position + int(np.argmax(self.fault != 0)) if self.fault.any() else -1


@jit
def _decode(data: Bytes, phy_offset: Int64s, size: Int32s, tags_code: Int64s, kind: Bytes) -> None:
    """Read the columns of the whole slots in ``data``, and set their kinds."""
    for slot in range(len(phy_offset)):
        at = slot * UNIT_SIZE
        offset, length, tags = int64_at(data, at), int32_at(data, at + _AT_SIZE), int64_at(data, at + _AT_TAGS_CODE)
        phy_offset[slot] = offset
        size[slot] = length
        tags_code[slot] = tags
        if offset == 0 and tags == 0 and length == 0:
            kind[slot] = EMPTY
        elif offset == 0 and tags == 0 and length == PRE_BLANK_SIZE:
            kind[slot] = PRE_BLANK
        elif offset < 0 or length <= 0 or offset > INT64_MAX - length:
            kind[slot] = BAD
        else:
            kind[slot] = HAS_UNIT


@jit
def _check(phy_offset: Int64s, size: Int32s, tags_code: Int64s, kind: Bytes, fault: Bytes, counts: Int64s) -> None:
    """Set ``fault`` of each slot, and ``counts`` as the names above say."""
    used = len(kind)
    while used > 0 and kind[used - 1] == EMPTY:
        used -= 1
    all_bits, units, repeats, present, lead = 0, 0, 0, -1, 0
    first, last = -1, -1
    for slot in range(used):
        slot_kind = kind[slot]
        bits = 0
        if slot_kind == EMPTY:
            bits = _HOLE
        elif slot_kind == BAD:
            bits = _UNIT
        elif slot_kind == PRE_BLANK:
            if units or lead != slot:
                bits = _PRE_BLANK
            else:
                lead += 1
        else:
            if last < 0:
                first = slot
            elif phy_offset[slot] < phy_offset[last]:
                bits = _BACKWARDS
            elif phy_offset[slot] == phy_offset[last] and size[slot] == size[last] and tags_code[slot] == tags_code[last]:
                repeats += 1
            elif phy_offset[slot] < phy_offset[last] + size[last]:
                bits = _OVERLAP
            last = slot
            units += 1
        if present < 0 and (phy_offset[slot] < 0 or size[slot] <= 0):
            present = slot
        fault[slot] = bits
        all_bits |= bits
    counts[_USED] = used
    counts[_LEAD] = lead
    counts[_PRESENT] = used if present < 0 else present
    counts[_UNITS] = units
    counts[_REPEATS] = repeats
    counts[_SEEN] = all_bits
    counts[_FIRST] = first
    counts[_LAST] = last


def read_queue_file(data: Bytes | bytes | memoryview, start: int, file_size: int | None = None) -> QueueFile:
    """Return the units of a whole file whose name says that its first logical byte is ``start``.

    ``file_size`` is the size that the broker wants, where it is known. Raises UnreadableError for a ``start`` that no file can
    have.
    """
    raw = np.frombuffer(data, np.uint8)
    if start < 0 or start > INT64_MAX - len(raw) - UNIT_SIZE:
        raise UnreadableError(f"{start} is not the first logical byte of a ConsumeQueue file")
    rows = len(raw) // UNIT_SIZE
    phy_offset, size, tags_code = np.empty(rows, np.int64), np.empty(rows, np.int32), np.empty(rows, np.int64)
    kind, fault, counts = np.empty(rows, np.uint8), np.zeros(rows, np.uint8), np.zeros(8, np.int64)
    _decode(raw, phy_offset, size, tags_code, kind)
    _check(phy_offset, size, tags_code, kind, fault, counts)
    position = start // UNIT_SIZE
    findings = []
    if start % UNIT_SIZE or (file_size and start % file_size):
        findings.append(Finding("queue-name", position, 1))
    if len(raw) % UNIT_SIZE or len(raw) != (file_size or len(raw)):
        findings.append(Finding("queue-size", position + rows, 1))
    findings += from_bits(fault, int(counts[_SEEN]), FAULTS, position)
    used, lead, present, units, repeats, _, first, last = (int(value) for value in counts)
    return QueueFile(
        start, len(raw), phy_offset, size, tags_code, kind, fault, used, lead, present, units, repeats, first, last, findings
    )  # fmt: skip
