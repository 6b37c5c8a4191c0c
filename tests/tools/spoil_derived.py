"""Spoils a copy of what is derived from a log (ConsumeQueue, IndexFiles, checkpoint) in one place.

Every function takes the store's folder, its file sizes and a random.Random, changes files in place, and raises NotHere when
the store has no place of the kind. KINDS says by which name verify must find it. It shares no code with the project.
"""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.tools import spoil

UNIT = struct.Struct(">qiq")
ITEM = struct.Struct(">iqii")
HEADER = struct.Struct(">qqqqii")
CHECKPOINT = struct.Struct(">qqqqq")
PRE_BLANK = (0, 0x7FFFFFFF, 0)
FAR = 1 << 40


class NotHere(Exception):
    """The store has nothing that could be spoilt this way."""


@dataclass(frozen=True)
class Sizes:
    """As the store was built."""

    cq_file_size: int
    hash_slots: int
    index_items: int


# -- ConsumeQueue ------------------------------------------------------------------------------------------------------------


class Queue:
    """The files of one queue as one list of units, from the first file's first slot on."""

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.iterdir())
        self.sizes = [path.stat().st_size for path in self.paths]
        data = b"".join(path.read_bytes() for path in self.paths)
        self.units = [UNIT.unpack_from(data, at) for at in range(0, len(data) - 19, 20)]

    @property
    def filled(self) -> list[int]:
        """Slots that hold units."""
        return [slot for slot, (place, size, tags) in enumerate(self.units) if size > 0 and (place, size, tags) != PRE_BLANK]

    def write(self) -> None:
        data = b"".join(UNIT.pack(*unit) for unit in self.units)
        for path, size in zip(self.paths, self.sizes, strict=True):
            path.write_bytes(data[:size])
            data = data[size:]


def queue_folders(store: Path) -> list[Path]:
    return sorted(path for topic in (store / "consumequeue").iterdir() for path in topic.iterdir())


def some_queue(store: Path, rng: random.Random, wanted: Callable[[Queue], bool]) -> Queue:
    folders = queue_folders(store)
    rng.shuffle(folders)
    for folder in folders:
        queue = Queue(folder)
        if wanted(queue):
            return queue
    raise NotHere


def _change_unit(store: Path, rng: random.Random, change: Callable[[int, int, int], tuple[int, int, int]]) -> None:
    queue = some_queue(store, rng, lambda queue: len(queue.filled) > 0)
    slot = rng.choice(queue.filled)
    queue.units[slot] = change(*queue.units[slot])
    queue.write()


def unit_zeroed(store: Path, sizes: Sizes, rng: random.Random) -> None:  # noqa: ARG001
    _change_unit(store, rng, lambda *_: (0, 0, 0))


def queue_cut(store: Path, sizes: Sizes, rng: random.Random) -> None:  # noqa: ARG001
    """The last units are lost, as after a crash."""
    queue = some_queue(store, rng, lambda queue: len(queue.filled) > 1)
    for slot in queue.filled[-rng.randrange(1, len(queue.filled)) :]:
        queue.units[slot] = (0, 0, 0)
    queue.write()


def queue_file_removed(store: Path, sizes: Sizes, rng: random.Random) -> None:  # noqa: ARG001
    queue = some_queue(store, rng, lambda queue: len(queue.filled) > 0)
    rng.choice(queue.paths).unlink()


def queue_removed(store: Path, sizes: Sizes, rng: random.Random) -> None:  # noqa: ARG001
    shutil.rmtree(rng.choice(queue_folders(store)))


def unit_extra(store: Path, sizes: Sizes, rng: random.Random) -> None:  # noqa: ARG001
    """The last unit once more behind the queue's end."""
    queue = some_queue(store, rng, lambda queue: len(queue.filled) > 0 and queue.filled[-1] + 1 < len(queue.units))
    queue.units[queue.filled[-1] + 1] = queue.units[queue.filled[-1]]
    queue.write()


def queue_of_no_log(store: Path, sizes: Sizes, rng: random.Random) -> None:
    """A queue that the log knows nothing of, with another's units."""
    queue = some_queue(store, rng, lambda queue: len(queue.filled) > 0)
    folder = store / "consumequeue" / "NoSuchTopic" / "0"
    folder.mkdir(parents=True)
    unit = UNIT.pack(*queue.units[rng.choice(queue.filled)])
    (folder / f"{0:020d}").write_bytes(unit.ljust(sizes.cq_file_size, b"\0"))


