"""Compare two stores with each other: derived files of the same name (``udfs.repair.differing`` compares their logs)."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketmq_reindex import files
from rocketmq_reindex.storage_format.checks.differences import Tally
from rocketmq_reindex.storage_format.checks.queues import named_fields
from rocketmq_reindex.storage_format.index.file import ITEM
from rocketmq_reindex.storage_format.index.layout import (
    HEADER_LAYOUT,
    HEADER_SIZE,
    ITEM_LAYOUT,
    ITEM_SIZE,
    SLOT_SIZE,
    IndexHeader,
)
from rocketmq_reindex.storage_format.layouts import BATCH_QUEUES, first_byte
from rocketmq_reindex.storage_format.queue.consume_queue import BATCH_UNIT, UNIT
from rocketmq_reindex.storage_format.queue.units import PRE_BLANK_SIZE
from rocketmq_reindex.storage_format.showing import counted, escape
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.staging import Position, StagingFolder

CHUNK: Final = 8 << 20
"""Bytes that are compared at once."""


@dataclass
class AgainstResult(handover.TaskResult):
    """What one task found in two stores' queues or IndexFiles."""

    tally: Tally = field(default_factory=Tally)
    files: int = 0
    units: int = 0
    """units that were compared"""


@dataclass(frozen=True)
class CompareQueues:
    """Compares the ConsumeQueue files of a task's share of the topics; leaves ``AgainstResult``.

    ``plan`` is the plan of the names of topics below ``folder`` of the stores ``a`` and ``b``, which ``tasks`` tasks share.
    Units of records before ``log_start``, the first phy_offset that both logs have, do not count.
    """

    staging: StagingFolder
    a: str
    b: str
    folder: str
    plan: str
    tasks: int
    log_start: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        names = handover.read_plan(self.plan)
        for task in handover.numbers(batches):
            result, share = AgainstResult(), names[task :: self.tasks]
            position = Position(self.staging, f"{self.folder}-{task}", len(share))
            for number, name in enumerate(share):
                position.moved(number)
                paths = [_below(files.join(store, self.folder, name)) for store in (self.a, self.b)]
                for path in sorted(paths[0] | paths[1]):
                    self._pair(f"{self.folder}/{name}/{path}", result)
            position.ended(len(share))
            yield handover.batch([result])

    def _pair(self, path: str, result: AgainstResult) -> None:
        entry_a, entry_b = files.entry_of(files.join(self.a, path)), files.entry_of(files.join(self.b, path))
        result.files += 1
        tally, shown, unit = result.tally, escape(path), BATCH_UNIT if self.folder == BATCH_QUEUES else UNIT
        if files.ABSENT in (entry_a.kind, entry_b.kind):
            present = entry_b if entry_a.kind == files.ABSENT else entry_a
            units, store = _units(present, unit), "B" if present is entry_b else "A"
            lacking = np.flatnonzero(~self._gone(units))
            if len(lacking):
                tally.add("against-queue-file", 1, shown, int(lacking[0]), f"only in {store}, {counted(len(lacking), 'unit')}")
            return
        a, b = _units(entry_a, unit), _units(entry_b, unit)
        if len(a) != len(b):
            tally.add("against-queue-file", 1, shown, len(a), f"{entry_a.size} bytes in A, {entry_b.size} in B")
        shorter = min(len(a), len(b))
        a, b = a[:shorter], b[:shorter]
        there = ~(self._gone(a) & self._gone(b))
        result.units += int(np.count_nonzero(there))
        differ = np.flatnonzero((a != b) & there)
        if len(differ):
            k = int(differ[0])
            first = (first_byte(path.rpartition("/")[2]) or 0) // unit.itemsize + k
            one_text, other_text = (named_fields(units[k].item()) for units in (a, b))
            text = f"queue offset {first}: {one_text} in A; {other_text} in B"
            tally.add("against-queue-unit", len(differ), shown, first, text)

    def _gone(self, units: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
        """Return for each slot whether it has no unit of a record that both logs can have: zeros, pre-blank, expired (bool)."""
        phy_offset, size = units["phy_offset"].astype(np.int64), units["size"].astype(np.int64)
        blank = (phy_offset == 0) & ((size == 0) | (size == PRE_BLANK_SIZE)) & (units["tags_code"] == 0)
        gone: npt.NDArray[np.bool_] = blank | ((phy_offset >= 0) & (size > 0) & (phy_offset < self.log_start))
        return gone


def _below(topic: str) -> set[str]:
    """Return QUEUE/FILE of all files of a topic."""
    if files.entry_of(topic).kind != files.FOLDER:
        return set()
    queues = [entry for entry in files.listing(topic) if entry.kind == files.FOLDER]
    return {f"{queue.name}/{file.name}" for queue in queues for file in files.listing(queue.path) if file.kind == files.FILE}


def _units(entry: files.Entry, unit: np.dtype[np.void]) -> npt.NDArray[np.void]:
    with files.Reader(entry.path) as reader:
        data = reader.whole()
        return data[: len(data) - len(data) % unit.itemsize].view(unit)


@dataclass(frozen=True)
class CompareIndex:
    """Compares the pairs of IndexFiles whose numbers it is given; leaves ``AgainstResult``.

    ``plan`` is the plan of pairs: (path below index/ of store ``a``, path below that of ``b``). ``slots`` is the number of
    slots of their files, 0 where it is unknown.
    """

    staging: StagingFolder
    a: str
    b: str
    plan: str
    slots: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pairs = handover.read_plan(self.plan)
        for number in handover.numbers(batches):
            result = AgainstResult()
            path_a, path_b = pairs[number]
            self._pair(path_a, path_b, result.tally)
            Position(self.staging, f"index-{number}", 1).ended(1)
            yield handover.batch([result])

    def _pair(self, path_a: str, path_b: str, tally: Tally) -> None:
        shown = f"index/{escape(path_a)}" + ("" if path_a == path_b else f" and {escape(path_b)}")
        with files.Reader(files.join(self.a, "index", path_a)) as a, files.Reader(files.join(self.b, "index", path_b)) as b:
            sizes = (a.size(), b.size())
            if min(sizes) < HEADER_SIZE or sizes[0] != sizes[1]:
                tally.add("against-index-item", 1, shown, sizes[0], f"{sizes[0]} bytes in A, {sizes[1]} in B")
                return
            difference = self._differing(a, b, sizes[0])
        if difference:
            at, text = difference
            tally.add("against-index-item", 1, shown, at, text)

    def _differing(self, a: files.Reader, b: files.Reader, size: int) -> tuple[int, str] | None:
        """Return where two files of ``size`` bytes differ, and how: in an item, a slot or a field of the header."""
        heads = [IndexHeader.from_bytes(reader.read(0, HEADER_SIZE)) for reader in (a, b)]
        values = [list(vars(head).values()) for head in heads]
        items_at = HEADER_SIZE + SLOT_SIZE * self.slots
        for low, high in ((items_at, size), (HEADER_SIZE, items_at)):
            at = _first_difference(a, b, low, high)
            if at < 0:
                continue
            if low == HEADER_SIZE:
                return at, f"slot {(at - HEADER_SIZE) // SLOT_SIZE}: {_slot(a, at)} in A, {_slot(b, at)} in B"
            number = (at - items_at) // ITEM_SIZE
            items = [np.frombuffer(reader.read(items_at + number * ITEM_SIZE, ITEM_SIZE), ITEM)[0].item() for reader in (a, b)]
            texts = [named_fields(item, ITEM_LAYOUT.names) for item in items]
            return number, f"item {number}: {texts[0]} in A; {texts[1]} in B"
        for name, value_a, value_b in zip(HEADER_LAYOUT.names, *values, strict=True):
            if value_a != value_b:
                return 0, f"{name}: {value_a} in A, {value_b} in B"
        return None


def _slot(reader: files.Reader, at: int) -> int:
    """Return the slot that has the byte ``at``."""
    at -= (at - HEADER_SIZE) % SLOT_SIZE
    return int.from_bytes(reader.read(at, SLOT_SIZE), "big", signed=True)


def _first_difference(a: files.Reader, b: files.Reader, low: int, high: int) -> int:
    """Return the first byte in [low, high) that differs, -1 for none; holes of both files are not read."""
    at = low
    while (at := min(max(low, a.next_data(at)), max(low, b.next_data(at)))) < high:
        size = min(CHUNK, high - at)
        bytes_a, bytes_b = (np.frombuffer(reader.read(at, size), np.uint8) for reader in (a, b))
        differ = bytes_a != bytes_b
        if differ.any():
            return at + int(np.argmax(differ))
        at += size
    return -1


def topics_of(*folders: str) -> list[str]:
    """Return the names in any of the folders, sorted as bytes; a folder may be missing."""
    names = [entry.name for folder in folders if files.entry_of(folder).kind == files.FOLDER for entry in files.listing(folder)]
    return sorted(set(names), key=os.fsencode)
