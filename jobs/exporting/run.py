"""One export: what it takes of the log, and the files that appear at its end."""

from __future__ import annotations

import contextlib
import glob
import os
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketmq_reindex import files
from rocketmq_reindex.jobs.engines.engine import Engines
from rocketmq_reindex.jobs.exporting import delta, iceberg, new_store, tasks
from rocketmq_reindex.jobs.exporting.options import ExportResult, ExportSettings
from rocketmq_reindex.jobs.publishing import layout, local, output
from rocketmq_reindex.jobs.querying.message_rows import MessageQuestion, undecided
from rocketmq_reindex.jobs.store import consumer_offsets
from rocketmq_reindex.jobs.store.folders import Notes
from rocketmq_reindex.jobs.store.queue import StoreQueues
from rocketmq_reindex.storage_format.errors import ExitStatus, InputError, ProgressListener
from rocketmq_reindex.storage_format.scan.range_notes import NO_MORE_TOLD
from rocketmq_reindex.storage_format.scan.ranges import Hole, Segment
from rocketmq_reindex.storage_format.showing import escape, near_in_words
from rocketmq_reindex.udfs.exporting import formats, segments, sinks
from rocketmq_reindex.udfs.exporting.choosing import Chooser, Chosen, Unread
from rocketmq_reindex.udfs.messages import log_rows
from rocketmq_reindex.udfs.scan.segments import list_segments
from rocketmq_reindex.udfs.staging import StagingFolder

_NO_TEXT: Final = "\ufffd"
"""what a broker, and so each column, has in the place of bytes that are no UTF-8: no topic that a broker takes has it itself"""


