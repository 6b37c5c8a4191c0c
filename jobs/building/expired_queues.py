"""Queues that have no record in the log any more: the ends that they have in STORE's ConsumeQueues are kept on demand.

A log says nothing of a queue whose messages have all expired. Built from the log alone it begins again at 0, and consumers,
who stand where it ended, wait for messages that come below that. Both kinds of ConsumeQueues in STORE say where it ended.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rocketmq_reindex import files
from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.store.contents import StoreLog
from rocketmq_reindex.jobs.store.folders import Notes
from rocketmq_reindex.jobs.store.queue import StoreQueues
from rocketmq_reindex.jobs.store.settings import rocksdb_queues
from rocketmq_reindex.storage_format import layouts
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.queue.lookup import UNIT
from rocketmq_reindex.storage_format.queue.units import QueueUnit
from rocketmq_reindex.storage_format.record.layout import RECORD_MIN
from rocketmq_reindex.storage_format.topics import path_component
from rocketmq_reindex.udfs.queue_database import QueueDatabase, QueueName
from rocketmq_reindex.udfs.staging import StagingFolder
from rocketmq_reindex.udfs.write.database import SpooledQueue


def ended_queues(settings: BuildSettings, log_start: int) -> list[QueueUnit]:
    """Return the last unit of each queue in STORE whose records lie before ``log_start``, where the log begins.

    Empty unless that is asked for. Raises InputError where the queues cannot be read, and where STORE is not known.
    """
    if settings.expired_queues == "drop" or layouts.QUEUES not in settings.only:
        return []
    store = settings.store_folder
    if not store:
        raise InputError("--expired-queues keep: no STORE is named: name it beside --commitlog")
    # Nothing has expired of a log that begins at 0.
    if not log_start:
        return []
    found = dict[tuple[str, int], QueueUnit]()
    for unit in (*_in_files(settings, store, log_start), *_in_database(store, log_start)):
        key = unit.topic, unit.queue_id
        if key not in found or found[key].position < unit.position:
            found[key] = unit
    return [unit for unit in found.values() if unit.position >= 0]


def _unit(topic: str, queue_id: int, position: int, phy_offset: int, log_start: int) -> QueueUnit:
    """Return a unit at the end of a queue; position -1 where its last record is still in the log.

    Its record is gone, so any size does that ends before the log: with it a broker knows the unit as expired
    (``ConsumeQueue.correctMinOffset``, 5.3.3).
    """
    if phy_offset >= log_start:
        return QueueUnit(topic, queue_id, -1, 0, 0, 0)
    return QueueUnit(topic, queue_id, position, max(0, min(phy_offset, log_start - RECORD_MIN)), RECORD_MIN, 0)


def _in_files(settings: BuildSettings, store: str, log_start: int) -> Iterator[QueueUnit]:
    notes = Notes.silent()
    with (
        contextlib.closing(StoreLog(settings.roots, notes)) as log,
        contextlib.closing(StoreQueues(store, notes, database=False)) as queues,
    ):
        for topic, number in queues.each():
            queue = queues.open(topic, number, log, notes)
            if queue is None:
                continue
            with contextlib.closing(queue):
                unit = queue.last_unit()
                if unit is not None and unit.kind == UNIT and not queue.batch:
                    yield _unit(topic, number, unit.position, unit.phy_offset, log_start)


def _in_database(store: str, log_start: int) -> Iterator[QueueUnit]:
    there = rocksdb_queues(store)
    if there is None:
        return
    with contextlib.closing(QueueDatabase(there.folder)) as database:
        for topic, ends in database.queues.items():
            for number, end in ends.items():
                name = topic.decode("utf-8", "surrogateescape")
                # A start that brings the kinds together writes ends that name offset 0 (``initializeWithOffset``, 5.5.0).
                value = database.value(QueueName(topic, number), end.queue_offset)
                phy_offset = end.phy_offset if value is None else int.from_bytes(value[:8], "big", signed=True)
                yield _unit(name, number, end.queue_offset, phy_offset, log_start)


def without_files(staging: StagingFolder, ended: list[QueueUnit]) -> list[QueueUnit]:
    """Return those of which no ConsumeQueue file was built: others have records in the log."""
    queues = files.join(staging.tree, layouts.QUEUES)
    return [
        unit
        for unit in ended
        if path_component(unit.topic)
        and files.entry_of(files.join(queues, unit.topic, str(unit.queue_id))).kind == files.ABSENT
    ]


def lines_of(ended: list[QueueUnit]) -> list[bytes]:
    """Return the lines of queues without a unit (``SpooledQueue``), in the order of their keys."""
    queues = [SpooledQueue(unit.topic, unit.queue_id, last=(unit.phy_offset, unit.position)) for unit in ended]
    return [queue.to_line() for queue in sorted(queues, key=lambda queue: queue.key)]
