"""The checkpoint (RocketMQ ``StoreCheckpoint``): a few times and offsets in a file of 4,096 bytes, zeros behind them."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Final

from rocketmq_reindex.storage_format.findings import Finding
from rocketmq_reindex.storage_format.layouts import INT64, Field, Layout

SIZE: Final = 4096
CHECKPOINT_LAYOUT: Final = Layout(
    Field("physicMsgTimestamp", "physic", INT64),
    Field("logicsMsgTimestamp", "logics", INT64),
    Field("indexMsgTimestamp", "index", INT64),
    Field("masterFlushedOffset", "master_flushed", INT64),  # from 5.0 on
    Field("confirmPhyOffset", "confirm_offset", INT64),  # from 5.0 on
)
"""``StoreCheckpoint`` of 5.3; 4.9 writes the first three, and zeros for the others"""


@dataclass(frozen=True)
class Checkpoint:
    """The fields of a checkpoint: store times in milliseconds since 1970, and absolute offsets of the commitlog.

    ``physic`` is that of the last record flushed, ``logics`` that of the last unit flushed, ``index`` the endTimestamp of the
    last IndexFile that was full when it was flushed.
    """

    physic: int = 0
    logics: int = 0
    index: int = 0
    master_flushed: int = 0
    confirm_offset: int = 0

    def to_bytes(self) -> bytes:
        """The whole file: SIZE bytes."""
        return CHECKPOINT_LAYOUT.pack(*astuple(self)).ljust(SIZE, b"\0")

    @classmethod
    def from_bytes(cls, data: bytes) -> Checkpoint:
        """The fields at the start of ``data``. Raises ValueError where it is too short to hold them."""
        if len(data) < CHECKPOINT_LAYOUT.size:
            raise ValueError(f"a checkpoint has {SIZE} bytes, not {len(data)}")
        return cls(*CHECKPOINT_LAYOUT.unpack_from(data))


def read_checkpoint(data: bytes) -> tuple[Checkpoint, list[Finding]]:
    """The checkpoint in ``data``, and what is wrong with these bytes alone.

    A file that is too short is read as the broker maps it: with zeros behind it.
    """
    fields = data[: CHECKPOINT_LAYOUT.size].ljust(CHECKPOINT_LAYOUT.size, b"\0")
    found = Checkpoint.from_bytes(fields)
    findings = []
    if len(data) != SIZE:
        findings.append(Finding("checkpoint-size", len(data), 1))
    negative = [at for at, value in zip(CHECKPOINT_LAYOUT.at.values(), astuple(found), strict=True) if value < 0]
    if negative:
        findings.append(Finding("checkpoint-negative", negative[0], len(negative)))
    rest = data[CHECKPOINT_LAYOUT.size :]
    if rest.strip(b"\0"):
        first = len(data) - len(rest.lstrip(b"\0"))
        findings.append(Finding("checkpoint-rest", first, len(rest) - rest.count(0)))
    return found, findings
