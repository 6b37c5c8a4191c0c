"""What a user may say about delayed messages of which the log cannot tell whether they were delivered."""

from __future__ import annotations

from typing import Final

DELIVER: Final = "deliver"
DROP: Final = "drop"
UNDECIDED: Final = (DELIVER, DROP)
