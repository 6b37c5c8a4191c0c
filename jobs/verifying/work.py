"""What the stages of a verify share: the folder that they work in, where a build's files are, and their sizes."""

import contextlib
import dataclasses
import os
import tempfile
import uuid
from collections import Counter
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Final

from rocketmq_reindex import files
from rocketmq_reindex.jobs.building.options import batch_topics_of
from rocketmq_reindex.jobs.building.queue_kinds import OLDEST, registrations
from rocketmq_reindex.jobs.fetching.build import find_build
from rocketmq_reindex.jobs.publishing import layout
from rocketmq_reindex.jobs.publishing.layout import SIZES, Leftovers
from rocketmq_reindex.jobs.store.config_databases import lite_topics, unread_topics
from rocketmq_reindex.jobs.store.contents import StoreLog
from rocketmq_reindex.jobs.store.fitting import QUEUES, UsualSizes, index_files, index_sizes, queue_files, without_items
from rocketmq_reindex.jobs.store.folders import Notes, entries_in
from rocketmq_reindex.jobs.store.queue import StoreQueues
from rocketmq_reindex.jobs.store.settings import rocksdb_queues
from rocketmq_reindex.jobs.verifying.options import VerifySettings
from rocketmq_reindex.storage_format import layouts
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.index.layout import HEADER_SIZE, ITEM_SIZE, SLOT_SIZE, file_size
from rocketmq_reindex.storage_format.queue.extended import ConsumerFilters
from rocketmq_reindex.storage_format.queue.units import UNIT, Unit
from rocketmq_reindex.storage_format.record.layout import ENTRY_LAYOUT
from rocketmq_reindex.storage_format.showing import counted, escape
from rocketmq_reindex.storage_format.topics import LMQ_PREFIX, lite_parent
from rocketmq_reindex.udfs.queue_database import QueueDatabase
from rocketmq_reindex.udfs.scan.extended import FILTERS
from rocketmq_reindex.udfs.staging import StagingFolder
from rocketmq_reindex.udfs.verify.database import QueuesInFiles
from rocketmq_reindex.udfs.verify.queue_tasks import BesideFiles

# ------------------------------------------------------------------------------------------------------------------------ build
# A build behind a URI: only its manifest says which file of a store each of its files is.


def of_build(settings: VerifySettings) -> VerifySettings:
    """Return settings with the folder of the build that counts, where STORE is such an output or one of its builds.

    Other settings are returned as they are.
    Raises InputError for a manifest that is not as published, and where two stores are to be compared.
    """
    for store in (settings.store, settings.against) if settings.against else ():
        layout.check_laid_out(store)
    if not layout.identity(settings.store):
        return settings
    build = find_build(settings.store)
    sizes = {name: size for name, size in build.sizes.items() if name not in settings.named}
    of_ext = {file.size for file in build.wanted if file.path.startswith(f"{layouts.EXT_QUEUES}/")}
    if of_ext and not settings.is_named("cq_ext_file_size"):
        sizes["cq_ext_file_size"] = max(of_ext)  # files end behind their units there
    names = {files.base(file.at): files.base(file.path) for file in build.wanted if file.path.startswith(f"{layouts.INDEX}/")}
    changes = {
        **sizes,
        "store": build.folder,
        "named": settings.named | frozenset(SIZES) | sizes.keys(),
        "trimmed": True,
        "index_names": names,
    }
    return dataclasses.replace(settings, **changes)  # type: ignore[arg-type]  # names of VerifySettings


# ------------------------------------------------------------------------------------------------------------------------- work
# The folder for what the stages of a verify hand on to each other.


