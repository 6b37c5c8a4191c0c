"""Plans: lists of work in a staged file, of which each task takes its share.

Spark gives a task nothing but its number; a plan may be too long to be sent with every task.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.staging import StagingFolder

T = TypeVar("T")


def write_plan(staging: StagingFolder, name: str, content: object) -> str:
    """Write ``content`` as JSON into the staging folder; returns the file's path.

    A dataclass is written as the list of its fields, so ``Class(*fields)`` reads it.
    """
    path = files.join(staging.plans, name)
    files.write_bytes(staging.temporary, path, [json.dumps(content, default=_fields).encode()])
    return path


def _fields(value: Any) -> list[Any]:
    return list(vars(value).values())


def read_plan(path: str) -> Any:
    """The content of a plan that ``write_plan`` wrote."""
    return json.loads(files.read_bytes(path))


def numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    """The numbers in the first column: those of the tasks, or of the items, that this task is given."""
    for batch in batches:
        yield from batch.column(0).to_pylist()


def share_of(count: int, task: int, tasks: int) -> tuple[int, int]:
    """The share [low, high) of task ``task`` in ``count`` things, which ``tasks`` tasks divide into equal stretches."""
    return task * count // tasks, (task + 1) * count // tasks


def share(items: Sequence[T], task: int, tasks: int) -> Sequence[T]:
    """The items of one task's share."""
    low, high = share_of(len(items), task, tasks)
    return items[low:high]
