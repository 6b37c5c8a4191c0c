"""Check each IndexFile by itself (header, slots, links, sizes), and note chunk by chunk where in the log its items point.

The results of comparing index items stand here, too: stretches whose items are lost, and records that lack items of TAGS.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketmq_reindex import files
from rocketmq_reindex.storage_format.checks.differences import Tally
from rocketmq_reindex.storage_format.checks.index import LINK_FAULTS, SLOT_FAULTS, IndexCheck, check_index, slot_lengths
from rocketmq_reindex.storage_format.checks.items import TagStates
from rocketmq_reindex.storage_format.errors import Finding, UnreadableError
from rocketmq_reindex.storage_format.index.file import IndexView, open_index
from rocketmq_reindex.storage_format.index.layout import file_size
from rocketmq_reindex.storage_format.showing import escape
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.staging import StagingFolder

# ------------------------------------------------------------------------------------------------------------------------ index


CHUNK_ITEMS: Final = 1 << 16
"""Items whose lowest and highest phy_offset are noted together."""
CHUNK: Final = np.dtype([("low", "<i8"), ("high", "<i8")])
"""The lowest and highest phy_offset of a chunk."""
CHUNKS: Final = "chunks-"
"""begins the name of a file of them: there is one for each file that is checked"""
_FIELDS: Final = {
    "index-count": "indexCount",
    "index-slot-count": "hashSlotCount",
    "index-begin-offset": "beginPhyOffset",
    "index-end-offset": "endPhyOffset",
    "index-end-time": "endTimestamp",
}
"""The header field of a finding's code."""
_KINDS: Final = {
    "index-size": "index-file-size",
    "index-item-zero": "index-stray",
    "index-item-stray": "index-stray",
    "index-item-hash": "index-item-hash",
    "index-item-place": "index-order",
    "index-item-time": "index-item-time",
    "index-link-circular": "index-chain-circular",
    **dict.fromkeys(_FIELDS, "index-header"),
}
"""The kind of difference of a finding's code; all other codes are broken chains."""
_BESIDE_OTHERS: Final = ("index-empty-offset", "index-empty-time")
"""Left to ``storage_format.checks.index``, which knows the file before."""


@dataclass(frozen=True)
class ListedIndexFile:
    """One file of index/, by its number in the order of names.

    ``slots`` and ``items`` are the sizes of the settings. ``trimmed``: zeros at its end may be missing.
    """

    number: int
    name: str
    path: str
    slots: int
    items: int
    trimmed: bool = False


@dataclass
class IndexFileCheck(handover.TaskResult):
    """What is known of one IndexFile. One that is not ``readable`` has only its size and its differences."""

    number: int
    name: str
    tally: Tally
    size: int
    """bytes"""
    readable: bool = False
    used: int = 0
    """items in use"""
    header: dict[str, int] = field(default_factory=dict)
    """the fields of its ``IndexHeader``"""
    sealed: bool = False
    """whether it is marked as full"""
    first: int = -1
    last: int = -1
    """phy_offset of the first and of the last item"""
    low: int = -1
    high: int = -1
    """lowest and highest phy_offset of all items"""
    chunks: str = ""
    """path of a file with the ``CHUNK`` of each CHUNK_ITEMS items"""
    slots_used: int = 0
    longest_chain: int = 0
    chains: list[int] = field(default_factory=list)
    """how many slots have chains of up to 1, 2, 4, 8 ... items"""


