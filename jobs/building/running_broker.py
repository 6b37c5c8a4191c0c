"""A broker that runs on the store: its log may change while it is read, so a build refuses. It is told by the store's lock."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Final

from rocketmq_reindex.jobs.building.settings import BuildSettings
from rocketmq_reindex.jobs.store.lock import LOCK, holder
from rocketmq_reindex.jobs.store.settings import StoreSettings
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.udfs import files

_OF_A_STORE: Final = ("consumequeue", "index", "checkpoint", "config", "abort")


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


def brokers(settings: StoreSettings, more: Iterable[str] = ()) -> tuple[list[str], list[str]]:
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


def _stores(settings: StoreSettings) -> Iterator[str]:
    """Folders with a broker's lock, if it runs: STORE, and what looks like a store around a log.

    Not that of --broker-conf: there the broker may well run whose log is read from a snapshot.
    """
    yield settings.store
    for root in filter(_is_here, settings.roots):
        for folder in (root.rstrip("/"), os.path.realpath(root)):
            around = os.path.dirname(folder)
            if os.path.basename(folder) == "commitlog" or any(os.path.lexists(f"{around}/{name}") for name in _OF_A_STORE):
                yield around
