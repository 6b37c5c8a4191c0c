"""A long sequence whose members lie in arrays: each is made when it is asked for.

By itself: each command imports it, and nothing else of a start.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, overload

T = TypeVar("T")


class OnDemand(Sequence[T]):
    """``length`` members, which ``make`` makes of their numbers. The last one made is kept. A copy of it is a list."""

    __slots__ = ("_last", "_length", "_make")

    def __init__(self, length: int, make: Callable[[int], T]) -> None:
        self._length, self._make = length, make
        self._last: tuple[int, T] | None = None

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return list(map(self._make, range(self._length)[index]))
        last = self._last
        if last is None or last[0] != index:
            number = range(self._length)[index]
            last = self._last = number, self._make(number)
        return last[1]

    def __iter__(self) -> Iterator[T]:
        return map(self._make, range(self._length))

    def __deepcopy__(self, memo: dict[int, Any]) -> list[T]:
        return list(self)
