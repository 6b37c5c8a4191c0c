"""``config/timercheck`` (``TimerCheckpoint``): how far timer messages were delivered, and how far they were taken."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Final

from rocketmq_reindex.storage_format.layouts import INT64, Field, Layout

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
        """The whole file: SIZE bytes."""
        return CHECK_LAYOUT.pack(*astuple(self)).ljust(SIZE, b"\0")

    @classmethod
    def from_bytes(cls, data: bytes) -> TimerCheckpoint:
        """Those of a file's first bytes; a file that is too short is mapped with zeros behind it."""
        return cls(*CHECK_LAYOUT.unpack(data[: CHECK_LAYOUT.size].ljust(CHECK_LAYOUT.size, b"\0")))
