"""One export: what it takes of each batch of the log, in any thread, and the files that appear at its end."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_reindex import files
from rocketmq_reindex.jobs.exporting import formats, new_store, sinks
from rocketmq_reindex.jobs.exporting.options import Choice, ExportResult, ExportSettings
from rocketmq_reindex.jobs.publishing import layout, local, output
from rocketmq_reindex.jobs.querying.message_rows import MessageQuestion, undecided
from rocketmq_reindex.jobs.store import consumer_offsets
from rocketmq_reindex.jobs.store.folders import Notes
from rocketmq_reindex.storage_format.errors import ExitStatus, InputError, ProgressListener
from rocketmq_reindex.storage_format.record.message import FLAG_COMPRESSED, compression_of
from rocketmq_reindex.storage_format.record.selector import Selector
from rocketmq_reindex.storage_format.scan.ranges import Hole, Segment
from rocketmq_reindex.storage_format.showing import escape
from rocketmq_reindex.udfs.messages import log_rows
from rocketmq_reindex.udfs.messages.batches import BODY, DAMAGE, UNPACKED_BYTES, counts_in, true_in, unpack_bodies
from rocketmq_reindex.udfs.messages.log_rows import Topics
from rocketmq_reindex.udfs.scan.segments import list_segments
from rocketmq_reindex.udfs.staging import StagingFolder

# ----------------------------------------------------------------------------------------------------------------------- chosen


def _each(texts: pa.Array, wanted: Callable[[str], bool]) -> npt.NDArray[np.bool_]:
    """Return for which texts something is true: it is asked once for each that is different."""
    coded = texts.dictionary_encode()
    known = np.array([*(wanted(text) for text in coded.dictionary.to_pylist()), False], np.bool_)
    found: npt.NDArray[np.bool_] = known[pc.fill_null(coded.indices, fill_value=len(known) - 1).to_numpy()]
    return found


def _selected(properties: pa.Array, selector: Selector) -> npt.NDArray[np.bool_]:
    """Return which properties (map<string, string>) fulfil a condition: it is asked once for values that are the same."""
    if not len(properties):
        return np.zeros(0, np.bool_)
    columns = [pc.map_lookup(properties, query_key=pa.scalar(name), occurrence="last").to_pylist() for name in selector.names]
    known: dict[tuple[str | None, ...], bool] = {}
    found = np.empty(len(properties), np.bool_)
    for row, values in enumerate(zip(*columns, strict=True) if columns else [()] * len(properties)):
        if values not in known:
            named = zip(selector.names, values, strict=True)
            known[values] = selector.matches({name: value for name, value in named if value is not None})
        found[row] = known[values]
    return found


Unread = Mapping[str, Mapping[int, int]]
"""of a group: by topic and queue the next offset that it is given"""


def _unread(group: str, settings: ExportSettings, notes: Notes) -> Unread:
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


def _is_unread(batch: pa.RecordBatch, ends: npt.NDArray[np.int64], unread: Unread) -> npt.NDArray[np.bool_]:
    """Return which messages a group has not been given (bool). Of a queue without an offset it was given none.

    ``ends`` are the queue offsets behind each row's last message.
    """
    coded, queues = batch.column("topic").dictionary_encode(), batch.column("queueId").to_numpy()
    codes, found = coded.indices.to_numpy(), np.zeros(batch.num_rows, np.bool_)
    for code, topic in enumerate(coded.dictionary.to_pylist()):
        if (offsets := unread.get(topic)) is not None:
            rows = np.flatnonzero(codes == code)
            numbers, inverse = np.unique(queues[rows], return_inverse=True)
            found[rows] = ends[rows] > np.array([offsets.get(number, 0) for number in numbers.tolist()], np.int64)[inverse]
    return found


_PART_BYTES: Final = 2 << 20
"""Bytes of records that are encoded at once, unless one is longer: the texts on the way take several times that."""


class Chosen(NamedTuple):
    """What an export takes of one batch, or a part of it, and what it leaves out."""

    position: int
    """offset behind the last record that was looked at"""
    encoded: Any = None
    rows: int = 0
    size: int = 0
    """bytes of their records in the log"""
    topics: Mapping[str, int] = MappingProxyType({})
    left_out: Mapping[str, int] = MappingProxyType({})
    """records by kind"""
    packed: tuple[int, ...] = ()
    """offsets of those whose body could not be unpacked"""
    unsearched: tuple[int, ...] = ()
    """offsets of those that are left out for it, since nothing can be found in such a body"""
    damage: tuple[Hole, ...] = ()


@dataclass(frozen=True)
class Chooser:
    """Makes what an export writes of the batches of ``rr.messages``, which have stored bodies.

    ``unpack`` is the most bytes that an unpacked body may have. With ``stored`` bodies are written as they are stored, and
    only unpacked to look for something in them. ``encode`` None: the messages are counted.
    """

    choice: Choice
    encode: Callable[[pa.RecordBatch], Any] | None
    unpack: int
    stored: bool
    schema: pa.Schema
    only: npt.NDArray[np.int64] | None = None
    """offsets of the records of which alone some are taken; None: of all"""
    unread: Unread | None = None
    """where the group stands whose messages alone are taken; None: all"""
    waiting: npt.NDArray[np.int64] | None = None
    """offsets of delayed messages that are taken, too, as messages of the topic that they wait for"""

    def __call__(self, batch: pa.RecordBatch) -> Iterator[Chosen]:
        """Yield what is taken of a batch: in parts, where unpacked bodies need much memory."""
        ends = pc.add(batch.column("commitLogOffset"), batch.column(formats.SIZE))
        position = pc.max(ends).as_py() or 0
        if batch.num_rows and batch.column(DAMAGE).null_count < batch.num_rows:
            starts, sizes, reasons = (batch.column(name).to_pylist() for name in ("commitLogOffset", formats.SIZE, DAMAGE))
            yield Chosen(position, damage=tuple(map(Hole, [""] * len(starts), starts, sizes, reasons)))
            return
        taken, left_out = self.without_body(batch)
        # Of what is left out nobody knows whether the body has what is looked for.
        yield Chosen(position, left_out={} if self.choice.needs_body else left_out)
        batch = batch.filter(pa.array(taken))
        if BODY not in batch.schema.names:
            yield self._chosen(batch, position)
            return
        first = 0
        while first < batch.num_rows:
            sizes = np.cumsum(batch.column(formats.SIZE).to_numpy()[first:], dtype=np.int64)
            count = max(1, int(np.searchsorted(sizes, _PART_BYTES, side="right")))
            part, searched = self._unpacked(batch.slice(first, count))
            first += part.num_rows
            packed = tuple(part.column("commitLogOffset").filter(searched.is_null()).to_pylist())
            if self.choice.needs_body:
                yield self._chosen(part.filter(pa.array(self.by_body(searched))), position)._replace(unsearched=packed)
            else:
                yield self._chosen(part, position)._replace(packed=packed)

    def without_body(self, batch: pa.RecordBatch) -> tuple[npt.NDArray[np.bool_], Counter[str]]:
        """Return which rows are taken as far as all but the body tells (bool), and how many are left out only by their kind."""
        choice = self.choice
        wants = Topics(choice.topics).wants
        is_named = _each(batch.column("topic"), wants)
        taken = is_named | _each(batch.column("realTopic"), wants)
        first = batch.column("consumeQueueOffset").to_numpy()
        ends = first + np.maximum(1, batch.column("batchSize").to_numpy())
        if choice.queue is not None:
            # Of what waits for a named topic it is the queue that it waits for.
            meant = pc.coalesce(batch.column("realQueueId"), batch.column("queueId"))
            taken &= np.where(is_named, batch.column("queueId").to_numpy(), meant.to_numpy()) == choice.queue
            taken &= (first < choice.end_offset) & (ends > choice.begin_offset)
        of_kind = _each(batch.column("kind"), choice.taken_kinds.__contains__)
        is_waiting = np.zeros(batch.num_rows, np.bool_)
        if self.waiting is not None:
            is_waiting = np.isin(batch.column("commitLogOffset").to_numpy(), self.waiting)
        if self.unread is not None:
            for_group = _each(batch.column("realTopic"), self.unread.__contains__)
            taken &= _is_unread(batch, ends, self.unread) | (is_waiting & for_group)
        if self.only is not None:
            taken &= np.isin(batch.column("commitLogOffset").to_numpy(), self.only)
        if choice.tags:
            taken &= _each(batch.column("tags"), choice.tags.__contains__)
        if choice.selector is not None:
            rows = np.flatnonzero(taken)
            taken[rows] = _selected(batch.column("properties").take(pa.array(rows)), choice.selector)
        of_kind |= is_waiting
        return taken & of_kind, Counter(batch.column("kind").filter(pa.array(taken & ~of_kind)).to_pylist())

    def by_body(self, bodies: pa.Array) -> npt.NDArray[np.bool_]:
        """Return which bodies (binary, unpacked) have what is looked for (bool); null has nothing."""
        choice, taken = self.choice, np.ones(len(bodies), np.bool_)
        if choice.text is not None:
            taken &= true_in(pc.match_substring(bodies, choice.text.encode()))
        if choice.regex is not None:
            texts = formats.utf8(bodies)
            by_text = pc.match_substring_regex(texts, choice.regex)
            if texts.null_count:
                by_text = pc.coalesce(by_text, pc.match_substring_regex(bodies, choice.regex.encode()))
            taken &= true_in(by_text)
        return taken

    def _unpacked(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array]:
        """Return the first rows with the bodies that are written, and what may be searched: null where it does not unpack."""
        stored, flags = rows.column(BODY), rows.column("sysFlag").to_numpy().astype(np.int64)
        if self.stored and not self.choice.needs_body:
            searched = stored
        else:
            searched = unpack_bodies(stored, flags, self.unpack, UNPACKED_BYTES)
        count = len(searched)
        rows, stored, flags = rows.slice(0, count), stored.slice(0, count), flags[:count]
        is_packed = flags & FLAG_COMPRESSED != 0
        if not self.stored:
            is_packed &= np.asarray(searched.is_null())
            rows = rows.set_column(rows.schema.names.index(BODY), BODY, pc.coalesce(searched, stored))
        kinds = pa.nulls(count, pa.string())
        if is_packed.any():
            known = [compression_of(flag) if packed else None for flag, packed in zip(flags.tolist(), is_packed, strict=True)]
            kinds = pa.array(known, pa.string())
        return rows.append_column(formats.PACKED, kinds), searched

    def _chosen(self, rows: pa.RecordBatch, position: int) -> Chosen:
        topics = counts_in(rows.column("topic"))
        size = pc.sum(rows.column(formats.SIZE)).as_py() or 0
        encoded = None
        if self.encode is not None and rows.num_rows:
            # A slice shares its buffers with what is left out: encoders want none.
            encoded = self.encode(rows.select(self.schema.names).take(pa.array(np.arange(rows.num_rows))))
        return Chosen(position, encoded, rows.num_rows, size, Counter(topics))


# -------------------------------------------------------------------------------------------------------------------------- run


class Export:
    """One run; ``result`` is true at every moment, also when the run fails."""

    def __init__(self, settings: ExportSettings, result: ExportResult, progress: ProgressListener) -> None:
        self.settings, self._result, self._progress = settings, result, progress
        self._notes = Notes(result.warnings.append, result.warnings.append)
        self._topics, self._left_out, self._lost = Counter[str](), Counter[str](), False
        self._schema = new_store.taken_schema() if settings.is_store else formats.written_schema(body=settings.writes_bodies)
        result.format = settings.format

    def run(self) -> list[str]:
        """Export. Return what was done, as lines for people. Raises InputError, OSError."""
        settings, result = self.settings, self._result
        target = "" if settings.count else _checked_target(settings)
        encode = new_store.RecordReader(self.segments) if settings.is_store else formats.encoder(settings.format)
        batches = self.read(None if settings.count else encode)
        if settings.count:
            self.take(batches, None, "count", self.extent)
        else:
            with output.locked(target), output.staging(target, overwrite=False) as staging:
                self._write(batches, target, staging)
            output.settle(target)
            result.to = settings.to
        self.close()
        return result.lines()

    def close(self) -> None:
        """Put into the result whether something is lost, and how many notes were left out."""
        self._notes.close()
        self._result.exit = ExitStatus.LOST if self._lost or self._result.unsearched else ExitStatus.DONE

    def read(
        self, encode: Callable[[pa.RecordBatch], Any] | None, waiting: npt.NDArray[np.int64] | None = None
    ) -> Iterator[Chosen]:
        """Return what is taken of the log. Raises InputError at once for what is no log.

        ``waiting`` are offsets of delayed messages that are taken, too.
        """
        settings = self.settings
        columns = formats.read_columns(
            count=settings.count or settings.is_store,
            body=settings.reads_bodies,
            properties=settings.choice.selector is not None,
        )
        question = self.question(columns)
        only = undecided(question) if settings.choice.undecided else None
        stored = settings.body == "stored"
        chooser = Chooser(settings.choice, encode, settings.body_max, stored, self._schema, only, self.unread, waiting)
        return question.read_as(question.schema(), chooser)

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
        return None if group is None else _unread(group, self.settings, self._notes)

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
        result.topics, result.left_out = dict(sorted(self._topics.items())), dict(sorted(self._left_out.items()))

    def _note_damage(self, hole: Hole) -> None:
        lost = bool(log_rows.lost([hole]))
        self._notes.add("damage" if lost else "the log's end", f"{log_rows.hole_text(hole)}: no message is found in it", lost)
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
        sink: sinks.Sink = new or sinks.sink_of(settings.format, self._schema, tree if settings.is_folder else file, target)
        try:
            with files.naming(target):
                self.take(batches, sink, "export", self.extent)
                result.warnings += sink.finish()
        except BaseException:
            sink.abandon()
            raise
        if not result.messages and not settings.allow_empty:
            raise InputError("no message of the log is as was asked for: nothing is written without --allow-empty")
        if new is not None:
            result.warnings += new_store.derive(staging, new.like, self._progress, result.topics, settings.store)
        written = files.below(tree) if settings.is_folder else [files.entry_of(file)]
        result.files, result.bytes = len(written), sum(entry.size for entry in written)
        if settings.is_folder:
            output.publish(staging, target, overwrite=False)
        else:
            try:
                layout.publish_new(file, target)
            except FileExistsError:
                raise InputError(f"--to {escape(target)}: is there meanwhile: name a new file") from None


def _checked_target(settings: ExportSettings) -> str:
    """Return the real path of what is written. Raises InputError where it may not be: what is there is never written over."""
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
