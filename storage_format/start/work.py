"""Room outside of memory for what a start is worked out with."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]


class Spool(Protocol):
    """Room for what is too long for memory. What is put there stays until the end."""

    def put(self, data: bytes) -> int:
        """Keep bytes; returns their place. Raises OSError where there is no room."""

    def get(self, place: int, size: int) -> Bytes:
        """``size`` bytes, uint8, from a place on."""

    def room(self, size: int) -> Bytes:
        """A new array, uint8 (size,), of zeros, which can be written to."""


class MemorySpool:
    """A spool in memory: for a store that is small."""

    def __init__(self) -> None:
        self._kept = bytearray()

    def put(self, data: bytes) -> int:
        place = len(self._kept)
        self._kept += data
        return place

    def get(self, place: int, size: int) -> Bytes:
        return np.frombuffer(self._kept[place : place + size], np.uint8)

    def room(self, size: int) -> Bytes:
        return np.zeros(size, np.uint8)
