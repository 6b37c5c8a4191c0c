"""The files of a build: proved to be of a store's log, brought here, checked by their digests; timer files are one set."""

import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np

from rocketmq_reindex import files
from rocketmq_reindex.files.digests import digest_of
from rocketmq_reindex.jobs.fetching.build import BuildFile, DigestedBytes, FoundBuild, ReadLog
from rocketmq_reindex.jobs.publishing.layout import TIMER_CHECK, TIMERS
from rocketmq_reindex.jobs.store.contents import SegmentFile
from rocketmq_reindex.jobs.store.fitting import index_files, queue_files
from rocketmq_reindex.jobs.store.folders import entries_in
from rocketmq_reindex.storage_format import digest, layouts
from rocketmq_reindex.storage_format.broker_start.loading import WHEEL_SIZE
from rocketmq_reindex.storage_format.delay.timer_layout import SIZE, TimerCheckpoint
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.index.layout import HEADER_SIZE, ITEM_SIZE
from rocketmq_reindex.storage_format.showing import counted, escape, listed

# -------------------------------------------------------------------------------------------------------------------- log_proof
# Prove that a build is of a store's log: by sizes and bytes, since the names of segments prove nothing.

OVERRIDE: Final = "--other-log"
_ALL_THE_SAME: Final = f"\n  {OVERRIDE} lays it out all the same: consumers may then get other messages, or none"
_ADVICE: Final = f"\n  take the build of this store's log, or build again{_ALL_THE_SAME}"
_DERIVED: Final = (layouts.QUEUES, layouts.BATCH_QUEUES)


def segments_in(roots: Sequence[str]) -> list[SegmentFile]:
    """Return the segments in the folders ``roots`` by their start. Other files there are passed over. Raises OSError."""
    segments = []
    for root in roots:
        for entry in entries_in(root):
            start = layouts.first_byte(entry.name)
            if start is not None and entry.kind == files.FILE:
                segments.append(SegmentFile(entry.path, start, entry.size))
    return sorted(segments, key=lambda segment: segment.start)


def check_wanted(build: FoundBuild, store: str, segments: Sequence[SegmentFile], *, partial: bool, empty: bool) -> None:
    """Raise InputError for a build that leaves something out, unless ``partial``, and for one of no record, unless ``empty``.

    One of no record is laid out beside a log that has none either.
    """
    log = build.log
    if log.left_out and not partial:
        raise InputError(
            f"{escape(build.folder)}: leaves something out ({'; '.join(log.left_out)}): take a build of everything; --partial "
            "lays this one out all the same"
        )
    if log.records or empty:
        return
    if segments and not log.segments:
        what = f"has {counted(len(segments), 'segment')}, the build was made from none"
    elif any(map(_has_bytes, segments)):
        what = "has records, the build has none"
    elif not segments and (there := _derived(store)):
        what = f"has {there}, the build has no record"
    else:
        return
    raise InputError(f"{escape(store)}: {what}: build again, from this log; --allow-empty lays it out all the same")


def check_log(build: FoundBuild, roots: Sequence[str], segments: Sequence[SegmentFile]) -> list[str]:
    """Raise InputError unless the build is proved to be of the log ``segments`` in the folders ``roots``. Return warnings.

    A log that has grown since is taken, and one whose first segments have expired. A store without a log is taken, with a
    warning. Raises OSError where the log cannot be read.
    """
    log, where = build.log, ", ".join(map(escape, roots))
    if not segments:
        kept = f"the repaired log in {escape(build.folder)}" if log.repaired else "a log"
        missing = (
            f"{where}: holds no segment, so nothing shows that the build is of the store's log: neither {kept} nor a broker's "
            "config/ comes with a build: put both there before a broker starts, which deletes ConsumeQueues without a log"
        )
        return [missing] if log.records else []
    if not log.segments or not log.records:
        # What has no record says nothing wrong of any log.
        return []
    there = {segment.start: segment for segment in segments}
    _check_segments(log, there, where)
    stretches = log.stretches(there)
    if not stretches:
        raise InputError(
            f"{where}: nothing that the build tells of its log can be compared with this one:\n  build again with this version"
            f"{_ALL_THE_SAME}"
        )
    for stretch in stretches:
        _check_stretch(stretch, segments, log, build.folder)
    return []


