"""The options of ``rmq-reindex preflight``, a broker's own settings, and what a preflight goes by."""

import dataclasses
import re
from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from rocketmq_reindex import files
from rocketmq_reindex.jobs.command import option_table, options
from rocketmq_reindex.jobs.command.broker_conf import (
    given_as,
    is_on,
    numbers_told,
    read_conf,
    read_properties,
    settings_of,
    with_index_sizes,
    without_given,
)
from rocketmq_reindex.jobs.store.settings import checked_paths, repeated, roots_of
from rocketmq_reindex.storage_format import errors, layouts, versions
from rocketmq_reindex.storage_format.delay.settings import precision_ms
from rocketmq_reindex.storage_format.index.layout import POSSIBLE, are_possible
from rocketmq_reindex.storage_format.queue.units import BATCH_UNIT_SIZE, UNIT_SIZE
from rocketmq_reindex.storage_format.showing import escape

# --------------------------------------------------------------------------------------------------------------------- settings
# What a preflight is asked, and the broker's settings that it goes by.


@dataclass(frozen=True, kw_only=True)
class BrokerSettings:
    """The settings of ``MessageStoreConfig`` that matter to a start, as a broker.conf gives them. None: not given."""

    segment_size: int | None = None
    """``mappedFileSizeCommitLog``; not given: taken from the files, and so with the other sizes"""
    cq_file_size: int | None = None
    batch_cq_file_size: int | None = None
    hash_slots: int | None = None
    index_items: int | None = None
    delay_levels: str = option_table.default_of("delay_levels")
    """``messageDelayLevel``"""
    start: Mapping[str, int | bool] = field(default_factory=dict)
    """by the names of ``StartSettings``: what a broker.conf says of the start itself"""
    cq_ext: bool | None = None
    """``enableConsumeQueueExt``"""
    cq_ext_file_size: int | None = None
    """``mappedFileSizeConsumeQueueExt``"""
    group: bool | None = None
    """``enableControllerMode``"""
    timer_log_size: int = layouts.DEFAULT_TIMER_LOG
    """``mappedFileSizeTimerLog``"""
    timer_precision: int | None = None
    """milliseconds of a slot (``timerPrecisionMs``)"""
    timer_rocksdb: bool = False
    """``timerRocksDBEnable`` (5.4 on)"""
    timer_wheel: bool = True
    """``timerWheelEnable`` (5.x)"""
    simple_queues: bool = False
    """``storeType`` is given, and is not ``defaultRocksDB``"""
    rocksdb: bool = False
    """``storeType`` is ``defaultRocksDB``"""
    rocksdb_separate: bool = False
    """``useSeparateStorePathForRocksdbCQ`` (5.5.0 on)"""
    combined: Literal["files", "database"] | None = None
    """with ``rocksdbCQDoubleWriteEnable``, the kind of queues that consumers are given (``combineCQPreferCQType``)"""
    combined_extra: int = 3
    """``combineCQMaxExtraSearchCommitLogFiles``"""
    dledger: bool | None = None
    """``enableDLegerCommitLog``; None without a broker.conf"""
    dledger_node: str = ""
    """``dLegerSelfId`` of such a broker; "" where it is not given: the node that the store is of"""
    dledger_elsewhere: str = ""
    """``storePathDLedgerCommitLog``"""
    notes: tuple[str, ...] = ()
    """what the broker.conf has that matters, and is not taken into account"""


@dataclass(frozen=True, kw_only=True)
class PreflightSettings:
    """One question: what will a start of this release do to this store?"""

    store: str = field(kw_only=False)
    """local folder of the store"""
    commitlogs: tuple[str, ...] = ()
    """folders of segments, in the place of STORE/commitlog"""
    broker_version: str = versions.NEWEST
    """a line, such as 5.5, or a release"""
    named: bool = False
    """whether the user gave it"""
    abort: bool | None = None
    """as if there was a file ``abort``, or none; None: as the store has it"""
    broker: BrokerSettings = field(default_factory=BrokerSettings)
    broker_conf: str = ""
    """the file that ``broker`` is from"""
    count_limit: int = option_table.default_of("count_limit")
    """bytes of the log that are walked at most, only to count"""
    json: bool = False

    @property
    def release(self) -> str:
        """The release whose start is worked out: of those that are known, the newest of the line that is not newer."""
        named = self.broker_version
        if named in versions.LATEST or named in versions.RELEASES:
            return versions.LATEST.get(named, named)
        of_line = [release for release in versions.RELEASES if versions.line_of(release) == versions.line_of(named)]
        return max(
            (release for release in of_line if versions.numbers_of(release) <= versions.numbers_of(named)),
            key=versions.numbers_of,
            default=of_line[0],
        )

    @property
    def has_timers(self) -> bool:
        """Whether the broker has timer messages."""
        return self.broker.timer_wheel and versions.START_RULES[self.release].timers

    @property
    def has_ext(self) -> bool:
        """Whether the broker has ``enableConsumeQueueExt``: without a broker.conf one does whose store has such files."""
        if self.broker.cq_ext is not None:
            return self.broker.cq_ext
        return files.entry_of(files.join(self.store, layouts.EXT_QUEUES)).kind == files.FOLDER

    @property
    def stands_for_another(self) -> bool:
        """Whether the start of a named release is not known, and that of another is worked out."""
        return self.broker_version not in versions.LATEST and self.broker_version != self.release

    @property
    def roots(self) -> tuple[str, ...]:
        """The folders of segments. Of DLedger a node reads only its own log (``DLedgerConfig.getDefaultPath``)."""
        if self.commitlogs or not self.broker.dledger_node:
            return roots_of(self.store, self.commitlogs)
        log, own = files.join(self.store, layouts.COMMITLOG), files.join(self.store, f"dledger-{self.broker.dledger_node}/data")
        return (log, own) if files.entry_of(log).kind == files.FOLDER else (own,)


