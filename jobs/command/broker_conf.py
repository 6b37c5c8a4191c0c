"""Settings from a broker's own properties file (``MessageStoreConfig``)."""

import contextlib
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from rocketmq_reindex import files
from rocketmq_reindex.jobs.command.option_table import BLOOM, OPTIONS, TIMERS
from rocketmq_reindex.storage_format import errors, showing
from rocketmq_reindex.storage_format.delay.settings import precision_ms
from rocketmq_reindex.storage_format.queue.units import CONSUMERS, ERROR_RATE, UNIT_SIZE

_BLANKS: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_OPTIONS: Final = {option.conf: (option.dest or name, option.type) for name, option in OPTIONS.items() if option.conf}
_NUMBERS: Final = {conf: name for conf, (name, kind) in _OPTIONS.items() if kind is int} | {
    conf: name for name, conf in {**TIMERS, **BLOOM}.items()
}
_TEXTS: Final = {conf: name for conf, (name, kind) in _OPTIONS.items() if kind is not int}
_SWITCHES: Final = {"enableAcceleratedRecovery": "accelerated", "timerRocksDBEnable": "timer_rocksdb"}
_OTHERS: Final = (
    *_SWITCHES, "forceVerifyPropCRC", "checkCRCOnRecover", "storeType",
    "rocksdbCQDoubleWriteEnable", "rocksdbCQSelectiveDoubleWriteEnable", "useSeparateStorePathForRocksdbCQ",
    "combineCQUseRocksdbForLmq",
    "enableLmq", "enableMultiDispatch", "enableDLegerCommitLog",
    "enableConsumeQueueExt", "enableCalcFilterBitMap", "storePathDLedgerCommitLog", "dLegerSelfId",
)  # fmt: skip
_DLEDGER_LOG: Final = "storePathDLedgerCommitLog"
_USUAL: Final = frozenset({
    "dLegerGroup", "dLegerPeers",
    "brokerClusterName", "brokerName", "brokerId", "brokerRole", "brokerIP1", "brokerIP2", "namesrvAddr", "listenPort",
    "deleteWhen", "flushDiskType", "autoCreateTopicEnable",
})  # fmt: skip
"""names by which a file is known for a broker's, though nothing is taken from them"""
_SIMILAR: Final = 0.85
_NO_TEXT: Final = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
"""control characters that no properties file has, in whatever encoding; terminals' own (ESC) are shown as escapes"""
_NAMED: Final = 5


def check_names(text: str, path: str, more: Iterable[str] = ()) -> tuple[str, ...]:
    """Return a note on each setting of a broker.conf whose name looks misspelt, by ``path`` as it is shown.

    ``more`` are names that the command takes besides those of ``settings_of``. Raises UsageError for a file without any setting
    of a broker.
    """
    conf, taken = read_properties(text), {*_NUMBERS, *_TEXTS, *_OTHERS, *more}
    right = taken | _USUAL
    asked = [
        f"{showing.escape(name, 60)}: is {near[0]} meant?"
        for name in sorted(conf.keys() - right)
        if (near := showing.near_names(name, taken, 1, _SIMILAR))
    ]
    if not conf.keys() & right:
        has = ", ".join(showing.escape(name, 60) for name in list(conf)[:_NAMED]) or "no setting"
        meant = f"; {asked[0]}" if asked else ""
        raise errors.UsageError(f"--broker-conf {path}: holds no setting of a broker ({has}{meant}): name its properties file")
    return tuple(f"{path}: has {fault} A broker passes over it" for fault in asked)


def read_conf(path: str, more: Iterable[str] = (), most: int = files.CONFIG_MAX) -> tuple[str, tuple[str, ...]]:
    """Return the text of a broker.conf of at most ``most`` bytes, and notes: those of ``check_names``, and on DLedger.

    Raises UsageError.
    """
    try:
        data = files.read_bytes(path, most)
    except (OSError, errors.InputError) as error:
        raise errors.UsageError(f"--broker-conf {unread(path, error)}: name the broker's properties file") from None
    if _NO_TEXT.search(data):
        raise errors.UsageError(
            f"--broker-conf {showing.escape(path)}: is not a broker.conf: it holds bytes that are no text: name its "
            "properties file"
        )
    text = data.decode("utf-8", "replace")
    shown = showing.escape(path)
    notes = check_names(text, shown, more)
    if elsewhere := read_properties(text).get(_DLEDGER_LOG, "").strip():
        read = "where STORE or a --commitlog is named, name this folder by --commitlog, too"
        notes += (f"{shown}: has {_DLEDGER_LOG}={showing.escape(elsewhere)}: {read}",)
    return text, notes


