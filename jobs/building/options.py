"""The options of ``rmq-reindex build``, and the settings that they make."""

import argparse
import json
from collections.abc import Callable, Sequence
from typing import Any

from rocketmq_reindex.jobs.building.settings import (
    CRC_MODES,
    BuildSettings,
    parse_delay_levels,
    parse_parts,
    parse_time,
    parse_window,
)
from rocketmq_reindex.jobs.command.broker_conf import read_conf, settings_of
from rocketmq_reindex.jobs.command.options import checked, command_parser
from rocketmq_reindex.jobs.publishing.layout import SIZES
from rocketmq_reindex.jobs.store.settings import ENGINES, StoreSettings, default_of, parse_version, topics_config
from rocketmq_reindex.jobs.watching.options import add_watch_options, watch_environment
from rocketmq_reindex.storage_format import topics as storage_format_topics
from rocketmq_reindex.storage_format.errors import InputError, UsageError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.timer.settings import UNDECIDED
from rocketmq_reindex.storage_format.versions import VERSIONS
from rocketmq_reindex.udfs import files


def _policy(text: str) -> str:
    if text != "capacity":
        parse_window(text)
    return text


def default(name: str, settings: type[StoreSettings] = BuildSettings) -> str:
    """Return the default of a setting as ``--help`` shows it."""
    value = default_of(settings, name)
    return ",".join(value) if isinstance(value, tuple) else str(value)


def of_files(name: str) -> str:
    """Return what ``--help`` shows of a setting that the files in STORE may show."""
    return f"taken from the files, or {default(name)}"


def add_store_options(parser: argparse.ArgumentParser, sizes: Callable[[str], str] = of_files) -> None:
    """Add the options that build and verify share. ``sizes`` returns what ``--help`` shows as the default of a size, and
    of the version."""
    add = parser.add_argument
    add(
        "--commitlog",
        dest="commitlogs",
        action="append",
        metavar="DIR",
        help="folder of segments, instead of STORE/commitlog (repeatable)",
    )
    add(
        "--broker-conf",
        metavar="FILE",
        help="take sizes, folders, delay levels and LMQ from a broker.conf; options given here win",
    )
    size = sizes("cq_file_size")
    add("--cq-file-size", type=int, metavar="BYTES", help=f"size of a ConsumeQueue file, a multiple of 20 ({size})")
    size = sizes("batch_cq_file_size")
    add("--batch-cq-file-size", type=int, metavar="BYTES", help=f"size of a batch ConsumeQueue file, a multiple of 46 ({size})")
    add("--hash-slots", type=int, metavar="N", help=f"number of slots of an IndexFile ({sizes('hash_slots')})")
    add(
        "--index-items", type=int, metavar="N", help=f"number of items of an IndexFile, as maxIndexNum ({sizes('index_items')})"
    )
    add("--segment-size", type=int, metavar="BYTES", help="size of a whole segment (taken from the files)")
    add("--crc", choices=tuple(CRC_MODES), help=f"checksums to verify ({default('crc')})")
    add("--lmq", action="store_true", help="include light message queues (enableLmq, enableMultiDispatch)")
    add(
        "--delay-levels",
        type=checked(parse_delay_levels),
        metavar="LEVELS",
        help=f"messageDelayLevel of the broker ({default('delay_levels')})",
    )
    version = sizes("broker_version")
    add(
        "--broker-version",
        type=parse_version,
        metavar="VERSION",
        help=f"RocketMQ version of the store, where the bytes differ: {', '.join(VERSIONS)}, or a release, such as 5.1.4 "
        f"({version})",
    )
    add(
        "--topics-config",
        metavar="FILE",
        help="a broker's config/topics.json: its batch topics (BatchCQ) get batch ConsumeQueues",
    )
    most = default("max_fill")
    add(
        "--max-fill",
        type=int,
        metavar="N",
        help=f"fill at most this many missing queue offsets that no lost bytes explain ({most})",
    )
    add("--snapshot", action="store_true", help="the log no longer changes: do not look whether a broker runs on the store")
    add("--range-size", type=int, metavar="BYTES", help="one task reads at most this many bytes of a segment (by the plan)")
    add("--master", metavar="URL", help="Spark master, where no session is there yet (local[*])")
    add(
        "--engine",
        choices=ENGINES,
        help=f"what runs the tasks: Spark, or processes of this machine, which need no Java ({default('engine')})",
    )
    add("--json", action="store_true", help="print the summary on stdout as one JSON object")


