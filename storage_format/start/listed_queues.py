"""The folders of all queues of a store, in arrays: a store may have hundreds of thousands."""

from __future__ import annotations

from array import array
from typing import Final

from rocketmq_reindex.storage_format.start.listing import FILE, FOLDER, OTHER, Listed, ListedQueue
from rocketmq_reindex.storage_format.start.on_demand import OnDemand

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
        """All of them."""
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
