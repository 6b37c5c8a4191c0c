"""The settings of a broker.conf that decide what a start does (``MessageStoreConfig``, ``BrokerConfig``; 4.9.8 to 5.5.1)."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from rocketmq_reindex.jobs.command.broker_conf import read_properties, settings_of
from rocketmq_reindex.jobs.preflighting.settings import BrokerSettings
from rocketmq_reindex.storage_format.errors import InputError, UsageError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.timer.settings import precision_ms

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


def _is_on(value: str) -> bool:
    # MixAll.properties2Object: Boolean.parseBoolean.
    return value.strip().lower() == "true"


def _is_rocksdb(value: str) -> bool:
    return "defaultrocksdb" in value.lower()


def _is_set(value: str) -> bool:
    return bool(value.strip())


_NOT_KNOWN: Final[Mapping[str, Callable[[str], bool]]] = {
    "enableDLegerCommitLog": _is_on,
    "enableControllerMode": _is_on,
    "duplicationEnable": _is_on,
    "storeType": _is_rocksdb,
    "rocksdbCQDoubleWriteEnable": _is_on,
    "combineCQPreferCQType": _is_rocksdb,
    "indexRocksDBEnable": _is_on,
    "transRocksDBEnable": _is_on,
    "readOnlyCommitLogStorePaths": _is_set,
    "messageStorePlugIn": _is_set,
}
"""Settings with which a start takes another way than the one that is followed here."""
_NOTED: Final[Mapping[str, tuple[Callable[[str], bool], str]]] = {
    "brokerRole": (
        lambda value: value.strip().upper() == "SLAVE",
        "is SLAVE: preflight does not know what the broker takes from its master",
    ),
    "enableConsumeQueueExt": (_is_on, "is on: consumequeue_ext is not looked at"),
    "timerRocksDBEnable": (_is_on, "is on: timer messages in RocksDB are not looked at"),
    "indexFileWriteEnable": (lambda value: not _is_on(value), "is off: preflight speaks of IndexFiles as if it was on"),
    "storePathConsumeQueue": (_is_set, "is no setting that a broker reads: STORE/consumequeue is"),
    "storePathIndex": (_is_set, "is no setting that a broker reads: STORE/index is"),
}


SETTINGS: Final = frozenset({*_NUMBERS, *_SWITCHES, *_NOT_KNOWN, *_NOTED, "timerWheelEnable"})
"""names that a preflight takes, besides those that a build takes"""


def broker_settings(text: str, path: str) -> tuple[BrokerSettings, dict[str, Any]]:
    """The settings in the text of a broker.conf, and what it says of folders (``store``, ``commitlogs``).

    Raises UsageError for a number that is none, and InputError for a way to start that is not followed.
    """
    conf = read_properties(text)
    odd = [f"{name}={escape(conf[name].strip(), 60)}" for name, matters in _NOT_KNOWN.items() if matters(conf.get(name, ""))]
    if odd:
        raise InputError(f"{path}: has {', '.join(odd)}: preflight does not know what such a broker does at its start")
    sizes = settings_of(text, path)
    start: dict[str, int | bool] = {setting: _number(conf, name, path) for name, setting in _NUMBERS.items() if name in conf}
    start |= {setting: _is_on(conf[name]) for name, setting in _SWITCHES.items() if name in conf}
    start["lmq"] = bool(sizes.get("lmq"))
    notes = [f"{path}: {name} {why}" for name, (matters, why) in _NOTED.items() if name in conf and matters(conf[name])]
    if _is_on(conf.get("enableMultiDispatch", "")) and not start["lmq"]:
        notes.append(f"{path}: enableMultiDispatch is on without enableLmq: the queues that records name are not looked at")
    names = ("segment_size", "cq_file_size", "batch_cq_file_size", "hash_slots", "index_items", "delay_levels")
    found = BrokerSettings(
        **{name: sizes[name] for name in names if name in sizes},
        start=start,
        timer_wheel=_is_on(conf.get("timerWheelEnable", "true")),
        timer_rocksdb=_is_on(conf.get("timerRocksDBEnable", "")),
        simple_queues=_is_set(conf.get("storeType", "")),
        notes=tuple(notes),
    )
    if "mappedFileSizeTimerLog" in conf:
        found = dataclasses.replace(found, timer_log_size=_number(conf, "mappedFileSizeTimerLog", path))
    if "timerPrecisionMs" in conf:
        found = dataclasses.replace(found, timer_precision=precision_ms(_number(conf, "timerPrecisionMs", path)))
    return found, {name: sizes[name] for name in ("store", "commitlogs") if name in sizes}


def _number(conf: Mapping[str, str], name: str, path: str) -> int:
    value = conf[name].strip()
    if not re.fullmatch(r"[+-]?[0-9]{1,10}", value):
        raise UsageError(f"{path}: {name} is {escape(value, 60)}, not a number")
    return int(value)
