"""The RocketMQ versions that write different bytes, and in what they differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class VersionRules:
    """What a broker of one version writes that another writes in another way."""

    version: str
    """as ``--broker-version`` names it"""
    tag_items: bool
    """a record with TAGS gets an index item ``topic#T#TAGS`` (``IndexService.buildIndex``, 5.4.0 on)"""
    checkpoint_fields: int
    """how many longs of the checkpoint it sets: the sixth is logicsPhysicalOffset (``StoreCheckpoint``, 5.5.0 on)"""


RULES: Final = {
    rules.version: rules
    for rules in (
        VersionRules("5.5", tag_items=True, checkpoint_fields=6),
        VersionRules("5.4", tag_items=True, checkpoint_fields=5),
        VersionRules("5.3", tag_items=False, checkpoint_fields=5),
        VersionRules("4.9", tag_items=False, checkpoint_fields=3),
    )
}
VERSIONS: Final = tuple(RULES)
"""newest first"""
NEWEST: Final = VERSIONS[0]