def add_delay_options(parser: argparse.ArgumentParser) -> None:
    """Add the options by which a restored broker knows what was delivered."""
    add = parser.add_argument
    add(
        "--write-delay", action="store_true",
        help="also write config/delayOffset.json and timer files, so that a broker delivers pending messages alone",
    )  # fmt: skip
    add(
        "--undecided", choices=UNDECIDED,
        help="with --write-delay: deliver, or drop, messages of which the log does not tell whether they were delivered "
        f"({default('undecided')})",
    )  # fmt: skip
    add(
        "--consumer-offsets", metavar="FILE",
        help="a backup of config/consumerOffset.json: it is checked against the log, and put into DIR/config",
    )  # fmt: skip


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of ``rmq-reindex build``. Options left out are absent, so that --broker-conf can tell.

    The help of an option ends with its default, which comes from the settings.
    """
    parser = command_parser(
        "rmq-reindex build", "Rebuild ConsumeQueue, IndexFiles and checkpoint from raw segments.", absent=True
    )
    add = parser.add_argument
    add("store", nargs="?", metavar="STORE", help="store folder or URI: the segments are in STORE/commitlog")
    add("--out", required=True, metavar="DIR", help="new folder or URI for the result, apart from STORE")
    add("--only", type=parse_parts, metavar="PARTS", help=f"build only these parts ({default('only')})")
    add(
        "--index-policy",
        type=_policy,
        metavar="POLICY",
        help="start a new IndexFile when one is full (capacity), or also at time windows, such as window:1h "
        f"({default('index_policy')})",
    )
    add(
        "--on-damage",
        choices=("fail", "stop", "salvage"),
        help="refuse a damaged log (rmq-reindex repair makes a sound one of it), build up to the first damage and lose what "
        f"follows, or skip what is damaged ({default('on_damage')})",
    )
    add(
        "--queue-order",
        choices=("logical", "broker", "fail"),
        help=f"what to do where the offsets of a queue repeat or have gaps ({default('queue_order')})",
    )
    add(
        "--checkpoint",
        choices=("safe", "broker"),
        help=f"one that is safe at the next crash, or the bytes of the broker's own rebuild ({default('checkpoint')})",
    )
    add("--include-topic", dest="include_topics", action="append", metavar="GLOB", help="only these topics (repeatable)")
    add("--exclude-topic", dest="exclude_topics", action="append", metavar="GLOB", help="not these topics (repeatable)")
    add("--until-offset", type=int, metavar="N", help="only records that start below this offset (the log's end)")
    add(
        "--until-time",
        type=parse_time,
        metavar="T",
        help="stop at the first record stored later: ms since 1970, or ISO with zone (the log's end)",
    )
    add("--write-topics", action="store_true", help="also draft DIR/config/topics.json from the log")
    add_delay_options(parser)
    add("--overwrite", action="store_true", help="replace what an earlier build wrote to DIR")
    add(
        "--allow-empty",
        action="store_true",
        help="build where the log, or what topics and limits leave of it, has no record, too",
    )
    add("--dry-run", action="store_true", help="say what would be read and written, and do nothing")
    add_store_options(parser)
    stores = parser.add_argument_group("object stores")
    stores.add_argument(
        "--keep-zeros", action="store_true", help="store files behind a URI with the zeros at their end, which fetch restores"
    )
    add_watch_options(parser)
    tables = parser.add_argument_group("Delta tables").add_argument
    tables(
        "--tables",
        metavar="URI",
        help="record the run in Delta tables below URI, a folder or what Spark can reach; with --engine local "
        "only what --incremental knows is kept there (none)",
    )
    tables("--messages-table", action="store_true", help="with --tables: also write a row for each message, without its body")
    tables("--incremental", action="store_true", help="read only what is new since the build in DIR, and rewrite what changes")
    tables("--recheck", action="store_true", help="with --incremental: read all that is known again, and compare digests")
    tables(
        "--build-id", metavar="ID", help="with --tables: the run's name; a retry with the same one replaces its rows (random)"
    )
    return parser


def parse_settings(arguments: Sequence[str]) -> BuildSettings:
    """Return the settings that the arguments behind ``build`` make. Raises UsageError."""
    return build_settings(vars(build_parser().parse_args(arguments)))


def build_settings(given: dict[str, Any]) -> BuildSettings:
    """Return the settings that options make, by the names of the parser. Raises UsageError."""
    values = merged(given)
    if not values["store"] and not values.get("commitlogs"):
        raise UsageError("rmq-reindex build: name a STORE, or --commitlog folders: see --help")
    return BuildSettings(**values, named=frozenset((*SIZES, "broker_version")) & values.keys()).check()


def merged(given: dict[str, Any]) -> dict[str, Any]:
    """Return what --broker-conf and --topics-config say and, in its place, what is ``given``, by names of settings.

    Raises UsageError.
    """
    conf, topics = given.pop("broker_conf", None), given.pop("topics_config", None)
    values: dict[str, Any] = {}
    if conf is not None:
        text, notes = read_conf(conf)
        values = settings_of(text, escape(conf)) | {"broker_conf": conf, "conf_notes": notes}
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


def batch_topics_of(store: str) -> tuple[str, ...]:
    """Return the batch topics of the store's own topics.json; none where it has no such file. Raises UsageError."""
    path = topics_config(store)
    return read_batch_topics(path) if files.entry_of(path).kind == files.FILE else ()


def read_batch_topics(path: str) -> tuple[str, ...]:
    """Return the batch topics of a topics.json (``queue.type=BatchCQ``). Raises UsageError."""
    try:
        return storage_format_topics.batch_topics(files.read_bytes(path, files.CONFIG_MAX).decode("utf-8", "replace"))
    except (OSError, InputError):
        raise UsageError(f"--topics-config {escape(path)}: cannot be read: name a broker's config/topics.json") from None
    except (ValueError, RecursionError) as error:
        what = "is no JSON" if isinstance(error, (json.JSONDecodeError, RecursionError)) else escape(str(error))
        raise UsageError(f"--topics-config {escape(path)}: {what}: name a broker's config/topics.json") from None
