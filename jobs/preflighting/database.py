"""The queues of a broker with RocksDB, as the model of its start takes them: which database it opens, and what is in it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import numpy.typing as npt

from rocketmq_reindex import files
from rocketmq_reindex.jobs.preflighting.options import PreflightSettings
from rocketmq_reindex.jobs.store.settings import rocksdb_queues
from rocketmq_reindex.storage_format import errors, layouts
from rocketmq_reindex.storage_format.broker_start.loading import Refusal
from rocketmq_reindex.storage_format.layouts import java_text
from rocketmq_reindex.storage_format.queue import rocksdb
from rocketmq_reindex.storage_format.queue.rocksdb import (
    ROCKSDB_UNIT,
    CombinedQueues,
    DatabaseQueue,
    DatabaseQueues,
    QueueName,
    QueuePlace,
    units,
)
from rocketmq_reindex.storage_format.showing import escape
from rocketmq_reindex.storage_format.versions import numbers_of
from rocketmq_reindex.udfs.queue_database import QueueDatabase

Int64s = npt.NDArray[np.int64]
_COMBINED_FROM = (5, 3, 4)
"""the release whose ``rocksdbCQDoubleWriteEnable`` makes a ``CombineConsumeQueueStore``"""
_SEPARATE_FROM = (5, 5, 0)
"""the release that has ``useSeparateStorePathForRocksdbCQ``"""
CURRENT = "CURRENT"
"""RocksDB's file without which it makes a new database"""


class _Units:
    """A ``queue.rocksdb.UnitReader``."""

    def __init__(self, database: QueueDatabase) -> None:
        self._database = database

    def phy_offset(self, queue: QueueName, queue_offset: int) -> int | None:
        value = self._database.value(queue, queue_offset)
        return None if value is None else int(self._checked(queue, units([value]))[0])

    def phy_offsets(self, queue: QueueName, first: int, stop: int) -> Iterator[tuple[Int64s, Int64s]]:
        for queue_offsets, some in self._database.units(queue, first, stop):
            yield queue_offsets, self._checked(queue, some)

    def _checked(self, queue: QueueName, some: npt.NDArray[np.void]) -> Int64s:
        if not some["size"].all():
            raise errors.InputError(
                f"{self._database.shown}: {escape(java_text(queue.topic))}/{queue.queue_id}: has a unit of another size than "
                f"{ROCKSDB_UNIT.itemsize} bytes, or of no record: preflight does not know what a broker does with it"
            )
        return some["phy_offset"].astype(np.int64)


def _queues_of(database: QueueDatabase) -> dict[tuple[str, int], DatabaseQueue]:
    """Return all queues of a database. There may be millions of light ones, of which each ends before the next begins."""
    queues: dict[tuple[str, int], DatabaseQueue] = {}
    for topic, of_topic in itertools.groupby(database.ends(), key=lambda end: end.queue.topic):
        ends: dict[QueueName, dict[bool, QueuePlace]] = {}
        for end in of_topic:
            ends.setdefault(end.queue, {})[end.is_max] = QueuePlace(end.phy_offset, end.queue_offset)
        text = java_text(topic)
        for name, places in ends.items():
            queues[text, name.queue_id] = DatabaseQueue(name, places.get(True), places.get(False))
    return queues


class StoreDatabase:
    """The database that the broker opens, as a context manager. ``notes`` are sentences about how it was found."""

    def __init__(self, settings: PreflightSettings) -> None:
        self._settings, self._close = settings, ExitStack()
        self.notes: list[str] = []
        self.in_rocksdb = self._is_for_rocksdb()
        """the broker keeps its queues in RocksDB alone"""

    def _is_for_rocksdb(self) -> bool:
        """Return whether the broker has ``storeType=defaultRocksDB``. Raises InputError where the files leave that open."""
        broker, found = self._settings.broker, rocksdb_queues(self._settings.store)
        if broker.combined is not None:
            if numbers_of(self._settings.release) < _COMBINED_FROM:
                raise errors.InputError(
                    f"rocksdbCQDoubleWriteEnable: preflight does not know what RocketMQ {self._settings.release} does with it"
                )
            return False
        if broker.rocksdb:
            if numbers_of(self._settings.release) < (5,):
                raise errors.InputError(f"storeType=defaultRocksDB: RocketMQ {self._settings.release} has no such store")
            return True
        if found is None:
            return False
        if broker.simple_queues or numbers_of(self._settings.release) < (5,):
            self.notes.append(f"{found}, which a broker of this storeType does not read: it starts with the queues in folders")
            return False
        if found.beside:
            raise errors.InputError(
                f"{found}, beside queues in files: say by --broker-conf which of them the broker reads (storeType, "
                "rocksdbCQDoubleWriteEnable)"
            )
        self.notes.append(
            f"{found}: it is taken for the store of a broker with storeType=defaultRocksDB; if it has another, say so in "
            "--broker-conf"
        )
        return True

    @property
    def _separate(self) -> bool:
        """Whether the database is in the folder of its own."""
        settings = self._settings
        if numbers_of(settings.release) < _SEPARATE_FROM:
            return False
        if settings.broker.rocksdb or settings.broker.combined is not None:
            return settings.broker.rocksdb_separate
        found = rocksdb_queues(settings.store)
        return found is not None and not found.in_place

    def refusals(self) -> tuple[Refusal, ...]:
        """Return why the broker does not start with its database."""
        if not (self.in_rocksdb or self._settings.broker.combined) or numbers_of(self._settings.release) < _SEPARATE_FROM:
            return ()
        other = layouts.QUEUES if self._separate else layouts.SEPARATE
        if files.entry_of(files.join(self._settings.store, other, CURRENT)).kind != files.FILE:
            return ()
        switch = "is on" if self._separate else "is not on"
        return (Refusal("rocksdb-two-places", f"{other}/{CURRENT}", f"useSeparateStorePathForRocksdbCQ {switch}"),)

    def combined(self) -> CombinedQueues | None:
        """Return the queues of the database beside those in files; None for another broker. Raises InputError."""
        broker = self._settings.broker
        if broker.combined is None:
            return None
        return CombinedQueues(self.queues(), broker.combined == "database", broker.combined_extra)

    def queues(self) -> DatabaseQueues:
        """Return the queues of the database: none where there is none yet. Raises InputError where it cannot be read."""
        folder = os.path.join(self._settings.store, layouts.SEPARATE if self._separate else layouts.QUEUES)
        names = os.listdir(folder) if os.path.isdir(folder) else []
        if not layouts.rocksdb_files(name for name in names if not os.path.isdir(os.path.join(folder, name))):
            return DatabaseQueues(rocksdb.NoUnits())
        database = QueueDatabase(folder)
        self._close.callback(database.close)
        return DatabaseQueues(_Units(database), _queues_of(database), database.dispatched() or 0)

    def __enter__(self) -> StoreDatabase:
        return self

    def __exit__(self, *_: object) -> None:
        self._close.close()
