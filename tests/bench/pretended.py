"""An engine that reads and writes no message: it answers the driver as the executors of a huge log would.

What executors leave on the stage (summaries, blocks, parts of the manifest, IndexFiles) is made in a process of its own, so
that neither its time nor its memory is the driver's.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from rocketmq_reindex import files
from rocketmq_reindex.jobs.engines.engine import plan_shuffle
from rocketmq_reindex.jobs.spark.engine import bucket_keys
from rocketmq_reindex.storage_format.digest import CHUNK
from rocketmq_reindex.storage_format.index.file import STAGED
from rocketmq_reindex.storage_format.layouts import QUEUES
from rocketmq_reindex.storage_format.queue.order import OrderDecision
from rocketmq_reindex.storage_format.scan.ranges import RangeSpec, RangeSummary
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.handover import Batches
from rocketmq_reindex.udfs.placements import PlacementSpan
from rocketmq_reindex.udfs.queue_order import DecideOrder, OddQueue, OrderResult
from rocketmq_reindex.udfs.scan.ranges import ScanTask
from rocketmq_reindex.udfs.staging import StagingFolder
from rocketmq_reindex.udfs.write.index import IndexFileResult, WriteIndex
from rocketmq_reindex.udfs.write.queues import FilesResult, WriteQueues, entry_line, queue_path
from tests.tools.encode import EPOCH

RECORD = 1_042
"""Bytes of a record: about 1 KiB, as most logs have."""
ITEMS = 1
"""Index items of each."""
QUEUES_A_TOPIC = 16
DIGEST = "0123456789abcdef" * 2


@dataclass(frozen=True)
class Shape:
    """A log of ``segments`` of ``segment_bytes``, whose messages lie in ``queues`` queues; ``odd`` of them lost messages."""

    segments: int
    queues: int
    odd: int = 0
    segment_bytes: int = 1 << 30

    def make(self, folder: Path) -> None:
        """Sparse files: they take no room, and nobody reads them."""
        folder.mkdir(parents=True)
        for number in range(self.segments):
            with (folder / f"{number * self.segment_bytes:020d}").open("wb") as segment:
                segment.truncate(self.segment_bytes)


def summary_of(spec: RangeSpec, block: str) -> RangeSummary:
    """What a scan of a range full of good records would say."""
    records = (spec.high - spec.low) // RECORD
    last = spec.low + (records - 1) * RECORD
    time = EPOCH + spec.number * 1_000_000
    return RangeSummary(
        spec.number, spec.low, spec.high, spec.known, first=spec.low, end=spec.high, last_good=last, records=records,
        unit_records=records, units=records, runs=200_000, items=records * ITEMS, queues=100_000, first_dispatched=spec.low,
        last_dispatched=last, last_time=time + records, last_unit_time=time + records, time_min=time, time_max=time + records,
        first_item_maker=spec.low, digests={str(at): DIGEST for at in range(spec.low, spec.high, CHUNK)}, block=block,
    )  # fmt: skip


def apart(work: Callable[[], None]) -> None:
    """Run ``work`` in a process of its own."""
    child = os.fork()
    if not child:
        code = 1
        try:
            work()
            code = 0
        except BaseException:  # noqa: BLE001  a child must end here, and say why
            traceback.print_exc()
        finally:
            os._exit(code)
    if os.waitpid(child, 0)[1]:
        raise RuntimeError("what stands for the executors failed")


@dataclass
class PretendedEngine:
    """``elsewhere`` is entered for whatever is not the driver's own work."""

    shape: Shape
    elsewhere: Callable[[], AbstractContextManager[None]]
    cores: int = 64
    partitions: int = field(default=1, init=False)

    @property
    def is_here(self) -> bool:
        return True

    def buckets(self, wanted: int, staging: StagingFolder) -> tuple[int, ...]:
        _ = staging
        self.partitions, count = plan_shuffle(max(self.cores, wanted), self.cores, 0)
        return bucket_keys(count, self.partitions)

    def scan(self, function: Batches, tasks: int) -> list[bytes]:
        assert isinstance(function, ScanTask)
        assert tasks > 0
        with self.elsewhere():
            specs = [RangeSpec(*fields) for fields in handover.read_plan(function.plan)]

            def work() -> None:
                for spec in specs:
                    block = files.join(function.staging.blocks, f"{spec.number}")
                    summary = summary_of(spec, block)
                    with open(block, "wb") as made:
                        made.truncate(summary.items * STAGED.itemsize)
                    Path(function.staging.ranges, f"{spec.number}").write_text(summary.to_json(), encoding="ascii")

            apart(work)
            return [files.read_bytes(files.join(function.staging.ranges, f"{spec.number}")) for spec in specs]

    def collect(self, kind: int, left_out: list[int]) -> list[bytes]:
        raise AssertionError(f"rows of kind {kind}, but for {len(left_out)} ranges: those of a huge log are not for the driver")

    def reduce(self, kind: int, left_out: list[int], before: Batches | None, reducer: Batches) -> list[str]:
        assert not left_out
        assert before is None or kind == handover.UNITS
        if isinstance(reducer, DecideOrder):
            assert kind == handover.RUNS
            return self._decided(reducer)
        assert isinstance(reducer, WriteQueues)
        assert kind == handover.UNITS
        return self._written(reducer)

    def _queues(self, partition: int, count: int) -> Iterable[tuple[str, int]]:
        """The queues of a partition, in order: those below ``count``."""
        for number in range(partition, count, self.partitions):
            yield f"topic-{number // QUEUES_A_TOPIC:06d}", number % QUEUES_A_TOPIC

    def _decided(self, decide: DecideOrder) -> list[str]:
        with self.elsewhere():
            folder, parts = decide.staging.plans, min(self.partitions, self.shape.odd)

            def work() -> None:
                for partition in range(parts):
                    where = PlacementSpan(files.join(folder, f"placements-{partition}"), 0, 2, 1)
                    lines = (
                        OddQueue(name, k, decisions=[OrderDecision("fill", 1_000, 1)], filled=1, where=where).to_json()
                        for name, k in sorted(self._queues(partition, self.shape.odd))
                    )
                    Path(folder, f"odd-{partition}").write_text("".join(f"{line}\n" for line in lines), encoding="ascii")

            apart(work)
            odd = [OrderResult(files.join(folder, f"odd-{partition}")).to_json() for partition in range(parts)]
            return [*odd, *[OrderResult().to_json()] * self.partitions]

    def _written(self, writer: WriteQueues) -> list[str]:
        with self.elsewhere():
            units = self.shape.segments * (self.shape.segment_bytes // RECORD)
            each = -(-units // self.shape.queues)
            files_each = -(-each * 20 // writer.file_size)
            folder = writer.staging.parts

            def work() -> None:
                for partition in range(self.partitions):
                    lines = []
                    for name, queue_id in self._queues(partition, self.shape.queues):
                        for number in range(files_each):
                            used = min(writer.file_size, (each * 20 - number * writer.file_size))
                            path = queue_path(QUEUES, name, queue_id, number * writer.file_size)
                            lines.append(entry_line(path, writer.file_size, used, DIGEST, used // 20))
                    text = "".join(f"{line}\n" for _, line in sorted(lines))
                    Path(folder, f"{QUEUES}-{partition}").write_text(text, encoding="ascii")

            apart(work)
            found = []
            for partition in range(self.partitions):
                count = len(range(partition, self.shape.queues, self.partitions)) * files_each
                part = files.join(folder, f"{QUEUES}-{partition}")
                found.append(FilesResult(part, count, count).to_json())
            return found

    def numbers(self, function: Batches, count: int) -> list[str]:
        assert isinstance(function, WriteIndex)
        with self.elsewhere():
            found = []
            for number in range(count):
                made = files.join(function.staging.made, f"{number}")
                Path(made).touch()
                header = {"begin_time": EPOCH, "end_time": EPOCH, "begin_place": 0, "end_place": 0, "slot_count": 1}
                size = 420_000_040
                made_file = IndexFileResult(number, made, number << 34, 1, True, header, size, size, DIGEST, 1)
                found.append(made_file.to_json())
            return found

    def each_number(self, function: Batches, count: int) -> Iterator[str]:
        yield from self.numbers(function, count)

    def forget(self) -> None:
        pass

    def give_up(self) -> None:
        """Nothing goes on in other threads that would not end by itself."""
