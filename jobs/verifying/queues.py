"""The queues' part of a verify: it lists them, in files or in RocksDB, and compares them with the units of the log."""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from rocketmq_reindex import files
from rocketmq_reindex.jobs.building.scanning import Scan
from rocketmq_reindex.jobs.engines.engine import DERIVED_BYTES, task_count
from rocketmq_reindex.jobs.store.folders import entries_in
from rocketmq_reindex.jobs.verifying.options import VerifySettings
from rocketmq_reindex.jobs.verifying.parts import LogOrder
from rocketmq_reindex.jobs.verifying.summary import QUEUES_LISTED, PartFindings
from rocketmq_reindex.jobs.verifying.work import ext_folder
from rocketmq_reindex.jobs.watching.progress import StageWork
from rocketmq_reindex.storage_format import layouts, versions
from rocketmq_reindex.storage_format.checks.differences import Tally
from rocketmq_reindex.storage_format.layouts import BATCH_QUEUES, EXT_QUEUES, QUEUES
from rocketmq_reindex.storage_format.scan.ranges import RangeSummary, Segment
from rocketmq_reindex.storage_format.showing import counted
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.staging import Positions, mean_of
from rocketmq_reindex.udfs.verify import queue_tasks, queues as verify_queues
from rocketmq_reindex.udfs.verify.database import BothKindsResult, CompareBothKinds, ListDatabase, QueuesInFiles


@dataclass
class QueueResult:
    """The results of all reducers together."""

    tally: Tally = field(default_factory=Tally)
    counts: dict[str, int] = field(default_factory=dict)
    queues: list[queue_tasks.QueueEntry] = field(default_factory=list)

    def take(self, results: list[queue_tasks.QueuesResult]) -> None:
        """Add the results of reducers."""
        for result in results:
            self.tally.merge(result.tally)
            for name, count in result.counts.items():
                self.counts[name] = self.counts.get(name, 0) + count
            self.queues += result.queues
            self.queues = heapq.nlargest(
                QUEUES_LISTED, self.queues, key=lambda q: (q.differences > 0, q.units, q.topic, q.queue)
            )

    def findings(self, settings: VerifySettings) -> PartFindings:
        """Return what the run takes over; ``settings`` say by which version."""
        counts, notes = self.counts.copy(), list[str]()
        figures: dict[str, Any] = {
            "units": counts.pop("units", 0),
            "units_there": counts.pop("there", 0),
            "queues": counts.pop("queues", 0),
            "idle_queues": counts.pop(queue_tasks.IDLE, 0),
            "queues_differing": counts.pop("differing", 0),
        }
        if empty := counts.pop(queue_tasks.EMPTY_ENDS, 0):
            notes.append(
                f"files without a unit at the end of queues: {empty}, as RocketMQ {settings.broker_version} leaves them: it "
                "starts on them, but may count one message too many in such a queue"
            )
        if stale := counts.pop("stale", 0):
            units = f"{counted(stale, 'unit')} at the ends of queues {'points' if stale == 1 else 'point'} behind the log's end"
            notes.append(f"{units}: a broker drops {'it' if stale == 1 else 'them'} when it starts")
        figures["orders"] = dict(sorted(counts.items()))
        figures["queue_list"] = [vars(queue) for queue in sorted(self.queues, key=lambda q: (q.topic, q.queue))]
        for order, text in (
            ("logical", "out of order, as --queue-order logical puts them"),
            ("broker", "out of order, as a broker's dispatcher puts them"),
            ("made anew", "made anew, and out of order since then, as a broker's dispatcher puts them"),
            ("skipped", "out of order, and not compared: a sample shows too little of them"),
            ("out of order", "out of order, and not compared: RocksDB has each unit at the queue offset that its record names"),
        ):
            if counts.get(order):
                notes.append(f"{counted(counts[order], 'queue')} {text}")
        return PartFindings(self.tally, notes, figures=figures)


