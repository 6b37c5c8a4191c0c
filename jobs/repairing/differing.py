"""Sound records of the log that a replica has otherwise: told, and with --majority taken from most of the logs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rocketmq_reindex.jobs.building.scanning import Scan
from rocketmq_reindex.jobs.building.summary import Summary
from rocketmq_reindex.jobs.engines.tasks import task_count
from rocketmq_reindex.jobs.store.segments import Commitlog
from rocketmq_reindex.storage_format.plurals import counted
from rocketmq_reindex.storage_format.repair.damage import Damage, Place
from rocketmq_reindex.storage_format.scan.ranges import Segment
from rocketmq_reindex.udfs import plans
from rocketmq_reindex.udfs.repair.differing import CompareLogs, DifferingRecord, LogDifference, overlap
from rocketmq_reindex.udfs.repair.mend import Mended

MAJORITY: Final = "most of the logs have this record otherwise"
"""reason of a range that was taken from the majority"""
_LISTED: Final = 1000
"""Records that the manifest lists."""
_TOLD: Final = 3


@dataclass(frozen=True)
class Differing:
    """Records that replicas have otherwise, by the number of the replica (from 1), and the segments of each replica."""

    records: list[tuple[int, DifferingRecord]]
    replicas: list[list[Segment]]

    def outside(self, mended: Sequence[Mended], end: int) -> Differing:
        """Return those that lie before ``end``, where the log ends, and in no range that is mended anyway."""
        spans = [(one.low, one.high) for one in mended]

        def is_left(record: DifferingRecord) -> bool:
            low, high = record.phy_offset, record.phy_offset + record.size
            return low <= end and not any(a < high and low < b for a, b in spans)

        return Differing([one for one in self.records if is_left(one[1])], self.replicas)

    def majority(self, segments: Sequence[Segment]) -> dict[int, list[Damage]]:
        """Return the records of which more than half of the logs have the same other bytes, as damage that a replica mends.

        They are given by the number of the first replica with these bytes; neighbours are one. ``segments`` are the log's.
        """
        of_record: dict[int, list[tuple[int, DifferingRecord]]] = {}
        for number, record in self.records:
            of_record.setdefault(record.phy_offset, []).append((number, record))
        found: dict[int, list[Damage]] = {}
        for offset, others in sorted(of_record.items()):
            end = offset + others[0][1].size
            having = sum(any(s.start <= offset and end <= s.data_end for s in of) for of in self.replicas)
            votes = Counter(record.digest for _, record in others if record.digest).most_common(1)
            if votes and 2 * votes[0][1] > 1 + having:
                number, record = next(one for one in others if one[1].digest == votes[0][0])
                _add(found.setdefault(number, []), record, segments)
        return found

    def tell(self, summary: Summary, taken: Sequence[Mended]) -> None:
        """Say which records differ; the manifest lists them."""
        if not self.records:
            return
        took = {record.phy_offset for _, record in self.records if any(_has(one, record) for one in taken)}
        told = "; ".join(f"replica {number}: {record.text}" for number, record in self.records[:_TOLD])
        more = f"; {counted(len(self.records) - _TOLD, 'more record')}" if len(self.records) > _TOLD else ""
        left = any(record.phy_offset not in took for _, record in self.records)
        advice = ": look which log is right; the log's own bytes stay" if left else ""
        summary.warn(f"--replica: records differ where no CRC tells which log is right: {told}{more}{advice}")
        if taken:
            what = counted(len(took), "record")
            summary.warn(f"--majority: {what} taken as most of the logs have it: the old bytes are in quarantine/")
        if summary.repair is not None:
            summary.repair["differing"] = [
                {
                    "replica": number, "offset": record.phy_offset, "size": record.size, "topic": record.topic,
                    "queue": record.queue, "queue_offset": record.queue_offset, "fields": record.fields,
                    "taken": record.phy_offset in took,
                }
                for number, record in self.records[:_LISTED]
            ]  # fmt: skip


def compare_replicas(scan: Scan, replicas: list[list[Segment]], log: Commitlog) -> Differing:
    """Have tasks compare the log with each replica, given by its segments, byte by byte."""
    found = list[tuple[int, DifferingRecord]]()
    for number, segments in enumerate(replicas, 1):
        stretches = overlap(log.segments, segments)
        if stretches:
            tasks = task_count(len(stretches), 2 * sum(one.length for one in stretches), scan.engine.cores)
            plan = plans.write_plan(scan.staging, f"stretches-{number}", stretches)
            results = scan.engine.numbers(CompareLogs(scan.staging, plan, tasks, scan.task.settings), tasks)
            found += [(number, record) for one in LogDifference.read(results) for record in one.records]
    return Differing(sorted(found, key=lambda one: (one[1].phy_offset, one[0])), replicas)


def _has(one: Mended, record: DifferingRecord) -> bool:
    return one.low <= record.phy_offset and record.phy_offset + record.size <= one.high


def _add(found: list[Damage], record: DifferingRecord, segments: Sequence[Segment]) -> None:
    """Add a record to the stretches of one replica, joined with the one before it."""
    low, segment = record.phy_offset, next(one for one in segments if one.start <= record.phy_offset < one.segment_end)
    places: tuple[Place, ...] = (Place(low, record.size, f"{MAJORITY} ({record.fields})"),)
    if found and found[-1].end == low and found[-1].segment == segment:
        before = found.pop()
        low, places = before.offset, (*before.places, *places)
    found.append(Damage(low, record.phy_offset + record.size - low, segment, places))
