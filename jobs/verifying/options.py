"""The options of ``rmq-reindex verify``: those that it shares with a build, and its own."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, Final

from rocketmq_reindex.jobs.building.options import add_store_options, default, merged
from rocketmq_reindex.jobs.command.options import command_parser
from rocketmq_reindex.jobs.publishing.layout import SIZES
from rocketmq_reindex.jobs.verifying.settings import VerifySettings, parse_only
from rocketmq_reindex.jobs.watching.options import add_watch_options

_OWN: Final = ("only", "sample", "against", "report", "work", "tables", "incremental", "recheck")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of ``rmq-reindex verify``. Options left out are absent, so that --broker-conf can tell."""
    parser = command_parser(
        "rmq-reindex verify",
        "Compare a store's commitlog with its ConsumeQueue, IndexFiles and checkpoint, both ways.",
        absent=True,
    )
    add = parser.add_argument
    add("store", nargs="?", metavar="STORE", help="folder of the store, or of a build, which needs --commitlog")
    add("--only", type=parse_only, metavar="PARTS", help=f"compare only these parts ({default('only', VerifySettings)})")
    add(
        "--sample",
        type=float,
        metavar="FRACTION",
        help=f"read only this share of the segments, always the same ones ({default('sample', VerifySettings)})",
    )
    add("--against", metavar="STORE", help="compare STORE with this store instead: both logs, and files of the same name")
    add("--report", metavar="FILE", help="also write the summary, as JSON, to FILE")
    add(
        "--work",
        metavar="DIR",
        help="folder for index items during the run; on a cluster one that all executors share (a temporary one)",
    )
    add_store_options(parser, lambda _: "taken from the files")
    add_watch_options(parser)
    known = parser.add_argument_group("verify again").add_argument
    known("--incremental", action="store_true", help="read only what is new in the log since the last verify of STORE")
    known("--tables", metavar="URI", help="with --incremental: folder or URI below which it keeps what it found in the log")
    known("--recheck", action="store_true", help="with --incremental: read all that is known again, and compare digests")
    return parser


def parse_verify(arguments: Sequence[str]) -> VerifySettings:
    """Return the settings that the arguments behind ``verify`` make. Raises UsageError and InputError."""
    return verify_settings(vars(build_parser().parse_args(arguments)))


def verify_settings(given: dict[str, Any]) -> VerifySettings:
    """Return the settings that options make, by the names of the parser. Raises UsageError and InputError."""
    own: dict[str, Any] = {name: given.pop(name) for name in _OWN if name in given}
    topics_config = given.get("topics_config", "")
    values = merged(given)
    named = frozenset((*SIZES, "broker_version")) & values.keys()
    return VerifySettings(**values, **own, named=named, topics_config=topics_config).check()
