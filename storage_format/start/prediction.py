"""What the start of a broker will do to a store: the statements of ``preflight``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Refusal:
    """One reason why the store does not load, or the broker does not start."""

    kind: str
    """a fixed name, such as ``queue-file-size``"""
    path: str
    """the file or folder, relative to the store"""
    detail: str


@dataclass(frozen=True)
class LogOutcome:
    """What the start makes of the commitlog. Offsets are absolute bytes; -1 stands for not known."""

    abnormal: bool
    """``recoverAbnormally``, since there is an ``abort`` file"""
    start_segment: str
    """the file name of the segment in which the recovery begins; "" for an empty log"""
    start_offset: int
    limited: bool
    """the recovery begins there only because it looks at no more segments (``commitLogRecoverMaxNum``)"""
    min_offset: int
    max_offset: int
    """where the accepted log ends: ``getMaxPhyOffset`` after the start"""
    end: int
    """where the last byte of the log ends now that is not zero, if not before ``max_offset``"""
    cut_reason: str
    """why the log is cut before ``end``; "" if it is not"""
    cut_bytes: int
    cut_records: int
    """good records behind the cut; -1 where they were not counted"""
    deleted_segments: tuple[str, ...]


@dataclass(frozen=True)
class DispatchOutcome:
    """What is dispatched again, and what is not."""

    from_offset: int
    """physical offset of the first record that is dispatched; -1 for none"""
    records: int
    units: int
    items: int
    hidden_from: int
    """records in [hidden_from, hidden_to) have no units, and get none; -1, -1 for no such stretch"""
    hidden_to: int
    hidden_records: int
    """records of the kept log that no unit points to after the start; -1 where they were not counted"""
    stopped_at: int = -1
    """physical offset of a record whose queue's file cannot be made: from it on no record gets a unit; -1 for none"""


@dataclass(frozen=True, slots=True)
class QueueOutcome:
    """One queue after the start. ``min_offset`` and ``max_offset`` are what a consumer is told."""

    topic: str
    queue: int
    min_offset: int
    max_offset: int
    units_cut: int
    units_added: int
    log_min: int
    """lowest QUEUEOFFSET of the queue in the kept log, and ``log_max`` the highest plus 1; -1 where not known"""
    log_max: int
    hidden: int
    """messages of the queue in the kept log to which no unit points after the start; -1 where not counted"""
    passed_over: int = 0
    """messages with a unit that a consumer who begins at ``min_offset`` is not given, since the units there stand for none"""
    given_from: int = -1
    """the queue offset of the first message that it is given; -1: ``min_offset``"""
    ends_blank: bool = False
    """whether the recovery began a file for a record below the queue's end, and so hides all units before it"""
    earlier_lives: int = 0
    """records without a unit behind which the queue began again, so that a later one has their offset; in none of the others"""


@dataclass(frozen=True)
class IndexOutcome:
    """What the start makes of the IndexFiles."""

    files: int
    deleted: tuple[str, ...]
    """file names"""
    items_lost: int
    """items in the deleted files of records that the log keeps, and that get no items again"""
    items_missing: int
    """items of the kept log that are in no file after the start, but for tags where a broker before 5.4 indexed all keys; -1
    where they were not counted"""


@dataclass(frozen=True)
class Prediction:
    """All that a start does. Without ``loads`` the other parts are None or empty."""

    release: str
    """the release whose code is followed, such as ``5.5.1``"""
    loads: bool
    refusals: tuple[Refusal, ...] = ()
    log: LogOutcome | None = None
    dispatch: DispatchOutcome | None = None
    queues: Sequence[QueueOutcome] = ()
    index: IndexOutcome | None = None
    notes: tuple[str, ...] = field(default=())
