"""What lies on a store's disk, read plainly: segments, units of ConsumeQueues, items of IndexFiles."""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.preflight.log_walk import Item

Queue = tuple[str, int]
Unit = tuple[int, int, int]
"""physical offset, size, tagsCode"""

_UNIT = struct.Struct(">qiq")
_ITEM = struct.Struct(">iqii")
INDEX_HEADER = 40


@dataclass(frozen=True)
class Disk:
    """``segments`` have bytes; ``units`` are all that are not zeros, by queue and offset in the queue.

    ``items`` are those of each IndexFile.
    """

    segments: tuple[str, ...]
    units: dict[Queue, dict[int, Unit]]
    items: dict[str, list[Item]]

    def all_items(self) -> Counter[Item]:
        """The items of all IndexFiles."""
        return Counter(item for items in self.items.values() for item in items)


def read_disk(store: Path, hash_slots: int) -> Disk:
    """``store`` as it lies there, whether a broker has it open or not."""
    segments = tuple(sorted(path.name for path in _files(store / "commitlog") if path.stat().st_size))
    units = {}
    for topic in _folders(store / "consumequeue"):
        for queue in _folders(topic):
            if queue.name.removeprefix("-").isdigit():
                units[topic.name, int(queue.name)] = read_units(queue)
    indexes = [path for path in sorted(_files(store / "index")) if path.name.isdigit()]
    return Disk(segments, units, {path.name: read_items(path, hash_slots) for path in indexes})


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
    # What a file was cut short of, the start fills up with zeros. The first place stays free.
    items = items[: 20 * max(0, count)].ljust(20 * min(max(0, count), len(items) // 20 + 1), b"\0")
    found = [(key, offset) for key, offset, _, _ in _ITEM.iter_unpack(items)]
    return [item for item in found[1:] if item != (0, 0)]
