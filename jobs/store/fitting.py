"""How a store was made, as its files show: the sizes of derived files, and the versions of RocketMQ that fit."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from rocketmq_reindex import files
from rocketmq_reindex.jobs.store import contents, folders, owner, tag_items
from rocketmq_reindex.jobs.store.contents import IndexSizes
from rocketmq_reindex.jobs.store.folders import entries_in
from rocketmq_reindex.storage_format import errors, layouts, showing, versions as storage_format_versions
from rocketmq_reindex.storage_format.checkpoints import SIZE as CHECKPOINT_SIZE
from rocketmq_reindex.storage_format.index.layout import HEADER_SIZE, IndexHeader, first_items_fit, quick_sizes
from rocketmq_reindex.storage_format.queue.units import BATCH_UNIT_SIZE, UNIT_SIZE
from rocketmq_reindex.storage_format.record.layout import FLAG_TRANSACTION_MASK, TRANSACTION_ROLLBACK
from rocketmq_reindex.storage_format.record.message import Message

if TYPE_CHECKING:
    from rocketmq_reindex.udfs.verify.index import TagsFound

# ------------------------------------------------------------------------------------------------------------------------ sizes
# The sizes that the derived files were made with, as a bounded number of them show.

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
        step = math.gcd(*starts)
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
        guess = _quick(entry) or (_whole(entry) if look_into or not files.is_remote(entry.path) else None)
        if guess:
            votes[guess] += 1
    return votes.most_common(1)[0][0] if votes else None


def newest_index_sizes(entries: list[files.Entry]) -> IndexSizes | None:
    """Return the sizes of the newest IndexFile with bytes, as ``index_sizes`` gives them; None where they are not shown.

    A file that is not full shows them only as a whole. Those before it are full, and alike: theirs are tried first.
    """
    named = [entry for entry in entries if entry.size]
    for entry in [entry for entry in named if entry.size == named[-1].size][: -INDEX_ASKED - 1 : -1]:
        if (sizes := _quick(entry)) and (entry is named[-1] or _may_have(named[-1], sizes)):
            return IndexSizes(*sizes)
    whole = index_sizes(named[-1:], look_into=False)
    return IndexSizes(*whole) if whole else None


def index_ends_early(entries: list[files.Entry], log: contents.StoreLog) -> str:
    """Return that the newest IndexFiles end before the log's last record, which has keys; "" where nothing shows it.

    A broker makes the items of a record when it makes its unit, but none of one that is rolled back
    (``IndexService.buildIndex``, 4.9 to 5.5).
    """
    end = 0
    for entry in entries[-2:]:
        with contextlib.suppress(OSError, errors.InputError, ValueError), files.Reader(entry.path) as reader:
            end = max(end, IndexHeader.from_bytes(reader.read(0, HEADER_SIZE)).end_place)
    last = contents.last_record(log) if end > 0 else None
    if last is None or end >= last.phy_offset or last.sys_flag & FLAG_TRANSACTION_MASK == TRANSACTION_ROLLBACK:
        return ""
    if not (last.keys or last.unique_key):
        return ""
    return (
        f"index/: ends at offset {end}, and the log's last record, at {last.phy_offset}, has keys: by key none that lies "
        "between is found, unless the next start dispatches it"
    )


def _whole(entry: files.Entry) -> tuple[int, int] | None:
    if entry.size > files.MAPPED_MAX:
        return None
    # Brings numba; few files need it.
    from rocketmq_reindex.storage_format.index.file import guess_sizes

    with files.Reader(entry.path) as reader:
        return guess_sizes(reader.whole())


def _quick(entry: files.Entry) -> tuple[int, int] | None:
    if entry.size > files.MAPPED_MAX:
        return None
    with contextlib.suppress(OSError, errors.InputError), contextlib.closing(files.Pages(entry.path)) as pages:
        return quick_sizes(pages.read, pages.size)
    return None


def _may_have(entry: files.Entry, sizes: tuple[int, int]) -> bool:
    with contextlib.suppress(OSError, errors.InputError), contextlib.closing(files.Pages(entry.path)) as pages:
        return first_items_fit(pages.read, *sizes)
    return False


def without_items(entries: list[files.Entry]) -> bool:
    """Return whether none of these IndexFiles has an item, by their headers."""
    for entry in entries:
        with files.Reader(entry.path) as reader:
            header = IndexHeader.from_bytes(reader.read(0, HEADER_SIZE).ljust(HEADER_SIZE, b"\0"))
        if header.index_count > 1 or header.end_place:
            return False
    return True


# --------------------------------------------------------------------------------------------------------------------- versions
# Signs in a store of the version that wrote it.

# ---------------------------------------------------------------------------------------------------------------------- fitting
# Which versions of RocketMQ may have written a store, by what it holds.

_OLDEST_FIRST: Final = storage_format_versions.VERSIONS[::-1]


class Sign(NamedTuple):
    """Something that a store holds, or lacks. ``oldest`` is the first version that leaves it so, ``newest`` the last."""

    text: str
    oldest: str = _OLDEST_FIRST[0]
    newest: str = _OLDEST_FIRST[-1]


class Fit(NamedTuple):
    """``versions`` that fit all signs, newest first, and the ``best`` of them.

    Where none does, newer versions have worked on what an older one wrote: ``mixed``, and the newest one counts.
    """

    versions: tuple[str, ...]
    best: str
    mixed: bool = False


def fit(signs: Sequence[Sign]) -> Fit:
    """Return the versions that fit ``signs``: of several the newest is best."""
    oldest = max((_OLDEST_FIRST.index(sign.oldest) for sign in signs), default=0)
    newest = min((_OLDEST_FIRST.index(sign.newest) for sign in signs), default=len(_OLDEST_FIRST) - 1)
    if newest < oldest:
        return Fit((_OLDEST_FIRST[oldest],), _OLDEST_FIRST[oldest], mixed=True)
    return Fit(_OLDEST_FIRST[oldest : newest + 1][::-1], _OLDEST_FIRST[newest])


# --------------------------------------------------------------------------------------------------------------------- versions

NEWEST_FILES: Final = 16
"""IndexFiles that are looked into at most: the last ones may hold no record with TAGS"""


def of_store(store: str, log: contents.StoreLog, sizes: contents.IndexSizes | None) -> list[Sign]:
    """Return what a store says without a comparison: ``of_files``, and whether its newest records have items of TAGS.

    ``sizes`` are those of its IndexFiles: None where they are not known. What cannot be read says nothing.
    """
    signs = of_files(store, log, {})
    if sizes is None:
        return signs
    with contextlib.closing(
        contents.IndexFiles(files.join(store, "index"), sizes, folders.Notes.silent(), newest=NEWEST_FILES)
    ) as index:
        put = tag_items.are_put(index, log)
    if put is not None:
        signs.append(Sign(f"{'' if put else 'no '}items of TAGS", **({"oldest": "5.4"} if put else {"newest": "5.3"})))
    return signs


def of_files(store: str, log: contents.StoreLog, index_names: Mapping[str, str]) -> list[Sign]:
    """Return what a few bytes of the store say: its checkpoint, a folder, the header of the last IndexFile.

    ``index_names`` are the names that IndexFiles have in a store, by those that they have in this one, if these are others.
    """
    signs = list(_of_checkpoint(files.join(store, "checkpoint"), log))
    if files.entry_of(files.join(store, "rocksdbstore")).kind == files.FOLDER:
        signs.append(Sign("rocksdbstore/", oldest="5.4"))
    return [*signs, *_of_last_index_file(store, index_names)]


def _of_checkpoint(path: str, log: contents.StoreLog) -> Iterator[Sign]:
    if files.entry_of(path).size != CHECKPOINT_SIZE:
        # Brokers of all versions make a whole page. Another file says nothing.
        return
    checkpoint = owner.read_times(path)
    if checkpoint.logics_offset:
        yield Sign("logicsPhysicalOffset in the checkpoint", oldest="5.5")
    elif checkpoint.logics and not _is_one_record(log):
        # Of the record at offset 0 a broker of 5.5 says 0, too.
        yield Sign("no logicsPhysicalOffset in the checkpoint", newest="5.4")
    if checkpoint.master_flushed or checkpoint.confirm_offset:
        yield Sign("confirmPhyOffset in the checkpoint", oldest="5.3")


def _is_one_record(log: contents.StoreLog) -> bool:
    """Return whether a record at offset 0 is all of the log."""
    first = log.message(0)
    return isinstance(first, Message) and not isinstance(log.message(first.size), Message)


def _of_last_index_file(store: str, names: Mapping[str, str]) -> Iterator[Sign]:
    """Yield what the indexCount of an IndexFile without items says after a clean stop: 5.x flushes it (``IndexFile.shutdown``),
    4.9 does not. After another stop it is 0 in each version."""
    folder = files.join(store, "index")
    named = [(names.get(entry.name, entry.name), entry) for entry in folders.entries_in(folder) if entry.kind == files.FILE]
    _, last = max(
        ((name, entry) for name, entry in named if layouts.is_index_file(name)), key=lambda one: one[0], default=("", None)
    )
    if last is None or last.size < HEADER_SIZE:
        return
    with files.Reader(last.path) as reader:
        count = IndexHeader.from_bytes(reader.read(0, HEADER_SIZE)).index_count
    if count == 0 and files.entry_of(files.join(store, "abort")).kind == files.ABSENT:
        yield Sign("indexCount 0 in an IndexFile without items", newest="4.9")
    elif count == 1:
        yield Sign("indexCount 1 in an IndexFile without items", oldest="5.3")


def wait_for_tags(fits: Sequence[str]) -> bool:
    """Return whether what the index says of TAGS decides how queues are compared: ``fits`` are the versions by all else."""
    older = [version for version in fits if not storage_format_versions.RULES[version].tag_items][:1]
    return len({storage_format_versions.RULES[version].opens_empty_queue_file for version in [*fits[:1], *older]}) > 1


def of_tags(tags: TagsFound) -> list[Sign]:
    """Return what the comparison of the index says."""
    if tags.standing:
        return [Sign(f"items of TAGS ({tags.standing:,})", oldest="5.4")]
    if tags.before.is_older:
        return [Sign(f"no items of TAGS for {showing.counted(tags.count, 'record')} with TAGS", newest="5.3")]
    return []
