"""The store that a command is pointed at: its segments, the settings that all commands share, and queues in RocksDB."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rocketmq_reindex import files
from rocketmq_reindex.jobs.command import option, option_table
from rocketmq_reindex.jobs.command.broker_conf import given_as
from rocketmq_reindex.jobs.store.folders import entries_in
from rocketmq_reindex.storage_format import errors, layouts, showing, versions
from rocketmq_reindex.storage_format.delay.settings import TimerSettings
from rocketmq_reindex.storage_format.index.layout import POSSIBLE, are_possible
from rocketmq_reindex.storage_format.queue.units import BATCH_UNIT_SIZE, UNIT_SIZE
from rocketmq_reindex.udfs.scan.segments import (
    Commitlog,
    check_unchanged,
    committed_index,
    entries_of,
    lead_of,
    list_segments,
    log_of_dledger,
    meant_by,
    no_folder,
    no_segments,
    several,
)

# --------------------------------------------------------------------------------------------------------------------- segments
# The commitlog's segments, listed by the same code on the driver as for Spark SQL's data sources; and what is no store.

__all__ = [
    "Commitlog",
    "check_has_parts",
    "check_is_folder",
    "check_is_store",
    "check_mends",
    "check_no_store",
    "check_plain",
    "check_some_log",
    "check_unchanged",
    "committed_index",
    "entries_of",
    "lead_of",
    "list_segments",
    "log_of_dledger",
    "meant_by",
    "several",
]

_PARTS = (layouts.COMMITLOG, layouts.QUEUES, layouts.BATCH_QUEUES, layouts.INDEX, layouts.CHECKPOINT, layouts.CONFIG)


def broker_config(store: str, name: str) -> str:
    """Return which file a broker reads for one in config/: FILE.bak where FILE is not there, or empty.

    A broker that is killed while it writes FILE leaves that (``ConfigManager.load``, 4.9 to 5.5).
    """
    path = files.join(store, "config", name)
    return path if has_bytes(path) or not has_bytes(f"{path}.bak") else f"{path}.bak"


def roots_of(store: str, commitlogs: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the folders of segments: those that were named, or else those in the store.

    Of DLedger a store has a log of its own, alone or behind an old commitlog. Its folder counts if it has a segment.
    """
    if commitlogs:
        return tuple(commitlogs)
    log, of_dledger = files.join(store, layouts.COMMITLOG), log_of_dledger(store)
    if not of_dledger:
        return (log,)
    return (log, of_dledger) if files.entry_of(log).kind == files.FOLDER else (of_dledger,)


def has_bytes(path: str) -> bool:
    """Return whether there is a file at ``path`` that is not empty. Whoever reads it is told why it cannot be read."""
    try:
        return files.entry_of(path).size > 0
    except OSError:
        return False


def topics_config(store: str) -> str:
    """Return where a broker finds the topics of a store (``BrokerPathConfigHelper.getTopicConfigPath``)."""
    return broker_config(store, "topics.json")


def check_is_folder(store: str) -> None:
    """Raise InputError for a store that is no folder."""
    if wrong := no_folder(store):
        raise errors.InputError(wrong)


def check_is_store(store: str) -> None:
    """Raise InputError for a folder of segments, or a part of a store, that was named in the place of a store."""
    if files.entry_of(files.join(store, layouts.COMMITLOG)).kind == files.ABSENT and (meant := meant_by(store)):
        raise errors.InputError(f"{showing.escape(store)}: is no store{meant}")


def check_some_log(roots: Sequence[str]) -> None:
    """Raise InputError where none of the folders ``roots`` can be one of segments. A disk of several may be lost."""
    wrong = list[errors.InputError]()
    for root in roots:
        try:
            entries_of((root,))
        except errors.InputError as error:  # noqa: PERF203  there are few folders
            wrong.append(error)
    if len(wrong) == len(roots):
        raise wrong[0]


def check_plain(roots: Sequence[str], told: str) -> None:
    """Raise InputError where one of the folders ``roots`` holds a log of DLedger; ``told`` says what does not read it."""
    of_dledger = [root for root in roots if lead_of(root, entries_in(root))]
    if of_dledger:
        beside = [f"--commitlog {showing.escape(root)}" for root in roots if root not in of_dledger]
        left = f"; where it is a leftover, name the plain log: {' '.join(beside)}" if beside else ""
        raise errors.InputError(f"{showing.escape(of_dledger[0])}: is a log of DLedger, {told}{left}")


