"""Scan a log in rounds until its ranges chain: what is known of earlier runs, and old records behind its end."""

import dataclasses
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from rocketmq_reindex import files
from rocketmq_reindex.jobs.building.advice import COPIED, REPAIR, first_step, is_copied, refusal
from rocketmq_reindex.jobs.engines.engine import Engine, task_count
from rocketmq_reindex.jobs.store.owner import read_times
from rocketmq_reindex.jobs.store.settings import StoreSettings
from rocketmq_reindex.jobs.watching.progress import Reporter
from rocketmq_reindex.storage_format import digest, errors, layouts
from rocketmq_reindex.storage_format.checkpoints import Checkpoint
from rocketmq_reindex.storage_format.queue.order import RolledBack
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.scan import settings as scan_settings, stale_tail
from rocketmq_reindex.storage_format.scan.chain import Chain, chain_ranges, misnamed
from rocketmq_reindex.storage_format.scan.range_notes import HOLES_MAX
from rocketmq_reindex.storage_format.scan.ranges import Hole, RangeSpec, RangeSummary, Segment, cut_ranges
from rocketmq_reindex.storage_format.showing import escape
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.incremental.remembered_scan import RememberedRange, RememberedScan
from rocketmq_reindex.udfs.incremental.scan_store import ScanEntry, ScanStore
from rocketmq_reindex.udfs.scan.ranges import ScanTask, find_stale_tail, has_data
from rocketmq_reindex.udfs.staging import Positions, StagingFolder

# ------------------------------------------------------------------------------------------------------------------ scan_memory
# The driver's side of an incremental scan: what is known of each range of this run, and how much of the log was read.


def fingerprint_of(version: str, scan: scan_settings.ScanSettings, units_per_file: int, topics: bool) -> str:
    """Return a digest of all that decides the result of a scan. With another version of this package nothing is known."""
    # Of a range it is known which entries of DLedger are committed in it.
    scan = dataclasses.replace(scan, committed=layouts.INT64_MAX)
    text = json.dumps([version, dataclasses.astuple(scan), units_per_file, topics])
    return digest.new_digest([text.encode()]).digest().hex()


_KNOWN: Final = 64
"""A range that is known costs a task about this part of what it costs to scan it: some pages are read."""


class ScanMemory:
    """Ranges of this run by number."""

    def __init__(self, store: ScanStore, fingerprint: str, recheck: bool) -> None:
        self.store, self._fingerprint, self._recheck = store, fingerprint, recheck
        self.entries: dict[int, ScanEntry] = {}
        self.bytes_read = 0
        self.known = 0
        """ranges that were not scanned again"""
        self.only: frozenset[str] | None = None
        """keys of the entries that may be used, when not all of them may"""
        self.bytes_before = 0
        """bytes of this log that the build before has scanned"""

    def work(self, size: int) -> int:
        """Return how many bytes a scan of the first ``size`` bytes has to read, about. Only tasks find out what is known."""
        known = min(size, self.bytes_before)
        return size - known + known // _KNOWN

    def wrap(self, task: ScanTask) -> RememberedScan:
        """Return the task that scans only what is not known."""
        return RememberedScan(task, self.store, self._fingerprint, self._recheck, self.only)

    def take(self, data: bytes) -> RangeSummary:
        """Return a range's summary from the data of its row."""
        remembered = RememberedRange.from_json(data)
        entry = ScanEntry(**remembered.entry)
        self.entries[remembered.number] = entry
        self.bytes_read += remembered.bytes_read
        self.known += remembered.known
        return self.store.summary(entry, remembered.number)


# ------------------------------------------------------------------------------------------------------------------ stale_tails
# Old records after the log's end. They are looked for where the last segment with data has damage, and nowhere else.

_CODES: Final = {text: code for code, text in r.REASONS.items()}


def mark_stale_tail(segments: list[Segment], chain: Chain, store: str = "") -> None:
    """Note in the chain whether its damage is a stale tail, or may be one. Reads the damaged segment again.

    The checkpoint of ``store``, where there is one, is a hint.
    """
    holes = [hole for hole in chain.holes if hole.reason != r.MISSING_SEGMENT]
    if not holes or len(holes) > HOLES_MAX:
        return
    last = max(hole.offset for hole in holes)
    segment = next((segment for segment in segments if segment.start <= last < segment.segment_end), None)
    if segment is None:
        return
    # A truncation deletes all files behind the one that it cuts.
    later = [other for other in segments if other.start > segment.start]
    if any(has_data(other.path, other.data_end - other.start) for other in later):
        return
    damage = [
        stale_tail.DamagedStretch.of(hole.offset, hole.length, _CODES.get(hole.reason, 0))
        for hole in holes
        if hole.offset >= segment.start
    ]
    bounds = segment.start, segment.data_end, segment.segment_end
    checkpoint = read_times(files.join(store, "checkpoint")) if store else Checkpoint()
    good = max((max(s.last_good, s.after_tail, s.later) for s in chain.accepted), default=-1)
    times = checkpoint.physic, checkpoint.logics
    old = stale_tail.old_entries(damage, good)
    tail = old if segment.lead else find_stale_tail(segment.path, bounds, damage, times)
    if isinstance(tail, stale_tail.StaleTail):
        chain.stale = Hole(segment.name, tail.offset, tail.length, tail.reason)
    if isinstance(tail, stale_tail.Doubt):
        chain.doubt = tail
        chain.rolled_back = RolledBack(tail.offset, segment.segment_end, tail.all_older)


_EITHER: Final = "choose --on-damage stop if the broker cut its log there; if the disk is damaged, "


def doubts(doubt: stale_tail.Doubt) -> str:
    """Return what an operator must know about it."""
    return f"at offset {doubt.offset} old records may begin that a truncation left behind the log's end, but: {doubt.why}"


