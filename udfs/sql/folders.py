"""The folders of a store that the data sources read.

A path that is no store is an error: with no rows, a join with the log would call every message lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.file_names import first_byte, is_index_file, queue_id
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.rocksdb import SEPARATE, rocksdb_files
from rocketmq_reindex.udfs import files

COMMITLOG: Final = "commitlog"
PLAIN: Final = "consumequeue"
BATCH: Final = "batchconsumequeue"
INDEX: Final = "index"


def commitlog_folder(path: str) -> str:
    """The folder of segments of the store ``path``, or ``path`` itself if it is one. Raises InputError for any other path."""
    return _folders(path, (COMMITLOG,), _has_segments)[0]


def index_folder(path: str) -> str:
    """The folder of IndexFiles of the store ``path``, or ``path`` itself if it is one. Raises InputError for any other path."""
    return _folders(path, (INDEX,), _has_index_files)[0]


def queue_folders(path: str) -> list[tuple[str, bool]]:
    """The folders of topics of the store ``path``, or ``path`` itself if it is one.

    With each comes whether its queues are batch ones. Raises InputError for any other path, and for a store whose ConsumeQueues
    lie in RocksDB.
    """
    separate = files.join(path, SEPARATE)
    try:
        found = _folders(path, (PLAIN, BATCH), _has_queues)
    except InputError:
        if files.entry_of(separate).kind != files.FOLDER:
            raise
        found = [separate]
    for folder in found:
        entries = files.listing(folder)
        names = rocksdb_files(entry.name for entry in entries if entry.kind == files.FILE)
        # A broker with rocksdbCQDoubleWriteEnable writes ConsumeQueue files as well.
        if folder == separate or (names and not any(entry.kind == files.FOLDER for entry in entries)):
            raise InputError(f"{escape(folder)}: holds ConsumeQueues in RocksDB: this source reads ConsumeQueue files alone")
    return [(folder, _named(folder, BATCH)) for folder in found]


def _folders(path: str, names: tuple[str, ...], holds: Callable[[str], bool]) -> list[str]:
    """The folders ``names`` of ``path``; without them ``path`` itself, if it is such a folder."""
    kind = files.entry_of(path).kind
    if kind != files.FOLDER:
        what = "is not there" if kind == files.ABSENT else "is no folder"
        raise InputError(f"{escape(path)}: {what}: name a store, or its folder {names[0]}/")
    found = [folder for name in names if _is_folder(folder := files.join(path, name))]
    if found:
        return found
    is_store = _is_folder(files.join(path, COMMITLOG))
    if (not is_store and any(_named(path, name) for name in names)) or holds(path):
        return [path]
    missing = " or ".join(f"{name}/" for name in names)
    raise InputError(f"{escape(path)}: has no folder {missing}: name a store, or its folder {names[0]}/")


def _is_folder(path: str) -> bool:
    return files.entry_of(path).kind == files.FOLDER


def _named(path: str, name: str) -> bool:
    """Whether a folder has this name, or this name and a suffix, as in index.previous."""
    return files.base(path).partition(".")[0] == name


def _has_segments(folder: str) -> bool:
    return any(entry.kind == files.FILE and first_byte(entry.name) is not None for entry in files.listing(folder))


def _has_index_files(folder: str) -> bool:
    return any(entry.kind == files.FILE and is_index_file(entry.name) for entry in files.listing(folder))


def _has_queues(folder: str) -> bool:
    topics = (entry for entry in files.listing(folder) if entry.kind == files.FOLDER)
    queues = (entry for topic in topics for entry in files.listing(topic.path) if queue_id(entry.name) is not None)
    return any(_has_segments(queue.path) for queue in queues if queue.kind == files.FOLDER)
