"""An export by the tasks of an engine: each writes the files of a segment, and the driver takes them over."""

from __future__ import annotations

import contextlib
import json
import threading
import uuid
from collections.abc import Iterator, Mapping
from typing import Final

from rocketmq_reindex import files
from rocketmq_reindex.jobs.engines.engine import TASKS_PER_CORE, Engine
from rocketmq_reindex.jobs.exporting.options import ExportSettings
from rocketmq_reindex.jobs.exporting.resuming import Work
from rocketmq_reindex.jobs.watching import progress
from rocketmq_reindex.storage_format.errors import ProgressListener
from rocketmq_reindex.udfs import staging
from rocketmq_reindex.udfs.exporting import choosing, segments, sinks

_AT_ONCE: Final = 64
"""Segments that are counted at once, at least: behind them all it is told how far the count is"""


class ExportTasks:
    """The segments of a log as tasks. ``progress`` learns of the bytes that are read."""

    def __init__(self, engine: Engine, log: segments.LogSegments, progress: ProgressListener) -> None:
        self._engine, self._log, self._progress = engine, log, progress

    def export(self, settings: ExportSettings, work: Work, sink: sinks.SegmentSink) -> None:
        """Write the files and the marks of all segments that have none, for ``sink`` to take over.

        Raises InputError where a worker does not see the folder, or the log, and whatever the engine raises.
        """
        log, missing = self._log, work.missing(self._log)
        columns = sink.columns if isinstance(sink, sinks.ParquetSink) else None
        place = segments.SharedFolder(settings.to, work.root, work.tree, uuid.uuid4().hex, settings.format, columns)
        place.make()
        self._look_around(place)
        sizes = {segments.name_of(log.plan[number]): self._bytes(number) for number in missing}
        self._progress.begin("export", sum(sizes.values()))
        if missing:
            # A few segments leave cores without a task.
            function = segments.ExportSegments(log, place, missing, max(1, self._engine.cores // len(missing)))
            with self._told(staging.StagingFolder(work.root), sizes):
                self._engine.numbers(function, len(missing))
        place.end()
        self._progress.end()

    def count(self) -> Iterator[choosing.Chosen]:
        """Yield what is taken of the segments, in their order. Each may name all topics of the log: one at a time is held."""
        self._look_around(None)
        total, cores = len(self._log.plan), self._engine.cores
        step = max(_AT_ONCE, TASKS_PER_CORE * cores)
        for first in range(0, total, step):
            tasks = min(step, total - first)
            function = segments.CountSegments(self._log, first, max(1, cores // tasks))
            for text in self._engine.each_number(function, tasks):
                yield from map(segments.chosen_of, json.loads(text))

    def _bytes(self, number: int) -> int:
        spec = self._log.plan[number].spec
        return spec.data_end - spec.low

    def _look_around(self, place: segments.SharedFolder | None) -> None:
        """Raise InputError where a worker lacks a disk: before one of them has worked for hours."""
        if not self._engine.is_here and self._log.plan:
            of_folders = {files.parent(log_range.spec.path): log_range.spec.path for log_range in self._log.plan}
            look = segments.LookAround(place, tuple(of_folders.values()))
            self._engine.numbers(look, self._engine.cores)

    @contextlib.contextmanager
    def _told(self, folder: staging.StagingFolder, sizes: Mapping[str, int]) -> Iterator[None]:
        """Tell how far the tasks are, while this lasts."""
        done, probe = threading.Event(), progress.StageWork.of_tasks(folder, "bytes", sizes).probe

        def watch() -> None:
            told = 0
            while not done.wait(staging.INTERVAL):
                with contextlib.suppress(OSError):
                    now, _ = probe()
                    self._progress.moved(max(0, now - told))
                    told = max(told, now)

        thread = threading.Thread(target=watch, name="progress-export", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
