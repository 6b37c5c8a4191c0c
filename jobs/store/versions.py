"""Signs in a store of the version that wrote it, and which versions fit them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Final, NamedTuple

from rocketmq_reindex import files
from rocketmq_reindex.jobs.store import contents, folders, lock, tag_items
from rocketmq_reindex.storage_format import layouts, showing, versions as storage_format_versions
from rocketmq_reindex.storage_format.checkpoint import SIZE as CHECKPOINT_SIZE
from rocketmq_reindex.storage_format.index.header import HEADER_SIZE, IndexHeader
from rocketmq_reindex.storage_format.record.message import Message
from rocketmq_reindex.udfs.verify.tags import TagsFound

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
    with closing(contents.IndexFiles(files.join(store, "index"), sizes, folders.Notes.silent(), newest=NEWEST_FILES)) as index:
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
    checkpoint = lock.read_times(path)
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