def check_mends(roots: Sequence[str], *, to_plain: bool, named: bool = False) -> None:
    """Raise InputError for a log that a repair does not take: ``to_plain`` takes one of DLedger. ``named``: by --commitlog."""
    if not to_plain:
        told = "which repair does not mend: its node copies it from the leader; --to-plain makes a plain log of it"
        check_plain(roots, f"{told}, for a broker without DLedger")
    elif not any(lead_of(root, entries_in(root)) for root in roots):
        if not (remote := any(map(files.is_remote, roots))):
            check_some_log(roots)  # a mistyped STORE has a reason of its own; behind a URI no node's folder is looked for
        way = " or, behind a URI, name the folder: --commitlog .../dledger-<dLegerSelfId>/data" if remote and not named else ""
        where = ", ".join(map(showing.escape, roots))
        raise errors.InputError(f"{where}: holds no log of DLedger: --to-plain makes a plain log of one: leave it out{way}")


def check_no_store(roots: Sequence[str]) -> None:
    """Raise InputError for a store, or another part of one, that was named in the place of a folder of segments."""
    for root in roots:
        if files.entry_of(root).kind == files.FOLDER and (wrong := no_segments(root, files.listing(root))):
            raise errors.InputError(wrong)


def repeated(places: Sequence[tuple[str, ...]]) -> Iterator[int]:
    """Yield the number of each place that was named before, of places in the form in which equal ones are equal."""
    yield from (number for number, place in enumerate(places) if place in places[:number])


def check_has_parts(store: str) -> None:
    """Raise InputError for a folder with nothing in it that a store has."""
    if all(files.entry_of(files.join(store, part)).kind == files.ABSENT for part in _PARTS):
        if log_of_dledger(store):
            return
        raise errors.InputError(f"{showing.escape(store)}: is no store: it has none of {', '.join(_PARTS)}")


# --------------------------------------------------------------------------------------------------------------------- settings
# Settings that every command on a whole store shares: where the log lies, how it is read, what its files look like.


