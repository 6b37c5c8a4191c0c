"""The steps of a build that differ in a repair: between the scan and the decisions the log is mended.

The log is scanned once. What is damaged is mended in new segments, beside copies of the others, and only the ranges with damage
are scanned again, from the new segments. All that follows is done as in a build of the new log.
"""

import dataclasses
import functools
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Final

from rocketmq_reindex import files
from rocketmq_reindex.jobs.building import scanning
from rocketmq_reindex.jobs.building.decisions import Decisions, too_much
from rocketmq_reindex.jobs.building.full import FullBuild
from rocketmq_reindex.jobs.building.planning import check_free, scan_settings
from rocketmq_reindex.jobs.engines.engine import task_count
from rocketmq_reindex.jobs.repairing import changes as repair_changes
from rocketmq_reindex.jobs.repairing.changes import gaps, located, record_ends, with_tombstones, wrong_offsets
from rocketmq_reindex.jobs.repairing.epochs import GroupEpochs
from rocketmq_reindex.jobs.repairing.options import RepairSettings
from rocketmq_reindex.jobs.repairing.replicas import (
    Differing,
    check_room,
    compare_replicas,
    last_record,
    link_of,
    list_replicas,
    log_bytes,
    look_behind,
)
from rocketmq_reindex.jobs.watching.progress import Reporter
from rocketmq_reindex.storage_format.errors import InputError, RefusedError
from rocketmq_reindex.storage_format.index.layout import IndexFilePlan
from rocketmq_reindex.storage_format.layouts import COMMITLOG, INT64_MAX
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.repair import SHORT, SegmentDamage, damages, whole_segments
from rocketmq_reindex.storage_format.scan.chain import Chain, misnamed
from rocketmq_reindex.storage_format.scan.range_notes import HOLES_MAX
from rocketmq_reindex.storage_format.scan.ranges import Hole, RangeSummary, Segment
from rocketmq_reindex.storage_format.showing import counted, escape
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.repair import mend, replicas, segments as repair_segments
from rocketmq_reindex.udfs.staging import Positions, StagingFolder

_BROKEN: Final = r.REASONS[r.BAD_BODY_CRC]


