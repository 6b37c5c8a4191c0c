"""The data between driver and tasks: rows through the shuffle, JSON results, and plans in staged files; and work that a
Python worker of Spark does once, not for each task.
"""

import gc
import json
import os
import zipimport
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from rocketmq_reindex import files
from rocketmq_reindex.storage_format.checks.differences import Tally
from rocketmq_reindex.udfs.staging import StagingFolder

Batches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""A function over the Arrow batches of one task, as ``mapInArrow`` takes it."""


def run(function: Batches, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run ``function`` over the batches of a task. Return the batches that it makes."""
    settle()
    return function(iter(batches))


def settle() -> None:
    """Spare this process, and its forks, what Spark's worker and daemon repeat for each task. A second call does nothing."""
    if _keep_zip_directories():
        gc.collect()
        # The daemon's worker collects garbage after each task, among all that was ever imported: 0.1 s.
        gc.freeze()


def _keep_zip_directories() -> bool:
    """Make importers read the directory of a zip again only when the zip has changed.

    Before each task Spark's worker (``setup_spark_files``) invalidates the caches of all importers. There are about 16 for
    pyspark.zip, py4j's zip and Spark's own jar, and each would read a whole directory in Python: 0.25 s for each task.
    Returns False where that was done before.
    """
    forget = zipimport.zipimporter.invalidate_caches
    if getattr(forget, "keeps_directories", False):
        return False

    def invalidate_caches(self: Any) -> None:
        state = _state_of(self.archive)
        if state is None or getattr(self, "state_of_archive", None) != state:
            forget(self)
            self.state_of_archive = state

    invalidate_caches.keeps_directories = True  # type: ignore[attr-defined]
    zipimport.zipimporter.invalidate_caches = invalidate_caches  # type: ignore[method-assign]
    return True


