"""Scan a log in rounds until its ranges chain: the first round takes all of it, later ones what was a wrong guess."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field

from rocketmq_reindex.jobs.building import stale_tails
from rocketmq_reindex.jobs.building.scan_memory import ScanMemory
from rocketmq_reindex.jobs.spark.engine import Engine
from rocketmq_reindex.jobs.spark.session import TASKS_PER_CORE
from rocketmq_reindex.jobs.watching.progress import Reporter
from rocketmq_reindex.storage_format.integers import INT64_MAX
from rocketmq_reindex.storage_format.scan.chain import Chain, chain_ranges
from rocketmq_reindex.storage_format.scan.range_summary import RangeSpec, RangeSummary
from rocketmq_reindex.storage_format.scan.ranges import Segment, cut_ranges
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.scan.ranges import ScanTask
from rocketmq_reindex.udfs.stage import Stage


def _summary(data: bytes) -> RangeSummary:
    return RangeSummary.from_json(data.decode())


@dataclass
class Scan:
    """What has been scanned so far: rows that the engine keeps, and summaries by range number."""

    engine: Engine
    stage: Stage
    task: ScanTask
    reporter: Reporter
    memory: ScanMemory | None = None
    """of earlier runs, when the build is incremental"""
    summaries: dict[int, RangeSummary] = field(default_factory=dict)
    ranges: dict[int, list[RangeSpec]] = field(default_factory=dict)
    rounds: int = 0
    until: int = INT64_MAX
    """what was scanned ends there"""
    until_read: int = INT64_MAX
    """what is built ends there, when more was scanned"""
    range_size: int = 1
    store: str = ""
    """whose checkpoint may tell where the log ends"""

    def _round(self, specs: list[RangeSpec]) -> None:
        if not specs:
            return
        self.rounds += 1
        plan = files.join(self.stage.plans, f"ranges-{self.rounds}")
        tasks = min(len(specs), TASKS_PER_CORE * self.engine.cores)
        if self.memory:
            # What is new stands together at the log's end: each task gets some of it.
            specs = [spec for k in range(tasks) for spec in specs[k::tasks]]
        files.write_bytes(self.stage.temporary, plan, [json.dumps([dataclasses.astuple(spec) for spec in specs]).encode()])
        task = dataclasses.replace(self.task, plan=plan, tasks=tasks)
        size = {str(spec.number): spec.high - spec.low for spec in specs}

        def probe() -> tuple[int, int]:
            done = [size[name] for name in files.names(self.stage.ranges) if name in size]
            return len(done), sum(done)

        name = "scan" if self.rounds == 1 else f"scan again ({self.rounds})"
        with self.reporter.stage(name, "ranges", len(specs), sum(size.values()), probe) as stage:
            rows = self.engine.scan(self.memory.wrap(task) if self.memory else task, tasks)
            take = self.memory.take if self.memory else _summary
            found = [take(data) for data in rows]
            self.summaries.update({summary.number: summary for summary in found})
            stage.count(
                ranges=len(found),
                bytes=sum(s.high - s.low for s in found),
                records=sum(s.records for s in found),
                units=sum(s.units + s.batch_units for s in found),
                items=sum(s.items for s in found),
                damaged=sum(len(s.holes) for s in found),
            )

    def first(self, segments: list[Segment], range_size: int, until: int) -> None:
        """Scan everything below ``until`` for the first time."""
        self.until, self.range_size = until, range_size
        specs = cut_ranges(segments, range_size, until)
        for segment in segments:
            self.ranges[segment.start] = []
        for spec in specs:
            self.ranges[spec.segment_start].append(spec)
        self._round(specs)

    def settle(self, segments: list[Segment]) -> Chain:
        """Chain the ranges, scanning again where a guess was wrong, until they chain."""
        while True:
            chain = chain_ranges(segments, self.ranges, self.summaries, self.until)
            if not chain.rescans and chain.unsure:
                self._read_on(segments)
                continue
            if not chain.rescans:
                return self._below(segments, chain)
            again: list[RangeSpec] = [
                dataclasses.replace(spec, number=len(self.summaries) + k) for k, spec in enumerate(chain.rescans)
            ]
            rejected = set(chain.rejected)
            for spec in again:
                kept = [old for old in self.ranges[spec.segment_start] if old.number not in rejected]
                self.ranges[spec.segment_start] = [*kept, spec]
            self._round(again)

    def _read_on(self, segments: list[Segment]) -> None:
        """Look behind --until-offset as well, for good records that make damage before it no torn tail."""
        again: list[RangeSpec] = []
        for spec in cut_ranges(segments, max(1, self.range_size), INT64_MAX):
            low = max(spec.low, self.until)
            if low < spec.high:
                number = len(self.summaries) + len(again)
                again.append(dataclasses.replace(spec, number=number, low=low, known=spec.known and low == spec.low))
        self.until_read, self.until = self.until, INT64_MAX
        for spec in again:
            self.ranges[spec.segment_start].append(spec)
        self._round(again)

    def _below(self, segments: list[Segment], chain: Chain) -> Chain:
        """The chain without what was read behind --until-offset, and without old records behind the log's end."""
        stale_tails.judge(segments, chain, self.store)
        until = min(self.until_read, chain.stale.offset) if chain.stale else self.until_read
        chain.accepted = self.cut(chain.accepted, until)
        chain.holes = [hole for hole in chain.holes if hole.offset < until]
        if chain.torn and chain.torn.offset >= until:
            chain.torn = None
        if chain.stale and chain.stale.offset >= self.until_read:
            chain.stale = None
        return chain

    def cut(self, accepted: list[RangeSummary], at: int) -> list[RangeSummary]:
        """The accepted ranges without any record from ``at`` on; the range it lies in may be scanned again up to there."""
        kept: list[RangeSummary] = []
        again: list[RangeSpec] = []
        specs = {spec.number: spec for specs in self.ranges.values() for spec in specs}
        for summary in accepted:
            ended = max(summary.end, summary.tail)
            if summary.low >= at or summary.first >= at:
                continue
            if ended <= at:
                kept.append(summary)
                continue
            number = len(self.summaries) + len(again)
            spec = specs[summary.number]
            again.append(dataclasses.replace(spec, number=number, low=summary.first, high=at, known=True))
        for spec in again:
            self.ranges[spec.segment_start].append(spec)
        self._round(again)
        return kept + [self.summaries[spec.number] for spec in again]

    def left_out(self, accepted: list[RangeSummary]) -> list[int]:
        """The ranges whose rows are not to be used."""
        return sorted(set(self.summaries) - {summary.number for summary in accepted})
