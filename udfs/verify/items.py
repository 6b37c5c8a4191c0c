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
from rocketmq_reindex.storage_format.checks.tags import Mask, Wanted, tag_states, unmarked, wanted_items
from rocketmq_reindex.storage_format.index.file import time_differences
from rocketmq_reindex.storage_format.integers import INT64_MIN
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.udfs import plans, results
from rocketmq_reindex.udfs.progress import Position
from rocketmq_reindex.udfs.results import Result
from rocketmq_reindex.udfs.staging import StagingFolder
from rocketmq_reindex.udfs.verify.index_items import IndexItems, ItemReader, Span
from rocketmq_reindex.udfs.verify.lost import Lost, listed
from rocketmq_reindex.udfs.verify.tags import TagsFound

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
        planned_spans, planned_files = plans.read_plan(self.plan)
        spans = [Span(*fields) for fields in planned_spans]
        tables = [IndexItems(*fields) for fields in planned_files]
        for task in plans.numbers(batches):
            mine = plans.share(spans, task, self.tasks)
            position, done = Position(self.staging, f"items-{task}", sum(span.items for span in mine)), 0
            progress = _Progress(first=mine[0].low if mine else -1, before=UNKNOWN if task else NONE_BEFORE)
            for span in mine:
                reader = ItemReader(tables, span)
                for low, high, items in span.pieces():
                    _compare(tables, items, reader.between(low, high), progress)
                    done += len(items)
                    position.moved(done)
            position.ended(done)
            yield results.batch([progress.result()])


def _compare(tables: list[IndexItems], staged: npt.NDArray[np.void], found: Found, progress: _Progress) -> None:
    whole, tag = unmarked(
        staged["phy_offset"].astype(np.int64), staged["time"].astype(np.int64), staged["key_hash"].astype(np.int32)
    )
    wanted = wanted_items(whole, tag, found)
    expected = whole.rows(wanted.rows)
    matches = match_items(expected, found)
    if tag.any():
        progress.tags.add(TagsFound.of_states(tag_states(whole, tag, wanted, wanted.rows[matches.missing])))
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


def _lacking(expected: Expected, found: Found, phy_offset: int) -> int:
    """The first hash of the record at ``phy_offset`` that no item has."""
    lacks = Counter(expected.key_hash[expected.phy_offset == phy_offset].tolist())
    lacks.subtract(found.key_hash[found.phy_offset == phy_offset].tolist())
    return next(int(key_hash) for key_hash, count in lacks.items() if count > 0)


def _by_file(tables: list[IndexItems], found: Found, rows: Int64s) -> Iterator[tuple[IndexItems, Int64s]]:
    for number in np.unique(found.file[rows]).tolist():
        yield tables[number], rows[found.file[rows] == number]


def _among_keys(tag: Mask, wanted: Wanted, missing: Int64s) -> Int64s:
    """The rows of ``missing`` that are keys, numbered among the keys of the log."""
    rows = wanted.rows[missing[~wanted.tag[missing]]]
    numbers: Int64s = rows - np.cumsum(tag)[rows]
    return numbers


def _standing(tables: list[IndexItems], found: Found, wanted: Wanted, matches: Matches, progress: _Progress) -> None:
    mine, theirs = matches.pairs
    for table, items in _by_file(tables, found, theirs[wanted.stands[mine]]):
        first = items[0]
        text = f"item {found.item[first]}: of the TAGS of the record at phyOffset {found.phy_offset[first]}"
        progress.standing.add("index-tag-extra", len(items), f"index/{escape(table.name)}", int(found.item[first]), text)


def _missing(expected: Expected, rows: Int64s, progress: _Progress) -> None:
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
