"""One build from beginning to end: list, plan, scan, chain, decide, write, publish.

The steps that differ in an incremental build and in a repair are those of ``FullBuild``, which ``building.incremental`` and
``jobs.repairing`` override. What is recorded of the run is up to ``Unrecorded``, which ``jobs.tables`` overrides.
"""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from rocketmq_reindex import files
from rocketmq_reindex.jobs.building import (
    advice,
    decisions,
    delaying,
    expired_queues,
    finishing,
    full,
    inputs as building_inputs,
    options as building_options,
    planning,
    queue_kinds,
    scanning,
    store_signs,
    summary as building_summary,
)
from rocketmq_reindex.jobs.engines.engine import BUCKET_BYTES, Engine, Engines
from rocketmq_reindex.jobs.publishing import layout, output
from rocketmq_reindex.jobs.store.settings import Commitlog, check_unchanged
from rocketmq_reindex.jobs.watching.progress import Reporter
from rocketmq_reindex.storage_format.layouts import INT64_MAX
from rocketmq_reindex.storage_format.queue.units import UNIT_SIZE
from rocketmq_reindex.storage_format.scan.ranges import RangeSummary
from rocketmq_reindex.storage_format.showing import counted
from rocketmq_reindex.udfs.scan.ranges import ScanTask
from rocketmq_reindex.udfs.staging import StagingFolder
from rocketmq_reindex.udfs.write.queues import write_lone_units


class Unrecorded:
    """Records nothing of a run. ``jobs.tables`` overrides these methods to write its rows."""

    has_rows = False
    """whether a published build gets rows"""

    def recording(
        self, manifest: str, published: Callable[[], bool], complete: Callable[[], None]
    ) -> contextlib.AbstractContextManager[None]:
        """Return a context for the whole run; its end records the outcome.

        ``manifest`` is the path of the manifest once ``published()`` is true; ``complete`` is called when all rows are written.
        """
        _ = manifest, published, complete
        return contextlib.nullcontext()

    def check(self) -> None:
        """Look, just before publishing, whether this run is still the one that is recorded. Raises InputError if not."""

    def built_from(self, scan: scanning.Scan, accepted: list[RangeSummary], until: int) -> None:
        """The build is made from these ranges of the log, which was read up to the offset ``until``."""


MakeSteps = Callable[[Any, str, Commitlog, Reporter], full.FullBuild]
"""Returns the steps of a run from its settings, the real path of DIR, the log, and what shows the run's stages"""
MakeRecorder = Callable[[building_options.BuildSettings, building_summary.BuildResult, Reporter, Engine, Commitlog], Unrecorded]
"""Returns what records a run"""


@dataclass(frozen=True)
class _Work:
    """What one run works with: ``target`` is the real path of DIR."""

    steps: full.FullBuild
    recorder: Unrecorded
    engine: Engine
    staging: StagingFolder
    log: Commitlog
    target: str


