"""Compare the index items of the log, as they were staged, with those of all IndexFiles, stretch by stretch of the log."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketmq_reindex.storage_format.checks.differences import Tally
from rocketmq_reindex.storage_format.checks.items import Expected, Found, Matches, match_items
from rocketmq_reindex.storage_format.index.file import ITEM, STAGED, time_differences
from rocketmq_reindex.storage_format.index.header import HEADER_SIZE, ITEM_SIZE, SLOT_SIZE
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.udfs import files, schemas
from rocketmq_reindex.udfs.verify.index import CHUNK, CHUNK_ITEMS

PIECE_ITEMS: Final = 1 << 20
LOST_MAX: Final = 1000
"""Stretches of missing items that a task tells one by one; the rest are one more."""
Int64s = npt.NDArray[np.int64]
UNKNOWN: Final = None
NONE_BEFORE: Final = -(2**63) - 1
"""no store time: the log begins here"""


@dataclass(frozen=True)
class Span:
    """Offsets [low, high) of the log and the items staged of them."""

    low: int
    high: int
    block: str
    items: int


@dataclass(frozen=True)
class IndexItems:
    """A checked IndexFile as the comparison sees it: ``inherited`` is the endTimestamp of the file before, -1 unknown."""

    name: str
    path: str
    slots: int
    used: int
    begin_time: int
    end_time: int
    inherited: int
    low: int
    high: int
    chunks: str


@dataclass
class Lost:
    """Items missing one after another: places, store times, keys, records; whether it begins or ends a stretch compared."""

    first: int
    last: int
    time_min: int
    time_max: int
    keys: int
    records: int
    opens: bool = False
    closes: bool = False

    def join(self, other: Lost) -> None:
        self.last = other.last
        self.time_min, self.time_max = min(self.time_min, other.time_min), max(self.time_max, other.time_max)
        self.keys += other.keys
        self.records += other.records
        self.closes = other.closes


@dataclass
class ItemsWord:
    tally: Tally = field(default_factory=Tally)
    expected: int = 0
    found: int = 0
    repeats: int = 0
    lost: list[Lost] = field(default_factory=list)
    before: int | None = UNKNOWN
    """store time of the last item before those that are compared now"""

    def to_json(self) -> str:
        lost = [list(vars(stretch).values()) for stretch in self.lost]
        counts = {"expected": self.expected, "found": self.found, "repeats": self.repeats}
        return json.dumps({"tally": self.tally.to_json(), "lost": lost, **counts})


@dataclass(frozen=True)
class CompareItems:
    """``plan`` is the file of spans and IndexItems (in the order of names); ``tasks`` share the spans."""

    plan: str
    tasks: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        plan = json.loads(files.read_bytes(self.plan))
        spans = [Span(*fields) for fields in plan["spans"]]
        tables = [IndexItems(*fields) for fields in plan["files"]]
        for batch in batches:
            for task in batch.column(0).to_pylist():
                word = ItemsWord(before=UNKNOWN if task else NONE_BEFORE)
                low, high = task * len(spans) // self.tasks, (task + 1) * len(spans) // self.tasks
                for span in spans[low:high]:
                    reader = _Items(tables, span)
                    for piece_low, piece_high, items in _pieces(span):
                        _compare(tables, items, reader.between(piece_low, piece_high), word)
                if len(word.lost) > LOST_MAX:
                    rest = word.lost[LOST_MAX]
                    for stretch in word.lost[LOST_MAX + 1 :]:
                        rest.join(stretch)
                    rest.opens = False
                    del word.lost[LOST_MAX + 1 :]
                yield schemas.result([word.to_json()])


def _pieces(span: Span) -> Iterator[tuple[int, int, npt.NDArray[np.void]]]:
    """The staged items of a span a piece at a time, each with the offsets it stands for; no record is cut in two."""
    low, size = span.low, STAGED.itemsize
    if not span.items:
        yield span.low, span.high, np.empty(0, STAGED)
        return
    with files.Reader(span.block) as reader:
        held = np.empty(0, STAGED)
        for start in range(0, span.items, PIECE_ITEMS):
            more = np.frombuffer(reader.read(start * size, min(PIECE_ITEMS, span.items - start) * size), STAGED)
            held = np.concatenate([held, more])
            if start + PIECE_ITEMS >= span.items:
                yield low, span.high, held
                return
            cut = int(np.searchsorted(held["phy_offset"], held["phy_offset"][-1]))
            if cut:
                high = int(held["phy_offset"][cut])
                yield low, high, held[:cut]
                low, held = high, held[cut:]


class _Items:
    """The items of all files that point into a span, found by the chunks' lowest and highest places."""

    def __init__(self, tables: list[IndexItems], span: Span) -> None:
        self._near: list[tuple[int, IndexItems, npt.NDArray[np.void]]] = []
        for number, table in enumerate(tables):
            if table.used and table.low < span.high and table.high >= span.low:
                self._near.append((number, table, np.frombuffer(files.read_bytes(table.chunks), CHUNK)))

    def between(self, low: int, high: int) -> Found:
        parts = [self._of(number, table, chunks, low, high) for number, table, chunks in self._near]
        none = [np.zeros(0, np.int64), *(np.zeros(0, np.int32) for _ in range(4))]
        columns = [np.concatenate([empty, *(part[k] for part in parts)]) for k, empty in enumerate(none)]
        return Found(*columns)

    @staticmethod
    def _of(number: int, table: IndexItems, chunks: npt.NDArray[np.void], low: int, high: int) -> Found:
        wanted = np.flatnonzero((chunks["low"] < high) & (chunks["high"] >= low))
        if not len(wanted):
            none = np.zeros(0, np.int32)
            return Found(np.zeros(0, np.int64), none, none, none, none)
        start = HEADER_SIZE + table.slots * SLOT_SIZE
        rows, numbers = [], []
        with files.Reader(table.path) as reader:
            for run in np.split(wanted, np.flatnonzero(np.diff(wanted) != 1) + 1):
                first = 1 + int(run[0]) * CHUNK_ITEMS
                count = min((int(run[-1]) + 1) * CHUNK_ITEMS, table.used) + 1 - first
                # A file that is too short is read as the broker maps it.
                at, size = start + first * ITEM_SIZE, reader.size()
                raw = reader.read(at, max(0, min(count * ITEM_SIZE, size - at))).ljust(count * ITEM_SIZE, b"\0")
                items = np.frombuffer(raw, ITEM)
                place = items["phy_offset"].astype(np.int64)
                mine = np.flatnonzero((place >= low) & (place < high))
                rows.append(items[mine])
                numbers.append(first + mine)
        items = np.concatenate(rows)
        return Found(
            items["phy_offset"].astype(np.int64),
            items["key_hash"].astype(np.int32),
            items["time_diff"].astype(np.int32),
            np.full(len(items), number, np.int32),
            np.concatenate(numbers).astype(np.int32),
        )


