"""Counts as people write them."""

from __future__ import annotations


def counted(count: int, noun: str, nouns: str = "") -> str:
    """``1 unit``, ``2,500 units``; ``nouns`` where it takes more than an s."""
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"
