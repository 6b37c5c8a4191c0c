"""The steps of a build that differ where a log of DLedger becomes a plain one: the records are laid anew, all offsets change.

The old log is scanned once, and what a build would take of it is taken. All that follows is done as in a build of the new log.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rocketmq_reindex import files
from rocketmq_reindex.jobs.building import scanning
from rocketmq_reindex.jobs.building.advice import check_committed
from rocketmq_reindex.jobs.building.full import FullBuild
from rocketmq_reindex.jobs.building.planning import check_free, sample, scan_settings
from rocketmq_reindex.jobs.building.scanning import Scan
from rocketmq_reindex.jobs.engines.engine import task_count
from rocketmq_reindex.jobs.publishing.layout import TIMERS
from rocketmq_reindex.jobs.repairing.changes import FILLER
from rocketmq_reindex.jobs.repairing.options import RepairSettings
from rocketmq_reindex.jobs.repairing.steps import RepairSteps, refuse
from rocketmq_reindex.jobs.store.folders import entries_in
from rocketmq_reindex.jobs.store.settings import Commitlog, committed_index, lead_of, list_segments, log_of_dledger
from rocketmq_reindex.jobs.watching.progress import Reporter
from rocketmq_reindex.storage_format import layouts
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.index.layout import IndexFilePlan
from rocketmq_reindex.storage_format.layouts import COMMITLOG, INT64_MAX
from rocketmq_reindex.storage_format.scan.chain import Chain
from rocketmq_reindex.storage_format.scan.ranges import Hole, RangeSummary, Segment
from rocketmq_reindex.storage_format.showing import counted, escape
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.repair import places, plain
from rocketmq_reindex.udfs.repair.differing import PIECE, CommonBytes, CompareLogs, LogDifference
from rocketmq_reindex.udfs.staging import Positions, StagingFolder

# ----------------------------------------------------------------------------------------------------------------------- nodes
# The other nodes of a group of DLedger: whether one has more committed entries, and where their bytes are not the same.


@dataclass(frozen=True)
class Node:
    """Another node's log: how messages name it, its segments, and the last entry that it knows as committed, -1 for none."""

    name: str
    segments: list[Segment]
    committed: int


def list_nodes(places: Sequence[str], segment_size: int) -> list[Node]:
    """Return the logs of other nodes, whose segments have ``segment_size`` bytes.

    A place is a store, or a folder of segments. Raises InputError for one without a log of DLedger.
    """
    return [_node(number, place, segment_size) for number, place in enumerate(places, 1)]


def _node(number: int, place: str, segment_size: int) -> Node:
    root = log_of_dledger(place) or place
    if files.entry_of(root).kind == files.ABSENT:
        raise InputError(f"{escape(place)}: is not there: --replica is the store of another node of the group")
    if files.entry_of(root).kind != files.FOLDER or not lead_of(root, entries_in(root)):
        raise InputError(
            f"{escape(place)}: holds no log of DLedger: --replica is the store of another node of the group, or its data folder"
        )
    name = f"--replica {number} ({escape(place)})"
    return Node(name, list_segments((root,), segment_size, may_be_short=True).segments, committed_index(root))


def check_most(nodes: Sequence[Node], accepted: Sequence[RangeSummary]) -> None:
    """Raise InputError where a node knows more entries as committed than the ranges ``accepted`` have."""
    last = max((summary.entries[4] for summary in accepted if summary.entries), default=-1)
    for node in nodes:
        if node.committed > last:
            raise InputError(
                f"{node.name}: knows entries of DLedger up to index {node.committed} as committed, and this log has them up to "
                f"{last}: take that store as STORE, and this one as --replica"
            )