def _compare(tables: list[IndexItems], staged: npt.NDArray[np.void], found: Found, word: ItemsWord) -> None:
    expected = Expected(
        staged["phy_offset"].astype(np.int64), staged["time"].astype(np.int64), staged["key_hash"].astype(np.int32)
    )
    matches = match_items(expected, found)
    word.expected += len(expected.phy_offset)
    word.found += len(found.phy_offset)
    word.repeats += len(matches.repeats)
    for kind, rows in (("index-item-extra", matches.extra), ("index-item-hash", matches.hashes)):
        for table, mine in _by_file(tables, found, rows):
            first = mine[0]
            text = f"item {found.item[first]}: hash {found.key_hash[first]}"
            if kind == "index-item-hash":
                text += f" instead of {_lacking(expected, found, int(found.phy_offset[first]))}"
            text += f" for phyOffset {found.phy_offset[first]}"
            word.tally.add(kind, len(mine), f"index/{escape(table.name)}", int(found.item[first]), text)
    _missing(expected, matches, word)
    _times(tables, expected, found, matches, word)
    if len(expected.time):
        word.before = int(expected.time[-1])


def _lacking(expected: Expected, found: Found, place: int) -> int:
    """The first hash of a record that no item has."""
    lacks = Counter(expected.key_hash[expected.phy_offset == place].tolist())
    lacks.subtract(found.key_hash[found.phy_offset == place].tolist())
    return next(int(key_hash) for key_hash, count in lacks.items() if count > 0)