def unit_nowhere(store: Path, sizes: Sizes, rng: random.Random) -> None:  # noqa: ARG001
    _change_unit(store, rng, lambda place, size, tags: (rng.choice((place + 1, place + FAR, -place - 1)), size, tags))


def unit_behind_the_log(store: Path, sizes: Sizes, rng: random.Random) -> None:  # noqa: ARG001
    """One unit more, of a record that the log has lost."""
    queue = some_queue(store, rng, lambda queue: len(queue.filled) > 0 and queue.filled[-1] + 1 < len(queue.units))
    queue.units[queue.filled[-1] + 1] = (FAR, 200, 0)
    queue.write()


def unit_size(store: Path, sizes: Sizes, rng: random.Random) -> None:  # noqa: ARG001
    _change_unit(store, rng, lambda place, size, tags: (place, rng.choice((size + 1, size - 1, -size)), tags))


def unit_tags(store: Path, sizes: Sizes, rng: random.Random) -> None:  # noqa: ARG001
    _change_unit(store, rng, lambda place, size, tags: (place, size, tags ^ 1 << rng.randrange(63)))


def units_swapped(store: Path, sizes: Sizes, rng: random.Random) -> None:  # noqa: ARG001
    queue = some_queue(store, rng, lambda queue: len(queue.filled) > 1)
    one, other = rng.sample(queue.filled, 2)
    queue.units[one], queue.units[other] = queue.units[other], queue.units[one]
    queue.write()


def unit_of_another_queue(store: Path, sizes: Sizes, rng: random.Random) -> None:  # noqa: ARG001
    queue = some_queue(store, rng, lambda queue: len(queue.filled) > 0)
    theirs = some_queue(store, rng, lambda other: len(other.filled) > 0 and other.paths != queue.paths)
    queue.units[rng.choice(queue.filled)] = theirs.units[rng.choice(theirs.filled)]
    queue.write()


def units_moved_up(store: Path, sizes: Sizes, rng: random.Random) -> None:  # noqa: ARG001
    """A unit is missing, all later ones stand one slot too early, as when a broker starts without the last one and goes on."""
    queue = some_queue(store, rng, lambda queue: len(queue.filled) > 1)
    slot = queue.filled[rng.randrange(len(queue.filled) - 1)]
    last = queue.filled[-1]
    queue.units[slot:last] = queue.units[slot + 1 : last + 1]
    queue.units[last] = (0, 0, 0)
    queue.write()


def units_moved_down(store: Path, sizes: Sizes, rng: random.Random) -> None:  # noqa: ARG001
    """A unit stands there twice and all later ones one slot too late."""
    queue = some_queue(store, rng, lambda queue: len(queue.filled) > 3 and queue.filled[-1] + 1 < len(queue.units))
    slot = queue.filled[rng.randrange(len(queue.filled) - 3)]
    last = queue.filled[-1]
    queue.units[slot + 1 : last + 2] = queue.units[slot : last + 1]
    queue.write()


def pre_blank(store: Path, sizes: Sizes, rng: random.Random) -> None:  # noqa: ARG001
    queue = some_queue(store, rng, lambda queue: PRE_BLANK in queue.units)
    slots = [slot for slot, unit in enumerate(queue.units) if unit == PRE_BLANK]
    queue.units[rng.choice(slots)] = rng.choice(((0, 0, 0), (0, 0x7FFFFFFE, 0), (0, 0x7FFFFFFF, 7), (1 << 33, 0x7FFFFFFF, 0)))
    queue.write()


def pre_blank_inside(store: Path, sizes: Sizes, rng: random.Random) -> None:  # noqa: ARG001
    _change_unit(store, rng, lambda *_: PRE_BLANK)


def queue_file_cut(store: Path, sizes: Sizes, rng: random.Random) -> None:
    path = rng.choice(some_queue(store, rng, lambda queue: len(queue.paths) > 0).paths)
    size = rng.choice((sizes.cq_file_size - 20, sizes.cq_file_size - 7, sizes.cq_file_size + 20))
    path.write_bytes(path.read_bytes()[:size].ljust(size, b"\0"))


def queue_file_named(store: Path, sizes: Sizes, rng: random.Random) -> None:
    path = rng.choice(some_queue(store, rng, lambda queue: len(queue.paths) > 0).paths)
    name = rng.choice(("junk", f"{int(path.name) + 20:020d}", f"{path.name}.bak", "7"))
    shutil.copy(path, path.with_name(name))
    assert sizes.cq_file_size > 20


