"""The two checkpoints of a store: ``checkpoint`` (RocketMQ ``StoreCheckpoint``), a few times and offsets in 4,096 bytes;
and ``epochFileCheckpoint`` of a controller group (``EpochFileCache``, 5.x), from which offset on which master wrote.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from itertools import zip_longest
from typing import Final, NamedTuple

from rocketmq_reindex.storage_format.errors import Finding
from rocketmq_reindex.storage_format.layouts import INT32_MAX, INT32_MIN, INT64, INT64_MAX, INT64_MIN, Field, Layout
from rocketmq_reindex.storage_format.versions import VersionRules

SIZE: Final = 4096
CHECKPOINT_LAYOUT: Final = Layout(
    Field("physicMsgTimestamp", "physic", INT64),
    Field("logicsMsgTimestamp", "logics", INT64),
    Field("indexMsgTimestamp", "index", INT64),
    Field("masterFlushedOffset", "master_flushed", INT64),  # from 5.0 on
    Field("confirmPhyOffset", "confirm_offset", INT64),  # from 5.0 on
    Field("logicsPhysicalOffset", "logics_offset", INT64),  # from 5.5 on
)
"""``StoreCheckpoint`` of 5.5; an older version writes the first of them (``versions.VersionRules``), zeros follow where it
made the file"""
_MARGIN: Final = 3000
"""milliseconds that a broker goes back before the times of its checkpoint"""
_BEFORE_OFFSET: Final = CHECKPOINT_LAYOUT.columns.index("logics_offset")


@dataclass(frozen=True)
class Checkpoint:
    """The fields of a checkpoint: store times in milliseconds since 1970, and absolute offsets of the commitlog.

    ``physic`` is that of the last record flushed, ``logics`` that of the last unit flushed, ``index`` the endTimestamp of the
    last IndexFile that was full when it was flushed. ``confirm_offset`` is where the last good record begins, ``logics_offset``
    the last one with a unit.
    """

    physic: int = 0
    logics: int = 0
    index: int = 0
    master_flushed: int = 0
    confirm_offset: int = 0
    logics_offset: int = 0

    @property
    def lowest_time(self) -> int:
        """``StoreCheckpoint.getMinTimestamp``."""
        return max(0, min(self.physic, self.logics) - _MARGIN)

    def to_bytes(self) -> bytes:
        """Return the whole file: SIZE bytes."""
        return CHECKPOINT_LAYOUT.pack(*astuple(self)).ljust(SIZE, b"\0")

    def of_version(self, rules: VersionRules) -> Checkpoint:
        """Return this checkpoint with the fields alone that a broker of a version sets."""
        kept = Checkpoint(*astuple(self)[: rules.checkpoint_fields])
        return kept.loadable() if rules.checkpoint_fields > _BEFORE_OFFSET else kept

    def loadable(self) -> Checkpoint:
        """Return this checkpoint with physic 0 where ``logics_offset`` is 0, for 5.5.

        With enableAcceleratedRecovery it does not load after a crash where only physic is set, of which it asks nothing else
        (``ConsumeQueueStore.getDispatchFromPhyOffset``).
        """
        return self if self.logics_offset > 0 else replace(self, physic=0)

    @classmethod
    def from_bytes(cls, data: bytes) -> Checkpoint:
        """Return the fields at the start of ``data``. Raises ValueError where it is too short to hold them."""
        if len(data) < CHECKPOINT_LAYOUT.size:
            raise ValueError(f"a checkpoint has {SIZE} bytes, not {len(data)}")
        return cls(*CHECKPOINT_LAYOUT.unpack_from(data))


def read_checkpoint(data: bytes) -> tuple[Checkpoint, list[Finding]]:
    """Return the checkpoint in ``data``, and what is wrong with these bytes alone.

    A file that is too short is read as the broker maps it: with zeros behind it.
    """
    fields = data[: CHECKPOINT_LAYOUT.size].ljust(CHECKPOINT_LAYOUT.size, b"\0")
    checkpoint = Checkpoint.from_bytes(fields)
    findings = []
    if len(data) != SIZE:
        findings.append(Finding("checkpoint-size", len(data), 1))
    negative = [at for at, value in zip(CHECKPOINT_LAYOUT.at.values(), astuple(checkpoint), strict=True) if value < 0]
    if negative:
        findings.append(Finding("checkpoint-negative", negative[0], len(negative)))
    behind = data[CHECKPOINT_LAYOUT.size :]
    if behind.strip(b"\0"):
        first = len(data) - len(behind.lstrip(b"\0"))
        findings.append(Finding("checkpoint-rest", first, len(behind) - behind.count(0)))
    return checkpoint, findings


# The epochs of a controller group.

FILE: Final = "epochFileCheckpoint"
BACKUP: Final = f"{FILE}.bak"
_LINE_ENDS: Final = re.compile(r"\r\n|\r|\n")
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_UNCHECKED: Final = 0
"""a CRC that a broker does not compare"""


class Epoch(NamedTuple):
    """One master's time: its number, and the offset of the log at which it begins."""

    epoch: int
    start: int


