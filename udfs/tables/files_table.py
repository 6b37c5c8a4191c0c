"""Rows of the table ``files``: executors read the manifest's list in stretches, so no line passes through the driver."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_reindex.udfs import files, plans
from rocketmq_reindex.udfs.tables.schema import FILES

STRETCH: Final = 16 << 20
"""Bytes of the manifest that one task reads."""
_LINE: Final = b'  {"path": "'
"""How each line of the manifest's list begins, and no other line."""
_FIELDS: Final = pa.schema([("path", pa.string()), ("size", pa.int64()), ("used", pa.int64()), ("digest", pa.string())])
_PIECE: Final = 1 << 20


@dataclass(frozen=True)
class ManifestFiles:
    """Makes rows of ``FILES`` from the lines of the file ``manifest`` that begin in a task's share of its ``size`` bytes.

    ``tasks`` tasks share them; ``build`` is the value of the column build.
    """

    manifest: str
    size: int
    tasks: int
    build: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with files.Reader(self.manifest) as reader:
            for task in plans.numbers(batches):
                for lines in _lines(reader, *plans.share_of(self.size, task, self.tasks), self.size):
                    yield from self._rows(lines)

    def _rows(self, lines: list[bytes]) -> Iterator[pa.RecordBatch]:
        from pyarrow import json

        wanted = b"\n".join(line.rstrip(b",") for line in lines if line.startswith(_LINE))
        if not wanted:
            return
        # A line is far shorter than a block, in which it must end.
        options = json.ParseOptions(explicit_schema=_FIELDS, unexpected_field_behavior="ignore")
        found = json.read_json(io.BytesIO(wanted), json.ReadOptions(use_threads=False, block_size=8 << 20), options)
        for batch in found.to_batches():
            path = batch.column("path")
            kind = pc.list_element(pc.split_pattern(path, "/", max_splits=1), 0)
            build = pa.array([self.build] * len(path), pa.string())
            columns = [build, path, kind, batch.column("size"), batch.column("used"), batch.column("digest")]
            yield pa.RecordBatch.from_arrays(columns, schema=FILES.arrow)


def _lines(reader: files.Reader, low: int, high: int, size: int) -> Iterator[list[bytes]]:
    """The whole lines that begin in [low, high), some at a time."""
    # The line with the byte before ``low`` began earlier.
    at, rest, skip = max(0, low - 1), b"", low > 0
    begin = at
    while begin < high and at < size:
        piece = reader.read(at, min(_PIECE, size - at))
        at += len(piece)
        *whole, rest = (rest + piece).split(b"\n")
        if at == size and rest:
            whole, rest = [*whole, rest], b""
        taken = []
        for line in whole:
            if begin >= high:
                break
            if not skip:
                taken.append(line)
            skip = False
            begin += len(line) + 1
        yield taken
