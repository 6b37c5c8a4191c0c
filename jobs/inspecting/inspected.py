"""What ``inspect`` finds in a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

Row = dict[str, Any]


class Rows:
    """The records, units or items of a file. They are made one at a time, again for each iteration."""

    def __init__(self, make: Callable[[], Iterator[Row]]) -> None:
        self._make = make

    def __iter__(self) -> Iterator[Row]:
        return self._make()


class Inspected(NamedTuple):
    """The summary of a file, and a row for each record, unit or item in it."""

    summary: dict[str, Any]
    rows: Rows