def compare_nodes(scan: Scan, nodes: Sequence[Node], segments: Sequence[Segment], chain: Chain) -> Iterator[str]:
    """Compare this log with those of other nodes. Yield what differs: entries of a group have the same bytes on each node."""
    own = [segment for segment in segments if segment.lead]
    # Behind the last entry are zeros, or one that is not committed.
    end = max((max(summary.end, summary.tail, summary.later) for summary in chain.accepted), default=0)
    sound, damaged = _stretches(own, chain.holes, end)
    for number, node in enumerate(nodes, 1):
        differences = _differences(scan, f"sound-{number}", sound, node)
        if unlike := [found for found in differences if found.a and found.b]:
            size = counted(sum(found.bytes for found in unlike), "byte")
            yield (
                f"{node.name}: has other bytes than this log in entries that are sound here: {size}, the first at offset "
                f"{unlike[0].first}{_record(unlike[0])}: find out which node is right"
            )
        there = sum(part.length for part in _common(sound, node))
        lacks = sum(high - low for _, low, high in sound) - there + sum(found.bytes for found in differences if not found.b)
        if lacks:
            yield f"{node.name}: lacks {counted(lacks, 'byte')} of the log: it is behind, or has lost them"
        if any(found.b for found in _differences(scan, f"damaged-{number}", damaged, node)):
            yield f"{node.name}: has other bytes where this log is damaged: if verify finds it sound, take that store as STORE"


def _record(found: LogDifference) -> str:
    return f" ({found.records[0].text})" if found.records else ""


_Stretch = tuple[Segment, int, int]
"""Offsets [low, high) of the log, which lie in one segment"""


def _stretches(own: Sequence[Segment], holes: Sequence[Hole], end: int) -> tuple[list[_Stretch], list[_Stretch]]:
    """Return what of the log lies before ``end`` and is sound, and what is damaged."""
    sound, damaged = list[_Stretch](), list[_Stretch]()
    ordered = sorted(holes, key=lambda hole: hole.offset)
    for segment in own:
        at, stop = segment.start, min(segment.data_end, end)
        for hole in ordered:
            low, high = max(hole.offset, segment.start), min(hole.offset + hole.length, stop)
            if low < high:
                sound += [(segment, at, low)] if at < low else []
                damaged.append((segment, low, high))
                at = high
        sound += [(segment, at, stop)] if at < stop else []
    return sound, damaged


def _common(stretches: Sequence[_Stretch], node: Node) -> list[CommonBytes]:
    """Return what of the stretches a node has."""
    parts = list[CommonBytes]()
    by_start = {segment.start: segment for segment in node.segments}
    for segment, low, high in stretches:
        other = by_start.get(segment.start)
        high = min(high, other.data_end) if other else low
        for at in range(low, high, PIECE):
            length, inside = min(PIECE, high - at), at - segment.start
            parts.append(CommonBytes(at, length, segment.path, inside, other.path if other else "", inside))
    return parts


def _differences(scan: Scan, name: str, stretches: Sequence[_Stretch], node: Node) -> list[LogDifference]:
    """Have tasks compare stretches with a node. Return those that differ, in order."""
    parts = _common(stretches, node)
    if not parts:
        return []
    tasks = task_count(len(parts), 2 * sum(part.length for part in parts), scan.engine.cores)
    function = CompareLogs(scan.staging, handover.write_plan(scan.staging, name, parts), tasks, scan.task.settings)
    return sorted(LogDifference.read(scan.engine.numbers(function, tasks)), key=lambda found: found.first)


# ----------------------------------------------------------------------------------------------------------------------- steps

_TELLS: Final = {
    "lost_halves": "whose half message the old log does not have: their Prepared Transaction Offset is 0 now",
    "wrong": "with a wrong __CRC32#, which stays wrong: a broker with forceVerifyPropCRC=true cuts its log there",
    "ids": f"with an offset of the old log in a message id (ORIGIN_MESSAGE_ID): it stays; {layouts.MOVED}/ has the new offset",
}