def _by_file(tables: list[IndexItems], found: Found, rows: Int64s) -> Iterator[tuple[IndexItems, Int64s]]:
    for number in np.unique(found.file[rows]).tolist():
        yield tables[number], rows[found.file[rows] == number]


def _missing(expected: Expected, matches: Matches, word: ItemsWord) -> None:
    rows = matches.missing
    if not len(rows):
        if len(expected.phy_offset) and word.lost:
            word.lost[-1].closes = False
        return
    word.tally.add("index-item-missing", len(rows), "index", int(expected.phy_offset[rows[0]]), "")
    for part in np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1):
        place, time = expected.phy_offset[part], expected.time[part]
        stretch = Lost(
            int(place[0]), int(place[-1]), int(time.min()), int(time.max()), len(part), len(np.unique(place)),
            part[0] == 0, part[-1] == len(expected.phy_offset) - 1,
        )  # fmt: skip
        stretch.opens, stretch.closes = bool(stretch.opens), bool(stretch.closes)
        if stretch.opens and word.lost and word.lost[-1].closes:
            word.lost[-1].join(stretch)
        else:
            word.lost.append(stretch)


def _ends_before(table: IndexItems, time: int | None) -> list[int | None]:
    """The endTimestamps that a file's first item can have met: that of the file before it, or, where the one that ended there
    is gone or has another name now, the ``time`` of the item before it in the log."""
    before = UNKNOWN if table.inherited < 0 else table.inherited
    return [before] if time == NONE_BEFORE else [before, time]


def _times(tables: list[IndexItems], expected: Expected, found: Found, matches: Matches, word: ItemsWord) -> None:
    """timeDiff of each item, and the header's times, which are those of its first and last item."""
    mine, theirs = matches.pairs
    file = found.file[theirs]
    for number in np.unique(file).tolist():
        table, chosen = tables[number], file == number
        told = f"index/{escape(table.name)}"
        item, time = found.item[theirs[chosen]], expected.time[mine[chosen]]
        seconds = found.time_diff[theirs[chosen]]
        wanted = time_differences(time, table.begin_time)
        first = np.flatnonzero(item == 1)
        if len(first):
            row = int(mine[chosen][first[0]])
            ends = _ends_before(table, int(expected.time[row - 1]) if row else word.before)
            stands = int(seconds[first[0]])
            fitting = [max(stands, 0) if end is UNKNOWN else int(time_differences(time[first[:1]], end)[0]) for end in ends]
            wanted[first[0]] = stands if stands in fitting else fitting[0]
            if int(time[first[0]]) != table.begin_time:
                text = f"beginTimestamp {table.begin_time} instead of {time[first[0]]}"
                word.tally.add("index-header", 1, told, table.begin_time, text)
        last = np.flatnonzero(item == table.used)
        if len(last) and int(time[last[0]]) != table.end_time:
            text = f"endTimestamp {table.end_time} instead of {time[last[0]]}"
            word.tally.add("index-header", 1, told, table.end_time, text)
        wrong = np.flatnonzero(seconds != wanted)
        if len(wrong):
            k = int(wrong[0])
            text = f"item {item[k]}: timeDiff {seconds[k]} instead of {wanted[k]}"
            word.tally.add("index-item-time", len(wrong), told, int(item[k]), text)