class Export:
    """One run; ``result`` is true at every moment, also when the run fails."""

    def __init__(self, settings: ExportSettings, result: ExportResult, progress: ProgressListener) -> None:
        self.settings, self._result, self._progress = settings, result, progress
        self._engines: Engines | None = None
        self._notes = Notes(result.warnings.append, result.warnings.append)
        self._topics, self._left_out, self._lost = Counter[str](), Counter[str](), False
        self._schema = formats.taken_schema() if settings.is_store else formats.written_schema(body=settings.writes_bodies)
        result.format = settings.format

    def check(self) -> None:
        """Raise InputError for a log that is none, and a place where nothing may be written: before a session starts."""
        if not self.settings.count:
            _checked_target(self.settings)
        _ = self.extent

    def run(self, engines: Engines | None = None) -> list[str]:
        """Export. Return what was done, as lines for people. Raises InputError, OSError.

        ``engines`` open what runs tasks; None: threads of this process do all.
        """
        settings, result, self._engines = self.settings, self._result, engines
        target = "" if settings.count else _checked_target(settings)
        if target and not settings.resumable:
            tasks.check_none(settings.to, target)
        if target and (settings.resumable or self._engines):
            self._run_by_segment(target)
        elif self._engines:
            with self._engines() as engine:
                self.take(tasks.ExportTasks(engine, self._log(None), self._progress).count(), None, "count", self.extent)
        elif settings.count:
            self.take(self.read(None), None, "count", self.extent)
        else:
            batches = self.read(formats.encoder(settings.format, self.segments))
            with output.locked(target), output.staging(target, overwrite=False) as staging:
                self._write(batches, target, staging)
            output.settle(target)
        self.close()
        return result.lines()

    def _log(self, encode: Callable[[pa.RecordBatch], Any] | None) -> segments.LogSegments:
        """Return the segments, and what is taken of them. Raises InputError for what is no log."""
        question = self.question(self._columns)
        pieces = question.pieces(question.schema())
        return segments.LogSegments(pieces, self._chooser(encode), tuple(pieces.rows.plan()))

    def _run_by_segment(self, target: str) -> None:
        """Write files of each segment, by tasks where there is an engine. A resumable one goes on where a run was stopped."""
        settings, result = self.settings, self._result
        with output.locked(target), contextlib.ExitStack() as stack:
            # What fails here leaves no folder. Another run may have published since this one looked.
            _new_target(settings)
            log = self._log(formats.encoder(settings.format, self.segments))
            if settings.resumable:
                work = tasks.Work(local.work_folder(target))
            else:
                made = stack.enter_context(output.staging(target, overwrite=False))
                work = tasks.Work(made.root, made.made if settings.is_store else "")
                work.begin()
            sink, new = self._segment_sink(work, target)
            if settings.resumable:
                work.open(settings.to, tasks.bound_of(settings, log.chooser.only, log.chooser.unread))
            try:
                if self._engines:
                    with self._engines() as engine:
                        tasks.ExportTasks(engine, log, self._progress).export(settings, work, sink)
                with files.naming(target):
                    self.take(work.read(log, sink), None, "write" if self._engines else "export", self.extent)
                    self._check_some(work.remove if settings.resumable else lambda: None)
                    result.warnings += [*work.warnings, *sink.finish()]
            except BaseException:
                sink.abandon()
                raise
            result.resumed = work.resumed
            self._derive(StagingFolder(work.root), new)
            self._publish(StagingFolder(work.root), work.file, target)
            output.settle(target)
            if settings.resumable:
                work.remove()

    def _segment_sink(self, work: tasks.Work, target: str) -> tuple[sinks.SegmentSink, new_store.StoreSink | None]:
        settings = self.settings
        if not settings.is_store:
            return _segment_sink_of(settings.format, self._schema, work.tree, work.file, target), None
        new = new_store.sink_like(StagingFolder(work.root).tree, settings.store, settings.commitlogs, self.segments)
        return new, new

    def _derive(self, staging: StagingFolder, new: new_store.StoreSink | None) -> None:
        """Build what a store has beside its log, where that is what is written."""
        settings, result = self.settings, self._result
        if new is not None:
            result.warnings += new_store.derive(staging, new.like, self._progress, result.topics, settings.store)

    def close(self) -> None:
        """Put into the result whether something is lost, and how many notes were left out."""
        self._notes.close()
        if not self._result.messages:
            self._result.warnings += self._near_topics()
        self._result.exit = ExitStatus.LOST if self._lost or self._result.unsearched else ExitStatus.DONE

    def read(
        self, encode: Callable[[pa.RecordBatch], Any] | None, waiting: npt.NDArray[np.int64] | None = None
    ) -> Iterator[Chosen]:
        """Return what is taken of the log. Raises InputError at once for what is no log.

        ``waiting`` are offsets of delayed messages that are taken, too.
        """
        question = self.question(self._columns)
        return question.read_as(question.schema(), self._chooser(encode, waiting))

    @property
    def _columns(self) -> tuple[str, ...]:
        settings = self.settings
        return formats.read_columns(
            count=settings.count or settings.is_store,
            body=settings.reads_bodies,
            properties=settings.choice.selector is not None,
        )

    def _chooser(self, encode: Callable[[pa.RecordBatch], Any] | None, waiting: npt.NDArray[np.int64] | None = None) -> Chooser:
        settings = self.settings
        only = undecided(self.question(self._columns)) if settings.choice.undecided else None
        stored = settings.body == "stored"
        return Chooser(settings.choice, encode, settings.body_max, stored, self._schema, only, self.unread, waiting)

    def question(self, columns: tuple[str, ...]) -> MessageQuestion:
        """Return what is asked of the log."""
        settings = self.settings
        return MessageQuestion(
            settings.store, settings.commitlogs, settings.choice.read_topics, settings.keys, settings.since, settings.until,
            columns, "stored" if settings.reads_bodies else "none", damage=log_rows.ROWS, delays=settings.delays,
        )  # fmt: skip

    @cached_property
    def segments(self) -> list[Segment]:
        """The segments of the log. Raises InputError for what is no log."""
        return list_segments(self.question(()).roots, 0).segments

    @cached_property
    def unread(self) -> Unread | None:
        """Where the group stands whose messages alone are taken; None: all are. Raises InputError where nobody says it."""
        group = self.settings.choice.unconsumed_by
        return None if group is None else unread_by(group, self.settings, self._notes)

    @property
    def extent(self) -> tuple[int, int]:
        """Where the log begins, and how many bytes it has. Raises InputError for what is no log."""
        segments = self.segments
        return segments[0].start if segments else 0, sum(segment.data_end - segment.start for segment in segments)

    def take(self, batches: Iterator[Chosen], sink: sinks.Sink | None, stage: str, extent: tuple[int, int]) -> None:
        """Take all that was chosen, and write it into the sink. ``stage`` is what progress calls it."""
        result, at = self._result, extent[0]
        self._progress.begin(stage, extent[1])
        with contextlib.closing(batches):  # type: ignore[type-var]  # a generator
            for chosen in batches:
                for hole in chosen.damage:
                    self._note_damage(hole)
                result.messages += chosen.rows
                result.size += chosen.size
                self._topics.update(chosen.topics)
                self._left_out.update(chosen.left_out)
                # Who writes no export says it himself.
                for offset in chosen.packed if self.settings.to else ():
                    self._notes.add(
                        "body that is exported as it is stored",
                        f"offset {offset}: its body does not unpack, or into more than --body-max: it is exported as stored",
                    )
                for offset in chosen.unsearched:
                    self._notes.add(
                        "body that could not be searched",
                        f"offset {offset}: its body does not unpack, or into more than --body-max: not searched, and left out",
                    )
                result.unsearched += len(chosen.unsearched)
                if sink is not None and chosen.encoded is not None:
                    sink.add(chosen.encoded)
                self._progress.moved(max(0, chosen.position - at))
                at = max(at, chosen.position)
        self._progress.end()
        for topic in sorted(self._topics) if self.settings.to and not self.settings.is_store else ():
            if _NO_TEXT in topic:
                self._notes.add(
                    "topic that is no UTF-8",
                    f"topic {escape(topic)}: is no UTF-8: it is exported as a broker reads it",
                    lost=False,
                )
        result.topics, result.left_out = dict(sorted(self._topics.items())), dict(sorted(self._left_out.items()))

    def _note_damage(self, hole: Hole) -> None:
        lost = bool(log_rows.lost([hole]))
        self._notes.add("damage" if lost else "the log's end", f"{hole.text}: no message is found in it", lost)
        if hole.reason.endswith(NO_MORE_TOLD):
            self._notes.add("very much damage", f"segment {hole.segment}: {hole.text}")
        if lost:
            self._lost = True
            self._result.damaged += 1
            self._result.damaged_bytes += hole.length

    def _write(self, batches: Iterator[Chosen], target: str, staging: StagingFolder) -> None:
        settings, result = self.settings, self._result
        file = os.path.join(staging.temporary, "export")
        tree, new = staging.tree, None
        if settings.is_store:
            new = new_store.sink_like(tree, settings.store, settings.commitlogs, self.segments)
        sink: sinks.Sink = new or _sink_of(settings.format, self._schema, tree if settings.is_folder else file, target)
        try:
            with files.naming(target):
                self.take(batches, sink, "export", self.extent)
                result.warnings += sink.finish()
        except BaseException:
            sink.abandon()
            raise
        self._check_some(lambda: None)
        self._derive(staging, new)
        self._publish(staging, file, target)

    def _check_some(self, give_up: Callable[[], None]) -> None:
        """Raise InputError where there is no message, and one was wanted: ``give_up`` is called then."""
        if not self._result.messages and not self.settings.allow_empty:
            give_up()
            said = "".join(f"; {text}" for text in self._near_topics())
            raise InputError(f"no message of the log is as was asked for{said}: nothing is written without --allow-empty")

    def _near_topics(self) -> list[str]:
        """Return a text for each named topic without a queue in the store that has names near it; it may be written wrong."""
        named = [topic for topic in self.settings.choice.topics if self.settings.store and not glob.has_magic(topic)]
        known = StoreQueues(self.settings.store, Notes.silent(), database=False).topics() if named else []
        near = {topic: near_in_words(topic, known) for topic in named}
        return [f"topic {escape(topic)}: the store has no queue of it{text}" for topic, text in near.items() if text]

    def _publish(self, staging: StagingFolder, file: str, target: str) -> None:
        """Give what was written its name: the tree of a staging folder, or a file."""
        settings, result = self.settings, self._result
        written = files.below(staging.tree) if settings.is_folder else [files.entry_of(file)]
        result.files, result.bytes = len(written), sum(entry.size for entry in written)
        if settings.is_folder:
            output.publish(staging, target, overwrite=False)
        else:
            try:
                layout.publish_new(file, target)
            except FileExistsError:
                raise InputError(f"--to {escape(target)}: is there meanwhile: name a new file") from None
        result.to = settings.to


