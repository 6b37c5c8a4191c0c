"""ConsumeQueues in a RocksDB database: whether a build makes one and where it lies, its tables, and the database itself."""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from rocketmq_reindex import files
from rocketmq_reindex.files.digests import file_digest
from rocketmq_reindex.files.rocksdb import library, make_database
from rocketmq_reindex.jobs.building.expired_queues import lines_of
from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.building.scanning import Scan
from rocketmq_reindex.jobs.building.store_signs import end_of
from rocketmq_reindex.jobs.publishing.output import entries, few_parts, joined
from rocketmq_reindex.jobs.store.config_databases import lite_topics, unread_topics
from rocketmq_reindex.jobs.store.settings import RocksDBQueues, rocksdb_queues
from rocketmq_reindex.storage_format import errors, layouts
from rocketmq_reindex.storage_format.queue.extended import ConsumerFilters
from rocketmq_reindex.storage_format.queue.rocksdb import OFFSETS, UNITS
from rocketmq_reindex.storage_format.queue.units import QueueUnit
from rocketmq_reindex.storage_format.scan.ranges import RangeSummary, Segment
from rocketmq_reindex.storage_format.showing import counted, escape, listed
from rocketmq_reindex.storage_format.topics import LMQ_PREFIX
from rocketmq_reindex.storage_format.versions import VERSIONS
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.write import database as writing
from rocketmq_reindex.udfs.write.database import SpooledQueue, SpoolResult, SpoolUnits, Stretch, TableResult, WriteTables

if TYPE_CHECKING:
    # What decides takes its settings from here.
    from rocketmq_reindex.jobs.building.decisions import Order

Told = tuple[BuildSettings, list[str], list[str]]
"""settings, notes, and warnings"""
_OLDEST = VERSIONS[-1]
_KINDS = {"rocksdb": "in RocksDB", "both": "as files and in RocksDB"}


# ---------------------------------------------------------------------------------------------------------------------- settled


def as_store_shows(settings: BuildSettings) -> Told:
    """Return settings for the kinds of ConsumeQueues that are asked for: the database lies where STORE has one.

    Notes follow, and warnings. Raises InputError where no database can be made.
    """
    there = rocksdb_queues(settings.store_folder) if settings.store_folder and layouts.QUEUES in settings.only else None
    if not settings.makes_database:
        return settings, [], _of_files(settings, there)
    option = f"--consumequeue-type {settings.consumequeue_type}"
    if settings.broker_version == _OLDEST:
        raise errors.InputError(f"{option}: RocketMQ {_OLDEST} keeps no ConsumeQueues in RocksDB: take file")
    if files.no_rename(settings.out):
        raise errors.InputError(f"{option}: RocksDB writes to local folders alone: --out is {escape(settings.out)}")
    library()
    notes, warnings = [], []
    if settings.rocksdb:
        kinds = "as files, light ones in RocksDB, too" if settings.rocksdb_light else _KINDS[settings.consumequeue_type]
        notes.append(f"--broker-conf: has {listed(settings.rocksdb)}: ConsumeQueues are built {kinds}")
        if settings.rocksdb_light:
            if settings.store_folder and (unread := unread_topics(settings.store_folder)):
                raise errors.InputError(
                    f"{unread}: which topics are lite, whose queues RocksDB has, is not known: mend it, or take it out of STORE"
                )
            lite = lite_of(settings)
            told = (
                f"{counted(len(lite), 'lite topic')} in config/: all units of their records are in RocksDB, too" if lite else ""
            )
            notes.append(told or "no lite topic is known by config/: RocksDB has light queues by their names, and no others")
    if settings.makes_files and settings.lmq:
        light = "light queues have no files, as with combineCQUseRocksdbForLmq=true"
        light_too = "light queues have files, too: a broker with combineCQUseRocksdbForLmq=true has them in RocksDB alone"
        notes.append(light_too if settings.light_in_files else light)
        if not settings.light_in_files and lite_of(settings):
            # Each of the broker's two stores asks for itself whether it takes a unit.
            notes.append("light queues: units of records of topics that are not lite are in neither files nor RocksDB then")
    if there and not there.in_place and not settings.rocksdb:
        settings = dataclasses.replace(settings, rocksdb_separate=True)
        notes.append(f"{layouts.SEPARATE}: the database is built there, as STORE has it")
    if there and files.base(there.folder) != settings.database_folder:
        own = settings.database_folder
        warnings.append(f"{there}: the build has its database in {own}/, and RocketMQ 5.5 does not start on two")
    elif there and there.beside and settings.consumequeue_type == "rocksdb" and there.in_place:
        warnings.append(
            f"{escape(there.folder)}: has ConsumeQueue files, too, and a fetch takes the place of this folder: "
            "--consumequeue-type both builds both"
        )
    if settings.filters is None:
        settings = dataclasses.replace(settings, filters=ConsumerFilters())
    return settings, notes, warnings


