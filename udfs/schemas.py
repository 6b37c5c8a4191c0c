"""Columns of the rows that pass between stages: few, packed, never one per message."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Final

import pyarrow as pa

SUMMARY, UNITS, RUNS, TOPICS, BATCHES, BATCH_RUNS = range(6)

ROWS: Final = pa.schema(
    [
        ("kind", pa.int32()),
        ("bucket", pa.int32()),
        ("key", pa.int32()),
        ("range", pa.int32()),
        ("data", pa.binary()),
        ("place", pa.int64()),
    ]
)
"""``bucket`` says which task takes a cell, ``key`` is a number that Spark's hash sends to that task's partition. Cells of a
bucket come in the order of ``place``, where that matters."""
ROWS_DDL: Final = "kind int, bucket int, key int, range int, data binary, place bigint"

RESULT: Final = pa.schema([("data", pa.string())])
RESULT_DDL: Final = "data string"
_BATCH_BYTES: Final = 4 << 20

Row = tuple[int, int, int, int, bytes, int]
Cell = tuple[int, int, bytes]
"""(bucket, place, data) of a row"""


def batches(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    """Rows as record batches of a few MiB at most."""
    held: list[Row] = []
    size = 0
    for row in rows:
        held.append(row)
        size += len(row[4])
        if size >= _BATCH_BYTES:
            yield _batch(held)
            held, size = [], 0
    if held:
        yield _batch(held)


def _batch(rows: list[Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, type=field.type) for column, field in zip(columns, ROWS, strict=True)], schema=ROWS
    )


def by_bucket(batches: Iterable[pa.RecordBatch]) -> Iterator[Iterator[Cell]]:
    """The cells of each bucket, one bucket after another, as the rows come: no more than a batch of them is held."""
    return (cells for _, cells in groupby(_cells(batches), key=itemgetter(0)))


def _cells(batches: Iterable[pa.RecordBatch]) -> Iterator[Cell]:
    for batch in batches:
        columns = (batch.column(batch.schema.get_field_index(name)).to_pylist() for name in ("bucket", "place", "data"))
        yield from zip(*columns, strict=True)


def result(texts: Iterable[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(list(texts), type=pa.string())], schema=RESULT)
