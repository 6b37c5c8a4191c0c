"""Into which slot of the wheel a timer message goes (``TimerMessageStore.doEnqueue``), by the broker's clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.timer.layout import MAGIC_DEFAULT, MAGIC_DELETE, MAGIC_ROLL
from rocketmq_reindex.storage_format.timer.settings import BLANK_SLOTS, SLOTS_TOTAL, TimerSettings

OVERDUE_PER_SLOT: Final = 100_000
"""A broker makes an object of each unit of a slot before it delivers the first."""
OVERDUE_SLOTS_MAX: Final = 6 * 24 * 3600
"""They lie in front of the clock, and a broker reads no slot that is SLOTS_TOTAL behind it."""
OVERDUE_SLOTS: Final = 2 * 24 * 3600
"""Of messages without marks at most: each slot takes one off the time in which the broker has to start."""

Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Placed:
    """Where messages lie in the wheel, in their order, and from where a broker reads its slots."""

    times: Longs
    """when each one's slot is read, in milliseconds since 1970"""
    magics: npt.NDArray[np.int32]
    first: int
    """the time of the first slot, or the clock where none is before it"""


def place(
    due: Longs, stored: Longs, deletes: Flags, clock: int, settings: TimerSettings, recalled: Flags | None = None
) -> Placed:
    """Place messages by the times at which they are ``due`` and were ``stored``; ``clock`` is a multiple of the precision.

    A broker lets a message roll that is due beyond its window, so that its record is not deleted before; by default a record
    lives for one window and a half (``fileReservedTime``). Only what is due later than its record lives rolls here, and when
    the broker would have let it: a mark may get lost on that way. All others go to the slot in which they are due.
    Marks and the messages that they cancel (``recalled``, bool (n,)) do not roll, if the wheel reaches as far: they would be
    taken once more one by one, and where the broker starts after they were due it delivers what it takes.
    What is overdue gets slots right in front of the clock, so that a start within days finds it: one for each step in which
    something was due, in their order, as in the wheel of the broker that was stopped. A reader may need that order: of popped
    messages the acknowledgement comes before the end of the time in which it was to come (``PopReviveService``).
    Neighbours share a slot where they have no mark and would take more than OVERDUE_SLOTS. A mark (``deletes``) works on the
    messages of its own slot alone. So a step with marks keeps a slot of its own. Raises InputError where these are more than
    OVERDUE_SLOTS_MAX.
    """
    step, window = settings.precision_ms, settings.roll_window
    times, magics = due.copy(), np.full(len(due), MAGIC_DEFAULT, np.int32)
    magics[deletes] |= MAGIC_DELETE
    # A broker takes a message right after it was stored; of a record without a time nothing is known.
    taken = np.where(stored > 0, np.minimum(stored // step * step, clock), clock)
    far = (SLOTS_TOTAL - BLANK_SLOTS) * step
    lives = min(max(settings.reserved_hours * 3_600_000, window), window + window // 2)
    lasts = due - taken < lives if recalled is None else (due - taken < lives) | recalled
    rolled = (due >= clock) & (~lasts | (due - clock >= far))
    magics[rolled] |= MAGIC_ROLL
    # A roll that is nearly all of the way would leave little time for the next one.
    near = due - taken - window < window // step // 3 * step
    ahead = np.where(near, window // step // 2 * step, window)
    times[rolled] = np.maximum(taken + ahead, clock)[rolled]
    overdue = np.flatnonzero(due < clock)
    if not len(overdue):
        return Placed(times, magics, clock)
    ranks = _ranks(due[overdue] // step, deletes[overdue])
    count = int(ranks.max()) + 1
    if count > OVERDUE_SLOTS_MAX:
        raise InputError(
            f"timer messages of {count:,} seconds are overdue and have delete marks: {OVERDUE_SLOTS_MAX:,} at most can be kept"
        )
    first = clock - count * step
    times[overdue] = first + ranks * step
    return Placed(times, magics, first)


def _ranks(steps: Longs, deletes: Flags) -> Longs:
    """For each overdue message the number of its new slot, by the step in which it was due."""
    order = np.argsort(steps, kind="stable")
    begins = np.flatnonzero(np.diff(steps[order], prepend=steps[order[0]] - 1))
    lengths = np.diff(begins, append=len(steps))
    marked = np.logical_or.reduceat(deletes[order], begins)
    # Steps without marks share slots, so many each, between two that have some.
    plain = ~marked
    room = max(1, min(OVERDUE_SLOTS, OVERDUE_SLOTS_MAX - 2 * int(np.count_nonzero(marked))))
    share = max(1, -(-int(np.count_nonzero(plain)) // room))
    opens = marked | np.append(True, marked[:-1])
    within = np.arange(len(begins)) - np.maximum.accumulate(np.where(opens, np.arange(len(begins)), 0))
    opens |= plain & (within % share == 0)
    new = np.zeros(len(steps), np.bool_)
    new[begins[opens]] = True
    # A slot without marks is cut where it is long.
    starts = np.flatnonzero(new)
    slot = np.cumsum(new) - 1
    place = np.arange(len(steps)) - starts[slot]
    new |= ~np.repeat(marked, lengths) & (place > 0) & (place % OVERDUE_PER_SLOT == 0)
    ranks = np.empty(len(steps), np.int64)
    ranks[order] = np.cumsum(new) - 1
    return ranks
