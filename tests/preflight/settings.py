"""The settings of MessageStoreConfig under which a store was made, and is started."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Sizes:
    """Bytes of a segment and of a ConsumeQueue file, slots and items of an IndexFile."""

    segment: int
    cq_file: int
    hash_slots: int
    index_items: int

    def properties(self) -> dict[str, str]:
        """As a broker.conf names them."""
        return {
            "mappedFileSizeCommitLog": str(self.segment),
            "mappedFileSizeConsumeQueue": str(self.cq_file),
            "maxHashSlotNum": str(self.hash_slots),
            "maxIndexNum": str(self.index_items),
        }


@dataclass(frozen=True)
class Conf:
    """What a broker.conf says: ``sizes``, and other settings by name."""

    sizes: Sizes
    more: dict[str, str] = field(default_factory=dict)

    def properties(self) -> dict[str, str]:
        """All of them."""
        return self.sizes.properties() | self.more

    def with_(self, **more: str) -> Conf:
        """The same with more settings."""
        return replace(self, more=self.more | more)

    def words(self) -> list[str]:
        """As name=value."""
        return [f"{name}={value}" for name, value in sorted(self.properties().items())]

    def flag(self, name: str, otherwise: bool) -> bool:
        """Whether a setting is on."""
        return self.more.get(name, str(otherwise).lower()) == "true"


def random_sizes(rng: random.Random) -> Sizes:
    """Small files: a store has many of each kind."""
    return Sizes(
        rng.choice((1 << 14, 1 << 14, 20_000, 1 << 15, 1 << 16)), rng.choice((400, 1000, 2000, 20_000)),
        rng.choice((7, 50, 500)), rng.choice((60, 150, 400, 2000)),
    )  # fmt: skip


FLAGS = {
    "checkCRCOnRecover": "false", "forceVerifyPropCRC": "true", "checkCommitLogOffsetOnRecover": "true",
    "enableAcceleratedRecovery": "true", "messageIndexEnable": "false", "messageIndexSafe": "true",
    "recheckReputOffsetFromCq": "true", "flushDiskType": "SYNC_FLUSH",
}  # fmt: skip
"""Settings that matter to a start, away from their defaults."""


def random_flags(rng: random.Random) -> dict[str, str]:
    """None in one half of all cases, else one or two; and another limit of segments in one of four."""
    names = rng.sample(sorted(FLAGS), rng.choice((0, 0, 0, 1, 1, 2)))
    chosen = {name: FLAGS[name] for name in names}
    if rng.random() < 0.25:
        chosen["commitLogRecoverMaxNum"] = str(rng.choice((0, 1, 2, 3, 5)))
    return chosen
