"""Room for what a preflight keeps of each record: a little of it in memory, then a file without a name in TMPDIR."""

from __future__ import annotations

import mmap
import os
import tempfile
from types import TracebackType
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.names import escape

_IN_MEMORY: Final = 16 << 20
"""bytes: what a log of some 300,000 records needs"""


class TemporarySpool:
    """A ``storage_format.start.work.Spool``; a context manager. Nothing of it is left behind, however the process ends."""

    def __init__(self) -> None:
        self._kept = tempfile.SpooledTemporaryFile(_IN_MEMORY, prefix="rmq-reindex-")  # noqa: SIM115  closed by __exit__
        self._size = 0

    def put(self, data: bytes) -> int:
        """Keep bytes; returns their place. Raises InputError where there is no room."""
        place = self._size
        try:
            self._kept.seek(place)
            self._kept.write(data)
        except OSError as error:
            raise _no_room(error) from error
        self._size += len(data)
        return place

    def get(self, place: int, size: int) -> npt.NDArray[np.uint8]:
        """``size`` bytes, uint8, from a place on."""
        self._kept.seek(place)
        return np.frombuffer(bytearray(self._kept.read(size)), np.uint8)

    def room(self, size: int) -> npt.NDArray[np.uint8]:
        """A new array, uint8 (size,), of zeros, which lies in a file of its own. Raises InputError where there is no room."""
        try:
            with tempfile.TemporaryFile(prefix="rmq-reindex-") as file:
                # To write to a mapped file on a full disk is a signal, and no error.
                os.posix_fallocate(file.fileno(), 0, size)
                return np.frombuffer(mmap.mmap(file.fileno(), size), np.uint8)
        except OSError as error:
            raise _no_room(error) from error

    def __enter__(self) -> TemporarySpool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._kept.close()


def _no_room(error: OSError) -> InputError:
    return InputError(
        f"{escape(tempfile.gettempdir())}: {error.strerror}: while preflight runs, up to 60 bytes of each record lie "
        "there: set TMPDIR to a folder with room"
    )