@dataclass
class QueueComparison:
    """What is compared.

    ``segments`` are those of the whole log, ``unread`` the offsets (low, high) that a sample leaves out, and ``stale`` is as in
    ``QueueTask``.
    """

    scan: Scan
    settings: VerifySettings
    segments: tuple[Segment, ...]
    unread: tuple[tuple[int, int], ...]
    stale: tuple[int, int] | None = None
    order: LogOrder = field(default_factory=LogOrder)
    """where the units of queues out of order go"""

    def list_files(self) -> PartFindings:
        """Return what is wrong with the list of files. Their rows go to the tasks that get the units of their queues."""
        settings, findings = self.settings, PartFindings(figures={"files": Counter(), "sizes": Counter()})
        if settings.database:
            self._list_database(settings.database, findings)
            return findings
        self._list(QUEUES, settings.cq_file_size, False, findings)
        if settings.database_beside:
            alone = self._list_database(settings.database_beside, findings, files.join(settings.store, QUEUES))
            if not self.unread:
                self._compare_both(alone, findings)
        if settings.batch_topics and not self.unread:
            self._list(BATCH_QUEUES, settings.batch_cq_file_size, True, findings)
        if ext_folder(settings.store):
            self._list(EXT_QUEUES, settings.cq_ext_file_size, False, findings, rows=False)
        return findings

    def _list_database(self, folder: str, findings: PartFindings, beside: str = "") -> int:
        """List the queues in RocksDB, of those that have files in ``beside`` none; return how many there are."""
        scan, settings, count = self.scan, self.settings, 0
        lister = ListDatabase(folder, scan.task.keys, settings.batch_topics, beside)
        for listed in queue_tasks.ListingResult.read(scan.engine.scan(lister, 1)):
            findings.tally.merge(listed.tally)
            count += listed.queues
        if not beside:
            findings.figures["database_queues"] = count
        if settings.batch_topics:
            findings.notes.append("queues of batch topics in RocksDB are not compared")
        return count

    def _compare_both(self, alone: int, findings: PartFindings) -> None:
        """Compare the queues in files with those in RocksDB, and add what differs to ``findings``.

        ``alone`` queues of RocksDB have no files.
        """
        scan, settings = self.scan, self.settings
        folder = files.join(settings.store, QUEUES)
        names = QueuesInFiles(folder).topics
        plan = handover.write_plan(scan.staging, "topics-both-kinds", names)
        tasks = max(1, min(len(names), 2 * scan.engine.cores))
        compare = CompareBothKinds(
            folder, settings.database_beside, plan, tasks, settings.cq_file_size, tuple(self.segments),
            settings.beside.lite,
        )  # fmt: skip
        counts: Counter[str] = Counter()
        lacks_until, has_from = -1, layouts.INT64_MAX
        for result in BothKindsResult.read(scan.engine.numbers(compare, tasks)):
            findings.tally.merge(result.tally)
            counts.update(compared=result.compared, files=result.files_alone)
            lacks_until, has_from = max(lacks_until, result.lacks_until), min(has_from, result.has_from)
        text = f"RocksDB: {counted(counts['compared'], 'queue')} compared with the files"
        begun = "in files alone: a broker with rocksdbCQDoubleWriteEnable puts units of the newest segments there as it starts"
        as_set = begun if settings.beside.new else "in files alone, as rocksdbCQSelectiveDoubleWriteEnable has them"
        text += f"; {counted(counts['files'], 'queue')} {as_set}" if counts["files"] else ""
        text += f"; {counted(alone, 'queue')} in RocksDB alone, compared with the log" if alone else ""
        findings.notes.append(text)
        if 0 <= lacks_until < has_from < layouts.INT64_MAX:
            findings.notes.append(
                f"RocksDB has all units of records from phy_offset {has_from} on, and none before, as a broker leaves it that "
                "started on files with rocksdbCQDoubleWriteEnable: with combineCQPreferCQType=default it reads the files, and "
                "nothing is lost; with defaultRocksDB consumers would miss what is before"
            )

    def _list(self, kind: str, file_size: int, batch: bool, findings: PartFindings, *, rows: bool = True) -> None:
        scan, settings = self.scan, self.settings
        folder = files.join(settings.store, kind)
        names = [entry.name for entry in entries_in(folder)]
        if kind == QUEUES and settings.database_beside:
            own = {*layouts.rocksdb_files(names), "LOCK", "LOG"}
            names = [name for name in names if name not in own]
        plan = handover.write_plan(scan.staging, f"topics-{kind}", names)
        size = sum(segment.data_end - segment.start for segment in self.segments)
        tasks = max(1, task_count(len(names), size, scan.engine.cores, DERIVED_BYTES))
        lister = queue_tasks.ListQueues(
            folder, plan, tasks, file_size, scan.task.keys, batch, settings.trimmed, not settings.rules.drops_empty_files, rows
        )
        others, passed_over = list[str](), 0
        for listed in queue_tasks.ListingResult.read(scan.engine.scan(lister, tasks)):
            findings.tally.merge(listed.tally)
            findings.figures["files"]["consumequeue"] += listed.files
            findings.figures["sizes"]["consumequeue"] += listed.bytes
            others += listed.others
            passed_over += listed.passed_over
        if others:
            others_counted = f", and {passed_over - 1:,} more" if passed_over > 1 else ""
            findings.notes.append(f"{kind}/ also holds what a broker passes over: {min(others)}{others_counted}")

    def _task(self, kind: str, file_size: int, rules: versions.VersionRules) -> queue_tasks.QueueTask:
        settings = self.settings
        log = (self.segments[0].start, self.segments[-1].segment_end) if self.segments else (0, 0)
        folder = files.join(settings.store, kind)
        return queue_tasks.QueueTask(
            folder, file_size, self.segments, log, self.unread, rules.opens_empty_queue_file, self.stale,
            ext_folder(settings.store) if kind == QUEUES else "",
            settings.database or (settings.database_beside if settings.beside.alone else ""),
            settings.beside if settings.database_beside else None,
            self.scan.task.filters if kind == QUEUES else None,
        )  # fmt: skip

    def units(self, accepted: list[RangeSummary]) -> StageWork:
        """Return the units of the log that are compared, and a probe of how many are."""
        total, mean, positions = _units(accepted), self._mean(accepted), Positions(self.scan.staging)

        def probe() -> tuple[int, float]:
            shares = positions.shares().items()
            done = mean * sum(share for name, share in shares if name.startswith(("queues-", "batches-")))
            return int(done), done / total if total else 0

        return StageWork("units", total, 0, probe)

    def _mean(self, accepted: list[RangeSummary]) -> int:
        return mean_of(_units(accepted), len(self.scan.task.keys))

    def compare(self, accepted: list[RangeSummary], rules: versions.VersionRules) -> QueueResult:
        """Return how the queues of the log and of the store differ; ``rules`` are the broker's."""
        scan, settings, result = self.scan, self.settings, QueueResult()
        left_out, place = scan.left_out(accepted), (scan.staging, self._mean(accepted))
        verify = verify_queues.VerifyQueues(*place, self._task(QUEUES, settings.cq_file_size, rules), self.order.placements)
        result.take(queue_tasks.QueuesResult.read(scan.engine.reduce(handover.UNITS, left_out, None, verify)))
        if settings.batch_topics and not self.unread and not settings.database:
            batches = verify_queues.VerifyBatches(
                *place, self._task(BATCH_QUEUES, settings.batch_cq_file_size, rules), self.order.batches
            )
            result.take(queue_tasks.QueuesResult.read(scan.engine.reduce(handover.BATCHES, left_out, None, batches)))
        return result


def _units(accepted: list[RangeSummary]) -> int:
    return sum(summary.units + summary.batch_units for summary in accepted)
