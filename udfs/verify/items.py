"""Compare the index items of the log, as a scan staged them, with those of all IndexFiles, one stretch of the log at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketmq_reindex.storage_format.checks.differences import Tally
from rocketmq_reindex.storage_format.checks.items import Expected, Found, Matches, match_items
from rocketmq_reindex.storage_format.index.file import time_differences
from rocketmq_reindex.storage_format.integers import INT64_MIN
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.udfs import plans, results
from rocketmq_reindex.udfs.results import Result
from rocketmq_reindex.udfs.verify.index_items import IndexItems, ItemReader, Span

LOST_MAX: Final = 1000
"""Stretches of missing items that a task lists one by one; the others are joined to one more."""
Int64s = npt.NDArray[np.int64]
UNKNOWN: Final = None
NONE_BEFORE: Final = INT64_MIN - 1
"""In the place of a store time: the log begins here."""


@dataclass
class Lost:
    """Items missing one after another."""

    first: int
    last: int
    """phy_offset of the first and of the last one"""
    time_min: int
    time_max: int
    """store times in milliseconds"""
    keys: int
    """how many items"""
    records: int
    """of how many records"""
    opens: bool = False
    """whether it begins where the compared stretch of the log begins"""
    closes: bool = False
    """whether it ends where that ends"""

    def join(self, other: Lost) -> None:
        """Add the items of ``other``, which follow."""
        self.last = other.last
        self.time_min, self.time_max = min(self.time_min, other.time_min), max(self.time_max, other.time_max)
        self.keys += other.keys
        self.records += other.records
        self.closes = other.closes


@dataclass
class ItemsResult(Result):
    """What one task found in its stretches of the log."""

    tally: Tally = field(default_factory=Tally)
    expected: int = 0
    """items that the log has"""
    found: int = 0
    """items that the files have"""
    repeats: int = 0
    """items that are there twice"""
    lost: list[Lost] = field(default_factory=list)

    @classmethod
    def of_fields(cls, fields: dict[str, Any]) -> ItemsResult:
        fields["lost"] = [Lost(**lost) for lost in fields["lost"]]
        return cls(**fields)


@dataclass
class _Progress(ItemsResult):
    """The result of a task while it is made."""

    before: int | None = UNKNOWN
    """store time of the last item before those that are compared now"""

    def result(self) -> ItemsResult:
        """What the task hands to the driver, with at most LOST_MAX + 1 stretches."""
        if len(self.lost) > LOST_MAX:
            rest = self.lost[LOST_MAX]
            for stretch in self.lost[LOST_MAX + 1 :]:
                rest.join(stretch)
            rest.opens = False
            del self.lost[LOST_MAX + 1 :]
        return ItemsResult(self.tally, self.expected, self.found, self.repeats, self.lost)


@dataclass(frozen=True)
class CompareItems:
    """Compares the items of a task's share of the spans with those of all files; leaves ``ItemsResult``.

    ``plan`` is a plan of two lists: ``Span`` by offset, which ``tasks`` tasks share, and ``IndexItems`` by name.
    """

    plan: str
    tasks: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        planned_spans, planned_files = plans.read_plan(self.plan)
        spans = [Span(*fields) for fields in planned_spans]
        tables = [IndexItems(*fields) for fields in planned_files]
        for task in plans.numbers(batches):
            progress = _Progress(before=UNKNOWN if task else NONE_BEFORE)
            for span in plans.share(spans, task, self.tasks):
                reader = ItemReader(tables, span)
                for low, high, items in span.pieces():
                    _compare(tables, items, reader.between(low, high), progress)
            yield results.batch([progress.result()])


def _compare(tables: list[IndexItems], staged: npt.NDArray[np.void], found: Found, progress: _Progress) -> None:
    expected = Expected(
        staged["phy_offset"].astype(np.int64), staged["time"].astype(np.int64), staged["key_hash"].astype(np.int32)
    )
    matches = match_items(expected, found)
    progress.expected += len(expected.phy_offset)
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
    _missing(expected, matches, progress)
    _times(tables, expected, found, matches, progress)
    if len(expected.time):
        progress.before = int(expected.time[-1])


def _lacking(expected: Expected, found: Found, phy_offset: int) -> int:
    """The first hash of the record at ``phy_offset`` that no item has."""
    lacks = Counter(expected.key_hash[expected.phy_offset == phy_offset].tolist())
    lacks.subtract(found.key_hash[found.phy_offset == phy_offset].tolist())
    return next(int(key_hash) for key_hash, count in lacks.items() if count > 0)


def _by_file(tables: list[IndexItems], found: Found, rows: Int64s) -> Iterator[tuple[IndexItems, Int64s]]:
    for number in np.unique(found.file[rows]).tolist():
        yield tables[number], rows[found.file[rows] == number]


def _missing(expected: Expected, matches: Matches, progress: _Progress) -> None:
    rows = matches.missing
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


def _times(tables: list[IndexItems], expected: Expected, found: Found, matches: Matches, progress: _Progress) -> None:
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