@dataclass(frozen=True)
class CheckIndex:
    """Checks the IndexFiles whose numbers it is given (``IndexFile``, RocketMQ 5.3); leaves ``IndexFileCheck``.

    ``plan`` is the plan of ``ListedIndexFile``; the log begins at the phy_offset ``log_start``.
    """

    staging: StagingFolder
    plan: str
    log_start: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        listed = [ListedIndexFile(*fields) for fields in handover.read_plan(self.plan)]
        for number in handover.numbers(batches):
            yield handover.batch([self._check(listed[number])])

    def _check(self, file: ListedIndexFile) -> IndexFileCheck:
        tally, shown = Tally(), f"index/{escape(file.name)}"
        with files.Reader(file.path) as reader:
            size = reader.size()
            size_wanted = file_size(file.slots, file.items)
            if file.trimmed and size < size_wanted:
                data = np.zeros(size_wanted, np.uint8)
                reader.read_into(0, data[:size])
            else:
                data = reader.whole()
        try:
            view = open_index(data, file.slots, file.items)
        except UnreadableError:
            tally.add("index-file-size", 1, shown, size, f"{size} bytes instead of {size_wanted}")
            return IndexFileCheck(file.number, file.name, tally, size)
        check = check_index(view)
        table, last = self._chunks(view, check.items)
        self._add(view, check, tally, shown, last)
        lengths = slot_lengths(view, check.items)
        longest = int(lengths.max(initial=0))
        powers = np.bincount(np.ceil(np.log2(lengths[lengths > 0])).astype(np.int64)) if longest else np.zeros(0, np.int64)
        chunks = files.join(self.staging.plans, f"{CHUNKS}{uuid.uuid4().hex}")
        files.write_bytes(self.staging.temporary, chunks, [table])
        return IndexFileCheck(
            file.number,
            file.name,
            tally,
            size,
            readable=True,
            used=check.items,
            header=dataclasses.asdict(view.header),
            sealed=view.sealed,
            first=int(view.read(1, 1).phy_offset[0]) if check.items else -1,
            last=last,
            low=int(table["low"].min()) if len(table) else -1,
            high=int(table["high"].max()) if len(table) else -1,
            chunks=chunks,
            slots_used=check.slots_used,
            longest_chain=longest,
            chains=powers.tolist(),
        )

    @staticmethod
    def _chunks(view: IndexView, used: int) -> tuple[npt.NDArray[np.void], int]:
        """Return the ``CHUNK`` of each chunk of items, and the phy_offset of the last item (-1: there is none)."""
        count = -(-used // CHUNK_ITEMS)
        table, last = np.empty(count, CHUNK), -1
        for k in range(count):
            phy_offset = view.read(1 + k * CHUNK_ITEMS, min(CHUNK_ITEMS, used - k * CHUNK_ITEMS)).phy_offset
            table[k] = (phy_offset.min(), phy_offset.max())
            last = int(phy_offset[-1])
        return table, last

    def _add(self, view: IndexView, check: IndexCheck, tally: Tally, shown: str, last: int) -> None:
        """Add the findings of a check to ``tally``."""
        for finding in check.findings:
            if finding.code == "index-end-time" and last >= self.log_start:
                continue  # the records have it to the millisecond
            if finding.code not in _BESIDE_OTHERS:
                kind = _KINDS.get(finding.code, "index-chain-broken")
                tally.add(kind, finding.count, shown, finding.at, _text(view, finding))


def _text(view: IndexView, finding: Finding) -> str:
    """Return what the file has at a finding's first place, and what it should have."""
    at, code, expected = finding.at, finding.code, finding.expected
    instead = "" if expected is None else f" instead of {expected}"
    if code == "index-size":
        return f"{at} bytes instead of {file_size(view.slots, view.items)}"
    if code == "index-end-time":
        seconds = int(view.read(view.last_written(), 1).time_diff[0])
        return f"endTimestamp {at}: the last item is {seconds} s from beginTimestamp {view.header.begin_time}"
    if code in _FIELDS:
        return f"{_FIELDS[code]} {at}{instead}"
    if code in SLOT_FAULTS:
        return f"slot {at}: begins with item {int(view.heads(at, 1)[0])}{instead}"
    item = view.read(at, 1)
    if code in LINK_FAULTS:
        return f"item {at}: links to item {int(item.prev[0])}{instead}"
    if code == "index-item-hash":
        return f"item {at}: negative hash {int(item.key_hash[0])}"
    if code == "index-item-time":
        return f"item {at}: negative timeDiff {int(item.time_diff[0])}"
    if code == "index-item-place":
        before = int(view.read(at - 1, 1).phy_offset[0])
        return f"item {at}: phyOffset {int(item.phy_offset[0])} where the item before has {before}"
    unit = "byte" if code == "index-item-zero" else "item"
    return f"{unit} {at}: {finding.text.partition(' (at')[0]}"


# ------------------------------------------------------------------------------------------------------------------- lost items
# Stretches of the log whose items are not in the index.

LOST_MAX: Final = 1000
"""Stretches of missing items that a task lists one by one; the others are joined to one more."""


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


def put_stretch(stretches: list[Lost], following: Lost) -> None:
    """Put one more stretch behind the others; one that ends where a task's share of the log ends may go on in it."""
    if stretches and stretches[-1].closes and following.opens:
        stretches[-1].join(following)
    else:
        stretches.append(following)


def listed_stretches(stretches: list[Lost]) -> list[Lost]:
    """Return the first LOST_MAX stretches, and the others as one more."""
    if len(stretches) <= LOST_MAX:
        return stretches
    others = joined_stretch(stretches[LOST_MAX:])
    assert others is not None
    others.opens = False
    return [*stretches[:LOST_MAX], others]


def joined_stretch(stretches: Iterable[Lost | None]) -> Lost | None:
    """Return all stretches, in their order, as one; None for none."""
    whole: Lost | None = None
    for stretch in stretches:
        if whole is None:
            whole = stretch
        elif stretch is not None:
            whole.join(stretch)
    return whole


# ------------------------------------------------------------------------------------------------------------------------- tags
# What a comparison found of the items of TAGS: where they stand, and which records lack theirs.


@dataclass
class Side:
    """The records without their tag item before the first that stands, or behind the last: ``old`` of them have all their
    keys, ``gone`` lack a key, too."""

    lost: Lost | None = None
    old: int = 0
    gone: int = 0

    def add(self, other: Side) -> None:
        """Add the records of ``other``, which follow."""
        self.lost = joined_stretch([self.lost, other.lost])
        self.old += other.old
        self.gone += other.gone

    @classmethod
    def of_fields(cls, fields: dict[str, Any]) -> Side:
        """Return the object that such JSON holds."""
        return cls(Lost(**fields["lost"]) if fields["lost"] else None, fields["old"], fields["gone"])

    @property
    def is_older(self) -> bool:
        """Whether a broker before 5.4 wrote these: their keys are there, so the files that held them are, too."""
        return self.old > self.gone

    @property
    def count(self) -> int:
        """How many records."""
        return self.lost.records if self.lost else 0


@dataclass
class TagsFound:
    """Records with TAGS in a stretch of the log: ``standing`` of ``count`` have their tag item."""

    count: int = 0
    standing: int = 0
    first: int = -1
    last: int = -1
    """phy_offset of the first and of the last record whose tag item stands, -1 for none"""
    before: Side = field(default_factory=Side)
    """all that lack one, where none stands"""
    between: list[Lost] = field(default_factory=list)
    """stretches that lack one between the first that stands and the last"""
    behind: Side = field(default_factory=Side)

    def add(self, other: TagsFound) -> None:
        """Add the records of ``other``, which follow."""
        self.count += other.count
        if not other.standing:
            (self.behind if self.standing else self.before).add(other.before)
            return
        if self.standing:
            self.behind.add(other.before)
            self.between += [self.behind.lost] if self.behind.lost else []
        else:
            self.before.add(other.before)
            self.first = other.first
        self.between = listed_stretches([*self.between, *other.between])
        self.standing += other.standing
        self.last, self.behind = other.last, other.behind

    @classmethod
    def of_fields(cls, fields: dict[str, Any]) -> TagsFound:
        """Return the object that such JSON holds."""
        sides = {name: Side.of_fields(fields[name]) for name in ("before", "behind")}
        return cls(**(fields | sides | {"between": [Lost(**lost) for lost in fields["between"]]}))

    @classmethod
    def of_states(cls, states: TagStates) -> TagsFound:
        """Return what the rows of one comparison say."""
        count, stands = len(states.phy_offset), np.flatnonzero(states.stands)
        if not len(stands):
            return cls(count, before=_side(states, 0, count))
        first, last = int(stands[0]), int(stands[-1])
        lacking = np.flatnonzero(states.lacks[first:last]) + first
        runs = np.split(lacking, np.flatnonzero(np.diff(lacking) != 1) + 1) if len(lacking) else []
        between = [_side(states, int(run[0]), int(run[-1]) + 1).lost for run in runs]
        return cls(
            count,
            len(stands),
            int(states.phy_offset[first]),
            int(states.phy_offset[last]),
            _side(states, 0, first),
            listed_stretches([lost for lost in between if lost]),
            _side(states, last + 1, count),
        )


def _side(states: TagStates, low: int, high: int) -> Side:
    rows = np.flatnonzero(states.lacks[low:high]) + low
    if not len(rows):
        return Side()
    phy_offset, time = states.phy_offset[rows], states.time[rows]
    records = len(np.unique(phy_offset))
    lost = Lost(int(phy_offset[0]), int(phy_offset[-1]), int(time.min()), int(time.max()), len(rows), records)
    return Side(lost, int(states.old[rows].sum()), int(states.gone[rows].sum()))
