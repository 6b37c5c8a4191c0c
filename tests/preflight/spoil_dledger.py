"""Ways to spoil the log of a node of DLedger: its entries, its index, its checkpoint."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

from tests.preflight.spoiling import Spoiler

NODE = "dledger-n0"
INDEX_FILE = 5 * 1024 * 1024 * 32
HEAD = 48
FIELDS = {"magic": (0, 4), "size": (4, 4), "index": (8, 8), "term": (16, 8), "position": (24, 8), "body_size": (44, 4)}


def data_files(store: Path) -> list[Path]:
    """Files of entries."""
    return sorted((store / NODE / "data").iterdir())


def entries_in(path: Path) -> list[tuple[int, int]]:
    """Where each entry of a file begins, and its bytes."""
    data, at, found = path.read_bytes(), 0, []
    while at + HEAD <= len(data):
        kind, size = struct.unpack_from(">ii", data, at)
        if kind != 1 or size < HEAD:
            break
        found.append((at, size))
        at += size
    return found


def _place(spoiler: Spoiler, *, last: bool = False) -> tuple[Path, int, int] | None:
    """A file and an entry in it. The last files and entries are likelier."""
    paths = [path for path in data_files(spoiler.store.path) if entries_in(path)]
    if not paths:
        return None
    path = paths[-1] if last or spoiler.rng.random() < 0.5 else spoiler.rng.choice(paths)
    entries = entries_in(path)
    return path, *spoiler.rng.choice(entries[-3:] if last or spoiler.rng.random() < 0.4 else entries)


def torn_tail(spoiler: Spoiler) -> str | None:
    """The last entry never reached the disk as a whole."""
    place = _place(spoiler, last=True)
    if place is None:
        return None
    path, at, size = place
    data = bytearray(path.read_bytes())
    cut = at + spoiler.rng.randrange(size)
    data[cut:] = bytes(len(data) - cut)
    path.write_bytes(data)
    return f"{spoiler.told(path)} zeros from byte {cut} on"


def changed_header(spoiler: Spoiler) -> str | None:
    """A field of an entry's header has another value."""
    place = _place(spoiler)
    if place is None:
        return None
    path, at, _ = place
    name, (distance, size) = spoiler.rng.choice(sorted(FIELDS.items()))
    old = int.from_bytes(path.read_bytes()[at + distance : at + distance + size], "big", signed=True)
    new = spoiler.rng.choice((0, 1, 2, old + 1, max(0, old - 1), old ^ 1 << spoiler.rng.randrange(8 * size - 1)))
    spoiler.overwrite(path, at + distance, new.to_bytes(size, "big", signed=True))
    return f"{spoiler.told(path)}: {name} of the entry at byte {at} is {new}"


def changed_record(spoiler: Spoiler) -> str | None:
    """A bit of a record has another value."""
    place = _place(spoiler)
    if place is None:
        return None
    path, at, size = place
    where, bit = at + HEAD + spoiler.rng.randrange(size - HEAD), spoiler.rng.randrange(8)
    spoiler.overwrite(path, where, bytes([path.read_bytes()[where] ^ 1 << bit]))
    return f"{spoiler.told(path)}: bit {bit} of byte {where} flipped, in the entry at byte {at}"


def zeroed(spoiler: Spoiler) -> str | None:
    """An entry is all zeros."""
    place = _place(spoiler)
    if place is None:
        return None
    path, at, size = place
    spoiler.overwrite(path, at, bytes(size))
    return f"{spoiler.told(path)}: the entry at byte {at} is zeros"


def stale_tail(spoiler: Spoiler) -> str | None:
    """Behind the last entry lie bytes of entries that a node cut off, here copies of others with an older index."""
    place = _place(spoiler)
    if place is None:
        return None
    path, at, size = place
    last = [path for path in data_files(spoiler.store.path) if entries_in(path)][-1]
    end = sum(entries_in(last)[-1])
    data = bytearray(path.read_bytes()[at : at + size])
    if end + size > last.stat().st_size:
        return None
    struct.pack_into(">q", data, 24, int(last.name) + end)
    spoiler.overwrite(last, end, bytes(data))
    return f"{spoiler.told(last)}: a copy of an older entry at byte {end}"


def lost_file(spoiler: Spoiler) -> str | None:
    """A file of entries is gone; mostly the last or the first."""
    paths = data_files(spoiler.store.path)
    if not paths:
        return None
    path = spoiler.rng.choice((paths[0], paths[-1], paths[-1], spoiler.rng.choice(paths)))
    path.unlink()
    return f"{spoiler.told(path)} deleted"


def spare_file(spoiler: Spoiler) -> str | None:
    """A file of zeros behind the last one, as a node makes it when the last one is full."""
    paths = data_files(spoiler.store.path)
    if not paths:
        return None
    size = spoiler.store.sizes.segment
    path = paths[-1].with_name(f"{int(paths[-1].name) + size:020d}")
    path.write_bytes(bytes(size))
    return f"{spoiler.told(path)} made, of zeros"


def wrong_size(spoiler: Spoiler) -> str | None:
    """A file of entries or of the index is cut short."""
    paths = [*data_files(spoiler.store.path), *_index(spoiler)]
    if not paths:
        return None
    path = spoiler.rng.choice(paths)
    size = max(0, path.stat().st_size - spoiler.rng.choice((1, 8, 4096)))
    with path.open("r+b") as file:
        file.truncate(size)
    return f"{spoiler.told(path)} cut to {size} bytes"


def wrong_name(spoiler: Spoiler) -> str | None:
    """A file of notes among those of entries, as large as they are."""
    folder = spoiler.store.path / NODE / spoiler.rng.choice(("data", "index"))
    if not folder.is_dir():
        return None
    size = spoiler.store.sizes.segment if folder.name == "data" else INDEX_FILE
    with (folder / "notes").open("wb") as file:
        file.truncate(size)
    return f"{spoiler.told(folder)}/notes made"


def _index(spoiler: Spoiler) -> list[Path]:
    folder = spoiler.store.path / NODE / "index"
    return sorted(folder.iterdir()) if folder.is_dir() else []


def no_index(spoiler: Spoiler) -> str | None:
    """The index is gone."""
    if not _index(spoiler):
        return None
    shutil.rmtree(spoiler.store.path / NODE / "index")
    return "the index of DLedger deleted"


def changed_index(spoiler: Spoiler) -> str | None:
    """Bytes of the index have other values, from the entry of one number on, or of one alone."""
    paths, files = _index(spoiler), data_files(spoiler.store.path)
    if not paths or not files:
        return None
    count = sum(len(entries_in(path)) for path in files)
    number = spoiler.rng.randrange(max(0, count - spoiler.rng.choice((1, 5, count or 1))), max(1, count))
    units = spoiler.rng.choice((1, count))
    spoiler.overwrite(paths[0], 32 * number, spoiler.rng.choice((bytes(32), spoiler.rng.randbytes(32))) * units)
    return f"the index of DLedger overwritten from entry {number} on: {units}"


def no_checkpoint(spoiler: Spoiler) -> str | None:
    """The node does not know what is committed."""
    path = spoiler.store.path / NODE / "checkpoint"
    if not path.exists():
        return None
    path.unlink()
    return "the checkpoint of DLedger deleted"


def older_checkpoint(spoiler: Spoiler) -> str | None:
    """The node was killed: its checkpoint is older than its entries."""
    path = spoiler.store.path / NODE / "checkpoint"
    if not path.exists():
        return None
    last = int(path.read_text().split("committedIndex=")[1].split()[0])
    index = max(-1, last - spoiler.rng.choice((-5, 1, 2, 7, 30, last // 2, last + 1)))
    path.write_text(f"endIndex={index}\ncommittedIndex={index}\n")
    return f"the checkpoint of DLedger says {index}"


ENTRIES = (torn_tail, torn_tail, changed_header, changed_header, changed_record, changed_record, zeroed, stale_tail)
FILES = (lost_file, lost_file, spare_file, spare_file, wrong_size, wrong_name)
BESIDE = (no_index, changed_index, changed_index, no_checkpoint, older_checkpoint, older_checkpoint, older_checkpoint)
