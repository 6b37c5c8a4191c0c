"""What the three data sources share: the choice of columns, and damage as the option onDamage says."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from rocketmq_reindex.storage_format.errors import RefusedError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.plurals import counted
from rocketmq_reindex.udfs.messages.arrow_columns import nulls
from rocketmq_reindex.udfs.sql.one_line import in_one_line
from rocketmq_reindex.udfs.sql.options import FAIL, ROWS, SKIP, Words
from rocketmq_reindex.udfs.sql.row_filters import RowFilter, row_filter

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
                raise words.error(f"columns: there is no {escape(name)}: take of {', '.join(given.names)}")
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
                shown = escape(f"{field.name} {field.dataType.simpleString()}")
                raise words.error(f"schema: there is no {shown}: take of {from_arrow_schema(given).simpleString()}")
        return pa.schema([given.field(name) for name in schema.fieldNames()])


class Reader(DataSourceReader):
    """Base of the readers: options, and what to do about damage. Spark reads plain iterators of Arrow batches."""

    def __init__(self, source: Source, schema: StructType) -> None:
        self.source_name = source.name()
        self.words = source.words()
        self.schema = source.asked(self.words, schema)
        self.located = source.located(self.words)
        self.on_damage = self.words.chosen("onDamage", (SKIP, ROWS, FAIL))
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
                "%s: %s: passed over %s, the first: %s", self.source_name, where, counted(count, "damaged place"), first
            )

    def refuse(self, where: str, first: str) -> None:
        """Raise RefusedError for damage in ``where``; ``first`` describes it."""
        raise RefusedError(f"{where}: damage: {first}: read with onDamage skip or rows")

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
