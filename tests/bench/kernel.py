"""The yardsticks of the guard: fixed pieces of work of the kinds that a build is made of, in none of its code.

- ``work``: table lookups over bytes (as CRC-32), a walk from length to length with hashes, a scatter to many places, numpy's
  conversions, and some plain Python: what a processor's caches hold.
- ``mapped``: one pass over a mapped file that no cache holds.
- ``fresh``: memory that is taken, touched and given back: page faults.

Machines differ in each of the three by factors of their own. Any change here, or of what compiles it, wants a new baseline.
"""

from __future__ import annotations

import json
import mmap
import struct
import time
from pathlib import Path
from typing import Final

import numba
import numpy as np
import numpy.typing as npt

BYTES: Final = 8 << 20
ROWS: Final = 1 << 18
PLACES: Final = 160
PYTHON_LOOPS: Final = 4_000
MAPPED_BYTES: Final = 64 << 20
FRESH_BYTES: Final = 32 << 20
FRESH_TIMES: Final = 2

Bytes = npt.NDArray[np.uint8]


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]  # numba ships no types
def _lookups(data: Bytes, tables: npt.NDArray[np.uint32]) -> int:
    crc = np.uint32(0xFFFFFFFF)
    for at in range(0, len(data) - 3, 4):
        crc = (
            tables[3, (crc ^ data[at]) & np.uint32(0xFF)]
            ^ tables[2, ((crc >> np.uint32(8)) ^ data[at + 1]) & np.uint32(0xFF)]
            ^ tables[1, ((crc >> np.uint32(16)) ^ data[at + 2]) & np.uint32(0xFF)]
            ^ tables[0, ((crc >> np.uint32(24)) ^ data[at + 3]) & np.uint32(0xFF)]
        )
    return int(crc)


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _walk(data: Bytes, out: npt.NDArray[np.int64]) -> int:
    at, count = 0, 0
    while at + 64 < len(data):
        h = np.int64(0)
        for k in range(4, 44):
            if data[at + k] == 0x20:
                break
            h = (h * 31 + data[at + k]) & 0x7FFFFFFF
        out[count & 0xFFFF] = h
        count += 1
        at += 64 + (data[at] & 0x7F)
    return count


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _scatter(key: npt.NDArray[np.int64], starts: npt.NDArray[np.int64], rows: Bytes, out: Bytes) -> None:
    for i in range(len(key)):
        at = starts[key[i]]
        starts[key[i]] = at + 1
        for k in range(32):
            out[32 * at + k] = rows[32 * i + k]


class Kernel:
    """Makes its data once, a file in ``folder`` among it; ``seconds()`` does each piece of work once more."""

    def __init__(self, folder: Path) -> None:
        random = np.random.default_rng(1)
        self._data = np.frombuffer(random.bytes(BYTES), np.uint8)
        self._tables = random.integers(0, 1 << 32, (4, 256), dtype=np.uint32)
        self._hashes = np.zeros(1 << 16, np.int64)
        self._key = random.integers(0, PLACES, ROWS)
        self._rows = np.frombuffer(random.bytes(32 * ROWS), np.uint8)
        self._out = np.empty(2 * len(self._rows), np.uint8)
        self._file = folder / "kernel"
        self._file.write_bytes(random.bytes(MAPPED_BYTES))
        self.seconds()

    def seconds(self) -> dict[str, float]:
        """Processor time of this thread for one round of each piece of work."""
        seconds = {}
        for piece in (self._work, self._mapped, self._fresh):
            begin = time.thread_time()
            piece()
            seconds[piece.__name__[1:]] = time.thread_time() - begin
        return seconds

    def _work(self) -> None:
        _lookups(self._data, self._tables)
        _walk(self._data, self._hashes)
        starts = np.zeros(PLACES, np.int64)
        np.cumsum(np.bincount(self._key, minlength=PLACES)[:-1], out=starts[1:])
        _scatter(self._key, starts, self._rows, self._out)
        self._out[len(self._rows) :] = self._rows
        columns = self._out[: len(self._rows)].view(np.int64).reshape(4, -1)
        for column in columns:
            column.astype(">i8")
        np.flatnonzero(columns[0, 1:] != columns[0, :-1])
        for k in range(PYTHON_LOOPS):
            json.loads(json.dumps({"name": str(k), "place": struct.pack(">q", k).hex()}))

    def _mapped(self) -> None:
        with open(self._file, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapping:
            words = np.frombuffer(mapping, np.int64)
            int(words.sum())
            # A mapping closes where nothing looks into it.
            del words

    def _fresh(self) -> None:
        for _ in range(FRESH_TIMES):
            # Of its own: numpy may be given memory that was touched before.
            with mmap.mmap(-1, FRESH_BYTES) as memory:
                words = np.frombuffer(memory, np.int64)
                words[:: mmap.PAGESIZE // words.itemsize] = 1
                del words
