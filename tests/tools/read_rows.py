"""Rows of a data source without Spark: plan, then every partition, as the planner and the tasks do it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from rocketmq_reindex.udfs.sql.base import SourceReader, TableSource


def make_reader(source: type[TableSource], path: Path | str, **options: Any) -> SourceReader:
    made = source({"path": str(path), **{name: str(value) for name, value in options.items()}})
    reader = made.reader(made.schema())
    assert isinstance(reader, SourceReader)
    return reader


def batches(reader: SourceReader) -> Iterator[pa.RecordBatch]:
    # Spark gives a reader None where it planned nothing.
    partitions: list[InputPartition | None] = [*reader.partitions()] or [None]
    for partition in partitions:
        made: Any = reader.read(partition)
        for batch in made:
            batch.validate(full=True)
            assert batch.schema == reader.schema
            assert batch.num_rows
            yield batch


def read_rows(source: type[TableSource], path: Path | str, **options: Any) -> list[dict[str, Any]]:
    rows = [row for batch in batches(make_reader(source, path, **options)) for row in batch.to_pylist()]
    for row in rows:
        if row.get("properties") is not None:
            pairs = row["properties"]
            row["properties"] = dict(pairs)
            assert len(row["properties"]) == len(pairs), "a name twice in one map"
    return rows
