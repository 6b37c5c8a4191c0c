"""The other nodes of a group of DLedger: whether one has more committed entries, and where their bytes are not the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rocketmq_reindex import files
from rocketmq_reindex.jobs.building.scanning import Scan
from rocketmq_reindex.jobs.engines.engine import task_count
from rocketmq_reindex.jobs.store.folders import entries_in
from rocketmq_reindex.jobs.store.settings import committed_index, lead_of, list_segments, log_of_dledger
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.scan.chain import Chain
from rocketmq_reindex.storage_format.scan.ranges import Hole, RangeSummary, Segment
from rocketmq_reindex.storage_format.showing import counted, escape
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.repair.differing import PIECE, CommonBytes, CompareLogs, LogDifference


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
