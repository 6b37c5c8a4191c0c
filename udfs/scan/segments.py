"""List the segments of a commitlog, check what shows without reading them (names, sizes, continuity), and read the bytes of
single records out of them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rocketmq_reindex import files
from rocketmq_reindex.storage_format import errors, layouts, showing
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.scan.ranges import Segment, has_entry

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from rocketmq_reindex.storage_format.record import making

    Int64s = npt.NDArray[np.int64]

_DLEDGER: Final = "dledger-"
"""how the folder of a node of DLedger begins, beside commitlog (``DLedgerConfig.getDefaultPath``)"""
_COMMITTED: Final = re.compile(rb"^committedIndex=([0-9]{1,19})\s*$", re.MULTILINE)
_DATA: Final = "data"
"""the folder in it that holds the node's log (``getDataStorePath``)"""


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
        return f"{showing.escape(store)}: is not there: STORE is the folder around commitlog/"
    around = files.parent(files.parent(files.absolute(store)))
    log = files.join(around, layouts.COMMITLOG)
    if layouts.first_byte(files.base(store)) is not None and files.entry_of(log).kind == files.FOLDER:
        return f"{showing.escape(store)}: is a file of a store: did you mean that, {showing.escape(around)}?"
    return f"{showing.escape(store)}: is no folder: STORE is the folder around commitlog/"


_QUEUE_DEPTH: Final = 3
"""A queue is consumequeue/TOPIC/QUEUE: the names of its files are those of segments, too."""


def meant_by(store: str) -> str:
    """Return what to ask who names a folder of segments in the place of a store, as the end of an error; "" for others."""
    if files.entry_of(store).kind != files.FOLDER:
        return ""
    for named in dict.fromkeys((store, files.absolute(store))):
        part = named
        for _ in range(_QUEUE_DEPTH):
            inner, part = part, files.parent(part)
            if (
                files.base(inner) in layouts.FOLDERS
                and files.entry_of(files.join(part, layouts.COMMITLOG)).kind == files.FOLDER
            ):
                return f": it is a part of a store: did you mean {showing.escape(part)}?"
    whole = files.absolute(store)
    node = files.parent(whole) if is_of_dledger(whole) else whole
    if is_of_dledger(files.join(node, _DATA)) and files.entry_of(files.join(node, _DATA)).kind == files.FOLDER:
        return f": it is the log of a node of DLedger: did you mean the store around it, {showing.escape(files.parent(node))}?"
    if not _has_segments(files.listing(store)):
        return ""
    if files.base(store) == layouts.COMMITLOG:
        return f": it holds segments: did you mean the store around it, {showing.escape(files.parent(store))}?"
    return f": it holds segments: did you mean --commitlog {showing.escape(store)}?"


def _has_segments(entries: list[files.Entry]) -> bool:
    return any(entry.kind == files.FILE and layouts.first_byte(entry.name) is not None for entry in entries)


def no_segments(root: str, entries: list[files.Entry]) -> str:
    """Return that a folder of segments is a store, or another part of one, as an error; "" for others."""
    if _has_segments(entries):
        return ""
    inner = next((entry for entry in entries if entry.name == layouts.COMMITLOG and entry.kind == files.FOLDER), None)
    if inner is not None:
        return f"{showing.escape(root)}: is a store, no folder of segments: did you mean {showing.escape(inner.path)}?"
    beside = files.join(files.parent(root), layouts.COMMITLOG)
    if files.base(root) in layouts.FOLDERS and files.entry_of(beside).kind == files.FOLDER:
        return f"{showing.escape(root)}: is a part of a store, no folder of segments: did you mean {showing.escape(beside)}?"
    return ""


def log_of_dledger(store: str) -> str:
    """Return the folder of segments of a store's log of DLedger; "" for a store without one, and for one behind a URI.

    No broker has its store there, and to look would take a request each time. A folder without segments is what an old node
    left. Raises InputError where there are those of several nodes.
    """
    if files.is_remote(store) or files.entry_of(store).kind != files.FOLDER:
        return ""
    nodes = [entry.path for entry in files.listing(store) if entry.kind == files.FOLDER and entry.name.startswith(_DLEDGER)]
    folders = [log for log in (files.join(node, _DATA) for node in nodes) if files.entry_of(log).kind == files.FOLDER]
    logs = [log for log in folders if _has_segments(files.listing(log))]
    if len(logs) > 1:
        raise errors.InputError(
            f"{showing.escape(store)}: has the logs of {len(logs)} nodes of DLedger: name one by --commitlog, with commitlog/ "
            f"if there is one: {', '.join(map(showing.escape, logs))}"
        )
    return logs[0] if logs else ""


