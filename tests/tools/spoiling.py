"""What the spoilers of derived files share.

Each is a function that takes the store's folder, its file sizes and a random.Random, changes files in place, and raises NotHere
when the store has no place of the kind. They share no code with the project.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

FAR = 1 << 40


class NotHere(Exception):
    """The store has nothing that could be spoilt this way."""


@dataclass(frozen=True)
class Sizes:
    """As the store was built."""

    cq_file_size: int
    hash_slots: int
    index_items: int


Kinds = dict[str, tuple[Callable[[Path, Sizes, random.Random], None], str]]
"""{name: (function, the kind by which verify must find it)}"""