def _of_files(settings: BuildSettings, there: RocksDBQueues | None) -> list[str]:
    """Return warnings for a build of ConsumeQueue files alone whose broker seems to keep them in RocksDB."""
    if layouts.QUEUES not in settings.only:
        return []
    kind = "both" if (there and there.beside) or any("Double" in text for text in settings.rocksdb) else "rocksdb"
    advice = f"--consumequeue-type {kind} builds these, too" if kind == "both" else f"--consumequeue-type {kind} builds these"
    unread = "this broker does not read the ConsumeQueue files of a build"
    unread = unread if kind == "rocksdb" else "this broker has ConsumeQueues in RocksDB, too"
    warnings = [f"--broker-conf: has {text}: {unread}: {advice}" for text in settings.rocksdb[:1]]
    if there:
        keep = ", and fetch does not put them there" if there.in_place else ""
        unread = "a broker with storeType=defaultRocksDB does not read the ConsumeQueue files of a build"
        warnings.append(f"{there}: {unread}{keep}: {advice}")
    return warnings


# ---------------------------------------------------------------------------------------------------------------------- writing


def lite_of(settings: BuildSettings) -> frozenset[str]:
    """Return the lite topics, of whose records alone a database has units; none where it has all, or none is known.

    The broker asks each record for its topic (``CombineConsumeQueueStore.shouldDoubleWriteForTopic``, 5.5.1).
    """
    return frozenset(lite_topics(settings.store_folder) if settings.rocksdb_light and settings.store_folder else ())


def write_database(
    scan: Scan, settings: BuildSettings, segments: list[Segment], accepted: list[RangeSummary], order: Order,
    ended: list[QueueUnit],
) -> tuple[list[dict[str, Any]], int, int]:  # fmt: skip
    """Write the database of the ``accepted`` ranges into the tree. Return its entries for the manifest, and its units.

    ``ended`` queues keep their ends, where they have no unit: how many these are follows.
    """
    staging, engine = scan.staging, scan.engine
    lite = lite_of(settings)
    files.make_folder(staging.tables, below=staging.root)
    spooled: list[SpoolResult] = []
    if any(summary.units for summary in accepted):
        words = settings.filters.words if settings.filters is not None else 0
        among = frozenset(map(str.encode, lite)) if settings.rocksdb_light else None
        spool = SpoolUnits(staging, order.placements, words, among)
        spooled = SpoolResult.read(engine.reduce(handover.EXTENDED, scan.left_out(accepted), None, spool))
    parts = [result.part for result in spooled]
    if ended:
        parts.append(files.join(staging.tables, "ended"))
        kept = [unit for unit in ended if not settings.rocksdb_light or unit.topic.startswith(LMQ_PREFIX) or unit.topic in lite]
        files.write_bytes(staging.temporary, parts[-1], lines_of(kept))
    parts = few_parts(staging, parts, writing.key_of)
    stretches, lone = list[Stretch](), list[bytes]()

    def lines() -> Iterator[bytes]:
        merged = heapq.merge(*(entries(part, writing.key_of) for part in parts))
        for line, stretch in writing.cut(_of_queues(merged, lone), writing.TABLE_UNITS):
            if stretch is not None:
                stretches.append(stretch)
            if line:
                yield line

    queues = files.join(staging.plans, "queues")
    files.write_bytes(staging.temporary, queues, joined(lines()))
    plan = handover.write_plan(staging, "stretches", stretches)
    log_start = segments[0].start if segments else 0
    write = WriteTables(staging, queues, plan, _dispatched(settings, segments, accepted), log_start)
    tables = TableResult.read(engine.numbers(write, len(stretches) + 1))
    folder = files.join(staging.tree, settings.database_folder)
    files.make_folder(folder, below=staging.tree)
    by_family = {
        family: [table.path for table in sorted(tables, key=lambda table: table.number) if table.family == family]
        for family in (UNITS, OFFSETS)
    }
    names = make_database(folder, by_family, UNITS)
    files.remove_tree(staging.tables)
    found = [_entry(settings.database_folder, name, files.join(folder, name)) for name in names]
    return found, sum(result.units for result in spooled), len(lone)


def left_out(accepted: list[RangeSummary]) -> Iterator[str]:
    """Yield a warning of what a database has not: a broker keeps no batch ConsumeQueues in RocksDB."""
    if units := sum(summary.batch_units for summary in accepted):
        yield f"batch topics: {counted(units, 'unit')} of them not in RocksDB, where a broker has no batch ConsumeQueues"


def _of_queues(merged: Iterator[tuple[Any, bytes]], lone: list[bytes]) -> Iterator[bytes]:
    """Yield one line for each queue, of two the one with units. The keys of those without a unit are added to ``lone``."""
    for key, lines in groupby(merged, key=itemgetter(0)):
        units, line = max((SpooledQueue.from_line(line).units, line) for _, line in lines)
        lone += [] if units else [key]
        yield line + b"\n"


def _entry(folder: str, name: str, path: str) -> dict[str, Any]:
    size = files.entry_of(path).size
    return {"path": f"{folder}/{name}", "size": size, "used": size, "digest": file_digest(path)}


def _dispatched(settings: BuildSettings, segments: list[Segment], accepted: list[RangeSummary]) -> int:
    """Return the check point of the database: how far the log is dispatched.

    A start dispatches what lies above it (``CommitLog.recoverNormally``, 5.3). A broker says the end of the last record with a
    unit, and passes over a record that begins right there, as one may behind a partial build. So the safe one is the begin of
    that record.
    """
    with_units = [summary for summary in accepted if summary.unit_records]
    if not with_units:
        return 0
    last = with_units[-1].last_unit
    if settings.checkpoint == "safe":
        return last
    segment = next(segment for segment in segments if segment.start <= last < segment.data_end)
    return end_of(segment, last)
