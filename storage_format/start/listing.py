"""The folders of a store as a start lists them: names, kinds and sizes of what lies there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest

FILE, FOLDER, OTHER = "file", "folder", "other"


@dataclass(frozen=True, slots=True)
class Listed:
    """One entry of a folder. ``path`` is how messages name it; ``size`` as ``File.length`` gives it: 0 for what is no file."""

    name: str
    path: str
    kind: str
    """FILE, FOLDER or OTHER; a link without an end is OTHER"""
    size: int = 0
    modified: int = 0
    """of a file, when it was written last"""


@dataclass(frozen=True, slots=True)
class ListedQueue:
    """What lies under a topic's folder, by its ``name``; ``files`` is None where it is no folder."""

    topic: str
    name: str
    path: str
    files: Sequence[Listed] | None
    batch: bool = False
    """it lies in ``batchconsumequeue``"""


@dataclass(frozen=True)
class Listing:
    """The folders of a store, as ``File.listFiles`` gives them; entries are in any order, the queues of a topic together."""

    segments: Sequence[Listed] = ()
    queues: Sequence[ListedQueue] = ()
    indexes: Sequence[Listed] = ()
    checkpoint: Listed | None = None
    lock: Listed | None = None
    lock_holder: int | None = None
    """the process that holds the lock, 0 for one that is not known, None for nobody"""
    timer_log: Sequence[Listed] = ()
    timer_wheel: Listed | None = None
    timer_check: Listed | None = None
    abort: Listed | None = None
    queue_types: Mapping[str, str] = field(default_factory=dict)
    """``queue.type`` by topic, of ``config/topics.json``, for topics that have it"""

    def files(self) -> Iterator[Listed]:
        """All regular files that it has."""
        places = (self.checkpoint, self.lock, self.timer_wheel, self.timer_check, self.abort)
        of_queues = (queue.files or () for queue in self.queues)
        for listed in chain((self.segments, self.indexes, self.timer_log, places), of_queues):
            yield from (one for one in listed if one is not None and one.kind == FILE)


def first_change(before: Listing, now: Listing) -> str | None:
    """The path of a file that is another in ``now``, is gone or new; None where all are the same."""
    for one, other in zip_longest(before.files(), now.files()):
        if one != other:
            return min(file.path for file in (one, other) if file is not None)
    return None