def _state_of(archive: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(archive)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


# ---------------------------------------------------------------------------------------------------------------------- schemas
# The rows that pass between tasks through Spark's shuffle: few, packed, never one for each message.

SUMMARY, UNITS, RUNS, TOPICS, BATCHES, BATCH_RUNS, DELAYED, EXTENDED = range(8)
"""The kinds of rows. A SUMMARY goes to the driver; all others are shuffled (``storage_format.queue.cells`` packs data)."""


class Row(NamedTuple):
    """One row of ``ROWS``; the fields have the names and the order of its columns.

    ``kind`` is one of the kinds above, ``bucket`` says which task takes the row, ``key`` is a number that Spark's hash sends to
    that task's partition, ``range_number`` is the range of the log that the row comes from (-1: none), and ``data`` is a cell
    or, in a SUMMARY, JSON. The rows of a bucket arrive in ascending order of ``sort_key``.
    """

    kind: int
    bucket: int
    key: int
    range_number: int
    data: bytes
    sort_key: int = 0


class Cell(NamedTuple):
    """What a reducing task needs of a row."""

    bucket: int
    sort_key: int
    data: bytes


ROWS: Final = pa.schema(
    [
        ("kind", pa.int32()),
        ("bucket", pa.int32()),
        ("key", pa.int32()),
        ("range_number", pa.int32()),
        ("data", pa.binary()),
        ("sort_key", pa.int64()),
    ]
)
ROWS_DDL: Final = "kind int, bucket int, key int, range_number int, data binary, sort_key bigint"

RESULT: Final = pa.schema([("data", pa.string())])
RESULT_DDL: Final = "data string"
"""What a task hands to the driver, if not in a SUMMARY row (``udfs.handover``)."""
_BATCH_BYTES: Final = 4 << 20


def summary(range_number: int, data: bytes) -> Row:
    """Return a row for the driver: ``data`` is JSON about the range ``range_number`` (-1: about no range)."""
    return Row(SUMMARY, 0, 0, range_number, data)


def batches(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    """Yield rows as record batches of ``ROWS``; a batch ends once its cells have 4 MiB."""
    held: list[Row] = []
    size = 0
    for row in rows:
        held.append(row)
        size += len(row.data)
        if size >= _BATCH_BYTES:
            yield _batch(held)
            held, size = [], 0
    if held:
        yield _batch(held)


def _batch(rows: list[Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [array_of(field.type, column) for column, field in zip(columns, ROWS, strict=True)], schema=ROWS
    )


def array_of(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    """Return numbers, or bytes, as an array of the type ``kind``; bytes in UTF-8 may become strings.

    ``pa.array`` imports pandas, to ask whether the values are its own.
    """
    if pa.types.is_integer(kind):
        buffers: list[Any] = [np.array(values, kind.to_pandas_dtype())]
    else:
        offsets = np.zeros(len(values) + 1, np.int32)
        np.cumsum([len(value) for value in values], out=offsets[1:])
        buffers = [offsets, b"".join(values)]
    return pa.Array.from_buffers(kind, len(values), [None, *map(pa.py_buffer, buffers)])


def rows_of(batch: pa.RecordBatch) -> Iterator[Row]:
    """Return the rows of one batch of ``ROWS``; the inverse of ``batches``."""
    return map(Row._make, zip(*(column.to_pylist() for column in batch.columns), strict=True))


def by_bucket(batches: Iterable[pa.RecordBatch]) -> Iterator[Iterator[Cell]]:
    """Return the cells of one bucket after another, in the order of the rows. At most one batch is held in memory."""
    return (cells for _, cells in groupby(_cells(batches), key=attrgetter("bucket")))


def _cells(batches: Iterable[pa.RecordBatch]) -> Iterator[Cell]:
    for batch in batches:
        columns = (batch.column(batch.schema.get_field_index(name)).to_pylist() for name in Cell._fields)
        yield from map(Cell._make, zip(*columns, strict=True))


# ---------------------------------------------------------------------------------------------------------------------- results
# What a task hands to the driver: one JSON object for each result, written and read by the same dataclass.

R = TypeVar("R", bound="TaskResult")


class TaskResult:
    """Base of the dataclasses of results. A field ``tally`` is a ``Tally``; all others hold plain JSON values."""

    def to_json(self) -> str:
        """Return the fields as one JSON object, in the order of the class."""
        return json.dumps(vars(self), default=_plain)

    @classmethod
    def from_json(cls: type[R], text: str | bytes) -> R:
        """Return the inverse of ``to_json``."""
        fields = json.loads(text)
        if "tally" in fields:
            fields["tally"] = Tally.from_json(fields["tally"])
        return cls.of_fields(fields)

    @classmethod
    def of_fields(cls: type[R], fields: dict[str, Any]) -> R:
        """Return the result with these fields, as JSON holds them. A class with dataclasses in its fields overrides this."""
        return cls(**fields)

    @classmethod
    def read(cls: type[R], texts: Iterable[str | bytes]) -> list[R]:
        """Return the results of all tasks, from what the engine returned."""
        return [cls.from_json(text) for text in texts]


def _plain(value: Any) -> Any:
    return value.to_json() if isinstance(value, Tally) else vars(value)


def batch(results: Iterable[TaskResult]) -> pa.RecordBatch:
    """Return results as one record batch of ``handover.RESULT``."""
    return texts_batch(result.to_json() for result in results)


def texts_batch(texts: Iterable[str]) -> pa.RecordBatch:
    """Return plain texts, such as paths, as one record batch of ``handover.RESULT``."""
    return pa.RecordBatch.from_arrays([array_of(pa.string(), [text.encode() for text in texts])], schema=RESULT)


# ------------------------------------------------------------------------------------------------------------------------ plans
# Plans: lists of work in a staged file, of which each task takes its share.
#
# Spark gives a task nothing but its number; a plan may be too long to be sent with every task.

T = TypeVar("T")


def write_plan(staging: StagingFolder, name: str, content: object) -> str:
    """Write ``content`` as JSON into the staging folder. Return the file's path.

    A dataclass is written as the list of its fields, so ``Class(*fields)`` reads it.
    """
    path = files.join(staging.plans, name)
    files.write_bytes(staging.temporary, path, [json.dumps(content, default=_fields).encode()])
    return path


def _fields(value: Any) -> list[Any]:
    return list(vars(value).values())


def read_plan(path: str) -> Any:
    """Return the content of a plan that ``write_plan`` wrote."""
    return json.loads(files.read_bytes(path))


def numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    """Yield the numbers in the first column: those of the tasks, or of the items, that this task is given."""
    for batch in batches:
        yield from batch.column(0).to_pylist()


def share_of(count: int, task: int, tasks: int) -> tuple[int, int]:
    """Return the share [low, high) of task ``task`` in ``count`` things, which ``tasks`` tasks divide into equal stretches."""
    return task * count // tasks, (task + 1) * count // tasks


def share(items: Sequence[T], task: int, tasks: int) -> Sequence[T]:
    """Return the items of one task's share."""
    low, high = share_of(len(items), task, tasks)
    return items[low:high]
