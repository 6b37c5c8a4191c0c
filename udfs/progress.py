"""Tell the driver how far a task is within one piece of its work: the size of a small staged file says it.

A task has no other way to the driver that goes through Spark, a pool of processes and a bucket alike. A listing gives the
sizes of all such files, so that none of them is opened.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from typing import Final

from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.staging import StagingFolder

WHOLE: Final = 1000
"""Bytes of the file when all is done."""
INTERVAL = 0.4
"""Seconds between two writes of a task, and between two listings of the driver, in local folders."""
SELDOM = 10.0
"""The same where each is a request."""


def _interval(staging: StagingFolder) -> float:
    return SELDOM if files.no_rename(staging.root) else INTERVAL


class Position:
    """How far one attempt is with the work ``name``, which has ``total`` parts of any kind.

    Work that takes less than the interval writes nothing. Attempts write files of their own: of each work the furthest counts.
    """

    def __init__(self, staging: StagingFolder, name: str, total: int) -> None:
        self._temporary, self._total = staging.temporary, total
        self._path = files.join(staging.progress, f"{name}.{uuid.uuid4().hex}")
        self._interval = _interval(staging)
        self._next, self._told = time.monotonic() + self._interval, 0

    def moved(self, done: int) -> None:
        """So many parts are done. Raises nothing: work must not fail because nobody can be told of it."""
        now = time.monotonic()
        if now < self._next or self._total <= 0:
            return
        share = min(WHOLE * done // self._total, WHOLE)
        if share > self._told:
            with contextlib.suppress(OSError):
                files.write_bytes(self._temporary, self._path, [bytes(share)])
            self._told = share
        self._next = now + self._interval


class Positions:
    """How far all tasks are, as the driver sees it."""

    def __init__(self, staging: StagingFolder) -> None:
        self._folder, self._interval = staging.progress, _interval(staging)
        self._next, self._shares = 0.0, dict[str, float]()

    def shares(self) -> dict[str, float]:
        """The share (0 to 1) of each work, by its name, that its furthest attempt has done. Raises OSError."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + self._interval
            for entry in files.listing(self._folder):
                name = entry.name.partition(".")[0]
                self._shares[name] = max(self._shares.get(name, 0.0), entry.size / WHOLE)
        return self._shares
