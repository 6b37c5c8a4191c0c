"""The options of ``rmq-reindex build``, and the settings that they make."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from rocketmq_reindex.jobs.building.settings import (
    CRC_MODES,
    BuildSettings,
    parse_delay_levels,
    parse_parts,
    parse_time,
    parse_window,
)
from rocketmq_reindex.jobs.command.broker_conf import settings_of
from rocketmq_reindex.jobs.command.options import checked, command_parser
from rocketmq_reindex.jobs.publishing.layout import SIZES
from rocketmq_reindex.jobs.watching.options import add_watch_options, watch_environment
from rocketmq_reindex.storage_format.errors import InputError, UsageError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.topics import batch_topics
from rocketmq_reindex.udfs import files


def _policy(text: str) -> str:
    if text != "capacity":
        parse_window(text)
    return text


def build_parser() -> argparse.ArgumentParser:
    """``rmq-reindex build ...``. Options left out are absent, so that --broker-conf can tell."""
    parser = command_parser(
        "rmq-reindex build", "Rebuild ConsumeQueue, IndexFiles and checkpoint from raw segments.", absent=True
    )
    add = parser.add_argument
    add("store", nargs="?", metavar="STORE", help="store folder or URI: the segments are in STORE/commitlog")
    add("--out", required=True, metavar="DIR", help="new folder or URI for the result, apart from STORE")
    add(
        "--commitlog",
        dest="commitlogs",
        action="append",
        metavar="DIR",
        help="folder of segments, instead of STORE/commitlog (repeatable)",
    )
    add("--only", type=parse_parts, metavar="PARTS", help="any of consumequeue,index,checkpoint (all)")
    add("--cq-file-size", type=int, metavar="BYTES", help="ConsumeQueue file size, a multiple of 20 (6000000)")
    add("--batch-cq-file-size", type=int, metavar="BYTES", help="batch ConsumeQueue file size, a multiple of 46 (13800000)")
    add("--hash-slots", type=int, metavar="N", help="slots of an IndexFile (5000000)")
    add("--index-items", type=int, metavar="N", help="items of an IndexFile, as maxIndexNum (20000000)")
    add("--segment-size", type=int, metavar="BYTES", help="size of a whole segment (taken from the files)")
    add(
        "--index-policy",
        type=_policy,
        metavar="POLICY",
        help="capacity (as the broker), or window:1h to cut at time windows too",
    )
    add(
        "--on-damage",
        choices=("fail", "stop", "salvage"),
        help="refuse (fail), build up to the first damage, or go on after it",
    )
    add(
        "--queue-order",
        choices=("logical", "broker", "fail"),
        help="when a queue's offsets repeat or have gaps (logical)",
    )
    add("--crc", choices=tuple(CRC_MODES), help="which checksums are verified (body)")
    add(
        "--checkpoint",
        choices=("safe", "broker"),
        help="safe against the next crash, or as the broker's own rebuild (safe)",
    )
    add("--lmq", action="store_true", help="also build light message queues (enableLmq, enableMultiDispatch)")
    add(
        "--delay-levels",
        type=checked(parse_delay_levels),
        metavar="LEVELS",
        help="messageDelayLevel of the broker (1s 5s 10s 30s 1m ... 2h)",
    )
    add("--broker-version", choices=("5.3", "4.9"), help="where the two differ (5.3)")
    add("--include-topic", dest="include_topics", action="append", metavar="GLOB", help="only these topics (repeatable)")
    add("--exclude-topic", dest="exclude_topics", action="append", metavar="GLOB", help="not these topics (repeatable)")
    add("--until-offset", type=int, metavar="N", help="only records that start below this offset")
    add(
        "--until-time",
        type=parse_time,
        metavar="T",
        help="stop at the first record stored later (ms since 1970, or ISO with zone)",
    )
    add("--broker-conf", metavar="FILE", help="sizes, roots, delay levels and LMQ from a broker.conf")
    add(
        "--topics-config",
        metavar="FILE",
        help="a broker's config/topics.json: its batch topics (BatchCQ) get batch ConsumeQueues",
    )
    add("--write-topics", action="store_true", help="also draft DIR/config/topics.json from the log")
    add("--max-fill", type=int, metavar="N", help="missing queue offsets filled at most in all (100000)")
    add("--overwrite", action="store_true", help="replace what an earlier build wrote to DIR")
    add("--allow-empty", action="store_true", help="a log without records may replace a build that holds some")
    add("--snapshot", action="store_true", help="the log no longer changes: do not look whether a broker runs on the store")
    add("--range-size", type=int, metavar="BYTES", help="bytes of a segment that one task takes, at most")
    add("--master", metavar="URL", help="Spark master, when there is no session yet (local[*])")
    add("--dry-run", action="store_true", help="say what would be read and written, and do nothing")
    add("--json", action="store_true", help="the summary on stdout as one JSON object")
    stores = parser.add_argument_group("object stores")
    stores.add_argument(
        "--keep-zeros", action="store_true", help="store files behind a URI with the zeros at their end, which fetch restores"
    )
    add_watch_options(parser)
    tables = parser.add_argument_group("Delta tables").add_argument
    tables("--tables", metavar="URI", help="record the run in Delta tables below URI, a folder or what Spark can reach")
    tables("--messages-table", action="store_true", help="with --tables: also a row a message, without its body")
    tables("--incremental", action="store_true", help="read only what is new since the build in DIR, and rewrite what changes")
    tables("--recheck", action="store_true", help="with --incremental: read all that is known again, and compare digests")
    tables("--build-id", metavar="ID", help="with --tables: the run's name; a retry with the same one replaces its rows")
    return parser


def parse_settings(arguments: Sequence[str]) -> BuildSettings:
    """Settings from the words behind ``build``. Raises UsageError."""
    return build_settings(vars(build_parser().parse_args(arguments)))


def build_settings(given: dict[str, Any]) -> BuildSettings:
    """Settings from options, by the names of the parser. Raises UsageError."""
    values = merged(given)
    if not values["store"] and not values.get("commitlogs"):
        raise UsageError("rmq-reindex build: name a STORE, or --commitlog folders: see --help")
    return BuildSettings(**values, named=frozenset(SIZES) & values.keys()).check()


def merged(given: dict[str, Any]) -> dict[str, Any]:
    """What --broker-conf and --topics-config say, and over it what is ``given``, by names of settings. Raises UsageError."""
    conf, topics = given.pop("broker_conf", None), given.pop("topics_config", None)
    values: dict[str, Any] = {}
    if conf is not None:
        try:
            values = settings_of(files.read_bytes(conf).decode("utf-8", "replace"), escape(conf))
        except (OSError, InputError):
            raise UsageError(f"--broker-conf {escape(conf)}: cannot be read: name the broker's properties file") from None
        values["protected"] = tuple(values[name] for name in ("store",) if name in values)
        if "store" in given or "commitlogs" in given:
            values.pop("store", None)
            values.pop("commitlogs", None)
    if topics is not None:
        values["batch_topics"] = read_batch_topics(topics)
    values |= watch_environment()
    values |= {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    values.setdefault("store", "")
    return values


def read_batch_topics(path: str) -> tuple[str, ...]:
    """The batch topics of a topics.json. Raises UsageError."""
    try:
        return batch_topics(files.read_bytes(path).decode("utf-8", "replace"))
    except (OSError, InputError):
        raise UsageError(f"--topics-config {escape(path)}: cannot be read: name a broker's config/topics.json") from None
    except (ValueError, RecursionError) as error:
        what = "is no JSON" if isinstance(error, (json.JSONDecodeError, RecursionError)) else escape(str(error))
        raise UsageError(f"--topics-config {escape(path)}: {what}: name a broker's config/topics.json") from None
