"""What the three data sources share: the choice of columns, filters of a query, damage as onDamage says, errors in one line."""

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

from rocketmq_reindex.storage_format import errors, layouts, names as storage_format_names
from rocketmq_reindex.udfs.messages.batches import nulls
from rocketmq_reindex.udfs.sql.options import ROWS, SHOWN_DAMAGE, Bounds, Topics, Words
from rocketmq_reindex.udfs.times import EPOCH

# --------------------------------------------------------------------------------------------------------------------- one_line
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


# ------------------------------------------------------------------------------------------------------------------ row_filters
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


# ---------------------------------------------------------------------------------------------------------------------- filters
# Narrow what a data source reads by the filters of a query (``DataSourceReader.pushFilters``, Spark 4.1).
#
# Rows that pass no filter may be read: ``row_filters``, or Spark, leaves them out.

OFFSET, MILLISECONDS, TIME, TOPIC = "commitLogOffset", "storeTimestamp", "storeTime", "topic"
_OF_TIME = ("start_time", "end_time")
_BOUNDS = {OFFSET: ("start_offset", "end_offset"), MILLISECONDS: _OF_TIME, TIME: _OF_TIME}


def _span(kind: str, value: Any) -> tuple[int, int] | None:
    """[low, high) with all numbers that a filter passes; None for a filter of another kind."""
    given = [_number(v) for v in (value if kind == "In" else (value,))]
    values = [v for v in given if v is not None]
    if not values or len(values) < len(given):
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
    """An integer as it is, a time as whole milliseconds since 1970, rounded down; None for any other value."""
    if isinstance(value, dt.datetime):
        return (value - EPOCH) // dt.timedelta(milliseconds=1) if value.tzinfo else None
    return value if type(value) is int else None


def narrow_bounds(bounds: Bounds, filters: Iterable[Any]) -> Bounds:
    """The bounds, narrowed by filters on commitLogOffset, storeTimestamp and storeTime."""
    for one in filters:
        names = _BOUNDS.get(".".join(getattr(one, "attribute", ())))
        span = _span(type(one).__name__, getattr(one, "value", None)) if names else None
        if names and span:
            low, high = names
            bounds = dataclasses.replace(
                bounds, **{low: max(getattr(bounds, low), span[0]), high: min(getattr(bounds, high), span[1])}
            )
    return bounds


def _literal(topic: str) -> str:
    """A glob that matches only this topic."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in topic)


def narrow_topics(topics: Topics, filters: Iterable[Any]) -> Topics | None:
    """The topics, narrowed by filters on the topic; None when no topic passes."""
    names: set[str] | None = None
    prefixes: list[str] = []
    for one in filters:
        if getattr(one, "attribute", ()) != (TOPIC,):
            continue
        kind: str = type(one).__name__
        value: Any = getattr(one, "value", None)
        if kind == "StringStartsWith":
            prefixes.append(str(value))
        elif kind in ("EqualTo", "EqualNullSafe", "In"):
            found = {v for v in (value if kind == "In" else (value,)) if isinstance(v, str)}
            names = found if names is None else names & found
    if names is not None:
        wanted = sorted(name for name in names if topics.wants(name) and all(name.startswith(start) for start in prefixes))
        return Topics(tuple(_literal(name) for name in wanted), topics.exclude) if wanted else None
    if prefixes and not topics.include:
        return Topics((f"{_literal(max(prefixes, key=len))}*",), topics.exclude)
    return topics


def pushed_numbers(column: str, filters: Iterable[Any]) -> set[int] | None:
    """The numbers that filters leave for a column; None when no filter names any."""
    found: set[int] | None = None
    for one in filters:
        if getattr(one, "attribute", ()) == (column,) and type(one).__name__ in ("EqualTo", "EqualNullSafe", "In"):
            value: Any = one.value
            numbers = {v for v in (value if isinstance(value, (tuple, list)) else (value,)) if type(v) is int}
            found = numbers if found is None else found & numbers
    return found


# ------------------------------------------------------------------------------------------------------------------------- base
# What the three data sources share: the choice of columns, and damage as the option onDamage says.

log: Final = logging.getLogger("rocketmq-reindex")
"""On an executor its lines are in the task's stderr."""
DAMAGE: Final = "damage"