def _check_segments(log: ReadLog, there: dict[int, SegmentFile], where: str) -> None:
    """Raise InputError where names and sizes show already that it is another log."""
    read = {segment.start: segment for segment in log.segments}
    first, begin = min(there), min(read)
    if not there.keys() & read.keys():
        raise InputError(
            f"{where}: has none of the segments that the build read, from {escape(log.segments[0].name)} on:{_ADVICE}"
        )
    if first < begin:
        earlier = sum(start < begin for start in there)
        raise InputError(
            f"{where}: begins at offset {first}, {counted(earlier, 'segment')} before the log that was built, which begins at "
            f"{begin}: the messages in them would not be served:{_ADVICE}"
        )
    for start in sorted(there.keys() & read.keys()):
        ours, theirs = there[start], read[start]
        is_last, was_last = start == max(there), start == max(read)
        # The last segment of a copy may be cut short.
        if ours.size == theirs.size or (ours.size > theirs.size and was_last) or (ours.size < theirs.size and is_last):
            continue
        raise InputError(
            f"{escape(ours.path)}: has {ours.size:,} bytes, the segment that the build read has {theirs.size:,}:{_ADVICE}"
        )
    if holes := [segment for segment in log.segments if first < segment.start < max(there) and segment.start not in there]:
        raise InputError(
            f"{where}: lacks {counted(len(holes), 'segment')} between others, from {escape(holes[0].name)} on, which the build "
            f"read: were they lost?{_ADVICE}"
        )
    end, needed = max(s.start + s.size for s in there.values()), log.end
    if needed > end:
        raise InputError(f"{where}: ends at offset {end}, the log that was built at {needed}: was it cut?{_ADVICE}")


def _check_stretch(stretch: DigestedBytes, segments: Sequence[SegmentFile], log: ReadLog, folder: str) -> None:
    """Raise InputError where the store's log has other bytes than that of the build in ``folder``."""
    segment = next((s for s in segments if s.start <= stretch.low < s.start + s.size), None)
    if segment is None or stretch.high > segment.start + segment.size:
        path = escape(segment.path if segment else segments[-1].path)
        raise InputError(f"{path}: ends before offset {stretch.high}, up to which the build read it: was it cut?{_ADVICE}")
    with files.Reader(segment.path) as reader:
        if digest_of(reader, segment.start, stretch.low, stretch.high, log.kind) == stretch.digest:
            return
    what = "the build is of another log, or this one was cut since"
    if log.repaired:
        what = f"the build is of a repair: put the commitlog of {escape(folder)} in place first, and fetch then"
    raise InputError(
        f"{escape(segment.path)}: bytes {stretch.low} to {stretch.high - 1} of the log are not those that the build read: "
        f"{what}:{_ADVICE}"
    )


def _has_bytes(segment: SegmentFile) -> bool:
    """Return whether a segment begins with anything: a broker makes segments of zeros ahead."""
    with files.Reader(segment.path) as reader:
        return any(reader.read(0, min(64, segment.size)))


def _derived(store: str) -> str:
    """Return the store's first part with a file in it, "" for none."""
    for part in _DERIVED:
        if next(queue_files(files.join(store, part)), None):
            return part
    return "index" if index_files(store) else ""


# ------------------------------------------------------------------------------------------------------------------------ files
# Bring the files of a build here: several at once, each checked against its digest, zeros as holes.

PIECE: Final = 8 << 20
"""Bytes of one request; each thread holds one."""
_HOLE: Final = 1 << 16
"""So many zeros in a row are not written."""


def fetch_all(
    build: FoundBuild, parts: list[str], new: str, temporary: str, threads: int, count: Callable[[int], None]
) -> None:
    """The files of ``parts`` below ``new``. Raises InputError for the first that is not as the manifest says."""
    for part in parts:
        if "/" not in part and part not in ("checkpoint", "timerwheel"):
            files.make_folder(os.path.join(new, part), below=new)
    wanted = [file for file in build.wanted if part_of(file.path) in parts]
    for folder in sorted({os.path.dirname(file.path) for file in wanted}):
        files.make_folder(os.path.join(new, folder), below=new)
    waiting = iter(wanted)
    with ThreadPoolExecutor(threads, thread_name_prefix="fetch") as pool:

        def given(count: int) -> set[Future[int]]:
            # A few at a time: there may be millions.
            return {pool.submit(_fetch, build, file, new, temporary) for file in islice(waiting, count)}

        try:
            running = given(2 * threads)
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for fetched in done:
                    count(fetched.result())
                running |= given(len(done))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def part_of(path: str) -> str:
    """Return the part that a file belongs to, by name in a store."""
    return path if path.startswith("config/") else path.partition("/")[0]


def _fetch(build: FoundBuild, file: BuildFile, new: str, temporary: str) -> int:
    source = files.join(build.folder, file.at)
    hasher, gap_end = digest.new_digest(kind=build.kind), file.gap + ITEM_SIZE
    try:
        opened = files.Reader(source)
    except FileNotFoundError as error:
        # As after a part was moved out of the build by hand.
        words = "is not there, and the manifest names it: bring the whole build here, or build again"
        raise InputError(f"{escape(source)}: {words}") from error
    with opened as reader, files.writing(temporary, os.path.join(new, file.path)) as writer:
        stored = reader.size()
        if stored not in (file.size, file.used):
            raise InputError(
                f"{escape(source)}: has {stored:,} bytes instead of {file.used:,} or {file.size:,}: fetch again, or build again"
            )
        at = 0
        while at < file.used:
            # No piece holds both sides of an IndexFile's item 0.
            end = file.gap if at < file.gap < at + PIECE else at + PIECE
            piece = np.frombuffer(reader.read(at, min(end, file.used) - at), np.uint8)
            hasher.update(piece.data)
            for low in range(0, len(piece), _HOLE):
                block = piece[low : low + _HOLE]
                if block.any():
                    writer.write_at(at + low, block)
            at += len(piece)
            at = gap_end if file.gap and at == file.gap else at
        if file.gap and file.used == HEADER_SIZE:
            # An index file without items: its slots are zeros, and in the digest.
            for low in range(HEADER_SIZE, file.gap, PIECE):
                hasher.update(bytes(min(PIECE, file.gap - low)))
        if hasher.digest().hex() != file.digest:
            raise InputError(
                f"{escape(source)}: has digest {hasher.digest().hex()} instead of {file.digest}: fetch again, or build again"
            )
        writer.finish(file.size)
    return file.used


