"""What a build leaves in DIR, by name, and the settings that its files' sizes come from."""

from dataclasses import dataclass
from typing import Final

MANIFEST: Final = "reindex.json"
MANIFEST_MAX: Final = 256 << 20
"""Bytes of a manifest that are read from where others may write: of 1.9 million files, which take four times as much memory."""
CONFIG: Final = "config"
TOPICS: Final = f"{CONFIG}/topics.json"
DELAY_OFFSETS: Final = f"{CONFIG}/delayOffset.json"
CONSUMER_OFFSETS: Final = f"{CONFIG}/consumerOffset.json"
TIMER_CHECK: Final = f"{CONFIG}/timercheck"
CONFIGS: Final = (TOPICS, DELAY_OFFSETS, CONSUMER_OFFSETS, TIMER_CHECK)
"""What a build may write into config/."""
TIMERS: Final = ("timerlog", "timerwheel")
SIZES: Final = ("cq_file_size", "batch_cq_file_size", "hash_slots", "index_items")
"""The settings, as the manifest has them, that decide how large files are."""
PUBLISHED: Final = ("consumequeue", "batchconsumequeue", "index", "checkpoint", *TIMERS, CONFIG, MANIFEST)
"""Names a build writes in DIR; ``--overwrite`` replaces them in a folder that has the manifest."""
OR_OVERWRITE: Final = ", or give --overwrite"
"""ends the error on a DIR that is not empty, for commands with that option"""
REPAIRED: Final = ("commitlog", "quarantine")
"""Names that a repair writes besides."""
OF_BROKERS: Final = ("commitlog", "abort", "lock", CONFIG)
"""Names that a broker's store has besides: a build never replaces anything in a folder that a broker may run on."""


@dataclass(frozen=True)
class Standing:
    """The build that counts in DIR: ``digest`` is that of the manifest in ``folder``."""

    folder: str
    digest: str