def unread_by(group: str, settings: ExportSettings, notes: Notes) -> Unread:
    """Return where a group stands: the lowest offset that a file says. Raises InputError where none says anything of it."""
    paths, unread = settings.consumer_offsets, dict[str, dict[int, int]]()
    offset_files = consumer_offsets.named(paths, notes) if paths else consumer_offsets.of_store(settings.store, notes)
    for place, offset in consumer_offsets.merged(offset_files, "lowest", notes).offsets.items():
        if place.group == group:
            unread.setdefault(place.topic, {})[place.queue_id] = offset
    if unread:
        return unread
    raise InputError(
        f"--unconsumed-by {escape(group)}: no file of consumer offsets names this group: `rmq-reindex consumers STORE` lists "
        "those that one names, and --consumer-offsets takes a copy or a replica's"
    )


def _checked_target(settings: ExportSettings) -> str:
    """Return the real path of what is written. Raises InputError where it may not be: what is there is never written over."""
    try:
        return _new_target(settings)
    except InputError:
        tasks.clear_published(settings)
        raise


def _new_target(settings: ExportSettings) -> str:
    to = settings.to
    inputs = [*([settings.store] if settings.store else []), *settings.commitlogs]
    if files.no_rename(to):
        raise InputError(f"--to {escape(to)}: names cannot be changed there: name a place on a disk")
    if settings.is_folder:
        return output.check_places(inputs, to, None)
    target = local.real_path(to)
    for place in inputs:
        if files.overlap(place, to):
            raise InputError(f"--to {escape(to)}: lies inside {escape(place)}: name a file apart from the input")
    if os.path.lexists(to) or to.endswith("/"):
        raise InputError(f"--to {escape(to)}: is there already, or is a folder: name a new file")
    layout.check_writable("--to", to, b"", "an export")
    return target


# ------------------------------------------------------------------------------------------------------------------------ sinks
# What writes each format.


def _sink_of(kind: str, schema: pa.Schema, place: str, target: str) -> sinks.Sink:
    """Return what writes a format to a file, or a folder, that will lie at ``target``.

    Raises InputError where a package for it is missing, UsageError where it cannot lie there.
    """
    return _folder_sink(kind, schema, place, target) or sinks.FileSink(place, formats.head(kind, schema))


def _segment_sink_of(kind: str, schema: pa.Schema, tree: str, file: str, target: str) -> sinks.SegmentSink:
    """Return the same with files of each segment: in the folder ``tree``, which is the export, or has pieces of ``file``."""
    return _folder_sink(kind, schema, tree, target) or sinks.PiecesSink(tree, file, formats.head(kind, schema))


def _folder_sink(kind: str, schema: pa.Schema, place: str, target: str) -> sinks.ParquetSink | None:
    if kind == "delta":
        return delta.DeltaSink(place, schema)
    if kind == "iceberg":
        return iceberg.IcebergSink(place, schema, target)
    return sinks.ParquetSink(place) if kind == "parquet" else None
