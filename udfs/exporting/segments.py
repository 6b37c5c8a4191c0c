"""Exports one segment of a log by itself: its files, and a mark that says what was read and written. In tasks, too.

A mark has a line for each batch of its segment, and a last one that says which bytes were read, and which files were written.
It is given its name once all of these are on the disk.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import platform
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from rocketmq_reindex import files
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.scan.ranges import Hole
from rocketmq_reindex.storage_format.showing import escape
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.exporting import choosing, sinks
from rocketmq_reindex.udfs.messages.log_rows import LogRange
from rocketmq_reindex.udfs.messages.pieces import LogPieces
from rocketmq_reindex.udfs.staging import Position, StagingFolder

ASIDE: Final = ".part"
"""how the name of a file ends that is not whole"""
_SAMPLE: Final = 4096
"""bytes at the begin of a segment, and on both sides of where the reading ended, that must be as they were"""


def digest(*pieces: bytes) -> str:
    """Return a digest of bytes, as hexadecimal digits."""
    return hashlib.sha256(b"".join(pieces)).hexdigest()


@dataclasses.dataclass(frozen=True)
class LogSegments:
    """The segments of a log, what reads them, and what is taken of them."""

    pieces: LogPieces
    chooser: choosing.Chooser
    plan: tuple[LogRange, ...]

    def read(self, log_range: LogRange, threads: int, ends: list[int] | None = None) -> Iterator[choosing.Chosen]:
        """Return what is taken of one segment, in so many threads. ``ends`` gets the offset behind its last record."""
        return self.pieces.read([log_range], self.chooser, threads, ends)


def name_of(log_range: LogRange) -> str:
    """Return the name of a segment's mark, and of its files."""
    return f"{log_range.spec.segment_start:020d}"


# ------------------------------------------------------------------------------------------------------------------------ marks


def seen(log_range: LogRange) -> dict[str, Any]:
    """Return what a segment is known by, before it is read."""
    spec, entry = log_range.spec, files.entry_of(log_range.spec.path)
    missing = log_range.missing and dataclasses.astuple(log_range.missing)
    return {
        "name": log_range.segment, "size": entry.size, "modified": entry.modified, "missing": missing,
        "range": [spec.segment_start, spec.segment_end, spec.data_end, spec.low, spec.high, spec.known, spec.lead],
        "followed": bool(log_range.followed), "committed": int(log_range.committed),
    }  # fmt: skip


def samples(log_range: LogRange, end: int) -> dict[str, Any]:
    """Return the digest of bytes of a segment that was read up to ``end``: whoever appended to it changed the last ones."""
    spec = log_range.spec
    with files.Reader(spec.path) as reader:
        size = reader.size()
        places = [0, *(min(max(0, end - spec.segment_start + step), size) for step in (-_SAMPLE, 0))]
        read = [reader.read(place, min(_SAMPLE, size - place)) for place in places]
    return {"end": end, "digest": digest(*map(bytes, read))}


def line_of(chosen: choosing.Chosen) -> dict[str, Any]:
    """Return what is told of a batch as JSON holds it: all but what was encoded."""
    said = chosen._replace(encoded=None, damage=())._asdict()
    kept = {name: dict(value) if isinstance(value, Mapping) else value for name, value in said.items() if value}
    return kept | ({"damage": [dataclasses.astuple(hole) for hole in chosen.damage]} if chosen.damage else {})


def chosen_of(line: dict[str, Any]) -> choosing.Chosen:
    """Return the inverse of ``line_of``. Raises TypeError and ValueError for a line that is none."""
    for name in ("packed", "unsearched"):
        line[name] = tuple(line.get(name, ()))
    return choosing.Chosen(**{"position": 0, **line, "damage": tuple(Hole(*hole) for hole in line.get("damage", ()))})


def _is_mark(line: Any) -> bool:
    return isinstance(line, dict) and "segment" in line


