"""Scan a log in rounds until its ranges chain: first all of it, then again where the start of a range was guessed wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

from rocketmq_reindex.jobs.building import stale_tails
from rocketmq_reindex.jobs.building.scan_memory import ScanMemory
from rocketmq_reindex.jobs.engines.engine import Engine
from rocketmq_reindex.jobs.engines.tasks import task_count
from rocketmq_reindex.jobs.watching.progress import Reporter
from rocketmq_reindex.storage_format.integers import INT64_MAX
from rocketmq_reindex.storage_format.scan.chain import Chain, chain_ranges
from rocketmq_reindex.storage_format.scan.ranges import RangeSpec, RangeSummary, Segment, cut_ranges
from rocketmq_reindex.storage_format.scan.settings import ScanSettings
from rocketmq_reindex.udfs import files, plans
from rocketmq_reindex.udfs.progress import Positions
from rocketmq_reindex.udfs.scan.ranges import ScanTask
from rocketmq_reindex.udfs.staging import StagingFolder


@dataclass
class Scan:
    """What has been scanned so far: the engine keeps the rows, this the summaries by the number of the range."""

    engine: Engine
    staging: StagingFolder
    task: ScanTask
    reporter: Reporter
    memory: ScanMemory | None = None
    """what earlier runs scanned, in an incremental build"""
    summaries: dict[int, RangeSummary] = field(default_factory=dict)
    ranges: dict[int, list[RangeSpec]] = field(default_factory=dict)
    rounds: int = 0
    until: int = INT64_MAX
    """phy_offset where the scan ends"""
    until_read: int = INT64_MAX
    """phy_offset where the build ends, when more was scanned"""
    range_size: int = 1
    store: str = ""
    """the store whose checkpoint is a hint where the log ends; "": none"""
    _cuts: set[int] = field(default_factory=set)
    """numbers of the ranges that end at a cut"""

    def _round(self, specs: list[RangeSpec], settings: ScanSettings | None = None) -> None:
        """Scan ranges with fresh numbers, which ``ranges`` names already; with ``settings``, or those of the task."""
        if not specs:
            return
        self.rounds += 1
        size = {str(spec.number): spec.high - spec.low for spec in specs}
        all_bytes = sum(size.values())
        work = self.memory.work(all_bytes) if self.memory and self.rounds == 1 else all_bytes
        tasks = task_count(len(specs), work, self.engine.cores)
        if self.memory:
            # New ranges stand together at the log's end: each task gets some of them.
            specs = [spec for k in range(tasks) for spec in specs[k::tasks]]
        plan = plans.write_plan(self.staging, f"ranges-{self.rounds}", specs)
        chosen = settings or self.task.settings
        task = dataclasses.replace(self.task, plan=plan, tasks=tasks, log_bytes=all_bytes, settings=chosen)
        positions = Positions(self.staging)

        def probe() -> tuple[int, float]:
            shares = positions.shares()
            done = size.keys() & set(files.names(self.staging.ranges))
            read = sum(count if name in done else count * shares.get(name, 0) for name, count in size.items())
            return len(done), read / all_bytes if all_bytes else 0

        name = "scan" if self.rounds == 1 else f"scan again ({self.rounds})"
        with self.reporter.stage(name, "ranges", len(specs), all_bytes, probe) as step:
            rows = self.engine.scan(self.memory.wrap(task) if self.memory else task, tasks)
            take = self.memory.take if self.memory else RangeSummary.from_json
            summaries = [take(data) for data in rows]
            self.summaries.update({summary.number: summary for summary in summaries})
            step.count(
                ranges=len(summaries),
                bytes=sum(s.high - s.low for s in summaries),
                records=sum(s.records for s in summaries),
                units=sum(s.units + s.batch_units for s in summaries),
                items=sum(s.items for s in summaries),
                damaged=sum(len(s.holes) for s in summaries),
            )

    def first(self, segments: list[Segment], range_size: int, until: int) -> None:
        """Scan all segments below the phy_offset ``until`` for the first time, in ranges of ``range_size`` bytes."""
        self.until, self.range_size = until, range_size
        specs = cut_ranges(segments, range_size, until)
        for segment in segments:
            self.ranges[segment.start] = []
        for spec in specs:
            self.ranges[spec.segment_start].append(spec)
        self._round(specs)

    def rescan(
        self, segments: list[Segment], changed: Sequence[tuple[int, int]], before: Chain, settings: ScanSettings
    ) -> Chain:  # fmt: skip
        """Scan with ``settings`` what changed in a log since ``before``, now of ``segments``, and chain all ranges.

        ``changed`` are stretches [low, high), in order. What was scanned of other ranges holds. The digests of what was read
        stay those of the log as it was.
        """
        self._forget_cuts()
        known = set(self.summaries)
        ends = {summary.number: max(summary.end, summary.tail) for summary in before.accepted}
        again: list[RangeSpec] = []
        for segment in segments:
            mine = [(low, high) for low, high in changed if low < segment.segment_end and high > segment.start]
            if mine:
                self.ranges[segment.start] = self._renewed(ends, segment, mine, again)
        self._round(again, settings)
        chain = self.settle(segments, settings)
        for number in self.summaries.keys() - known:
            self.summaries[number].digests = {}
        return chain

    def _renewed(
        self, ends: dict[int, int], segment: Segment, changed: list[tuple[int, int]], again: list[RangeSpec]
    ) -> list[RangeSpec]:  # fmt: skip
        """The ranges of a segment: each run of those with changes is one new range, which is added to ``again``."""
        renewed: list[RangeSpec] = []
        expected, in_run = segment.start, False
        old = self.ranges.get(segment.start, [])
        for spec in old:
            high = segment.segment_end if spec is old[-1] else spec.high
            if not any(low < high and stop > spec.low for low, stop in changed):
                renewed.append(spec)
                if spec.number in ends:
                    expected, in_run = max(expected, ends[spec.number]), False
            elif in_run:
                # One that was scanned again before begins at its first record, not where the range before it ends. Those
                # between in which no record begins are in the middle of a record of the new range: they go with it.
                while renewed[-1] not in again:
                    renewed.pop()
                renewed[-1] = again[-1] = dataclasses.replace(again[-1], high=high)
            else:
                renewed.append(self._new_range(segment, expected, high, again))
                in_run = True
        return renewed or [self._new_range(segment, segment.start, segment.segment_end, again)]

    def _new_range(self, segment: Segment, low: int, high: int, again: list[RangeSpec]) -> RangeSpec:
        number, end = len(self.summaries) + len(again), segment.segment_end
        again.append(RangeSpec(number, segment.path, segment.start, end, end, low, high, True))
        return again[-1]

    def settle(self, segments: list[Segment], settings: ScanSettings | None = None) -> Chain:
        """Chain the ranges; scan again where a guess was wrong, with ``settings``, until all of them chain."""
        self._forget_cuts()
        while True:
            chain = chain_ranges(segments, self.ranges, self.summaries, self.until)
            if not chain.rescans and chain.unsure:
                self._read_on(segments, settings)
                continue
            if not chain.rescans:
                return self._below(segments, chain, settings)
            again: list[RangeSpec] = [
                dataclasses.replace(spec, number=len(self.summaries) + k) for k, spec in enumerate(chain.rescans)
            ]
            rejected = set(chain.rejected)
            for spec in again:
                kept = [old for old in self.ranges[spec.segment_start] if old.number not in rejected]
                self.ranges[spec.segment_start] = [*kept, spec]
            self._round(again, settings)

    def _read_on(self, segments: list[Segment], settings: ScanSettings | None) -> None:
        """Scan behind --until-offset, too: a good record there shows that damage before it is no torn tail."""
        again: list[RangeSpec] = []
        for spec in cut_ranges(segments, max(1, self.range_size), INT64_MAX):
            low = max(spec.low, self.until)
            if low < spec.high:
                number = len(self.summaries) + len(again)
                again.append(dataclasses.replace(spec, number=number, low=low, known=spec.known and low == spec.low))
        self.until_read, self.until = self.until, INT64_MAX
        for spec in again:
            self.ranges[spec.segment_start].append(spec)
        self._round(again, settings)

    def _below(self, segments: list[Segment], chain: Chain, settings: ScanSettings | None) -> Chain:
        """The chain without what lies behind --until-offset, and without old records behind the log's end."""
        stale_tails.mark_stale_tail(segments, chain, self.store)
        until = min(self.until_read, chain.stale.offset) if chain.stale else self.until_read
        chain.accepted = self.cut(chain.accepted, until, settings)
        chain.holes = [hole for hole in chain.holes if hole.offset < until]
        if chain.torn and chain.torn.offset >= until:
            chain.torn = None
        if chain.stale and chain.stale.offset >= self.until_read:
            chain.stale = None
        return chain

    def cut(self, accepted: list[RangeSummary], at: int, settings: ScanSettings | None = None) -> list[RangeSummary]:
        """The accepted ranges without the records from the phy_offset ``at`` on; its range is scanned again up to there."""
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
        self._cuts |= {spec.number for spec in again}
        self._round(again, settings)
        return kept + [self.summaries[spec.number] for spec in again]

    def _forget_cuts(self) -> None:
        """Leave out the ranges that end at a cut: the whole ones are still there, and may be cut once more."""
        for start, specs in self.ranges.items():
            self.ranges[start] = [spec for spec in specs if spec.number not in self._cuts]

    def left_out(self, accepted: list[RangeSummary]) -> list[int]:
        """The numbers of the ranges whose rows must not be used."""
        return sorted(set(self.summaries) - {summary.number for summary in accepted})