def without_given(settings: Mapping[str, Any], given: Collection[str], path: str) -> dict[str, Any]:
    """Return settings of a broker.conf, without its folders where ``given`` names the store or its log.

    Raises InputError where it has to be by these, and none is there that it names for the log, or else for the store.
    """
    if {"store", "commitlogs"} & set(given):
        return {setting: value for setting, value in settings.items() if setting not in ("store", "commitlogs")}
    for setting, name, instead in (
        ("commitlogs", "storePathCommitLog", "its folders of segments by --commitlog"),
        ("store", "storePathRootDir", "STORE itself"),
    ):
        if setting in settings:
            places = [settings[setting]] if isinstance(settings[setting], str) else settings[setting]
            if all(files.entry_of(place).kind != files.FOLDER for place in places):
                shown = showing.escape(",".join(places))
                raise errors.InputError(f"{path}: {name} is {shown}, where no folder is: name {instead}")
            break
    return dict(settings)


def numbers_told(text: str, given: Collection[str], path: str) -> dict[str, str]:
    """Return how a broker.conf, ``path`` as it is shown, has each number that is not ``given``, by the names of settings."""
    conf = read_properties(text)
    return {
        setting: f"{path}: {name} is {showing.escape(conf[name].strip(), 60)}"
        for name, setting in _NUMBERS.items()
        if name in conf and setting not in given
    }


