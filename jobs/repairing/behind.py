"""Take from a replica what is behind the end of the log: the torn record there, and with --extend all that follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rocketmq_reindex.jobs.building.scanning import Scan
from rocketmq_reindex.jobs.building.summary import Summary
from rocketmq_reindex.jobs.repairing.room import last_record
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.plurals import counted
from rocketmq_reindex.storage_format.repair.damage import Damage, Place, RecordAt
from rocketmq_reindex.storage_format.scan.chain import Chain
from rocketmq_reindex.storage_format.scan.ranges import Segment
from rocketmq_reindex.udfs import plans
from rocketmq_reindex.udfs.repair.behind import Behind, LogEnd, LookBehind
from rocketmq_reindex.udfs.repair.mend import Mended

EXTENDED: Final = "behind the log's end"
TORN: Final = "last record torn where no CRC covers it"
"""reasons of ranges: only the replica has it, or it shows only beside the replica"""


def log_end(chain: Chain, whole: Sequence[Segment], ends: dict[int, int], last: int) -> LogEnd | None:
    """Return where the log ends; None where damage lies there, or no record before it says what should follow.

    ``whole`` are all of its segments, ``ends`` has where the records of each one end, ``last`` is its last good record.
    """
    home = next((segment for segment in whole if segment.start <= last < segment.segment_end), None)
    if home is None:
        return None
    offset = ends[home.start]
    tail = chain.stale or chain.torn
    if (tail and tail.offset != offset) or any(hole.offset >= offset for hole in chain.holes):
        return None
    segment = next((one for one in whole if one.start <= offset < one.segment_end), None)
    if segment is None:
        segment = _next_segment(whole[-1])
    torn = min(chain.torn.length, segment.segment_end - offset) if chain.torn and not chain.stale else 0
    firsts = [found.first for found in chain.accepted if home.start <= found.first < last]
    return LogEnd(RecordAt(home, last, max(firsts, default=-1)), segment, offset, torn)


def _next_segment(before: Segment) -> Segment:
    """The segment that would follow, which is not there."""
    start, size = before.segment_end, before.segment_end - before.start
    return Segment(f"{start:020d}", "", start, start, start + size)


@dataclass
class BehindEnd:
    """What replicas have behind the log's end, and what is taken of it: ``damage`` that the replica ``taken`` (from 1) mends.

    ``new`` are the segments of it that the log lacks.
    """

    end: LogEnd | None = None
    found: list[Behind] = field(default_factory=list)
    taken: int = 0
    damage: list[Damage] = field(default_factory=list)
    new: list[Segment] = field(default_factory=list)
    extends: bool = False

    def take(self, extend: bool, torn: str, whole: Sequence[Segment]) -> None:
        """Take the torn record, which is so for the reason ``torn``; with ``extend`` all of the replica that goes farthest."""
        end = self.end
        assert end is not None
        farthest = max(self.found, key=lambda one: (one.end, -one.replica), default=None)
        first = next((one for one in self.found if one.torn_end >= 0), None)
        if extend and farthest is not None and farthest.stretches and (not end.torn or farthest.torn_end >= 0):
            one, stretches, self.extends = farthest, farthest.stretches, True
        elif first is not None:
            one, stretches = first, [(first.begin, first.torn_end)]
        else:
            return
        self.taken, before = one.replica, end.last._replace(offset=one.before)
        reasons = [torn] if end.torn else [TORN] if one.begin < end.offset else []
        reason = "; ".join([*reasons, *([EXTENDED] if self.extends else [])])
        segments = list(whole)
        for low, high in stretches:
            while segments[-1].segment_end <= low:
                segments.append(_next_segment(segments[-1]))
                self.new.append(segments[-1])
            segment = next(one for one in segments if one.start <= low < one.segment_end)
            place = Place(low, high - low, reason)
            self.damage.append(Damage(low, high - low, segment, (place,), before=before, ends_log=True))

    def others(self, found: Sequence[Damage]) -> list[Damage]:
        """Return the damage without that at the log's end, if it is taken: what the replica has whole is no broken tail."""
        return [one for one in found if not self.taken or self.end is None or one.offset < self.end.offset]

    def checked(self, mended: list[Mended]) -> list[Mended]:
        """Return what was taken. Raises InputError where the replica no longer has it."""
        for one in mended:
            if not one.replica:
                raise InputError(f"--replica: replica {self.taken} has changed meanwhile at offset {one.offset}: run it again")
        return mended

    def tell(self, summary: Summary) -> None:
        """Say by how much each replica goes on, and what was taken; the manifest gets the same."""
        if self.end is None:
            return
        upto, told = max(self.end.offset, self.damage[-1].end if self.damage else 0), list[dict[str, Any]]()
        for one in self.found:
            is_taken = self.extends and one.replica == self.taken
            if one.end <= upto and not is_taken:
                continue
            more = f"{counted(one.bytes, 'byte')}, {counted(one.records, 'record')}, from offset {one.begin} on"
            told.append({"replica": one.replica, "offset": one.begin, "bytes": one.bytes, "records": one.records})
            if is_taken:
                summary.warn(f"--extend: replica {one.replica} goes on behind the log's end, and was taken: {more}")
            else:
                summary.warn(f"--replica: replica {one.replica} goes on behind the log's end: {more}: --extend takes it")
        if told and summary.repair is not None:
            summary.repair["behind"] = told


def look_behind(
    scan: Scan, replicas: Sequence[list[Segment]], extend: bool, chain: Chain, whole: Sequence[Segment], ends: dict[int, int]
) -> BehindEnd:
    """Have tasks look at what each replica, given by its segments, has behind the log's end, and decide what is taken of it."""
    found = BehindEnd(log_end(chain, whole, ends, last_record(chain.accepted)) if replicas else None)
    if found.end is None:
        return found
    plan = plans.write_plan(scan.staging, "log-end", [found.end])
    listed = plans.write_plan(scan.staging, "replicas-behind", replicas)
    results = scan.engine.numbers(LookBehind(plan, listed, scan.task.settings), len(replicas))
    found.found = sorted(Behind.read(results), key=lambda one: one.replica)
    found.take(extend, chain.torn.reason if chain.torn else "", whole)
    return found
