"""The settings for delayed and timer messages: those of a broker, and the policies of a user.

By itself: each start reads it, and it imports no numpy.
"""

from dataclasses import dataclass
from typing import Final

from rocketmq_reindex.storage_format.layouts import DEFAULT_TIMER_LOG

# --------------------------------------------------------------------------------------------------------------------- settings
# The settings of a broker that its timer files depend on. No numpy here: every command reads its settings first.

SLOTS_TOTAL: Final = 7 * 24 * 3600
"""``TIMER_WHEEL_TTL_DAY`` at a precision of a second; a broker that was down for more slots passes over messages"""
BLANK_SLOTS: Final = 60
"""``TIMER_BLANK_SLOTS``"""


PRECISIONS_MS: Final = (100, 200, 500, 1000)
"""``MessageStoreConfig.setTimerPrecisionMs`` takes the nearest of these that is not above, or the first"""


def precision_ms(configured: int) -> int:
    """Return the milliseconds of a slot where a broker.conf has ``timerPrecisionMs`` = ``configured``."""
    return max((step for step in PRECISIONS_MS if step <= configured), default=PRECISIONS_MS[0])


@dataclass(frozen=True)
class TimerSettings:
    """The settings of a broker that its timer files depend on."""

    precision_ms: int = 1000
    """timerPrecisionMs"""
    roll_window_slots: int = 2 * 24 * 3600
    """timerRollWindowSlot"""
    log_file_size: int = DEFAULT_TIMER_LOG
    """mappedFileSizeTimerLog"""
    reserved_hours: int = 72
    """fileReservedTime: how long a record lives at least"""

    @property
    def roll_window(self) -> int:
        """Milliseconds: a message that is due later is put into the timer topic once more on its way."""
        highest = SLOTS_TOTAL - BLANK_SLOTS
        return (self.roll_window_slots if 2 <= self.roll_window_slots <= highest else highest) * self.precision_ms


# --------------------------------------------------------------------------------------------------------------------- policies
# What a user may say about delayed messages of which the log cannot tell whether they were delivered.

DELIVER: Final = "deliver"
DROP: Final = "drop"
