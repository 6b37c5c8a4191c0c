"""Scans of small logs in memory, cut into ranges anywhere: as the driver and its tasks do it, without files or Spark."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.scan.chain import Chain, chain_ranges
from rocketmq_reindex.storage_format.scan.range_scan import RangeScanner
from rocketmq_reindex.storage_format.scan.ranges import RangeSpec, RangeSummary, Segment
from rocketmq_reindex.storage_format.scan.settings import ScanSettings
from tests.reference import consume_queue as cq, java, log as reference_log
from tests.reference.index_file import key_hash
from tests.reference.records import Record
from tests.reference.settings import Settings

Unit = tuple[str, int, int, int, int, int]
"""topic, queue id, queue offset, place, size, tagsCode"""
Item = tuple[int, int, int]
"""key hash, place, store time"""


@dataclass
class Found:
    """What one range gave, block after block."""

    summary: RangeSummary
    units: list[Unit] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    makers: list[tuple[int, int]] = field(default_factory=list)
    blocks: int = 0


class MemoryLog:
    """The segments of a folder; ``reads`` are (offset, bytes) of what was asked for."""

    def __init__(self, folder: Path, segment_size: int) -> None:
        self.data = {int(path.name): path.read_bytes() for path in sorted(folder.iterdir())}
        self.segments = [
            Segment(f"{start:020d}", "", start, start + len(data), start + segment_size) for start, data in self.data.items()
        ]
        self.segment_size = segment_size
        self.reads: list[tuple[int, int]] = []

    def read(self, at: int, out: npt.NDArray[np.uint8]) -> None:
        self.reads.append((at, len(out)))
        start = max(base for base in self.data if base <= at)
        part = self.data[start][at - start : at - start + len(out)]
        assert len(part) == len(out), "read past the end of a file"
        out[:] = np.frombuffer(part, np.uint8)

    def cut(self, places: Sequence[int]) -> dict[int, list[RangeSpec]]:
        """Ranges that begin where segments do and at ``places``."""
        ranges: dict[int, list[RangeSpec]] = {}
        number = 0
        for s in self.segments:
            edges = sorted({s.start, s.data_end, *(p for p in places if s.start < p < s.data_end)})
            ranges[s.start] = []
            for low, high in itertools.pairwise(edges):
                spec = RangeSpec(number, "", s.start, s.segment_end, s.data_end, low, high, low == s.start)
                ranges[s.start].append(spec)
                number += 1
        return ranges


def scan_range(scanner: RangeScanner, spec: RangeSpec, log: MemoryLog) -> Found:
    found = Found(RangeSummary(-1, 0, 0, False))
    for block in scanner.scan(spec, log.read):
        queues, names = scanner.queues, scanner.names
        found.blocks += 1
        for queue, offset, place, size, code in zip(*(column.tolist() for column in block.units), strict=True):
            name = names.texts[int(queues.name[queue])]
            if size:
                found.units.append((name, int(queues.queue_id[queue]), offset, place, size, code))
        found.items += zip(*(block.items.staged[name].tolist() for name in ("key_hash", "phy_offset", "time")), strict=True)
        found.makers += block.items.makers.tolist()
    found.summary = scanner.summary
    return found


@dataclass
class LogScan:
    """A log scanned in rounds until its ranges chain."""

    chain: Chain
    units: list[Unit]
    items: list[Item]
    found: dict[int, Found]
    rounds: int


def scan_log(log: MemoryLog, places: Sequence[int], settings: ScanSettings) -> LogScan:
    scanner = RangeScanner(settings)
    ranges = log.cut(places)
    found = {spec.number: scan_range(scanner, spec, log) for specs in ranges.values() for spec in specs}
    rounds = 1
    while True:
        chain = chain_ranges(log.segments, ranges, {number: f.summary for number, f in found.items()})
        if not chain.rescans:
            break
        rounds += 1
        assert rounds < 500, "the ranges never chain"
        for wanted in chain.rescans:
            spec = dataclasses.replace(wanted, number=len(found))
            kept = [old for old in ranges[spec.segment_start] if old.number not in chain.rejected]
            ranges[spec.segment_start] = [*kept, spec]
            found[spec.number] = scan_range(scanner, spec, log)
    accepted = [found[summary.number] for summary in chain.accepted]
    return LogScan(chain, [u for f in accepted for u in f.units], [i for f in accepted for i in f.items], found, rounds)


def expected_units(records: list[Record]) -> list[Unit]:
    return [
        (java.python_text(name), queue_id, unit.queue_offset, unit.record, unit.size, unit.tags_code)
        for record in records
        for (name, queue_id), unit in cq.dispatches(record, once=True)
    ]


def expected_items(records: list[Record]) -> list[Item]:
    return [(key_hash(text), r.offset, r.store_timestamp) for r in records for text in r.index_keys()]


def reference_walk(folder: Path, segment_size: int, **rules: object) -> reference_log.Log:
    segments, size = reference_log.read_segments([folder], segment_size)
    return reference_log.walk(segments, size, Settings(**rules))  # type: ignore[arg-type]


def damage_spans(scan: LogScan) -> list[tuple[int, int]]:
    """Damage as (start, end), neighbours joined."""
    joined: list[tuple[int, int]] = []
    for hole in scan.chain.holes:
        start, end = hole.offset, hole.offset + hole.length
        assert end > start, "an empty hole"
        assert not joined or start >= joined[-1][1], "holes overlap or are out of order"
        if joined and start == joined[-1][1]:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined
