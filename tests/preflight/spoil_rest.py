"""Ways to spoil the checkpoint, the IndexFiles, and what else lies in a store."""

from __future__ import annotations

import shutil
import struct

from tests.preflight.spoiling import Spoiler


def no_checkpoint(spoiler: Spoiler) -> str | None:
    """It is gone."""
    path = spoiler.store.path / "checkpoint"
    path.unlink(missing_ok=True)
    return "checkpoint deleted"


def zero_checkpoint(spoiler: Spoiler) -> str | None:
    """It is all zeros."""
    (spoiler.store.path / "checkpoint").write_bytes(bytes(4096))
    return "checkpoint zeroed"


def other_times(spoiler: Spoiler) -> str | None:
    """One of its fields, or all of its times, older or newer."""
    path = spoiler.store.path / "checkpoint"
    if not path.exists() or path.stat().st_size < 48:
        return None
    data = path.read_bytes()
    fields = list(struct.unpack_from(">6q", data))
    which = spoiler.rng.choice(((0,), (1,), (2,), (0, 1, 2), (0, 1), (3,), (4,), (5,)))
    if which[0] > 2:
        change = spoiler.rng.choice((-1, 0, 1 << 14, 1 << 40))
        new = [change if number in which else value for number, value in enumerate(fields)]
    else:
        change = spoiler.rng.choice((-5_000, -60_000, -(10**9), 10**9, -(10**15)))
        new = [max(0, value + change) if number in which else value for number, value in enumerate(fields)]
    path.write_bytes(struct.pack(">6q", *new) + data[48:])
    return f"checkpoint fields {which}: {new} for {fields}"


def checkpoint_size(spoiler: Spoiler) -> str | None:
    """Cut, or too long."""
    path = spoiler.store.path / "checkpoint"
    if not path.exists():
        return None
    size = spoiler.rng.choice((0, 24, 40, 8192))
    path.write_bytes(path.read_bytes()[:size].ljust(size, b"\0"))
    return f"checkpoint of {size} bytes"


def no_index(spoiler: Spoiler) -> str | None:
    """No index folder."""
    shutil.rmtree(spoiler.store.path / "index", ignore_errors=True)
    return "index/ deleted"


def index_gone(spoiler: Spoiler) -> str | None:
    """One IndexFile."""
    files = spoiler.store.indexes()
    if not files:
        return None
    number = spoiler.rng.choice((0, len(files) - 1, spoiler.rng.randrange(len(files))))
    files[number].unlink()
    return f"IndexFile {number} of {len(files)} deleted"


def index_size(spoiler: Spoiler) -> str | None:
    """An IndexFile cut or too long."""
    files = spoiler.store.indexes()
    if not files:
        return None
    number = spoiler.rng.choice((len(files) - 1, spoiler.rng.randrange(len(files))))
    data = files[number].read_bytes()
    size = spoiler.rng.choice((0, 20, len(data) // 2, len(data) - 20, len(data) + 20))
    files[number].write_bytes(data[:size].ljust(size, b"\0"))
    return f"IndexFile {number} of {len(files)} of {size} bytes"


def index_header(spoiler: Spoiler) -> str | None:
    """A field of an IndexFile's header."""
    files = spoiler.store.indexes()
    if not files:
        return None
    number = spoiler.rng.choice((len(files) - 1, spoiler.rng.randrange(len(files))))
    where, form, change = spoiler.rng.choice((
        (8, ">q", 10**9), (8, ">q", -(10**9)), (24, ">q", 1 << 40), (24, ">q", -(1 << 14)),
        (36, ">i", -3), (36, ">i", -(10**6)),
    ))  # fmt: skip
    old = struct.unpack_from(form, files[number].read_bytes().ljust(40, b"\0"), where)[0]
    spoiler.overwrite(files[number], where, struct.pack(form, max(0, old + change)))
    return f"IndexFile {number} of {len(files)}: {max(0, old + change)} for {old} at {where}"


def zero_index(spoiler: Spoiler) -> str | None:
    """An IndexFile of zeros: it was made, and not written."""
    files = spoiler.store.indexes()
    if not files:
        return None
    path = files[-1]
    path.write_bytes(bytes(path.stat().st_size))
    return "last IndexFile zeroed"


def stray(spoiler: Spoiler) -> str | None:
    """A file or a folder that is no part of a store."""
    queues = spoiler.store.queues()
    places = [spoiler.store.path / name for name in ("commitlog", "index", "consumequeue")] + queues[:1]
    place = spoiler.rng.choice([place for place in places if place.is_dir()])
    target = place / spoiler.rng.choice(("notes.txt", "lost+found", "00000000000000000001.bak"))
    if spoiler.rng.random() < 0.5:
        target.mkdir(exist_ok=True)
    elif not target.exists():
        target.write_bytes(b"notes")
    return f"{spoiler.told(target)} added"


CHECKPOINT = (no_checkpoint, zero_checkpoint, other_times, other_times, other_times, other_times, checkpoint_size)
INDEX = (no_index, index_gone, index_gone, index_size, index_header, index_header, zero_index)
FILES = (stray,)
