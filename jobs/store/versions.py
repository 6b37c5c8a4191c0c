"""Signs in a store of the version that wrote it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Final

from rocketmq_reindex.jobs.store.checkpoint import read_times
from rocketmq_reindex.jobs.store.folders import entries_of
from rocketmq_reindex.jobs.store.index_files import IndexFiles, IndexSizes
from rocketmq_reindex.jobs.store.log import StoreLog
from rocketmq_reindex.jobs.store.notes import Notes
from rocketmq_reindex.jobs.store.tag_items import are_put
from rocketmq_reindex.storage_format.checkpoint import SIZE
from rocketmq_reindex.storage_format.checks.fitting import Sign
from rocketmq_reindex.storage_format.file_names import is_index_file
from rocketmq_reindex.storage_format.index.header import HEADER_SIZE, IndexHeader
from rocketmq_reindex.storage_format.plurals import counted
from rocketmq_reindex.storage_format.record.message import Message
from rocketmq_reindex.storage_format.versions import RULES
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.verify.tags import TagsFound

NEWEST_FILES: Final = 16
"""IndexFiles that are looked into at most: the last ones may hold no record with TAGS"""


def of_store(store: str, log: StoreLog, sizes: IndexSizes | None) -> list[Sign]:
    """Return what a store says without a comparison: ``of_files``, and whether its newest records have items of TAGS.

    ``sizes`` are those of its IndexFiles: None where they are not known. What cannot be read says nothing.
    """
    signs = of_files(store, log, {})
    if sizes is None:
        return signs
    with closing(IndexFiles(files.join(store, "index"), sizes, Notes.silent(), newest=NEWEST_FILES)) as index:
        put = are_put(index, log)
    if put is not None:
        signs.append(Sign(f"{'' if put else 'no '}items of TAGS", **({"oldest": "5.4"} if put else {"newest": "5.3"})))
    return signs


def of_files(store: str, log: StoreLog, index_names: Mapping[str, str]) -> list[Sign]:
    """Return what a few bytes of the store say: its checkpoint, a folder, the header of the last IndexFile.

    ``index_names`` are the names that IndexFiles have in a store, by those that they have in this one, if these are others.
    """
    signs = list(_of_checkpoint(files.join(store, "checkpoint"), log))
    if files.entry_of(files.join(store, "rocksdbstore")).kind == files.FOLDER:
        signs.append(Sign("rocksdbstore/", oldest="5.4"))
    return [*signs, *_of_last_index_file(store, index_names)]


def _of_checkpoint(path: str, log: StoreLog) -> Iterator[Sign]:
    if files.entry_of(path).size != SIZE:
        # Brokers of all versions make a whole page. Another file says nothing.
        return
    found = read_times(path)
    if found.logics_offset:
        yield Sign("logicsPhysicalOffset in the checkpoint", oldest="5.5")
    elif found.logics and not _is_one_record(log):
        # Of the record at offset 0 a broker of 5.5 says 0, too.
        yield Sign("no logicsPhysicalOffset in the checkpoint", newest="5.4")
    if found.master_flushed or found.confirm_offset:
        yield Sign("confirmPhyOffset in the checkpoint", oldest="5.3")


def _is_one_record(log: StoreLog) -> bool:
    """Whether a record at offset 0 is all of the log."""
    first = log.message(0)
    return isinstance(first, Message) and not isinstance(log.message(first.size), Message)


def _of_last_index_file(store: str, names: Mapping[str, str]) -> Iterator[Sign]:
    """What an IndexFile without items has as its indexCount after a clean stop: 5.x flushes it (``IndexFile.shutdown``), 4.9
    does not. After another stop it is 0 in each version."""
    folder = files.join(store, "index")
    named = [(names.get(entry.name, entry.name), entry) for entry in entries_of(folder) if entry.kind == files.FILE]
    _, last = max(((name, entry) for name, entry in named if is_index_file(name)), key=lambda one: one[0], default=("", None))
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
    older = [version for version in fits if not RULES[version].tag_items][:1]
    return len({RULES[version].opens_empty_queue_file for version in [*fits[:1], *older]}) > 1


def of_tags(found: TagsFound) -> list[Sign]:
    """Return what the comparison of the index says."""
    if found.standing:
        return [Sign(f"items of TAGS ({found.standing:,})", oldest="5.4")]
    if found.before.is_older:
        return [Sign(f"no items of TAGS for {counted(found.count, 'record')} with TAGS", newest="5.3")]
    return []
