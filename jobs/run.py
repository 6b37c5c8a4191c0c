"""One build from beginning to end: list, plan, scan, chain, decide, write, publish."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from rocketmq_reindex.jobs.building import decisions, drafting, manifest, notices, planning, writing
from rocketmq_reindex.jobs.building.empty_log import check_records
from rocketmq_reindex.jobs.building.estimate import check_free, dry_run_lines
from rocketmq_reindex.jobs.building.inputs import Inputs, look_at
from rocketmq_reindex.jobs.building.planning import make_checkpoint, range_size, scan_settings
from rocketmq_reindex.jobs.building.running_broker import check_broker
from rocketmq_reindex.jobs.building.scanning import Scan
from rocketmq_reindex.jobs.building.settings import BuildSettings
from rocketmq_reindex.jobs.building.summary import Summary
from rocketmq_reindex.jobs.building.unclean_stop import vouched
from rocketmq_reindex.jobs.incremental.increment import Increment
from rocketmq_reindex.jobs.publishing import output
from rocketmq_reindex.jobs.spark.engine import Engine, SparkEngine
from rocketmq_reindex.jobs.store.segments import Commitlog, check_unchanged
from rocketmq_reindex.jobs.watching.progress import Probe, Reporter
from rocketmq_reindex.storage_format.digest import new_digest
from rocketmq_reindex.storage_format.index.plan import IndexFilePlan, plan_index_files
from rocketmq_reindex.storage_format.integers import INT64_MAX
from rocketmq_reindex.storage_format.queue.units import UNIT_SIZE
from rocketmq_reindex.storage_format.scan.range_summary import RangeSummary
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.scan.ranges import ScanTask
from rocketmq_reindex.udfs.stage import Stage

if TYPE_CHECKING:
    from rocketmq_reindex.jobs.tables.recorder import Recorder


class Build:
    """State of one run; ``summary`` is true at every moment, also when the run fails."""

    def __init__(
        self, settings: BuildSettings, reporter: Reporter, engines: Callable[[], AbstractContextManager[Engine]]
    ) -> None:
        self.settings = settings
        self.engines = engines
        self.reporter = reporter
        self.summary = Summary()
        self._tree: Hashable | None = None
        self._target = ""
        self.recorder: Recorder | None = None
        self.increment: Increment | None = None
        self.unchanged = False
        """whether the build is the one that stands in DIR already"""

    @property
    def published(self) -> bool:
        """Whether DIR is what this run built; looked at when it is asked for, since an interrupt may come behind the rename."""
        return self._tree is not None and output.identity(self._target) == self._tree

    def run(self, inputs: Inputs | None = None) -> None:
        """``inputs`` are what was looked at just before, where it was. Raises ReindexError; nothing is published then."""
        inputs = inputs or look_at(self.settings)
        self.summary.warnings += inputs.warnings
        try:
            self._run_on(inputs.target, inputs.log)
        finally:
            self.summary.warnings += inputs.passing

    def _run_on(self, target: str, log: Commitlog) -> None:
        settings = self.settings
        if "index" in settings.only and "checkpoint" not in settings.only:
            self.summary.warnings.append(
                "index without checkpoint: with an older checkpoint the next crash deletes it: take --only index,checkpoint"
            )
        if settings.partial and "consumequeue" in settings.only:
            self.summary.warnings.append(
                "a partial build beside the full log: a broker re-dispatches only records above the newest unit"
            )
        if settings.dry_run:
            for line in dry_run_lines(settings, scan_settings(settings), log):
                # With --json stdout holds the summary alone.
                print(line, file=sys.stderr if settings.json else sys.stdout)
            self.summary.bytes = log.size
            return
        with output.locked(target):
            if settings.incremental:
                units_per_file = settings.cq_file_size // UNIT_SIZE
                self.increment = Increment(settings, scan_settings(settings), units_per_file, target, log, self.reporter)
                self.increment.open()
                if self.increment.nothing_new():
                    self.increment.say_again(self.summary)
                    return
            self._run(target, log)

    def _run(self, target: str, log: Commitlog) -> None:
        settings = self.settings
        with output.staging(target, settings.overwrite, not settings.keep_zeros) as stage:
            if self.increment is None or self.increment.before.last is None:
                check_free(settings, scan_settings(settings), log, stage)
            with self.engines() as engine:
                up = self.summary.seconds["session"] = self.reporter.elapsed()
                with self._recorded(engine, log, stage, target):
                    try:
                        self._make(engine, stage, log, target)
                    finally:
                        self.summary.seconds["build"] = self.reporter.elapsed() - up

    @contextlib.contextmanager
    def _recorded(self, engine: Engine, log: Commitlog, stage: Stage, target: str) -> Iterator[None]:
        """With --tables: rows of the run, at its start and at its end."""
        if not self.settings.tables or not isinstance(engine, SparkEngine):
            yield
            return
        from rocketmq_reindex.jobs.tables.recorder import Recorder

        self.recorder = recorder = Recorder(self.settings, self.summary, self.reporter, engine, log)
        recorder.open()
        # Behind a URI a build stays where it was written.
        tree = stage.tree if files.no_rename(target) else target
        try:
            with recorder.beginning():
                yield
        except Exception as error:
            if not self.published:
                recorder.failed(error)
                raise
            # What went wrong after the rename takes nothing back.
            self._tell_rows(recorder, tree)
            raise
        self._tell_rows(recorder, tree)

    def _tell_rows(self, recorder: Recorder, tree: str) -> None:
        recorder.published(files.join(tree, output.MANIFEST))
        if recorder.complete and self.increment:
            self.increment.rows_told()

    def _make(self, engine: Engine, stage: Stage, log: Commitlog, target: str) -> None:
        """Build and publish."""
        settings = self.settings
        keys = engine.buckets(-(-log.size // planning.BUCKET_BYTES))
        units_per_file = settings.cq_file_size // UNIT_SIZE
        task = ScanTask(stage, "", 0, scan_settings(settings), units_per_file, keys, settings.write_topics)
        memory = self.increment.memory if self.increment else None
        try:
            if self.increment:
                self.increment.staged(stage)
            scan = Scan(engine, stage, task, self.reporter, memory, store=settings.store)
            self._build(scan, log, target)
        except Exception:
            # What looked like damage, and would be refused for good, may be a broker at work; and a segment that
            # is cut while it is mapped ends the worker.
            check_unchanged(log, settings.roots)
            raise
        if self.recorder:
            self.recorder.begun()
        check_unchanged(log, settings.roots)
        if self.unchanged:
            return
        # One may have been started meanwhile.
        check_broker(settings)
        with self.reporter.step("publish"):
            self._tree, self._target = output.identity(stage.tree), target
            output.publish(stage, target, settings.overwrite)
            output.settle(target)
        if self.increment:
            self.increment.sweep(stage)

    def _build(self, scan: Scan, log: Commitlog, target: str) -> None:
        settings, summary, stage = self.settings, self.summary, scan.stage
        segment_bytes = max((s.segment_end - s.start for s in log.segments), default=1)
        size = range_size(settings, log.size, segment_bytes, scan.engine.cores)
        scan.first(log.segments, size, settings.until_offset)
        self._check_tables()
        chain = scan.settle(log.segments)
        with self.reporter.step("decide"):
            accepted, order = decisions.decide(scan, settings, log.segments, chain, summary)
        notices.broker_cuts(settings, log.segments, chain.holes, summary)
        self._count(accepted, log)
        summary.warnings += check_records(settings, log, summary.records, summary.bytes, target)
        increment = self.increment
        plans = increment.plan_index(accepted) if increment else plan_index_files(accepted, settings.index_items)
        if increment is None or increment.before.last is None:
            check_free(settings, scan_settings(settings), log, stage, accepted, plans, order.extra_units)
        self._check_tables()
        with self.reporter.stage("write", "buckets and IndexFiles", *self._to_write(scan, plans)) as shown:
            if increment:
                taken = increment.write(scan, accepted, order, plans)
                written = taken.all
            else:
                written = writing.write_both(scan, settings, accepted, order, plans)
            shown.count(units=written.units, items=sum(word["items"] for word in written.index))
        summary.units = written.units
        summary.files = {"consumequeue": written.queue_files, "index": len(written.index)}
        until = chain.later if chain.later >= 0 else INT64_MAX
        more = [drafting.write_topics(scan, settings, accepted, summary)] if settings.write_topics else []
        with self.reporter.step("finish"):
            own, parts = self._finish(stage, log, scan, accepted, plans, written, until, more)
            if increment:
                self.unchanged = increment.save(stage, accepted, order, taken, own, parts, summary)
                if self.recorder:
                    increment.owe_rows()
        if summary.lost:
            summary.exit = 3

    def _check_tables(self) -> None:
        """Raises InputError when nothing can be published since --tables cannot be written: looked at between long stages."""
        if self.recorder:
            self.recorder.check()

    def _to_write(self, scan: Scan, plans: list[IndexFilePlan]) -> tuple[int, int, Probe]:
        """How many buckets and IndexFiles are to be written, no bytes, and how far that is."""
        parts = len(set(scan.task.keys)) if "consumequeue" in self.settings.only else 0
        total = parts + (len(plans) if "index" in self.settings.only else 0)

        def probe() -> tuple[int, int]:
            return len(files.names(scan.stage.parts)) + len(files.names(scan.stage.made)), 0

        return total, 0, probe

    def _count(self, accepted: list[RangeSummary], log: Commitlog) -> None:
        summary = self.summary
        until = self.settings.until_offset
        summary.bytes = sum(max(0, min(segment.data_end, until) - segment.start) for segment in log.segments)
        summary.records = sum(s.records for s in accepted)
        summary.items = sum(s.items for s in accepted) if "index" in self.settings.only else 0
        notices.of_counts(self.settings, accepted, summary)

    def _finish(
        self, stage: Stage, log: Commitlog, scan: Scan, accepted: list[RangeSummary], plans: list[IndexFilePlan],
        written: writing.Written, until: int, more: list[dict[str, Any]],
    ) -> tuple[list[dict[str, Any]], list[str]]:  # fmt: skip
        """Returns the driver's own entries of the manifest, and the parts of the others."""
        settings = self.settings
        if self.recorder:
            self.recorder.saw(scan, accepted, until)
        for part in ("consumequeue", "index"):
            if part in settings.only:
                files.make_folder(files.join(stage.tree, part))
        entries = [*more, *writing.name_index_files(stage, written)]
        fields = None
        if "checkpoint" in settings.only:
            checkpoint = make_checkpoint(settings, log, accepted, plans)
            checkpoint = vouched(settings, checkpoint, self.summary.warnings)
            data = checkpoint.to_bytes()
            files.write_bytes(stage.temporary, files.join(stage.tree, "checkpoint"), [data])
            entries.append(
                {"path": "checkpoint", "size": len(data), "used": 40, "digest": new_digest([data[:40]]).digest().hex()}
            )
            fields = dataclasses.asdict(checkpoint)
        summaries = scan.summaries.values()
        return entries, manifest.write(stage, settings, log, self.summary, summaries, fields, written.parts, entries, until)