def advice(settings: StoreSettings, segments: Sequence[Segment], chain: Chain) -> str:
    """Return what to do where damage is refused, in lines of their own."""
    if chain.doubt is None:
        return refusal(settings, segments, chain.holes[0].offset)
    return f"\n  {doubts(chain.doubt)}\n  {_EITHER}{first_step(settings, segments)}"


def undecided(segments: Sequence[Segment], chain: Chain) -> str:
    """Return why no build is advised before somebody has looked: a wrong name, or old records; "" for neither."""
    wrong = misnamed(chain.holes)
    if wrong is not None:
        return f"{wrong.segment}: {wrong.reason}: rename it first"
    return f"{doubts(chain.doubt)}: {_EITHER}{COPIED if is_copied(segments) else REPAIR}" if chain.doubt else ""


# ------------------------------------------------------------------------------------------------------------------- scan_place
# Where the scan stores of one DIR lie below ``--tables``: that of its builds, and that of its verifies.


class Places(Protocol):
    """Settings that say where the scan stores are, and what is only read."""

    @property
    def tables(self) -> str: ...

    @property
    def inputs(self) -> tuple[str, ...]: ...


def store_of(settings: Places, target: str, kind: str = "") -> ScanStore:
    """Return the scan store of one DIR (``target``); ``kind`` tells those of one DIR apart.

    Raises InputError when it would lie in the input, or in DIR.
    """
    scans = files.join(files.checked(settings.tables), "_scans")
    if not files.is_remote(scans):
        scans = os.path.realpath(scans)
    for place in (*settings.inputs, target):
        if files.within(scans, place):
            raise errors.InputError(
                f"--tables {escape(settings.tables)}: lies inside {escape(place)}: name a folder apart from it"
            )
    name = re.sub(r"[^A-Za-z0-9_-]", "_", files.base(target))[:40]
    # By the digest of earlier builds: what they left there is found, and removed.
    number = digest.new_digest([_known_as(target).encode()], digest.EARLIER_KIND).digest().hex()[:16]
    return ScanStore(files.join(scans, f"{name}-{number}{kind}"))


def _known_as(target: str) -> str:
    """Return the same text for each form of a URI: a token may change every hour. Another endpoint is another store."""
    if not files.is_remote(target):
        return target
    return "\n".join([*files.canonical(target), files.option(files.split(target), "endpoint_override")])


# --------------------------------------------------------------------------------------------------------------------- scanning
# Scan a log in rounds until its ranges chain: first all of it, then again where the start of a range was guessed wrong.


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
    until: int = layouts.INT64_MAX
    """phy_offset where the scan ends"""
    until_read: int = layouts.INT64_MAX
    """phy_offset where the build ends, when more was scanned"""
    range_size: int = 1
    store: str = ""
    """the store whose checkpoint is a hint where the log ends; "": none"""
    _cuts: set[int] = field(default_factory=set)
    """numbers of the ranges that end at a cut"""

    def _round(self, specs: list[RangeSpec], settings: scan_settings.ScanSettings | None = None) -> None:
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
        plan = handover.write_plan(self.staging, f"ranges-{self.rounds}", specs)
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
        self, segments: list[Segment], changed: Sequence[tuple[int, int]], before: Chain, settings: scan_settings.ScanSettings
    ) -> Chain:  # fmt: skip
        """Scan with ``settings`` what changed in a log since ``before``, now of ``segments``. Return all ranges, chained.

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
        """Return the ranges of a segment: each run of those with changes is one new range, which is added to ``again``."""
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
        again.append(RangeSpec(number, segment.path, segment.start, end, end, low, high, True, segment.lead))
        return again[-1]

    def settle(self, segments: list[Segment], settings: scan_settings.ScanSettings | None = None) -> Chain:
        """Return the chain of the ranges. Where a guess was wrong they are scanned again, with ``settings``."""
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

    def _read_on(self, segments: list[Segment], settings: scan_settings.ScanSettings | None) -> None:
        """Scan behind --until-offset, too: a good record there shows that damage before it is no torn tail."""
        again: list[RangeSpec] = []
        for spec in cut_ranges(segments, max(1, self.range_size), layouts.INT64_MAX):
            low = max(spec.low, self.until)
            if low < spec.high:
                number = len(self.summaries) + len(again)
                again.append(dataclasses.replace(spec, number=number, low=low, known=spec.known and low == spec.low))
        self.until_read, self.until = self.until, layouts.INT64_MAX
        for spec in again:
            self.ranges[spec.segment_start].append(spec)
        self._round(again, settings)

    def _below(self, segments: list[Segment], chain: Chain, settings: scan_settings.ScanSettings | None) -> Chain:
        """Return the chain without what lies behind --until-offset, and without old records behind the log's end."""
        mark_stale_tail(segments, chain, self.store)
        until = min(self.until_read, chain.stale.offset) if chain.stale else self.until_read
        chain.accepted = self.cut(chain.accepted, until, settings)
        chain.holes = [hole for hole in chain.holes if hole.offset < until]
        if chain.torn and chain.torn.offset >= until:
            chain.torn = None
        if chain.stale and chain.stale.offset >= self.until_read:
            chain.stale = None
        return chain

    def cut(
        self, accepted: list[RangeSummary], at: int, settings: scan_settings.ScanSettings | None = None
    ) -> list[RangeSummary]:
        """Return the accepted ranges without the records from the phy_offset ``at`` on.

        The range that has ``at`` in it is scanned again up to there.
        """
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
        """Return the numbers of the ranges whose rows must not be used."""
        return sorted(set(self.summaries) - {summary.number for summary in accepted})
