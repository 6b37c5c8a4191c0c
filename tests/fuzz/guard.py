"""Arrays that refuse what compiled code would not see: a negative index, one behind the end; and work without bound."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

PLAIN = bool(numba.config.DISABLE_JIT)
"""The loops run as plain Python; compiled ones take no subclass of ndarray."""


class OutOfRange(AssertionError):
    """An index that compiled code would follow to some other memory."""


class TooMuchWork(AssertionError):
    """More accesses than the input's size explains."""


class _Budget:
    left = 0


def allow(accesses: int) -> None:
    """So many accesses from now on."""
    _Budget.left = accesses


def _check(key: Any, length: int) -> None:
    if isinstance(key, slice):
        # A step below 0 (all of an array, backwards) names no end.
        if (key.start is not None and key.start < 0) or (key.stop is not None and key.stop < 0):
            raise OutOfRange(f"slice {key} of {length}")
    elif isinstance(key, int | np.integer) and not 0 <= key < length:
        raise OutOfRange(f"index {key} of {length}")


_get, _set = np.ndarray.__getitem__, np.ndarray.__setitem__


class Guarded(np.ndarray[Any, Any]):
    """An ndarray whose elements are asked for only by indexes that exist, and not too often."""

    def _guard(self, key: Any) -> None:
        if isinstance(key, tuple):
            for part, length in zip(key, self.shape, strict=False):
                _check(part, length)
        else:
            _check(key, self.shape[0])

    def __getitem__(self, key: Any) -> Any:
        _Budget.left -= 1
        if _Budget.left < 0:
            raise TooMuchWork
        # Nearly every access is this one; beyond the end numpy itself refuses.
        if key.__class__ is not int or key < 0:
            self._guard(key)
        return _get(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        _Budget.left -= 1
        if _Budget.left < 0:
            raise TooMuchWork
        if key.__class__ is not int or key < 0:
            self._guard(key)
        _set(self, key, value)


def guard(value: Any) -> Any:
    """Arrays, also those in named tuples, as guarded views; anything else as it is."""
    if isinstance(value, np.ndarray):
        return value.view(Guarded)
    if isinstance(value, tuple) and hasattr(value, "_make"):
        return value._make(guard(part) for part in value)
    return value


def guarded(function: Callable[..., Any], filled: bool = False) -> Callable[..., Any]:
    """``function`` with guarded arrays; ``filled``: of its first, a Stretch, only what is filled is there to be read."""
    if not PLAIN:
        return function

    @functools.wraps(function)
    def call(*values: Any) -> Any:
        if filled:
            stretch = values[0]
            values = (stretch._replace(data=stretch.data[: stretch.filled]), *values[1:])
        return function(*(guard(value) for value in values))

    return call
