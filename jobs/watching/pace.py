"""How fast a stage goes on, and so how long it will take: by its recent past, once that says something."""

from __future__ import annotations

import math
from typing import Final

_SECONDS: Final = 2.0
_MOVES: Final = 3
"""What must have passed since the first move before there is a pace."""
_MEMORY: Final = 10.0
"""Seconds after which what was counts a third; later a sixth of the time since the first move, if that is longer."""


class Pace:
    """Of a share of work that grows from 0 to 1. What it took until it first moved (workers start) is left out."""

    def __init__(self) -> None:
        self._first = self._last = self._at = 0.0
        self._moves = -1
        self._seconds = self._share = 0.0
        """seconds and shares, those of the past with less weight"""

    def add(self, seconds: float, share: float) -> None:
        """``share`` is done ``seconds`` after the begin; both never become less."""
        if share > self._at:
            self._moves += 1
        if self._moves < 0:
            return
        if not self._moves and share > self._at:
            self._first = seconds
        else:
            passed = seconds - self._last
            kept = math.exp(-passed / max(_MEMORY, (seconds - self._first) / 6))
            self._seconds, self._share = self._seconds * kept + passed, self._share * kept + share - self._at
        self._last, self._at = seconds, share

    @property
    def rate(self) -> float | None:
        """The share that is done in a second; None as long as that is a guess."""
        if self._moves < _MOVES or self._last - self._first < _SECONDS:
            return None
        return self._share / self._seconds

    @property
    def left(self) -> float | None:
        """The seconds that are left; None where there is no pace."""
        rate = self.rate
        return (1 - self._at) / rate if rate else None
