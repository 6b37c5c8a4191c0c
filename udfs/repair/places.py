"""Decide where the records of a log go in a new one of plain segments: what each range has, and what each new segment gets.

A range's rows, and those of a new segment, are files of ROW in the staging folder: in the order of the log, which is that of
both offsets. So what lies in a new segment is one stretch of rows, and a half message is found in them by its old offset.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketmq_reindex import files
from rocketmq_reindex.storage_format import layouts, repair
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.record import columns as m, layout as r, making
from rocketmq_reindex.storage_format.scan import range_scan, ranges, settings as scan_settings
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.scan.ranges import SegmentReader
from rocketmq_reindex.udfs.staging import Position, StagingFolder

Int64s = npt.NDArray[np.int64]
Rows = npt.NDArray[np.void]

ROW: Final = np.dtype([("old", "<i8"), ("new", "<i8"), ("time", "<i8"), ("size", "<i4")])
"""A record: its offset in the old log, -1 for a filler, its offset in the new log, its store time, its bytes."""
_ROWS: Final = 1 << 19
"""rows that are held at once"""


# ------------------------------------------------------------------------------------------------------------------------ rows


@dataclass
class ListedRange(handover.TaskResult):
    """The rows of a range: the path of their file, and how many there are."""

    number: int
    path: str
    rows: int


@dataclass(frozen=True)
class ListRecords:
    """Lists the records of a task's share of ranges; leaves results (``ListedRange``).

    ``plan`` is the plan of ``RangeSpec`` that ``tasks`` tasks share. With the ``settings`` of their scan each has the same
    records once more.
    """

    staging: StagingFolder
    plan: str
    tasks: int
    settings: scan_settings.ScanSettings

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        planned = [ranges.RangeSpec(*fields) for fields in handover.read_plan(self.plan)]
        wanted = replace(
            self.settings, want_units=False, want_items=False, want_topics=False, want_messages=True, want_digests=False,
            block_rows=min(_ROWS, self.settings.block_rows),
        )  # fmt: skip
        scanner = range_scan.RangeScanner(wanted)
        for task in handover.numbers(batches):
            yield handover.batch([self._list(scanner, spec) for spec in handover.share(planned, task, self.tasks)])

    def _list(self, scanner: range_scan.RangeScanner, spec: ranges.RangeSpec) -> ListedRange:
        path, count = files.join(self.staging.plans, f"records-{spec.number}"), 0
        position = Position(self.staging, f"list-{spec.number}", spec.high - spec.low)
        segment = SegmentReader(spec.path, spec.segment_start, lambda at, _: position.moved(at - spec.low), spec.high)
        with segment, files.writing(self.staging.temporary, path) as writer:
            for block in scanner.scan(spec, segment.read, segment.view):
                rows = np.zeros(len(block.messages.phy_offset), ROW)
                rows["old"], rows["size"] = block.messages.phy_offset, block.messages.size
                rows["time"] = m.read_fields(block.data, block.base, block.messages.phy_offset, False)[m.STORE_TIME]
                writer.append(rows.view(np.uint8))
                count += len(rows)
            writer.finish()
        return ListedRange(spec.number, path, count)


def read_rows(path: str) -> Iterator[Rows]:
    """Yield the rows of a file, some at a time."""
    with files.Reader(path) as reader:
        count = reader.size() // ROW.itemsize
        for low in range(0, count, _ROWS):
            rows = np.empty(min(_ROWS, count - low), ROW)
            reader.read_into(low * ROW.itemsize, rows.view(np.uint8))
            yield rows


# ---------------------------------------------------------------------------------------------------------------------- places


@dataclass
class PlannedSegment(handover.TaskResult):
    """One segment of the new log: where it begins, and the file of its rows. ``last``: the log ends in it.

    ``first_old`` is the old offset of its first record, or of what follows on it; offsets of fillers do not count.
    """

    start: int
    path: str
    first_old: int
    records: int = 0
    last: bool = False


@dataclass(frozen=True)
class PlaceRecords:
    """Decides where all records go: one task, which leaves results (``PlannedSegment``).

    ``plan`` has the paths of the rows of all ranges, in the order of the log, and [offset, bytes] of each damaged stretch: in
    its place stand fillers. The log begins at ``start``; its segments have ``segment_size`` bytes.
    """

    staging: StagingFolder
    plan: str
    start: int
    segment_size: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in handover.numbers(batches):
            paths, holes = handover.read_plan(self.plan)
            segments = _Segments(self.staging)
            try:
                for rows in self._placed(_with_fillers(paths, holes, self.segment_size)):
                    segments.take(rows, (rows["new"] - self.start) // self.segment_size * self.segment_size + self.start)
                yield handover.batch(segments.finish())
            except BaseException:
                segments.abandon()
                raise

    def _placed(self, batches: Iterable[Rows]) -> Iterator[Rows]:
        end = 0
        for rows in batches:
            sizes = rows["size"].astype(np.int64)
            try:
                places = making.places(sizes, end, self.segment_size)
            except ValueError as error:
                offset = int(rows["old"][sizes.argmax()])
                raise InputError(f"offset {offset} of the log: {error}: give a larger --segment-size") from None
            rows["new"] = places + self.start
            end = int(places[-1] + sizes[-1])
            yield rows


_DEMANDS_MOST: Final = repair.Demands(property_crc=True, dup_info=True)


def _filler_sizes(length: int, segment_size: int) -> list[int]:
    """Return the bytes of the fillers that stand for ``length`` lost bytes: as many, but enough for a record.

    How many messages may be missing is worked out from these bytes: here, and by whoever builds from the new log.
    """
    least = repair.small_filler(_DEMANDS_MOST)
    most = max(least, min(repair.PIECE_MAX, segment_size - r.FILLER_MIN))
    whole, rest = divmod(length, most)
    return [most] * whole + ([max(rest, least)] if rest else [])


def _with_fillers(paths: Sequence[str], holes: Sequence[tuple[int, int]], segment_size: int) -> Iterator[Rows]:
    """Yield the rows of all ranges, with those of fillers where damage lay. A filler has the time of the record before it."""
    left, time = list(reversed(holes)), 0
    for rows in (rows for path in paths for rows in read_rows(path)):
        first = 0
        while left and left[-1][0] < rows["old"][-1]:
            offset, length = left.pop()
            at = int(np.searchsorted(rows["old"], offset))
            yield from (rows[first:at],) if at > first else ()
            time = int(rows["time"][at - 1]) if at else time or int(rows["time"][0])
            yield _fillers(length, segment_size, time)
            first = at
        yield rows[first:]
        time = int(rows["time"][-1])
    if time:
        yield from (_fillers(length, segment_size, time) for _, length in reversed(left))


def _fillers(length: int, segment_size: int, time: int) -> Rows:
    sizes = _filler_sizes(length, segment_size)
    rows = np.zeros(len(sizes), ROW)
    rows["old"], rows["time"], rows["size"] = -1, time, sizes
    return rows


class _Segments:
    """Writes the rows of each new segment into a file of its own."""

    def __init__(self, staging: StagingFolder) -> None:
        self._staging = staging
        self._planned: list[PlannedSegment] = []
        self._writer: files.Writer | None = None

    def take(self, rows: Rows, starts: Int64s) -> None:
        """Take rows, each with the start of its segment (int64), both ascending."""
        for start in np.unique(starts).tolist():
            low, high = np.searchsorted(starts, [start, start + 1]).tolist()
            if not self._planned or self._planned[-1].start != start:
                self._close()
                path = files.join(self._staging.plans, f"moves-{start}")
                self._planned.append(PlannedSegment(start, path, -1))
                self._writer = files.Writer(self._staging.temporary, path)
            planned, part = self._planned[-1], rows[low:high]
            old = part["old"][part["old"] >= 0]
            if len(old) and planned.first_old < 0:
                planned.first_old = int(old[0])
            planned.records += len(old)
            assert self._writer is not None
            self._writer.append(np.ascontiguousarray(part).view(np.uint8))

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.finish()

    def finish(self) -> list[PlannedSegment]:
        """Return the segments in their order."""
        self._close()
        following = layouts.INT64_MAX
        for planned in reversed(self._planned):
            planned.first_old = following = planned.first_old if planned.first_old >= 0 else following
        for planned in self._planned[-1:]:
            planned.last = True
        return self._planned

    def abandon(self) -> None:
        """Leave no open file. Raises nothing."""
        if self._writer is not None:
            self._writer.abandon()


class Moves:
    """Where each record of the old log is in the new one, by the rows of the segments."""

    def __init__(self, planned: Sequence[PlannedSegment]) -> None:
        self._planned = planned
        self._firsts = [segment.first_old for segment in planned]
        self._known: dict[int, tuple[Int64s, Int64s]] = {}

    def _of(self, number: int) -> tuple[Int64s, Int64s]:
        """Return the old and the new offsets of a segment's records. Those of the two that were asked for last are kept."""
        if number not in self._known:
            while len(self._known) > 1:
                del self._known[next(iter(self._known))]
            parts = [rows[rows["old"] >= 0] for rows in read_rows(self._planned[number].path)]
            old, new = (np.concatenate([np.empty(0, np.int64), *(part[name] for part in parts)]) for name in ("old", "new"))
            self._known[number] = old, new
        return self._known[number]

    def find(self, offsets: Int64s) -> Int64s:
        """Return the new offsets of records at these old offsets (int64); -1 where none lay, or for -1."""
        found = np.full(len(offsets), -1, np.int64)
        asked = np.flatnonzero(offsets >= 0)
        of_segment = np.array([bisect_right(self._firsts, offset) - 1 for offset in offsets[asked].tolist()], np.int64)
        for number in np.unique(of_segment[of_segment >= 0]).tolist():
            (old, new), mine = self._of(number), asked[of_segment == number]
            at = np.searchsorted(old, offsets[mine])
            is_there = at < len(old)
            is_there[is_there] = old[at[is_there]] == offsets[mine][is_there]
            found[mine[is_there]] = new[at[is_there]]
        return found
