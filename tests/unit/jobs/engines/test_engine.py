"""The rows of a local engine lie in files, which are gone as soon as nothing reads them any more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from rocketmq_reindex.jobs.engines.local import LocalEngine
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.staging import StagingFolder


class HerePool:
    """Runs tasks in this process."""

    cores = 2

    def run(self, tasks: Sequence[Callable[[], Any]], soon: bool = False) -> list[Any]:
        _ = soon
        return [task() for task in tasks]


def one_row(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        (number,) = batch.column(0).to_pylist()
        yield from handover.batches([handover.Row(handover.UNITS, 0, 0, number, b"row")])


def test_forget(tmp_path: Path) -> None:
    staging = StagingFolder(str(tmp_path))
    engine = LocalEngine(HerePool())  # type: ignore[arg-type]
    engine.buckets(1, staging)
    engine.scan(one_row, 3)
    assert engine.collect(handover.UNITS, []) == [b"row"] * 3
    assert len(list(Path(staging.rows).iterdir())) == 3
    engine.forget()
    assert list(Path(staging.rows).iterdir()) == []
    assert engine.collect(handover.UNITS, []) == []
