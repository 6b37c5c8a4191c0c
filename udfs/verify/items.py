"""Compare the index items of the log with those of all IndexFiles, one stretch of the log at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketmq_reindex import files
from rocketmq_reindex.storage_format.checks import items as checks_items
from rocketmq_reindex.storage_format.checks.differences import Tally
from rocketmq_reindex.storage_format.index.file import ITEM, STAGED, time_differences
from rocketmq_reindex.storage_format.index.layout import HEADER_SIZE, ITEM_SIZE, SLOT_SIZE
from rocketmq_reindex.storage_format.layouts import INT64_MIN
from rocketmq_reindex.storage_format.showing import escape
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.staging import Position, StagingFolder
from rocketmq_reindex.udfs.verify.index import CHUNK, CHUNK_ITEMS, Lost, TagsFound, listed_stretches, put_stretch

# ------------------------------------------------------------------------------------------------------------------ index items
# Where the index items of the log and of the IndexFiles are read from, for a comparison of stretches of the log.

PIECE_ITEMS: Final = 1 << 20
"""Staged items that are read at once."""


@dataclass(frozen=True)
class ItemSpan:
    """The phy_offsets [low, high) of the log, and the file ``block`` with the ``items`` staged items of them."""

    low: int
    high: int
    block: str
    items: int

    def pieces(self) -> Iterator[tuple[int, int, npt.NDArray[np.void]]]:
        """Yield the staged items (dtype ``STAGED``) a piece at a time, each behind the [low, high) that it stands for.

        No record is cut in two.
        """
        low, size = self.low, STAGED.itemsize
        if not self.items:
            yield self.low, self.high, np.empty(0, STAGED)
            return
        with files.Reader(self.block) as reader:
            held = np.empty(0, STAGED)
            for start in range(0, self.items, PIECE_ITEMS):
                piece = np.frombuffer(reader.read(start * size, min(PIECE_ITEMS, self.items - start) * size), STAGED)
                held = np.concatenate([held, piece])
                if start + PIECE_ITEMS >= self.items:
                    yield low, self.high, held
                    return
                cut = int(np.searchsorted(held["phy_offset"], held["phy_offset"][-1]))
                if cut:
                    high = int(held["phy_offset"][cut])
                    yield low, high, held[:cut]
                    low, held = high, held[cut:]


@dataclass(frozen=True)
class CheckedIndexFile:
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

    def __init__(self, tables: list[CheckedIndexFile], span: ItemSpan) -> None:
        self._near: list[tuple[int, CheckedIndexFile, npt.NDArray[np.void]]] = []
        for number, table in enumerate(tables):
            if table.used and table.low < span.high and table.high >= span.low:
                self._near.append((number, table, np.frombuffer(files.read_bytes(table.chunks), CHUNK)))

    def between(self, low: int, high: int) -> checks_items.FileItems:
        """Return the items that point into [low, high), by file and number."""
        parts = [self._of(number, table, chunks, low, high) for number, table, chunks in self._near]
        none = [np.zeros(0, np.int64), *(np.zeros(0, np.int32) for _ in range(4))]
        columns = [np.concatenate([empty, *(part[k] for part in parts)]) for k, empty in enumerate(none)]
        return checks_items.FileItems(*columns)

    @staticmethod
    def _of(number: int, table: CheckedIndexFile, chunks: npt.NDArray[np.void], low: int, high: int) -> checks_items.FileItems:
        chunk_numbers = np.flatnonzero((chunks["low"] < high) & (chunks["high"] >= low))
        if not len(chunk_numbers):
            none = np.zeros(0, np.int32)
            return checks_items.FileItems(np.zeros(0, np.int64), none, none, none, none)
        start = HEADER_SIZE + table.slots * SLOT_SIZE
        rows, numbers = [], []
        with files.Reader(table.path) as reader:
            for run in np.split(chunk_numbers, np.flatnonzero(np.diff(chunk_numbers) != 1) + 1):
                first = 1 + int(run[0]) * CHUNK_ITEMS
                count = min((int(run[-1]) + 1) * CHUNK_ITEMS, table.used) + 1 - first
                # A broker maps a file that is too short in full: with zeros behind its end.
                at, size = start + first * ITEM_SIZE, reader.size()
                raw = reader.read(at, max(0, min(count * ITEM_SIZE, size - at))).ljust(count * ITEM_SIZE, b"\0")
                items = np.frombuffer(raw, ITEM)
                phy_offset = items["phy_offset"].astype(np.int64)
                in_span = np.flatnonzero((phy_offset >= low) & (phy_offset < high))
                rows.append(items[in_span])
                numbers.append(first + in_span)
        items = np.concatenate(rows)
        return checks_items.FileItems(
            items["phy_offset"].astype(np.int64),
            items["key_hash"].astype(np.int32),
            items["time_diff"].astype(np.int32),
            np.full(len(items), number, np.int32),
            np.concatenate(numbers).astype(np.int32),
        )


# ------------------------------------------------------------------------------------------------------------------------ items
# Compare the index items of the log, as a scan staged them, with those of all IndexFiles, one stretch of the log at a time.

Int64s = npt.NDArray[np.int64]
UNKNOWN: Final = None
NONE_BEFORE: Final = INT64_MIN - 1
"""In the place of a store time: the log begins here."""


@dataclass
class ItemsResult(handover.TaskResult):
    """What one task found in its stretches of the log."""

    tally: Tally = field(default_factory=Tally)
    first: int = -1
    """phy_offset at which the task's share of the log begins"""
    expected: int = 0
    """items that the log has of keys"""
    found: int = 0
    """items that the files have"""
    repeats: int = 0
    """items that are there twice"""
    lost: list[Lost] = field(default_factory=list)
    """stretches without their items of keys"""
    tags: TagsFound = field(default_factory=TagsFound)
    standing: Tally = field(default_factory=Tally)
    """the tag items that stand, as differences of a store that should have none"""

    @classmethod
    def of_fields(cls, fields: dict[str, Any]) -> ItemsResult:
        fields["lost"] = [Lost(**lost) for lost in fields["lost"]]
        fields["tags"] = TagsFound.of_fields(fields["tags"])
        fields["standing"] = Tally.from_json(fields["standing"])
        return cls(**fields)


