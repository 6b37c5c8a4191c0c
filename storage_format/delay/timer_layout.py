"""Layouts of ``timerlog``, ``timerwheel`` and ``config/timercheck``, and the rules of a slot's time."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.delay.settings import SLOTS_TOTAL
from rocketmq_reindex.storage_format.layouts import INT32, INT64, Field, Layout, as_int

# ----------------------------------------------------------------------------------------------------------------------- layout
# Layouts of ``timerlog`` (``TimerLog``), ``timerwheel`` (``TimerWheel``, ``Slot``) and the rules of a slot's time.
#
# They are the same from 5.0.0 to 5.5.1.

LOG_LAYOUT: Final = Layout(
    Field("size", "size", INT32),
    Field("prev pos", "prev_pos", INT64),  # the unit before it in its slot, -1 for the first
    Field("magic", "magic", INT32),
    Field("curr write time", "written", INT64),
    Field("delayed time", "delayed", INT32),  # milliseconds after it: the slot's time
    Field("offsetPy", "phy_offset", INT64),
    Field("sizePy", "record_size", INT32),
    Field("hash code of real topic", "topic_hash", INT32),
    Field("reserved value", "reserved", INT64),
)
LOG_UNIT: Final = LOG_LAYOUT.dtype
"""``TimerLog.UNIT_SIZE``: 52 bytes"""
BLANK_SIZE: Final = 16
"""``TimerLog.MIN_BLANK_LEN``: the first three fields of a unit, which close a file"""
MAGIC_BLANK: Final = as_int(0xBBCCDDEE ^ (1880681586 + 8))
"""``TimerLog.BLANK_MAGIC_CODE``"""
MAGIC_BITS: Final = 0xF
"""``TimerMessageStore.isMagicOK``: a unit's magic has no other bits"""
MAGIC_DEFAULT: Final = 1
MAGIC_ROLL: Final = 2
"""When its slot is read, the message is put into the timer topic once more."""
MAGIC_DELETE: Final = 4
"""The message is a mark that deletes another one of its slot."""

SLOT_LAYOUT: Final = Layout(
    Field("delayed time", "time", INT64),  # in units of timerPrecisionMs
    Field("first pos", "first_pos", INT64),
    Field("last pos", "last_pos", INT64),
    Field("num", "count", INT32),  # units without the marks that delete, less those marks
    Field("magic", "magic", INT32),
)
SLOT: Final = SLOT_LAYOUT.dtype
"""``Slot.SIZE``: 32 bytes"""
WHEEL_SLOTS: Final = 2 * SLOTS_TOTAL
WHEEL_SIZE: Final = WHEEL_SLOTS * SLOT_LAYOUT.size


def units_per_file(log_file_size: int) -> int:
    """Return units that a file of ``timerlog`` takes (``TimerLog.append``): a blank one always fits behind them."""
    return (log_file_size - BLANK_SIZE) // LOG_LAYOUT.size


def is_unit(units: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    """Return which rows of LOG_UNIT are units of ``timerlog``, bool (n,): not zeros, and no blank one that closes a file."""
    is_sound: npt.NDArray[np.bool_] = (units["size"] == LOG_LAYOUT.size) & ((units["magic"] | MAGIC_BITS) == MAGIC_BITS)
    return is_sound


def leading_units(rows: npt.NDArray[np.void]) -> int:
    """Return how many of the first rows of LOG_UNIT are units: there ``TimerMessageStore.recoverAndRevise`` ends a file."""
    is_sound = is_unit(rows)
    return len(rows) if is_sound.all() else int(is_sound.argmin())


# ------------------------------------------------------------------------------------------------------------------------ check
# ``config/timercheck`` (``TimerCheckpoint``): how far timer messages were delivered, and how far they were taken.

SIZE: Final = 4096
CHECK_LAYOUT: Final = Layout(
    Field("lastReadTimeMs", "read_time", INT64),
    Field("lastTimerLogFlushPos", "log_flushed", INT64),
    Field("lastTimerQueueOffset", "queue_offset", INT64),
    Field("masterTimerQueueOffset", "master_queue_offset", INT64),
    Field("stateVersion", "state_version", INT64),  # dataVersion
    Field("timestamp", "version_time", INT64),
    Field("counter", "version_counter", INT64),
)


@dataclass(frozen=True)
class TimerCheckpoint:
    """The fields of ``config/timercheck``; a missing file has zeros.

    ``read_time`` is the time of the slot that is read next, in milliseconds since 1970; ``log_flushed`` is a position in
    ``timerlog``; the queue offsets are those of the timer topic from which messages are taken next, here and on the master.
    """

    read_time: int = 0
    log_flushed: int = 0
    queue_offset: int = 0
    master_queue_offset: int = 0
    state_version: int = 0
    version_time: int = 0
    version_counter: int = 0

    def to_bytes(self) -> bytes:
        """Return the whole file: SIZE bytes."""
        return CHECK_LAYOUT.pack(*astuple(self)).ljust(SIZE, b"\0")

    @classmethod
    def from_bytes(cls, data: bytes) -> TimerCheckpoint:
        """Return the checkpoint in a file's first bytes; a file that is too short is mapped with zeros behind it."""
        return cls(*CHECK_LAYOUT.unpack(data[: CHECK_LAYOUT.size].ljust(CHECK_LAYOUT.size, b"\0")))
