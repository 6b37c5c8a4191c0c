"""Replicas in a repair: list their segments, look behind the log's end, compare records; and check the room for the result."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rocketmq_reindex import files
from rocketmq_reindex.jobs.building.scanning import Scan
from rocketmq_reindex.jobs.engines.engine import task_count
from rocketmq_reindex.jobs.repairing.options import RepairSettings
from rocketmq_reindex.jobs.store.settings import Commitlog
from rocketmq_reindex.storage_format import errors, layouts, repair
from rocketmq_reindex.storage_format.scan.chain import Chain
from rocketmq_reindex.storage_format.scan.ranges import RangeSummary, Segment
from rocketmq_reindex.storage_format.showing import counted, escape
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.repair import differing, mend, replicas as repair_replicas
from rocketmq_reindex.udfs.scan.segments import several
from rocketmq_reindex.udfs.staging import StagingFolder

# ------------------------------------------------------------------------------------------------------------------------- room
# The room that a repaired log takes, asked for before anything of it is written, and what links save of it.


def last_record(accepted: Sequence[RangeSummary]) -> int:
    """Return the offset of the log's last good record, -1 where it has none."""
    return max((summary.last_good for summary in accepted), default=-1)


def link_of(link: str, segment: Segment, last: int) -> str:
    """Return how ``segment`` may share its bytes with the old file, by ``link``; ``last`` as of ``last_record``.

    A broker writes on in the segment in which the log ends, and in those that it has made for later: a hard link would take
    that to the old log.
    """
    return files.folders.NONE if link == files.folders.HARD and segment.segment_end > last else link


def log_bytes(staging: StagingFolder, link: str, segments: Sequence[Segment], last: int, changed: frozenset[int]) -> int:
    """Return the bytes that copies of those ``segments`` take that share nothing; ``changed`` are the starts of mended ones."""
    shares: dict[tuple[str, str], bool] = {}

    def shared(segment: Segment) -> bool:
        link_kind = link_of(link, segment, last)
        if link_kind == files.folders.NONE or segment.start in changed or segment.data_end < segment.segment_end:
            return False
        # The folders of one log may lie in several file systems.
        key = link_kind, files.parent(segment.path)
        if key not in shares:
            shares[key] = _can_share(link_kind, segment.path, staging)
        return shares[key]

    copied = [segment for segment in segments if segment.path and not shared(segment)]
    return sum(files.allocated(segment.path, segment.data_end - segment.start) for segment in copied)


def check_room(
    staging: StagingFolder, settings: RepairSettings, whole: Sequence[Segment], last: int,
    damages: Sequence[repair.SegmentDamage],
) -> None:  # fmt: skip
    """Raise InputError when the new log and the quarantine cannot fit. ``whole`` are all segments, ``damages`` is the
    damage."""
    free = files.free_bytes(staging.root)
    if free is None:
        return
    needed = log_bytes(staging, settings.link, whole, last, frozenset(damage.segment.start for damage in damages))
    needed += sum(max(0, min(damage.end, damage.segment.data_end) - damage.offset) for damage in damages if damage.segment.path)
    if settings.replicas:
        needed += sum(damage.length for damage in damages if not damage.segment.path)
    if needed > free:
        raise errors.InputError(
            f"{escape(settings.out)}: the new log needs about {needed:,} bytes where {free:,} are free: make room, or choose a "
            "disk where --link works"
        )


def _can_share(link: str, path: str, staging: StagingFolder) -> bool:
    """Return whether a file can be shared with the staging folder: tried."""
    trial = files.join(staging.temporary, uuid.uuid4().hex)
    try:
        return (link == files.folders.HARD and files.link(path, trial)) or files.clone(path, staging.temporary, trial)
    finally:
        files.remove_tree(trial)


# --------------------------------------------------------------------------------------------------------------------- replicas
# List the segments of replicas and backups. What is wrong with one of them is no error: nothing is taken from it then.