@dataclass
class _Progress(ItemsResult):
    """The result of a task while it is made."""

    before: int | None = UNKNOWN
    """store time of the last item before those that are compared now"""

    def result(self) -> ItemsResult:
        """Return what the task hands to the driver, with at most LOST_MAX + 1 stretches."""
        return ItemsResult(
            self.tally,
            self.first,
            self.expected,
            self.found,
            self.repeats,
            listed_stretches(self.lost),
            self.tags,
            self.standing,
        )


@dataclass(frozen=True)
class CompareItems:
    """Compares the items of a task's share of the spans with those of all files; leaves ``ItemsResult``.

    ``plan`` is a plan of two lists: ``ItemSpan`` by offset, which ``tasks`` tasks share, and ``CheckedIndexFile`` by name.
    """

    staging: StagingFolder
    plan: str
    tasks: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        planned_spans, planned_files = handover.read_plan(self.plan)
        spans = [ItemSpan(*fields) for fields in planned_spans]
        tables = [CheckedIndexFile(*fields) for fields in planned_files]
        for task in handover.numbers(batches):
            share = handover.share(spans, task, self.tasks)
            position, items_done = Position(self.staging, f"items-{task}", sum(span.items for span in share)), 0
            progress = _Progress(first=share[0].low if share else -1, before=UNKNOWN if task else NONE_BEFORE)
            for span in share:
                reader = ItemReader(tables, span)
                for low, high, items in span.pieces():
                    _compare(tables, items, reader.between(low, high), progress)
                    items_done += len(items)
                    position.moved(items_done)
            position.ended(items_done)
            yield handover.batch([progress.result()])


def _compare(
    tables: list[CheckedIndexFile], staged: npt.NDArray[np.void], in_files: checks_items.FileItems, progress: _Progress
) -> None:
    whole, tag = checks_items.unmarked(
        staged["phy_offset"].astype(np.int64), staged["time"].astype(np.int64), staged["key_hash"].astype(np.int32)
    )
    compared = checks_items.wanted_items(whole, tag, in_files)
    expected = whole.rows(compared.rows)
    matches = checks_items.match_items(expected, in_files)
    if tag.any():
        progress.tags.add(TagsFound.of_states(checks_items.tag_states(whole, tag, compared, compared.rows[matches.missing])))
        _standing(tables, in_files, compared, matches, progress)
    progress.expected += len(tag) - int(tag.sum())
    progress.found += len(in_files.phy_offset)
    progress.repeats += len(matches.repeats)
    for kind, rows in (("index-item-extra", matches.extra), ("index-item-hash", matches.hashes)):
        for table, rows_of_file in _by_file(tables, in_files, rows):
            first = rows_of_file[0]
            text = f"item {in_files.item[first]}: hash {in_files.key_hash[first]}"
            if kind == "index-item-hash":
                text += f" instead of {_lacking(expected, in_files, int(in_files.phy_offset[first]))}"
            text += f" for phyOffset {in_files.phy_offset[first]}"
            progress.tally.add(kind, len(rows_of_file), f"index/{escape(table.name)}", int(in_files.item[first]), text)
    _missing(whole.rows(~tag), _among_keys(tag, compared, matches.missing), progress)
    _times(tables, expected, in_files, matches, progress)
    if len(expected.time):
        progress.before = int(expected.time[-1])


