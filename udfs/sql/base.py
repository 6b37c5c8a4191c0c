"""What the three data sources share: the choice of columns, filters of a query, how damage is shown, errors in one line."""

import contextlib
import dataclasses
import datetime as dt
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from rocketmq_reindex.storage_format import errors, layouts, showing
from rocketmq_reindex.udfs.handover import settle
from rocketmq_reindex.udfs.messages.batches import DAMAGE, nulls
from rocketmq_reindex.udfs.messages.log_rows import ROWS, SHOWN_DAMAGE, Bounds, Topics
from rocketmq_reindex.udfs.sql.options import Words
from rocketmq_reindex.udfs.times import EPOCH

# --------------------------------------------------------------------------------------------------------------------- one line
# Errors of the data sources without Python's stack: Spark shows the user what a worker writes about an error.

HIDE: Final = "SPARK_HIDE_TRACEBACK"
"""Spark's worker looks at it when it has caught an error (``pyspark.util.handle_worker_exception``), and then ends."""
_OF_WORKERS: Final = "SPARK_BUFFER_SIZE"
"""Spark sets it for its workers alone."""


@contextlib.contextmanager
def in_one_line() -> Iterator[None]:
    """Let an error that says all by itself pass without its stack. In a process that is no worker of Spark, do nothing."""
    try:
        yield
    except (errors.ReindexError, OSError):
        if _OF_WORKERS in os.environ:
            os.environ[HIDE] = "1"
        raise


# ------------------------------------------------------------------------------------------------------------------ row filters
# Filters of a query that a data source applies itself: Spark shows them in its plan, and gets no row that fails one.

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
        """Return the rows that pass."""
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


def row_filter(pushed: Any, schema: pa.Schema) -> RowFilter | None:
    """Return a filter of Spark's for rows with the columns ``schema``; None where Spark has to apply it."""
    attribute: tuple[str, ...] = getattr(pushed, "attribute", ())
    value: Any = getattr(pushed, "value", None)
    kind = type(pushed).__name__
    if len(attribute) != 1 or attribute[0] not in schema.names:
        return None
    column = attribute[0]
    column_type = schema.field(column).type
    if kind == "IsNotNull":
        return RowFilter(column, kind, None)
    if kind == "StringStartsWith":
        return RowFilter(column, kind, value) if column_type == pa.string() and isinstance(value, str) else None
    if kind == "In":
        # x IN (1, NULL) is true where x is 1, and null elsewhere.
        values = [item for item in value if item is not None]
        return (
            RowFilter(column, kind, pa.array(values, column_type))
            if values and all(_fits(item, column_type) for item in values)
            else None
        )
    return RowFilter(column, kind, pa.scalar(value, column_type)) if kind in _COMPARED and _fits(value, column_type) else None


def _fits(value: Any, column_type: pa.DataType) -> bool:
    """Return whether ``value`` is one of the type ``column_type``."""
    if column_type in _OF_NUMBERS:
        return type(value) is int and -(1 << column_type.bit_width - 1) <= value < 1 << column_type.bit_width - 1
    if pa.types.is_timestamp(column_type):
        return isinstance(value, dt.datetime) and value.tzinfo is not None
    return {pa.string(): str, pa.bool_(): bool}.get(column_type) is type(value)


# ---------------------------------------------------------------------------------------------------------------------- filters
# Narrow what a data source reads by the filters of a query (``DataSourceReader.pushFilters``, Spark 4.1).
#
# Rows that pass no filter may be read: ``row_filters``, or Spark, leaves them out.

OFFSET, MILLISECONDS, TIME, TOPIC = "commitLogOffset", "storeTimestamp", "storeTime", "topic"
_OF_TIME = ("start_time", "end_time")
_BOUNDS = {OFFSET: ("start_offset", "end_offset"), MILLISECONDS: _OF_TIME, TIME: _OF_TIME}


def _span(kind: str, value: Any) -> tuple[int, int] | None:
    """Return [low, high) with all numbers that a filter passes; None for a filter of another kind."""
    numbers = [_number(v) for v in (value if kind == "In" else (value,))]
    values = [v for v in numbers if v is not None]
    if not values or len(values) < len(numbers):
        return None
    low, high = min(values), max(values)
    if kind == "LessThan" and isinstance(value, dt.datetime) and value.microsecond % 1000:
        high += 1
    return {
        "EqualTo": (low, high + 1),
        "EqualNullSafe": (low, high + 1),
        "In": (low, high + 1),
        "GreaterThan": (low + 1, layouts.INT64_MAX + 1),
        "GreaterThanOrEqual": (low, layouts.INT64_MAX + 1),
        "LessThan": (layouts.INT64_MIN, high),
        "LessThanOrEqual": (layouts.INT64_MIN, high + 1),
    }.get(kind)


