"""Stores whose ConsumeQueues lie in RocksDB: this project neither builds nor reads those, and moves none of them away."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rocketmq_reindex.jobs.store.folders import entries_of
from rocketmq_reindex.jobs.store.settings import StoreSettings
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.rocksdb import SEPARATE, rocksdb_files
from rocketmq_reindex.udfs import files

QUEUES: Final = "consumequeue"
UNREAD: Final = "a broker with storeType=defaultRocksDB does not read the consumequeue/ of a build"
_SHOWN: Final = 2


@dataclass(frozen=True)
class RocksDBQueues:
    """Where the RocksDB ConsumeQueues of a store lie. ``names`` are RocksDB's files there."""

    folder: str
    names: tuple[str, ...]
    beside: bool
    """whether ``consumequeue/`` also has folders of topics: ``rocksdbCQDoubleWriteEnable`` writes both kinds"""

    @property
    def in_place(self) -> bool:
        """Whether they lie where the file ConsumeQueues of a build go."""
        return files.base(self.folder) == QUEUES

    def __str__(self) -> str:
        shown = ", ".join(escape(name) for name in self.names[-_SHOWN:])
        return f"{escape(self.folder)}: holds ConsumeQueues in RocksDB ({shown})"


def rocksdb_queues(store: str) -> RocksDBQueues | None:
    """Return the RocksDB ConsumeQueues of a store, those in ``consumequeue/`` first; None where it has none.

    Mirrors the places of ``RocksDBConsumeQueueStore`` (5.5.0). ``rocksdbstore/``, which 5.4 and later always make, is none.
    """
    queues = entries_of(files.join(store, QUEUES))
    topics = any(entry.kind == files.FOLDER for entry in queues)
    for name, entries in ((QUEUES, queues), (SEPARATE, entries_of(files.join(store, SEPARATE)))):
        if found := rocksdb_files(entry.name for entry in entries if entry.kind == files.FILE):
            return RocksDBQueues(files.join(store, name), tuple(found), topics)
    return None


def of_build(settings: StoreSettings, only: Iterable[str]) -> list[str]:
    """Return warnings for a build of file ConsumeQueues whose broker seems to keep them in RocksDB."""
    if QUEUES not in only:
        return []
    warnings = [f"--broker-conf: has {text}" for text in settings.rocksdb]
    found = rocksdb_queues(settings.store_folder) if settings.store_folder else None
    if found:
        keep = ", and fetch does not put it there: keep these files" if found.in_place else ""
        warnings.append(f"{found}: {UNREAD}{keep}")
    return warnings


def check_verified(store: str, only: Iterable[str], advice: str = "") -> list[str]:
    """Return notes on a store whose queues are to be compared. Raises InputError where they lie in RocksDB alone."""
    found = rocksdb_queues(store) if QUEUES in only else None
    if found is None:
        return []
    if not found.beside:
        raise InputError(f"{found}: verify compares ConsumeQueue files alone{advice}")
    return [f"{found}: only the ConsumeQueue files beside it are compared"]


def check_swapped(store: str, parts: Iterable[str]) -> list[str]:
    """Return warnings on a store that gets new ``parts``. Raises InputError where RocksDB ConsumeQueues would be moved away."""
    found = rocksdb_queues(store) if QUEUES in parts else None
    if found is None:
        return []
    if found.in_place:
        raise InputError(
            f"{found}: a broker with storeType=defaultRocksDB serves from them, so nothing is put in their place: fetch a "
            "build of --only index,checkpoint, with --partial; or, if its storeType becomes default, move these files away "
            "first"
        )
    return [f"{found}: they stay; {UNREAD}"]