def _lacking(expected: checks_items.Expected, in_files: checks_items.FileItems, phy_offset: int) -> int:
    """Return the first hash of the record at ``phy_offset`` that no item has."""
    lacks = Counter(expected.key_hash[expected.phy_offset == phy_offset].tolist())
    lacks.subtract(in_files.key_hash[in_files.phy_offset == phy_offset].tolist())
    return next(int(key_hash) for key_hash, count in lacks.items() if count > 0)


def _by_file(
    tables: list[CheckedIndexFile], in_files: checks_items.FileItems, rows: Int64s
) -> Iterator[tuple[CheckedIndexFile, Int64s]]:
    for number in np.unique(in_files.file[rows]).tolist():
        yield tables[number], rows[in_files.file[rows] == number]


def _among_keys(tag: checks_items.Mask, compared: checks_items.ComparedItems, missing: Int64s) -> Int64s:
    """Return the rows of ``missing`` that are keys, numbered among the keys of the log."""
    rows = compared.rows[missing[~compared.tag[missing]]]
    numbers: Int64s = rows - np.cumsum(tag)[rows]
    return numbers


def _standing(
    tables: list[CheckedIndexFile],
    in_files: checks_items.FileItems,
    compared: checks_items.ComparedItems,
    matches: checks_items.Matches,
    progress: _Progress,
) -> None:
    log_rows, file_rows = matches.pairs
    for table, items in _by_file(tables, in_files, file_rows[compared.stands[log_rows]]):
        first = items[0]
        text = f"item {in_files.item[first]}: of the TAGS of the record at phyOffset {in_files.phy_offset[first]}"
        progress.standing.add("index-tag-extra", len(items), f"index/{escape(table.name)}", int(in_files.item[first]), text)


def _missing(expected: checks_items.Expected, rows: Int64s, progress: _Progress) -> None:
    """Note the keys without an item; ``expected`` are the items of keys alone."""
    if not len(rows):
        if len(expected.phy_offset) and progress.lost:
            progress.lost[-1].closes = False
        return
    progress.tally.add("index-item-missing", len(rows), "index", int(expected.phy_offset[rows[0]]), "")
    for part in np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1):
        phy_offset, time = expected.phy_offset[part], expected.time[part]
        stretch = Lost(
            int(phy_offset[0]), int(phy_offset[-1]), int(time.min()), int(time.max()), len(part), len(np.unique(phy_offset)),
            bool(part[0] == 0), bool(part[-1] == len(expected.phy_offset) - 1),
        )  # fmt: skip
        put_stretch(progress.lost, stretch)


def _ends_before(table: CheckedIndexFile, time: int | None) -> list[int | None]:
    """Return the endTimestamps that may have counted for a file's first item, in milliseconds.

    That of the file before it; or, where that file is gone or has another name now, the ``time`` of the item before in the log.
    """
    before = UNKNOWN if table.inherited < 0 else table.inherited
    return [before] if time == NONE_BEFORE else [before, time]


def _times(
    tables: list[CheckedIndexFile],
    expected: checks_items.Expected,
    in_files: checks_items.FileItems,
    matches: checks_items.Matches,
    progress: _Progress,
) -> None:
    """Compare the timeDiff of each item, and the header's times, which are those of its first and last item."""
    log_rows, file_rows = matches.pairs
    file = in_files.file[file_rows]
    for number in np.unique(file).tolist():
        table, chosen = tables[number], file == number
        shown = f"index/{escape(table.name)}"
        item, time = in_files.item[file_rows[chosen]], expected.time[log_rows[chosen]]
        seconds = in_files.time_diff[file_rows[chosen]]
        time_diffs = time_differences(time, table.begin_time)
        first = np.flatnonzero(item == 1)
        if len(first):
            row = int(log_rows[chosen][first[0]])
            ends = _ends_before(table, int(expected.time[row - 1]) if row else progress.before)
            stored = int(seconds[first[0]])
            fitting = [max(stored, 0) if end is UNKNOWN else int(time_differences(time[first[:1]], end)[0]) for end in ends]
            time_diffs[first[0]] = stored if stored in fitting else fitting[0]
            if int(time[first[0]]) != table.begin_time:
                text = f"beginTimestamp {table.begin_time} instead of {time[first[0]]}"
                progress.tally.add("index-header", 1, shown, table.begin_time, text)
        last = np.flatnonzero(item == table.used)
        if len(last) and int(time[last[0]]) != table.end_time:
            text = f"endTimestamp {table.end_time} instead of {time[last[0]]}"
            progress.tally.add("index-header", 1, shown, table.end_time, text)
        wrong = np.flatnonzero(seconds != time_diffs)
        if len(wrong):
            k = int(wrong[0])
            text = f"item {item[k]}: timeDiff {seconds[k]} instead of {time_diffs[k]}"
            progress.tally.add("index-item-time", len(wrong), shown, int(item[k]), text)