@contextlib.contextmanager
def work_folder(place: str, leftovers: Leftovers, is_here: bool = True) -> Iterator[StagingFolder]:
    """Yield a folder for this run alone, which ``leftovers`` removes whatever happens.

    On object stores and their mounts it shows signs of life, so that a later build to the same DIR can remove what a killed
    verify left in DIR/work. ``is_here``: all tasks run on this machine. Raises InputError where no folder can be made.
    """
    alive = bool(place) and files.no_rename(place)
    if alive:
        files.check_volume(place)
        place = files.absolute(place)
        if not files.is_remote(place) and not os.path.isdir(files.parent(place)):
            raise InputError(f"--work {escape(place)}: lies in no folder: make that first")
        files.make_folder(place, below=files.parent(place))
        folder = files.join(place, f"{layout.VERIFY}{uuid.uuid4().hex}")
    elif place and not os.path.isdir(place):
        raise InputError(f"--work {escape(place)}: is not a folder: make it first")
    elif not place and not is_here:
        raise InputError("--work: the executors may be on other machines: name a folder that all of them share")
    else:
        folder = tempfile.mkdtemp(prefix=layout.VERIFY, dir=os.path.abspath(place) if place else None)
    staging = StagingFolder(folder)
    try:
        with layout.Alive(staging) if alive else contextlib.nullcontext():
            staging.make()
            yield staging
    finally:
        leftovers.remove(folder)


# ------------------------------------------------------------------------------------------------------------------------ sizes
# What the files of a store say about settings that nobody named: sizes, batch topics, light queues.

FILES_ASKED: Final = 1000
"""ConsumeQueue files whose size is looked at"""


def of_database(settings: VerifySettings) -> tuple[VerifySettings, list[str]]:
    """Return settings that name the RocksDB database where the queues are, alone or beside files, and notes.

    Raises InputError where it cannot be read.
    """
    found = rocksdb_queues(settings.store) if layouts.QUEUES in settings.only else None
    if found is None:
        return settings, []
    if found.beside:
        beside = _beside_files(settings.store, found.folder)
        note = f"{found}: ConsumeQueue files are compared with the log"
        note += ": RocksDB has no queue yet" if beside.new else ", and RocksDB with them"
        note += ", or with the log where a queue has no file" if beside.alone else ""
        return dataclasses.replace(settings, database_beside=found.folder, beside=beside), [note]
    with contextlib.closing(QueueDatabase(found.folder)) as database:
        dispatched = database.dispatched()
    told = "does not say how far" if dispatched is None else f"says that the log is dispatched up to {dispatched}"
    return dataclasses.replace(settings, database=found.folder), [f"{found}: it is compared, and {told}"]


def _beside_files(store: str, folder: str) -> BesideFiles:
    """Return what the database in ``folder`` has, beside the ConsumeQueue files of a store. Raises InputError.

    There may be millions of light queues: none is held.
    """
    in_files, light = QueuesInFiles(files.join(store, layouts.QUEUES)), LMQ_PREFIX.encode()
    # CombineConsumeQueueStore.shouldDoubleWriteForTopic: a lite topic's own queues are there, too.
    lite = {topic.encode("utf-8", "surrogateescape") for topic in lite_topics(store)}
    plain, light_there = set[bytes](), False
    with contextlib.closing(QueueDatabase(folder)) as database:
        for topic in database.topics():
            if topic.startswith(light):
                light_there = True
                if parent := lite_parent(topic.decode("utf-8", "surrogateescape")):
                    lite.add(parent.encode("utf-8", "surrogateescape"))
            else:
                plain.add(topic)
        # A database that has lost the ends of other queues has their units.
        selective = plain <= lite and not database.has_units_of(lambda topic: topic not in lite, light)
        light_there = light_there or database.has_units_of(lambda topic: topic.startswith(light))
        light_alone = light_there and not any(topic.startswith(LMQ_PREFIX) for topic in in_files.topics)
        alone = light_alone or next(in_files.lacking(database.queues()), None) is not None
    names = frozenset(topic.decode("utf-8", "surrogateescape") for topic in lite)
    return BesideFiles(alone, light_alone, names if selective else None, new=selective and not lite and not light_there)


