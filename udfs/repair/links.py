"""How an unchanged segment of a repaired log may share its bytes with the damaged log's."""

from __future__ import annotations

from typing import Final

REFLINK: Final = "reflink"
HARD: Final = "hard"
NONE: Final = "none"
LINKS: Final = (REFLINK, HARD, NONE)
