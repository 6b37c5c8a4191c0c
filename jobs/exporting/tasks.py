"""An export in parts, segment by segment: what is kept of one that may be stopped, the files of each segment that was read
whole and a mark; and an export by the tasks of an engine, whose files the driver takes over.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex import files, version
from rocketmq_reindex.jobs.engines.engine import TASKS_PER_CORE, Engine
from rocketmq_reindex.jobs.engines.local import own_cores
from rocketmq_reindex.jobs.exporting.options import ExportSettings
from rocketmq_reindex.jobs.publishing import local
from rocketmq_reindex.jobs.watching import progress
from rocketmq_reindex.storage_format.errors import InputError, ProgressListener, ReindexError
from rocketmq_reindex.storage_format.showing import counted, escape, listed
from rocketmq_reindex.udfs import staging
from rocketmq_reindex.udfs.exporting import choosing, segments, sinks
from rocketmq_reindex.udfs.messages.log_rows import LogRange
from rocketmq_reindex.udfs.staging import StagingFolder

# ---------------------------------------------------------------------------------------------------------------------- options

_OPTIONS: Final = "options.json"
_SAME_ROWS: Final = frozenset({"to", "choice", "selector", "allow_empty", "resumable", "json", "count", "engine", "master"})
"""settings that say nothing of which rows are written, and how"""


def bound_of(settings: ExportSettings, only: npt.NDArray[np.int64] | None, unread: choosing.Unread | None) -> dict[str, str]:
    """Return, by names for people, all that decides which rows are written, and how: besides the log itself."""
    selector = settings.choice.selector
    values = {**vars(settings), **vars(settings.choice), "sql": None if selector is None else selector.text}
    # A later run may be started in another folder.
    values["store"] = settings.store and files.absolute(settings.store)
    values["consumer_offsets"] = tuple(map(files.absolute, settings.consumer_offsets))
    bound = {name.replace("_", " "): repr(value) for name, value in values.items() if name not in _SAME_ROWS}
    return bound | {
        "undecided half messages": "" if only is None else segments.digest(only.tobytes()),
        "offsets of the group": "" if unread is None else segments.digest(json.dumps(unread, sort_keys=True).encode()),
        "version of rmq-reindex": version.__version__,
    }


# ------------------------------------------------------------------------------------------------------------------------- work


def check_none(to: str, target: str) -> None:
    """Raise InputError where an export that may go on was stopped: another one would leave its work there for ever."""
    root = local.work_folder(target)
    if os.path.lexists(root):
        how = "an export with --resumable was stopped there"
        raise InputError(f"--to {escape(to)}: {how}: give --resumable to go on, or remove {escape(root)}")


def _is_ours(root: str) -> bool:
    """Return whether a work folder is one, and no one else made it. Raises OSError where it is not there."""
    status = os.lstat(root)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def clear_published(settings: ExportSettings) -> None:
    """Remove the work folder of an export that was killed once it was published. Raises nothing."""
    with contextlib.suppress(OSError, ReindexError):
        target = local.real_path(settings.to)
        kept = StagingFolder(local.work_folder(target))
        if not settings.resumable or not _is_ours(kept.root):
            return
        with local.locked(target):
            written = os.path.join(kept.root, _FILE)
            if settings.is_folder:
                is_done = not os.path.isdir(kept.sealed) and not os.path.isdir(kept.tree)
            else:
                is_done = os.path.exists(written) and os.path.samefile(written, target)
            if is_done or not os.path.exists(os.path.join(kept.root, _OPTIONS)):
                files.remove_tree(kept.root)


_FILE: Final = "export"


class Work:
    """The work folder of an export, whose place is locked. ``tree`` has the files of segments: by default the export's."""

    def __init__(self, root: str, tree: str = "") -> None:
        self._staging = StagingFolder(root)
        self.root, self.tree = root, tree or self._staging.tree
        self.file = os.path.join(self.root, _FILE)
        """what is written where that is one file"""
        self._marks = os.path.join(self.root, segments.MARKS)
        self._resumed: int | None = None
        self.warnings: list[str] = []

    def open(self, to: str, bound: dict[str, str]) -> None:
        """Go on with what is there, or begin. ``bound`` decides which rows are written (``bound_of``).

        Raises InputError for the work of another export, OSError.
        """
        said = os.path.join(self.root, _OPTIONS)
        if os.path.lexists(self.root) and not _is_ours(self.root):
            raise InputError(f"--to {escape(to)}: {escape(self.root)} is no folder of yours: remove it")
        if os.path.lexists(self.root) and not os.path.lexists(said):
            # A run was killed while it made the folder, or removed it.
            self.remove()
        if not os.path.lexists(self.root):
            os.mkdir(self.root, 0o700)
            os.mkdir(self.tree)
            self.begin()
            with open(f"{said}{segments.ASIDE}", "x", encoding="utf-8") as file:
                json.dump(bound, file)
            os.rename(f"{said}{segments.ASIDE}", said)
        self._check(to, said, bound)
        # A task of the run before may still go on. Whatever engine this run has, none of it must come between its files.
        files.remove_tree(os.path.join(self.root, segments.ATTEMPTS))
        if os.path.isdir(self._staging.sealed) and not os.path.lexists(self.tree):
            # It was stopped while it was published.
            os.rename(self._staging.sealed, self.tree)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.file)

    def _check(self, to: str, said: str, bound: dict[str, str]) -> None:
        try:
            with open(said, encoding="utf-8") as file:
                before = json.load(file)
            other = [name for name, value in bound.items() if before.get(name) != value]
        except (OSError, ValueError, AttributeError):
            raise InputError(f"--to {escape(to)}: {escape(self.root)} cannot be read: remove it, to begin anew") from None
        if other:
            raise InputError(
                f"--to {escape(to)}: the export that was stopped there is another one, by its {escape(listed(other), 200)}: "
                f"give what it was begun with, or remove {escape(self.root)}"
            )

    def begin(self) -> None:
        """Make what is needed besides the folders of files."""
        os.mkdir(self._marks)

    @property
    def resumed(self) -> int:
        """How many segments an earlier run had read."""
        return self._resumed or 0

    def missing(self, log: segments.LogSegments) -> tuple[int, ...]:
        """Return the numbers of the segments that are not done. What is left of these is removed."""
        marks = self._valid(log.plan)
        self._clear(marks)
        self._resumed = len(marks)
        return tuple(number for number, each in enumerate(log.plan) if segments.name_of(each) not in marks)

    def read(self, log: segments.LogSegments, sink: sinks.SegmentSink) -> Iterator[choosing.Chosen]:
        """Read the segments that are not done, into ``sink``. Yield what is chosen of all, in the order of the log."""
        marks = self._valid(log.plan)
        self._clear(marks)
        if self._resumed is None:
            self._resumed = len(marks)
        for log_range in log.plan:
            name = segments.name_of(log_range)
            if (mark := marks.get(name)) is not None:
                sink.take_over(mark.written)
                yield from mark.chosen()
            else:
                yield from segments.export_segment(
                    log, log_range, own_cores(), sink, self.tree, os.path.join(self._marks, name)
                )  # fmt: skip

    def _valid(self, plan: Iterable[LogRange]) -> dict[str, segments.Mark]:
        """Return the marks, by segment, of what is as it was: the segment, and all files that were made of it."""
        there = {entry.name: entry.size for entry in files.below(self.tree)}
        valid, left = dict[str, segments.Mark](), {*map(segments.name_of, plan)}
        for name in sorted(name for name in os.listdir(self._marks) if name not in left and not name.endswith(segments.ASIDE)):
            self.warnings.append(f"segment {escape(name)}: is in the log no more: what was exported of it is left out")
        for log_range in plan:
            name = segments.name_of(log_range)
            with contextlib.suppress(FileNotFoundError, ValueError, LookupError, TypeError):
                mark = segments.Mark(os.path.join(self._marks, name), self.tree)
                known = segments.seen(log_range) | segments.samples(log_range, mark.segment["end"])
                if mark.segment != json.loads(json.dumps(known)):
                    self.warnings.append(f"segment {log_range.segment}: was changed since it was exported: it is read again")
                elif lost := [each for each, size in mark.sizes.items() if there.get(each) != size]:
                    gone = f"{counted(len(lost), 'file')} of its messages"
                    self.warnings.append(f"segment {log_range.segment}: {gone} are not as they were: it is read again")
                else:
                    valid[name] = mark
        return valid

    def _clear(self, marks: Mapping[str, segments.Mark]) -> None:
        """Remove all but these marks and their files: first marks, so that none is without its files."""
        for name in os.listdir(self._marks):
            if name not in marks:
                os.unlink(os.path.join(self._marks, name))
        kept = {name for mark in marks.values() for name in mark.sizes}
        for entry in files.below(self.tree):
            if entry.name not in kept:
                os.unlink(os.path.join(self.tree, entry.name))
        for root, _, _ in os.walk(self.tree, topdown=False):
            if root != self.tree and not os.listdir(root):
                os.rmdir(root)

    def remove(self) -> None:
        """Remove the folder: its options first, without which the rest is none."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self.root, _OPTIONS))
        files.remove_tree(self.root)


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
