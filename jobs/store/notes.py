"""Warnings on stderr about what could not be read, while the rest is shown: each kind a few times, then how often."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Final

EACH_MAX: Final = 5


class Notes:
    """Writes a line for each note; ``close`` writes how many of each kind were left out."""

    def __init__(self) -> None:
        self._count: Counter[str] = Counter()
        self._seen: set[str] = set()
        self.lost = False
        """something that could not be read might have held what was asked for"""

    def add(self, kind: str, text: str, lost: bool = True) -> None:
        """Write one note. ``text`` is escaped and has one line; the same text is written once."""
        if text in self._seen:
            return
        self.lost = self.lost or lost
        self._count[kind] += 1
        if self._count[kind] <= EACH_MAX:
            self._seen.add(text)
            print(f"warning: {text}", file=sys.stderr)

    def close(self) -> None:
        for kind, count in self._count.items():
            if count > EACH_MAX:
                print(f"warning: {kind}: {count - EACH_MAX} more", file=sys.stderr)
        sys.stderr.flush()
