"""What lies on a store's disk, read plainly: segments, units of ConsumeQueues, items of IndexFiles, records of the log."""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.reference import java, records
from tests.reference.log import LogError, Segment, walk
from tests.reference.records import Record
from tests.reference.settings import Settings

Queue = tuple[str, int]
Unit = tuple[int, int, int]
"""physical offset, size, tagsCode"""
Item = tuple[int, int]
"""key hash, physical offset"""

_UNIT = struct.Struct(">qiq")
_ITEM = struct.Struct(">iqii")
INDEX_HEADER = 40


@dataclass(frozen=True)
class Disk:
    """``units`` are all that are not zeros, by queue and offset in the queue; ``items`` those of each IndexFile."""

    segments: tuple[str, ...]
    units: dict[Queue, dict[int, Unit]]
    items: dict[str, list[Item]]

    def all_items(self) -> Counter[Item]:
        """The items of all IndexFiles."""
        return Counter(item for items in self.items.values() for item in items)


def read_disk(store: Path, hash_slots: int) -> Disk:
    """``store`` as it lies there, whether a broker has it open or not."""
    segments = tuple(sorted(path.name for path in _files(store / "commitlog")))
    units = {}
    for topic in _folders(store / "consumequeue"):
        for queue in _folders(topic):
            if queue.name.isdigit():
                units[topic.name, int(queue.name)] = read_units(queue)
    return Disk(segments, units, {path.name: read_items(path, hash_slots) for path in sorted(_files(store / "index"))})


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_file()] if folder.is_dir() else []


def _folders(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []


def read_units(queue: Path) -> dict[int, Unit]:
    """The units of a queue's folder that are not zeros, by their offset in the queue."""
    found: dict[int, Unit] = {}
    for path in _files(queue):
        if not path.name.isdigit():
            continue
        data = path.read_bytes()
        whole = data[: len(data) // 20 * 20]
        found |= {int(path.name) // 20 + at: unit for at, unit in enumerate(_UNIT.iter_unpack(whole)) if unit != (0, 0, 0)}
    return found


def read_items(path: Path, hash_slots: int) -> list[Item]:
    """The items that an IndexFile's header counts."""
    data = path.read_bytes()
    if len(data) < INDEX_HEADER:
        return []
    (count,) = struct.unpack_from(">i", data, 36)
    items = data[INDEX_HEADER + 4 * hash_slots :]
    items = items[: len(items) // 20 * 20][: 20 * max(0, count)]
    # The first place stays free: an item 0 is none.
    return [(key, offset) for number, (key, offset, _, _) in enumerate(_ITEM.iter_unpack(items)) if number]


def read_log(store: Path, segment_size: int, release: str, crc: bool) -> list[Record]:
    """Every good record of the log, whatever lies between them. None where the folder is no log."""
    rules = Settings(broker_version="4.9" if release.startswith("4.") else "5.3", crc="all" if crc else "none", segment_size=segment_size)
    paths = sorted(_files(store / "commitlog"))
    if any(len(path.name) != 20 or not path.name.isdigit() for path in paths):
        return []
    segments = [Segment(int(path.name), path.read_bytes()) for path in paths]
    try:
        return walk(segments, segment_size, rules).records
    except LogError:
        return []


def items_of(record: Record, release: str) -> list[Item]:
    """The items that ``IndexService.buildIndex`` makes of a record: from 5.4 on one of its TAGS, too."""
    keys = record.index_keys()
    tags = record.properties.get("TAGS", "")
    if tags and record.transaction != records.ROLLBACK and release >= "5.4":
        keys.append(f"{record.topic}#T#{tags}")
    return [(_key_hash(key), record.offset) for key in keys]


def _key_hash(key: str) -> int:
    """``IndexFile.indexKeyHashMethod``."""
    return max(0, java.int32(abs(java.hash_code(key))))
