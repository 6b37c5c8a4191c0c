"""The options of ``rmq-reindex info``, and the settings that they make.

By itself: the parser of info needs nothing else.
"""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from rocketmq_reindex.jobs.command.options import command_parser
from rocketmq_reindex.jobs.store.settings import StoreSettings
from rocketmq_reindex.storage_format.errors import InputError, UsageError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.udfs import files


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of ``rmq-reindex info``. Options left out are absent from its result."""
    parser = command_parser(
        "rmq-reindex info", "Say what is in a store, what is missing or stale, and what to run next. Nothing is written.",
        absent=True,
    )  # fmt: skip
    add = parser.add_argument
    add("store", metavar="STORE", help="the broker's store (storePathRootDir): a folder or a URI")
    add(
        "--commitlog", dest="commitlogs", action="append", metavar="DIR",
        help="folder of segments; repeat it for a log spread over several (STORE/commitlog)",
    )  # fmt: skip
    add("--json", action="store_true", help="print the result on stdout as one JSON object")
    return parser


def parse_info(arguments: Sequence[str]) -> StoreSettings:
    """Return the settings that the arguments behind ``info`` make. Raises UsageError."""
    return info_settings(vars(build_parser().parse_args(arguments)))


def info_settings(given: Mapping[str, Any]) -> StoreSettings:
    """Return the settings that options make, by the names of the parser. Raises UsageError."""
    roots = given.get("commitlogs", ())
    if not given["store"]:
        raise UsageError("rmq-reindex info: name a STORE: see --help")
    try:
        store, *roots = map(files.checked, (given["store"], *roots))
    except InputError as error:
        raise UsageError(f"rmq-reindex info: {escape(str(error))}") from None
    return StoreSettings(store, commitlogs=tuple(roots), json=bool(given.get("json")))