class RepairSteps(FullBuild):
    """Mends the log, and builds from the new one."""

    settings: RepairSettings
    _last: int = -1
    """offset of the log's last good record"""

    @functools.cached_property
    def _replicas(self) -> list[list[Segment]]:
        """The segments of each replica. Raises OSError, and InputError for one that has none."""
        return list_replicas(self.settings.replicas, self.log)

    @functools.cached_property
    def _epochs(self) -> GroupEpochs:
        """The epochs of the store and of its replicas. Raises OSError, and InputError."""
        return GroupEpochs.read(self.settings, self.warnings)

    def check_room(
        self, staging: StagingFolder, accepted: list[RangeSummary] | None = None, plans: list[IndexFilePlan] | None = None,
        extra_units: int = 0,
    ) -> None:  # fmt: skip
        """Before the scan also for the log; where that is mended, its room is asked for once more."""
        besides, segments = 0, self.log.segments
        if accepted is None and segments and files.free_bytes(staging.root) is not None:
            besides = log_bytes(staging, self.settings.link, segments, segments[-1].start, frozenset())
        scan = scan_settings(self.settings)
        check_free(self.settings, scan, self.log, staging.root, accepted, plans, extra_units, besides)

    def staged(self, staging: StagingFolder) -> None:
        # A place without a segment is an error on a sound log, too, which takes nothing from it.
        _ = self._replicas
        # Before hours of a scan, and before any byte of a replica is used.
        _ = self._epochs
        for folder in (COMMITLOG, repair_segments.QUARANTINE):
            files.make_folder(files.join(staging.tree, folder), below=staging.tree)

    def check_begins(self, segments: list[Segment], chain: Chain) -> None:
        # A replica may have all that is lost.
        if not self.settings.replicas:
            super().check_begins(segments, chain)

    def _doubts(self, segments: list[Segment], chain: Chain) -> Iterator[str]:
        """Yield warnings of a log that may be another than it seems."""
        if chain.doubt:
            yield scanning.doubts(chain.doubt)
        if len(segments) == 1 and not self.settings.segment_size:
            size = counted(segments[0].data_end - segments[0].start, "byte")
            yield (
                f"the log has one segment, of {size}: name --segment-size if the broker's are longer "
                "(mappedFileSizeCommitLog), else it does not load this one"
            )

    def mended(
        self, scan: scanning.Scan, segments: list[Segment], chain: Chain, reporter: Reporter
    ) -> tuple[list[Segment], Chain]:  # fmt: skip
        if not segments:
            raise InputError(f"{escape(', '.join(self.settings.roots))}: holds no segment: there is nothing to repair")
        self.warnings.warnings += self._doubts(segments, chain)
        with reporter.step("decide"):
            refuse(chain, segments)
            whole = whole_segments(segments)
            odd = Decisions(scan, self.settings, segments, chain).odd_queues()
            holes = [*chain.holes, *wrong_offsets(odd, segments), *_broken_off(segments[-1], chain.torn)]
            ends = record_ends(chain.accepted, segments)

            def damaged(holes: Iterable[Hole]) -> list[SegmentDamage]:
                return located(damages(holes, whole, ends), chain.accepted, segments)

            to_mend = damaged(holes)
            self._last = last_record(chain.accepted)
            behind = look_behind(scan, self._replicas, self.settings.extend, chain, whole, ends)
            if behind.damage:
                self._epochs.take(behind.taken, behind.damage[0].offset, behind.damage[-1].end, self.warnings)
            whole += behind.new
            check_room(scan.staging, self.settings, whole, self._last, [*behind.others(to_mend), *behind.damage])
        with reporter.step("mend"):
            taken, kept = list[mend.Mended](), list[Hole]()
            if self.settings.include_broken:
                # What a replica has whole is not kept as it is.
                if self.settings.replicas:
                    taken = [
                        mended_range for mended_range in self._mend(scan, to_mend, only_replicas=True) if mended_range.replica
                    ]
                spans_taken = sorted((mended_range.offset, mended_range.offset + mended_range.length) for mended_range in taken)
                holes = [hole for hole in holes if not _is_in(spans_taken, hole.offset, hole.offset + hole.length)]
                kept = [hole for hole in holes if hole.reason == _BROKEN]
                to_mend = damaged(hole for hole in holes if hole.reason != _BROKEN)
                to_mend = [damage for damage in to_mend if not _is_in(spans_taken, damage.offset, damage.end)]
            taken += behind.checked(self._mend(scan, behind.damage, only_replicas=True, replica=behind.taken))
            mended = repair_changes.apart([*taken, *self._mend(scan, behind.others(to_mend))])
            differing, by_most = self._differing(scan, chain, segments, mended)
            mended = self._kept(scan, whole, repair_changes.apart([*mended, *by_most]))
            if self.settings.tombstones:
                lost = list(gaps(odd))
                _refuse_many(sum(gap.offsets for gap in lost), self.settings.max_fill)
                mended, homeless = with_tombstones(mended, lost, {segment.start: segment.segment_end for segment in whole})
                if homeless:
                    self.warnings.warn(
                        f"--tombstones: {counted(homeless, 'lost queue offset')} without room for a record: they stay empty"
                    )
        if self.settings.replicas:
            self.warnings.warnings += repair_changes.of_replicas(mended, self._last)
        written = self._write(scan, whole, mended, reporter)
        self.entries = repair_changes.entries(mended, written)
        changes, lost_bytes = repair_changes.report(whole, mended, kept, written)
        if not changes["ranges"] and (short := segments[-1].segment_end - segments[-1].data_end):
            changes["zeros"] = short
        self.figures["repair"] = changes
        lost_bytes.add_to(self.warnings)
        self.warnings.warnings += [*behind.tell(changes), *differing.tell(changes, by_most)]
        new = [_in_tree(segment, scan.staging) for segment in whole]
        changed = [(mended_range.low, mended_range.high) for mended_range in mended] + [
            (hole.offset, hole.offset + hole.length) for hole in kept
        ]
        if changed:
            read = scan.task.settings
            chain = scan.rescan(new, sorted(changed), chain, dataclasses.replace(read, crc_mode=r.CRC_NONE) if kept else read)
            _check_whole(chain, kept)
            segments = new
        last = last_record(chain.accepted)
        # What a broker has made ahead is empty.
        starts = [segment.start for segment in segments if segment.start <= max(last, segments[0].start)]
        log_end = record_ends(chain.accepted, segments).get(starts[-1], starts[-1])
        self.entries += self._epochs.written(scan.staging, log_end, self.warnings)
        return segments, chain

    def _differing(
        self, scan: scanning.Scan, chain: Chain, segments: list[Segment], mended: list[mend.Mended]
    ) -> tuple[Differing, list[mend.Mended]]:
        """Return the sound records that replicas have otherwise, and with --majority those that are taken from most of the
        logs."""
        if not self.settings.replicas:
            return Differing([], []), []
        differing = compare_replicas(scan, self._replicas, self.log).outside(mended, self._last)
        taken = list[mend.Mended]()
        for number, damage in differing.majority(segments).items() if self.settings.majority else ():
            of_replica = located(damage, chain.accepted, segments)
            of_majority = self._mend(scan, of_replica, only_replicas=True, replica=number)
            # Of the records beside them most of the logs have the same bytes as this one, or those of another replica.
            taken += [
                repair_changes.cut(mended_range, mended_range.offset, mended_range.offset + mended_range.length)
                for mended_range in of_majority
                if mended_range.replica
            ]
        return differing, taken

    def _mend(
        self, scan: scanning.Scan, damages: list[SegmentDamage], *, only_replicas: bool = False, replica: int = 0
    ) -> list[mend.Mended]:
        """Have tasks decide what stands in the place of the damage. ``replica``: this one alone is asked; 0: all are."""
        if not damages:
            return []
        staging, tasks = scan.staging, task_count(len(damages), sum(damage.length for damage in damages), scan.engine.cores)
        plan = handover.write_plan(staging, "damage", damages)
        segments_asked = [segments if replica in (0, number) else [] for number, segments in enumerate(self._replicas, 1)]
        listed = handover.write_plan(staging, "replicas", segments_asked)
        function = mend.MendDamage(plan, listed, tasks, scan.task.settings, only_replicas)
        return mend.Mended.read(scan.engine.numbers(function, tasks))

    def _kept(self, scan: scanning.Scan, whole: list[Segment], mended: list[mend.Mended]) -> list[mend.Mended]:
        """Have tasks keep what stood there, and return the ranges with that."""
        if not mended:
            return []
        by_start = {segment.start: segment for segment in whole}
        replaced = [
            SegmentDamage(
                mended_range.low, mended_range.high - mended_range.low, by_start[mended_range.start], tuple(mended_range.places)
            )
            for mended_range in mended
        ]
        tasks = task_count(len(replaced), sum(mended_range.length for mended_range in replaced), scan.engine.cores)
        plan = handover.write_plan(scan.staging, "replaced", replaced)
        function = repair_segments.KeepReplaced(scan.staging, plan, tasks, scan.task.settings)
        kept = {
            mended_range.low: mended_range
            for mended_range in repair_segments.KeptBytes.read(scan.engine.numbers(function, tasks))
        }
        return [dataclasses.replace(mended_range, kept=kept[mended_range.low]) for mended_range in mended]

    def _write(
        self, scan: scanning.Scan, whole: list[Segment], mended: list[mend.Mended], reporter: Reporter
    ) -> list[repair_segments.WrittenSegment]:
        """Have tasks write all segments."""
        staging, size = scan.staging, sum(segment.segment_end - segment.start for segment in whole)
        plans = [self._plan(segment, mended) for segment in whole]
        tasks = task_count(len(whole), size, scan.engine.cores)
        positions = Positions(staging)

        def probe() -> tuple[int, float]:
            shares = positions.shares()
            written_names = set(files.names(files.join(staging.tree, COMMITLOG)))
            share = sum(1.0 if segment.name in written_names else shares.get(segment.name, 0.0) for segment in whole)
            return len(written_names), share / len(whole)

        with reporter.stage("repair", "segments", len(whole), size, probe) as shown:
            function = repair_segments.WriteSegments(staging, handover.write_plan(staging, "segments", plans), tasks)
            written = repair_segments.WrittenSegment.read(scan.engine.numbers(function, tasks))
            shown.count(segments=len(written))
        return sorted(written, key=lambda segment: segment.entry["path"])

    def _plan(self, segment: Segment, mended: list[mend.Mended]) -> repair_segments.SegmentPlan:
        pieces = [
            dataclasses.replace(piece, range=number)
            for number, mended_range in enumerate(mended)
            if mended_range.start == segment.start
            for piece in mended_range.pieces
        ]
        link = link_of(self.settings.link, segment, self._last)
        return repair_segments.SegmentPlan(segment, link, pieces)


