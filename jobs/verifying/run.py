"""One verify from beginning to end: of a store and its log, or with --against of two stores, as a master and its replica."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from typing import Final, TypeVar

from rocketmq_reindex import files
from rocketmq_reindex.jobs.building import advice, inputs, planning, scanning, store_signs
from rocketmq_reindex.jobs.engines.engine import BUCKET_BYTES, DERIVED_BYTES, Engine, Engines, beside, task_count
from rocketmq_reindex.jobs.store import contents, fitting, folders, settings as store_settings
from rocketmq_reindex.jobs.verifying import (
    index as verifying_index,
    mend as verifying_mend,
    options,
    parts,
    parts as verifying_parts,
    queues as verifying_queues,
    summary as verifying_summary,
    work as verifying_work,
)
from rocketmq_reindex.jobs.watching.progress import Reporter, StageWork
from rocketmq_reindex.storage_format import digest, layouts, showing
from rocketmq_reindex.storage_format.checks.differences import CHECKPOINT, INDEX, LOG, QUEUES, UNCHECKED, Tally
from rocketmq_reindex.storage_format.scan.ranges import RangeSummary, Segment
from rocketmq_reindex.storage_format.scan.settings import ScanSettings
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.repair.differing import CompareLogs, LogDifference, overlap
from rocketmq_reindex.udfs.staging import StagingFolder
from rocketmq_reindex.udfs.verify import against
from rocketmq_reindex.udfs.verify.queue_tasks import ANY_FILE, VerifyScan

T = TypeVar("T")
_SILENT: Final = 1.0
"""seconds that nothing is said of what goes on beside the scan when that is done"""


class Verify:
    """One run of a verify. ``result`` is true at every moment, also when the run fails."""

    def __init__(
        self, settings: options.VerifySettings, reporter: Reporter, engines: Engines,
        result: verifying_summary.VerifyResult | None = None,
    ) -> None:  # fmt: skip
        self.settings = settings.located()
        self.reporter = reporter
        self.engines = engines
        self.result = result or verifying_summary.VerifyResult()
        self.result.store, self.result.sample = showing.redacted(settings.store), settings.sample
        self.tally = Tally()
        self.log_findings = verifying_mend.LogFindings()
        self.signs: list[fitting.Sign] = []
        self.memory: verifying_parts.VerifyMemory | None = None

    def run(self, logs: list[store_settings.Commitlog] | None = None) -> None:
        """Compare the store with its log; nothing is written to it.

        ``logs`` are what ``VerifySettings.logs`` listed just before, if it was called. Raises ReindexError.
        """
        (log,) = logs or self.settings.logs()
        chosen = verifying_parts.sampled(log.segments, self.settings.sample)
        planning.check_range_size(self.settings.range_size, sum(segment.data_end - segment.start for segment in chosen))
        self.result.notes += [*self.settings.conf_notes, *broker_notes(self.settings)]
        self.settings, notes = verifying_work.of_database(self.settings)
        self.result.notes += notes
        scans = verifying_parts.scans_of(self.settings)
        self.settings = verifying_work.of_build(self.settings)
        if "broker_version" not in self.settings.named:
            with contextlib.closing(contents.StoreLog(self.settings.roots, folders.Notes.silent())) as store_log:
                self.signs += fitting.of_files(self.settings.store, store_log, self.settings.index_names)
        self._fit()
        for told in (verifying_work.take_sizes, verifying_work.of_dispatched):
            self.settings, notes = told(self.settings)
            self.result.notes += notes
        if scans:
            scan, leftovers, compares = self._scan_settings(), self.result.leftovers, QUEUES in self.settings.only
            self.memory = verifying_parts.VerifyMemory(scans, scan, self.settings.recheck, leftovers, compares=compares)
        known = self.memory or contextlib.nullcontext()
        leftovers, work = self.result.leftovers, self.settings.work
        with (
            self.result.telling_leftovers(),
            self.engines() as engine,
            verifying_work.work_folder(work, leftovers, engine.is_here) as staging,
            known,
        ):
            up = self.result.seconds["session"] = self.reporter.elapsed()
            try:
                self._verify(engine, staging, log, chosen)
                store_settings.check_unchanged(log, self.settings.roots)
                if self.memory:
                    self.memory.save()
            finally:
                self.result.seconds["verify"] = self.reporter.elapsed() - up
        orders, idle_queues = self.result.orders, self.result.idle_queues
        mend = verifying_mend.advise(self.settings, self.tally, self.log_findings, orders, idle_queues, self.result.store)
        self.result.take(self.tally, mend)
        self.result.notes += mend.of_sizes()
        self.result.not_checked = list(UNCHECKED)

    def _fit(self) -> bool:
        """Go on with the version that fits best, if none was named. Return whether several versions left their signs."""
        fits = None if "broker_version" in self.settings.named else fitting.fit(self.signs)
        if fits:
            self.settings = dataclasses.replace(self.settings, broker_version=fits.best)
            self.result.fits, self.result.signs = list(fits.versions), [sign.text for sign in self.signs]
        self.result.broker_version = self.settings.broker_version
        return fits is not None and fits.mixed

    @contextlib.contextmanager
    def _timed(self, stage: str, beside: bool = False) -> Iterator[None]:
        """Measure a stage. ``beside``: other stages run at the same time."""
        begin = time.monotonic()
        try:
            yield
        finally:
            (self.result.beside if beside else self.result.seconds)[stage] = time.monotonic() - begin

    def _verify(self, engine: Engine, staging: StagingFolder, log: store_settings.Commitlog, chosen: list[Segment]) -> None:
        settings = self.settings
        if self.memory and self.memory.store.has_earlier_kind():
            self.reporter.line(f"verify: what --tables knows has digests of {digest.EARLIER_KIND}: the log is read again")
        unread = tuple((s.start, s.segment_end) for s in log.segments if s not in chosen)
        self._note_plan(log, chosen)
        keys = engine.buckets(-(-sum(s.data_end - s.start for s in chosen) // BUCKET_BYTES), staging)
        filters, notes = verifying_work.filters_of(settings, self.result.fits)
        self.result.notes += notes
        wanted = dataclasses.replace(self._scan_settings(), want_messages=filters is not None)
        lite = settings.beside.lite or frozenset[str]()
        task = VerifyScan(staging, "", 0, wanted, ANY_FILE, keys, filters=filters, compares=QUEUES in settings.only, lite=lite)
        scan = scanning.Scan(engine, staging, task, self.reporter, self.memory, store=settings.store)
        queues = verifying_queues.QueueComparison(scan, settings, tuple(log.segments), unread)
        index = verifying_index.IndexComparison(scan, settings)

        def list_queues() -> verifying_summary.PartFindings:
            with self._timed("list", beside=True):
                return queues.list_files()

        def check_index() -> verifying_summary.PartFindings:
            with self._timed("check", beside=True):
                return index.check_files(log.segments[0].start if log.segments else 0)

        # Beside the scan: none of them keeps all cores busy for all of its time.
        with self._timed("scan"), beside(engine, "files") as pool:
            looked = [
                pool.submit(look) for part, look in ((QUEUES, list_queues), (INDEX, check_index)) if part in settings.only
            ]
            segment_bytes = max((s.segment_end - s.start for s in chosen), default=1)
            size = sum(s.data_end - s.start for s in chosen)
            scan.first(chosen, planning.range_size(settings, size, segment_bytes, engine.cores), layouts.INT64_MAX)
            chain = scan.settle(chosen)
            self._wait(looked, index)
        folders.check_is_log(chosen, chain)
        accepted = chain.accepted
        self._count(chosen, accepted)
        self.result.incremental = self.memory.counts() if self.memory else None
        if LOG in settings.only:
            self._take(verifying_parts.check_log(settings, log, chain, unread))
            self._take(parts.check_epochs(settings.store, settings.roots))
            self._take(parts.check_timers(settings.store, settings.roots))
        wrong = list[int]()
        if self._decides_order and not unread:
            with self._timed("order"):
                queues.order, findings = verifying_parts.check_order(scan, settings, log.segments, chain)
            self._take(findings)
            self.log_findings.max_fill = queues.order.max_fill
            wrong += queues.order.wrong
        if chain.stale:
            queues.stale = chain.stale.offset, chain.stale.offset + chain.stale.length
        damaged = [hole for hole in chain.holes if not verifying_parts.between(hole.offset, unread)]
        self.log_findings.first = min([*wrong, *(hole.offset for hole in damaged)], default=-1)
        if text := inputs.fillers(accepted):
            self.result.notes.append(text)
        self.result.notes += advice.of_entries(settings, log.segments, chain, advice.MAY_DIFFER)
        self.log_findings.undecided = scanning.undecided(log.segments, chain)
        self.log_findings.copied = advice.is_copied(log.segments)
        # Where all records lie under a wrong name, none is found, and no disk is missing.
        if not self.log_findings.undecided and (text := verifying_parts.unmounted(settings, log, accepted)):
            self.result.notes.append(text)
            self.log_findings.undecided = f"{text} A build drops all that the log does not hold"
        self.log_findings.cut = inputs.first_cut(self.settings.rules, log.segments, damaged)

        def compare_index() -> verifying_index.IndexResult:
            work = index.items(accepted, log.segments, unread)
            result = self._part("index", work, lambda: index.compare(accepted, log.segments, unread))
            self.signs += fitting.of_tags(result.tags)
            return result

        def compare_queues() -> verifying_queues.QueueResult:
            work = queues.units(accepted)
            return self._part("consumequeue", work, lambda: queues.compare(accepted, self.settings.rules))

        with self._timed("compare"), self.reporter.step("compare"), beside(engine, "compare") as pool:
            compared: list[Future[verifying_queues.QueueResult] | Future[verifying_index.IndexResult]] = []
            if INDEX in settings.only:
                compared.append(pool.submit(compare_index))
                if fitting.wait_for_tags(self.result.fits):
                    compared[0].result()
                    self._fit()
            if QUEUES in settings.only:
                compared.append(pool.submit(compare_queues))
            results = [part.result() for part in reversed(compared)]
        if self._fit():
            self.result.notes.append(
                f"the signs are of several versions, as after an upgrade: checked as a store of {self.settings.broker_version}"
            )
        self._note_settings()
        for result in results:
            self._take(result.findings(self.settings))
        if CHECKPOINT in settings.only:
            self._take(verifying_index.check_checkpoint(self.settings, log, accepted, index))

    def _part(self, name: str, work: StageWork, compare: Callable[[], T]) -> T:
        with self._timed(name, beside=True), self.reporter.stage(f"compare {name}", *work):
            return compare()

    def _wait(self, looked: list[Future[verifying_summary.PartFindings]], index: verifying_index.IndexComparison) -> None:
        """Wait for what went on beside the scan; with a sample the IndexFiles take longer."""
        stage: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
        if wait(looked, _SILENT).not_done:
            stage = self.reporter.stage("check index", *index.checks())
        with stage:
            for part in looked:
                self._take(part.result())

    def _take(self, findings: verifying_summary.PartFindings) -> None:
        self.tally.merge(findings.tally)
        self.result.add(findings)

    def _scan_settings(self) -> ScanSettings:
        only = self.settings.only
        wanted = planning.store_scan(self.settings)
        return dataclasses.replace(
            wanted, want_units=self._decides_order, want_items=INDEX in only, mark_tags=True, want_digests=False
        )

    @property
    def _decides_order(self) -> bool:
        """Whether the order of queues is looked at: what is out of line in it is damage of the log."""
        return QUEUES in self.settings.only or LOG in self.settings.only

    def _note_plan(self, log: store_settings.Commitlog, chosen: list[Segment]) -> None:
        result = self.result
        result.segments, result.segments_read = len(log.segments), len(chosen)
        result.sizes = {"commitlog": log.size, "consumequeue": 0, "index": 0}
        self._note_settings()
        if len(chosen) < len(log.segments):
            result.notes.append(
                f"a sample: {len(chosen)} of {showing.counted(len(log.segments), 'segment')} were read, "
                "only what points there was compared; batch queues were not"
            )

    def _note_settings(self) -> None:
        self.result.settings = self.settings.mending_build().for_manifest() | {"only": list(self.settings.only)}

    def _count(self, chosen: list[Segment], accepted: list[RangeSummary]) -> None:
        result = self.result
        result.bytes = sum(segment.data_end - segment.start for segment in chosen)
        result.records = sum(s.records for s in accepted)
        self.log_findings.inner_batches = sum(s.inner_batches for s in accepted)
        if self.log_findings.inner_batches and not self.settings.batch_topics:
            result.notes.append("the log has inner batches: give --topics-config, or their queues are compared as plain ones")


def broker_notes(settings: options.VerifySettings) -> list[str]:
    """Return a note for each store that is compared while a broker runs on it, as far as that can be known."""
    if settings.snapshot:
        return []
    running, unknown = store_signs.brokers(settings, [settings.against] if settings.against else [])
    return [f"{text}: what it writes meanwhile may look like differences, or end the run" for text in running] + unknown


# ---------------------------------------------------------------------------------------------------------------------- against
# ``verify A --against B``: what differs between two stores.


class Against(Verify):
    """One run. Store A is the settings' own, B the one named by --against."""

    def __init__(
        self, settings: options.VerifySettings, reporter: Reporter, engines: Engines,
        result: verifying_summary.VerifyResult | None = None,
    ) -> None:  # fmt: skip
        super().__init__(settings, reporter, engines, result)
        self.a, self.b = self.settings.store, files.absolute(settings.against)
        self.result.against = showing.redacted(settings.against)

    def run(self, logs: list[store_settings.Commitlog] | None = None) -> None:
        """Compare the two stores; nothing is written to either.

        ``logs`` are what ``VerifySettings.logs`` listed just before, if it was called. Raises ReindexError.
        """
        logs = logs or self.settings.logs()
        self.result.notes += broker_notes(self.settings)
        for store in (self.a, self.b):
            self.result.notes += store_settings.check_files_are_compared(store, self.settings.only)
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
                store_settings.check_unchanged(log, store_settings.roots_of(store))
        self.result.notes += parts.compare_checkpoints((self.a, self.b))
        self.result.notes += parts.compare_epochs((self.a, self.b), [store_settings.roots_of(s) for s in (self.a, self.b)])
        self.result.take(self.tally, verifying_mend.Mend(self.settings.mending_build()))

    def _logs(self, engine: Engine, staging: StagingFolder, logs: list[store_settings.Commitlog]) -> None:
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
        with self.reporter.stage("compare log", *StageWork.of_tasks(staging, "bytes", sizes)):
            comparer = CompareLogs(staging, plan, tasks, planning.store_scan(self.settings))
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
        text = f"from offset {first} on, {showing.counted(count, 'byte')} in all"
        unlisted = count - sum(record.bytes for record in records)
        for record in records:
            self.tally.add("against-log-differs", record.bytes, "commitlog", record.first, record.text)
        self.tally.add("against-log-differs", unlisted, "commitlog", first, text)
        if records:
            self.result.notes.append(f"{showing.counted(len(records), 'record')} of A differ in B, {text}")

    def _queues(self, engine: Engine, staging: StagingFolder, logs: list[store_settings.Commitlog]) -> None:
        start = max((log.segments[0].start for log in logs if log.segments), default=0)
        for folder in (QUEUES, layouts.BATCH_QUEUES):
            names = against.topics_of(*(files.join(store, folder) for store in (self.a, self.b)))
            if not names:
                continue
            tasks = task_count(len(names), sum(log.size for log in logs), engine.cores, DERIVED_BYTES)
            plan = handover.write_plan(staging, f"topics-{folder}", names)
            comparer = against.CompareQueues(staging, self.a, self.b, folder, plan, tasks, start)
            topics = {f"{folder}-{k}": len(names[k::tasks]) for k in range(tasks)}
            with self.reporter.stage(f"compare {folder}", *StageWork.of_tasks(staging, "topics", topics)):
                results = against.AgainstResult.read(engine.numbers(comparer, tasks))
            for result in results:
                self.tally.merge(result.tally)
                self.result.files["consumequeue"] += result.files
                self.result.units += result.units

    def _index(self, engine: Engine, staging: StagingFolder, _: list[store_settings.Commitlog]) -> None:
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
            self.tally.add("against-index-file", 1, f"index/{showing.escape(name)}", 0, f"only in {'AB'[k]}")
        self.result.files["index"] = len(pairs)
        if pairs:
            plan = handover.write_plan(staging, "pairs", pairs)
            comparer = against.CompareIndex(staging, self.a, self.b, plan, self.settings.hash_slots)
            numbers = {f"index-{k}": 1 for k in range(len(pairs))}
            with self.reporter.stage("compare index", *StageWork.of_tasks(staging, "files", numbers)):
                results = against.AgainstResult.read(engine.numbers(comparer, len(pairs)))
            for result in results:
                self.tally.merge(result.tally)