class Mark:
    """The mark of one segment: ``written`` are its files."""

    def __init__(self, path: str, tree: str) -> None:
        """Raises ValueError for what is no whole mark, OSError."""
        said: Any = None
        self._path = path
        with open(path, "rb") as lines:
            for said in map(json.loads, lines):
                if not _is_mark(said):
                    chosen_of(said)
        if not _is_mark(said):
            raise ValueError("no mark")
        self.segment: dict[str, Any] = said["segment"]
        self.sizes: dict[str, int] = {name: size for name, size, _, _ in said["files"]}
        self.written = [sinks.WrittenFile(os.path.join(tree, name), topic, day) for name, _, topic, day in said["files"]]

    def chosen(self) -> Iterator[choosing.Chosen]:
        """Yield what was told of the segment when it was read."""
        with open(self._path, "rb") as lines:
            for line in map(json.loads, lines):
                if not _is_mark(line):
                    yield chosen_of(line)


def export_segment(
    segments: LogSegments, log_range: LogRange, threads: int, sink: sinks.SegmentSink, tree: str, path: str
) -> Iterator[choosing.Chosen]:
    """Read one segment into ``sink``, whose files are below ``tree``, and write its mark at ``path``. Yield what is chosen."""
    known, ends = seen(log_range), [log_range.spec.low]
    sink.begin(name_of(log_range))
    with open(f"{path}{ASIDE}", "x", encoding="utf-8") as mark:
        with contextlib.closing(segments.read(log_range, threads, ends)) as batches:  # type: ignore[type-var]  # a generator
            for chosen in batches:
                if chosen.encoded is not None:
                    sink.add(chosen.encoded)
                mark.write(json.dumps(line_of(chosen)) + "\n")
                yield chosen
        written = sink.end()
        sizes = [os.path.getsize(file.path) for file in written]
        kept = [
            [os.path.relpath(file.path, tree), size, file.topic, file.day]
            for file, size in zip(written, sizes, strict=True)
        ]  # fmt: skip
        mark.write(json.dumps({"segment": known | samples(log_range, max(ends)), "files": kept}) + "\n")
        mark.flush()
        os.fsync(mark.fileno())
    os.rename(f"{path}{ASIDE}", path)


# ------------------------------------------------------------------------------------------------------------------------ tasks
# Each task takes a segment. What it writes lies in a folder of its attempt until all is whole: another attempt of the task may
# go on at the same time, and both write the same.

SHARED: Final = "shared"
"""a file by which a task knows the folder that the driver has made"""
ATTEMPTS: Final = "attempts"
"""a folder of what attempts have not made whole"""
MARKS: Final = "marks"
"""the folder of the marks of segments that are whole"""


@dataclasses.dataclass(frozen=True)
class SharedFolder:
    """The folder in which tasks leave the files of segments, ``tree`` and ``marks`` in it, for the driver.

    ``to`` is the place of the export as the user named it, ``token`` is what SHARED holds. ``kind`` is the format, ``columns``
    are those of its Parquet files where these have the topic, too.
    """

    to: str
    root: str
    tree: str
    token: str
    kind: str
    columns: pa.Schema | None = None

    @property
    def marks(self) -> str:
        """the marks of segments that are whole"""
        return os.path.join(self.root, MARKS)

    @property
    def attempts(self) -> str:
        """what attempts have not made whole"""
        return os.path.join(self.root, ATTEMPTS)

    def make(self) -> None:
        """Make what tasks need: by the driver."""
        staging = StagingFolder(self.root)
        for folder in (self.attempts, staging.temporary, staging.progress):
            files.make_folder(folder, below=self.root)
        with open(os.path.join(self.root, SHARED), "w", encoding="ascii") as file:
            file.write(self.token)

    def end(self) -> None:
        """Have attempts that are late find nothing to make whole: by the driver, once all segments are."""
        files.remove_tree(self.attempts)

    def check(self) -> None:
        """Raise InputError where this machine has another folder under that name, or none, or may not write there."""
        here, place, host = "", f"--to {escape(self.to)}", escape(platform.node())
        may_not = f"{place}: the worker on {host} may not write there: run it as the driver's user, or --engine local"
        try:
            with open(os.path.join(self.root, SHARED), encoding="ascii") as file:
                here = file.read()
        except PermissionError:
            raise InputError(may_not) from None
        except OSError:
            pass
        if here != self.token:
            raise InputError(
                f"{place}: the worker on {host} does not see the folder that the driver writes in: name a place on a disk that "
                "all workers share with the driver, or give --engine local"
            )
        if not os.access(self.attempts, os.W_OK):
            raise InputError(may_not)

    def sink(self, tree: str) -> sinks.SegmentSink:
        """Return what writes the files of a segment below ``tree``."""
        if self.kind in ("jsonl", "csv"):
            return sinks.PiecesSink(tree, "")
        if self.kind == "store":
            return sinks.RecordsSink(tree)
        return sinks.ParquetSink(tree, self.columns, sinks.DATA if self.columns is not None else "")

    def settle(self, name: str, attempt: str, tree: str) -> None:
        """Give the files of a whole segment their names, and then its mark. Another attempt may have done so before."""
        mark = os.path.join(self.marks, name)
        if os.path.lexists(mark):
            return
        folders = {self.marks}
        for entry in files.below(tree):
            target = os.path.join(self.tree, entry.name)
            folder = os.path.dirname(target)
            files.make_folder(folder, below=self.tree)
            os.replace(os.path.join(tree, entry.name), target)
            folders.add(folder)
        for folder in sorted(folders):
            sinks.sync(folder)
        os.replace(attempt, mark)


