"""Each statement of a preflight beside what the real store said, served and left on the disk."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tests.preflight.disk import Disk, Unit
from tests.preflight.log_walk import Item, LogRecord
from tests.preflight.real import RealQueue, RealStart

BLANK = 2**31 - 1
"""the size in units that ConsumeQueue.fillPreBlank writes"""
NO_QUEUE = RealQueue(0, 0, ())
NO_UNIT = -2
"""in the place of a message: the store finds no unit"""


@dataclass(frozen=True)
class Outcome:
    """One start of a real store. ``log`` are the good records of the log before it, and ``end`` is behind its last byte."""

    release: str
    abnormal: bool
    told: RealStart
    before: Disk
    after: Disk
    log: list[LogRecord]
    end: int
    filler: bool
    """the log is accepted up to a filler at the end of its last segment"""
    index_enabled: bool
    reputs: bool
    """it dispatches once more, from where the queues end: 4.9, and with recheckReputOffsetFromCq"""
    blank: int = 0
    """bytes behind the last entry of a log of DLedger that fill its file: they are not cut"""

    @cached_property
    def kept(self) -> list[LogRecord]:
        """The records of the log that the start kept."""
        return [record for record in self.log if self.told.min_offset <= record.offset < self.told.max_offset]

    @cached_property
    def of_queues(self) -> dict[tuple[str, int], list[LogRecord]]:
        """Those that get a unit, by queue."""
        found: dict[tuple[str, int], list[LogRecord]] = defaultdict(list)
        for record in self.kept:
            if record.gets_unit:
                found[record.topic, record.queue].append(record)
        return found


@dataclass(frozen=True)
class Difference:
    """A statement that is not what came."""

    statement: str
    real: object
    said: object

    def __str__(self) -> str:
        return f"{self.statement}: the real store has {self.real!r}, preflight says {self.said!r}"


class Comparison:
    """Statements of one preflight, counted by name; ``differences`` are those that do not hold."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.differences: list[Difference] = []

    def hold(self, statement: str, real: object, said: object, where: str = "") -> None:
        """One statement; ``where`` is a queue, which does not count as another kind of statement."""
        self.counts[statement] += 1
        if real != said:
            self.differences.append(Difference(f"{statement}{where and f' of {where}'}", real, said))


def compare(said: Mapping[str, Any], real: Outcome) -> Comparison:
    """``said`` is what ``rmq-reindex preflight --json`` prints."""
    found = Comparison()
    found.hold("release", real.release, said["release"])
    found.hold("abort", real.abnormal, said["abort"])
    found.hold("loads", real.told.loads and not real.told.behind, said["loads"])
    if not (real.told.loads and not real.told.behind and said["loads"]):
        return found
    _log(found, said["log"], real)
    _dispatch(found, said["dispatch"], real)
    _queues(found, said["queues"], real)
    _index(found, said["index"], real)
    return found


def compare_database(said: Mapping[str, Any], real: Outcome, ends: Mapping[tuple[str, int], int]) -> Comparison:
    """The same of a store whose queues are in RocksDB: units are those that were served, and ``ends`` are the max offsets that
    the database had before."""
    found = Comparison()
    found.hold("release", real.release, said["release"])
    found.hold("abort", real.abnormal, said["abort"])
    found.hold("loads", real.told.loads and not real.told.behind, said["loads"])
    if not (real.told.loads and not real.told.behind and said["loads"]):
        return found
    assert real.told.queues is not None
    _log(found, said["log"], real)
    _dispatch(found, said["dispatch"], real)
    by_name = {(one["topic"], one["queue"]): one for one in said["queues"]}
    for queue in _all_queues(real):
        one, told = by_name.pop(queue, None), real.told.queues.get(queue, NO_QUEUE)
        if one is None:
            found.hold("queues", (0, 0), (told.min_offset, told.max_offset), _name(queue))
            continue
        _ends(found, one, told, queue)
        cut = max(0, ends.get(queue, 0) - max(0, told.max_offset))
        found.hold("queue.units_cut", cut, one["units_cut"], _name(queue))
        if one["hidden"] >= 0:
            _of_log(found, one, told, real, queue)
            gap = told.served.index(NO_UNIT) if NO_UNIT in told.served else -1
            behind = sum(place != NO_UNIT for place in told.served[gap:]) if gap >= 0 else 0
            found.hold("queue.gap", (gap if gap < 0 else told.min_offset + gap, behind), (one["gap_at"], one["behind_gap"]))
    found.hold("queues left", [], sorted(by_name))
    _index(found, said["index"], real)
    return found