@dataclass(frozen=True, kw_only=True)
class StoreSettings:
    """Settings that build and verify share. Sizes are in bytes. What an option means, the table of options says.

    The others are what a ``--broker-conf`` says; their defaults are those of ``MessageStoreConfig`` (5.3).
    """

    store: str = field(kw_only=False)
    commitlogs: tuple[str, ...] = ()
    cq_file_size: int = option_table.default_of("cq_file_size")
    batch_cq_file_size: int = option_table.default_of("batch_cq_file_size")
    hash_slots: int = option_table.default_of("hash_slots")
    index_items: int = option_table.default_of("index_items")
    segment_size: int = option_table.default_of("segment_size")
    crc: option.Crc = option_table.default_of("crc")
    lmq: bool = False
    consumequeue_type: option.ConsumeQueueType = option_table.default_of("consumequeue_type")
    rocksdb_separate: bool = False  # ``useSeparateStorePathForRocksdbCQ``: the database lies in a folder of its own
    rocksdb_light: bool = False
    """``rocksdbCQSelectiveDoubleWriteEnable`` (5.5.1): the database has units of records of lite topics alone"""
    rocksdb_lmq: bool = False  # ``combineCQUseRocksdbForLmq`` (5.5.1): light queues have no files
    cq_ext: option.CqExt = option_table.default_of("cq_ext")
    cq_ext_file_size: int = option_table.default_of("cq_ext_file_size")
    bloom_error_rate: int = 0
    """``maxErrorRateOfBloomFilter``; 0: as the registrations have it"""
    bloom_consumers: int = 0
    """``expectConsumerNumUseFilter``; 0 likewise"""
    delay_levels: str = option_table.default_of("delay_levels")
    rocksdb: tuple[str, ...] = ()
    """the settings of --broker-conf by which ConsumeQueues lie in RocksDB"""
    accelerated: bool = False
    """``enableAcceleratedRecovery`` of --broker-conf"""
    property_crc_forced: bool = False
    """``forceVerifyPropCRC`` of --broker-conf (5.x): a recovery refuses records whose ``__CRC32#`` is wrong, or not there"""
    crc_on_recover: bool = True
    """``checkCRCOnRecover`` of --broker-conf: a recovery refuses records with a wrong body CRC"""
    broker_version: str = option_table.default_of("broker_version")
    batch_topics: tuple[str, ...] = ()
    """topics whose queues are batch ConsumeQueues, from --topics-config"""
    max_fill: int = option_table.default_of("max_fill")
    range_size: int = option_table.default_of("range_size")
    timer_precision: int = 1000
    """``timerPrecisionMs``"""
    timer_roll_window: int = 2 * 24 * 3600
    """``timerRollWindowSlot``"""
    timer_log_size: int = layouts.DEFAULT_TIMER_LOG
    """``mappedFileSizeTimerLog``, in bytes"""
    file_reserved_hours: int = 72
    """``fileReservedTime``: how long the broker keeps a segment at least"""
    timer_rocksdb: bool = False
    """``timerRocksDBEnable``: timer messages lie in RocksDB"""
    snapshot: bool = False
    broker_conf: str = field(default="", compare=False)
    """path of --broker-conf, for the commands that are advised"""
    conf_notes: tuple[str, ...] = ()
    """what --broker-conf has that looks misspelt, or is not followed"""
    conf_numbers: Mapping[str, str] = field(default_factory=dict, compare=False)
    """of the numbers that --broker-conf gives: how they stand there (``numbers_told``)"""
    protected: tuple[str, ...] = ()
    """more folders that nothing may be written to"""
    master: str = option_table.default_of("master")
    engine: option.Engine = option_table.default_of("engine")
    json: bool = False
    progress: option.Progress = option_table.default_of("progress")
    log_format: option.LogFormat = option_table.default_of("log_format")
    metrics: str = ""
    store_name: str = ""
    named: frozenset[str] = field(default=frozenset(), compare=False)
    """which of the sizes (``publishing.layout.SIZES``), ``broker_version``, ``batch_topics`` and ``engine`` the user named"""

    @property
    def store_folder(self) -> str:
        """STORE, or else the folder around the first --commitlog; "" where neither is known."""
        return files.absolute(self.store) if self.store else next(iter(self.log_stores), "")

    @property
    def log_stores(self) -> list[str]:
        """The stores around the folders of segments, of those that have a broker's name."""
        return [files.parent(root) for root in self.roots if files.base(root) == layouts.COMMITLOG]

    @property
    def roots(self) -> tuple[str, ...]:
        """The folders of segments, absolute: executors have working folders of their own."""
        return tuple(map(files.absolute, roots_of(self.store, self.commitlogs)))

    @property
    def committed(self) -> int:
        """The last entry of DLedger that is committed, by its index; INT64_MAX where that is not known, or the log is plain."""
        known = [index for root in self.roots if (index := committed_index(root)) >= 0]
        return known[0] if known else layouts.INT64_MAX

    @property
    def inputs(self) -> tuple[str, ...]:
        """All folders that are only read: whatever is written has to lie apart from them."""
        return tuple(place for place in (self.store, *self.roots, *self.log_stores, *self.protected) if place)

    @property
    def rules(self) -> versions.VersionRules:
        """What distinguishes the version."""
        return versions.RULES[self.broker_version]

    @property
    def delays(self) -> tuple[int, ...]:
        """The delay levels in milliseconds."""
        return option.parse_delay_levels(self.delay_levels)

    @property
    def timer_settings(self) -> TimerSettings:
        """What timer files depend on."""
        return TimerSettings(self.timer_precision, self.timer_roll_window, self.timer_log_size, self.file_reserved_hours)

    def is_named(self, size: str) -> bool:
        """Return whether a size differs from its default, or was named by the user all the same."""
        return size in self.named or getattr(self, size) != getattr(StoreSettings, size)

    def checked_places(self) -> dict[str, Any]:
        """Check the settings, and return ``store`` and ``commitlogs`` in their usual form.

        Raises UsageError, with a line for each setting that is wrong.
        """
        if wrong := list(self.problems()):
            raise errors.UsageError("\n".join(wrong))
        option.parse_delay_levels(self.delay_levels)
        store, *commitlogs = checked_paths(self.store, *self.commitlogs)
        return {"store": store, "commitlogs": tuple(commitlogs)}

    def _told(self, *names: str) -> str:
        """Return how numbers were given: in the file of --broker-conf, as options, or not at all."""
        defaults = [name for name in names if not self.is_named(name)]
        return given_as(self.conf_numbers, defaults, **{name: getattr(self, name) for name in names})

    def problems(self) -> Iterator[str]:
        """Yield what is wrong with each setting by itself, and with those that contradict each other."""
        if self.cq_file_size < UNIT_SIZE or self.cq_file_size % UNIT_SIZE or self.cq_file_size > layouts.INT32_MAX:
            yield f"{self._told('cq_file_size')}: take a multiple of {UNIT_SIZE} (one unit) below 2 GiB"
        if self.batch_cq_file_size < BATCH_UNIT_SIZE or self.batch_cq_file_size % BATCH_UNIT_SIZE:
            yield f"{self._told('batch_cq_file_size')}: take a multiple of {BATCH_UNIT_SIZE} (one batch unit)"
        if self.batch_cq_file_size > layouts.INT32_MAX:
            yield f"{self._told('batch_cq_file_size')}: a file has at most 2 GiB"
        if self.broker_version not in versions.RULES:
            yield f"--broker-version {self.broker_version!a}: take one of {', '.join(versions.VERSIONS)}"
        if self.batch_topics and not self.rules.batch_queues:
            yield (
                f"--topics-config: has batch topics (queue.type=BatchCQ), which RocketMQ "
                f"{self.broker_version} does not know: leave it out"
            )
        if not are_possible(self.hash_slots, self.index_items):
            yield f"{self._told('hash_slots', 'index_items')}: {POSSIBLE}"
        if self.segment_size > layouts.INT32_MAX:
            yield f"{self._told('segment_size')}: a segment has at most 2 GiB"
        for name in ("segment_size", "range_size"):
            if getattr(self, name) < 0:
                yield f"{self._told(name)}: take a number of bytes above 0"
        if self.engine == "local" and self.master and not self.master.startswith("local"):
            yield (f"--master {self.master}: --engine local runs on this machine alone: take local[N], or leave it out")
        if self.max_fill < 0:
            yield f"--max-fill {self.max_fill}: take a number from 0 on"


