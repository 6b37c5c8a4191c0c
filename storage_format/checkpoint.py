"""The checkpoint (RocketMQ ``StoreCheckpoint``): 4,096 bytes, big-endian, the rest zeros.

0   physicMsgTimestamp   8
8   logicsMsgTimestamp   8
16  indexMsgTimestamp    8
24  masterFlushedOffset  8   (5.x)
32  confirmPhyOffset     8   (5.x)
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from rocketmq_reindex.storage_format.findings import Finding

SIZE: Final = 4096
_LAYOUT: Final = struct.Struct(">qqqqq")


@dataclass(frozen=True)
class Checkpoint:
    """Times in milliseconds since 1970, ``confirm_offset`` an absolute offset of the commitlog."""

    physic: int = 0
    logics: int = 0
    index: int = 0
    master_flushed: int = 0
    confirm_offset: int = 0

    def to_bytes(self) -> bytes:
        fields = (self.physic, self.logics, self.index, self.master_flushed, self.confirm_offset)
        return _LAYOUT.pack(*fields).ljust(SIZE, b"\0")

    @classmethod
    def from_bytes(cls, data: bytes) -> Checkpoint:
        """Raises ValueError when ``data`` is too short to be one."""
        if len(data) < _LAYOUT.size:
            raise ValueError(f"a checkpoint has {SIZE} bytes, not {len(data)}")
        return cls(*_LAYOUT.unpack_from(data))


class StoreFacts(NamedTuple):
    """What the rest of the store says: offsets of the log's first byte and end, store times of its last record and of the
    last one with a unit (milliseconds), and the endTimestamp of each IndexFile that has items."""

    log_start: int
    log_end: int
    last_time: int
    last_unit_time: int
    index_ends: Sequence[int] = ()


def read_checkpoint(data: bytes, store: StoreFacts | None = None) -> tuple[Checkpoint, list[Finding]]:
    """The checkpoint in ``data``, what is wrong with it in itself and, where ``store`` is given, with what it says of it.

    A file that is too short is read as the broker maps it: with zeros behind it.
    """
    fields = data[: _LAYOUT.size].ljust(_LAYOUT.size, b"\0")
    found = Checkpoint.from_bytes(fields)
    findings = []
    if len(data) != SIZE:
        findings.append(Finding("checkpoint-size", len(data), 1))
    negative = [8 * k for k, value in enumerate(_LAYOUT.unpack(fields)) if value < 0]
    if negative:
        findings.append(Finding("checkpoint-negative", negative[0], len(negative)))
    rest = data[_LAYOUT.size :]
    if rest.strip(b"\0"):
        first = len(data) - len(rest.lstrip(b"\0"))
        findings.append(Finding("checkpoint-rest", first, len(rest) - rest.count(0)))
    return found, findings + (_beside(found, store) if store is not None else [])


def _beside(found: Checkpoint, store: StoreFacts) -> list[Finding]:
    # ``StoreCheckpoint.getMinTimestamp``: the next unclean start dispatches again from about there.
    dispatched = min(found.physic, found.logics)
    findings = []
    if dispatched < store.last_unit_time:
        findings.append(Finding("checkpoint-stale", 0 if found.physic < found.logics else 8, 1))
    elif dispatched > max(store.last_time, store.last_unit_time):
        findings.append(Finding("checkpoint-ahead", 0 if found.physic <= found.logics else 8, 1))
    deleted = sum(end > found.index for end in store.index_ends)
    if deleted:
        findings.append(Finding("checkpoint-index", 16, deleted))
    if found.confirm_offset > store.log_end:
        findings.append(Finding("checkpoint-confirm", 32, 1))
    return findings