def with_index_sizes(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of a broker.conf with both sizes of an IndexFile, where it has one: the other is the broker's default."""
    names = ("hash_slots", "index_items")
    return {**({name: OPTIONS[name].default for name in names} if settings.keys() & set(names) else {}), **settings}


def given_as(told: Mapping[str, str], defaults: Iterable[str] = (), **numbers: int) -> str:
    """Return how numbers were given, by the names of settings: as a broker.conf has those of ``told``, others as options.

    ``defaults`` are those that nobody gave.
    """
    in_file = [told[name] for name in numbers if name in told]
    words = {name: f"--{name.replace('_', '-')}" for name in numbers if name not in told}
    options = [f"{word} {numbers[name]}" for name, word in words.items() if name not in defaults]
    taken = [f"the default of {word} is {numbers[name]}" for name, word in words.items() if name in defaults]
    return " and ".join([", ".join([*in_file, " ".join(options)] if options else in_file), *taken])


def unread(path: str, error: Exception) -> str:
    """Return that a file which an option names cannot be read, with the reason in a few words: ``error`` is what was raised."""
    told = str(error) if isinstance(error, errors.ReindexError) else showing.reason(error)
    # Where its folder cannot be read, neither can be what it is.
    with contextlib.suppress(OSError, errors.InputError):
        if files.entry_of(path).kind == files.FOLDER:
            told = "it is a folder"
    for place in (files.absolute(path), path):
        told = told.removeprefix(f"{showing.escape(place)}: ")
    return f"{showing.escape(path)}: cannot be read ({told.removesuffix(': give a file')})"


def is_on(value: str) -> bool:
    """Return whether a switch is on (``MixAll.properties2Object``: Boolean.parseBoolean)."""
    return value.strip().lower() == "true"


def read_properties(text: str) -> dict[str, str]:
    """Return ``name = value`` lines as ``java.util.Properties.load`` takes them: comments, continued lines, escapes."""
    properties: dict[str, str] = {}
    joined: str | None = None
    for line in re.split(r"\r\n|\n|\r", text):
        line = line.lstrip(_BLANKS)
        if joined is None:
            if not line or line[0] in "#!":
                continue
            joined = ""
        goes_on = (len(line) - len(line.rstrip("\\"))) & 1
        joined += line[:-1] if goes_on else line
        if not goes_on:
            _take(joined, properties)
            joined = None
    if joined is not None:
        # The file ends in a backslash: what stands before it counts.
        _take(joined, properties)
    return properties


def _take(line: str, properties: dict[str, str]) -> None:
    if not line:
        return
    at = 0
    while at < len(line) and line[at] not in "=:" + _BLANKS:
        at += 2 if line[at] == "\\" else 1
    value = line[at:].lstrip(_BLANKS)
    if value[:1] in ("=", ":"):
        value = value[1:].lstrip(_BLANKS)
    properties[_plain(line[:at])] = _plain(value)


def _plain(text: str) -> str:
    """Return a text without escapes."""
    return re.sub(
        r"\\(u[0-9a-fA-F]{4}|.)",
        lambda match: chr(int(match[1][1:], 16)) if len(match[1]) > 1 else _ESCAPES.get(match[1], match[1]),
        text,
    )


def _with_rocksdb(conf: Mapping[str, str]) -> dict[str, Any]:
    """Return what a broker.conf says of ConsumeQueues in RocksDB (``MessageStoreConfig``, 5.5.1), by the names of settings.

    With storeType=defaultRocksDB a broker does not ask for the other switches (``BrokerController.initializeMessageStore``).
    """
    separate = {"rocksdb_separate": True} if is_on(conf.get("useSeparateStorePathForRocksdbCQ", "")) else {}
    if conf.get("storeType", "").strip().lower() == "defaultrocksdb":
        return {"consumequeue_type": "rocksdb", "rocksdb": ("storeType=defaultRocksDB",), **separate}
    double, light = (is_on(conf.get(f"rocksdbCQ{word}DoubleWriteEnable", "")) for word in ("", "Selective"))
    if not double:
        # The other switch by itself means nothing (``DefaultMessageStore.createConsumeQueueStore``, 5.5.1).
        return separate
    told = ("rocksdbCQDoubleWriteEnable=true", *(("rocksdbCQSelectiveDoubleWriteEnable=true",) if light else ()))
    # MultiDispatchUtils.checkMultiDispatchQueue
    light_alone = {"rocksdb_lmq": True} if is_on(conf.get("combineCQUseRocksdbForLmq", "")) else {}
    more = {**({"rocksdb_light": True} if light else {}), **light_alone, **separate}
    return {"consumequeue_type": "both", "rocksdb": told, **more}


def _with_dledger(settings: Mapping[str, Any], conf: Mapping[str, str]) -> dict[str, Any]:
    """Return the folders of segments of a broker with DLedger, where the file names any (``DLedgerCommitLog``).

    What such a broker had written before it had DLedger stays in commitlog/, which is not there where there was nothing.
    """
    store, elsewhere = settings.get("store", ""), conf.get(_DLEDGER_LOG, "").strip()
    node = conf.get("dLegerSelfId", "").strip() or "n0"
    own = elsewhere or (files.join(store, f"dledger-{node}/data") if store else "")
    plain = settings.get("commitlogs", (files.join(store, "commitlog"),) if store else ())
    if not own or not (elsewhere or "commitlogs" in settings):
        return {}
    there = tuple(place for place in (*plain, own) if files.entry_of(place).kind == files.FOLDER)
    return {"commitlogs": there} if there else {}


def settings_of(text: str, path: str) -> dict[str, Any]:
    """Return what a broker.conf says of sizes, roots, delay levels, LMQ, RocksDB and recovery, by the names of settings."""
    conf = read_properties(text)
    settings: dict[str, Any] = {}
    for name, setting in _NUMBERS.items():
        if name in conf:
            if not re.fullmatch(r"[+-]?[0-9]{1,18}", conf[name].strip()):
                value = showing.escape(conf[name], 60) or "empty"
                raise errors.UsageError(
                    f"{path}: {name} is {value}, not a number of at most 18 digits: a broker passes over it"
                )
            settings[setting] = int(conf[name].strip())
    if "cq_file_size" in settings:
        # MessageStoreConfig.getMappedFileSizeConsumeQueue rounds up to whole units.
        settings["cq_file_size"] = -(-settings["cq_file_size"] // UNIT_SIZE) * UNIT_SIZE
    if "timer_precision" in settings:
        settings["timer_precision"] = precision_ms(settings["timer_precision"])
    settings |= {setting: conf[name].strip() for name, setting in _TEXTS.items() if conf.get(name, "").strip()}
    if "commitlogs" in settings:
        # MixAll.MULTI_PATH_SPLITTER
        settings["commitlogs"] = tuple(root.strip() for root in settings["commitlogs"].split(",") if root.strip())
        if not settings["commitlogs"]:
            del settings["commitlogs"]
    if is_on(conf.get("enableDLegerCommitLog", "")):
        settings |= _with_dledger(settings, conf)
    settings |= {setting: True for name, setting in _SWITCHES.items() if is_on(conf.get(name, ""))}
    if is_on(conf.get("forceVerifyPropCRC", "")):
        settings["crc"], settings["property_crc_forced"] = "all", True
    if conf.get("checkCRCOnRecover", "").strip().lower() == "false":
        settings["crc_on_recover"] = False
    settings |= _with_rocksdb(conf)
    if all(is_on(conf.get(name, "")) for name in ("enableLmq", "enableMultiDispatch")):
        settings["lmq"] = True
    if is_on(conf.get("enableConsumeQueueExt", "")):
        # BrokerConfig's defaults: a broker makes its filter anew at each start.
        settings = {"bloom_error_rate": ERROR_RATE, "bloom_consumers": CONSUMERS, **settings}
        settings["cq_ext"] = "bitmap" if is_on(conf.get("enableCalcFilterBitMap", "")) else "plain"
    return settings
