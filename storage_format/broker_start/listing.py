"""The folders of a store as a start lists them, in arrays: a store may have hundreds of thousands.

A long sequence whose members lie in arrays makes each when it is asked for. Each command imports this, and nothing else of a
start.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import Any, Final, TypeVar, overload

from rocketmq_reindex.storage_format import layouts
from rocketmq_reindex.storage_format.showing import counted

# -------------------------------------------------------------------------------------------------------------------- on demand


T = TypeVar("T")


class OnDemand(Sequence[T]):
    """``length`` members, which ``make`` makes of their numbers. The last one made is kept. A copy of it is a list."""

    __slots__ = ("_last", "_length", "_make")

    def __init__(self, length: int, make: Callable[[int], T]) -> None:
        self._length, self._make = length, make
        self._last: tuple[int, T] | None = None

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return list(map(self._make, range(self._length)[index]))
        last = self._last
        if last is None or last[0] != index:
            number = range(self._length)[index]
            last = self._last = number, self._make(number)
        return last[1]

    def __iter__(self) -> Iterator[T]:
        return map(self._make, range(self._length))

    def __deepcopy__(self, memo: dict[int, Any]) -> list[T]:
        return list(self)


# ---------------------------------------------------------------------------------------------------------------------- listing

FILE, FOLDER, OTHER = "file", "folder", "other"
_NUMBER: Final = re.compile(r"[+-]?\d{1,255}")


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
    ext: Sequence[ListedQueue] = ()
    """queues in ``consumequeue_ext``, for a broker with ``enableConsumeQueueExt``"""
    entries: Sequence[Listed] = ()
    """files of the log of a node of DLedger, for a store that has one"""
    entry_index: Sequence[Listed] = ()
    """files of its index"""

    def files(self) -> Iterator[Listed]:
        """Yield all regular files that it has."""
        places = (self.checkpoint, self.lock, self.timer_wheel, self.timer_check, self.abort)
        of_queues = (queue.files or () for queue in chain(self.queues, self.ext))
        of_logs = self.segments, self.entries, self.entry_index
        for listed in chain((*of_logs, self.indexes, self.timer_log, places), of_queues):
            yield from (file for file in listed if file is not None and file.kind == FILE)


ENTRY_INDEX_FILE: Final = 5 * 1024 * 1024 * 32
"""bytes of a file of DLedger's index (``DLedgerConfig.mappedFileSizeForEntryIndex``), which no broker sets"""


def faults_of_entries(entries: Sequence[Listed], size: int) -> Iterator[tuple[str, Listed, str]]:
    """Yield what is wrong with a folder of DLedger: kind, file, in words (``MmapFileList.doLoad``). It takes no other file."""
    for entry in entries:
        if entry.kind != FILE or entry.size != size:
            has = f"has {counted(entry.size, 'byte')}" if entry.kind == FILE else "is no regular file"
            yield "entry-file-size", entry, f"{has}, where files of {size:,} bytes belong"
        elif not layouts.is_number(entry.name):
            yield "entry-file-name", entry, "has a name that is no offset"


def first_change(before: Listing, now: Listing) -> str | None:
    """Return the path of a file that is another in ``now``, is gone or new; None where all are the same."""
    for earlier, later in zip_longest(before.files(), now.files()):
        if earlier != later:
            return min(file.path for file in (earlier, later) if file is not None)
    return None


def parse_int(text: str) -> int | None:
    """Return the number that ``Integer.parseInt`` makes of a name, with a sign and digits of any script; None where it makes
    none."""
    if not _NUMBER.fullmatch(text):
        return None
    number = int(text)
    return number if layouts.INT32_MIN <= number <= layouts.INT32_MAX else None


def java_order(entry: Listed) -> bytes:
    """Return a sort key that orders names as ``String.compareTo`` does: by UTF-16 code units."""
    return entry.name.encode("utf-16-be", "surrogatepass")


# ---------------------------------------------------------------------------------------------------------------- listed queues
# The folders of all queues of a store, in arrays: a store may have hundreds of thousands.

_KINDS: Final = (FILE, FOLDER, OTHER)
_NO_FOLDER: Final = -1
"""as the number of files of what is no folder"""


class QueueColumns:
    """Takes queues in the order of their topics, and gives them back."""

    def __init__(self) -> None:
        self._topics: list[tuple[str, str, bool]] = []
        """name, folder and kind of each topic"""
        self._topic, self._first, self._count = array("i"), array("q"), array("i")
        self._names, self._files = _Names(), _Names()
        self._kind, self._size, self._modified = array("b"), array("q"), array("q")

    def add(self, queue: ListedQueue) -> None:
        """Take the next queue. Its path ends with its name, those of its files with theirs."""
        topic = queue.topic, queue.path.rpartition("/")[0], queue.batch
        if not self._topics or self._topics[-1] != topic:
            self._topics.append(topic)
        self._topic.append(len(self._topics) - 1)
        self._names.add(queue.name)
        self._first.append(len(self._kind))
        self._count.append(_NO_FOLDER if queue.files is None else len(queue.files))
        for file in queue.files or ():
            self._files.add(file.name)
            self._kind.append(_KINDS.index(file.kind))
            self._size.append(file.size)
            self._modified.append(file.modified)

    def queues(self) -> OnDemand[ListedQueue]:
        """Return all of them."""
        return OnDemand(len(self._topic), self._queue)

    def _queue(self, number: int) -> ListedQueue:
        topic, folder, batch = self._topics[self._topic[number]]
        name = self._names.get(number)
        path, first, count = f"{folder}/{name}", self._first[number], self._count[number]
        files = None if count == _NO_FOLDER else tuple(self._file(path, at) for at in range(first, first + count))
        return ListedQueue(topic, name, path, files, batch)

    def _file(self, folder: str, at: int) -> Listed:
        name = self._files.get(at)
        return Listed(name, f"{folder}/{name}", _KINDS[self._kind[at]], self._size[at], self._modified[at])


class _Names:
    """Texts, one behind the other. A name that is no text has surrogates in it."""

    def __init__(self) -> None:
        self._bytes, self._ends = bytearray(), array("q", [0])

    def add(self, name: str) -> None:
        self._bytes += name.encode("utf-8", "surrogatepass")
        self._ends.append(len(self._bytes))

    def get(self, number: int) -> str:
        return self._bytes[self._ends[number] : self._ends[number + 1]].decode("utf-8", "surrogatepass")