def list_replicas(places: Sequence[str], log: Commitlog) -> list[list[Segment]]:
    """Return the segments of each replica, which are as long as those of the damaged ``log``.

    A place is a store, with its segments in commitlog/, or a folder of segments. Raises InputError for one that has none.
    """
    size = max((segment.segment_end - segment.start for segment in log.segments), default=0)
    return [_list(place, size) for place in places]


def log_folder(place: str) -> str:
    """Return the folder of segments that a place stands for."""
    inner = files.join(place, layouts.COMMITLOG)
    return inner if files.entry_of(inner).kind == files.FOLDER else place


def _list(place: str, size: int) -> list[Segment]:
    root = log_folder(place)
    if files.entry_of(root).kind != files.FOLDER:
        meant = several(place, "--replica") or ": --replica is a store, or a folder of segments"
        raise errors.InputError(f"{escape(place)}: is no folder{meant}")
    segments = []
    for entry in sorted(files.listing(root), key=lambda entry: entry.name):
        start = layouts.first_byte(entry.name)
        if entry.kind == files.FILE and start is not None and entry.size <= size:
            segments.append(Segment(entry.name, entry.path, start, start + entry.size, start + size))
    if not segments:
        raise errors.InputError(
            f"{escape(root)}: holds no segment of at most {size:,} bytes: --replica is a store, or a folder of segments"
        )
    return segments


# --------------------------------------------------------------------------------------------------------- behind the log's end
# Take from a replica what is behind the end of the log: the torn record there, and with --extend all that follows.

EXTENDED: Final = "behind the log's end"
TORN: Final = "last record torn where no CRC covers it"
"""reasons of ranges: only the replica has it, or it shows only beside the replica"""


def log_end(chain: Chain, whole: Sequence[Segment], ends: dict[int, int], last: int) -> repair_replicas.ReplicaEnd | None:
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
    segment = next(
        (segment_of_log for segment_of_log in whole if segment_of_log.start <= offset < segment_of_log.segment_end), None
    )
    if segment is None:
        segment = _next_segment(whole[-1])
    torn = min(chain.torn.length, segment.segment_end - offset) if chain.torn and not chain.stale else 0
    firsts = [summary.first for summary in chain.accepted if home.start <= summary.first < last]
    return repair_replicas.ReplicaEnd(repair.RecordAt(home, last, max(firsts, default=-1)), segment, offset, torn)


def _next_segment(before: Segment) -> Segment:
    """Return the segment that would follow, which is not there."""
    start, size = before.segment_end, before.segment_end - before.start
    return Segment(f"{start:020d}", "", start, start, start + size)


