"""The options of ``rmq-reindex preflight``, and the settings that they make."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rocketmq_reindex.jobs.command.broker_conf import read_conf
from rocketmq_reindex.jobs.command.options import checked, command_parser
from rocketmq_reindex.jobs.preflighting.broker_settings import SETTINGS, broker_settings
from rocketmq_reindex.jobs.preflighting.settings import BrokerSettings, PreflightSettings
from rocketmq_reindex.jobs.store.settings import parse_version
from rocketmq_reindex.storage_format.errors import UsageError
from rocketmq_reindex.storage_format.index.header import are_possible
from rocketmq_reindex.storage_format.integers import INT32_MAX
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.queue.units import BATCH_UNIT_SIZE, UNIT_SIZE
from rocketmq_reindex.storage_format.start.rules import DEFAULT_COUNT_LIMIT
from rocketmq_reindex.storage_format.versions import NEWEST
from rocketmq_reindex.udfs import files

CONF_MAX: Final = 1 << 20
"""bytes of a broker.conf that are read at most"""
_SIZES: Final = ("segment_size", "cq_file_size", "batch_cq_file_size", "hash_slots", "index_items")


def build_parser() -> argparse.ArgumentParser:
    """The parser of ``rmq-reindex preflight``. Options left out are absent from its result."""
    parser = command_parser(
        "rmq-reindex preflight", "Say what the start of a broker will do to a store. Nothing is written.", absent=True
    )
    add = parser.add_argument
    add("store", nargs="?", metavar="STORE", help="the broker's store (storePathRootDir), a local folder")
    add(
        "--broker-version",
        type=checked(parse_version),
        metavar="VERSION",
        help=f"release of the broker, such as 5.3.3; a line, such as 5.3, stands for its newest release ({NEWEST})",
    )
    add("--abort", choices=("yes", "no"), help="as if the last stop was unclean, or clean (by the store's file abort)")
    add("--broker-conf", metavar="FILE", help="take sizes, folders and settings from a broker.conf; options given here win")
    add(
        "--commitlog",
        dest="commitlogs",
        action="append",
        metavar="DIR",
        help="folder of segments; repeat it for a log spread over several (STORE/commitlog)",
    )
    taken = "(taken from the files)"
    add("--segment-size", type=int, metavar="BYTES", help=f"size of a whole segment {taken}")
    add("--cq-file-size", type=int, metavar="BYTES", help=f"size of a ConsumeQueue file {taken}")
    add("--batch-cq-file-size", type=int, metavar="BYTES", help=f"size of a batch ConsumeQueue file {taken}")
    add("--hash-slots", type=int, metavar="N", help=f"number of slots of an IndexFile {taken}")
    add("--index-items", type=int, metavar="N", help=f"number of items of an IndexFile, as maxIndexNum {taken}")
    add(
        "--count-limit",
        type=int,
        metavar="BYTES",
        help=f"read at most this much of the log only to count what is lost ({DEFAULT_COUNT_LIMIT})",
    )
    add("--json", action="store_true", help="print the result on stdout as one JSON object")
    return parser


def parse_preflight(arguments: Sequence[str]) -> PreflightSettings:
    """The settings in the words behind ``preflight``. Raises UsageError, and InputError for an unknown broker."""
    return preflight_settings(vars(build_parser().parse_args(arguments)))


def preflight_settings(given: Mapping[str, Any]) -> PreflightSettings:
    """The settings that options make, by the names of the parser. Raises the same."""
    broker, places = BrokerSettings(), dict[str, Any]()
    if "broker_conf" in given:
        broker, places = _read_conf(given["broker_conf"])
    passed_over = () if "commitlogs" in given else places.get("commitlogs", ())
    if "store" in given or "commitlogs" in given:
        places = {}
    store = given.get("store", places.get("store", ""))
    if not store:
        raise UsageError("rmq-reindex preflight: name a STORE: see --help")
    commitlogs = tuple(given.get("commitlogs", places.get("commitlogs", ())))
    for place in (store, *commitlogs):
        if files.is_remote(place):
            raise UsageError(f"{escape(place)}: is a URI: a broker starts on a store on a disk: name a folder")
        if not place:
            raise UsageError("--commitlog: is empty: name a folder")
    if "store" in given and passed_over not in ((), (files.join(files.absolute(store), "commitlog"),)):
        note = f"storePathCommitLog={escape(','.join(passed_over), 200)} is passed over for STORE: name it with --commitlog"
        broker = dataclasses.replace(broker, notes=(*broker.notes, f"{escape(given['broker_conf'])}: {note}"))
    count_limit = given.get("count_limit", DEFAULT_COUNT_LIMIT)
    if count_limit < 0:
        raise UsageError(f"--count-limit {count_limit}: take a number of bytes from 0 on")
    return PreflightSettings(
        files.absolute(store),
        commitlogs=tuple(map(files.absolute, commitlogs)),
        broker=_checked(dataclasses.replace(broker, **{name: given[name] for name in _SIZES if name in given})),
        abort=given["abort"] == "yes" if "abort" in given else None,
        broker_version=given.get("broker_version", NEWEST),
        named="broker_version" in given,
        broker_conf=given.get("broker_conf", ""),
        count_limit=count_limit,
        json=bool(given.get("json")),
    )


def _read_conf(path: str) -> tuple[BrokerSettings, dict[str, Any]]:
    text, notes = read_conf(path, SETTINGS, CONF_MAX)
    broker, places = broker_settings(text, escape(path))
    return dataclasses.replace(broker, notes=(*notes, *broker.notes)), places


def _checked(broker: BrokerSettings) -> BrokerSettings:
    """Raises UsageError for sizes that no broker has."""
    for name, unit in (("cq_file_size", UNIT_SIZE), ("batch_cq_file_size", BATCH_UNIT_SIZE), ("segment_size", 1)):
        size = getattr(broker, name)
        if size is not None and (size < unit or size % unit or size > INT32_MAX):
            units = f"a multiple of {unit} " if unit > 1 else "a number of bytes above 0 and "
            raise UsageError(f"--{name.replace('_', '-')} {size}: take {units}below 2 GiB")
    slots, items = broker.hash_slots, broker.index_items
    if (slots is None) != (items is None):
        raise UsageError("rmq-reindex preflight: --hash-slots and --index-items go together")
    if slots is not None and items is not None and not are_possible(slots, items):
        raise UsageError(
            f"--hash-slots {slots} --index-items {items}: take at least 1 slot and 2 items, and at most 2 GiB a file"
        )
    return broker
