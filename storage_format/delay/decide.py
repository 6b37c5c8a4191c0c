"""At which queue offset a broker goes on with a delay level, and with the checks of half messages.

It delivers a level in the order of its queue: the offset that it kept (``ScheduleMessageService.offsetTable``) was one above
the highest that it had delivered. It checks half messages in the order of theirs (``TransactionalMessageServiceImpl.check``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.delay.evidence import Rows
from rocketmq_reindex.storage_format.delay.policies import DROP

Bools = npt.NDArray[np.bool_]
BELOW: Final = "no copy, though later ones of its level were delivered"
DAMAGE: Final = "was due, and its copy may lie in damage"
ALIKE: Final = "others are like it and have no UNIQ_KEY, and only some of them were delivered"
REASONS: Final = (BELOW, DAMAGE, ALIKE)


@dataclass(frozen=True)
class LevelOffset:
    """The offset of one level, and how many messages below the highest delivered one are delivered again by it."""

    offset: int
    again: int


def level_offset(highest: int, undecided: Rows, policy: str) -> LevelOffset:
    """The offset of a level of which ``highest`` is the highest delivered queue offset (-1: none).

    ``undecided`` are rows of EVIDENCE, ascending by queue offset. DELIVER goes back to the first of them, DROP goes on behind
    the last one.
    """
    offset = highest + 1
    if not len(undecided):
        return LevelOffset(offset, 0)
    places = undecided["queue_offset"]
    if policy == DROP:
        return LevelOffset(max(offset, int(places[-1]) + 1), 0)
    back = min(offset, int(places[0]))
    return LevelOffset(back, max(0, offset - back - int(np.count_nonzero(places < offset))))


def doubtful(rows: Rows, highest: int, last_gap: int, last_time: int, unclear: npt.NDArray[np.int64]) -> tuple[Bools, ...]:
    """Of which rows of EVIDENCE the log cannot tell whether they were delivered: masks for BELOW, DAMAGE and ALIKE, apart.

    ``last_gap`` is where the last damage ends (-1: none), ``last_time`` the store time of the log's last record, ``unclear``
    the physical offsets of those that others are like.
    """
    below = rows["queue_offset"] < highest
    damage = ~below & (rows["phy_offset"] < last_gap) & (rows["due"] <= last_time)
    return below, damage, ~below & ~damage & np.isin(rows["phy_offset"], unclear)


@dataclass(frozen=True)
class HalfOffsets:
    """Queue offsets of half messages: all below ``passed`` have a newer copy or are decided, and the last of them has a newer
    copy; ``pending`` is the first that has neither, as far as was looked; the last check had come to ``checked`` (-1: unknown).
    """

    passed: int
    pending: int
    checked: int

    def goes_on(self, given: int | None) -> int:
        """Where a broker goes on that was at ``given`` by its own file (None: there is no file).

        What it has passed since the file was written need not be checked again. Its own offset is right where the last check
        had not come to it: copies that older checks left may lie above it.
        """
        if given is None:
            return self.passed
        return max(given, self.passed) if given <= self.checked else given
