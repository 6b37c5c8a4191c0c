"""What a run of build, verify or fetch leaves to the command line and to the Python API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

S = TypeVar("S")


@dataclass(frozen=True)
class Ended(Generic[S]):
    """A run that has ended. ``summary.error`` is None where it did what it was asked to.

    ``error`` is what was raised, ``lines`` are what a person reads at the end.
    """

    summary: S
    error: BaseException | None
    lines: list[str]
    interrupted: bool = False
    """whether a signal was seen, also where py4j made another error of it"""