# -------------------------------------------------------------------------------------------------------------- broker_settings
# The settings of a broker.conf that decide what a start does (``MessageStoreConfig``, ``BrokerConfig``; 4.9.8 to 5.5.1).

_NUMBERS: Final = {"commitLogRecoverMaxNum": "recover_max_segments"}
_SWITCHES: Final = {
    "checkCRCOnRecover": "check_crc",
    "forceVerifyPropCRC": "force_verify_prop_crc",
    "checkCommitLogOffsetOnRecover": "check_offset",
    "enableAcceleratedRecovery": "accelerated",
    "messageIndexEnable": "message_index",
    "messageIndexSafe": "message_index_safe",
    "recheckReputOffsetFromCq": "recheck_reput",
}
"""Settings by their names in ``StartSettings``."""


_ROCKSDB: Final = "defaultrocksdb"


def _is_rocksdb(value: str) -> bool:
    return value.lower() == _ROCKSDB


def _names_rocksdb(value: str) -> bool:
    return _ROCKSDB in value.lower()


def _is_set(value: str) -> bool:
    return bool(value.strip())


_NOT_KNOWN: Final[Mapping[str, Callable[[str], bool]]] = {
    "duplicationEnable": is_on,
    "storeType": lambda value: _names_rocksdb(value) and not _is_rocksdb(value),
    "indexRocksDBEnable": is_on,
    "transRocksDBEnable": is_on,
    "readOnlyCommitLogStorePaths": _is_set,
    "messageStorePlugIn": _is_set,
}
"""Settings with which a start takes another way than the one that is followed here."""
_NOTED: Final[Mapping[str, tuple[Callable[[str], bool], str]]] = {
    "brokerRole": (
        lambda value: value.strip().upper() == "SLAVE",
        "is SLAVE: preflight does not know what the broker takes from its master",
    ),
    "timerRocksDBEnable": (is_on, "is on: timer messages in RocksDB are not looked at"),
    "indexFileWriteEnable": (lambda value: not is_on(value), "is off: preflight speaks of IndexFiles as if it was on"),
    "storePathEpochFile": (_is_set, "is set: preflight looks at STORE/epochFileCheckpoint"),
    "storePathConsumeQueue": (_is_set, "is no setting that a broker reads: STORE/consumequeue is"),
    "storePathIndex": (_is_set, "is no setting that a broker reads: STORE/index is"),
}


_GROUP: Final = "enableControllerMode"
_WITH_ROCKSDB: Final[Mapping[str, Callable[[str], bool]]] = {"enableLmq": is_on, _GROUP: is_on}
"""Settings with which a start on queues in RocksDB takes another way."""
_DOUBLE: Final = "rocksdbCQDoubleWriteEnable"
_DLEDGER: Final = "enableDLegerCommitLog"
_PREFERRED: Final[Mapping[str, Literal["files", "database"]]] = {"": "files", "default": "files", _ROCKSDB: "database"}
_BOTH: Final = frozenset({"", "default;defaultrocksdb", "defaultrocksdb;default"})
_WITH_BOTH: Final[Mapping[str, Callable[[str], bool]]] = {
    **_WITH_ROCKSDB,
    "storeType": _is_rocksdb,
    "combineCQPreferCQType": lambda value: value.lower() not in _PREFERRED,
    "combineAssignOffsetCQType": lambda value: value.lower() not in ("", "default"),
    "combineCQLoadingCQTypes": lambda value: value.lower() not in _BOTH,
    "combineCQUseRocksdbForLmq": is_on,
    "rocksdbCQSelectiveDoubleWriteEnable": is_on,
    "enableAcceleratedRecovery": is_on,
}
"""Settings with which a start on both kinds of queues takes another way."""
_EXTRA: Final = "combineCQMaxExtraSearchCommitLogFiles"


