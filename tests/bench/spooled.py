"""A whole build in one process whose rows lie on disk, as Spark keeps them: what it takes is what driver and workers take.

    python -m tests.bench.spooled STORE OUT BUCKET_BYTES '{"hash_slots": 500}'

Builds a small log first, so that everything is loaded and compiled, prints "ready" and waits for a line; then builds STORE and
prints the summary.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from rocketmq_reindex.jobs.engines import engine
from rocketmq_reindex.jobs.engines.engine import plan_shuffle
from rocketmq_reindex.jobs.spark.engine import bucket_keys
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.handover import Batches
from rocketmq_reindex.udfs.staging import StagingFolder
from tests.tools.local_engine import local_build
from tests.tools.make_log import random_log

ROWS = 16
"""in a batch: spark.sql.execution.arrow.maxRecordsPerBatch"""


@dataclass
class Spool:
    """Rows in an Arrow file, and where those of each kind and key are."""

    path: Path
    index: list[tuple[int, int, int, int, int, int, int]] = field(default_factory=list)
    """kind, key, range, bucket, sort key, batch, row"""

    def write(self, batches: Iterable[pa.RecordBatch]) -> list[bytes]:
        """Keep all rows but summaries, whose data is returned."""
        found = []
        with pa.OSFile(str(self.path), "wb") as sink, pa.ipc.new_file(sink, handover.ROWS) as writer:
            for number, batch in enumerate(batches):
                columns = (batch.column(name).to_pylist() for name in ("kind", "key", "range_number", "bucket", "sort_key"))
                for row, (kind, key, range_number, bucket, sort_key) in enumerate(zip(*columns, strict=True)):
                    if kind == handover.SUMMARY:
                        found.append(batch.column(4)[row].as_py())
                    else:
                        self.index.append((kind, key, range_number, bucket, sort_key, number, row))
                writer.write_batch(batch)
        return found

    def read(self, kind: int, left_out: set[int], key: int | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of a kind, but for some ranges, of one key or all, in the order of bucket and place."""
        wanted = sorted(
            entry[3:] for entry in self.index if entry[0] == kind and entry[2] not in left_out and key in (None, entry[1])
        )
        with pa.memory_map(str(self.path)) as source, pa.ipc.open_file(source) as reader:
            for low in range(0, len(wanted), ROWS):
                some = [reader.get_batch(number).slice(row, 1) for _, _, number, row in wanted[low : low + ROWS]]
                yield pa.Table.from_batches(some).combine_chunks().to_batches()[0]


class SpoolEngine:
    """Mirrors SparkEngine on two cores, one task after another."""

    def __init__(self, folder: Path) -> None:
        self.cores = 2
        self._folder = folder
        self._spools: list[Spool] = []
        self._partitions = 1

    @property
    def is_here(self) -> bool:
        return True

    def buckets(self, wanted: int, staging: StagingFolder) -> tuple[int, ...]:
        _ = staging
        self._partitions, count = plan_shuffle(max(self.cores, wanted), self.cores, 0)
        return bucket_keys(count, self._partitions)

    def _spool(self) -> Spool:
        self._spools.append(Spool(self._folder / f"{len(self._spools)}.arrow"))
        return self._spools[-1]

    @staticmethod
    def _number(number: int) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_arrays([pa.array([number], pa.int64())], ["id"])

    def scan(self, function: Batches, tasks: int) -> list[bytes]:
        assert not self._spools, "an orderly log is scanned in one round"
        return self._spool().write(batch for number in range(tasks) for batch in function(self._number(number)))

    def collect(self, kind: int, left_out: list[int]) -> list[bytes]:
        found = self._spools[0].read(kind, set(left_out))
        return [data for batch in found for data in batch.column(4).to_pylist()]

    def reduce(self, kind: int, left_out: list[int], before: Batches | None, reducer: Batches) -> list[str]:
        spool, without = self._spools[0], set(left_out)
        if before is not None:
            whole, spool = spool, self._spool()
            spool.write(before(whole.read(kind, without)))
        keys = sorted({key for found, key, *_ in spool.index if found == kind})
        words: list[str] = []
        for key in keys:
            for batch in reducer(spool.read(kind, without, key)):
                words += batch.column(0).to_pylist()
        return words

    def numbers(self, function: Batches, count: int) -> list[str]:
        return [word for k in range(count) for batch in function(self._number(k)) for word in batch.column(0).to_pylist()]

    def each_number(self, function: Batches, count: int) -> Iterator[str]:
        yield from self.numbers(function, count)

    def forget(self) -> None:
        self._spools = []

    def give_up(self) -> None:
        """Nothing goes on in other threads that would not end by itself."""


def main() -> int:
    store, out, bucket_bytes, settings = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])
    with tempfile.TemporaryDirectory(dir=out.parent) as name:
        folder = Path(name)
        random_log(folder / "store" / "commitlog", 1)
        local_build(folder / "store", folder / "out", SpoolEngine(folder), hash_slots=500, index_items=600)
        print("ready", flush=True)
        sys.stdin.readline()
        engine.BUCKET_BYTES = bucket_bytes
        print(local_build(store, out, SpoolEngine(folder), **settings).to_json())
    return 0


if __name__ == "__main__":
    sys.exit(main())
