"""The queues' part of a verify: list their files, then compare them with the units of the log."""

from __future__ import annotations

import heapq
import json
from dataclasses import dataclass, field
from typing import Any

from rocketmq_reindex.jobs.building.odd_queues import OddQueues
from rocketmq_reindex.jobs.building.scanning import Scan
from rocketmq_reindex.jobs.building.settings import BuildSettings
from rocketmq_reindex.jobs.store.folders import entries_of
from rocketmq_reindex.jobs.verifying.settings import VerifySettings
from rocketmq_reindex.jobs.verifying.summary import QUEUES_TOLD, VerifySummary
from rocketmq_reindex.storage_format.checks.differences import Tally
from rocketmq_reindex.storage_format.plurals import counted
from rocketmq_reindex.storage_format.queue.order import RolledBack
from rocketmq_reindex.storage_format.scan.range_summary import RangeSummary
from rocketmq_reindex.storage_format.scan.ranges import Segment
from rocketmq_reindex.udfs import files, schemas
from rocketmq_reindex.udfs.order.judge import Judge
from rocketmq_reindex.udfs.order.placements import PlanWriter
from rocketmq_reindex.udfs.verify.batches import VerifyBatches
from rocketmq_reindex.udfs.verify.listing import ListQueues
from rocketmq_reindex.udfs.verify.queues import EMPTY_ENDS, FOLDER, IDLE, QueueTask, VerifyQueues
from rocketmq_reindex.udfs.write.batches import FOLDER as BATCH_FOLDER

TASKS_PER_CORE = 2


@dataclass
class QueueResult:
    """What the reducers say, put together."""

    tally: Tally = field(default_factory=Tally)
    counts: dict[str, int] = field(default_factory=dict)
    queues: list[dict[str, Any]] = field(default_factory=list)

    def take(self, words: list[str]) -> None:
        for word in words:
            found = json.loads(word)
            self.tally.merge(Tally.from_json(found["tally"]))
            for name, count in found["counts"].items():
                self.counts[name] = self.counts.get(name, 0) + count
            self.queues += found["queues"]
            self.queues = heapq.nlargest(
                QUEUES_TOLD, self.queues, key=lambda q: (q["differences"] > 0, q["units"], q["topic"], q["queue"])
            )

    def tell(self, tally: Tally, summary: VerifySummary) -> None:
        tally.merge(self.tally)
        summary.units += self.counts.pop("units", 0)
        summary.units_there += self.counts.pop("there", 0)
        summary.queues += self.counts.pop("queues", 0)
        summary.idle_queues += self.counts.pop(IDLE, 0)
        if empty := self.counts.pop(EMPTY_ENDS, 0):
            summary.notes.append(
                f"files without a unit at the end of queues: {empty}, as RocketMQ 4.9 itself leaves them: it starts on them, "
                "but may count one message too many in such a queue"
            )
        summary.queues_differing += self.counts.pop("differing", 0)
        if stale := self.counts.pop("stale", 0):
            told = f"{counted(stale, 'unit')} at the ends of queues {'points' if stale == 1 else 'point'} behind the log's end"
            summary.notes.append(f"{told}: a broker drops {'it' if stale == 1 else 'them'} when it starts")
        summary.orders = dict(sorted(self.counts.items()))
        summary.queue_list = sorted(self.queues, key=lambda q: (q["topic"], q["queue"]))
        for order, text in (
            ("logical", "out of order, as --queue-order logical puts them"),
            ("broker", "out of order, as a broker's dispatcher puts them"),
            ("made anew", "made anew, and out of order since then, as a broker's dispatcher puts them"),
            ("skipped", "out of order: a sample cannot judge them"),
        ):
            if self.counts.get(order):
                summary.notes.append(f"{counted(self.counts[order], 'queue')} {text}")


@dataclass
class Queues:
    """``segments`` of the whole log; ``unread`` what a sample leaves out; ``stale`` and ``rolled_back`` as in ``QueueTask``."""

    scan: Scan
    settings: VerifySettings
    segments: tuple[Segment, ...]
    unread: tuple[tuple[int, int], ...]
    stale: tuple[int, int] | None = None
    rolled_back: RolledBack | None = None

    def list_files(self, summary: VerifySummary) -> Tally:
        """Rows of all files go where the units of their queues will go."""
        build, tally = self.settings.build, Tally()
        self._list(FOLDER, build.cq_file_size, False, tally, summary)
        if build.batch_topics and not self.unread:
            self._list(BATCH_FOLDER, build.batch_cq_file_size, True, tally, summary)
        return tally

    def _list(self, kind: str, file_size: int, batch: bool, tally: Tally, summary: VerifySummary) -> None:
        scan, build = self.scan, self.settings.build
        folder = files.join(build.store, kind)
        names = [entry.name for entry in entries_of(folder)]
        plan = files.join(scan.stage.plans, f"topics-{kind}")
        files.write_bytes(scan.stage.temporary, plan, [json.dumps(names).encode()])
        tasks = max(1, min(len(names), TASKS_PER_CORE * scan.engine.cores))
        lister = ListQueues(folder, plan, tasks, file_size, scan.task.keys, batch, self.settings.trimmed, _is_old(build))
        others, passed_over = list[str](), 0
        for data in scan.engine.scan(lister, tasks):
            found = json.loads(data)
            tally.merge(Tally.from_json(found["tally"]))
            summary.files["consumequeue"] += found["files"]
            summary.sizes["consumequeue"] += found["bytes"]
            others += found["others"]
            passed_over += found["passed_over"]
        if others:
            more = f", and {passed_over - 1:,} more" if passed_over > 1 else ""
            summary.notes.append(f"{kind}/ also holds what a broker passes over: {min(others)}{more}")

    def _task(self, kind: str, file_size: int, holes: tuple[int, ...]) -> QueueTask:
        build = self.settings.build
        log = (self.segments[0].start, self.segments[-1].segment_end) if self.segments else (0, 0)
        folder = files.join(build.store, kind)
        known = self.rolled_back, self.stale
        return QueueTask(folder, file_size, self.segments, log, holes, self.unread, build.max_fill, _is_old(build), *known)

    def compare(self, accepted: list[RangeSummary], holes: tuple[int, ...]) -> QueueResult:
        """Compare every queue of the log and of the store; ``holes`` are offsets of damage."""
        scan, build, result = self.scan, self.settings.build, QueueResult()
        left_out = scan.left_out(accepted)
        task = self._task(FOLDER, build.cq_file_size, holes)
        result.take(scan.engine.reduce(schemas.UNITS, left_out, None, VerifyQueues(task)))
        if build.batch_topics and not self.unread:
            judge = Judge(scan.stage, "logical", 1, holes, batch=True, rolled_back=self.rolled_back)
            odd = OddQueues(scan.stage, scan.engine.reduce(schemas.BATCH_RUNS, left_out, None, judge))
            plan = PlanWriter(scan.stage.temporary, files.join(scan.stage.plans, "batch-placements"))
            for word in odd.words():
                # A queue that would take more fills than a build makes is not compared with them.
                if word["filled"] <= build.max_fill:
                    plan.put(word["topic"], word["queue"], word["where"])
            path = plan.finish()
            task = self._task(BATCH_FOLDER, build.batch_cq_file_size, holes)
            result.take(scan.engine.reduce(schemas.BATCHES, left_out, None, VerifyBatches(task, path)))
        return result


def _is_old(build: BuildSettings) -> bool:
    return build.broker_version == "4.9"
