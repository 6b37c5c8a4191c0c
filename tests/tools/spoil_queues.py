"""Spoils ConsumeQueue files in one place."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

from tests.tools.spoiling import FAR, Kinds, NotHere, Sizes

UNIT = struct.Struct(">qiq")
PRE_BLANK = (0, 0x7FFFFFFF, 0)


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
    name = rng.choice((f"{int(path.name) + 20:020d}", "7"))
    shutil.copy(path, path.with_name(name))
    assert sizes.cq_file_size > 20


def queue_file_stray(store: Path, sizes: Sizes, rng: random.Random) -> None:  # noqa: ARG001
    path = rng.choice(some_queue(store, rng, lambda queue: len(queue.paths) > 0).paths)
    shutil.copy(path, path.with_name(rng.choice(("junk", f"{path.name}.bak", "\N{SUPERSCRIPT TWO}" * 20, "9" * 20))))


def queue_file_empty(store: Path, sizes: Sizes, rng: random.Random) -> None:
    """Behind a full last file, or else as the only file of a queue that begins later."""
    full = [queue.paths[-1] for folder in queue_folders(store) if (queue := Queue(folder)).units[-1][1] > 0]
    folder = rng.choice(full).parent if full else store / "consumequeue" / "NoSuchTopic" / "0"
    folder.mkdir(parents=True, exist_ok=True)
    last = max((int(path.name) for path in folder.iterdir()), default=0)
    (folder / f"{last + sizes.cq_file_size:020d}").write_bytes(bytes(sizes.cq_file_size))


KINDS: Kinds = {
    "unit-zeroed": (unit_zeroed, "queue-unit-missing"),
    "queue-cut": (queue_cut, "queue-unit-missing"),
    "queue-file-removed": (queue_file_removed, "queue-unit-missing"),
    "queue-removed": (queue_removed, "queue-unit-missing"),
    "unit-extra": (unit_extra, "queue-unit-extra"),
    "queue-of-no-log": (queue_of_no_log, "queue-unit-extra"),
    "unit-nowhere": (unit_nowhere, "queue-unit-no-record"),
    "unit-behind-the-log": (unit_behind_the_log, "queue-unit-no-record"),
    "unit-size": (unit_size, "queue-unit-size"),
    "unit-tags": (unit_tags, "queue-unit-tags"),
    "units-swapped": (units_swapped, "queue-unit-other"),
    "unit-of-another-queue": (unit_of_another_queue, "queue-unit-other"),
    "units-moved-up": (units_moved_up, "queue-shifted"),
    "units-moved-down": (units_moved_down, "queue-shifted"),
    "pre-blank": (pre_blank, "queue-pre-blank"),
    "pre-blank-inside": (pre_blank_inside, "queue-pre-blank"),
    "queue-file-cut": (queue_file_cut, "queue-file-size"),
    "queue-file-named": (queue_file_named, "queue-file-name"),
    "queue-file-stray": (queue_file_stray, "queue-file-stray"),
    "queue-file-empty": (queue_file_empty, "queue-file-empty"),
}
