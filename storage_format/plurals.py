"""Numbers of things in sentences: ``1 queue``, ``2,000 queues``."""

from __future__ import annotations


def form(count: int, one: str, many: str) -> str:
    """``one`` for a count of 1, else ``many``: the form of a noun or a verb that goes with the count."""
    return one if count == 1 else many


def counted(count: int, noun: str, nouns: str = "") -> str:
    """A count and its noun, as ``1 unit`` or ``2,500 units``; ``nouns`` is the plural where it is not ``noun`` and an s."""
    return f"{count:,} {form(count, noun, nouns or f'{noun}s')}"
