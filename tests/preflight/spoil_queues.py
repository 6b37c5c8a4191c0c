"""Ways to spoil ConsumeQueues."""

from __future__ import annotations

import shutil
import struct

from tests.preflight.spoiling import Spoiler, filled

UNIT = 20


def all_gone(spoiler: Spoiler) -> str | None:
    """No consumequeue folder."""
    shutil.rmtree(spoiler.store.path / "consumequeue", ignore_errors=True)
    return "consumequeue/ deleted"


def topic_gone(spoiler: Spoiler) -> str | None:
    """A topic's folder."""
    queues = spoiler.store.queues()
    if not queues:
        return None
    topic = spoiler.rng.choice(queues).parent
    shutil.rmtree(topic)
    return f"{spoiler.told(topic)} deleted"


def queue_gone(spoiler: Spoiler) -> str | None:
    """A queue's folder, or what it holds."""
    queues = spoiler.store.queues()
    if not queues:
        return None
    queue = spoiler.rng.choice(queues)
    shutil.rmtree(queue)
    if spoiler.rng.random() < 0.3:
        queue.mkdir()
    return f"{spoiler.told(queue)} deleted"


def file_gone(spoiler: Spoiler) -> str | None:
    """A file of a queue: the first, the last or another."""
    queues = [queue for queue in spoiler.store.queues() if any(queue.iterdir())]
    if not queues:
        return None
    files = sorted(spoiler.rng.choice(queues).iterdir())
    path = spoiler.rng.choice((files[0], files[-1], spoiler.rng.choice(files)))
    path.unlink()
    return f"{spoiler.told(path)} deleted"


def cut(spoiler: Spoiler) -> str | None:
    """The newest units of one queue, or of each, were never written."""
    queues = [queue for queue in spoiler.store.queues() if any(queue.iterdir())]
    if not queues:
        return None
    chosen = queues if spoiler.rng.random() < 0.3 else [spoiler.rng.choice(queues)]
    count = spoiler.rng.choice((1, 1, 2, 30))
    for queue in chosen:
        path = max(queue.iterdir())
        end = filled(path)
        end += -end % UNIT
        spoiler.overwrite(path, max(0, end - count * UNIT), bytes(count * UNIT))
    return f"{count} units cut from {len(chosen)} queues"


def zeroed_units(spoiler: Spoiler) -> str | None:
    """Units of zeros amid others."""
    return _change(spoiler, "zeroed", lambda unit: bytes(len(unit)))


def noise(spoiler: Spoiler) -> str | None:
    """Units of noise."""
    return _change(spoiler, "noise", lambda unit: spoiler.rng.randbytes(len(unit)))


def beyond(spoiler: Spoiler) -> str | None:
    """Units that point behind the log's end, or before its beginning."""
    by = spoiler.rng.choice((1 << 14, 1 << 20, 1 << 40, -(1 << 14), -100, 100))

    def moved(units: bytes) -> bytes:
        found = list(struct.iter_unpack(">qiq", units))
        return b"".join(struct.pack(">qiq", offset + by, size, tags) for offset, size, tags in found)

    return _change(spoiler, f"moved in the log by {by}", moved)


def wrong_tags(spoiler: Spoiler) -> str | None:
    """Units with another tagsCode or size."""

    def changed(units: bytes) -> bytes:
        found = list(struct.iter_unpack(">qiq", units))
        return b"".join(struct.pack(">qiq", offset, size + (1 if tags % 2 else 0), tags + 1) for offset, size, tags in found)

    return _change(spoiler, "changed in size or tags", changed)


def _change(spoiler: Spoiler, name: str, change: object) -> str | None:
    files = [path for path in spoiler.store.queue_files() if filled(path)]
    if not files:
        return None
    path = max(spoiler.rng.choice(files).parent.iterdir()) if spoiler.rng.random() < 0.5 else spoiler.rng.choice(files)
    units = -(-filled(path) // UNIT)
    if not units:
        return None
    at = spoiler.rng.choice((0, units - 1, spoiler.rng.randrange(units)))
    count = min(units - at, spoiler.rng.choice((1, 2, 10, 1000)))
    data = path.read_bytes()[at * UNIT : (at + count) * UNIT]
    assert callable(change)
    spoiler.overwrite(path, at * UNIT, change(data))
    return f"{spoiler.told(path)} units {at} to {at + count - 1} {name}"


def shifted(spoiler: Spoiler) -> str | None:
    """All units of a file one place off."""
    files = [path for path in spoiler.store.queue_files() if filled(path)]
    if not files:
        return None
    path = spoiler.rng.choice(files)
    data = path.read_bytes()
    later = spoiler.rng.random() < 0.5
    path.write_bytes((bytes(UNIT) + data)[: len(data)] if later else data[UNIT:] + bytes(UNIT))
    return f"{spoiler.told(path)} shifted {'up' if later else 'down'}"


def empty_file(spoiler: Spoiler) -> str | None:
    """A file of zeros more: RocketMQ makes one when it writes the unit before it."""
    queues = [queue for queue in spoiler.store.queues() if any(queue.iterdir())]
    if not queues:
        return None
    last = max(spoiler.rng.choice(queues).iterdir())
    path = last.with_name(f"{int(last.name) + spoiler.store.sizes.cq_file:020d}")
    path.write_bytes(bytes(spoiler.store.sizes.cq_file))
    return f"{spoiler.told(path)} added"


def wrong_size(spoiler: Spoiler) -> str | None:
    """A file too short or too long."""
    files = spoiler.store.queue_files()
    if not files:
        return None
    path = spoiler.rng.choice(files)
    data = path.read_bytes()
    size = spoiler.rng.choice((0, len(data) - UNIT, len(data) + UNIT))
    path.write_bytes(data[:size].ljust(size, b"\0"))
    return f"{spoiler.told(path)} of {size} bytes"


def renamed(spoiler: Spoiler) -> str | None:
    """A file moved by some units, or files."""
    files = spoiler.store.queue_files()
    if not files:
        return None
    path = spoiler.rng.choice(files)
    by = spoiler.rng.choice((UNIT, spoiler.store.sizes.cq_file, 5 * spoiler.store.sizes.cq_file))
    target = path.with_name(f"{int(path.name) + by:020d}")
    if target.exists():
        return None
    path.rename(target)
    return f"{spoiler.told(path)} renamed {target.name}"


LOST = (all_gone, all_gone, topic_gone, queue_gone, file_gone, file_gone)
DAMAGED = (cut, cut, zeroed_units, noise, beyond, beyond, wrong_tags, shifted, empty_file, wrong_size, renamed)
