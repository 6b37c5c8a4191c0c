"""Filters of a query that a data source applies itself: Spark shows them in its plan, and gets no row that fails one."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

_COMPARED: Final[dict[str, Callable[[pa.Array, pa.Scalar], pa.Array]]] = {
    "EqualTo": pc.equal,
    "EqualNullSafe": pc.equal,
    "GreaterThan": pc.greater,
    "GreaterThanOrEqual": pc.greater_equal,
    "LessThan": pc.less,
    "LessThanOrEqual": pc.less_equal,
}
_OF_NUMBERS: Final = (pa.int32(), pa.int64())


@dataclass(frozen=True)
class RowFilter:
    """One filter, of a class of ``pyspark.sql.datasource`` named ``kind``. A row passes where it is true, not null."""

    column: str
    kind: str
    value: Any
    """a scalar or, for In, an array; None for IsNotNull"""

    def passed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that pass."""
        column = batch.column(self.column)
        if self.kind == "IsNotNull":
            mask = pc.is_valid(column)
        elif self.kind == "In":
            mask = pc.is_in(column, value_set=self.value)
        elif self.kind == "StringStartsWith":
            mask = pc.starts_with(column, self.value)
        else:
            mask = _COMPARED[self.kind](column, self.value)
        return batch.filter(mask)


def row_filter(given: Any, schema: pa.Schema) -> RowFilter | None:
    """A filter of Spark's for rows with the columns ``schema``; None where Spark has to apply it."""
    attribute: tuple[str, ...] = getattr(given, "attribute", ())
    value: Any = getattr(given, "value", None)
    kind = type(given).__name__
    if len(attribute) != 1 or attribute[0] not in schema.names:
        return None
    column = attribute[0]
    of = schema.field(column).type
    if kind == "IsNotNull":
        return RowFilter(column, kind, None)
    if kind == "StringStartsWith":
        return RowFilter(column, kind, value) if of == pa.string() and isinstance(value, str) else None
    if kind == "In":
        # x IN (1, NULL) is true where x is 1, and null elsewhere.
        values = [one for one in value if one is not None]
        return RowFilter(column, kind, pa.array(values, of)) if values and all(_fits(one, of) for one in values) else None
    return RowFilter(column, kind, pa.scalar(value, of)) if kind in _COMPARED and _fits(value, of) else None


def _fits(value: Any, of: pa.DataType) -> bool:
    """Whether ``value`` is one of the type ``of``."""
    if of in _OF_NUMBERS:
        return type(value) is int and -(1 << of.bit_width - 1) <= value < 1 << of.bit_width - 1
    if pa.types.is_timestamp(of):
        return isinstance(value, dt.datetime) and value.tzinfo is not None
    return {pa.string(): str, pa.bool_(): bool}.get(of) is type(value)
