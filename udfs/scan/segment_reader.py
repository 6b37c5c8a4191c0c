"""Read a segment by the offsets of the commitlog, as a ``RangeScanner`` asks for its bytes."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.udfs import files

Watch = Callable[[int, npt.NDArray[np.uint8]], None]
"""Gets all bytes of the log that are read, each piece with its offset"""


class SegmentReader:
    """The file of one segment, which begins at offset ``start`` of the commitlog; a context manager.

    ``watch`` gets all bytes that are read. Up to offset ``ahead`` of the commitlog bytes are loaded ahead of what is viewed, in
    order; with ``let_go`` they leave the page cache again (``files.Reader.read_ahead``). Raises OSError or InputError as
    ``files.Reader`` does.
    """

    def __init__(self, path: str, start: int, watch: Watch | None = None, ahead: int = 0, let_go: bool = False) -> None:
        self._reader, self._start, self._watch = files.Reader(path), start, watch
        if ahead > start:
            self._reader.read_ahead(ahead - start, let_go)

    def read(self, at: int, out: npt.NDArray[np.uint8]) -> None:
        """Fill ``out`` (uint8) with the bytes from offset ``at`` of the commitlog on."""
        self._reader.read_into(at - self._start, out)
        if self._watch is not None:
            self._watch(at, out)

    def view(self, at: int, count: int) -> npt.NDArray[np.uint8] | None:
        """``count`` bytes (uint8) from offset ``at`` on, mapped into memory; None where only ``read`` works."""
        data = self._reader.view(at - self._start, count)
        if data is not None and self._watch is not None:
            self._watch(at, data)
        return data

    def __enter__(self) -> SegmentReader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._reader.__exit__(kind, error, trace)