def checked_paths(*places: str) -> list[str]:
    """Return paths and URIs in their usual form. Raises UsageError for a URI that cannot be one."""
    try:
        return [files.checked(place) for place in places]
    except errors.InputError as error:
        raise errors.UsageError(str(error)) from None


# ---------------------------------------------------------------------------------------------------------------------- rocksdb
# Stores whose ConsumeQueues lie in RocksDB: where, and that no ConsumeQueue file takes their place.

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
        return files.base(self.folder) == layouts.QUEUES

    def __str__(self) -> str:
        shown = ", ".join(showing.escape(name) for name in self.names[-_SHOWN:])
        return f"{showing.escape(self.folder)}: holds ConsumeQueues in RocksDB ({shown})"


def rocksdb_queues(store: str) -> RocksDBQueues | None:
    """Return the RocksDB ConsumeQueues of a store, those in ``consumequeue/`` first; None where it has none.

    Mirrors the places of ``RocksDBConsumeQueueStore`` (5.5.0). ``rocksdbstore/``, which 5.4 and later always make, is none.
    """
    queues = entries_in(files.join(store, layouts.QUEUES))
    topics = any(entry.kind == files.FOLDER for entry in queues)
    for name, entries in ((layouts.QUEUES, queues), (layouts.SEPARATE, entries_in(files.join(store, layouts.SEPARATE)))):
        if names := layouts.rocksdb_files(entry.name for entry in entries if entry.kind == files.FILE):
            return RocksDBQueues(files.join(store, name), tuple(names), topics)
    return None


def check_files_are_compared(store: str, only: Iterable[str]) -> list[str]:
    """Return notes on a store of which ConsumeQueue files are compared. Raises InputError where there is RocksDB alone."""
    in_rocksdb = rocksdb_queues(store) if layouts.QUEUES in only else None
    if in_rocksdb is None:
        return []
    if not in_rocksdb.beside:
        raise errors.InputError(f"{in_rocksdb}: --against compares ConsumeQueue files alone: verify each store by itself")
    return [f"{in_rocksdb}: only the ConsumeQueue files beside it are compared"]


def check_swapped(store: str, parts: Collection[str], database: str = "", *, alone: bool = False) -> list[str]:
    """Return warnings on a store that gets new ``parts``, among them a database in the folder ``database`` if that is not "".

    ``alone``: it comes without ConsumeQueue files. Raises InputError where RocksDB ConsumeQueues would be moved away for files,
    or a second database comes beside them.
    """
    in_rocksdb = rocksdb_queues(store) if {layouts.QUEUES, layouts.SEPARATE} & set(parts) else None
    if in_rocksdb is None:
        return []
    folder = files.base(in_rocksdb.folder)
    if database and folder != database:
        raise errors.InputError(
            f"{in_rocksdb}: the build has its database in {database}/, and RocketMQ 5.5 does not start on two: move these "
            "files away first, or build again with the broker's own --broker-conf (useSeparateStorePathForRocksdbCQ)"
        )
    if database:
        lack = f"{in_rocksdb}: the ConsumeQueue files beside it go to {layouts.QUEUES}.previous, too, and the build has none"
        lacking = alone and in_rocksdb.beside and in_rocksdb.in_place
        return [f"{lack}: a broker with rocksdbCQDoubleWriteEnable then lacks them"] if lacking else []
    if in_rocksdb.in_place:
        raise errors.InputError(
            f"{in_rocksdb}: a broker with storeType=defaultRocksDB serves from them, so no files are put in their place: fetch "
            "a build with --consumequeue-type rocksdb, or both; or one of --only index,checkpoint, with --partial; or, if its "
            "storeType becomes default, move these files away first"
        )
    return [f"{in_rocksdb}: they stay; {UNREAD}"]
