"""Compare the index items of the log with those of all IndexFiles, one stretch of the log at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketmq_reindex.storage_format.checks import items as checks_items
from rocketmq_reindex.storage_format.checks.differences import Tally
from rocketmq_reindex.storage_format.index.file import ITEM, STAGED, time_differences
from rocketmq_reindex.storage_format.index.header import HEADER_SIZE, ITEM_SIZE, SLOT_SIZE
from rocketmq_reindex.storage_format.layouts import INT64_MIN
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.udfs import files, handover
from rocketmq_reindex.udfs.handover import Result
from rocketmq_reindex.udfs.staging import Position, StagingFolder
from rocketmq_reindex.udfs.verify.index import CHUNK, CHUNK_ITEMS
from rocketmq_reindex.udfs.verify.tags import Lost, TagsFound, listed

# ------------------------------------------------------------------------------------------------------------------ index_items
# Where the index items of the log and of the IndexFiles are read from, for a comparison of stretches of the log.

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

    def between(self, low: int, high: int) -> checks_items.Found:
        """The items that point into [low, high), by file and number."""
        parts = [self._of(number, table, chunks, low, high) for number, table, chunks in self._near]
        none = [np.zeros(0, np.int64), *(np.zeros(0, np.int32) for _ in range(4))]
        columns = [np.concatenate([empty, *(part[k] for part in parts)]) for k, empty in enumerate(none)]
        return checks_items.Found(*columns)

    @staticmethod
    def _of(number: int, table: IndexItems, chunks: npt.NDArray[np.void], low: int, high: int) -> checks_items.Found:
        wanted = np.flatnonzero((chunks["low"] < high) & (chunks["high"] >= low))
        if not len(wanted):
            none = np.zeros(0, np.int32)
            return checks_items.Found(np.zeros(0, np.int64), none, none, none, none)
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
        return checks_items.Found(
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
class ItemsResult(Result):
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
        """What the task hands to the driver, with at most LOST_MAX + 1 stretches."""
        return ItemsResult(
            self.tally, self.first, self.expected, self.found, self.repeats, listed(self.lost), self.tags, self.standing
        )


@dataclass(frozen=True)
class CompareItems:
    """Compares the items of a task's share of the spans with those of all files; leaves ``ItemsResult``.

    ``plan`` is a plan of two lists: ``Span`` by offset, which ``tasks`` tasks share, and ``IndexItems`` by name.
    """

    staging: StagingFolder
    plan: str
    tasks: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        planned_spans, planned_files = handover.read_plan(self.plan)
        spans = [Span(*fields) for fields in planned_spans]
        tables = [IndexItems(*fields) for fields in planned_files]
        for task in handover.numbers(batches):
            mine = handover.share(spans, task, self.tasks)
            position, done = Position(self.staging, f"items-{task}", sum(span.items for span in mine)), 0
            progress = _Progress(first=mine[0].low if mine else -1, before=UNKNOWN if task else NONE_BEFORE)
            for span in mine:
                reader = ItemReader(tables, span)
                for low, high, items in span.pieces():
                    _compare(tables, items, reader.between(low, high), progress)
                    done += len(items)
                    position.moved(done)
            position.ended(done)
            yield handover.batch([progress.result()])


def _compare(tables: list[IndexItems], staged: npt.NDArray[np.void], found: checks_items.Found, progress: _Progress) -> None:
    whole, tag = checks_items.unmarked(
        staged["phy_offset"].astype(np.int64), staged["time"].astype(np.int64), staged["key_hash"].astype(np.int32)
    )
    wanted = checks_items.wanted_items(whole, tag, found)
    expected = whole.rows(wanted.rows)
    matches = checks_items.match_items(expected, found)
    if tag.any():
        progress.tags.add(TagsFound.of_states(checks_items.tag_states(whole, tag, wanted, wanted.rows[matches.missing])))
        _standing(tables, found, wanted, matches, progress)
    progress.expected += len(tag) - int(tag.sum())
    progress.found += len(found.phy_offset)
    progress.repeats += len(matches.repeats)
    for kind, rows in (("index-item-extra", matches.extra), ("index-item-hash", matches.hashes)):
        for table, mine in _by_file(tables, found, rows):
            first = mine[0]
            text = f"item {found.item[first]}: hash {found.key_hash[first]}"
            if kind == "index-item-hash":
                text += f" instead of {_lacking(expected, found, int(found.phy_offset[first]))}"
            text += f" for phyOffset {found.phy_offset[first]}"
            progress.tally.add(kind, len(mine), f"index/{escape(table.name)}", int(found.item[first]), text)
    _missing(whole.rows(~tag), _among_keys(tag, wanted, matches.missing), progress)
    _times(tables, expected, found, matches, progress)
    if len(expected.time):
        progress.before = int(expected.time[-1])


def _lacking(expected: checks_items.Expected, found: checks_items.Found, phy_offset: int) -> int:
    """The first hash of the record at ``phy_offset`` that no item has."""
    lacks = Counter(expected.key_hash[expected.phy_offset == phy_offset].tolist())
    lacks.subtract(found.key_hash[found.phy_offset == phy_offset].tolist())
    return next(int(key_hash) for key_hash, count in lacks.items() if count > 0)


def _by_file(tables: list[IndexItems], found: checks_items.Found, rows: Int64s) -> Iterator[tuple[IndexItems, Int64s]]:
    for number in np.unique(found.file[rows]).tolist():
        yield tables[number], rows[found.file[rows] == number]


def _among_keys(tag: checks_items.Mask, wanted: checks_items.Wanted, missing: Int64s) -> Int64s:
    """The rows of ``missing`` that are keys, numbered among the keys of the log."""
    rows = wanted.rows[missing[~wanted.tag[missing]]]
    numbers: Int64s = rows - np.cumsum(tag)[rows]
    return numbers


def _standing(
    tables: list[IndexItems],
    found: checks_items.Found,
    wanted: checks_items.Wanted,
    matches: checks_items.Matches,
    progress: _Progress,
) -> None:
    mine, theirs = matches.pairs
    for table, items in _by_file(tables, found, theirs[wanted.stands[mine]]):
        first = items[0]
        text = f"item {found.item[first]}: of the TAGS of the record at phyOffset {found.phy_offset[first]}"
        progress.standing.add("index-tag-extra", len(items), f"index/{escape(table.name)}", int(found.item[first]), text)


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
        if stretch.opens and progress.lost and progress.lost[-1].closes:
            progress.lost[-1].join(stretch)
        else:
            progress.lost.append(stretch)


def _ends_before(table: IndexItems, time: int | None) -> list[int | None]:
    """The endTimestamps that may have counted for a file's first item, in milliseconds.

    That of the file before it; or, where that file is gone or has another name now, the ``time`` of the item before in the log.
    """
    before = UNKNOWN if table.inherited < 0 else table.inherited
    return [before] if time == NONE_BEFORE else [before, time]


def _times(
    tables: list[IndexItems],
    expected: checks_items.Expected,
    found: checks_items.Found,
    matches: checks_items.Matches,
    progress: _Progress,
) -> None:
    """Compare the timeDiff of each item, and the header's times, which are those of its first and last item."""
    mine, theirs = matches.pairs
    file = found.file[theirs]
    for number in np.unique(file).tolist():
        table, chosen = tables[number], file == number
        shown = f"index/{escape(table.name)}"
        item, time = found.item[theirs[chosen]], expected.time[mine[chosen]]
        seconds = found.time_diff[theirs[chosen]]
        wanted = time_differences(time, table.begin_time)
        first = np.flatnonzero(item == 1)
        if len(first):
            row = int(mine[chosen][first[0]])
            ends = _ends_before(table, int(expected.time[row - 1]) if row else progress.before)
            stored = int(seconds[first[0]])
            fitting = [max(stored, 0) if end is UNKNOWN else int(time_differences(time[first[:1]], end)[0]) for end in ends]
            wanted[first[0]] = stored if stored in fitting else fitting[0]
            if int(time[first[0]]) != table.begin_time:
                text = f"beginTimestamp {table.begin_time} instead of {time[first[0]]}"
                progress.tally.add("index-header", 1, shown, table.begin_time, text)
        last = np.flatnonzero(item == table.used)
        if len(last) and int(time[last[0]]) != table.end_time:
            text = f"endTimestamp {table.end_time} instead of {time[last[0]]}"
            progress.tally.add("index-header", 1, shown, table.end_time, text)
        wrong = np.flatnonzero(seconds != wanted)
        if len(wrong):
            k = int(wrong[0])
            text = f"item {item[k]}: timeDiff {seconds[k]} instead of {wanted[k]}"
            progress.tally.add("index-item-time", len(wrong), shown, int(item[k]), text)