@dataclasses.dataclass(frozen=True)
class LookAround:
    """Looks, in tasks, whether these workers have the driver's disk, and that of the log."""

    place: SharedFolder | None
    segments: tuple[str, ...]
    """the path of a segment in each folder of the log"""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield nothing. Raises InputError where something is not there."""
        for _ in handover.numbers(batches):
            if self.place is not None:
                self.place.check()
            for segment in self.segments:
                if files.entry_of(segment).kind != files.FILE:
                    raise InputError(f"{escape(segment)}: is not there for the worker on {escape(platform.node())}")
        yield from ()


@dataclasses.dataclass(frozen=True)
class ExportSegments:
    """Exports segments, in tasks: task number n that of ``numbers[n]`` in the plan of the log."""

    log: LogSegments
    place: SharedFolder
    numbers: tuple[int, ...]
    threads: int
    """of one task, at most"""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield nothing. Raises InputError and OSError for what cannot be read or written."""
        for number in handover.numbers(batches):
            self.place.check()
            self._export(self.log.plan[self.numbers[number]])
        yield from ()

    def _export(self, log_range: LogRange) -> None:
        place, name, spec = self.place, name_of(log_range), log_range.spec
        attempt = os.path.join(place.attempts, uuid.uuid4().hex)
        tree, mark = os.path.join(attempt, "tree"), os.path.join(attempt, "mark")
        # Not with what they lie in: a late attempt must not make anew what was cleared.
        os.mkdir(attempt)
        os.mkdir(tree)
        position = Position(StagingFolder(place.root), name, spec.data_end - spec.low)
        sink = place.sink(tree)
        try:
            with files.naming(place.to):
                threads = min(self.threads, os.cpu_count() or 1)
                for chosen in export_segment(self.log, log_range, threads, sink, tree, mark):
                    position.moved(max(0, chosen.position - spec.low))
                place.settle(name, mark, tree)
            position.ended(spec.data_end - spec.low)
        finally:
            sink.abandon()
            files.remove_tree(attempt)


@dataclasses.dataclass(frozen=True)
class CountSegments:
    """Counts what is taken of segments, in tasks: task number n that of the n-th behind ``first`` in the plan of the log."""

    log: LogSegments
    first: int
    threads: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield what was taken of each segment: a JSON array, whose objects ``chosen_of`` reads."""
        for number in handover.numbers(batches):
            log_range = self.log.plan[self.first + number]
            taken = together(self.log.read(log_range, min(self.threads, os.cpu_count() or 1)))
            yield handover.texts_batch([json.dumps([line_of(chosen) for chosen in taken])])


def together(parts: Iterator[choosing.Chosen]) -> list[choosing.Chosen]:
    """Return all that was taken as one, and the damage behind it, as it is told."""
    position = rows = size = 0
    topics, left_out = Counter[str](), Counter[str]()
    packed, unsearched, damage = list[int](), list[int](), list[Hole]()
    for chosen in parts:
        position = max(position, chosen.position)
        rows, size = rows + chosen.rows, size + chosen.size
        topics.update(chosen.topics)
        left_out.update(chosen.left_out)
        packed += chosen.packed
        unsearched += chosen.unsearched
        damage += chosen.damage
    taken = choosing.Chosen(position, None, rows, size, topics, left_out, tuple(packed), tuple(unsearched))
    return [taken, *([choosing.Chosen(position, damage=tuple(damage))] if damage else [])]
