"""Spoils IndexFiles in one place."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

from tests.tools.spoiling import FAR, Kinds, NotHere, Sizes

HEADER = struct.Struct(">qqqqii")
ITEM = struct.Struct(">iqii")


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
    index = some_index(store, sizes, rng, lambda index: len(index.used) > 1 and index.path == last_with_items(store))
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


def last_with_items(store: Path) -> Path:
    filled = [path for path in index_paths(store) if HEADER.unpack_from(path.read_bytes())[5] > 1]
    if not filled:
        raise NotHere
    return filled[-1]


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


def empty_header(store: Path, sizes: Sizes, rng: random.Random) -> None:
    """Of a file without items: a broker that starts on it takes what it says for the end of the index."""
    for path in index_paths(store):
        index = Index(path, sizes)
        if not any(any(item) for item in index.items):
            fields = rng.choice(((0,), (1,), (2,), (3,), (0, 1), (2, 3)))
            for field in fields:
                index.header[field] += rng.choice((1, FAR << 16))
            return index.write()
    raise NotHere


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


KINDS: Kinds = {
    "index-file-removed": (index_file_removed, "index-item-missing"),
    "index-removed": (index_removed, "index-item-missing"),
    "index-ends-early": (index_ends_early, "index-item-missing"),
    "item-place": (item_place, "index-item-extra"),
    "item-hash": (item_hash, "index-item-hash"),
    "item-time": (item_time, "index-item-time"),
    "link-cut": (link_cut, "index-chain-broken"),
    "slot-cleared": (slot_cleared, "index-chain-broken"),
    "links-circular": (links_circular, "index-chain-circular"),
    "header-field": (header_field, "index-header"),
    "empty-header": (empty_header, "index-header"),
    "index-order": (index_order, "index-order"),
    "index-stray": (index_stray, "index-stray"),
    "index-file-cut": (index_file_cut, "index-file-size"),
    "index-file-named": (index_file_named, "index-file-name"),
}
