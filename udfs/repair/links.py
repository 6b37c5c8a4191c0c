"""How an unchanged segment of a repaired log may share its bytes with the damaged log's.

By itself: the parser of repair needs nothing else of this package.
"""

from typing import Final

REFLINK: Final = "reflink"
HARD: Final = "hard"
NONE: Final = "none"
LINKS: Final = (REFLINK, HARD, NONE)
