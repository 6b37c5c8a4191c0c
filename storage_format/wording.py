"""Counted things in sentences: ``1 queue``, ``2,000 queues``."""

from __future__ import annotations


def form(count: int, one: str, many: str) -> str:
    """The form of a word that goes with a number of things: a noun's, or a verb's."""
    return one if count == 1 else many


def counted(count: int, one: str, many: str = "") -> str:
    """The number with its noun: ``many`` where that is not ``one`` with an s."""
    return f"{count:,} {form(count, one, many or f'{one}s')}"