def _log(found: Comparison, said: Mapping[str, Any], real: Outcome) -> None:
    told = real.told
    found.hold("log.abnormal", real.abnormal, said["abnormal"])
    found.hold("log.min_offset", told.min_offset, said["min_offset"])
    found.hold("log.max_offset", told.max_offset, said["max_offset"])
    deleted = [name for name in real.before.segments if name not in real.after.segments]
    found.hold("log.deleted_segments", deleted, list(said["deleted_segments"]))
    cut = 0 if real.filler else max(0, real.end - told.max_offset - real.blank)
    if not real.before.segments:
        return
    found.hold("log.cut_bytes", cut, said["cut_bytes"])
    found.hold("log.end", told.max_offset + (cut and cut + real.blank), said["end"])
    found.hold("log.cut_reason", bool(cut), bool(said["cut_reason"]))
    if said["cut_records"] >= 0:
        behind = sum(record.offset >= told.max_offset for record in real.log) if cut else 0
        found.hold("log.cut_records", behind, said["cut_records"])
    if not real.reputs and any(record.offset == told.lowest for record in real.log):
        # The recovery itself cannot be watched: nothing in front of its start is dispatched.
        found.hold("log.start_offset", True, said["start_offset"] <= told.lowest)


def _dispatch(found: Comparison, said: Mapping[str, Any], real: Outcome) -> None:
    told = real.told
    found.hold("dispatch.from_offset", told.lowest, said["from_offset"])
    found.hold("dispatch.records", told.records, said["records"])
    found.hold("dispatch.items", sum(_added(real).values()), said["items"])
    if said["hidden_records"] < 0:
        return
    hidden = sorted(record.offset for queue in _all_queues(real) for record in _hidden(real, queue))
    found.hold("dispatch.hidden_records", len(hidden), said["hidden_records"])
    ends = {record.offset: record.offset + record.size for record in real.log}
    first, end = (hidden[0], ends[hidden[-1]]) if hidden else (-1, -1)
    found.hold("dispatch.hidden_from", first, said["hidden_from"])
    found.hold("dispatch.hidden_to", end, said["hidden_to"])


def _added(real: Outcome) -> Counter[Item]:
    """The items that the start made."""
    kept = Counter(item for name, items in real.before.items.items() if name in real.after.items for item in items)
    return real.after.all_items() - kept


def _all_queues(real: Outcome) -> list[tuple[str, int]]:
    assert real.told.queues is not None
    return sorted({*real.told.queues, *real.before.units, *real.of_queues})


def _after(real: Outcome, queue: tuple[str, int]) -> dict[int, Unit]:
    """The units that the store has: what lies behind a queue's end is cut."""
    assert real.told.queues is not None
    end = real.told.queues.get(queue, NO_QUEUE).max_offset
    return {at: unit for at, unit in real.after.units.get(queue, {}).items() if at < end}


def _valid(units: dict[int, Unit]) -> dict[int, Unit]:
    return {at: unit for at, unit in units.items() if unit[0] >= 0 and unit[1] > 0 and unit[1] != BLANK}


def _hidden(real: Outcome, queue: tuple[str, int]) -> list[LogRecord]:
    """The records of a queue without a unit, but for those of its earlier lives."""
    earlier = {record.offset for record in _earlier(real, queue)}
    return [record for record in _without_unit(real, queue) if record.offset not in earlier]


def _earlier(real: Outcome, queue: tuple[str, int]) -> list[LogRecord]:
    """The records without a unit in front of the one with offset 0 to which the queue's first unit points."""
    assert real.told.queues is not None
    begins = real.told.queues.get(queue, NO_QUEUE).min_offset == 0
    first = _after(real, queue).get(0, (-1, 0))[0] if begins else -1
    if not any(record.offset == first and record.queue_offset == 0 for record in real.of_queues.get(queue, [])):
        return []
    return [record for record in _without_unit(real, queue) if record.offset < first]


def _without_unit(real: Outcome, queue: tuple[str, int]) -> list[LogRecord]:
    """The records of a queue that are kept in the log and that no unit from its min offset on points to."""
    assert real.told.queues is not None
    low = real.told.queues.get(queue, NO_QUEUE).min_offset
    there = {unit[0] for at, unit in _after(real, queue).items() if at >= low and unit[1] != BLANK}
    return [record for record in real.of_queues.get(queue, []) if record.offset not in there]


