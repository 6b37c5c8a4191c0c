"""Counted things in sentences: ``1 queue``, ``2,000 queues``."""

from __future__ import annotations


def form(count: int, one: str, many: str) -> str:
    """The form of a word that goes with a number of things: a noun's, or a verb's."""
    return one if count == 1 else many


def counted(count: int, noun: str, nouns: str = "") -> str:
    """``1 unit``, ``2,500 units``; ``nouns`` where it takes more than an s."""
    return f"{count:,} {form(count, noun, nouns or f'{noun}s')}"