def queue_file_empty(store: Path, sizes: Sizes, rng: random.Random) -> None:
    last = some_queue(store, rng, lambda queue: len(queue.filled) > 0).paths[-1]
    last.with_name(f"{int(last.name) + sizes.cq_file_size:020d}").write_bytes(bytes(sizes.cq_file_size))


# -- IndexFiles ----------------------------------------------------------------------------------------------------------------


class Index:
    """One IndexFile: header fields, slots, items (item 0 included)."""

    def __init__(self, path: Path, sizes: Sizes) -> None:
        self.path = path
        data = path.read_bytes()
        self.header = list(HEADER.unpack_from(data))
        self.slots = list(struct.unpack_from(f">{sizes.hash_slots}i", data, 40))
        start = 40 + 4 * sizes.hash_slots
        self.items = [ITEM.unpack_from(data, start + 20 * k) for k in range(sizes.index_items)]

    @property
    def used(self) -> list[int]:
        """Numbers of the items that count."""
        return [k for k, (key_hash, place, _, prev) in enumerate(self.items) if k and (key_hash or place or prev or k == 1)]

    def write(self) -> None:
        slots = struct.pack(f">{len(self.slots)}i", *self.slots)
        self.path.write_bytes(HEADER.pack(*self.header) + slots + b"".join(ITEM.pack(*item) for item in self.items))


def index_paths(store: Path) -> list[Path]:
    return sorted((store / "index").iterdir())


def some_index(store: Path, sizes: Sizes, rng: random.Random, wanted: Callable[[Index], bool]) -> Index:
    paths = index_paths(store)
    rng.shuffle(paths)
    for path in paths:
        index = Index(path, sizes)
        if index.header[5] > 1 and wanted(index):
            return index
    raise NotHere


def _change_item(
    store: Path, sizes: Sizes, rng: random.Random, change: Callable[[int, int, int, int], tuple[int, int, int, int]]
) -> None:
    index = some_index(store, sizes, rng, lambda _: True)
    number = rng.choice(index.used)
    index.items[number] = change(*index.items[number])
    index.write()


def index_file_removed(store: Path, sizes: Sizes, rng: random.Random) -> None:
    some_index(store, sizes, rng, lambda _: True).path.unlink()


def index_removed(store: Path, sizes: Sizes, rng: random.Random) -> None:
    some_index(store, sizes, rng, lambda _: True)
    shutil.rmtree(store / "index")


def index_ends_early(store: Path, sizes: Sizes, rng: random.Random) -> None:
    """The newest items were never written, as in an older copy: header, slots and links of the rest agree."""
    index = some_index(store, sizes, rng, lambda index: len(index.used) > 1 and index.path == _last_with_items(store))
    kept = rng.randrange(1, len(index.used))
    newest = [0] * sizes.hash_slots
    for number in range(1, kept + 1):
        newest[index.items[number][0] % sizes.hash_slots] = number
    index.items[kept + 1 :] = [(0, 0, 0, 0)] * (len(index.items) - kept - 1)
    index.slots = newest
    begin = index.header[0]
    index.header[1] = begin + 1000 * index.items[kept][2]
    index.header[3:] = [index.items[kept][1], sum(map(bool, newest)), kept + 1]
    index.write()


def _last_with_items(store: Path) -> Path:
    return [path for path in index_paths(store) if HEADER.unpack_from(path.read_bytes())[5] > 1][-1]


def item_place(store: Path, sizes: Sizes, rng: random.Random) -> None:
    _change_item(store, sizes, rng, lambda key, place, diff, prev: (key, place + 1, diff, prev))


def item_hash(store: Path, sizes: Sizes, rng: random.Random) -> None:
    """Another hash of the same slot: the chain stays whole."""

    def change(key: int, place: int, diff: int, prev: int) -> tuple[int, int, int, int]:
        other = key + sizes.hash_slots if key < 0x7FFFFFFF - sizes.hash_slots else key - sizes.hash_slots
        return other, place, diff, prev

    _change_item(store, sizes, rng, change)


def item_time(store: Path, sizes: Sizes, rng: random.Random) -> None:
    """Of a first item nothing is known where the file before has expired."""
    index = some_index(store, sizes, rng, lambda index: len(index.used) > 1)
    number = rng.choice(index.used[1:])
    key, place, diff, prev = index.items[number]
    index.items[number] = (key, place, rng.choice((diff + 1, diff + 3600, -1 - diff)), prev)
    index.write()


