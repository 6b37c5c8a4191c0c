"""What is kept of an export that may be stopped: the files of each segment of the log that was read whole, and a mark."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex import files, version
from rocketmq_reindex.jobs.exporting import choosing, sinks
from rocketmq_reindex.jobs.exporting.options import ExportSettings
from rocketmq_reindex.jobs.publishing import local
from rocketmq_reindex.storage_format.errors import InputError, ReindexError
from rocketmq_reindex.storage_format.scan.ranges import Hole
from rocketmq_reindex.storage_format.showing import counted, escape, listed
from rocketmq_reindex.udfs.messages.log_rows import LogRange
from rocketmq_reindex.udfs.staging import StagingFolder

Parts = Iterable[tuple[LogRange, Callable[[list[int]], Iterator[choosing.Chosen]]]]
"""the segments of a log, each with what reads it alone (``MessageQuestion.by_segment``)"""

# ---------------------------------------------------------------------------------------------------------------------- options

_OPTIONS: Final = "options.json"
_SAME_ROWS: Final = frozenset({"to", "choice", "selector", "allow_empty", "resumable", "json", "count"})
"""settings that say nothing of which rows are written, and how"""


def _digest(*pieces: bytes) -> str:
    return hashlib.sha256(b"".join(pieces)).hexdigest()


def bound_of(settings: ExportSettings, only: npt.NDArray[np.int64] | None, unread: choosing.Unread | None) -> dict[str, str]:
    """Return, by names for people, all that decides which rows are written, and how: besides the log itself."""
    selector = settings.choice.selector
    values = {**vars(settings), **vars(settings.choice), "sql": None if selector is None else selector.text}
    # A later run may be started in another folder.
    values["store"] = settings.store and files.absolute(settings.store)
    values["consumer_offsets"] = tuple(map(files.absolute, settings.consumer_offsets))
    bound = {name.replace("_", " "): repr(value) for name, value in values.items() if name not in _SAME_ROWS}
    return bound | {
        "undecided half messages": "" if only is None else _digest(only.tobytes()),
        "offsets of the group": "" if unread is None else _digest(json.dumps(unread, sort_keys=True).encode()),
        "version of rmq-reindex": version.__version__,
    }


# ------------------------------------------------------------------------------------------------------------------------ marks
# A mark has a line for each batch of its segment, and a last one that says which bytes were read, and which files were written.
# It is given its name once all of these are on the disk.

_SAMPLE: Final = 4096
"""bytes at the begin of a segment, and on both sides of where the reading ended, that must be as they were"""


def _seen(log_range: LogRange) -> dict[str, Any]:
    """Return what a segment is known by, before it is read."""
    spec, entry = log_range.spec, files.entry_of(log_range.spec.path)
    missing = log_range.missing and dataclasses.astuple(log_range.missing)
    return {
        "name": log_range.segment, "size": entry.size, "modified": entry.modified, "missing": missing,
        "range": [spec.segment_start, spec.segment_end, spec.data_end, spec.low, spec.high, spec.known, spec.lead],
        "followed": bool(log_range.followed), "committed": int(log_range.committed),
    }  # fmt: skip


def _samples(log_range: LogRange, end: int) -> dict[str, Any]:
    """Return the digest of bytes of a segment that was read up to ``end``: whoever appended to it changed the last ones."""
    spec = log_range.spec
    with files.Reader(spec.path) as reader:
        size = reader.size()
        places = [0, *(min(max(0, end - spec.segment_start + step), size) for step in (-_SAMPLE, 0))]
        read = [reader.read(place, min(_SAMPLE, size - place)) for place in places]
    return {"end": end, "digest": _digest(*map(bytes, read))}


def _line_of(chosen: choosing.Chosen) -> dict[str, Any]:
    said = chosen._replace(encoded=None, damage=())._asdict()
    kept = {name: dict(value) if isinstance(value, Mapping) else value for name, value in said.items() if value}
    return kept | ({"damage": [dataclasses.astuple(hole) for hole in chosen.damage]} if chosen.damage else {})


def _chosen_of(line: dict[str, Any]) -> choosing.Chosen:
    for name in ("packed", "unsearched"):
        line[name] = tuple(line.get(name, ()))
    return choosing.Chosen(**{"position": 0, **line, "damage": tuple(Hole(*hole) for hole in line.get("damage", ()))})


def _is_mark(line: Any) -> bool:
    return isinstance(line, dict) and "segment" in line


class _Mark:
    """The mark of one segment: ``written`` are its files."""

    def __init__(self, path: str, tree: str) -> None:
        """Raises ValueError for what is no whole mark, OSError."""
        said: Any = None
        self._path = path
        with open(path, "rb") as lines:
            for said in map(json.loads, lines):
                if not _is_mark(said):
                    _chosen_of(said)
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
                    yield _chosen_of(line)


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
_ASIDE: Final = ".part"


class Work:
    """The work folder of an export to ``target``, which is locked."""

    def __init__(self, target: str) -> None:
        self._staging = StagingFolder(local.work_folder(target))
        self.root, self.tree = self._staging.root, self._staging.tree
        self.file = os.path.join(self.root, _FILE)
        """what is written where that is one file"""
        self._marks = os.path.join(self.root, "marks")
        self.resumed = 0
        """segments that an earlier run had read"""
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
            os.mkdir(self._marks)
            with open(f"{said}{_ASIDE}", "x", encoding="utf-8") as file:
                json.dump(bound, file)
            os.rename(f"{said}{_ASIDE}", said)
        self._check(to, said, bound)
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

    def read(self, parts: Parts, sink: sinks.SegmentSink) -> Iterator[choosing.Chosen]:
        """Read the segments that are not done, into ``sink``. Yield what is chosen of all, in the order of the log."""
        parts = list(parts)
        marks = self._valid(parts)
        self._clear(marks)
        for log_range, make in parts:
            name = f"{log_range.spec.segment_start:020d}"
            if (mark := marks.get(name)) is not None:
                sink.take_over(mark.written)
                self.resumed += 1
                yield from mark.chosen()
            else:
                yield from self._segment(name, log_range, make, sink)

    def _segment(
        self, name: str, log_range: LogRange, make: Callable[[list[int]], Iterator[choosing.Chosen]], sink: sinks.SegmentSink
    ) -> Iterator[choosing.Chosen]:
        """Read one segment, and mark it once its files are on the disk."""
        seen, ends, path = _seen(log_range), [log_range.spec.low], os.path.join(self._marks, name)
        sink.begin(name)
        with open(f"{path}{_ASIDE}", "x", encoding="utf-8") as mark:
            with contextlib.closing(make(ends)) as batches:  # type: ignore[type-var]  # a generator
                for chosen in batches:
                    if chosen.encoded is not None:
                        sink.add(chosen.encoded)
                    mark.write(json.dumps(_line_of(chosen)) + "\n")
                    yield chosen
            written = sink.end()
            sizes = [os.path.getsize(file.path) for file in written]
            kept = [
                [os.path.relpath(file.path, self.tree), size, file.topic, file.day]
                for file, size in zip(written, sizes, strict=True)
            ]
            mark.write(json.dumps({"segment": seen | _samples(log_range, max(ends)), "files": kept}) + "\n")
            mark.flush()
            os.fsync(mark.fileno())
        os.rename(f"{path}{_ASIDE}", path)

    def _valid(self, parts: Parts) -> dict[str, _Mark]:
        """Return the marks, by segment, of what is as it was: the segment, and all files that were made of it."""
        there = {entry.name: entry.size for entry in files.below(self.tree)}
        valid, left = dict[str, _Mark](), {f"{log_range.spec.segment_start:020d}" for log_range, _ in parts}
        for name in sorted(name for name in os.listdir(self._marks) if name not in left and not name.endswith(_ASIDE)):
            self.warnings.append(f"segment {escape(name)}: is in the log no more: what was exported of it is left out")
        for log_range, _ in parts:
            name = f"{log_range.spec.segment_start:020d}"
            with contextlib.suppress(FileNotFoundError, ValueError, LookupError, TypeError):
                mark = _Mark(os.path.join(self._marks, name), self.tree)
                if mark.segment != json.loads(json.dumps(_seen(log_range) | _samples(log_range, mark.segment["end"]))):
                    self.warnings.append(f"segment {log_range.segment}: was changed since it was exported: it is read again")
                elif lost := [each for each, size in mark.sizes.items() if there.get(each) != size]:
                    gone = f"{counted(len(lost), 'file')} of its messages"
                    self.warnings.append(f"segment {log_range.segment}: {gone} are not as they were: it is read again")
                else:
                    valid[name] = mark
        return valid

    def _clear(self, marks: Mapping[str, _Mark]) -> None:
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