def is_of_dledger(root: str) -> bool:
    """Return whether a folder of segments has the name and the place of a log of DLedger."""
    return files.base(root) == _DATA and files.base(files.parent(root)).startswith(_DLEDGER)


def committed_index(root: str) -> int:
    """Return the last entry of the log of DLedger in ``root`` that its node knows as committed; -1 where that is not known.

    The node's own checkpoint says it (``DLedgerMmapFileStore.persistCheckPoint``, dledger 0.2 to 0.3.2), every three seconds.
    """
    if not is_of_dledger(root):
        return -1
    try:
        text = files.read_bytes(files.join(files.parent(root), layouts.CHECKPOINT), files.CONFIG_MAX)
    except (OSError, errors.InputError):
        return -1
    found = _COMMITTED.search(text)
    return min(int(found[1]), layouts.INT64_MAX) if found else -1


def lead_of(root: str, entries: Iterable[files.Entry]) -> int:
    """Return the bytes in front of each record of the segments in a folder: those of an entry's header for a log of DLedger.

    It is known by its place, or else by what the first of ``entries`` that can be read begins with.
    """
    if is_of_dledger(root):
        return r.ENTRY_HEAD
    if files.base(root) == layouts.COMMITLOG:
        return 0
    for entry in entries:
        if entry.kind == files.FILE and entry.size and layouts.first_byte(entry.name) is not None:
            try:
                with files.Reader(entry.path) as reader:
                    return r.ENTRY_HEAD if has_entry(reader.read(0, min(r.ENTRY_HEAD, entry.size))) else 0
            except (OSError, errors.InputError):
                return 0
    return 0


def several(root: str, option: str = "--commitlog") -> str:
    """Return how to name several folders of segments, as the end of an error, where ``root`` is some with commas; "" otherwise.

    In a broker.conf (``storePathCommitLog``) that is how a broker takes them. ``option`` takes one of them.
    """
    folder, comma, _ = root.partition(",")
    is_one = bool(comma) and files.entry_of(folder).kind == files.FOLDER
    return f": name each folder by a {option} of its own" if is_one else ""


def entries_of(roots: Iterable[str]) -> list[files.Entry]:
    """Return what lies in folders of segments. Raises InputError for what is no such folder, with what may be meant."""
    listed = []
    for root in roots:
        kind = files.entry_of(root).kind
        if kind != files.FOLDER:
            fault = "is not there" if kind == files.ABSENT else "is not a folder"
            if meant := several(root):
                raise errors.InputError(f"{showing.escape(root)}: {fault}{meant}")
            store = files.parent(root)
            if files.base(root) == layouts.COMMITLOG:
                if not files.is_flat(store) and (wrong := no_folder(store)):
                    raise errors.InputError(wrong)
                if meant := meant_by(store):
                    raise errors.InputError(f"{showing.escape(store)}: is no store{meant}")
            raise errors.InputError(
                f"{showing.escape(root)}: {fault}: STORE is the folder around commitlog/, --commitlog one of segments"
            )
        entries = files.listing(root)
        if wrong := no_segments(root, entries):
            raise errors.InputError(wrong)
        listed += entries
    return listed