SETTINGS: Final = frozenset({
    *_NUMBERS, *_SWITCHES, *_NOT_KNOWN, *_NOTED, *_WITH_BOTH, "timerWheelEnable", "useSeparateStorePathForRocksdbCQ", _DOUBLE,
    _EXTRA, _GROUP, _DLEDGER,
})  # fmt: skip
"""names that a preflight takes, besides those that a build takes"""


def broker_settings(text: str, path: str) -> tuple[BrokerSettings, dict[str, Any]]:
    """Return the settings in the text of a broker.conf, and what it says of folders (``store``, ``commitlogs``).

    Raises UsageError for a number that is none, and InputError for a way to start that is not followed.
    """
    conf = read_properties(text)
    rocksdb = _is_rocksdb(conf.get("storeType", ""))
    both = is_on(conf.get(_DOUBLE, ""))
    not_known = {**_NOT_KNOWN, **({"storeType": _is_rocksdb, **_WITH_ROCKSDB} if rocksdb else {})}
    if both:
        not_known = {_DOUBLE: is_on, **_NOT_KNOWN, **_WITH_BOTH}
    if is_on(conf.get(_DLEDGER, "")):
        # With a controller BrokerStartup ends at once; of the others nothing is proven.
        not_known |= dict.fromkeys((_GROUP, "enableLmq", "enableConsumeQueueExt"), is_on)
    odd = [name for name, matters in not_known.items() if matters(conf.get(name, ""))]
    if odd and odd != ([_DOUBLE] if both else ["storeType"] if rocksdb else []):
        shown = ", ".join(f"{name}={escape(conf[name].strip(), 60)}" for name in odd)
        raise errors.InputError(f"{path}: has {shown}: preflight does not know what such a broker does at its start")
    sizes = with_index_sizes(settings_of(text, path))
    start: dict[str, int | bool] = {setting: _number(conf, name, path) for name, setting in _NUMBERS.items() if name in conf}
    start |= {setting: is_on(conf[name]) for name, setting in _SWITCHES.items() if name in conf}
    start["lmq"] = bool(sizes.get("lmq"))
    notes = [f"{path}: {name} {why}" for name, (matters, why) in _NOTED.items() if name in conf and matters(conf[name])]
    if is_on(conf.get("enableMultiDispatch", "")) and not start["lmq"]:
        notes.append(f"{path}: enableMultiDispatch is on without enableLmq: the queues that records name are not looked at")
    settings = BrokerSettings(
        **_those(sizes, *_SIZES, "cq_ext_file_size", "delay_levels", "timer_rocksdb"),
        cq_ext=is_on(conf.get("enableConsumeQueueExt", "")),
        group=is_on(conf.get(_GROUP, "")),
        start=start,
        timer_wheel=is_on(conf.get("timerWheelEnable", "true")),
        **(_node(conf) if is_on(conf.get(_DLEDGER, "")) else {"dledger": False}),
        simple_queues=_is_set(conf.get("storeType", "")) and not rocksdb,
        rocksdb=rocksdb,
        combined=_PREFERRED[conf.get("combineCQPreferCQType", "").lower()] if both else None,
        combined_extra=_number(conf, _EXTRA, path) if _EXTRA in conf else 3,
        rocksdb_separate=is_on(conf.get("useSeparateStorePathForRocksdbCQ", "")),
        notes=tuple(notes),
    )
    if "mappedFileSizeTimerLog" in conf:
        settings = dataclasses.replace(settings, timer_log_size=_number(conf, "mappedFileSizeTimerLog", path))
    if "timerPrecisionMs" in conf:
        settings = dataclasses.replace(settings, timer_precision=precision_ms(_number(conf, "timerPrecisionMs", path)))
    return settings, _those(sizes, "store", "commitlogs")


def _node(conf: Mapping[str, str]) -> dict[str, Any]:
    node, elsewhere = (conf.get(name, "").strip() for name in ("dLegerSelfId", "storePathDLedgerCommitLog"))
    return {"dledger": True, "dledger_node": node, "dledger_elsewhere": elsewhere}


def _number(conf: Mapping[str, str], name: str, path: str) -> int:
    value = conf[name].strip()
    if not re.fullmatch(r"[+-]?[0-9]{1,10}", value):
        raise errors.UsageError(f"{path}: {name} is {escape(value, 60)}, not a number")
    return int(value)


# ---------------------------------------------------------------------------------------------------------------------- options