def _number(value: Any) -> int | None:
    """Return an integer as it is, a time as whole milliseconds since 1970, rounded down; None for any other value."""
    if isinstance(value, dt.datetime):
        return (value - EPOCH) // dt.timedelta(milliseconds=1) if value.tzinfo else None
    return value if type(value) is int else None


def narrow_bounds(bounds: Bounds, filters: Iterable[Any]) -> Bounds:
    """Return the bounds, narrowed by filters on commitLogOffset, storeTimestamp and storeTime."""
    for pushed in filters:
        names = _BOUNDS.get(".".join(getattr(pushed, "attribute", ())))
        span = _span(type(pushed).__name__, getattr(pushed, "value", None)) if names else None
        if names and span:
            low, high = names
            bounds = dataclasses.replace(
                bounds, **{low: max(getattr(bounds, low), span[0]), high: min(getattr(bounds, high), span[1])}
            )
    return bounds


def _literal(topic: str) -> str:
    """Return a glob that matches only this topic."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in topic)


def narrow_topics(topics: Topics, filters: Iterable[Any]) -> Topics | None:
    """Return the topics, narrowed by filters on the topic; None when no topic passes."""
    names: set[str] | None = None
    prefixes: list[str] = []
    for pushed in filters:
        if getattr(pushed, "attribute", ()) != (TOPIC,):
            continue
        kind: str = type(pushed).__name__
        value: Any = getattr(pushed, "value", None)
        if kind == "StringStartsWith":
            prefixes.append(str(value))
        elif kind in ("EqualTo", "EqualNullSafe", "In"):
            named = {v for v in (value if kind == "In" else (value,)) if isinstance(v, str)}
            names = named if names is None else names & named
    if names is not None:
        passing = sorted(name for name in names if topics.wants(name) and all(name.startswith(start) for start in prefixes))
        return Topics(tuple(_literal(name) for name in passing), topics.exclude) if passing else None
    if prefixes and not topics.include:
        return Topics((f"{_literal(max(prefixes, key=len))}*",), topics.exclude)
    return topics


def pushed_numbers(column: str, filters: Iterable[Any]) -> set[int] | None:
    """Return the numbers that filters leave for a column; None when no filter names any."""
    allowed: set[int] | None = None
    for pushed in filters:
        if getattr(pushed, "attribute", ()) == (column,) and type(pushed).__name__ in ("EqualTo", "EqualNullSafe", "In"):
            value: Any = pushed.value
            numbers = {v for v in (value if isinstance(value, (tuple, list)) else (value,)) if type(v) is int}
            allowed = numbers if allowed is None else allowed & numbers
    return allowed


# ------------------------------------------------------------------------------------------------------------------------- base

log: Final = logging.getLogger("rocketmq-reindex")
"""On an executor its lines are in the task's stderr."""


class TableSource(DataSource):
    """A data source over the files at ``path``. Subclasses name their options and columns, and make the reader."""

    known: tuple[str, ...] = ()
    fields: tuple[pa.Field, ...] = ()
    pushing = False
    """whether readers take filters: while spark.sql.python.filterPushdown.enabled is false, Spark 4.1 refuses one that does"""

    def words(self) -> Words:
        """Return the options. Raises UsageError for an unknown one."""
        return Words(self.name(), dict(self.options), (*self.known, "columns", "damage"))

    def columns(self, words: Words) -> pa.Schema:
        """Return all columns that these options give."""
        damage = [pa.field(DAMAGE, pa.string())] if words.text("damage") == ROWS else []
        return pa.schema([*self.fields, *damage])

    def chosen(self, words: Words) -> pa.Schema:
        """Return the columns that the option columns names; without it, all. Raises UsageError for an unknown name."""
        columns, chosen = self.columns(words), words.words("columns")
        for name in chosen:
            if name not in columns.names:
                raise words.error(f"columns: there is no {showing.escape(name)}: take of {', '.join(columns.names)}")
        return pa.schema([columns.field(name) for name in chosen]) if chosen else columns

    def schema(self) -> StructType:
        """Return the chosen columns, for Spark. Raises UsageError for wrong options, and InputError for a path that is no
        store."""
        with in_one_line():
            words = self.words()
            self.located(words)
            return from_arrow_schema(self.chosen(words))

    def located(self, words: Words) -> Any:
        """Return where the files are that it reads. Raises UsageError without a path, and InputError for one that is no
        store."""
        raise NotImplementedError

    def asked(self, words: Words, schema: StructType) -> pa.Schema:
        """Return the columns that Spark asks for: ours, or those of ``spark.read.schema``. Raises UsageError for others."""
        columns = self.columns(words)
        types = {field.name: field.dataType for field in from_arrow_schema(columns)}
        for field in schema:
            if types.get(field.name) != field.dataType:
                shown = showing.escape(f"{field.name} {field.dataType.simpleString()}")
                raise words.error(f"schema: there is no {shown}: take of {from_arrow_schema(columns).simpleString()}")
        return pa.schema([columns.field(name) for name in schema.fieldNames()])


