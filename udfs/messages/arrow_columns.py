"""Columns of ``storage_format`` as Arrow arrays over the same buffers: no value is copied by itself."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketmq_reindex.storage_format.record.property_maps import MapColumn
from rocketmq_reindex.storage_format.record.text_columns import TextColumn


def bitmap(valid: npt.NDArray[np.bool_]) -> pa.Buffer | None:
    """Arrow's validity bits of a bool array; None when all values are valid."""
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def texts(column: TextColumn, kind: pa.DataType | None = None) -> pa.Array:
    """A column of texts as a string array, or as an array of ``kind`` (binary)."""
    buffers = [bitmap(column.valid), pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind or pa.string(), len(column.valid), buffers)


def maps(column: MapColumn) -> pa.Array:
    """A column of maps as an array of map<string, string>."""
    entries = pa.StructArray.from_arrays(
        [texts(column.names), texts(column.values)],
        fields=[pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string())],
    )
    kind = pa.map_(pa.string(), pa.string())
    return pa.Array.from_buffers(kind, len(column.offsets) - 1, [None, pa.py_buffer(column.offsets)], children=[entries])


def numbers(column: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    """A column of numbers as an array of ``kind``, which may be narrower."""
    return pa.array(column.astype(kind.to_pandas_dtype(), copy=False), type=kind)


TIME: Final = pa.timestamp("us", "UTC")
_TIME_MAX: Final = 9_223_285_600_000
"""Milliseconds: a day less than 64 bits of nanoseconds, as pandas has them. Spark fails where Python has no such date."""


def times(milliseconds: npt.NDArray[np.int64]) -> pa.Array:
    """Times since 1970 (int64) as an array of TIME; null for one before 1677 or after 2262, which no clock gave."""
    known = (milliseconds >= -_TIME_MAX) & (milliseconds <= _TIME_MAX)
    return pa.array(np.where(known, milliseconds, 0) * 1000, type=TIME, mask=~known)


def nulls(fields: pa.Schema, given: dict[str, pa.Array], count: int) -> pa.RecordBatch:
    """A batch of ``count`` rows with the columns ``given``, and all others null."""
    columns = [given.get(field.name, pa.nulls(count, field.type)) for field in fields]
    return pa.RecordBatch.from_arrays(columns, schema=fields)


def string_buffers(array: pa.Array) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """Offsets (int32, n + 1) and bytes (uint8) of a string array of n values; the bytes of a null mean nothing."""
    if pa.types.is_large_string(array.type) or array.type != pa.string():
        array = array.cast(pa.string())
    _, offsets, data = array.buffers()
    if offsets is None or not len(array):
        return np.zeros(len(array) + 1, np.int32), np.zeros(0, np.uint8)
    bounds = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    return bounds, np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