def take_sizes(settings: VerifySettings) -> tuple[VerifySettings, list[str]]:
    """Return settings with what the files of the store say, and a line on each that was taken from them. Raises InputError."""
    notes = list[str]()
    changes: dict[str, object] = {}
    for name, folder, unit in QUEUES:
        entries = islice(queue_files(files.join(settings.store, folder)), FILES_ASKED)
        usual = UsualSizes(entries, unit).usual if name not in settings.named else 0
        if usual and usual != getattr(settings, name):
            changes[name] = usual
            if layouts.QUEUES in settings.only:
                notes.append(f"{folder}: files of {usual:,} bytes, taken from the files")
    if not settings.is_named("cq_ext_file_size"):
        usual = UsualSizes(islice(queue_files(files.join(settings.store, layouts.EXT_QUEUES)), FILES_ASKED), 1).usual
        changes["cq_ext_file_size"] = usual or settings.cq_ext_file_size
        if usual not in (0, settings.cq_ext_file_size) and layouts.QUEUES in settings.only:
            notes.append(f"{layouts.EXT_QUEUES}: files of {usual:,} bytes, taken from the files")
    slots, items, known = _index_sizes(settings)
    changes |= {"hash_slots": slots, "index_items": items}
    if not known:
        notes.append("index: files without an item: their slots and items are not known")
    elif (slots, items) != (settings.hash_slots, settings.index_items):
        notes.append(f"index: {slots:,} slots and {items:,} items a file, taken from the files")
    # A build has no topics.json of its own, unless it drafted one: that of the store with its log says what it was made by.
    stores, asked = tuple(dict.fromkeys(map(files.absolute, (settings.store, *settings.log_stores)))), False
    if not settings.is_named("batch_topics") and settings.rules.batch_queues:
        asked = True
        try:
            found = (batch_topics_of(store, notes) for store in stores)
            changes["batch_topics"] = next(filter(None, found), ())
        except InputError:
            notes.append("config/topics.json cannot be read: batch queues are not known")
    notes += _not_known(settings, next(filter(None, map(unread_topics, stores)), ""), asked, bool(changes.get("batch_topics")))
    if settings.beside.light_alone:
        notes.append("light queues have no files: those in RocksDB are compared with the log")
        changes["lmq"] = True
    elif not settings.lmq and any(name.startswith(LMQ_PREFIX) for name in _topics(settings)):
        changes["lmq"] = True
        notes.append("light message queues are there: compared as with --lmq")
    return dataclasses.replace(settings, **changes, sizes_known=known), notes  # type: ignore[arg-type]  # names of settings


def of_dispatched(settings: VerifySettings) -> tuple[VerifySettings, list[str]]:
    """Return settings that know how far a node of DLedger has dispatched its log, and a note where its checkpoint lags.

    A node writes the checkpoint every three seconds, and one that was killed has dispatched more. Behind a URI that is not
    looked at: each queue would be asked for by itself.
    """
    known = settings.committed
    if known == layouts.INT64_MAX or files.is_remote(settings.store):
        return settings, []
    last, notes = -1, Notes.silent()
    with (
        contextlib.closing(StoreLog(settings.roots, notes)) as log,
        contextlib.closing(StoreQueues(settings.store, notes)) as queues,
    ):
        for topic, number in queues.each():
            queue = queues.open(topic, number, log, notes)
            if queue is not None:
                with contextlib.closing(queue):
                    last = max(last, _entry_of(queue.last_unit(), topic, number, log))
    if last <= known:
        return settings, []
    note = (
        f"the node's checkpoint calls entries of DLedger up to index {known} committed, and units lead to entries up to "
        f"{last}: a broker dispatches no others, so these are compared, too"
    )
    return dataclasses.replace(settings, dispatched_entry=last), [note]


def _entry_of(unit: Unit | None, topic: str, number: int, log: StoreLog) -> int:
    """Return the index of the entry to which a queue's unit leads; -1 unless that has the record of the unit."""
    if unit is None or unit.kind != UNIT:
        return -1
    segment, message = log.segment_of(unit.phy_offset), log.message(unit.phy_offset)
    if isinstance(segment, str) or isinstance(message, str) or not segment.lead:
        return -1
    if (message.topic, message.queue_id, message.queue_offset) != (topic, number, unit.base):
        return -1
    head = log.pages(segment).read(max(0, message.phy_offset - segment.start - segment.lead), segment.lead)
    return int.from_bytes(head[ENTRY_LAYOUT.at["index"] :][:8], "big", signed=True)


def _not_known(settings: VerifySettings, unread: str, asked: bool, found: bool) -> list[str]:
    """Return what a database of topics hides that cannot be read, and ``unread`` why, unless it was ``asked`` for batch topics.

    ``found``: another one has some.
    """
    if not unread or layouts.QUEUES not in settings.only:
        return []
    hidden = ["batch queues are compared as plain ones: give --topics-config"] if asked and not found else []
    if settings.database_beside:
        hidden.append(
            "lite topics are known by the names of light queues alone: RocksDB may seem to lack units of other topics"
        )
    if not hidden:
        return []
    return [*([] if asked else [unread]), f"topics that cannot be read: {'; '.join(hidden)}"]


