"""``verify A --against B``: what differs between two stores, such as a master and its replica."""

import time

from rocketmq_reindex import files
from rocketmq_reindex.jobs.building.planning import store_scan
from rocketmq_reindex.jobs.engines.engine import DERIVED_BYTES, Engine, Engines, task_count
from rocketmq_reindex.jobs.store.settings import Commitlog, check_unchanged, check_verified
from rocketmq_reindex.jobs.verifying import (
    mend,
    options,
    run as verifying_run,
    summary as verifying_summary,
    work as verifying_work,
)
from rocketmq_reindex.jobs.watching.progress import Reporter, Work
from rocketmq_reindex.storage_format.checkpoint import CHECKPOINT_LAYOUT
from rocketmq_reindex.storage_format.layouts import BATCH_QUEUES, QUEUES
from rocketmq_reindex.storage_format.showing import counted, escape, redacted
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.repair.differing import CompareLogs, LogDifference, overlap
from rocketmq_reindex.udfs.staging import StagingFolder
from rocketmq_reindex.udfs.verify import against


class Against(verifying_run.Verify):
    """One run. Store A is the settings' own, B the one named by --against."""

    def __init__(
        self, settings: options.VerifySettings, reporter: Reporter, engines: Engines,
        result: verifying_summary.VerifyResult | None = None,
    ) -> None:  # fmt: skip
        super().__init__(settings, reporter, engines, result)
        self.a, self.b = self.settings.store, files.absolute(settings.against)
        self.result.against = redacted(settings.against)

    def run(self, logs: list[Commitlog] | None = None) -> None:
        """Compare the two stores; nothing is written to either.

        ``logs`` are what ``VerifySettings.logs`` listed just before, if it was called. Raises ReindexError.
        """
        logs = logs or self.settings.logs()
        self.result.notes += verifying_run.broker_notes(self.settings)
        for store in (self.a, self.b):
            self.result.notes += check_verified(store, self.settings.only)
        self.settings, notes = verifying_work.take_sizes(verifying_work.of_build(self.settings))
        self.result.notes += notes
        leftovers, work = self.result.leftovers, self.settings.work
        with (
            self.result.telling_leftovers(),
            self.engines() as engine,
            verifying_work.work_folder(work, leftovers, engine.is_here) as staging,
        ):
            up = self.result.seconds["session"] = self.reporter.elapsed()
            for part, compare in (("log", self._logs), ("consumequeue", self._queues), ("index", self._index)):
                begin = time.monotonic()
                compare(engine, staging, logs)
                self.result.seconds[part] = time.monotonic() - begin
            self.result.seconds["verify"] = self.reporter.elapsed() - up
            for log, store in zip(logs, (self.a, self.b), strict=True):
                check_unchanged(log, (files.join(store, "commitlog"),))
        self._checkpoints()
        self.result.take(self.tally, mend.Mend(self.settings.mending_build()))

    def _logs(self, engine: Engine, staging: StagingFolder, logs: list[Commitlog]) -> None:
        stretches = overlap(*(log.segments for log in logs))
        result = self.result
        result.segments = result.segments_read = len(logs[0].segments)
        result.bytes = sum(stretch.length for stretch in stretches)
        result.sizes = {"commitlog": logs[0].size, "against": logs[1].size}
        if not stretches:
            result.notes.append("the two logs have no offset in common")
            return
        tasks = task_count(len(stretches), 2 * result.bytes, engine.cores)
        plan = handover.write_plan(staging, "stretches", stretches)
        sizes = {f"log-{k}": sum(stretch.length for stretch in handover.share(stretches, k, tasks)) for k in range(tasks)}
        with self.reporter.stage("compare log", *Work.of_tasks(staging, "bytes", sizes)):
            comparer = CompareLogs(staging, plan, tasks, store_scan(self.settings))
            differences = LogDifference.read(engine.numbers(comparer, tasks))
        ends = [log.segments[-1].data_end for log in logs]
        if differences:
            first, count = min(part.first for part in differences), sum(part.bytes for part in differences)
            filled = any(part.a for part in differences), any(part.b for part in differences)
            if all(filled):
                self._tell_differing(differences, first, count)
            else:
                behind = "B" if filled[0] else "A"
                text = f"{behind} has only zeros from offset {first} on, where the other has records"
                self.tally.add("against-log-ends", 1, "commitlog", first, text)
        if ends[0] != ends[1]:
            text = f"the last segment ends at offset {ends[0]} in A, at {ends[1]} in B"
            result.notes.append(text)

    def _tell_differing(self, differences: list[LogDifference], first: int, count: int) -> None:
        """Count bytes that differ, with the records that they are of."""
        records = sorted(record for part in differences for record in part.records)
        text = f"from offset {first} on, {counted(count, 'byte')} in all"
        unlisted = count - sum(record.bytes for record in records)
        for record in records:
            self.tally.add("against-log-differs", record.bytes, "commitlog", record.first, record.text)
        self.tally.add("against-log-differs", unlisted, "commitlog", first, text)
        if records:
            self.result.notes.append(f"{counted(len(records), 'record')} of A differ in B, {text}")

    def _queues(self, engine: Engine, staging: StagingFolder, logs: list[Commitlog]) -> None:
        start = max((log.segments[0].start for log in logs if log.segments), default=0)
        for folder in (QUEUES, BATCH_QUEUES):
            names = against.topics_of(*(files.join(store, folder) for store in (self.a, self.b)))
            if not names:
                continue
            tasks = task_count(len(names), sum(log.size for log in logs), engine.cores, DERIVED_BYTES)
            plan = handover.write_plan(staging, f"topics-{folder}", names)
            comparer = against.CompareQueues(staging, self.a, self.b, folder, plan, tasks, start)
            topics = {f"{folder}-{k}": len(names[k::tasks]) for k in range(tasks)}
            with self.reporter.stage(f"compare {folder}", *Work.of_tasks(staging, "topics", topics)):
                results = against.AgainstResult.read(engine.numbers(comparer, tasks))
            for result in results:
                self.tally.merge(result.tally)
                self.result.files["consumequeue"] += result.files
                self.result.units += result.units

    def _index(self, engine: Engine, staging: StagingFolder, _: list[Commitlog]) -> None:
        """By name; where no name is in both, as a broker's own are named by its clock, in the order of names."""
        names = [against.topics_of(files.join(store, "index")) for store in (self.a, self.b)]
        common = sorted(set(names[0]) & set(names[1]))
        if common or not all(names):
            pairs = [(name, name) for name in common]
            alone = [(name, k) for k in (0, 1) for name in names[k] if name not in common]
        else:
            pairs = list(zip(names[0], names[1], strict=False))
            alone = [(name, k) for k in (0, 1) for name in names[k][len(pairs) :]]
            self.result.notes.append("no IndexFile has the same name in both stores: compared in the order of names")
        for name, k in alone:
            self.tally.add("against-index-file", 1, f"index/{escape(name)}", 0, f"only in {'AB'[k]}")
        self.result.files["index"] = len(pairs)
        if pairs:
            plan = handover.write_plan(staging, "pairs", pairs)
            comparer = against.CompareIndex(staging, self.a, self.b, plan, self.settings.hash_slots)
            numbers = {f"index-{k}": 1 for k in range(len(pairs))}
            with self.reporter.stage("compare index", *Work.of_tasks(staging, "files", numbers)):
                results = against.AgainstResult.read(engine.numbers(comparer, len(pairs)))
            for result in results:
                self.tally.merge(result.tally)

    def _checkpoints(self) -> None:
        """Note where checkpoints differ. They say when each store was flushed, so that is no difference."""
        paths = [files.join(store, "checkpoint") for store in (self.a, self.b)]
        if all(files.entry_of(path).kind == files.FILE for path in paths):
            a, b = (files.head(path, CHECKPOINT_LAYOUT.size) for path in paths)
            if a != b:
                self.result.notes.append("the checkpoints differ, as those of two brokers do")
        elif any(files.entry_of(path).kind == files.FILE for path in paths):
            self.result.notes.append("only one of the stores has a checkpoint")
