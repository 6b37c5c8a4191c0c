"""The queues' part of a verify: their order, decided as a build does, their files, and the units of the log."""

import heapq
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from rocketmq_reindex import files
from rocketmq_reindex.jobs.building.decisions import Decisions
from rocketmq_reindex.jobs.building.scanning import Scan
from rocketmq_reindex.jobs.engines.engine import DERIVED_BYTES, task_count
from rocketmq_reindex.jobs.store.folders import entries_in
from rocketmq_reindex.jobs.verifying.options import VerifySettings
from rocketmq_reindex.jobs.verifying.summary import QUEUES_LISTED, PartFindings
from rocketmq_reindex.jobs.watching.progress import Work
from rocketmq_reindex.storage_format import errors, versions
from rocketmq_reindex.storage_format.checks.differences import Tally
from rocketmq_reindex.storage_format.layouts import BATCH_QUEUES, QUEUES
from rocketmq_reindex.storage_format.scan.chain import Chain
from rocketmq_reindex.storage_format.scan.ranges import RangeSummary, Segment
from rocketmq_reindex.storage_format.showing import counted
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.staging import Positions, mean_of
from rocketmq_reindex.udfs.verify import listing, queue_files, queues as verify_queues

# ------------------------------------------------------------------------------------------------------------------------ order
# The order of the log's queues: a verify takes the very decisions of a build, and tells what a build would refuse.


@dataclass(frozen=True)
class LogOrder:
    """Where ``--queue-order logical`` puts the units of queues out of order: plans (``PlanWriter``), or ""."""

    placements: str = ""
    batches: str = ""
    """the same of batch queues"""
    max_fill: int = 0
    """--max-fill that a build needs; 0 where its own is enough"""
    wrong: tuple[int, ...] = ()
    """offsets of records whose queue offsets are sure to be wrong: a repair mends them, and no others out of line"""


def check_order(
    scan: Scan, settings: VerifySettings, segments: list[Segment], chain: Chain
) -> tuple[LogOrder, PartFindings]:  # fmt: skip
    """Return where a build (``--queue-order logical``) puts the units of the whole log, and the findings of what it refuses.

    A queue that would take more fills than a build makes by itself is in no plan.
    """
    fills_max, findings = chain.fills(settings.max_fill), PartFindings()
    tally = findings.tally
    try:
        odd = Decisions(scan, settings.mending_build(), segments, chain).odd_queues()
        outcome = odd.outcome(segments, "log", fills_max)
    except errors.RefusedError as error:
        tally.add("log-out-of-line", 1, "commitlog", 0, str(error))
        return LogOrder(), findings
    for hole in outcome.lost.first:
        text = f"offset {hole.offset}, {counted(hole.length, 'byte')}: {hole.reason}"
        tally.add("log-out-of-line", 1, f"commitlog/{hole.segment}", hole.offset, text)
    findings.damage += outcome.lost.first
    if not_listed := outcome.lost_records - len(outcome.lost.first):
        end = outcome.lost.more_end
        tally.add("log-out-of-line", not_listed, "commitlog", end, f"more, up to offset {end}")
    wrong = odd.wrong_places() if outcome.lost.first else ()
    # What a build warns of: nothing tells whether these records are in line.
    if pending := [text for text, (_, entry) in outcome.warnings.about.items() if entry.get("kind") == "pending"]:
        others = f"; {counted(len(pending) - 1, 'more queue')} likewise" if len(pending) > 1 else ""
        findings.notes.append(f"{pending[0]}{others}")
    kinds = ("pending", "more pending")
    findings.figures["pending"] = sum(decision["count"] for decision in outcome.warnings.decisions if decision["kind"] in kinds)
    if outcome.filled <= fills_max:
        return LogOrder(outcome.placements, outcome.batches, wrong=wrong), findings
    needed = outcome.filled - (fills_max - settings.max_fill)
    text = f"{outcome.filled:,} missing queue offsets: a build fills at most {fills_max} with --max-fill {settings.max_fill}"
    tally.add("log-queue-gaps", outcome.filled, "commitlog", 0, text)
    return LogOrder(outcome.placements, outcome.batches, needed, wrong), findings


