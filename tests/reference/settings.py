"""What a rebuild can be told, with the broker's defaults."""

from dataclasses import dataclass, field
from fnmatch import fnmatchcase

MIB = 1 << 20
DEFAULT_DELAYS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True)
class Settings:
    """One build. Sizes are bytes, times milliseconds; the names are those of the command line."""

    only: tuple[str, ...] = ("consumequeue", "index", "checkpoint")
    cq_file_size: int = 6_000_000
    hash_slots: int = 5_000_000
    index_items: int = 20_000_000
    segment_size: int | None = None
    on_damage: str = "fail"  # fail | stop | salvage
    queue_order: str = "logical"  # logical | broker | fail
    crc: str = "body"  # body | all | none
    checkpoint: str = "safe"  # safe | broker
    broker_version: str = "5.5"  # 5.5 | 5.4 | 5.3 | 4.9
    lmq: bool = False
    delay_levels: str = DEFAULT_DELAYS
    include_topic: tuple[str, ...] = ()
    exclude_topic: tuple[str, ...] = ()
    until_offset: int | None = None
    until_time: int | None = None
    max_fill: int = 100_000
    torn_limit: int = field(default=16 * MIB)

    def delays(self) -> list[int]:
        """Milliseconds of delay levels 1, 2, ... (DefaultMessageStore.parseDelayLevel)."""
        return [int(word[:-1]) * _UNITS[word[-1]] for word in self.delay_levels.split(" ")]

    def wants(self, topic: str) -> bool:
        """Whether the topic filters let this topic in."""
        if self.include_topic and not any(fnmatchcase(topic, glob) for glob in self.include_topic):
            return False
        return not any(fnmatchcase(topic, glob) for glob in self.exclude_topic)
