"""Counted things in sentences: ``1 queue``, ``2,000 queues``."""

from __future__ import annotations


def counted(count: int, one: str, many: str = "") -> str:
    """The number with its noun: ``many`` where that is not ``one`` with an s."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def verb(count: int, one: str = "is", many: str = "are") -> str:
    """The form of a verb that a number of things has."""
    return one if count == 1 else many