def link_cut(store: Path, sizes: Sizes, rng: random.Random) -> None:
    index = some_index(store, sizes, rng, lambda index: any(item[3] for item in index.items))
    number = rng.choice([number for number, item in enumerate(index.items) if item[3]])
    index.items[number] = (*index.items[number][:3], rng.choice((0, 0x7FFFFFFF, -5)))
    index.write()


def slot_cleared(store: Path, sizes: Sizes, rng: random.Random) -> None:
    index = some_index(store, sizes, rng, lambda _: True)
    slot = rng.choice([slot for slot, head in enumerate(index.slots) if head])
    index.slots[slot] = rng.choice((0, -1, 0x7FFFFFFF))
    index.write()


def links_circular(store: Path, sizes: Sizes, rng: random.Random) -> None:
    index = some_index(store, sizes, rng, lambda index: any(item[3] for item in index.items))
    number = rng.choice([number for number, item in enumerate(index.items) if item[3]])
    before = index.items[number][3]
    index.items[before] = (*index.items[before][:3], number)
    index.write()


def header_field(store: Path, sizes: Sizes, rng: random.Random) -> None:
    """Any field. An indexCount below makes the last item stray, but not in a sealed file's count."""
    index = some_index(store, sizes, rng, lambda index: 2 < index.header[5] < sizes.index_items - 1)
    field = rng.randrange(6)
    index.header[field] += 1
    index.write()


def index_order(store: Path, sizes: Sizes, rng: random.Random) -> None:
    """Two neighbours take each other's names."""
    paths = [path for path in index_paths(store) if HEADER.unpack_from(path.read_bytes())[5] > 1]
    if len(paths) < 2:
        raise NotHere
    assert sizes.index_items > 1
    number = rng.randrange(len(paths) - 1)
    one, other = paths[number].read_bytes(), paths[number + 1].read_bytes()
    paths[number].write_bytes(other)
    paths[number + 1].write_bytes(one)


def index_stray(store: Path, sizes: Sizes, rng: random.Random) -> None:
    index = some_index(store, sizes, rng, lambda _: True)
    index.items[0] = (0, rng.randrange(1, FAR), 0, 0)
    index.write()


def index_file_cut(store: Path, sizes: Sizes, rng: random.Random) -> None:
    path = some_index(store, sizes, rng, lambda _: True).path
    size = path.stat().st_size
    if len(index_paths(store)) < 3:
        raise NotHere  # which of two sizes is right nobody could say
    wanted = rng.choice((size - 20, size + 20, 10))
    path.write_bytes(path.read_bytes()[:wanted].ljust(wanted, b"\0"))


def index_file_named(store: Path, sizes: Sizes, rng: random.Random) -> None:
    path = some_index(store, sizes, rng, lambda _: True).path
    shutil.copy(path, path.with_name(rng.choice(("junk", f"{path.name}.bak", f"-{path.name}"))))


# -- checkpoint and abort ------------------------------------------------------------------------------------------


def _checkpoint(store: Path, change: Callable[[list[int]], None]) -> None:
    path = store / "checkpoint"
    fields = list(CHECKPOINT.unpack_from(path.read_bytes()))
    change(fields)
    path.write_bytes(CHECKPOINT.pack(*fields).ljust(4096, b"\0"))


def checkpoint_removed(store: Path, sizes: Sizes, rng: random.Random) -> None:  # noqa: ARG001
    (store / "checkpoint").unlink()


def checkpoint_cut(store: Path, sizes: Sizes, rng: random.Random) -> None:  # noqa: ARG001
    path = store / "checkpoint"
    path.write_bytes(path.read_bytes().ljust(4200, b"\0")[: rng.choice((0, 17, 4095, 4097))])


def checkpoint_bytes(store: Path, sizes: Sizes, rng: random.Random) -> None:  # noqa: ARG001
    path = store / "checkpoint"
    data = bytearray(path.read_bytes())
    data[rng.choice((0, rng.randrange(40, 4096)))] |= 0x80
    path.write_bytes(data)


def checkpoint_stale(store: Path, sizes: Sizes, rng: random.Random) -> None:  # noqa: ARG001
    def change(fields: list[int]) -> None:
        fields[1] = rng.randrange(max(1, fields[1] - 10**9), fields[1])

    _checkpoint(store, change)


def checkpoint_ahead(store: Path, sizes: Sizes, rng: random.Random) -> None:  # noqa: ARG001
    def change(fields: list[int]) -> None:
        fields[0] = fields[1] = max(fields[:2]) + rng.randrange(1, 10**12)

    _checkpoint(store, change)


