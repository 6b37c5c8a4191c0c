"""What a process of the local engine is asked to do: each task is called once, in the worker, and its result goes back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from rocketmq_reindex.udfs.worker.kept_rows import RowsWriter, read_rows
from rocketmq_reindex.udfs.worker.setup import Batches


def _number(number: int) -> Iterator[pa.RecordBatch]:
    data = pa.py_buffer(number.to_bytes(8, "little"))
    yield pa.RecordBatch.from_arrays([pa.Array.from_buffers(pa.int64(), 1, [None, data])], ["id"])


def _texts(batches: Iterator[pa.RecordBatch]) -> list[str]:
    return [text for batch in batches for text in batch.column(0).to_pylist()]


@dataclass(frozen=True)
class Number:
    """Runs a function over one number; returns its results."""

    function: Batches
    number: int

    def __call__(self) -> list[str]:
        return _texts(self.function(_number(self.number)))


@dataclass(frozen=True)
class Scan:
    """Runs a function over one number, and keeps its rows in the file ``path``.

    Returns the data of its summaries, and whether there is a file.
    """

    function: Batches
    number: int
    path: str

    def __call__(self) -> tuple[list[bytes], bool]:
        with RowsWriter(self.path) as rows:
            summaries = [data for batch in self.function(_number(self.number)) for data in rows.take(batch)]
        return summaries, rows.wrote


@dataclass(frozen=True)
class Map:
    """Runs a function over the rows of one kind in the file ``source``, and keeps what it makes of them in the file ``path``.

    Returns whether there is a file.
    """

    function: Batches
    source: str
    kind: int
    left_out: tuple[int, ...]
    path: str

    def __call__(self) -> bool:
        with RowsWriter(self.path) as rows:
            for batch in self.function(read_rows([self.source], self.kind, self.left_out)):
                rows.take(batch)
        return rows.wrote


@dataclass(frozen=True)
class Reduce:
    """Runs a function over the rows of one kind and key in the files ``sources``; returns its results."""

    function: Batches
    sources: tuple[str, ...]
    kind: int
    left_out: tuple[int, ...]
    key: int

    def __call__(self) -> list[str]:
        return _texts(self.function(read_rows(self.sources, self.kind, self.left_out, self.key)))