def refuse(chain: Chain, segments: list[Segment]) -> None:
    """Raise RefusedError where there is more damage than any disk makes, or a segment's name is wrong: its records are sound,
    and somebody has to look first.
    """
    size = max(segment.segment_end - segment.start for segment in segments)
    missing = (segments[-1].segment_end - segments[0].start) // max(1, size) - len(segments)
    if len(chain.holes) > HOLES_MAX or missing > HOLES_MAX:
        raise RefusedError(too_much(chain.holes[0]))
    wrong = misnamed(chain.holes)
    if wrong is not None:
        raise RefusedError(f"segment {wrong.segment}: {wrong.reason}: rename it, and repair then")


def _refuse_many(tombstones: int, max_fill: int) -> None:
    """Raise RefusedError for more tombstones than the user allows: a plan in memory has each."""
    if tombstones > max_fill:
        raise RefusedError(f"--tombstones: {tombstones:,} lost queue offsets, more than --max-fill {max_fill:,}")


def _broken_off(last: Segment, torn: Hole | None) -> list[Hole]:
    """Return the torn tail of a short last segment, where the zeros that fill the file up would make a record of it."""
    if torn is None or last.data_end == last.segment_end or not last.start <= torn.offset < last.data_end:
        return []
    length = last.data_end - torn.offset
    return [dataclasses.replace(torn, length=length, reason=SHORT)] if replicas.is_completed(last, torn.offset) else []


def _is_in(stretches: list[tuple[int, int]], low: int, high: int) -> bool:
    """Return whether one of the stretches, which are in order and apart, has all of [low, high)."""
    number = bisect_right(stretches, (low, INT64_MAX)) - 1
    return number >= 0 and stretches[number][1] >= high


def _check_whole(chain: Chain, kept: list[Hole]) -> None:
    """Raise InputError where the new log has damage: what was taken from a replica was sound when it was looked at."""
    for hole in chain.holes[:1]:
        if any(kept_hole.offset == hole.offset for kept_hole in kept):
            raise InputError(
                f"segment {hole.segment}: offset {hole.offset}: {hole.reason}, beside its wrong body CRC: no broker takes this "
                "record: leave out --include-broken"
            )
        raise InputError(
            f"segment {hole.segment}: offset {hole.offset}: the new log is not whole ({hole.reason}): has a replica changed "
            "meanwhile? Run it again"
        )


def _in_tree(segment: Segment, staging: StagingFolder) -> Segment:
    path = files.join(staging.tree, f"{COMMITLOG}/{segment.name}")
    return Segment(segment.name, path, segment.start, segment.segment_end, segment.segment_end)
