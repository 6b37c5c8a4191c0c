"""How many tasks a stage gets."""

from __future__ import annotations

from typing import Final

TASKS_PER_CORE: Final = 4
"""Enough that all cores end at about the same time; few, since each task costs 0.2 s by itself."""


def tasks_for(things: int, cores: int) -> int:
    """The tasks that share ``things`` on ``cores`` cores: no more than there are things."""
    return min(things, TASKS_PER_CORE * cores)
