"""Rows of the table ``quarantine``: damaged places, each with its first bytes, which executors read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pyarrow as pa

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.names import redacted
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.tables.schema import FIRST_BYTES, QUARANTINE


def read_first_bytes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Places as ``QUARANTINE``, whose ``firstBytes`` are still null: filled in where they can be read."""
    for batch in batches:
        # Arrow gives a place's row as a dict: there are few, and each is a read of its own.
        rows = batch.to_pylist()
        for row in rows:
            row["firstBytes"] = first_bytes(row["path"], int(row["segment"]), row["offset"], row["length"])
            row["path"] = row["path"] and redacted(row["path"])
        yield pa.RecordBatch.from_pylist(rows, schema=QUARANTINE.arrow)


def first_bytes(path: str | None, start: int, offset: int, length: int) -> str | None:
    """Up to 64 bytes of a damaged place in hex; None where they cannot be read. The segment begins at offset ``start``."""
    if path is None:
        return None
    with contextlib.suppress(OSError, InputError), files.Reader(path) as reader:
        at = offset - start
        count = min(FIRST_BYTES, length, reader.size() - at)
        return reader.read(at, count).hex() if at >= 0 and count > 0 else None
    return None
