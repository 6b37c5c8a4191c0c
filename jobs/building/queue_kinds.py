"""What a build writes of queues beside ConsumeQueue files: ``consumequeue_ext``, and a RocksDB database.

Whether it writes each follows from the options or from what the store shows. Of ``consumequeue_ext`` so do the size of its
files and the registrations by which it sets bits; of a database, where it lies.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from rocketmq_reindex import files
from rocketmq_reindex.files.digests import file_digest
from rocketmq_reindex.files.rocksdb import library, make_database
from rocketmq_reindex.jobs.building.expired_queues import lines_of
from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.building.scanning import Scan
from rocketmq_reindex.jobs.building.store_signs import end_of
from rocketmq_reindex.jobs.command.broker_conf import unread
from rocketmq_reindex.jobs.command.option import CqExt
from rocketmq_reindex.jobs.publishing.output import entries, few_parts, joined
from rocketmq_reindex.jobs.store.config_databases import lite_topics, unread_topics
from rocketmq_reindex.jobs.store.fitting import LOOKED_AT, LOOKED_AT_REMOTE, UsualSizes, queue_files
from rocketmq_reindex.jobs.store.settings import RocksDBQueues, StoreSettings, rocksdb_queues
from rocketmq_reindex.storage_format import errors, layouts
from rocketmq_reindex.storage_format.queue import extended
from rocketmq_reindex.storage_format.queue.extended import ConsumerFilters
from rocketmq_reindex.storage_format.queue.rocksdb import OFFSETS, UNITS
from rocketmq_reindex.storage_format.queue.units import CONSUMERS, END_BLANK, ERROR_RATE, EXT_SIZE_MIN, QueueUnit
from rocketmq_reindex.storage_format.scan.ranges import RangeSummary, Segment
from rocketmq_reindex.storage_format.showing import counted, escape, listed
from rocketmq_reindex.storage_format.topics import LMQ_PREFIX
from rocketmq_reindex.storage_format.versions import VERSIONS
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.scan.extended import FILTERS, stored_filters
from rocketmq_reindex.udfs.write import database as writing
from rocketmq_reindex.udfs.write.database import SpooledQueue, SpoolResult, SpoolUnits, TableResult, UnitStretch, WriteTables

if TYPE_CHECKING:
    from rocketmq_reindex.jobs.building.decisions import Order


# ------------------------------------------------------------------------------------------------------------- consumequeue_ext


Told = tuple[BuildSettings, list[str], list[str]]
"""settings, notes, and warnings"""
OLDEST = VERSIONS[-1]
_HEAD = 1 << 10
"""bytes of a file that are looked at: its first units"""


def ext_as_store_shows(settings: BuildSettings) -> Told:
    """Return settings for ``consumequeue_ext``: as the store's own files show, where nobody named them, with its registrations.

    Notes on what was taken follow, and warnings. Raises InputError for registrations that cannot be read, and for files too
    small for a unit.
    """
    if not settings.makes_files:
        return dataclasses.replace(settings, cq_ext="none"), [], []
    settings, notes, warnings = _of_ext_files(settings)
    if settings.cq_ext == "none":
        return settings, notes, warnings
    filters = extended.ConsumerFilters()
    if settings.cq_ext == "bitmap":
        filters, of_filters = registrations(settings, settings.store_folder)
        notes += of_filters
        warnings += [f"{FILTERS}: {note}" for note in filters.notes]
    size = EXT_SIZE_MIN + filters.bits // 8 + END_BLANK
    if settings.cq_ext_file_size < size:
        raise errors.InputError(
            f"--cq-ext-file-size {settings.cq_ext_file_size}: one unit of consumequeue_ext takes {size:,} bytes of a file"
        )
    return dataclasses.replace(settings, filters=filters), notes, warnings


def _of_ext_files(settings: BuildSettings) -> Told:
    """Return settings as the files of ``consumequeue_ext`` in STORE show them."""
    decided = settings.is_named("cq_ext") or bool(settings.broker_conf)
    if not settings.store_folder or (decided and settings.cq_ext == "none"):
        return settings, [], []
    folder = files.join(settings.store_folder, layouts.EXT_QUEUES)
    entries = list(queue_files(folder, *(LOOKED_AT_REMOTE if files.is_remote(folder) else LOOKED_AT)))
    size = UsualSizes(entries, 1).usual
    if not size:
        return settings, [], []
    if settings.incremental:
        return settings, ["consumequeue_ext: --incremental builds none, so units have their tagsCodes themselves"], []
    notes, warnings = [], []
    if not decided:
        kind: CqExt = "bitmap" if any(_has_bits(entry) for entry in entries) else "plain"
        settings = dataclasses.replace(settings, cq_ext=kind)
        notes.append(f"consumequeue_ext: is there, so it is built as by --cq-ext {kind}: --cq-ext none leaves it out")
    if size != settings.cq_ext_file_size and (settings.broker_conf or settings.is_named("cq_ext_file_size")):
        warnings.append(
            f"{escape(folder)}: has files of {size:,} bytes, a build makes files of {settings.cq_ext_file_size:,}: a broker "
            "starts on files of its own setting alone"
        )
    elif size != settings.cq_ext_file_size:
        settings = dataclasses.replace(settings, cq_ext_file_size=size)
        notes.append(f"consumequeue_ext: files of {size:,} bytes, taken from the files")
    return settings, notes, warnings


def _has_bits(entry: files.Entry) -> bool:
    """Return whether one of the first units of a file has a bit map."""
    units = extended.read_ext_file(files.head(entry.path, _HEAD), 0)
    return bool(np.any(units.bit_map_size > 0))


def registrations(settings: StoreSettings, store: str, *, old: bool = False) -> tuple[extended.ConsumerFilters, list[str]]:
    """Return the registrations in the folder ``store``, and a note on them. Raises InputError where they cannot be read.

    ``old``: the broker may be a 4.9, whatever the settings say.
    """
    without = "so no unit has a bit map, and a broker filters by the log alone"
    bloom = None
    if settings.bloom_error_rate or settings.bloom_consumers:
        bloom = extended.BloomFilter.of(settings.bloom_error_rate or ERROR_RATE, settings.bloom_consumers or CONSUMERS)
    old, otherwise = old or settings.broker_version == OLDEST, "--cq-ext plain builds without bit maps"
    filters = stored_filters(store, bloom, old=old, otherwise=otherwise, unread=unread) if store else None
    if filters is None:
        return extended.ConsumerFilters(), [f"{FILTERS}: is not there, {without}"]
    groups = sum(map(len, filters.topics.values()))
    if not groups:
        return filters, [f"{FILTERS}: has no registration, {without}"]
    topics = counted(len(filters.topics), "topic")
    return filters, [f"{FILTERS}: {counted(groups, 'registration')} on {topics}: bit maps of {filters.bits:,} bits"]


# --------------------------------------------------------------------------------------------------------------------- database


_KINDS = {"rocksdb": "in RocksDB", "both": "as files and in RocksDB"}


# ---------------------------------------------------------------------------------------------------------------------- settled


def database_as_store_shows(settings: BuildSettings) -> Told:
    """Return settings for the kinds of ConsumeQueues that are asked for: the database lies where STORE has one.

    Notes follow, and warnings. Raises InputError where no database can be made.
    """
    there = rocksdb_queues(settings.store_folder) if settings.store_folder and layouts.QUEUES in settings.only else None
    if not settings.makes_database:
        return settings, [], _of_queue_files(settings, there)
    option = f"--consumequeue-type {settings.consumequeue_type}"
    if settings.broker_version == OLDEST:
        raise errors.InputError(f"{option}: RocketMQ {OLDEST} keeps no ConsumeQueues in RocksDB: take file")
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


def _of_queue_files(settings: BuildSettings, there: RocksDBQueues | None) -> list[str]:
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
    stretches, lone = list[UnitStretch](), list[bytes]()

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