class PlainSteps(FullBuild):
    """Lays the log anew, and builds from the new one."""

    settings: RepairSettings
    left_out = (
        "they are not in the new log: only their group says whether they count, so take the node that leads, or stop the whole "
        "group first, the leader last"
    )

    def check_room(
        self, staging: StagingFolder, accepted: list[RangeSummary] | None = None, plans: list[IndexFilePlan] | None = None,
        extra_units: int = 0,
    ) -> None:  # fmt: skip
        """Before the scan also for the new log, and for the rows of its records."""
        besides, scan = 0, scan_settings(self.settings)
        if accepted is None and files.free_bytes(staging.root) is not None:
            sampled = sample(scan, self.log)
            rows = int(sampled.share(self.log.size) * sampled.records)
            besides = max(0, self.log.size - sampled.empty) + 3 * rows * places.ROW.itemsize
        check_free(self.settings, scan, self.log, staging.root, accepted, plans, extra_units, besides)

    @functools.cached_property
    def _nodes(self) -> list[Node]:
        """The other nodes of the group. Raises OSError, and InputError for one that has no log of DLedger."""
        size = max((segment.segment_end - segment.start for segment in self.log.segments), default=0)
        return list_nodes(self.settings.replicas, size)

    def staged(self, staging: StagingFolder) -> None:
        # A wrong place is told before the log is read.
        _ = self._nodes
        for folder in (COMMITLOG, layouts.MOVED):
            files.make_folder(files.join(staging.tree, folder), below=staging.tree)

    def mended(
        self, scan: scanning.Scan, segments: list[Segment], chain: Chain, reporter: Reporter
    ) -> tuple[list[Segment], Chain]:  # fmt: skip
        refuse(chain, segments)
        check_committed(self.settings.committed, segments, chain)
        if chain.doubt:
            self.warnings.warn(scanning.doubts(chain.doubt))
        self._tell_tail(chain)
        self.warnings.add_damages(chain.holes)
        if not any(summary.records for summary in chain.accepted):
            raise InputError(f"{escape(', '.join(self.settings.roots))}: holds no record: there is nothing to lay anew")
        self._tell_timers()
        if segments[0].lead and segments[0].start:
            self.warnings.warn(
                f"the log of DLedger begins at offset {segments[0].start}: what lay before has expired, or is in an old plain "
                "log: name that folder, too, by STORE, or by a --commitlog of its own"
            )
        nodes = self._nodes
        check_most(nodes, chain.accepted)
        with reporter.step("compare"):
            self.warnings.warnings += compare_nodes(scan, nodes, segments, chain)
        with reporter.step("list"):
            planned, size = self._placed(scan, segments, chain)
        written = self._write(scan, segments, planned, size, reporter)
        self.entries = [entry for segment in written for entry in segment.entries]
        told = self._told(written)
        self.figures["repair"] = {
            "ranges": [_entry(hole) for hole in chain.holes],
            "from_replica": 0,
            "filled": sum(hole.length for hole in chain.holes),
            "kept": 0,
            "segments": len(written),
            "to_plain": {"records": sum(segment.records for segment in written)} | told,
        }
        new = [_in_tree(segment, size, scan.staging) for segment in planned]
        return new, scan.rescan(new, [(0, INT64_MAX)], chain, scan.task.settings)

    def _placed(
        self, scan: scanning.Scan, segments: list[Segment], chain: Chain
    ) -> tuple[list[places.PlannedSegment], int]:  # fmt: skip
        """Have tasks list the records of the old log, and one of them decide where each goes. Return the size of a segment,
        too."""
        staging, accepted = scan.staging, sorted(chain.accepted, key=lambda summary: summary.low)
        specs = {spec.number: spec for specs in scan.ranges.values() for spec in specs}
        wanted = [specs[summary.number] for summary in accepted]
        tasks = task_count(len(wanted), sum(spec.high - spec.low for spec in wanted), scan.engine.cores)
        function = places.ListRecords(staging, handover.write_plan(staging, "list", wanted), tasks, scan.task.settings)
        listed = {one.number: one for one in places.ListedRange.read(scan.engine.numbers(function, tasks) if wanted else [])}
        if sum(one.rows for one in listed.values()) != sum(summary.records for summary in accepted):
            raise InputError(f"{escape(', '.join(self.settings.roots))}: was read twice, and differs: is a broker at work?")
        size = max((segment.segment_end - segment.start for segment in segments), default=1)
        content = [listed[summary.number].path for summary in accepted], [[h.offset, h.length] for h in chain.holes]
        place = places.PlaceRecords(staging, handover.write_plan(staging, "place", content), segments[0].start, size)
        planned = places.PlannedSegment.read(scan.engine.numbers(place, 1))
        free = files.free_bytes(staging.root)
        if free is not None and len(planned) * size > free + size:
            raise InputError(
                f"{escape(self.settings.out)}: the new log needs about {len(planned) * size:,} bytes where {free:,} are free: "
                "make room or choose another disk"
            )
        return planned, size

    def _write(
        self, scan: scanning.Scan, segments: list[Segment], planned: list[places.PlannedSegment], size: int, reporter: Reporter
    ) -> list[plain.PlainSegment]:  # fmt: skip
        """Have tasks write all segments. Return what they say of each, in order."""
        if not planned:
            return []
        staging, positions = scan.staging, Positions(scan.staging)
        tasks = task_count(len(planned), len(planned) * size, scan.engine.cores)

        def probe() -> tuple[int, float]:
            shares = positions.shares()
            names = set(files.names(files.join(staging.tree, COMMITLOG)))
            done = sum(1.0 if f"{one.start:020d}" in names else shares.get(f"{one.start:020d}", 0.0) for one in planned)
            return len(names), done / len(planned)

        with reporter.stage("repair", "segments", len(planned), len(planned) * size, probe) as shown:
            plan = handover.write_plan(staging, "plain", [segments, planned])
            function = plain.WritePlain(staging, plan, tasks, size, self.settings.property_crc_forced)
            written = plain.PlainSegment.read(scan.engine.numbers(function, tasks))
            shown.count(segments=len(written))
        return sorted(written, key=lambda segment: str(segment.entries[0]["path"]))

    def _told(self, written: list[plain.PlainSegment]) -> dict[str, int]:
        """Warn of records whose offsets could not be made right. Return how many there are of each kind."""
        told = dict[str, int]()
        for name in ("halves", *_TELLS):
            records = plain.ToldKind()
            for segment in written:
                records = records.and_(plain.ToldKind(*getattr(segment, name)))
            told[name] = records.records
            if records.records and name in _TELLS:
                which = f"{counted(records.records, 'record')}, the first at old offset {records.first},"
                self.warnings.warn(f"{which} {_TELLS[name]}")
        return told

    def _tell_tail(self, chain: Chain) -> None:
        """Tell of what lies behind the log's end: it is not in the new log."""
        if tail := chain.stale or chain.torn:
            self.warnings.add_damage(tail.segment, tail.offset, tail.length, tail.reason, lost=False)

    def _tell_timers(self) -> None:
        """Warn where the store has files of timer messages, which name offsets of the old log."""
        store = self.settings.store
        there = [name for name in TIMERS if store and files.entry_of(files.join(store, name)).kind != files.ABSENT]
        if there and not self.settings.write_delay:
            self.warnings.warn(
                f"{', '.join(there)}: name offsets of the old log: do not take them along, nor config/timercheck: --write-delay"
                " makes new ones"
            )


def _entry(hole: Hole) -> dict[str, Any]:
    """Return the manifest's entry of a damaged stretch of the old log: fillers of as many bytes stand there in the new one."""
    return {
        "segment": hole.segment, "offset": hole.offset, "length": hole.length, "reason": hole.reason, "how": FILLER,
        "replica": None, "damaged": [hole.offset, hole.length], "old": None, "new": None, "records": 0,
    }  # fmt: skip


def _in_tree(planned: places.PlannedSegment, size: int, staging: StagingFolder) -> Segment:
    name, end = f"{planned.start:020d}", planned.start + size
    return Segment(name, files.join(staging.tree, f"{layouts.COMMITLOG}/{name}"), planned.start, end, end)


def repair_steps(settings: RepairSettings, target: str, log: Commitlog, reporter: Reporter) -> FullBuild:
    """Return the steps of a repair (``jobs.building.run.Build``)."""
    _ = target, reporter
    return PlainSteps(settings, log) if settings.to_plain else RepairSteps(settings, log)
