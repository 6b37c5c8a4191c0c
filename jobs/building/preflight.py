"""What is asked before a log is read, and before its build is published: does a broker write to it, is there anything in it?"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from typing import Final

from jobs.building.settings import BuildSettings
from jobs.publishing import output
from jobs.publishing.layout import MANIFEST_MAX
from jobs.store.lock import LOCK, holder
from jobs.store.segments import Commitlog
from storage_format.errors import InputError
from storage_format.names import escape
from udfs import files

_OF_A_STORE: Final = ("consumequeue", "index", "checkpoint", "config", "abort")


def check(settings: BuildSettings, log: Commitlog, target: str) -> list[str]:
    """Warnings. Raises InputError where a broker runs, or where nothing would replace a build, unless an option allows it."""
    warnings = check_broker(settings)
    if not log.segments:
        check_empty(settings, target)
    told = "nothing is built from it" if log.segments else _BUILT_EMPTY
    return [*warnings, *(f"{escape(root)}: holds no segment: {told}" for root in bare_roots(settings, log))]


def bare_roots(settings: BuildSettings, log: Commitlog) -> list[str]:
    """Commitlog folders without a segment, as a disk that is not mounted leaves them."""
    folders = {files.parent(entry.path) for entry in log.entries}
    return [root for root in settings.roots if files.parent(files.join(root, "segment")) not in folders]


# -- a broker that runs -----------------------------------------------------------------------------------------------------


def check_broker(settings: BuildSettings) -> list[str]:
    """What could not be told. Raises InputError where a broker runs on the store; before a dry run that is a warning."""
    if settings.snapshot:
        return []
    running, untold = brokers(settings)
    refused = [
        f"{one}: its log may change while it is read: stop it, or build from a copy; --snapshot says that it does not change"
        for one in running
    ]
    if refused and not settings.dry_run:
        raise InputError(refused[0])
    return refused + untold


def brokers(settings: BuildSettings, more: Iterable[str] = ()) -> tuple[list[str], list[str]]:
    """(each store on which a broker runs, each of which that cannot be told), as words. ``more`` are stores as well."""
    running, untold = [], []
    for store in dict.fromkeys(os.path.realpath(place) for place in (*_stores(settings), *more) if _is_here(place)):
        try:
            process = holder(store)
        except (OSError, InputError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else "is no regular file"
            untold.append(f"{escape(os.path.join(store, LOCK))}: {reason}: whether a broker runs there is not known")
            continue
        if process is not None:
            who = f"process {process} holds {LOCK}" if process > 0 else f"{LOCK} is held"
            running.append(f"{escape(store)}: a broker runs on this store ({who})")
    return running, untold


def _is_here(place: str) -> bool:
    return bool(place) and not files.is_remote(place)


def _stores(settings: BuildSettings) -> Iterator[str]:
    """Folders with a broker's lock, if it runs: STORE, and what looks like a store around a log.

    Not that of --broker-conf: there the broker may well run whose log is read from a snapshot.
    """
    yield settings.store
    for root in filter(_is_here, settings.roots):
        for folder in (root.rstrip("/"), os.path.realpath(root)):
            around = os.path.dirname(folder)
            if os.path.basename(folder) == "commitlog" or any(os.path.lexists(f"{around}/{name}") for name in _OF_A_STORE):
                yield around


# -- a log without records --------------------------------------------------------------------------------------------------

_BUILT_EMPTY: Final = "what is built of it is empty: is its disk mounted?"


def check_records(settings: BuildSettings, records: int, size: int, target: str) -> list[str]:
    """The same when the log has been read: ``records`` were found in ``size`` bytes of segments."""
    if records or not size:
        return []
    check_empty(settings, target)
    return [f"no record in {size:,} bytes of log: what is built of it is empty"]


def check_empty(settings: BuildSettings, target: str) -> None:
    """Raises InputError where DIR holds a build of some records, which one without any is to replace."""
    if settings.allow_empty or settings.dry_run:
        return
    known = _records(target)
    if known:
        roots = ", ".join(map(escape, settings.roots))
        what = f"a build of {known:,} records" if known > 0 else "a build"
        raise InputError(
            f"{roots}: holds no record, so {what} stays in {escape(settings.out)}: mount the log's disk, or name the right "
            "folder; --allow-empty replaces it all the same"
        )


def _records(target: str) -> int:
    """Of the build in DIR; 0 where there is none, -1 where that cannot be told."""
    if files.look(target).kind != files.FOLDER:
        return 0
    standing = output.standing(target)
    if standing is None:
        return -1 if output.kept(target) else 0
    try:
        manifest = json.loads(files.read_bytes(files.join(standing.folder, output.MANIFEST), MANIFEST_MAX))
        return int(manifest["counts"]["records"])
    except (OSError, InputError, ValueError, KeyError, TypeError):
        return -1