@dataclass(frozen=True)
class EpochFile:
    """What a file says. ``is_read`` is whether a broker takes it: else it takes the ``.bak``, or has no epoch at all.

    ``stops``: the broker does not start, since a number is none (``CheckpointFile.read`` of 5.3.3 and 5.5 expects none).
    """

    entries: tuple[Epoch, ...]
    findings: tuple[Finding, ...]
    is_read: bool
    stops: bool = False


def _integer(text: str, low: int, high: int) -> int | None:
    """Return what ``Integer.parseInt`` or ``Long.parseLong`` makes of ASCII digits; None where they throw."""
    value = int(text) if _INTEGER.fullmatch(text) and len(text) <= 20 else None
    return value if value is not None and low <= value <= high else None


def _int32(text: str) -> int | None:
    return _integer(text, INT32_MIN, INT32_MAX)


def read_epochs(data: bytes) -> EpochFile:
    """Return the entries of a file, in its order, and what is wrong with it (``findings``; ``at`` is a line, from 0 on)."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return EpochFile((), (Finding("epoch-line", -1, 1),), is_read=False)
    lines = _LINE_ENDS.split(text)
    if lines[-1] == "":
        # The end of the last line is no line.
        lines.pop()
    head = [_int32(line) for line in lines[:2]]
    if len(head) < 2 or None in head:
        return EpochFile((), (Finding("epoch-number", head.index(None) if None in head else len(head), 1),), False, stops=True)
    count, crc = head
    entries, odd = list[Epoch](), list[int]()
    for number, line in enumerate(lines[2:], start=2):
        # Java's split leaves out empty texts at the end.
        parts = re.sub("-+$", "", line).split("-")
        if len(parts) != 2:
            odd.append(number)
            continue
        epoch, start = _int32(parts[0]), _integer(parts[1], INT64_MIN, INT64_MAX)
        if epoch is None or start is None:
            return EpochFile((), (Finding("epoch-number", number, 1),), False, stops=True)
        entries.append(Epoch(epoch, start))
    findings = [Finding("epoch-line", odd[0], len(odd))] if odd else []
    sum_of_lines = _crc("".join(f"{line}\n" for line in lines[2:]).encode())
    is_read = len(entries) == count and crc in (_UNCHECKED, sum_of_lines)
    if len(entries) != count:
        findings.append(Finding("epoch-count", 0, 1))
    elif not is_read:
        findings.append(Finding("epoch-crc", 1, 1, sum_of_lines))
    falls = [k for k in range(1, len(entries)) if not _rises(entries[k - 1], entries[k])]
    if falls:
        findings.append(Finding("epoch-order", falls[0] + 2, len(falls)))
    return EpochFile(tuple(entries), tuple(findings), is_read)


def _rises(before: Epoch, after: Epoch) -> bool:
    """``EpochFileCache.appendEntry`` takes no other entry."""
    return after.epoch > before.epoch and after.start > before.start


def _crc(lines: bytes) -> int:
    """``UtilAll.crc32``."""
    return zlib.crc32(lines) & INT32_MAX


def write_epochs(entries: Sequence[Epoch]) -> bytes:
    """Return the file of some entries, as a broker on Linux writes it."""
    lines = "".join(f"{entry.epoch}-{entry.start}\n" for entry in entries).encode()
    return b"%d\n%d\n%b" % (len(entries), _crc(lines), lines)


def in_order(entries: Sequence[Epoch]) -> list[Epoch]:
    """Return entries as a broker keeps them: by their number, each number once (``EpochFileCache``, a TreeMap)."""
    return sorted(Epoch(*entry) for entry in dict(entries).items())


def parted_at(mine: Sequence[Epoch], other: Sequence[Epoch]) -> int:
    """Return the first offset of which two files say different masters; the largest int64 where they say the same.

    A file that ends earlier says its last master of all that follows: the caller knows up to where its log goes.
    """
    pairs = zip_longest(in_order(mine), in_order(other))
    return min((entry.start for pair in pairs if pair[0] != pair[1] for entry in pair if entry), default=INT64_MAX)


def same_up_to(mine: Sequence[Epoch], my_end: int, other: Sequence[Epoch], other_end: int) -> int:
    """Return the offset up to which two logs are the same by their epochs, which end at the ends of the logs; -1 for none.

    A slave cuts its log there when it joins a master (``EpochFileCache.findConsistentPoint``).
    """
    ends, other_ends = _ends(mine, my_end), _ends(other, other_end)
    for entry in sorted(ends, reverse=True):
        if entry in other_ends:
            return min(ends[entry], other_ends[entry])
    return -1


def _ends(entries: Sequence[Epoch], log_end: int) -> dict[Epoch, int]:
    """Return where each epoch ends: at the next one, or with the log; the last one that begins behind it never."""
    known = in_order(entries)
    last = [log_end if known[-1].start <= log_end else INT64_MAX] if known else []
    return dict(zip(known, [*(entry.start for entry in known[1:]), *last], strict=True))
