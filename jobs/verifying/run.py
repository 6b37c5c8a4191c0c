"""One verify from beginning to end: list, scan, chain, then compare queues, index and checkpoint with what the log says."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from typing import Final, TypeVar

from rocketmq_reindex.jobs.building import inputs, planning, scanning, store_signs
from rocketmq_reindex.jobs.engines.engine import BUCKET_BYTES, Engine, Engines, beside
from rocketmq_reindex.jobs.store import contents, first_bytes, folders, settings as store_settings, versions
from rocketmq_reindex.jobs.verifying import (
    index as verifying_index,
    log as verifying_log,
    mend as verifying_mend,
    options,
    queues as verifying_queues,
    summary as verifying_summary,
    work as verifying_work,
)
from rocketmq_reindex.jobs.watching.progress import Reporter, Work
from rocketmq_reindex.storage_format import digest, layouts, showing
from rocketmq_reindex.storage_format.checks.differences import CHECKPOINT, INDEX, LOG, QUEUES, UNCHECKED, Tally
from rocketmq_reindex.storage_format.scan.ranges import RangeSummary, Segment
from rocketmq_reindex.storage_format.scan.settings import ScanSettings
from rocketmq_reindex.udfs.staging import StagingFolder
from rocketmq_reindex.udfs.verify.listing import ANY_FILE, VerifyScan

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
        self.signs: list[versions.Sign] = []
        self.memory: verifying_log.VerifyMemory | None = None

    def run(self, logs: list[store_settings.Commitlog] | None = None) -> None:
        """Compare the store with its log; nothing is written to it.

        ``logs`` are what ``VerifySettings.logs`` listed just before, if it was called. Raises ReindexError.
        """
        (log,) = logs or self.settings.logs()
        chosen = verifying_log.sampled(log.segments, self.settings.sample)
        planning.check_range_size(self.settings.range_size, sum(segment.data_end - segment.start for segment in chosen))
        self.result.notes += [*self.settings.conf_notes, *broker_notes(self.settings)]
        advice = ": leave the queues out, by --only index,checkpoint,log"
        self.result.notes += store_settings.check_verified(self.settings.store, self.settings.only, advice)
        scans = verifying_log.scans_of(self.settings)
        self.settings = verifying_work.of_build(self.settings)
        if "broker_version" not in self.settings.named:
            with contextlib.closing(contents.StoreLog(self.settings.roots, folders.Notes.silent())) as store_log:
                self.signs += versions.of_files(self.settings.store, store_log, self.settings.index_names)
        self._fit()
        self.settings, notes = verifying_work.take_sizes(self.settings)
        self.result.notes += notes
        if scans:
            compares, leftovers = QUEUES in self.settings.only, self.result.leftovers
            self.memory = verifying_log.VerifyMemory(
                scans, self._scan_settings(), self.settings.recheck, leftovers, compares=compares
            )
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
        self.result.not_checked = list(UNCHECKED)

    def _fit(self) -> bool:
        """Go on with the version that fits best, if none was named. Return whether several versions left their signs."""
        fitting = None if "broker_version" in self.settings.named else versions.fit(self.signs)
        if fitting:
            self.settings = dataclasses.replace(self.settings, broker_version=fitting.best)
            self.result.fits, self.result.signs = list(fitting.versions), [sign.text for sign in self.signs]
        self.result.broker_version = self.settings.broker_version
        return fitting is not None and fitting.mixed

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
        task = VerifyScan(staging, "", 0, self._scan_settings(), ANY_FILE, keys, compares=QUEUES in settings.only)
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
        first_bytes.check_is_log(chosen, chain)
        accepted = chain.accepted
        self._count(chosen, accepted)
        self.result.incremental = self.memory.counts() if self.memory else None
        if LOG in settings.only:
            self._take(verifying_log.check_log(settings, log, chain, unread))
        wrong = list[int]()
        if self._decides_order and not unread:
            with self._timed("order"):
                queues.order, findings = verifying_queues.check_order(scan, settings, log.segments, chain)
            self._take(findings)
            self.log_findings.max_fill = queues.order.max_fill
            wrong += queues.order.wrong
        if chain.stale:
            queues.stale = chain.stale.offset, chain.stale.offset + chain.stale.length
        damaged = [hole for hole in chain.holes if not verifying_log.between(hole.offset, unread)]
        self.log_findings.first = min([*wrong, *(hole.offset for hole in damaged)], default=-1)
        if text := inputs.fillers(accepted):
            self.result.notes.append(text)
        self.log_findings.undecided = scanning.undecided(chain)
        # Where all records lie under a wrong name, none is found, and no disk is missing.
        if not self.log_findings.undecided and (text := verifying_log.unmounted(settings, log, accepted)):
            self.result.notes.append(text)
            self.log_findings.undecided = f"{text} A build drops all that the log does not hold"
        self.log_findings.cut = inputs.first_cut(self.settings.rules, log.segments, damaged)

        def compare_index() -> verifying_index.IndexResult:
            work = index.items(accepted, log.segments, unread)
            result = self._part("index", work, lambda: index.compare(accepted, log.segments, unread))
            self.signs += versions.of_tags(result.tags)
            return result

        def compare_queues() -> verifying_queues.QueueResult:
            work = queues.units(accepted)
            return self._part("consumequeue", work, lambda: queues.compare(accepted, self.settings.rules))

        with self._timed("compare"), self.reporter.step("compare"), beside(engine, "compare") as pool:
            compared: list[Future[verifying_queues.QueueResult] | Future[verifying_index.IndexResult]] = []
            if INDEX in settings.only:
                compared.append(pool.submit(compare_index))
                if versions.wait_for_tags(self.result.fits):
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

    def _part(self, name: str, work: Work, compare: Callable[[], T]) -> T:
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
