"""Prove that a build is of a store's log: by sizes and bytes, since the names of segments prove nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rocketmq_reindex.jobs.fetching.build import FoundBuild
from rocketmq_reindex.jobs.fetching.log_read import ReadLog, Stretch
from rocketmq_reindex.jobs.store.folders import entries_of
from rocketmq_reindex.jobs.store.log import SegmentFile
from rocketmq_reindex.jobs.store.sizes import index_files, queue_files
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.file_names import first_byte
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.plurals import counted
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.files.digests import digest_of

OVERRIDE: Final = "--other-log"
_ADVICE: Final = f"take the build of this store's log, or build again; {OVERRIDE} lays it out all the same"
_DERIVED: Final = ("consumequeue", "batchconsumequeue")


def segments_in(roots: Sequence[str]) -> list[SegmentFile]:
    """Return the segments in the folders ``roots`` by their start. Other files there are passed over. Raises OSError."""
    found = []
    for root in roots:
        for entry in entries_of(root):
            start = first_byte(entry.name)
            if start is not None and entry.kind == files.FILE:
                found.append(SegmentFile(entry.path, start, entry.size))
    return sorted(found, key=lambda segment: segment.start)


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
    """Raise InputError unless the build is proved to be of the log ``segments`` in the folders ``roots``. Returns warnings.

    A log that has grown since is taken, and one whose first segments have expired. A store without a log is taken, with a
    warning. Raises OSError where the log cannot be read.
    """
    log, where = build.log, ", ".join(map(escape, roots))
    if not segments:
        missing = (
            f"{where}: holds no segment, so nothing shows that the build is of the store's log: neither a log nor a broker's "
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
            f"{where}: nothing that the build tells of its log can be compared with this one: build again with this version; "
            f"{OVERRIDE} lays it out all the same"
        )
    for stretch in stretches:
        _check_stretch(stretch, segments, log)
    return []


def _check_segments(log: ReadLog, there: dict[int, SegmentFile], where: str) -> None:
    """Raises InputError where names and sizes show already that it is another log."""
    read = {segment.start: segment for segment in log.segments}
    first, begin = min(there), min(read)
    if not there.keys() & read.keys():
        raise InputError(
            f"{where}: has none of the segments that the build read, from {escape(log.segments[0].name)} on: {_ADVICE}"
        )
    if first < begin:
        earlier = sum(start < begin for start in there)
        raise InputError(
            f"{where}: begins at offset {first}, {counted(earlier, 'segment')} before the log that was built, which begins at "
            f"{begin}: the messages in them would not be served: {_ADVICE}"
        )
    for start in sorted(there.keys() & read.keys()):
        ours, theirs = there[start], read[start]
        is_last, was_last = start == max(there), start == max(read)
        # The last segment of a copy may be cut short.
        if ours.size == theirs.size or (ours.size > theirs.size and was_last) or (ours.size < theirs.size and is_last):
            continue
        raise InputError(
            f"{escape(ours.path)}: has {ours.size:,} bytes, the segment that the build read has {theirs.size:,}: {_ADVICE}"
        )
    end, needed = max(one.start + one.size for one in there.values()), log.end
    if needed > end:
        raise InputError(f"{where}: ends at offset {end}, the log that was built at {needed}: was it cut? {_ADVICE}")


def _check_stretch(stretch: Stretch, segments: Sequence[SegmentFile], log: ReadLog) -> None:
    """Raises InputError where the store's log has other bytes."""
    segment = next((one for one in segments if one.start <= stretch.low < one.start + one.size), None)
    if segment is None or stretch.high > segment.start + segment.size:
        path = escape(segment.path if segment else segments[-1].path)
        raise InputError(f"{path}: ends before offset {stretch.high}, up to which the build read it: was it cut? {_ADVICE}")
    with files.Reader(segment.path) as reader:
        if digest_of(reader, segment.start, stretch.low, stretch.high, log.kind) == stretch.digest:
            return
    what = "the build is of another log, or this one was cut since"
    if log.repaired:
        what = "the build is of a repair: put its commitlog in place first"
    raise InputError(
        f"{escape(segment.path)}: bytes {stretch.low} to {stretch.high - 1} of the log are not those that the build read: "
        f"{what}: {_ADVICE}"
    )


def _has_bytes(segment: SegmentFile) -> bool:
    """Whether a segment begins with anything: a broker makes segments of zeros ahead."""
    with files.Reader(segment.path) as reader:
        return any(reader.read(0, min(64, segment.size)))


def _derived(store: str) -> str:
    """The store's first part with a file in it, "" for none."""
    for part in _DERIVED:
        if next(queue_files(files.join(store, part)), None):
            return part
    return "index" if index_files(store) else ""