class SourceReader(DataSourceReader):
    """Base of the readers: options, and what to do about damage. Spark reads plain iterators of Arrow batches."""

    def __init__(self, source: TableSource, schema: StructType) -> None:
        self.source_name = source.name()
        self.words = source.words()
        self.schema = source.asked(self.words, schema)
        self.located = source.located(self.words)
        self.shown_damage = self.words.chosen("damage", SHOWN_DAMAGE)
        self._filters: list[RowFilter] = []
        if source.pushing:
            # Spark looks at this attribute to see whether a reader takes filters.
            self.pushFilters = self._push  # type: ignore[method-assign]

    def _push(self, filters: list[Any]) -> Iterable[Any]:
        """Take the filters of a query (``DataSourceReader.pushFilters``, Spark 4.1); return those that are left to Spark."""
        self.narrow(filters)
        taken = [row_filter(pushed, self.schema) for pushed in filters]
        self._filters += [pushed for pushed in taken if pushed]
        return [pushed for pushed, ours in zip(filters, taken, strict=True) if not ours]

    def narrow(self, filters: list[Any]) -> None:
        """Read less where the filters allow it; what passes them must be read."""
        raise NotImplementedError

    def partitions(self) -> list[InputPartition]:
        """Return what the tasks read."""
        with in_one_line():
            return self.plan()

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition, with damage=rows those of its damage, too. Raises RefusedError with damage=fail."""
        settle()
        with in_one_line():
            if partition is not None:
                for batch in self.rows(partition):
                    for row_filter in self._filters:
                        batch = row_filter.passed(batch)
                    if batch.num_rows:
                        yield batch

    def plan(self) -> list[InputPartition]:
        """Return what the tasks read. Raises InputError for files that cannot be read as they are."""
        raise NotImplementedError

    def rows(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of one partition of ``plan``, in batches."""
        raise NotImplementedError

    def skipped(self, path: str, count: int, first: str) -> None:
        """Log that ``count`` stretches of damage in ``path`` were skipped; ``first`` describes the first one."""
        if count:
            log.warning(
                "%s: %s: passed over %s, the first: %s",
                self.source_name,
                path,
                showing.counted(count, "damaged place"),
                first,
            )

    def refuse(self, path: str, first: str) -> None:
        """Raise RefusedError for damage in ``path``; ``first`` describes it."""
        raise errors.RefusedError(f"{path}: damage: {first}: read with damage=skip or damage=rows")

    def damage_rows(self, rows: list[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
        """Yield rows about damage, one for each dict of ``rows``: null in all columns but those."""
        if rows:
            columns = {
                field.name: pa.array([row[field.name] for row in rows], field.type)
                for field in self.schema
                if field.name in rows[0]
            }
            yield nulls(self.schema, columns, len(rows))


def fault_texts(fault: npt.NDArray[np.uint8], texts: tuple[str, ...]) -> pa.Array:
    """Return what is wrong with each row (string): the ``texts`` of the bits set in ``fault`` (uint8), null where none is."""
    if not fault.any():
        return pa.nulls(len(fault), pa.string())
    shown = ["; ".join(text for k, text in enumerate(texts) if bits >> k & 1) or None for bits in range(256)]
    return pa.array(shown, pa.string()).take(pa.array(fault))