@dataclass
class BehindEnd:
    """What replicas have behind the log's end, and what is taken of it: ``damage`` that the replica ``taken`` (from 1) mends.

    ``new`` are the segments of it that the log lacks.
    """

    end: repair_replicas.ReplicaEnd | None = None
    found: list[repair_replicas.Behind] = field(default_factory=list)
    taken: int = 0
    damage: list[repair.SegmentDamage] = field(default_factory=list)
    new: list[Segment] = field(default_factory=list)
    extends: bool = False

    def take(self, extend: bool, torn: str, whole: Sequence[Segment]) -> None:
        """Take the torn record, which is so for the reason ``torn``; with ``extend`` all of the replica that goes farthest."""
        end = self.end
        assert end is not None
        farthest = max(self.found, key=lambda taken: (taken.end, -taken.replica), default=None)
        first = next((taken for taken in self.found if taken.torn_end >= 0), None)
        if extend and farthest is not None and farthest.stretches and (not end.torn or farthest.torn_end >= 0):
            taken, stretches, self.extends = farthest, farthest.stretches, True
        elif first is not None:
            taken, stretches = first, [(first.begin, first.torn_end)]
        else:
            return
        self.taken, before = taken.replica, end.last._replace(offset=taken.before)
        reasons = [torn] if end.torn else [TORN] if taken.begin < end.offset else []
        reason = "; ".join([*reasons, *([EXTENDED] if self.extends else [])])
        segments = list(whole)
        for low, high in stretches:
            while segments[-1].segment_end <= low:
                segments.append(_next_segment(segments[-1]))
                self.new.append(segments[-1])
            segment = next(taken for taken in segments if taken.start <= low < taken.segment_end)
            place = repair.DamagedPlace(low, high - low, reason)
            self.damage.append(repair.SegmentDamage(low, high - low, segment, (place,), before=before, ends_log=True))

    def others(self, damages: Sequence[repair.SegmentDamage]) -> list[repair.SegmentDamage]:
        """Return the damage without that at the log's end, if it is taken: what the replica has whole is no broken tail."""
        return [damage for damage in damages if not self.taken or self.end is None or damage.offset < self.end.offset]

    def checked(self, mended: list[mend.Mended]) -> list[mend.Mended]:
        """Return what was taken. Raises InputError where the replica no longer has it."""
        for mended_range in mended:
            if not mended_range.replica:
                raise errors.InputError(
                    f"--replica: replica {self.taken} has changed meanwhile at offset {mended_range.offset}: run it again"
                )
        return mended

    def tell(self, changed: dict[str, Any]) -> list[str]:
        """Return warnings of how far each replica goes on and what was taken; ``changed``, for the manifest, gets the same."""
        if self.end is None:
            return []
        warnings = list[str]()
        upto, entries = max(self.end.offset, self.damage[-1].end if self.damage else 0), list[dict[str, Any]]()
        for behind in self.found:
            is_taken = self.extends and behind.replica == self.taken
            if behind.end <= upto and not is_taken:
                continue
            amount = f"{counted(behind.bytes, 'byte')}, {counted(behind.records, 'record')}, from offset {behind.begin} on"
            entries.append(
                {"replica": behind.replica, "offset": behind.begin, "bytes": behind.bytes, "records": behind.records}
            )
            if is_taken:
                warnings.append(f"--extend: replica {behind.replica} goes on behind the log's end, and was taken: {amount}")
            else:
                warnings.append(
                    f"--replica: replica {behind.replica} goes on behind the log's end: {amount}: --extend takes it"
                )
        if entries:
            changed["behind"] = entries
        return warnings


def look_behind(
    scan: Scan, replicas: Sequence[list[Segment]], extend: bool, chain: Chain, whole: Sequence[Segment], ends: dict[int, int]
) -> BehindEnd:
    """Return what is taken of what replicas, given by their segments, have behind the log's end. Tasks look at it."""
    behind = BehindEnd(log_end(chain, whole, ends, last_record(chain.accepted)) if replicas else None)
    if behind.end is None:
        return behind
    plan = handover.write_plan(scan.staging, "log-end", [behind.end])
    listed = handover.write_plan(scan.staging, "replicas-behind", replicas)
    results = scan.engine.numbers(repair_replicas.LookBehind(plan, listed, scan.task.settings), len(replicas))
    behind.found = sorted(repair_replicas.Behind.read(results), key=lambda behind_end: behind_end.replica)
    behind.take(extend, chain.torn.reason if chain.torn else "", whole)
    return behind


# ------------------------------------------------------------------------------------------------------------ differing records
# Sound records of the log that a replica has otherwise: told, and with --majority taken from most of the logs.

MAJORITY: Final = "most of the logs have this record otherwise"
"""reason of a range that was taken from the majority"""
_LISTED: Final = 1000
"""Records that the manifest lists."""
_TOLD: Final = 3


