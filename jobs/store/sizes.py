"""The sizes that the derived files of a store were made with, as a bounded number of them show."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from rocketmq_reindex import files
from rocketmq_reindex.jobs.store.contents import IndexSizes
from rocketmq_reindex.jobs.store.folders import entries_in
from rocketmq_reindex.storage_format import errors, layouts
from rocketmq_reindex.storage_format.index.file import guess_sizes
from rocketmq_reindex.storage_format.index.header import HEADER_SIZE, IndexHeader, quick_sizes
from rocketmq_reindex.storage_format.queue.units import BATCH_UNIT_SIZE, UNIT_SIZE

INDEX_ASKED: Final = 4
QUEUES: Final = (("cq_file_size", layouts.QUEUES, UNIT_SIZE), ("batch_cq_file_size", layouts.BATCH_QUEUES, BATCH_UNIT_SIZE))
"""of each kind of ConsumeQueue: the setting of its files' size, its folder in a store, and the size of a unit"""
LOOKED_AT: Final = (20, 2)
"""So many topics, and queues of each. Behind a URI each costs a request or two:"""
LOOKED_AT_REMOTE: Final = (4, 1)


class UsualSizes:
    """The sizes of files: ``usual`` is the one that most have, of those that fit the files' own names; 0 for none.

    It ``is_certain`` where several files have it: one alone may be torn, or cut by a copy.
    """

    def __init__(self, entries: Iterable[files.Entry], unit: int) -> None:
        sizes, starts = Counter[int](), list[int]()
        for entry in entries:
            start = layouts.first_byte(entry.name)
            if start is not None:
                sizes[entry.size] += 1
                starts.append(start)
        whole = {size: count for size, count in sizes.items() if size and size % unit == 0}
        step = int(np.gcd.reduce(np.array(starts, np.int64))) if starts else 0
        fitting = {size: count for size, count in whole.items() if step % size == 0} or whole
        self.usual = max(fitting, key=lambda size: (fitting[size], size), default=0)
        self.is_certain = sizes[self.usual] > 1
        self.others = sorted(sizes.keys() - {self.usual})


def sampled_sizes(folder: str, unit: int) -> UsualSizes:
    """Return the sizes of the files of a few queues in a folder."""
    return UsualSizes(queue_files(folder, *(LOOKED_AT_REMOTE if files.is_remote(folder) else LOOKED_AT)), unit)


def queue_files(folder: str, topics: int = 0, queues: int = 0) -> Iterator[files.Entry]:
    """Yield the files of the queues in a folder. ``topics`` and ``queues`` limit how many are looked at, evenly spread."""
    for topic in _spread(entries_in(folder), topics):
        ids = [entry for entry in entries_in(topic.path) if layouts.queue_id(entry.name) is not None]
        for queue in _spread(ids, queues):
            yield from (entry for entry in entries_in(queue.path) if entry.kind == files.FILE)


def _spread(entries: list[files.Entry], count: int) -> list[files.Entry]:
    if not count or len(entries) <= count:
        return entries
    return [entries[number * len(entries) // count] for number in range(count)]


def index_files(store: str) -> list[files.Entry]:
    """Return the IndexFiles of a store, by their names."""
    return [e for e in entries_in(files.join(store, "index")) if e.kind == files.FILE and layouts.is_index_file(e.name)]


def index_sizes(entries: list[files.Entry], look_into: bool = True) -> tuple[int, int] | None:
    """Return (slots, items) as a few of these files, which have one size, show; None where they do not.

    Behind a URI a whole file is not read for it, unless ``look_into``.
    """
    votes = Counter[tuple[int, int]]()
    for entry in entries[:INDEX_ASKED]:
        guess = _whole(entry) if look_into or not files.is_remote(entry.path) else _quick(entry)
        if guess:
            votes[guess] += 1
    return votes.most_common(1)[0][0] if votes else None


def newest_index_sizes(entries: list[files.Entry]) -> IndexSizes | None:
    """Return the sizes of the newest IndexFile with bytes, as ``index_sizes`` gives them."""
    sizes = index_sizes([entry for entry in entries if entry.size][-1:], look_into=False)
    return IndexSizes(*sizes) if sizes else None


def _whole(entry: files.Entry) -> tuple[int, int] | None:
    if entry.size > files.MAPPED_MAX:
        return None
    with files.Reader(entry.path) as reader:
        return guess_sizes(reader.whole())


def _quick(entry: files.Entry) -> tuple[int, int] | None:
    try:
        pages = files.Pages(entry.path)
    except (OSError, errors.InputError):
        return None
    try:
        return quick_sizes(pages.read, pages.size)
    finally:
        pages.close()


def without_items(entries: list[files.Entry]) -> bool:
    """Return whether none of these IndexFiles has an item, by their headers."""
    for entry in entries:
        with files.Reader(entry.path) as reader:
            header = IndexHeader.from_bytes(reader.read(0, HEADER_SIZE).ljust(HEADER_SIZE, b"\0"))
        if header.index_count > 1 or header.end_place:
            return False
    return True
