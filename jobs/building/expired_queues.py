"""Queues that have no record in the log any more: the ends that they have in STORE's ConsumeQueues are kept on demand.

A log says nothing of a queue whose messages have all expired. Built from the log alone it begins again at 0, and consumers,
who stand where it ended, wait for messages that come below that. Both kinds of ConsumeQueues in STORE say where it ended.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import NamedTuple

from rocketmq_reindex import files
from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.store.fitting import queue_files
from rocketmq_reindex.jobs.store.folders import Notes
from rocketmq_reindex.jobs.store.queue import FileUnits, StoreQueues
from rocketmq_reindex.jobs.store.settings import RocksDBQueues, rocksdb_queues
from rocketmq_reindex.storage_format import errors, layouts, showing
from rocketmq_reindex.storage_format.queue.units import UNIT, QueueUnit, Unit
from rocketmq_reindex.storage_format.record.layout import RECORD_MIN
from rocketmq_reindex.storage_format.topics import LMQ_PREFIX, path_component
from rocketmq_reindex.udfs.messages.log_rows import Topics
from rocketmq_reindex.udfs.queue_database import QueueDatabase
from rocketmq_reindex.udfs.staging import StagingFolder
from rocketmq_reindex.udfs.write.database import SpooledQueue

_LOOKED_AT = (1000, 16)
"""topics of a store, and queues of each, of which lost ends are told: more would hold a build up"""
_OPTION = "--expired-queues keep"
_INSTEAD = "mend STORE, or leave --expired-queues out, and such queues begin again at 0"


class EndedQueues(NamedTuple):
    """The last units of queues that end before the log begins, why the ends of others are not known, and warnings."""

    units: list[QueueUnit]
    unknown: dict[tuple[str, int], str]
    warnings: list[str]


def ended_queues(settings: BuildSettings, log_start: int) -> EndedQueues:
    """Return the last unit of each queue of a chosen topic that ends before ``log_start``, where the log begins.

    None unless that is asked for. Raises InputError where STORE is not known or has no queues.
    """
    nothing = EndedQueues([], {}, [])
    if settings.expired_queues == "drop" or layouts.QUEUES not in settings.only:
        return nothing
    store = settings.store_folder
    if not store:
        raise errors.InputError(f"{_OPTION}: no STORE is named: name it beside --commitlog")
    # Nothing has expired of a log that begins at 0.
    if not log_start:
        return nothing
    ends = _Ends(settings, log_start)
    there = rocksdb_queues(store)
    if not (ends.take_files(store) or there):
        raise errors.InputError(
            f"{_OPTION}: {showing.escape(store)}: has no ConsumeQueues that say where a queue ended: {_INSTEAD}"
        )
    if there:
        ends.take_database(there)
    return ends.result()


class _Ends:
    """The ends of queues as both kinds of ConsumeQueues say them: of two the later one counts."""

    def __init__(self, settings: BuildSettings, log_start: int) -> None:
        self._topics, self._usual = Topics(settings.include_topics, settings.exclude_topics), settings.cq_file_size
        self._start = log_start
        self._found = dict[tuple[str, int], QueueUnit]()
        self._unknown = dict[tuple[str, int], str]()
        """why the end of a queue is not known"""
        self._sizes = dict[tuple[str, int], set[int]]()
        """the sizes of the files of queues that ended, in bytes"""
        self._all_sizes = set[int]()
        self._batches = 0

    def take_files(self, store: str) -> bool:
        """Take the ends of ConsumeQueue files. Return whether any topic is there. Raises InputError."""
        notes = Notes.silent()
        with contextlib.closing(StoreQueues(store, notes, database=False)) as queues:
            topics = queues.topics()
            for topic in filter(self._topics.wants, topics):
                for number in queues.ids(topic):
                    for kind in (layouts.QUEUES, layouts.BATCH_QUEUES):
                        folder = files.join(store, kind, topic, str(number))
                        if files.entry_of(folder).kind == files.FOLDER:
                            self._take_folder((topic, number), folder, kind == layouts.BATCH_QUEUES)
        if notes.lost:
            raise errors.InputError(f"{_OPTION}: {notes.lost}: {_INSTEAD}")
        return bool(topics)

    def _take_folder(self, key: tuple[str, int], folder: str, batch: bool) -> None:
        notes = Notes.silent()
        with contextlib.closing(FileUnits(folder, batch, notes)) as queue:
            end = queue.units.end
            unit = queue.units.at(end - 1) if end > queue.units.begin else None
        if batch:
            self._batches += unit is not None and unit.kind == UNIT and unit.phy_offset < self._start
            return
        self._all_sizes |= set(queue.sizes)
        if notes.lost:
            self._unknown[key] = notes.lost
        elif unit is None or unit.kind != UNIT:
            self._unknown[key] = f"{queue.place}: has no unit at its end"
        else:
            self._take(key, unit)
            if unit.phy_offset < self._start:
                self._sizes[key] = set(queue.sizes)

    def take_database(self, there: RocksDBQueues) -> None:
        """Take the ends of a database. Raises InputError where it cannot be read."""
        with contextlib.closing(QueueDatabase(there.folder)) as database:
            for end in database.ends():
                topic, number = end.queue.topic.decode("utf-8", "surrogateescape"), end.queue.queue_id
                if not end.is_max or not self._topics.wants(topic):
                    continue
                if database.last(end.queue) is None:
                    self._unknown[topic, number] = f"{database.shown}: {showing.escape(topic)}/{number}: has an impossible end"
                    continue
                # A start that brings the kinds together writes ends that name offset 0 (``initializeWithOffset``, 5.5.0).
                value = database.value(end.queue, end.queue_offset)
                phy_offset = end.phy_offset if value is None else int.from_bytes(value[:8], "big", signed=True)
                self._take((topic, number), Unit(UNIT, end.queue_offset, phy_offset))

    def _take(self, key: tuple[str, int], unit: Unit) -> None:
        found = _unit(*key, unit.position, unit.phy_offset, self._start)
        if key not in self._found or self._found[key].position < found.position:
            self._found[key] = found

    def result(self) -> EndedQueues:
        """Return the units, and the queues whose end no kind says."""
        # Of a file that was cut the last unit that is left is not the queue's end.
        usual = self._usual if self._usual in self._all_sizes else max(self._all_sizes, default=0)
        for (topic, number), sizes in self._sizes.items():
            if wrong := sizes - {usual}:
                told = f"has a file of {showing.counted(min(wrong), 'byte')}, and others have {usual:,}"
                self._unknown[topic, number] = f"{showing.escape(topic)}/{number}: {told}: its end is not known"
                del self._found[topic, number]
        told = (
            f"{_OPTION}: {showing.counted(self._batches, 'batch queue')} without a record in the log: their ends are not kept"
        )
        warnings = [told] if self._batches else []
        unknown = {key: why for key, why in self._unknown.items() if key not in self._found}
        return EndedQueues([unit for unit in self._found.values() if unit.position >= 0], unknown, warnings)


def _unit(topic: str, queue_id: int, position: int, phy_offset: int, log_start: int) -> QueueUnit:
    """Return a unit at the end of a queue; position -1 where its last record is still in the log.

    Its record is gone, so any size does that ends before the log: with it a broker knows the unit as expired
    (``ConsumeQueue.correctMinOffset``, 5.3.3).
    """
    if phy_offset >= log_start:
        return QueueUnit(topic, queue_id, -1, 0, 0, 0)
    return QueueUnit(topic, queue_id, position, max(0, min(phy_offset, log_start - RECORD_MIN)), RECORD_MIN, 0)


def check_unknown(settings: BuildSettings, staging: StagingFolder, unknown: Mapping[tuple[str, int], str]) -> list[str]:
    """Return a warning where ends in STORE cannot be read, of queues that have records in the log: these say their ends.

    What was built is in the tree already. Raises InputError for a queue without a record: nothing says where it ended.
    """
    if not unknown:
        return []
    folder = files.join(staging.tree, settings.database_folder)
    with contextlib.ExitStack() as opened:
        built = opened.enter_context(contextlib.closing(QueueDatabase(folder))) if settings.makes_database else None
        for (topic, number), why in unknown.items():
            path = files.join(staging.tree, layouts.QUEUES, topic, str(number)) if path_component(topic) else ""
            has_file = bool(path) and files.entry_of(path).kind == files.FOLDER
            name = topic.encode("utf-8", "surrogateescape")
            if not (has_file or (built is not None and built.last(built.queue(name, number)) is not None)):
                raise errors.InputError(f"{_OPTION}: {why}: {_INSTEAD}")
    first = next(iter(unknown.values()))
    told = f"{showing.counted(len(unknown), 'queue')} with records in the log, whose ends in STORE cannot be read"
    return [f"{_OPTION}: {told}: the log says where they end: {first}"]


def without_files(staging: StagingFolder, ended: list[QueueUnit], light: bool) -> list[QueueUnit]:
    """Return those of which no ConsumeQueue file was built: others have records in the log. ``light``: light ones have some."""
    queues = files.join(staging.tree, layouts.QUEUES)
    return [
        unit
        for unit in ended
        if path_component(unit.topic)
        and (light or not unit.topic.startswith(LMQ_PREFIX))
        and files.entry_of(files.join(queues, unit.topic, str(unit.queue_id))).kind == files.ABSENT
    ]


def dropped(settings: BuildSettings, staging: StagingFolder, log_start: int) -> list[str]:
    """Return a warning where ends of queues in STORE are lost that were not asked for; some ConsumeQueue files are looked into.

    ``log_start`` is where the log begins. The files of the build are in the tree already.
    """
    store = settings.store_folder
    is_whole = settings.makes_files and not (settings.partial or settings.incremental)
    if settings.expired_queues != "drop" or not is_whole or not log_start or not store or files.is_remote(store):
        return []
    lost = 0
    # What cannot be read here ends no build: it does not need these files.
    with contextlib.suppress(OSError, errors.InputError):
        for folder in {files.parent(entry.path) for entry in queue_files(files.join(store, layouts.QUEUES), *_LOOKED_AT)}:
            topic, number = files.base(files.parent(folder)), files.base(folder)
            if files.entry_of(files.join(staging.tree, layouts.QUEUES, topic, number)).kind == files.ABSENT:
                with contextlib.closing(FileUnits(folder, False, Notes.silent())) as queue:
                    end = queue.units.end
                    unit = queue.units.at(end - 1)
                    lost += unit.kind == UNIT and unit.phy_offset < log_start
    told = f"{layouts.QUEUES}: {showing.counted(lost, 'queue')} of STORE without a record in the log: a broker counts their"
    return [f"{told} messages from 0 again: {_OPTION} keeps their ends"] if lost else []


def lines_of(ended: list[QueueUnit]) -> list[bytes]:
    """Return the lines of queues without a unit (``SpooledQueue``), in the order of their keys."""
    queues = [SpooledQueue(unit.topic, unit.queue_id, last=(unit.phy_offset, unit.position)) for unit in ended]
    return [queue.to_line() for queue in sorted(queues, key=lambda queue: queue.key)]
