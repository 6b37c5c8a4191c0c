"""One file of a store: its kind, and what it holds."""

from __future__ import annotations

from typing import Any, NamedTuple

from rocketmq_reindex.jobs.inspecting.inspected import Inspected
from rocketmq_reindex.jobs.inspecting.kinds import QUEUE, TIMER_CHECK, TIMER_LOG, TIMER_WHEEL, kind_of
from rocketmq_reindex.jobs.inspecting.options import Inspection
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.names import escape, redacted
from rocketmq_reindex.storage_format.told import Nobody, Told
from rocketmq_reindex.udfs import files


class Look(NamedTuple):
    """A file that was inspected; ``file`` is its path without a password."""

    file: str
    kind: str
    found: Inspected

    @property
    def summary(self) -> dict[str, Any]:
        """What ``--json`` prints of the file."""
        return {"file": self.file, "kind": self.kind, **self.found.summary}


def look(path: str, asked: Inspection, told: Told | None = None) -> Look:
    """Inspect one file; ``told`` is told how far that is.

    Raises InputError and UnreadableError for a file that is none of a store, and OSError.
    """
    path = files.checked(path)
    entry = files.entry_of(path)
    if entry.kind != files.FILE:
        what = "is not there" if entry.kind == files.ABSENT else "is no file"
        raise InputError(f"{escape(path)}: {what}: give files of a store")
    kind = asked.kind or kind_of(path)
    return Look(redacted(path), kind, _inspect(kind, path, asked, told or Nobody()))


def _inspect(kind: str, path: str, asked: Inspection, told: Told) -> Inspected:
    """Modules that compile are imported for their own kind alone."""
    if kind == "segment":
        from rocketmq_reindex.jobs.inspecting.segment import segment

        return segment(path, asked.segment_size, asked.first_offset, told)
    if kind == "index":
        from rocketmq_reindex.jobs.inspecting.index import index

        return index(path, asked.sizes, told)
    if kind == "checkpoint":
        from rocketmq_reindex.jobs.inspecting.checkpoint import checkpoint

        return checkpoint(path)
    if kind in (TIMER_CHECK, TIMER_LOG, TIMER_WHEEL):
        from rocketmq_reindex.jobs.inspecting.timers import timer_check, timer_log, timer_wheel

        return {TIMER_CHECK: timer_check, TIMER_LOG: timer_log, TIMER_WHEEL: timer_wheel}[kind](path)
    from rocketmq_reindex.jobs.inspecting.queue import batch_queue, queue

    return (queue if kind == QUEUE else batch_queue)(path, asked.first_offset)
