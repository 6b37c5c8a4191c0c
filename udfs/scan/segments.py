"""The segments of a commitlog: list them and check their names, sizes and continuity; read one by the offsets of the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.file_names import first_byte
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.scan.ranges import Segment
from rocketmq_reindex.storage_format.scan.stale_tail import Damage, Doubt, StaleTail, StaleTailSearch
from rocketmq_reindex.udfs import files

_FOLDER: Final = "commitlog"
_PARTS: Final = ("consumequeue", "batchconsumequeue", "index", "config")
"""other folders of a store"""
_PIECE: Final = 16 << 20
"""bytes that are read at once in the search for one that is not zero"""
Watch = Callable[[int, npt.NDArray[np.uint8]], None]
"""Gets all bytes of the log that are read, each piece with its offset"""


@dataclass(frozen=True)
class Commitlog:
    """A listed commitlog: its segments by offset, the entries as listed (to see changes later), and warnings."""

    segments: list[Segment]
    entries: list[files.Entry]
    warnings: list[str]

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.data_end - segment.start for segment in self.segments)


def no_folder(store: str) -> str:
    """Return what is wrong with a STORE that is no folder, as an error; "" for a folder."""
    kind = files.entry_of(store).kind
    if kind == files.FOLDER:
        return ""
    if kind == files.ABSENT:
        return f"{escape(store)}: is not there: STORE is the folder around commitlog/"
    around = files.parent(files.parent(files.absolute(store)))
    if first_byte(files.base(store)) is not None and files.entry_of(files.join(around, _FOLDER)).kind == files.FOLDER:
        return f"{escape(store)}: is a file of a store: did you mean that, {escape(around)}?"
    return f"{escape(store)}: is no folder: STORE is the folder around commitlog/"


def meant_by(store: str) -> str:
    """Return what to ask who names a folder of segments in the place of a store, as the end of an error; "" for others."""
    if files.entry_of(store).kind != files.FOLDER:
        return ""
    around = files.parent(store)
    if files.base(store) in _PARTS and files.entry_of(files.join(around, _FOLDER)).kind == files.FOLDER:
        return f": it lies in a store: did you mean that, {escape(around)}?"
    if not _has_segments(files.listing(store)):
        return ""
    if files.base(store) == _FOLDER:
        return f": it holds segments: did you mean the store around it, {escape(files.parent(store))}?"
    return f": it holds segments: did you mean --commitlog {escape(store)}?"


def _has_segments(entries: list[files.Entry]) -> bool:
    return any(entry.kind == files.FILE and first_byte(entry.name) is not None for entry in entries)


def entries_of(roots: Iterable[str]) -> list[files.Entry]:
    """Return what lies in folders of segments. Raises InputError for what is no such folder, with what may be meant."""
    listed = []
    for root in roots:
        kind = files.entry_of(root).kind
        if kind != files.FOLDER:
            what = "is not there" if kind == files.ABSENT else "is not a folder"
            store = files.parent(root)
            if files.base(root) == _FOLDER and not files.is_flat(store):
                if wrong := no_folder(store):
                    raise InputError(wrong)
                if meant := meant_by(store):
                    raise InputError(f"{escape(store)}: is no store{meant}")
            raise InputError(f"{escape(root)}: {what}: STORE is the folder around commitlog/, --commitlog one of segments")
        entries = files.listing(root)
        inner = next((entry for entry in entries if entry.name == _FOLDER and entry.kind == files.FOLDER), None)
        if inner is not None and not _has_segments(entries):
            raise InputError(f"{escape(root)}: is a store, no folder of segments: did you mean {escape(inner.path)}?")
        listed += entries
    return listed


def list_segments(roots: tuple[str, ...], segment_size: int, *, may_be_short: bool = False) -> Commitlog:
    """List the segments in the folders ``roots`` (RocketMQ's ``CommitLog`` over a ``MappedFileQueue``, 5.3).

    ``segment_size`` is in bytes; 0 takes it from the files. ``may_be_short``: so may segments before the last one be, which is
    damage then. Raises InputError with the first thing that is wrong.
    """
    entries = sorted(entries_of(roots), key=lambda e: e.name)
    for entry in entries:
        where = escape(entry.path)
        if entry.kind == files.OTHER:
            raise InputError(f"{where}: is no regular file: only segments may lie in a commitlog folder")
        if entry.kind == files.ABSENT:
            raise InputError(f"{where}: cannot be followed to a file: mend or remove the link")
        if entry.kind == files.FOLDER:
            raise InputError(f"{where}: is not a segment but a folder: move it out of the commitlog folder")
        if first_byte(entry.name) is None:
            raise InputError(
                f"{where}: is not a segment (its name is not 20 digits, or more than any offset): "
                "move it out of the commitlog folder"
            )
    if not entries:
        return Commitlog([], [], [])
    sizes = Counter(entry.size for entry in entries[:-1])
    size = segment_size or (sizes.most_common(1)[0][0] if sizes else entries[-1].size)
    if not size and len(entries) > 1:
        raise InputError(f"{escape(entries[0].path)}: has no bytes: give the right file or --segment-size")
    warnings: list[str] = []
    segments: list[Segment] = []
    for index, entry in enumerate(entries):
        start, where = int(entry.name), escape(entry.path)
        last = index == len(entries) - 1
        if entry.size > size or (entry.size < size and not last and not may_be_short):
            raise InputError(
                f"{where}: has {entry.size:,} bytes where a segment has {size:,}: give the right file or --segment-size"
            )
        if segments and start < segments[-1].segment_end:
            raise InputError(
                f"{where}: overlaps segment {segments[-1].name}, which ends at {segments[-1].segment_end}: remove one of them"
            )
        if size and (start - int(entries[0].name)) % size:
            raise InputError(
                f"{where}: its name is not a multiple of {size:,} bytes after the first segment: wrong name or wrong size"
            )
        if entry.size < size and last:
            warnings.append(
                f"last segment {entry.name} has {entry.size:,} of {size:,} bytes: taken as torn, built up to its last "
                "whole record"
            )
        segments.append(Segment(entry.name, entry.path, start, start + entry.size, start + size))
    return Commitlog(segments, entries, warnings)


def check_unchanged(before: Commitlog, roots: tuple[str, ...]) -> None:
    """Compare a fresh listing of ``roots`` with ``before``.

    Raises InputError when a segment was added, removed or written in the meantime.
    """
    now = {entry.path: entry for entry in entries_of(roots)}
    for entry in before.entries:
        if now.pop(entry.path, None) != entry:
            raise InputError(f"{escape(entry.path)}: changed during the run: stop the broker, or build from a copy")
    if now:
        raise InputError(f"{escape(next(iter(now)))}: appeared during the run: stop the broker, or build from a copy")


class SegmentReader:
    """The file of one segment, which begins at offset ``start`` of the commitlog; a context manager.

    ``watch`` gets all bytes that are read. Up to offset ``ahead`` of the commitlog bytes are loaded ahead of what is viewed, in
    order; with ``let_go`` they leave the page cache again (``files.Reader.read_ahead``). Raises OSError or InputError as
    ``files.Reader`` does.
    """

    def __init__(self, path: str, start: int, watch: Watch | None = None, ahead: int = 0, let_go: bool = False) -> None:
        self._reader, self._start, self._watch = files.Reader(path), start, watch
        if ahead > start:
            self._reader.read_ahead(ahead - start, let_go)

    def read(self, at: int, out: npt.NDArray[np.uint8]) -> None:
        """Fill ``out`` (uint8) with the bytes from offset ``at`` of the commitlog on."""
        self._reader.read_into(at - self._start, out)
        if self._watch is not None:
            self._watch(at, out)

    def view(self, at: int, count: int) -> npt.NDArray[np.uint8] | None:
        """``count`` bytes (uint8) from offset ``at`` on, mapped into memory; None where only ``read`` works."""
        data = self._reader.view(at - self._start, count)
        if data is not None and self._watch is not None:
            self._watch(at, data)
        return data

    def __enter__(self) -> SegmentReader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._reader.__exit__(kind, error, trace)


def find_stale_tail(
    path: str, bounds: tuple[int, int, int], holes: Sequence[Damage], checkpoint_times: tuple[int, int] = (0, 0)
) -> StaleTail | Doubt | None:
    """The stale tail of the segment at ``path``, doubt whether there is one, or None.

    ``bounds`` are phy_offsets: of the segment's first byte, of its file's end, and of its end when it is whole. ``holes`` are
    stretches without a good record that have one behind them. ``checkpoint_times`` are physicMsgTimestamp and
    logicsMsgTimestamp of the store's checkpoint in milliseconds, 0 where unknown. The caller knows that no later segment has
    data: a truncation (``MappedFileQueue.truncateDirtyFiles``, RocketMQ 5.3) deletes all files behind the one that it cuts.
    """
    start, data_end, segment_end = bounds
    with SegmentReader(path, start) as segment:
        return StaleTailSearch(start, data_end, segment_end, segment.read, segment.view, checkpoint_times).find(holes)


def has_data(path: str, size: int) -> bool:
    """Whether the file at ``path`` of ``size`` bytes holds a byte that is not zero.

    A broker allocates the next segment ahead: that one holds zeros.
    """
    with files.Reader(path) as reader:
        at = reader.next_data(0)
        while at < size:
            piece = np.empty(min(_PIECE, size - at), np.uint8)
            reader.read_into(at, piece)
            if piece.any():
                return True
            at = reader.next_data(at + len(piece))
    return False
