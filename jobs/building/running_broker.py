"""A broker that runs on the store may change the log while it is read, so a build refuses. The store's lock shows it."""

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
    """Return warnings. Raises InputError where a broker runs on the store; in a dry run that is a warning."""
    if settings.snapshot:
        return []
    running, unknown = brokers(settings)
    refused = [
        f"{one}: its log may change while it is read: stop it, or build from a copy; --snapshot says that it does not change"
        for one in running
    ]
    if refused and not settings.dry_run:
        raise InputError(refused[0])
    return refused + unknown


def brokers(settings: StoreSettings, more: Iterable[str] = ()) -> tuple[list[str], list[str]]:
    """Return a text for each store on which a broker runs, and for each where that cannot be known.

    ``more`` are further stores to look at.
    """
    running, unknown = [], []
    for store in dict.fromkeys(os.path.realpath(place) for place in (*_stores(settings), *more) if _is_here(place)):
        try:
            process = holder(store)
        except (OSError, InputError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else "is no regular file"
            unknown.append(f"{escape(os.path.join(store, LOCK))}: {reason}: whether a broker runs there is not known")
            continue
        if process is not None:
            who = f"process {process} holds {LOCK}" if process > 0 else f"{LOCK} is held"
            running.append(f"{escape(store)}: a broker runs on this store ({who})")
    return running, unknown


def _is_here(place: str) -> bool:
    return bool(place) and not files.is_remote(place)


def _stores(settings: StoreSettings) -> Iterator[str]:
    """Yields the folders where a running broker holds its lock: STORE, and what looks like a store around a log.

    The store of --broker-conf is left out: its broker may run while its log is read from a snapshot.
    """
    yield settings.store
    for root in filter(_is_here, settings.roots):
        for folder in (root.rstrip("/"), os.path.realpath(root)):
            around = os.path.dirname(folder)
            if os.path.basename(folder) == "commitlog" or any(os.path.lexists(f"{around}/{name}") for name in _OF_A_STORE):
                yield around
