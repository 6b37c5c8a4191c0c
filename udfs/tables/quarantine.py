"""Rows of the table ``quarantine``: stretches of damage, each with its first bytes, which executors read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pyarrow as pa

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.names import redacted
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.tables.schema import FIRST_BYTES, QUARANTINE


def read_first_bytes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of ``QUARANTINE`` with the first bytes filled in, where they can be read, and without passwords in paths."""
    for batch in batches:
        # One dict for each row: there are few, and each is a read of its own.
        rows = batch.to_pylist()
        for row in rows:
            row["firstBytes"] = first_bytes(row["path"], int(row["segment"]), row["offset"], row["length"])
            row["path"] = row["path"] and redacted(row["path"])
        yield pa.RecordBatch.from_pylist(rows, schema=QUARANTINE.arrow)


def first_bytes(path: str | None, start: int, offset: int, length: int) -> str | None:
    """Up to 64 bytes of damage in hex; None where they cannot be read.

    The segment at ``path`` (None: missing) begins at phy_offset ``start``, the damage at ``offset``, with ``length`` bytes.
    """
    if path is None:
        return None
    with contextlib.suppress(OSError, InputError), files.Reader(path) as reader:
        at = offset - start
        count = min(FIRST_BYTES, length, reader.size() - at)
        return reader.read(at, count).hex() if at >= 0 and count > 0 else None
    return None