def list_segments(roots: tuple[str, ...], segment_size: int, *, may_be_short: bool = False) -> Commitlog:
    """Return the segments in the folders ``roots`` (RocketMQ's ``CommitLog`` over a ``MappedFileQueue``, 5.3).

    ``segment_size`` is in bytes; 0 takes it from the files. ``may_be_short``: so may segments before the last one be, which is
    damage then. Raises InputError with the first thing that is wrong.
    """
    entries = sorted(entries_of(roots), key=lambda e: e.name)
    for entry in entries:
        where = showing.escape(entry.path)
        if entry.kind == files.OTHER:
            raise errors.InputError(f"{where}: is no regular file: only segments may lie in a commitlog folder")
        if entry.kind == files.ABSENT:
            raise errors.InputError(f"{where}: cannot be followed to a file: mend or remove the link")
        if entry.kind == files.FOLDER:
            raise errors.InputError(f"{where}: is not a segment but a folder: move it out of the commitlog folder")
        if layouts.first_byte(entry.name) is None:
            raise errors.InputError(
                f"{where}: is not a segment (its name is not 20 digits, or more than any offset): "
                "move it out of the commitlog folder"
            )
    if not entries:
        return Commitlog([], [], [])
    sizes = Counter(entry.size for entry in entries[:-1])
    size = segment_size or (sizes.most_common(1)[0][0] if sizes else entries[-1].size)
    if not size and len(entries) > 1:
        raise errors.InputError(f"{showing.escape(entries[0].path)}: has no bytes: give the right file or --segment-size")
    warnings: list[str] = []
    segments: list[Segment] = []
    folders = dict.fromkeys(files.parent(entry.path) for entry in entries)
    leads = {folder: lead_of(folder, (entry for entry in entries if files.parent(entry.path) == folder)) for folder in folders}
    for index, entry in enumerate(entries):
        start, where = int(entry.name), showing.escape(entry.path)
        last = index == len(entries) - 1
        if entry.size > size or (entry.size < size and not last and not may_be_short):
            mends = entry.size < size and not leads[files.parent(entry.path)]
            cut = "; if it was cut, rmq-reindex repair takes the log as it is" if mends else ""
            raise errors.InputError(
                f"{where}: has {entry.size:,} bytes where a segment has {size:,}: give the right file or --segment-size{cut}"
            )
        if segments and start < segments[-1].segment_end:
            before, to_do = segments[-1], "remove one of them"
            if before.path == entry.path:
                raise errors.InputError(f"{showing.escape(files.parent(entry.path))}: is named twice: name it once")
            if files.parent(before.path) != files.parent(entry.path):
                to_do = f"{showing.escape(files.parent(before.path))} has that one: name one of the two folders"
            raise errors.InputError(f"{where}: overlaps segment {before.name}, which ends at {before.segment_end}: {to_do}")
        if segments and segments[-1].lead and not leads[files.parent(entry.path)]:
            old, plain = showing.escape(files.parent(segments[0].path)), showing.escape(files.parent(entry.path))
            raise errors.InputError(
                f"{old}: is a log of DLedger that begins at offset {segments[0].start}, in front of {plain}, which begins at "
                f"{start}: it may be a leftover: name the log that is meant, --commitlog {plain}"
            )
        if size and (start - int(entries[0].name)) % size:
            raise errors.InputError(
                f"{where}: its name is not a multiple of {size:,} bytes after the first segment: wrong name or wrong size"
            )
        if entry.size < size and last:
            warnings.append(
                f"last segment {entry.name} has {entry.size:,} of {size:,} bytes: taken as torn, built up to its last "
                "whole record"
            )
        segments.append(
            Segment(entry.name, entry.path, start, start + entry.size, start + size, leads[files.parent(entry.path)])
        )
    return Commitlog(segments, entries, warnings)


def check_unchanged(before: Commitlog, roots: tuple[str, ...]) -> None:
    """Compare a fresh listing of ``roots`` with ``before``.

    Raises InputError when a segment was added, removed or written in the meantime.
    """
    now = {entry.path: entry for entry in entries_of(roots)}
    for entry in before.entries:
        if now.pop(entry.path, None) != entry:
            raise errors.InputError(
                f"{showing.escape(entry.path)}: changed during the run: stop the broker, or build from a copy"
            )
    if now:
        raise errors.InputError(
            f"{showing.escape(next(iter(now)))}: appeared during the run: stop the broker, or build from a copy"
        )


_GAP: Final = 1 << 16
"""bytes between two records that are read, too: a read by itself costs more"""


class RecordBytes:
    """Reads records from the segments of a log: in any thread."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = segments
        import numpy as np

        self._starts = np.array([segment.start for segment in segments], np.int64)

    def read(self, starts: Int64s, sizes: Int64s) -> making.Texts:
        """Return the bytes of records that begin at the offsets ``starts`` of the log and have these sizes, both int64 (n,).

        Raises OSError and InputError as ``files.Reader`` does.
        """
        import numpy as np

        from rocketmq_reindex.storage_format.record import making

        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        data = np.empty(int(offsets[-1]), np.uint8)
        of_segment = np.searchsorted(self._starts, starts, side="right") - 1
        for number in np.unique(of_segment).tolist():
            segment, rows = self._segments[number], np.flatnonzero(of_segment == number)
            with files.Reader(segment.path) as reader:
                for run in np.split(rows, np.flatnonzero(starts[rows[1:]] - starts[rows[:-1]] - sizes[rows[:-1]] > _GAP) + 1):
                    low = int(starts[run[0]])
                    read = np.empty(int(starts[run[-1]] + sizes[run[-1]]) - low, np.uint8)
                    reader.read_into(low - segment.start, read)
                    making.copy(read, starts[run] - low, sizes[run], data, offsets[run])
        return making.Texts(offsets, data)


def followed_by_data(segments: Sequence[Segment]) -> dict[int, bool]:
    """Return for each segment, by its first offset, whether a later one holds data."""
    followed, later = {}, False
    for segment in reversed(segments):
        followed[segment.start] = later
        later = later or (segment.data_end > segment.start and _begins(segment.path))
    return followed


def _begins(path: str) -> bool:
    """Return whether the first bytes of a segment are not all zero."""
    with files.Reader(path) as reader:
        return any(reader.read(0, min(r.FILLER_MIN, reader.size())))