class Build:
    """One run of a build. ``result`` is true at every moment, also when the run fails."""

    def __init__(
        self, settings: building_options.BuildSettings, reporter: Reporter, engines: Engines,
        make_steps: MakeSteps, make_recorder: MakeRecorder, result: building_summary.BuildResult,
    ) -> None:  # fmt: skip
        self.settings, self.reporter, self.engines = settings, reporter, engines
        self._make_steps, self._make_recorder = make_steps, make_recorder
        self.result = result
        self.recorder = Unrecorded()
        self._tree: Hashable | None = None
        self._target = ""

    @property
    def published(self) -> bool:
        """Whether DIR is what this run built; looked at when it is asked for, since an interrupt may come after the rename."""
        return self._tree is not None and output.identity(self._target) == self._tree

    def run(self, inputs: building_inputs.Inputs | None = None) -> None:
        """Build, and publish to DIR.

        ``inputs`` are what ``look_at`` found just before, if it was called. Raises ReindexError; nothing is published then.
        """
        inputs = inputs or building_inputs.look_at(self.settings)
        self.settings = inputs.settings
        self.result.warnings += inputs.warnings
        self.result.notes += inputs.notes
        self.result.warnings += building_inputs.of_settings(self.settings)
        self.result.notes += building_inputs.of_tables(self.settings)
        delaying.given(self.settings.consumer_offsets)
        try:
            if self.settings.dry_run:
                self._make_plan(inputs)
            else:
                self._run(inputs.target, inputs.log)
        finally:
            self.result.warnings += inputs.passing
            self.result.tell_leftovers()

    def _make_plan(self, inputs: building_inputs.Inputs) -> None:
        scan, log = planning.scan_settings(self.settings), inputs.log
        if not self.settings.incremental:
            planning.check_free(self.settings, scan, log, files.parent(inputs.target))
        lines = planning.dry_run_lines(self.settings, scan, log)
        self.result.plan = [*lines, *self.result.note_lines()]
        self.result.bytes = log.size

    def _run(self, target: str, log: Commitlog) -> None:
        settings, result, reporter = self.settings, self.result, self.reporter
        with output.locked(target):
            steps = self._make_steps(settings, target, log, reporter)
            notes, fields = steps.nothing_new()
            result.notes += notes
            if fields is not None:
                result.repeat(fields)
                result.seconds["build"] = reporter.elapsed()
                return
            with output.staging(target, settings.overwrite, not settings.keep_zeros, result.leftovers) as staging:
                steps.check_room(staging)
                with self.engines() as engine:
                    up = result.seconds["session"] = reporter.elapsed()
                    self.recorder = recorder = self._make_recorder(settings, result, reporter, engine, log)
                    work = _Work(steps, recorder, engine, staging, log, target)
                    # Where no folder can be renamed a build stays where it was written.
                    manifest = files.join(staging.tree if files.no_rename(target) else target, layout.MANIFEST)
                    with recorder.recording(manifest, lambda: self.published, lambda: steps.rows_written(result.leftovers)):
                        try:
                            self._make(work)
                        finally:
                            result.seconds["build"] = reporter.elapsed() - up

    def _make(self, work: _Work) -> None:
        """Build into the staging folder, and publish unless DIR holds the same already."""
        settings, staging, target = self.settings, work.staging, work.target
        try:
            work.steps.staged(staging)
            is_known = self._build(work, self._scan(work))
        except Exception:
            # What looked like damage, and would be refused for good, may be a broker at work. And a segment that is
            # cut while it is mapped ends the worker.
            check_unchanged(work.log, settings.roots)
            raise
        work.recorder.check()
        check_unchanged(work.log, settings.roots)
        if is_known:
            return
        # A broker may have been started meanwhile.
        store_signs.check_broker(settings)
        with self.reporter.step("publish"):
            self._tree, self._target = output.identity(staging.tree), target
            output.publish(staging, target, settings.overwrite, self.result.leftovers)
            output.settle(target)
        work.steps.published(staging, self.result.leftovers)

    def _scan(self, work: _Work) -> scanning.Scan:
        settings, engine, staging = self.settings, work.engine, work.staging
        keys = engine.buckets(-(-work.log.size // BUCKET_BYTES), staging)
        units_per_file = settings.cq_file_size // UNIT_SIZE
        task = ScanTask(
            staging, "", 0, planning.scan_settings(settings), units_per_file, keys, settings.write_topics,
            delays=settings.write_delay, filters=settings.filters,
            both=settings.makes_files and settings.cq_ext == "none", lite=queue_kinds.lite_of(settings),
        )  # fmt: skip
        return scanning.Scan(engine, staging, task, self.reporter, work.steps.memory, store=settings.store)

    def _build(self, work: _Work, scan: scanning.Scan) -> bool:
        """Build into the staging folder. Return whether DIR holds the same build already."""
        settings, result, staging = self.settings, self.result, work.staging
        steps, recorder, log, segments = work.steps, work.recorder, work.log, work.log.segments
        segment_bytes = max((s.segment_end - s.start for s in segments), default=1)
        scan.first(segments, planning.range_size(settings, log.size, segment_bytes, work.engine.cores), settings.until_offset)
        chain = scan.settle(segments)
        result.warnings += advice.of_entries(settings, segments, chain, steps.left_out)
        steps.check_begins(segments, chain)
        try:
            segments, chain = steps.mended(scan, segments, chain, self.reporter)
        finally:
            steps.warnings.add_to(result)
            for name, figure in steps.figures.items():
                setattr(result, name, figure)
        decided = decisions.Decisions(scan, settings, segments, chain)
        with self.reporter.step("decide"):
            try:
                accepted, order = decided.decide()
            finally:
                decided.warnings.add_to(result)
        result.warnings += building_inputs.broker_cuts(settings, segments, chain.holes)
        self._count(accepted, log)
        if not settings.allow_empty:
            advice.check_committed(settings.committed, segments, chain)
        building_inputs.check_left(settings, segments, accepted, chain)
        result.warnings += building_inputs.check_records(settings, log, result.records, result.bytes, work.target)
        plans = steps.plan_index(accepted)
        steps.check_room(staging, accepted, plans, order.extra_units)
        with self.reporter.stage("write", "tasks", *full.to_write(scan, settings, accepted, plans)) as shown:
            written = steps.write(scan, accepted, order, plans)
            shown.count(units=written.units, items=sum(index_file.items for index_file in written.index))
        log_start = segments[0].start if segments else 0
        ended, unknown, told = expired_queues.ended_queues(settings, log_start)
        result.warnings += told or expired_queues.dropped(settings, staging, log_start)
        kept = 0
        if ended and settings.makes_files:
            lone = expired_queues.without_files(staging, ended, settings.light_in_files)
            written.add(write_lone_units(staging, settings.cq_file_size, lone))
            kept = len(lone)
        result.units = written.units
        own_entries, tables = steps.entries, dict[str, int]()
        if settings.makes_database:
            with self.reporter.step("write RocksDB"):
                entries, units, ends = queue_kinds.write_database(scan, settings, segments, accepted, order, ended)
            own_entries += entries
            tables["rocksdb"] = sum(entry["path"].endswith(".sst") for entry in entries)
            result.warnings += queue_kinds.left_out(accepted)
            result.units = written.units if settings.makes_files else units
            kept = max(kept, ends)
        result.warnings += expired_queues.check_unknown(settings, staging, unknown)
        if ended:
            result.notes.append(f"--expired-queues keep: {counted(kept, 'queue')} without a record in the log")
        result.files = {"consumequeue": written.queue_files, "index": len(written.index)} | tables
        until = chain.later if chain.later >= 0 else INT64_MAX
        if settings.write_topics:
            entry, warnings = finishing.write_topics(scan, settings, accepted)
            own_entries.append(entry)
            result.warnings += warnings
        if settings.write_delay or settings.consumer_offsets:
            with self.reporter.step("decide delayed messages"):
                now = time.time_ns() // 1_000_000
                entries, result.delay, warnings = delaying.write_config(scan, settings, segments, chain, accepted, now)
                own_entries += entries
                result.warnings += warnings
        with self.reporter.step("finish"):
            recorder.built_from(scan, accepted, until)
            built = dataclasses.replace(log, segments=segments)
            entries, checkpoint, warnings = finishing.finish(scan, settings, built, accepted, plans, written, result.leftovers)
            own_entries += entries
            result.warnings += warnings
            samples, read = store_signs.log_samples(segments, accepted), scan.summaries.values()
            parts = finishing.write(
                staging, settings, log, samples, result, read, checkpoint, written.parts, own_entries, until
            )
            build_output = full.BuildOutput(accepted, order, written, own_entries, parts)
            is_known, result.incremental = steps.save(staging, build_output, result, recorder.has_rows)
            self._drop_spent(work)
        result.exit = result.exit_by_loss
        return is_known

    @staticmethod
    def _drop_spent(work: _Work) -> None:
        """Remove what the files were made of. Publishing would wait until all of it is on the disk, too."""
        work.engine.forget()
        if not work.staging.build:
            # What stays goes with the staging folder.
            files.remove_tree(work.staging.blocks)

    def _count(self, accepted: list[RangeSummary], log: Commitlog) -> None:
        settings, result = self.settings, self.result
        until = settings.until_offset
        result.bytes = sum(max(0, min(segment.data_end, until) - segment.start) for segment in log.segments)
        result.records = sum(s.records for s in accepted)
        result.parts = settings.only
        if "index" in settings.only:
            result.items = sum(s.items for s in accepted)
            result.tag_items = sum(s.tag_items for s in accepted)
        result.warnings += building_inputs.of_counts(settings, accepted)
