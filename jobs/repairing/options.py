"""The options of ``rmq-reindex repair``, and the settings that they make."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from rocketmq_reindex.jobs.building.options import add_delay_options, add_store_options, default, merged
from rocketmq_reindex.jobs.command.options import command_parser
from rocketmq_reindex.jobs.publishing.layout import SIZES
from rocketmq_reindex.jobs.repairing.settings import RepairSettings
from rocketmq_reindex.jobs.watching.options import add_watch_options
from rocketmq_reindex.storage_format.errors import UsageError
from rocketmq_reindex.udfs.repair.links import LINKS


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of ``rmq-reindex repair``. Options left out are absent, so that --broker-conf can tell."""
    parser = command_parser(
        "rmq-reindex repair",
        "Write a new commitlog that a broker accepts whole, and the files derived from it. The old one is only read.",
        absent=True,
    )
    add = parser.add_argument
    add("store", nargs="?", metavar="STORE", help="store folder or URI: the segments are in STORE/commitlog")
    add(
        "--out", metavar="DIR", help="new folder or URI for the result, apart from STORE; it must not be there yet, or be empty"
    )
    add(
        "--replica", dest="replicas", action="append", metavar="STORE2",
        help="store of a replica, or a backup: lost bytes come from it where both logs are sure to be the same (repeatable)",
    )  # fmt: skip
    add(
        "--extend", action="store_true",
        help="where a replica goes on behind the log's end, take that, too: the log then ends where the replica does",
    )  # fmt: skip
    add(
        "--majority", action="store_true",
        help="take a sound record from the replicas where most of the logs have other bytes, which no CRC covers",
    )  # fmt: skip
    add(
        "--link", choices=LINKS,
        help="let unchanged segments share their bytes with the old ones: reflink where the file system can, hard links "
        f"for those before the log's end, or none: copy ({default('link', RepairSettings)})",
    )  # fmt: skip
    add(
        "--tombstones", action="store_true",
        help="put a record with the tag __LOST__ at each queue offset that is known to be lost",
    )  # fmt: skip
    add(
        "--include-broken", action="store_true",
        help="keep records whose body CRC alone is wrong, for a broker with checkCRCOnRecover=false (see --broker-conf)",
    )  # fmt: skip
    add(
        "--explain",
        metavar="MANIFEST",
        help="tell what an earlier repair changed: DIR/reindex.json; no other option goes with it",
    )
    add("--write-topics", action="store_true", help="also draft DIR/config/topics.json from the log")
    add_delay_options(parser)
    add_store_options(parser)
    add_watch_options(parser)
    return parser


def parse_settings(arguments: Sequence[str]) -> RepairSettings:
    """Return the settings that the arguments behind ``repair`` make. Raises UsageError."""
    return repair_settings(vars(build_parser().parse_args(arguments)))


def repair_settings(given: dict[str, Any]) -> RepairSettings:
    """Return the settings that options make, by the names of the parser. Raises UsageError."""
    given.pop("explain", None)
    values = merged(given)
    if not values["store"] and not values.get("commitlogs"):
        raise UsageError("rmq-reindex repair: name a STORE, or --commitlog folders: see --help")
    if not values.get("out"):
        raise UsageError("rmq-reindex repair: name --out DIR for the result: see --help")
    return RepairSettings(**values, named=frozenset((*SIZES, "broker_version")) & values.keys()).check()


def explained(arguments: Sequence[str]) -> str | None:
    """Return the manifest that ``--explain`` names, None without it. Raises UsageError where anything else is asked for."""
    if not any(word == "--explain" or word.startswith("--explain=") for word in arguments):
        return None
    given = vars(build_parser().parse_args(arguments))
    others = [name for name, value in given.items() if name != "explain" and value not in (None, False)]
    if others or not given["explain"]:
        raise UsageError("--explain: name one manifest, and nothing else")
    return str(given["explain"])