def checkpoint_index(store: Path, sizes: Sizes, rng: random.Random) -> None:
    """Below the end of a file that is full."""
    paths = [path for path in index_paths(store) if HEADER.unpack_from(path.read_bytes())[5] >= sizes.index_items]
    last = _last_with_items(store) if paths else None
    ends = [HEADER.unpack_from(path.read_bytes())[1] for path in paths if path != last]
    if not ends:
        raise NotHere

    def change(fields: list[int]) -> None:
        fields[2] = min(max(ends) - 1, rng.choice((0, max(ends) - 1)))

    _checkpoint(store, change)


def checkpoint_confirm(store: Path, sizes: Sizes, rng: random.Random) -> None:  # noqa: ARG001
    def change(fields: list[int]) -> None:
        fields[4] = FAR + rng.randrange(FAR)

    _checkpoint(store, change)


def abort_file(store: Path, sizes: Sizes, rng: random.Random) -> None:  # noqa: ARG001
    (store / "abort").write_bytes(b"")


# -- the log ----------------------------------------------------------------------------------------------------


def log_record(store: Path, sizes: Sizes, rng: random.Random) -> None:  # noqa: ARG001
    count = len(spoil.record_offsets(store))
    spoil.spoil_any(store, rng.randrange(count - 1), rng)


def log_segment(store: Path, sizes: Sizes, rng: random.Random) -> None:  # noqa: ARG001
    paths = spoil.segment_paths(store)
    if len(paths) < 4:
        raise NotHere
    spoil.remove_segment(store, rng.randrange(1, len(paths) - 2))


def log_short(store: Path, sizes: Sizes, rng: random.Random) -> None:  # noqa: ARG001
    path = spoil.segment_paths(store)[-1]
    if len(spoil.segment_paths(store)) < 2:
        raise NotHere
    path.write_bytes(path.read_bytes()[: -rng.randrange(1, 100)])


KINDS: dict[str, tuple[Callable[[Path, Sizes, random.Random], None], str]] = {
    spoiler.__name__.replace("_", "-"): (spoiler, kind)
    for spoiler, kind in (
        (unit_zeroed, "queue-unit-missing"),
        (queue_cut, "queue-unit-missing"),
        (queue_file_removed, "queue-unit-missing"),
        (queue_removed, "queue-unit-missing"),
        (unit_extra, "queue-unit-extra"),
        (queue_of_no_log, "queue-unit-extra"),
        (unit_nowhere, "queue-unit-no-record"),
        (unit_behind_the_log, "queue-unit-no-record"),
        (unit_size, "queue-unit-size"),
        (unit_tags, "queue-unit-tags"),
        (units_swapped, "queue-unit-other"),
        (unit_of_another_queue, "queue-unit-other"),
        (units_moved_up, "queue-shifted"),
        (units_moved_down, "queue-shifted"),
        (pre_blank, "queue-pre-blank"),
        (pre_blank_inside, "queue-pre-blank"),
        (queue_file_cut, "queue-file-size"),
        (queue_file_named, "queue-file-name"),
        (queue_file_empty, "queue-file-empty"),
        (index_file_removed, "index-item-missing"),
        (index_removed, "index-item-missing"),
        (index_ends_early, "index-item-missing"),
        (item_place, "index-item-extra"),
        (item_hash, "index-item-hash"),
        (item_time, "index-item-time"),
        (link_cut, "index-chain-broken"),
        (slot_cleared, "index-chain-broken"),
        (links_circular, "index-chain-circular"),
        (header_field, "index-header"),
        (index_order, "index-order"),
        (index_stray, "index-stray"),
        (index_file_cut, "index-file-size"),
        (index_file_named, "index-file-name"),
        (checkpoint_removed, "checkpoint-missing"),
        (checkpoint_cut, "checkpoint-size"),
        (checkpoint_bytes, "checkpoint-bytes"),
        (checkpoint_stale, "checkpoint-stale"),
        (checkpoint_ahead, "checkpoint-ahead"),
        (checkpoint_index, "checkpoint-index"),
        (checkpoint_confirm, "checkpoint-confirm"),
        (abort_file, "abort-file"),
        (log_record, "log-damage"),
        (log_segment, "log-segment-missing"),
        (log_short, "log-segment-short"),
    )
}
"""{name: (function, the kind by which verify must find it)}"""
