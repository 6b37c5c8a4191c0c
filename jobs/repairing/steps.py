"""The steps of a build that differ in a repair: between the scan and the decisions the log is mended.

The log is scanned once. What is damaged is mended in new segments, beside copies of the others, and only the ranges with damage
are scanned again, from the new segments. All that follows is done as in a build of the new log.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from rocketmq_reindex.jobs.building.decisions import odd_queues
from rocketmq_reindex.jobs.building.full import FullBuild
from rocketmq_reindex.jobs.building.scanning import Scan
from rocketmq_reindex.jobs.building.summary import Summary
from rocketmq_reindex.jobs.engines.tasks import task_count
from rocketmq_reindex.jobs.repairing import reporting
from rocketmq_reindex.jobs.repairing.located import located
from rocketmq_reindex.jobs.repairing.odd import gaps, out_of_line
from rocketmq_reindex.jobs.repairing.ranges import scan_again
from rocketmq_reindex.jobs.repairing.replicas import list_replicas
from rocketmq_reindex.jobs.repairing.settings import RepairSettings
from rocketmq_reindex.jobs.repairing.tombstones import with_tombstones
from rocketmq_reindex.jobs.store.segments import Commitlog
from rocketmq_reindex.jobs.watching.progress import Reporter
from rocketmq_reindex.storage_format.errors import InputError, RefusedError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.plurals import counted
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.repair.damage import Damage, damages, whole_segments
from rocketmq_reindex.storage_format.scan.chain import Chain
from rocketmq_reindex.storage_format.scan.ranges import Segment
from rocketmq_reindex.storage_format.scan.segment_chain import MISNAMED
from rocketmq_reindex.udfs import files, plans
from rocketmq_reindex.udfs.progress import Positions
from rocketmq_reindex.udfs.repair.mend import MendDamage, Mended
from rocketmq_reindex.udfs.repair.segments import FOLDER, HARD, NONE, REFLINK, SegmentPlan, WriteSegments, WrittenSegment
from rocketmq_reindex.udfs.staging import StagingFolder

_BROKEN: Final = r.REASONS[r.BAD_BODY_CRC]


class RepairSteps(FullBuild):
    """Mends the log, and builds from the new one."""

    settings: RepairSettings
    _entries: list[dict[str, Any]] | None = None

    def staged(self, staging: StagingFolder) -> None:
        for folder in (FOLDER, "quarantine"):
            files.make_folder(files.join(staging.tree, folder), below=staging.tree)

    def mended(
        self, scan: Scan, segments: list[Segment], chain: Chain, summary: Summary, reporter: Reporter
    ) -> tuple[list[Segment], Chain]:
        if not segments:
            raise InputError(f"{escape(', '.join(self.settings.roots))}: holds no segment: there is nothing to repair")
        with reporter.step("decide"):
            whole = whole_segments(segments)
            _refuse_misnamed(chain)
            odd = odd_queues(scan, self.settings, segments, chain)
            holes = [*chain.holes, *out_of_line(odd, segments)]
            kept = [hole for hole in holes if self.settings.include_broken and hole.reason == _BROKEN]
            found = located(damages([hole for hole in holes if hole not in kept], whole), chain.accepted, segments)
        with reporter.step("mend"):
            mended = reporting.apart(self._mend(scan, found))
            if self.settings.tombstones:
                mended, left = with_tombstones(mended, gaps(odd), {segment.start: segment.segment_end for segment in whole})
                if left:
                    summary.warn(
                        f"--tombstones: {counted(left, 'lost queue offset')} without room for a record: they stay empty"
                    )
        written = self._write(scan, whole, mended, reporter)
        self._entries = reporting.entries(mended, written)
        reporting.report(summary, whole, mended, kept, written)
        new = [_in_tree(segment, scan.staging) for segment in whole]
        changed = [(one.low, one.high) for one in mended] + [(hole.offset, hole.offset + hole.length) for hole in kept]
        if not changed:
            return segments, chain
        return new, scan_again(scan, chain, new, sorted(changed), broken=bool(kept))

    def more_entries(self) -> list[dict[str, Any]]:
        return self._entries or []

    def _mend(self, scan: Scan, found: list[Damage]) -> list[Mended]:
        """Have tasks decide what stands in the place of the damage."""
        staging, tasks = scan.staging, task_count(len(found), sum(damage.length for damage in found), scan.engine.cores)
        plan = plans.write_plan(staging, "damage", found)
        listed = plans.write_plan(staging, "replicas", list_replicas(self.settings.replicas, self.log))
        function = MendDamage(staging, plan, listed, tasks, scan.task.settings)
        return Mended.read(scan.engine.numbers(function, tasks))

    def _write(self, scan: Scan, whole: list[Segment], mended: list[Mended], reporter: Reporter) -> list[WrittenSegment]:
        """Have tasks write all segments."""
        staging, size = scan.staging, sum(segment.segment_end - segment.start for segment in whole)
        wanted = [self._plan(segment, mended, segment is whole[-1]) for segment in whole]
        self._check_room(staging, wanted)
        tasks = task_count(len(whole), size, scan.engine.cores)
        positions = Positions(staging)

        def probe() -> tuple[int, float]:
            shares = positions.shares()
            done = set(files.names(files.join(staging.tree, FOLDER)))
            share = sum(1.0 if segment.name in done else shares.get(segment.name, 0.0) for segment in whole)
            return len(done), share / len(whole)

        with reporter.stage("repair", "segments", len(whole), size, probe) as shown:
            function = WriteSegments(staging, plans.write_plan(staging, "segments", wanted), tasks)
            written = WrittenSegment.read(scan.engine.numbers(function, tasks))
            shown.count(segments=len(written))
        return sorted(written, key=lambda segment: segment.entry["path"])

    def _plan(self, segment: Segment, mended: list[Mended], is_last: bool) -> SegmentPlan:
        pieces = [
            dataclasses.replace(piece, range=number)
            for number, one in enumerate(mended)
            if one.start == segment.start
            for piece in one.pieces
        ]
        # A broker writes on in the last segment: a hard link would take that to the old log.
        link = NONE if is_last and self.settings.link == HARD else self.settings.link
        return SegmentPlan(
            segment.name, segment.path, segment.start, segment.data_end, segment.segment_end, link, pieces
        )  # fmt: skip

    def _check_room(self, staging: StagingFolder, wanted: list[SegmentPlan]) -> None:
        """Raises InputError when the new log cannot fit. What is shared by links takes no room."""
        free = files.free_bytes(staging.root)
        if free is None:
            return
        shared = [one for one in wanted if not one.pieces and one.link != NONE and _can_share(one, staging)]
        needed = sum(one.data_end - one.start for one in wanted if one not in shared)
        if needed > free:
            raise InputError(
                f"{escape(self.settings.out)}: the new log needs about {needed:,} bytes where {free:,} are free: make room, or "
                "choose a disk where --link works"
            )


def _refuse_misnamed(chain: Chain) -> None:
    """Raises RefusedError where a segment's name is wrong: its records are sound, and somebody has to look first."""
    wrong = next((hole for hole in chain.holes if hole.reason.startswith(MISNAMED)), None)
    if wrong is not None:
        raise RefusedError(f"segment {wrong.segment}: {wrong.reason}: rename it, and repair then")


def _can_share(plan: SegmentPlan, staging: StagingFolder) -> bool:
    """Whether a segment's file can be shared with the staging folder: tried."""
    trial = files.join(staging.temporary, f"link-{plan.name}")
    done = files.link(plan.path, trial) if plan.link == HARD else plan.link == REFLINK and files.clone(plan.path, trial)
    files.remove_tree(trial)
    return done


def _in_tree(segment: Segment, staging: StagingFolder) -> Segment:
    path = files.join(staging.tree, f"{FOLDER}/{segment.name}")
    return Segment(segment.name, path, segment.start, segment.segment_end, segment.segment_end)


def repair_steps(settings: RepairSettings, target: str, log: Commitlog, reporter: Reporter) -> FullBuild:
    """Return the steps of a repair (``jobs.run.Build``)."""
    _ = target, reporter
    return RepairSteps(settings, log)
