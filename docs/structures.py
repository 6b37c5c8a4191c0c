"""One small example of each thing that passes between driver and tasks, as docs/explanation/architecture.md shows them."""

from __future__ import annotations

import dataclasses
import functools
import json
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.building.planning import scan_settings
from rocketmq_reindex.storage_format.layouts import INT64_MAX
from rocketmq_reindex.storage_format.queue import cells
from rocketmq_reindex.storage_format.queue.order import Run
from rocketmq_reindex.storage_format.queue.placement import order_logical
from rocketmq_reindex.storage_format.scan.chain import chain_ranges
from rocketmq_reindex.storage_format.scan.range_scan import RangeScanner
from rocketmq_reindex.storage_format.scan.ranges import RangeSpec, RangeSummary, Segment, cut_ranges
from rocketmq_reindex.udfs.scan.ranges import SegmentReader
from rocketmq_reindex.udfs.scan.segments import list_segments
from rocketmq_reindex.udfs.staging import StagingFolder
from tests.golden.stores import unpack

STORE: Final = "basic-5.5"
_RANGE: Final = 1 << 14
_SHOWN: Final = ("number", "low", "high", "known", "first", "end", "records", "units", "items", "queues", "last_dispatched")
"""fields of a summary that the example shows"""
_LINE: Final = 100


@functools.cache
def _scanned() -> tuple[list[RangeSpec], list[RangeSummary], int]:
    """The first ranges of the store, their summaries, and how many of these a chain accepts."""
    with tempfile.TemporaryDirectory() as folder:
        store = unpack(STORE, Path(folder)).path
        segments: list[Segment] = list_segments((str(store / "commitlog"),), 0).segments[:1]
        specs = cut_ranges(segments, _RANGE, INT64_MAX)
        scanner = RangeScanner(scan_settings(BuildSettings(str(store), "")))
        summaries = list[RangeSummary]()
        for spec in specs:
            with SegmentReader(spec.path, spec.segment_start) as segment:
                for _ in scanner.scan(spec, segment.read, segment.view):
                    pass
            summaries.append(scanner.summary)
        chain = chain_ranges(segments, {segments[0].start: specs}, dict(enumerate(summaries)))
    return specs, summaries, len(chain.accepted)


def _fields(fields: Mapping[str, Any]) -> str:
    """Fields as Python writes them, in lines of a block of code."""
    lines, words = list[str](), [f"{name}={value!r}" for name, value in fields.items()]
    line = ""
    for word in words:
        if line and len(line) + len(word) + 2 > _LINE:
            lines.append(line + ",")
            line = ""
        line = f"{line}, {word}" if line else word
    return "\n".join([*lines, line])


def _block(lines: Iterable[str]) -> str:
    return "```text\n" + "\n".join(lines) + "\n```\n"


def a_range() -> str:
    """The second range of a segment: a task has to search for its first record."""
    spec = dataclasses.asdict(_scanned()[0][1]) | {"path": ".../commitlog/" + Path(_scanned()[0][1].path).name}
    return _block([_fields(spec)])


def summary() -> str:
    """What the scan of that range found, as far as fields are shown."""
    found = json.loads(_scanned()[1][1].to_json())
    return _block([_fields({name: found[name] for name in _SHOWN}) + ", ..."])


def chain() -> str:
    """The two ranges beside each other: where one ends the next begins."""
    _, (first, second, *_), accepted = _scanned()
    return _block([
        f"range 0: first={first.first}, end={first.end}",
        f"range 1: first={second.first}, end={second.end}    {second.first} is where range 0 ends: accepted",
        f"accepted: {accepted} ranges of the segment",
    ])  # fmt: skip


def cell() -> str:
    """Three units of one queue, packed."""
    columns = np.array([[7, 8, 9], [4096, 4350, 5000], [254, 250, 254], [0, 2603547, 0]], np.int64)
    packed = cells.pack([b"Orders"], np.array([3], np.int32), np.array([3], np.int32), columns)
    rows = [f"  {name:<16}{' '.join(map(str, row))}" for name, row in zip(_UNIT, columns.tolist(), strict=True)]
    hexed = [packed[at : at + 32].hex(" ", 4) for at in range(0, len(packed), 32)]
    return _block(["queue 3 of Orders, 3 units:", *rows, f"packed, {len(packed)} bytes:", *(f"  {line}" for line in hexed)])


_UNIT: Final = ("queue offset", "physical offset", "size", "tagsCode")


def placement() -> str:
    """A queue whose offsets jump from 2 to 5, behind bytes that are lost."""
    runs = [Run(0, 3, 0, 300), Run(5, 2, 500, 700)]
    found = order_logical(runs, lost=(500,))
    return _block([
        *(f"run: queue offsets {run.first} to {run.stop - 1}, records at {run.phy_offset} to {run.end}" for run in runs),
        "lost bytes end at 500",
        *(f"kept: {kept}" for kept in found.kept),
        *(f"fill: {fill}" for fill in found.fills),
    ])  # fmt: skip


def staging() -> str:
    """The folders of one run, with what is in each."""
    lines = []
    for name, found in vars(StagingFolder).items():
        if isinstance(found, property):
            lines.append(f"{name + '/':<12} {' '.join((found.__doc__ or '').split())}")
    return _block(lines)


EXAMPLES: Final = {
    "range": a_range, "summary": summary, "chain": chain, "cell": cell, "placement": placement, "staging": staging,
}  # fmt: skip


def shown(name: str) -> str:
    """Return the example of this name as Markdown."""
    return EXAMPLES[name]()
