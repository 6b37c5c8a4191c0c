"""The options of ``rmq-reindex fetch``, and the settings that they make."""

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rocketmq_reindex.jobs.command.options import command_parser
from rocketmq_reindex.storage_format.errors import InputError, UsageError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.udfs import files

THREADS: Final = 8
THREADS_MAX: Final = 256
KEEP: Final = 1


@dataclass(frozen=True)
class FetchSettings:
    """What is fetched, and where to. ``named_build`` and ``to`` are as given, ``build`` and ``store`` their absolute paths."""

    named_build: str
    to: str
    build: str
    store: str
    topics: bool
    threads: int
    keep: int
    dry_run: bool
    commitlogs: tuple[str, ...] = ()
    """where the broker's log lies; empty for ``commitlog`` in the store"""
    partial: bool = False
    """a build that leaves something out is laid out, too"""
    allow_empty: bool = False
    """a build of no record is laid out beside a log with records, too"""
    other_log: bool = False
    """nothing is asked of the log"""


def build_parser() -> argparse.ArgumentParser:
    """The parser of ``rmq-reindex fetch``."""
    parser = command_parser(
        "rmq-reindex fetch",
        "Lay a build out in a broker's store: check every file, then put it in the place of the store's own.",
    )
    add = parser.add_argument
    add("build", metavar="BUILD", help="folder or URI that was --out of a build, or one build below it")
    add("--to", required=True, metavar="DIR", help="the broker's store (storePathRootDir); DIR/commitlog is never touched")
    add("--topics", action="store_true", help="put in config/topics.json also where the store has one of its own")
    add("--threads", type=int, default=THREADS, metavar="N", help=f"number of files fetched at once ({THREADS})")
    add("--keep", type=int, default=KEEP, metavar="N",
        help=f"of the copies PART.previous that fetches made keep the newest N of each part ({KEEP})")  # fmt: skip
    add("--commitlog", action="append", default=[], metavar="DIR",
        help="where the broker's log lies, if not in DIR/commitlog of --to; repeat it for more folders")  # fmt: skip
    add("--partial", action="store_true",
        help="take a build that leaves something out, by --only, topics, --until-offset and the like")  # fmt: skip
    add("--allow-empty", action="store_true", help="take a build without a record also where the store has records")
    add("--other-log", action="store_true", help="take a build also if it is not proved to be of the store's log")
    add("--dry-run", action="store_true", help="say what would be fetched and swapped, and do nothing")
    add("--json", action="store_true", help="print the summary on stdout as one JSON object")
    return parser


def parse_fetch(arguments: Sequence[str]) -> FetchSettings:
    """Settings from the words behind ``fetch``. Raises UsageError."""
    return fetch_settings(vars(build_parser().parse_args(arguments)))


def fetch_settings(given: Mapping[str, Any]) -> FetchSettings:
    """Settings from options, by the names of the parser. Raises UsageError."""
    if not 1 <= given["threads"] <= THREADS_MAX:
        raise UsageError(f"--threads {given['threads']}: take 1 to {THREADS_MAX}")
    if given["keep"] < 0:
        raise UsageError(f"--keep {given['keep']}: take 0 or more")
    build, store = _checked("BUILD", given["build"]), _checked("--to", given["to"])
    if files.no_rename(store):
        raise UsageError(f"--to {escape(given['to'])}: name a folder on a disk, as a broker has it")
    named = given["build"], given["to"]
    return FetchSettings(
        *named, build, os.path.realpath(store), given["topics"], given["threads"], given["keep"], given["dry_run"],
        tuple(_checked("--commitlog", root) for root in given["commitlog"]), given["partial"], given["allow_empty"],
        given["other_log"],
    )  # fmt: skip


def _checked(option: str, place: str) -> str:
    if not place:
        # A variable that is not set: as a path it would be the working folder.
        raise UsageError(f"{option}: is empty: name a folder")
    try:
        return files.absolute(files.checked(place))
    except InputError as error:
        raise UsageError(f"{option} {error}") from None