CONF_MAX: Final = 1 << 20
"""bytes of a broker.conf that are read at most"""
_SIZES: Final = ("segment_size", "cq_file_size", "batch_cq_file_size", "hash_slots", "index_items")


def preflight_settings(given: Mapping[str, Any]) -> PreflightSettings:
    """Return the settings that options make, by the names of the parser. Raises UsageError and InputError."""
    broker, places, told = BrokerSettings(), dict[str, Any](), dict[str, str]()
    if "broker_conf" in given:
        broker, places, told = _read_conf(given["broker_conf"], given)
    passed_over = () if "commitlogs" in given else places.get("commitlogs", ())
    places = without_given(places, given, escape(given.get("broker_conf", "")))
    store = given.get("store", places.get("store", ""))
    if not store:
        raise errors.UsageError("rmq-reindex preflight: name a STORE: see --help")
    commitlogs = tuple(given.get("commitlogs", places.get("commitlogs", ())))
    for place in (store, *commitlogs):
        if files.is_remote(place):
            raise errors.UsageError(f"{escape(place)}: is a URI: a broker starts on a store on a disk: name a folder")
        if not place:
            raise errors.UsageError("--commitlog: is empty: name a folder")
        checked_paths(place)
    for number in repeated([files.canonical(place) for place in commitlogs]):
        raise errors.UsageError(f"--commitlog {escape(commitlogs[number])}: is named twice: name it once")
    _check_place(files.absolute(store), broker, escape(given.get("broker_conf", "")))
    if "store" in given and passed_over and passed_over != PreflightSettings(files.absolute(store), broker=broker).roots:
        note = f"storePathCommitLog={escape(','.join(passed_over), 200)} is passed over for STORE: name it with --commitlog"
        broker = dataclasses.replace(broker, notes=(*broker.notes, f"{escape(given['broker_conf'])}: {note}"))
    if given.get("count_limit", 0) < 0:
        raise errors.UsageError(f"--count-limit {given['count_limit']}: take a number of bytes from 0 on")
    return PreflightSettings(
        files.absolute(store),
        commitlogs=tuple(map(files.absolute, commitlogs)),
        broker=_checked(dataclasses.replace(broker, **_those(given, *_SIZES)), told, {*_SIZES} - given.keys()),
        abort=given["abort"] == "yes" if "abort" in given else None,
        named="broker_version" in given,
        **_those(given, "broker_version", "broker_conf", "count_limit", "json"),
    )


def _check_place(store: str, broker: BrokerSettings, path: str) -> None:
    """Raise InputError where the log of DLedger is not below the store: its index and checkpoint are."""
    elsewhere = broker.dledger_elsewhere
    if elsewhere and files.absolute(elsewhere) != files.join(store, f"dledger-{broker.dledger_node or 'n0'}/data"):
        raise errors.InputError(
            f"{path}: has storePathDLedgerCommitLog={escape(elsewhere, 200)}: preflight knows a log of DLedger only in "
            "STORE/dledger-<dLegerSelfId>/data"
        )


def _those(settings: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: settings[name] for name in names if name in settings}


parse_preflight: Final = options.reader("preflight", preflight_settings)
"""Return the settings in the words behind ``preflight``. Raises UsageError, and InputError for an unknown broker."""


def _read_conf(path: str, given: Collection[str]) -> tuple[BrokerSettings, dict[str, Any], dict[str, str]]:
    """Return what a broker.conf says, the folders in it, and how it has the numbers that are not ``given``."""
    text, notes = read_conf(path, SETTINGS, CONF_MAX)
    broker, places = broker_settings(text, escape(path))
    return dataclasses.replace(broker, notes=(*notes, *broker.notes)), places, numbers_told(text, given, escape(path))


def _checked(broker: BrokerSettings, told: Mapping[str, str], defaults: Set[str]) -> BrokerSettings:
    """Raise UsageError for sizes that no broker has. ``told`` and ``defaults`` are as in ``given_as``."""
    for name, unit in (("cq_file_size", UNIT_SIZE), ("batch_cq_file_size", BATCH_UNIT_SIZE), ("segment_size", 1)):
        size = getattr(broker, name)
        if size is not None and (size < unit or size % unit or size > layouts.INT32_MAX):
            units = f"a multiple of {unit} " if unit > 1 else "a number of bytes above 0 and "
            raise errors.UsageError(f"{given_as(told, **{name: size})}: take {units}below 2 GiB")
    slots, items = broker.hash_slots, broker.index_items
    if (slots is None) != (items is None):
        raise errors.UsageError("rmq-reindex preflight: --hash-slots and --index-items go together")
    if slots is not None and items is not None and not are_possible(slots, items):
        shown = given_as(told, defaults, hash_slots=slots, index_items=items)
        raise errors.UsageError(f"{shown}: {POSSIBLE}")
    return broker
