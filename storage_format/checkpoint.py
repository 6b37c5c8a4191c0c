"""The checkpoint (RocketMQ ``StoreCheckpoint``): a few times and offsets in a file of 4,096 bytes, zeros behind them."""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace
from typing import Final

from rocketmq_reindex.storage_format.errors import Finding
from rocketmq_reindex.storage_format.layouts import INT64, Field, Layout
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