# ----------------------------------------------------------------------------------------------------------------------- queues
# The queues' part of a verify: it lists their files, then compares them with the units of the log.


@dataclass
class QueueResult:
    """The results of all reducers together."""

    tally: Tally = field(default_factory=Tally)
    counts: dict[str, int] = field(default_factory=dict)
    queues: list[queue_files.QueueEntry] = field(default_factory=list)

    def take(self, results: list[queue_files.QueuesResult]) -> None:
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
            "idle_queues": counts.pop(queue_files.IDLE, 0),
            "queues_differing": counts.pop("differing", 0),
        }
        if empty := counts.pop(queue_files.EMPTY_ENDS, 0):
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
        self._list(QUEUES, settings.cq_file_size, False, findings)
        if settings.batch_topics and not self.unread:
            self._list(BATCH_QUEUES, settings.batch_cq_file_size, True, findings)
        return findings

    def _list(self, kind: str, file_size: int, batch: bool, findings: PartFindings) -> None:
        scan, settings = self.scan, self.settings
        folder = files.join(settings.store, kind)
        names = [entry.name for entry in entries_in(folder)]
        plan = handover.write_plan(scan.staging, f"topics-{kind}", names)
        size = sum(segment.data_end - segment.start for segment in self.segments)
        tasks = max(1, task_count(len(names), size, scan.engine.cores, DERIVED_BYTES))
        lister = listing.ListQueues(
            folder, plan, tasks, file_size, scan.task.keys, batch, settings.trimmed, not settings.rules.drops_empty_files
        )
        others, passed_over = list[str](), 0
        for listed in listing.ListingResult.read(scan.engine.scan(lister, tasks)):
            findings.tally.merge(listed.tally)
            findings.figures["files"]["consumequeue"] += listed.files
            findings.figures["sizes"]["consumequeue"] += listed.bytes
            others += listed.others
            passed_over += listed.passed_over
        if others:
            others_counted = f", and {passed_over - 1:,} more" if passed_over > 1 else ""
            findings.notes.append(f"{kind}/ also holds what a broker passes over: {min(others)}{others_counted}")

    def _task(self, kind: str, file_size: int, rules: versions.VersionRules) -> queue_files.QueueTask:
        settings = self.settings
        log = (self.segments[0].start, self.segments[-1].segment_end) if self.segments else (0, 0)
        folder = files.join(settings.store, kind)
        return queue_files.QueueTask(
            folder, file_size, self.segments, log, self.unread, rules.opens_empty_queue_file, self.stale,
        )  # fmt: skip

    def units(self, accepted: list[RangeSummary]) -> Work:
        """Return the units of the log that are compared, and a probe of how many are."""
        total, mean, positions = _units(accepted), self._mean(accepted), Positions(self.scan.staging)

        def probe() -> tuple[int, float]:
            shares = positions.shares().items()
            done = mean * sum(share for name, share in shares if name.startswith(("queues-", "batches-")))
            return int(done), done / total if total else 0

        return Work("units", total, 0, probe)

    def _mean(self, accepted: list[RangeSummary]) -> int:
        return mean_of(_units(accepted), len(self.scan.task.keys))

    def compare(self, accepted: list[RangeSummary], rules: versions.VersionRules) -> QueueResult:
        """Return how the queues of the log and of the store differ; ``rules`` are the broker's."""
        scan, settings, result = self.scan, self.settings, QueueResult()
        left_out, place = scan.left_out(accepted), (scan.staging, self._mean(accepted))
        verify = verify_queues.VerifyQueues(*place, self._task(QUEUES, settings.cq_file_size, rules), self.order.placements)
        result.take(queue_files.QueuesResult.read(scan.engine.reduce(handover.UNITS, left_out, None, verify)))
        if settings.batch_topics and not self.unread:
            batches = verify_queues.VerifyBatches(
                *place, self._task(BATCH_QUEUES, settings.batch_cq_file_size, rules), self.order.batches
            )
            result.take(queue_files.QueuesResult.read(scan.engine.reduce(handover.BATCHES, left_out, None, batches)))
        return result


def _units(accepted: list[RangeSummary]) -> int:
    return sum(summary.units + summary.batch_units for summary in accepted)