# -------------------------------------------------------------------------------------------------------------------- timer_set
# A store's own timer files: ``config/timercheck``, ``timerlog`` and ``timerwheel`` are one set.
#
# A broker takes messages into its wheel from where timercheck says. It knows those before that by timerlog and the wheel alone
# (``TimerMessageStore.recover``). So a timercheck without the other two passes over every message that still waits.

TIMER_SET: Final = (TIMER_CHECK, *TIMERS)
_LOG, _WHEEL = TIMERS
_SNAPSHOT: Final = re.compile(r"timerwheel\.[0-9]+")
"""With ``timerWheelSnapshotFlush`` a broker takes the one of the highest number in the place of ``timerwheel``."""


@dataclass(frozen=True)
class TimerSet:
    """What a store has of the set. ``fault`` says why it is not whole, "" where it is.

    ``taken`` is how many messages of the timer topic a start passes over, by timercheck: 0 where it takes them again.
    """

    there: tuple[str, ...]
    fault: str
    taken: int

    @property
    def loses(self) -> bool:
        """Whether a start on these files passes over messages that wait."""
        return bool(self.fault and self.taken)


def read_set(store: str) -> TimerSet:
    """Return the set in ``store``. Raises OSError, and InputError for a timercheck that is no regular file."""
    there = tuple(name for name in TIMER_SET if os.path.lexists(os.path.join(store, name)))
    check = TimerCheckpoint()
    if TIMER_CHECK in there:
        check = TimerCheckpoint.from_bytes(files.read_bytes(os.path.join(store, TIMER_CHECK), SIZE))
    return TimerSet(there, _fault(store, there, check), min(check.queue_offset, check.master_queue_offset))


def _fault(store: str, there: tuple[str, ...], check: TimerCheckpoint) -> str:
    if not there:
        return ""
    if TIMER_CHECK in there and not check.queue_offset:
        return f"{TIMER_CHECK} says that no message was taken"
    needed = [TIMER_CHECK, _WHEEL] if not check.log_flushed and _LOG not in there else [*TIMER_SET]
    if missing := [name for name in needed if name not in there]:
        return f"without {listed(missing)}"
    wheel = os.path.join(store, _WHEEL)
    if os.path.getsize(wheel) != WHEEL_SIZE:
        return f"{_WHEEL} has {counted(os.path.getsize(wheel), 'byte')} where {WHEEL_SIZE:,} belong"
    end = _log_end(os.path.join(store, _LOG))
    if end < check.log_flushed:
        return f"{_LOG} ends at {end}, before {check.log_flushed}, which {TIMER_CHECK} names"
    return ""


def _log_end(folder: str) -> int:
    """Return where the last file of timerlog ends; 0 for none."""
    entries = os.scandir(folder) if os.path.isdir(folder) else ()
    ends = [start + entry.stat().st_size for entry in entries if (start := layouts.first_byte(entry.name)) is not None]
    return max(ends, default=0)


def choose(store: str, parts: list[str], laid: bool, notes: list[str]) -> list[str]:
    """Return those of the ``parts`` of a build to put in, as far as the timer set goes: all of it, or none.

    ``laid`` is set where a fetch laid the build's own set out before. What is decided is added to ``notes``.
    Raises InputError where a start would pass over messages that wait, and the build cannot help.
    """
    mine = [name for name in TIMER_SET if name in parts]
    if laid and mine:
        return parts
    own = read_set(store)
    if mine and (own.fault or not own.there):
        if snapshots := sorted(filter(_SNAPSHOT.fullmatch, os.listdir(store))):
            raise InputError(
                f"{escape(store)}: {', '.join(snapshots)}: with timerWheelSnapshotFlush a broker takes the last of them, "
                f"and not the build's {_WHEEL}: move them away first"
            )
        if own.there:
            notes.append(
                f"{', '.join(own.there)}: {_one_set(own)}: the build's whole set takes its place, the old files are kept"
            )
        return parts
    if mine:
        notes.append(
            f"{', '.join(own.there)}: the store's own stays, the build's is left out: move all of it away to take the build's"
        )
        return [part for part in parts if part not in mine]
    if own.loses and layouts.QUEUES in parts:
        raise InputError(
            f"{escape(os.path.join(store, own.there[0]))}: {_one_set(own)}, and by it a broker passes over the timer messages "
            f"that wait among {own.taken:,}: build with --write-delay, or restore {', '.join(TIMER_SET)} together from a backup"
        )
    return parts


def _one_set(own: TimerSet) -> str:
    return f"{own.fault}, it is not a whole set of timer files"
