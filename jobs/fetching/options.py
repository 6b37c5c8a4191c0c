"""The options of ``rmq-reindex fetch``, and the settings that they make."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rocketmq_reindex import files
from rocketmq_reindex.jobs.command import option_table, options
from rocketmq_reindex.storage_format import errors, showing

_THREADS_MAX: Final = 256


@dataclass(frozen=True)
class FetchSettings:
    """What is fetched, and where to. ``named_build`` and ``to`` are as given, ``build`` and ``store`` their absolute paths."""

    named_build: str
    to: str
    build: str
    store: str
    topics: bool = False
    """config/topics.json is put in also where the store has one"""
    threads: int = option_table.default_of("threads")
    keep: int = option_table.default_of("keep")
    """how many copies of each part stay"""
    dry_run: bool = False
    json: bool = False
    commitlogs: tuple[str, ...] = ()
    """where the broker's log lies; empty for ``commitlog`` in the store"""
    partial: bool = False
    """a build that leaves something out is laid out, too"""
    allow_empty: bool = False
    """a build of no record is laid out beside a log with records, too"""
    other_log: bool = False
    """nothing is asked of the log"""


def fetch_settings(given: Mapping[str, Any]) -> FetchSettings:
    """Return the settings that options make, by the names of the parser. Raises UsageError."""
    threads, keep = (given.get(name, option_table.default_of(name)) for name in ("threads", "keep"))
    if not 1 <= threads <= _THREADS_MAX:
        raise errors.UsageError(f"--threads {threads}: take 1 to {_THREADS_MAX}")
    if keep < 0:
        raise errors.UsageError(f"--keep {keep}: take 0 or more")
    build, store = _checked("BUILD", given["build"]), _checked("--to", given["to"])
    if files.no_rename(store):
        raise errors.UsageError(f"--to {showing.escape(given['to'])}: name a folder on a disk, as a broker has it")
    roots = tuple(_checked("--commitlog", root) for root in given.get("commitlogs", ()))
    places = {"named_build": given["build"], "build": build, "store": os.path.realpath(store), "commitlogs": roots}
    return FetchSettings(**{**given, **places})


parse_fetch: Final = options.reader("fetch", fetch_settings)
"""Return the settings that the words behind ``fetch`` make. Raises UsageError."""


def _checked(option: str, place: str) -> str:
    if not place:
        # A variable that is not set: as a path it would be the working folder.
        raise errors.UsageError(f"{option}: is empty: name a folder")
    return files.absolute(place)