@dataclass(frozen=True)
class Differing:
    """Records that replicas have otherwise, by the number of the replica (from 1), and the segments of each replica."""

    records: list[tuple[int, differing.DifferingRecord]]
    replicas: list[list[Segment]]

    def outside(self, mended: Sequence[mend.Mended], end: int) -> Differing:
        """Return those that lie before ``end``, where the log ends, and in no range that is mended anyway."""
        spans = [(mended_range.low, mended_range.high) for mended_range in mended]

        def is_left(record: differing.DifferingRecord) -> bool:
            low, high = record.phy_offset, record.phy_offset + record.size
            return low <= end and not any(a < high and low < b for a, b in spans)

        return Differing([mended_range for mended_range in self.records if is_left(mended_range[1])], self.replicas)

    def majority(self, segments: Sequence[Segment]) -> dict[int, list[repair.SegmentDamage]]:
        """Return the records of which more than half of the logs have the same other bytes, as damage that a replica mends.

        They are given by the number of the first replica with these bytes; neighbours are one. ``segments`` are the log's.
        """
        of_record: dict[int, list[tuple[int, differing.DifferingRecord]]] = {}
        for number, record in self.records:
            of_record.setdefault(record.phy_offset, []).append((number, record))
        damages: dict[int, list[repair.SegmentDamage]] = {}
        for offset, versions in sorted(of_record.items()):
            end = offset + versions[0][1].size
            having = sum(
                any(s.start <= offset and end <= s.data_end for s in segments_of_replica)
                for segments_of_replica in self.replicas
            )
            votes = Counter(record.digest for _, record in versions if record.digest).most_common(1)
            if votes and 2 * votes[0][1] > 1 + having:
                number, record = next(version for version in versions if version[1].digest == votes[0][0])
                _add(damages.setdefault(number, []), record, segments)
        return damages

    def tell(self, changed: dict[str, Any], taken: Sequence[mend.Mended]) -> list[str]:
        """Return warnings of the records that differ; ``changed``, for the manifest, lists them."""
        if not self.records:
            return []
        taken_offsets = {
            record.phy_offset for _, record in self.records if any(_has(mended_range, record) for mended_range in taken)
        }
        shown = "; ".join(f"replica {number}: {record.text}" for number, record in self.records[:_TOLD])
        others = f"; {counted(len(self.records) - _TOLD, 'more record')}" if len(self.records) > _TOLD else ""
        is_open = any(record.phy_offset not in taken_offsets for _, record in self.records)
        advice = ": look which log is right; the log's own bytes stay" if is_open else ""
        warnings = [f"--replica: records differ where no CRC tells which log is right: {shown}{others}{advice}"]
        if taken:
            records = counted(len(taken_offsets), "record")
            warnings.append(f"--majority: {records} taken as most of the logs have it: the old bytes are in quarantine/")
        changed["differing"] = [
            {
                "replica": number, "offset": record.phy_offset, "size": record.size, "topic": record.topic,
                "queue": record.queue, "queue_offset": record.queue_offset, "fields": record.fields,
                "taken": record.phy_offset in taken_offsets,
            }
            for number, record in self.records[:_LISTED]
        ]  # fmt: skip
        return warnings


def compare_replicas(scan: Scan, replicas: list[list[Segment]], log: Commitlog) -> Differing:
    """Return where the log differs from replicas, given by their segments. Tasks compare byte by byte."""
    records = list[tuple[int, differing.DifferingRecord]]()
    for number, segments in enumerate(replicas, 1):
        stretches = differing.overlap(log.segments, segments)
        if stretches:
            tasks = task_count(len(stretches), 2 * sum(item.length for item in stretches), scan.engine.cores)
            plan = handover.write_plan(scan.staging, f"stretches-{number}", stretches)
            results = scan.engine.numbers(differing.CompareLogs(scan.staging, plan, tasks, scan.task.settings), tasks)
            records += [(number, record) for item in differing.LogDifference.read(results) for record in item.records]
    return Differing(sorted(records, key=lambda item: (item[1].phy_offset, item[0])), replicas)


def _has(mended_range: mend.Mended, record: differing.DifferingRecord) -> bool:
    return mended_range.low <= record.phy_offset and record.phy_offset + record.size <= mended_range.high


def _add(damages: list[repair.SegmentDamage], record: differing.DifferingRecord, segments: Sequence[Segment]) -> None:
    """Add a record to the stretches of one replica, joined with the one before it."""
    low, segment = (
        record.phy_offset,
        next(candidate for candidate in segments if candidate.start <= record.phy_offset < candidate.segment_end),
    )
    places: tuple[repair.DamagedPlace, ...] = (repair.DamagedPlace(low, record.size, f"{MAJORITY} ({record.fields})"),)
    if damages and damages[-1].end == low and damages[-1].segment == segment:
        before = damages.pop()
        low, places = before.offset, (*before.places, *places)
    damages.append(repair.SegmentDamage(low, record.phy_offset + record.size - low, segment, places))