class Source(DataSource):
    """A data source over the files at ``path``. Subclasses name their options and columns, and make the reader."""

    known: tuple[str, ...] = ()
    fields: tuple[pa.Field, ...] = ()
    pushing = False
    """whether readers take filters: while spark.sql.python.filterPushdown.enabled is false, Spark 4.1 refuses one that does"""

    def words(self) -> Words:
        """The options. Raises UsageError for an unknown one."""
        return Words(self.name(), dict(self.options), (*self.known, "columns", "onDamage"))

    def columns(self, words: Words) -> pa.Schema:
        """All columns that these options give."""
        damage = [pa.field(DAMAGE, pa.string())] if words.text("onDamage") == ROWS else []
        return pa.schema([*self.fields, *damage])

    def chosen(self, words: Words) -> pa.Schema:
        """The columns that the option columns names; without it, all. Raises UsageError for an unknown name."""
        given, wanted = self.columns(words), words.words("columns")
        for name in wanted:
            if name not in given.names:
                raise words.error(f"columns: there is no {storage_format_names.escape(name)}: take of {', '.join(given.names)}")
        return pa.schema([given.field(name) for name in wanted]) if wanted else given

    def schema(self) -> StructType:
        """The chosen columns, for Spark. Raises UsageError for wrong options, and InputError for a path that is no store."""
        with in_one_line():
            words = self.words()
            self.located(words)
            return from_arrow_schema(self.chosen(words))

    def located(self, words: Words) -> Any:
        """Where the files are that it reads. Raises UsageError without a path, and InputError for one that is no store."""
        raise NotImplementedError

    def asked(self, words: Words, schema: StructType) -> pa.Schema:
        """The columns that Spark asks for: ours, or those of ``spark.read.schema``. Raises UsageError for others."""
        given = self.columns(words)
        types = {field.name: field.dataType for field in from_arrow_schema(given)}
        for field in schema:
            if types.get(field.name) != field.dataType:
                shown = storage_format_names.escape(f"{field.name} {field.dataType.simpleString()}")
                raise words.error(f"schema: there is no {shown}: take of {from_arrow_schema(given).simpleString()}")
        return pa.schema([given.field(name) for name in schema.fieldNames()])


class Reader(DataSourceReader):
    """Base of the readers: options, and what to do about damage. Spark reads plain iterators of Arrow batches."""

    def __init__(self, source: Source, schema: StructType) -> None:
        self.source_name = source.name()
        self.words = source.words()
        self.schema = source.asked(self.words, schema)
        self.located = source.located(self.words)
        self.shown_damage = self.words.chosen("onDamage", SHOWN_DAMAGE)
        self._filters: list[RowFilter] = []
        if source.pushing:
            # Spark looks at this attribute to see whether a reader takes filters.
            self.pushFilters = self._push  # type: ignore[method-assign]

    def _push(self, filters: list[Any]) -> Iterable[Any]:
        """Take the filters of a query (``DataSourceReader.pushFilters``, Spark 4.1); returns those that are left to Spark."""
        self.narrow(filters)
        taken = [row_filter(one, self.schema) for one in filters]
        self._filters += [one for one in taken if one]
        return [one for one, ours in zip(filters, taken, strict=True) if not ours]

    def narrow(self, filters: list[Any]) -> None:
        """Read less where the filters allow it; what passes them must be read."""
        raise NotImplementedError

    def partitions(self) -> list[InputPartition]:
        """What the tasks read."""
        with in_one_line():
            return self.plan()

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of one partition, and its damage as the option onDamage says. Raises RefusedError with onDamage fail."""
        with in_one_line():
            if partition is not None:
                for batch in self.rows(partition):
                    for one in self._filters:
                        batch = one.passed(batch)
                    if batch.num_rows:
                        yield batch

    def plan(self) -> list[InputPartition]:
        """What the tasks read. Raises InputError for files that cannot be read as they are."""
        raise NotImplementedError

    def rows(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition of ``plan``, in batches."""
        raise NotImplementedError

    def skipped(self, where: str, count: int, first: str) -> None:
        """Log that ``count`` stretches of damage in ``where`` were skipped; ``first`` describes the first one."""
        if count:
            log.warning(
                "%s: %s: passed over %s, the first: %s",
                self.source_name,
                where,
                storage_format_names.counted(count, "damaged place"),
                first,
            )

    def refuse(self, where: str, first: str) -> None:
        """Raise RefusedError for damage in ``where``; ``first`` describes it."""
        raise errors.RefusedError(f"{where}: damage: {first}: read with onDamage skip or rows")

    def damage_rows(self, rows: list[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
        """Rows about damage, one for each dict of ``rows``: null in all columns but those."""
        if rows:
            given = {
                field.name: pa.array([row[field.name] for row in rows], field.type)
                for field in self.schema
                if field.name in rows[0]
            }
            yield nulls(self.schema, given, len(rows))


def fault_texts(fault: npt.NDArray[np.uint8], texts: tuple[str, ...]) -> pa.Array:
    """What is wrong with each row (string): the ``texts`` of the bits set in ``fault`` (uint8), null where none is."""
    if not fault.any():
        return pa.nulls(len(fault), pa.string())
    shown = ["; ".join(text for k, text in enumerate(texts) if bits >> k & 1) or None for bits in range(256)]
    return pa.array(shown, pa.string()).take(pa.array(fault))