def _queues(found: Comparison, said: list[Mapping[str, Any]], real: Outcome) -> None:
    assert real.told.queues is not None
    by_name = {(one["topic"], one["queue"]): one for one in said}
    for queue in _all_queues(real):
        one, told = by_name.pop(queue, None), real.told.queues.get(queue, NO_QUEUE)
        if one is None:
            if (told.min_offset, told.max_offset) != (0, 0):
                found.hold("queues", "a queue", None, _name(queue))
            continue
        _queue(found, one, told, real, queue)
    for queue, one in by_name.items():
        found.hold("queues", None, (one["min_offset"], one["max_offset"]), _name(queue))


def _name(queue: tuple[str, int]) -> str:
    return f"{ascii(queue[0])[:60]}/{queue[1]}"


def _queue(found: Comparison, said: Mapping[str, Any], told: RealQueue, real: Outcome, queue: tuple[str, int]) -> None:
    name = _name(queue)
    _ends(found, said, told, queue)
    before, after = _valid(real.before.units.get(queue, {})), _valid(_after(real, queue))
    # A unit that is cut and written again is the same on the disk: so the sum of both, and units from where the new ones begin.
    found.hold("queue.units_added-units_cut", len(after) - len(before), said["units_added"] - said["units_cut"], name)
    new = [at for at, unit in after.items() if before.get(at) != unit]
    gone = [at for at, unit in before.items() if after.get(at) != unit]
    found.hold("queue.units_added", True, said["units_added"] >= len(new), name)
    found.hold("queue.units_cut", True, said["units_cut"] >= len(gone), name)
    if said["hidden"] < 0:
        return
    places = {record.offset: record.queue_offset for record in real.of_queues.get(queue, [])}
    moved = [at for at in new if places.get(after[at][0], -1) > at]
    found.hold("queue.moved", len(moved), said["moved"], name)
    _of_log(found, said, told, real, queue)


def _ends(found: Comparison, said: Mapping[str, Any], told: RealQueue, queue: tuple[str, int]) -> None:
    found.hold("queue.min_offset", told.min_offset, said["min_offset"], _name(queue))
    found.hold("queue.max_offset", told.max_offset, said["max_offset"], _name(queue))


def _of_log(found: Comparison, said: Mapping[str, Any], told: RealQueue, real: Outcome, queue: tuple[str, int]) -> None:
    """What is said of a queue's records in the log."""
    name, hidden = _name(queue), _hidden(real, queue)
    found.hold("queue.hidden", len(hidden), said["hidden"], name)
    earlier = {record.offset for record in _earlier(real, queue)}
    found.hold("queue.earlier_lives", len(earlier), said["earlier_lives"], name)
    records = [record for record in real.of_queues.get(queue, []) if record.offset not in earlier]
    numbers = [record.queue_offset for record in records]
    found.hold("queue.log_min", min(numbers, default=-1), said["log_min"], name)
    found.hold("queue.log_max", max(numbers, default=-2) + 1, said["log_max"], name)
    served = set(told.served)
    wanted = sum(record.offset in served for record in records)
    found.hold("queue.served", wanted, len(records) - said["hidden"], name)


def _index(found: Comparison, said: Mapping[str, Any], real: Outcome) -> None:
    before, after = real.before, real.after
    deleted = [name for name in before.items if name not in after.items]
    found.hold("index.files", len(after.items), said["files"])
    found.hold("index.deleted", deleted, list(said["deleted"]))
    there = after.all_items()
    low, high = real.told.min_offset, real.told.max_offset
    indexed = {place for _, place in _added(real)}
    gone = [place for name in deleted for _, place in before.items[name] if low <= place < high]
    found.hold("index.items_lost", sum(place not in indexed for place in gone), said["items_lost"])
    if said["items_missing"] >= 0 and real.index_enabled:
        found.hold("index.items_missing", _missing(real, there), said["items_missing"])


def _missing(real: Outcome, there: Counter[Item]) -> int:
    """Items of kept records that no IndexFile has. A record of which only the TAGS item is missing lost none: it is older.

    Counted by record: one whose keys were spoilt after it was indexed has as many items as before.
    """
    places = Counter(place for _, place in there.elements())
    total = 0
    for record in real.kept:
        keys, all_items = record.items(False), record.items(real.release >= "5.4")
        of_tags = sum(there[item] > 0 for item in all_items[len(keys) :])
        if places[record.offset] - of_tags < len(keys):
            total += max(0, len(all_items) - places[record.offset])
    return total
