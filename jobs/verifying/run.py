"""One verify from beginning to end: list, scan, chain, then compare queues, index and checkpoint with what the log says."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, Final

from rocketmq_reindex.jobs.building import empty_log, running_broker, stale_tails
from rocketmq_reindex.jobs.building.notices import first_cut
from rocketmq_reindex.jobs.building.planning import BUCKET_BYTES, range_size, scan_settings
from rocketmq_reindex.jobs.building.scanning import Scan
from rocketmq_reindex.jobs.spark.engine import Engine
from rocketmq_reindex.jobs.store.segments import Commitlog, check_unchanged
from rocketmq_reindex.jobs.verifying.build import of_build
from rocketmq_reindex.jobs.verifying.index import Index
from rocketmq_reindex.jobs.verifying.mend import LogVerdict, advise
from rocketmq_reindex.jobs.verifying.queues import Queues
from rocketmq_reindex.jobs.verifying.settings import VerifySettings, at_its_place
from rocketmq_reindex.jobs.verifying.sizes import take_sizes
from rocketmq_reindex.jobs.verifying.summary import DAMAGE_TOLD, VerifySummary
from rocketmq_reindex.jobs.verifying.work import work_folder
from rocketmq_reindex.jobs.watching.progress import Reporter
from rocketmq_reindex.storage_format.checkpoint import SIZE as CHECKPOINT_SIZE
from rocketmq_reindex.storage_format.checks.checkpoint import StoreTimes, compare_checkpoint
from rocketmq_reindex.storage_format.checks.differences import CHECKPOINT, INDEX, LOG, QUEUES, Tally
from rocketmq_reindex.storage_format.integers import INT64_MAX
from rocketmq_reindex.storage_format.names import escape, redacted
from rocketmq_reindex.storage_format.plurals import counted
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.scan.chain import Chain
from rocketmq_reindex.storage_format.scan.range_summary import RangeSummary
from rocketmq_reindex.storage_format.scan.ranges import Segment
from rocketmq_reindex.storage_format.scan.settings import ScanSettings
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.stage import Stage
from rocketmq_reindex.udfs.verify.scan import ANY_FILE, VerifyScan

CHECKPOINT_READ: Final = 1 << 20


class Verify:
    """State of one run; ``summary`` is true at every moment, also when the run fails."""

    def __init__(
        self, settings: VerifySettings, reporter: Reporter, engines: Callable[[], AbstractContextManager[Engine]]
    ) -> None:
        self.settings = dataclasses.replace(settings, build=at_its_place(settings.build))
        self.reporter = reporter
        self.engines = engines
        self.summary = VerifySummary(store=redacted(settings.build.store), sample=settings.sample)
        self.tally = Tally()
        self.log_verdict = LogVerdict()

    def run(self, logs: list[Commitlog] | None = None) -> None:
        """``logs`` are what was listed just before, where it was. Raises ReindexError. Nothing of the store is written to."""
        (log,) = logs or self.settings.logs()
        self.summary.notes += broker_notes(self.settings)
        self.settings, notes = take_sizes(of_build(self.settings))
        self.summary.notes += notes
        with self.engines() as engine, work_folder(self.settings.work) as stage:
            up = self.summary.seconds["session"] = self.reporter.elapsed()
            try:
                self._verify(engine, stage, log)
                check_unchanged(log, self.settings.build.roots)
            finally:
                self.summary.seconds["verify"] = self.reporter.elapsed() - up
        mend = advise(self.settings, self.tally, self.log_verdict, self.summary.orders, self.summary.idle_queues)
        mend.build = dataclasses.replace(self.settings.build, store=self.summary.store)
        self.summary.take(self.tally, mend)

    @contextlib.contextmanager
    def _timed(self, stage: str, beside: bool = False) -> Iterator[None]:
        """``beside``: others run at the same time."""
        begin = time.monotonic()
        try:
            yield
        finally:
            (self.summary.beside if beside else self.summary.seconds)[stage] = time.monotonic() - begin

    def _verify(self, engine: Engine, stage: Stage, log: Commitlog) -> None:
        settings, build = self.settings, self.settings.build
        chosen = sampled(log.segments, settings.sample)
        unread = tuple((s.start, s.segment_end) for s in log.segments if s not in chosen)
        self._tell_plan(log, chosen)
        keys = engine.buckets(-(-sum(s.data_end - s.start for s in chosen) // BUCKET_BYTES))
        task = VerifyScan(stage, "", 0, self._scan_settings(), ANY_FILE, keys)
        scan = Scan(engine, stage, task, self.reporter, store=build.store)
        queues = Queues(scan, settings, tuple(log.segments), unread)
        index = Index(scan, settings)

        def list_queues() -> Tally:
            with self._timed("list", beside=True):
                return queues.list_files(self.summary)

        def check_index() -> Tally:
            with self._timed("check", beside=True):
                return index.check_files(log.segments[0].start if log.segments else 0, self.summary)

        # Beside the scan: none of them keeps all cores busy for all of its time.
        with self._timed("scan"), ThreadPoolExecutor(2, thread_name_prefix="files") as pool:
            looked = [
                pool.submit(look) for part, look in ((QUEUES, list_queues), (INDEX, check_index)) if part in settings.only
            ]
            segment_bytes = max((s.segment_end - s.start for s in chosen), default=1)
            size = sum(s.data_end - s.start for s in chosen)
            scan.first(chosen, range_size(build, size, segment_bytes, engine.cores), INT64_MAX)
            chain = scan.settle(chosen)
            for part in looked:
                self.tally.merge(part.result())
        accepted = chain.accepted
        self._count(chosen, accepted)
        if LOG in settings.only:
            self._judge_log(log, chain, unread)
        queues.rolled_back = chain.rolled_back
        if chain.stale:
            queues.stale = chain.stale.offset, chain.stale.offset + chain.stale.length
        damaged = [hole for hole in chain.holes if not _between(hole.offset, unread)]
        holes = tuple(hole.offset for hole in damaged)
        self.log_verdict.damaged = bool(holes)
        self.log_verdict.undecided = self._unmounted(log, accepted) or stale_tails.undecided(chain)
        self.log_verdict.cut = first_cut(self.settings.build.broker_version, log.segments, damaged)
        with self._timed("compare"), ThreadPoolExecutor(2, thread_name_prefix="compare") as pool:
            both: list[Future[Any]] = []
            if QUEUES in settings.only:
                both.append(pool.submit(self._part, "consumequeue", lambda: queues.compare(accepted, holes)))
            if INDEX in settings.only:
                both.append(pool.submit(self._part, "index", lambda: index.compare(accepted, log.segments, unread)))
            for compared in both:
                compared.result().tell(self.tally, self.summary)
        if CHECKPOINT in settings.only:
            self._judge_checkpoint(log, accepted, index)

    def _part(self, name: str, compare: Callable[[], Any]) -> Any:
        with self._timed(name, beside=True), self.reporter.step(f"compare {name}") as step:
            self.reporter.line(f"compare: {name}")
            result = compare()
            self.reporter.line(f"compare: {name}: done after {step.seconds:.1f} s")
            return result

    def _scan_settings(self) -> ScanSettings:
        only = self.settings.only
        wanted = scan_settings(self.settings.build)
        return dataclasses.replace(wanted, want_units=QUEUES in only, want_items=INDEX in only, want_digests=False)

    def _tell_plan(self, log: Commitlog, chosen: list[Segment]) -> None:
        build, summary = self.settings.build, self.summary
        summary.segments, summary.segments_read = len(log.segments), len(chosen)
        summary.sizes = {"commitlog": log.size, "consumequeue": 0, "index": 0}
        summary.settings = build.for_manifest() | {"only": list(self.settings.only)}
        if len(chosen) < len(log.segments):
            summary.notes.append(
                f"a sample: {len(chosen)} of {counted(len(log.segments), 'segment')} were read, "
                "only what points there was compared; batch queues were not"
            )

    def _count(self, chosen: list[Segment], accepted: list[RangeSummary]) -> None:
        summary = self.summary
        summary.bytes = sum(segment.data_end - segment.start for segment in chosen)
        summary.records = sum(s.records for s in accepted)
        summary.items = sum(s.items for s in accepted)
        self.log_verdict.inner_batches = sum(s.inner_batches for s in accepted)
        if self.log_verdict.inner_batches and not self.settings.build.batch_topics:
            summary.notes.append("the log has inner batches: give --topics-config, or their queues are compared as plain ones")

    def _unmounted(self, log: Commitlog, accepted: list[RangeSummary]) -> str:
        """Why a build shall not be advised of a log that lacks a disk, as it seems; "" where it seems whole."""
        bare = empty_log.bare_roots(self.settings.build, log)
        if bare:
            text = f"{escape(bare[0])}: holds no segment: is its disk mounted?"
        elif not any(summary.records for summary in accepted):
            text = "the log holds no record: is its disk mounted?"
        else:
            return ""
        self.summary.notes.append(text)
        return f"{text} A build drops all that the log does not hold"

    def _judge_log(self, log: Commitlog, chain: Chain, unread: tuple[tuple[int, int], ...]) -> None:
        tally, summary = self.tally, self.summary
        for hole in chain.holes:
            if _between(hole.offset, unread):
                continue  # not missing: left out of the sample
            kind = "log-segment-missing" if hole.reason == r.MISSING_SEGMENT else "log-damage"
            text = f"offset {hole.offset}, {counted(hole.length, 'byte')}: {hole.reason}"
            tally.add(kind, 1, f"commitlog/{hole.segment}", hole.offset, text)
            if len(summary.damage) < DAMAGE_TOLD:
                entry = {"segment": hole.segment, "offset": hole.offset, "length": hole.length, "reason": hole.reason}
                summary.damage.append(entry)
        if chain.stale:
            summary.notes.append(f"offset {chain.stale.offset}, {chain.stale.length} bytes: {chain.stale.reason}")
        elif chain.torn:
            torn = chain.torn
            summary.notes.append(
                f"torn tail at offset {torn.offset}, {counted(torn.length, 'byte')}: a crash leaves it, a broker cuts it"
            )
        last = log.segments[-1] if log.segments else None
        if last and last.data_end == last.start and self.settings.build.broker_version != "4.9":
            summary.notes.append(f"commitlog/{last.name} has no bytes: a broker of 5.x removes it")
        elif last and last.data_end < last.segment_end:
            text = f"{last.data_end - last.start} of {last.segment_end - last.start} bytes"
            tally.add("log-segment-short", 1, f"commitlog/{last.name}", last.data_end, text)

    def _judge_checkpoint(self, log: Commitlog, accepted: list[RangeSummary], index: Index) -> None:
        store, tally = self.settings.build.store, self.tally
        if files.look(files.join(store, "abort")).kind != files.ABSENT:
            tally.add("abort-file", 1, "abort", 0, "is there")
        path = files.join(store, "checkpoint")
        if files.look(path).kind != files.FILE:
            tally.add("checkpoint-missing", 1, "checkpoint", 0, "is not there")
            return
        with files.Reader(path) as reader:
            data = reader.read(0, min(reader.size(), CHECKPOINT_READ))
        if self.settings.trimmed:
            data = data.ljust(CHECKPOINT_SIZE, b"\0")
        dispatched = [s for s in accepted if s.records]
        with_units = [s for s in accepted if s.unit_records]
        times = StoreTimes(
            log.segments[0].start if log.segments else 0,
            log.segments[-1].segment_end if log.segments else 0,
            dispatched[-1].last_time if dispatched else 0,
            with_units[-1].last_unit_time if with_units else 0,
            len(dispatched),
            len(with_units),
            max((s.time_max for s in dispatched), default=0),
        )
        found, differences, usual = compare_checkpoint(data, times, index.ends())
        tally.merge(differences)
        self.summary.checkpoint = dataclasses.asdict(found)
        if usual:
            self.summary.notes.append(
                f"the next crash deletes the last IndexFile ({counted(usual, 'item')}), as with any broker: "
                "a build seals it, then no crash does"
            )
        if 0 < found.physic < min(times.last_time, times.last_unit_time) and "checkpoint-stale" not in differences.counts:
            self.summary.notes.append(
                "the checkpoint's physicMsgTimestamp is older than the last record, as a clean stop right after it leaves it: "
                "the next crash dispatches more again"
            )
        if times.log_end < found.master_flushed and "checkpoint-master" not in differences.counts:
            behind = found.master_flushed - times.log_end
            self.summary.notes.append(
                f"masterFlushedOffset {found.master_flushed} lies {behind} bytes behind the log's end: "
                "the store is a replica's, which had not caught up with its master"
            )


def broker_notes(settings: VerifySettings) -> list[str]:
    """That a broker runs on what is compared, as far as it can be told."""
    if settings.build.snapshot:
        return []
    running, untold = running_broker.brokers(settings.build, [settings.against] if settings.against else [])
    return [f"{one}: what it writes meanwhile may be told as differences, or end the run" for one in running] + untold


def sampled(segments: list[Segment], share: float) -> list[Segment]:
    """Evenly spread segments, always the same ones, with the last: it says where the log ends."""
    count = len(segments)
    wanted = max(1, round(share * count)) if share < 1 else count
    chosen = {number * count // wanted for number in range(wanted)} | {count - 1}
    return [segment for number, segment in enumerate(segments) if number in chosen]


def _between(offset: int, stretches: tuple[tuple[int, int], ...]) -> bool:
    return any(low <= offset < high for low, high in stretches)