def _topics(settings: VerifySettings) -> Iterator[str]:
    """Yield the topics that have queues, in files or in RocksDB alone."""
    yield from (entry.name for entry in entries_in(files.join(settings.store, layouts.QUEUES)))
    if settings.database:
        with contextlib.closing(QueueDatabase(settings.database)) as database:
            yield from (topic.decode("utf-8", "surrogateescape") for topic in database.topics())


def _index_sizes(settings: VerifySettings) -> tuple[int, int, bool]:
    """Return slots and items of an IndexFile, and whether they are known. What is not named comes from the files."""
    given = settings.named
    usual = settings.hash_slots, settings.index_items
    if {"hash_slots", "index_items"} <= given or layouts.INDEX not in settings.only:
        return *usual, True
    index = index_files(settings.store)
    if not index:
        return *usual, True
    size = Counter(entry.size for entry in index).most_common(1)[0][0]
    if "hash_slots" in given or "index_items" in given:
        if "hash_slots" in given:
            return settings.hash_slots, max(2, (size - HEADER_SIZE - SLOT_SIZE * settings.hash_slots) // ITEM_SIZE), True
        return max(1, (size - HEADER_SIZE - ITEM_SIZE * settings.index_items) // SLOT_SIZE), settings.index_items, True
    if size == file_size(*usual):
        return *usual, True
    guess = index_sizes([entry for entry in index if entry.size == size])
    if guess:
        return *guess, True
    if without_items(index):
        return *(_any_sizes(size) or usual), False
    raise InputError(f"index: files of {size:,} bytes, with unknown slots: give --hash-slots and --index-items")


def _any_sizes(size: int) -> tuple[int, int] | None:
    """Return slots and items that a file of this size may have: while it holds no item, any fit."""
    items, remainder = divmod(size - HEADER_SIZE - SLOT_SIZE, ITEM_SIZE)
    return (1 + remainder // SLOT_SIZE, items) if items >= 2 and remainder % SLOT_SIZE == 0 else None


# ------------------------------------------------------------------------------------------------------------- consumequeue_ext


def ext_folder(store: str) -> str:
    """Return the folder consumequeue_ext of a store, "" where it has none."""
    folder = files.join(store, layouts.EXT_QUEUES)
    return folder if files.entry_of(folder).kind == files.FOLDER else ""


def filters_of(settings: VerifySettings, fits: Collection[str]) -> tuple[ConsumerFilters | None, list[str]]:
    """Return by which registrations the bit maps of consumequeue_ext are checked, and notes.

    None where there is no such folder, and where a run with a memory compares the tagsCodes in it alone. Without registrations
    where store times are compared alone. ``fits`` are the versions that may have written the store, where nobody named one.
    """
    in_database, has_ext = settings.database or settings.beside.alone, bool(ext_folder(settings.store))
    if in_database and settings.incremental and not has_ext:
        return None, ["queues in RocksDB: --incremental compares no store times"]
    if settings.database or (in_database and not has_ext):
        # Units in RocksDB have a store time, and no bit map.
        return ConsumerFilters(), []
    if layouts.QUEUES not in settings.only or not has_ext:
        return None, []
    if settings.incremental:
        return None, ["consumequeue_ext: --incremental compares the tagsCodes in it alone"]
    # A 4.9 passes over what stands behind such a word: it is not known whether one has written the bits.
    old = "broker_version" not in settings.named and (not fits or OLDEST in fits)
    for store in dict.fromkeys((settings.store, *settings.log_stores)):
        try:
            filters, notes = registrations(settings, store, old=old)
        except InputError as error:
            return ConsumerFilters(), [f"{error}", "consumequeue_ext: bit maps are not compared"]
        if filters.bits:
            if old and filters.unasked:
                notes.append(
                    f"{FILTERS}: {counted(filters.unasked, 'expression')} with CONTAINS, STARTSWITH or ENDSWITH, which 4.9 does"
                    " not know: bits are not compared: --broker-version says which version has set them"
                )
            return filters, [*notes, *filters.notes]
    return ConsumerFilters(), ["consumequeue_ext: tagsCodes and store times are compared; there are no registrations for bits"]
