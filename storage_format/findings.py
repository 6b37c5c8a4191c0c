"""What can be wrong with a derived file by itself, as codes; and the smallest such file, the checkpoint."""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace
from typing import TYPE_CHECKING, Final

from rocketmq_reindex.storage_format.layouts import INT64, Field, Layout
from rocketmq_reindex.storage_format.versions import VersionRules

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# --------------------------------------------------------------------------------------------------------------------- findings
# What can be wrong with a derived file (ConsumeQueue, IndexFile, checkpoint) by itself: codes, never exceptions.


class UnreadableError(ValueError):
    """The bytes, or the name, cannot be those of a file of this kind."""


@dataclass(frozen=True)
class Finding:
    """One kind of fault in a file.

    ``code`` is a key of CODES, ``at`` the first place where it was met (in the unit that CODES names, -1 for none), ``count``
    in how many places it was met. ``expected`` is what should stand there, where the file itself says it.
    """

    code: str
    at: int
    count: int
    expected: int | None = None

    @property
    def text(self) -> str:
        """The code in words."""
        return CODES[self.code]


CODES: Final = {
    # ConsumeQueue; ``at`` is a position in the queue: logical byte / 20
    "queue-name": "the file's first logical byte is no multiple of its size",
    "queue-size": "the file has not the size that the broker wants: it would not start",
    "queue-unit": "unit with a negative position, no size, or past the largest offset",
    "queue-hole": "zeros where a unit should be, before a later one",
    "queue-pre-blank": "pre-blank after a unit",
    "queue-backwards": "unit that lies before the one before it",
    "queue-overlap": "unit whose record begins inside the record of the one before it",
    # IndexFile; ``at`` is a byte of the file, a slot or an item, as the name says
    "index-size": "file size is not that of its slots and items (at: the size)",
    "index-count": "header's indexCount is not the number of items + 1 (at: indexCount)",
    "index-slot-count": "header's hashSlotCount is not the number of slots in use (at: hashSlotCount)",
    "index-begin-offset": "header's beginPhyOffset is not the first item's (at: beginPhyOffset)",
    "index-end-offset": "header's endPhyOffset is not the last item's (at: endPhyOffset)",
    "index-end-time": "header's endTimestamp is not the last item's time (at: endTimestamp)",
    "index-empty-offset": "header of a file without items: beginPhyOffset is not endPhyOffset, or negative (at: endPhyOffset)",
    "index-empty-time": "header of a file without items: beginTimestamp is not endTimestamp, or negative (at: endTimestamp)",
    "index-item-zero": "the place of item 0 is not zero (at: byte)",
    "index-item-stray": "bytes behind the last item (at: item)",
    "index-slot-range": "slot with a number that no item has (at: slot)",
    "index-slot-foreign": "slot that begins with an item of another slot (at: slot)",
    "index-slot-old": "slot that does not begin with its newest item (at: slot)",
    "index-item-hash": "item with a negative hash (at: item)",
    "index-item-place": "item with a negative offset, or one below the item before (at: item)",
    "index-item-time": "item with a negative timeDiff: a lookup ends at it (at: item)",
    "index-link-range": "item that links to itself, to a later one, or to none that exists (at: item)",
    "index-link-foreign": "item that links to an item of another slot (at: item)",
    "index-link-gap": "item that does not link to the item before it in its slot (at: item)",
    "index-link-circular": "item in a circle of links: the broker's lookup never ends (at: item)",
    "index-item-lost": "item that its slot does not lead to: no lookup finds it (at: item)",
    # checkpoint; ``at`` is a byte of the file
    "checkpoint-size": "not 4,096 bytes",
    "checkpoint-negative": "negative time or offset",
    "checkpoint-rest": "bytes behind the fields that are not zero",
}


def from_bits(bits: npt.NDArray[np.uint8], seen: int, names: tuple[str, ...], first: int) -> list[Finding]:
    """Findings of ``bits``, uint8 (n,): bit i of element k stands for the fault ``names[i]`` at ``first + k``.

    ``seen`` has all bits that are set anywhere.
    """
    # Not above: a command that reads no array should not wait for numpy.
    import numpy as np

    found = []
    for number, name in enumerate(names):
        if seen >> number & 1:
            hit = (bits & (1 << number)) != 0
            found.append(Finding(name, first + int(np.argmax(hit)), int(np.count_nonzero(hit))))
    return found


# ------------------------------------------------------------------------------------------------------------------- checkpoint
# The checkpoint (RocketMQ ``StoreCheckpoint``): a few times and offsets in a file of 4,096 bytes, zeros behind them.

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

    def to_bytes(self) -> bytes:
        """The whole file: SIZE bytes."""
        return CHECKPOINT_LAYOUT.pack(*astuple(self)).ljust(SIZE, b"\0")

    def of_version(self, rules: VersionRules) -> Checkpoint:
        """This checkpoint with the fields alone that a broker of a version sets."""
        kept = Checkpoint(*astuple(self)[: rules.checkpoint_fields])
        return kept.loadable() if rules.checkpoint_fields > _BEFORE_OFFSET else kept

    def loadable(self) -> Checkpoint:
        """This checkpoint with physic 0 where ``logics_offset`` is 0, for 5.5.

        With enableAcceleratedRecovery it does not load after a crash where only physic is set, of which it asks nothing else
        (``ConsumeQueueStore.getDispatchFromPhyOffset``).
        """
        return self if self.logics_offset > 0 else replace(self, physic=0)

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
