"""List the segments of a commitlog, and check what shows without reading them: names, sizes, continuity."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rocketmq_reindex import files
from rocketmq_reindex.storage_format import errors, layouts, showing
from rocketmq_reindex.storage_format.scan.ranges import Segment

_DLEDGER: Final = "dledger-"
"""how the folder of DLedger's log begins, beside commitlog (``DLedgerConfig.getDataStorePath``)"""


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


def meant_by(store: str) -> str:
    """Return what to ask who names a folder of segments in the place of a store, as the end of an error; "" for others."""
    if files.entry_of(store).kind != files.FOLDER:
        return ""
    around = files.parent(store)
    if files.base(store) in layouts.FOLDERS and files.entry_of(files.join(around, layouts.COMMITLOG)).kind == files.FOLDER:
        return f": it is a part of a store: did you mean {showing.escape(around)}?"
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
    """Return that a store without a commitlog has a log of DLedger, as an error; "" for others."""
    folders = (entry for entry in files.listing(store) if entry.kind == files.FOLDER)
    folder = next((entry.path for entry in folders if entry.name.startswith(_DLEDGER)), "")
    to_do = "move it, consumequeue/, index/ and checkpoint away and start the node, which copies the log from its leader"
    told = f"is a log of DLedger, which no command reads: if it is damaged, {to_do}"
    return f"{showing.escape(folder)}: {told}" if folder else ""


def several(root: str) -> str:
    """Return how to name several folders of segments, as the end of an error, where ``root`` is some with commas; "" otherwise.

    In a broker.conf (``storePathCommitLog``) that is how a broker takes them.
    """
    folder, comma, _ = root.partition(",")
    is_one = bool(comma) and files.entry_of(folder).kind == files.FOLDER
    return ": name each folder by a --commitlog of its own" if is_one else ""


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
            if files.base(root) == layouts.COMMITLOG and not files.is_flat(store):
                if wrong := no_folder(store):
                    raise errors.InputError(wrong)
                if meant := meant_by(store):
                    raise errors.InputError(f"{showing.escape(store)}: is no store{meant}")
                if wrong := log_of_dledger(store):
                    raise errors.InputError(wrong)
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
    for index, entry in enumerate(entries):
        start, where = int(entry.name), showing.escape(entry.path)
        last = index == len(entries) - 1
        if entry.size > size or (entry.size < size and not last and not may_be_short):
            cut = "; if it was cut, rmq-reindex repair takes the log as it is" if entry.size < size else ""
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
        if size and (start - int(entries[0].name)) % size:
            raise errors.InputError(
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
            raise errors.InputError(
                f"{showing.escape(entry.path)}: changed during the run: stop the broker, or build from a copy"
            )
    if now:
        raise errors.InputError(
            f"{showing.escape(next(iter(now)))}: appeared during the run: stop the broker, or build from a copy"
        )
