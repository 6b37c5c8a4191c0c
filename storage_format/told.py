"""Whom long work of one process tells how far it is."""

from __future__ import annotations

from typing import Protocol


class Told(Protocol):
    """Is told how far the work is."""

    def begin(self, stage: str, size: int) -> None:
        """A stage begins that reads at most ``size`` bytes."""

    def moved(self, size: int) -> None:
        """So many bytes more of the stage are done."""

    def end(self) -> None:
        """The stage is over: what is printed next stands below it."""


class Nobody:
    """Is told, and tells nobody."""

    def begin(self, stage: str, size: int) -> None:
        pass

    def moved(self, size: int) -> None:
        pass

    def end(self) -> None:
        pass
