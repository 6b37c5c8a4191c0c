"""A store's own timer files: ``config/timercheck``, ``timerlog`` and ``timerwheel`` are one set.

A broker takes messages into its wheel from where timercheck says. It knows those before that by timerlog and the wheel alone
(``TimerMessageStore.recover``). So a timercheck without the other two passes over every message that still waits.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Final

from rocketmq_reindex.jobs.publishing.layout import TIMER_CHECK, TIMERS
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.file_names import first_byte
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.plurals import counted
from rocketmq_reindex.storage_format.start.loading import WHEEL_SIZE
from rocketmq_reindex.storage_format.timer.check import SIZE, TimerCheckpoint
from rocketmq_reindex.udfs import files

TIMER_SET: Final = (TIMER_CHECK, *TIMERS)
_LOG, _WHEEL = TIMERS
_SNAPSHOT: Final = re.compile(r"timerwheel\.[0-9]+")
"""With ``timerWheelSnapshotFlush`` a broker takes the one of the highest number in the place of ``timerwheel``."""


@dataclass(frozen=True)
class TimerSet:
    """What a store has of the set. ``fault`` says why it is not whole, "" where it is.

    ``taken`` is how many messages of the timer topic a start passes over, by timercheck: 0 where it takes them again.
    """

    there: tuple[str, ...]
    fault: str
    taken: int

    @property
    def loses(self) -> bool:
        """Whether a start on these files passes over messages that wait."""
        return bool(self.fault and self.taken)


def read_set(store: str) -> TimerSet:
    """Look at the set in ``store``. Raises OSError, and InputError for a timercheck that is no regular file."""
    there = tuple(name for name in TIMER_SET if os.path.lexists(os.path.join(store, name)))
    check = TimerCheckpoint()
    if TIMER_CHECK in there:
        check = TimerCheckpoint.from_bytes(files.read_bytes(os.path.join(store, TIMER_CHECK), SIZE))
    return TimerSet(there, _fault(store, there, check), min(check.queue_offset, check.master_queue_offset))


def _fault(store: str, there: tuple[str, ...], check: TimerCheckpoint) -> str:
    if not there:
        return ""
    if TIMER_CHECK in there and not check.queue_offset:
        return f"{TIMER_CHECK} says that no message was taken"
    needed = [TIMER_CHECK, _WHEEL] if not check.log_flushed and _LOG not in there else [*TIMER_SET]
    if missing := [name for name in needed if name not in there]:
        return f"without {' and '.join(missing)}"
    wheel = os.path.join(store, _WHEEL)
    if os.path.getsize(wheel) != WHEEL_SIZE:
        return f"{_WHEEL} has {counted(os.path.getsize(wheel), 'byte')} where {WHEEL_SIZE:,} belong"
    end = _log_end(os.path.join(store, _LOG))
    if end < check.log_flushed:
        return f"{_LOG} ends at {end}, before {check.log_flushed}, which {TIMER_CHECK} names"
    return ""


def _log_end(folder: str) -> int:
    """Where the last file of timerlog ends; 0 for none."""
    entries = os.scandir(folder) if os.path.isdir(folder) else ()
    ends = [start + entry.stat().st_size for entry in entries if (start := first_byte(entry.name)) is not None]
    return max(ends, default=0)


def choose(store: str, parts: list[str], laid: bool, notes: list[str]) -> list[str]:
    """Of the ``parts`` of a build those to put in, as far as the timer set goes: all of it, or none.

    ``laid`` is set where a fetch laid the build's own set out before. What is decided is added to ``notes``.
    Raises InputError where a start would pass over messages that wait, and the build cannot help.
    """
    mine = [name for name in TIMER_SET if name in parts]
    if laid and mine:
        return parts
    own = read_set(store)
    if mine and (own.fault or not own.there):
        if snapshots := sorted(filter(_SNAPSHOT.fullmatch, os.listdir(store))):
            raise InputError(
                f"{escape(store)}: {', '.join(snapshots)}: with timerWheelSnapshotFlush a broker takes the last of them, "
                f"and not the build's {_WHEEL}: move them away first"
            )
        if own.there:
            notes.append(
                f"{', '.join(own.there)}: {_one_set(own)}: the build's whole set takes its place, the old files are kept"
            )
        return parts
    if mine:
        notes.append(
            f"{', '.join(own.there)}: the store's own stays, the build's is left out: move all of it away to take the build's"
        )
        return [part for part in parts if part not in mine]
    if own.loses and "consumequeue" in parts:
        raise InputError(
            f"{escape(os.path.join(store, own.there[0]))}: {_one_set(own)}, and by it a broker passes over the timer messages "
            f"that wait among {own.taken:,}: build with --write-delay, or restore {', '.join(TIMER_SET)} together from a backup"
        )
    return parts


def _one_set(own: TimerSet) -> str:
    return f"{own.fault}, it is not a whole set of timer files"
