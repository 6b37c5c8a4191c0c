"""Ways to spoil the database of a broker with storeType=defaultRocksDB: pairs are written as a broker's RocksDB reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import rocksdict

from rocketmq_reindex.storage_format.queue import rocksdb as pairs
from rocketmq_reindex.storage_format.queue.rocksdb import QueueEnd, QueueName
from rocketmq_reindex.udfs.queue_database import QueueDatabase
from tests.preflight.spoiling import Spoiler

FORMAT = 5
"""of tables, as the oldest of these brokers reads them"""
Pairs = Mapping[bytes, bytes | None]


def folder_of(store: Path) -> Path:
    """Where the database lies."""
    return store / "consumequeue"


def is_there(store: Path) -> bool:
    """Whether there is a database."""
    return (folder_of(store) / "CURRENT").exists()


def _options() -> Any:
    options, tables = rocksdict.Options(raw_mode=True), rocksdict.BlockBasedOptions()
    tables.set_format_version(FORMAT)
    options.set_block_based_table_factory(tables)
    return options


def changed(folder: Path, units: Pairs, offsets: Pairs) -> None:
    """Put pairs, or delete them (None), in both families."""
    database = rocksdict.Rdict(str(folder), _options(), column_families={"offset": _options()})
    for family, puts in ((database, units), (database.get_column_family("offset"), offsets)):
        for key, value in puts.items():
            if value is None:
                family.delete(key)
            else:
                family[key] = value
        family.flush()
    database.close()
    (folder / "rocksdict-config.json").unlink(missing_ok=True)


def _ends(spoiler: Spoiler) -> list[QueueEnd]:
    if not is_there(spoiler.store.path):
        return []
    database = QueueDatabase(str(folder_of(spoiler.store.path)))
    try:
        return list(database.ends())
    finally:
        database.close()


def _units(spoiler: Spoiler, queue: QueueName) -> dict[int, tuple[int, int]]:
    """Where the units of a queue lead, and how many bytes they say that there are."""
    database = QueueDatabase(str(folder_of(spoiler.store.path)))
    try:
        return {
            int(offset): (int(unit["phy_offset"]), int(unit["size"]))
            for offsets, units in database.units(queue, 0, 1 << 40)
            for offset, unit in zip(offsets, units, strict=True)
        }
    finally:
        database.close()


def _some(spoiler: Spoiler) -> QueueEnd | None:
    ends = [end for end in _ends(spoiler) if end.is_max]
    return spoiler.rng.choice(ends) if ends else None


def _name(queue: QueueName) -> str:
    return f"{queue.topic!a}/{queue.queue_id}"


def lost(spoiler: Spoiler) -> str | None:
    """The database is gone; queues in files beside it stay."""
    folder = folder_of(spoiler.store.path)
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.is_file():
            path.unlink()
    return "database deleted"


def _cursor(spoiler: Spoiler, choose: Callable[[int, list[int]], int | None]) -> str | None:
    """The check point: ``choose`` is given the old one, and where all units of a queue lead."""
    end = _some(spoiler)
    if end is None:
        return None
    places = sorted(place for place, _ in _units(spoiler, end.queue).values()) or [0]
    database = QueueDatabase(str(folder_of(spoiler.store.path)))
    old = database.dispatched() or 0
    database.close()
    new = choose(old, places)
    value = None if new is None else new.to_bytes(8, "big", signed=True)
    changed(folder_of(spoiler.store.path), {}, {pairs.CHECKPOINT_KEY: value})
    return f"check point {new} for {old}"


def no_check_point(spoiler: Spoiler) -> str | None:
    """It is gone."""
    return _cursor(spoiler, lambda _old, _places: None)


def older_check_point(spoiler: Spoiler) -> str | None:
    """It stands at a record, as that of an older database."""
    return _cursor(spoiler, lambda _old, places: spoiler.rng.choice(places))


def other_check_point(spoiler: Spoiler) -> str | None:
    """It is any other number."""
    step = spoiler.rng.choice((-(10**6), -7000, -1, 1, 500, 10**6, 1 << 40))
    return _cursor(spoiler, lambda old, _places: max(-1, old + step))


def older(spoiler: Spoiler) -> str | None:
    """All of it is of an earlier time: no unit leads behind a record, and the check point stands there."""
    ends = {end.queue for end in _ends(spoiler) if end.is_max}
    all_units = {queue: _units(spoiler, queue) for queue in ends}
    places = sorted(place for units in all_units.values() for place, _ in units.values())
    if not places:
        return None
    stop = spoiler.rng.choice(places)
    units: dict[bytes, bytes | None] = {}
    offsets: dict[bytes, bytes | None] = {pairs.CHECKPOINT_KEY: stop.to_bytes(8, "big", signed=True)}
    for queue, own in all_units.items():
        prefix = pairs.unit_prefix(queue)
        units |= {pairs.unit_key(prefix, at): None for at, (place, _) in own.items() if place >= stop}
        left = [(at, place) for at, (place, _) in own.items() if place < stop]
        last = max(left, key=lambda one: one[1]) if left else None
        offsets[pairs.end_key(queue, is_max=True)] = None if last is None else pairs.end_value(last[1], last[0])
    changed(folder_of(spoiler.store.path), units, offsets)
    return f"database as it was at {stop}"


def lost_units(spoiler: Spoiler) -> str | None:
    """Units of a queue are gone: at its beginning, its end, or in between."""
    end = _some(spoiler)
    own = sorted(_units(spoiler, end.queue)) if end else []
    if end is None or not own:
        return None
    first = spoiler.rng.choice((0, len(own) - 1, spoiler.rng.randrange(len(own))))
    gone = own[first : first + spoiler.rng.choice((1, 1, 5, len(own)))]
    prefix = pairs.unit_prefix(end.queue)
    changed(folder_of(spoiler.store.path), {pairs.unit_key(prefix, at): None for at in gone}, {})
    return f"units {gone[0]} to {gone[-1]} of {_name(end.queue)} deleted"


def other_unit(spoiler: Spoiler) -> str | None:
    """A unit leads elsewhere."""
    end = _some(spoiler)
    own = _units(spoiler, end.queue) if end else {}
    if end is None or not own:
        return None
    at = spoiler.rng.choice(sorted(own))
    place, size = spoiler.rng.choice(sorted(own.values()))
    place += spoiler.rng.choice((0, 0, 1 << 20, -100))
    value = max(0, place).to_bytes(8, "big") + size.to_bytes(4, "big") + bytes(16)
    changed(folder_of(spoiler.store.path), {pairs.unit_key(pairs.unit_prefix(end.queue), at): value}, {})
    return f"unit {at} of {_name(end.queue)} leads to {place}"


def other_end(spoiler: Spoiler) -> str | None:
    """A queue's last or first unit is said to be another one, or is not said."""
    end = _some(spoiler)
    own = _units(spoiler, end.queue) if end else {}
    if end is None or not own:
        return None
    is_max = spoiler.rng.random() < 0.6
    at = spoiler.rng.choice(sorted(own))
    new = spoiler.rng.choice((None, (own[at][0], at), (own[at][0] + (1 << 20), at), (0, at), (own[at][0], at + 3)))
    key = pairs.end_key(end.queue, is_max=is_max)
    changed(folder_of(spoiler.store.path), {}, {key: None if new is None else pairs.end_value(*new)})
    return f"{'last' if is_max else 'first'} unit of {_name(end.queue)}: {new}"


LOST = (lost, lost, no_check_point, older, older, older)
DAMAGED = (older_check_point, other_check_point, lost_units, lost_units, other_unit, other_end, other_end)
