"""Queues out of order: their plan leads each to its own rows, and what is told of very many is bounded and exact."""

from __future__ import annotations

import random
import zlib
from pathlib import Path

import pytest

from rocketmq_reindex import files
from rocketmq_reindex.jobs.building import decisions
from rocketmq_reindex.jobs.building.decisions import FirstHoles
from rocketmq_reindex.storage_format.queue.order import Fill, KeptUnits, Placement
from rocketmq_reindex.storage_format.scan.ranges import Hole, Segment
from rocketmq_reindex.udfs import placements
from rocketmq_reindex.udfs.placements import Placements, PlacementWriter, PlanWriter, Queue

ALIKE = (b"plumless", b"buckeroo")
"""Two names of one CRC-32."""


def placement_of(number: int) -> Placement:
    return Placement(kept=[KeptUnits(number, 1, 2, 3, 4)] * (number % 3), fills=[Fill(number, 5, 6)] * (number % 2))


def test_each_queue_finds_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert zlib.crc32(ALIKE[0]) == zlib.crc32(ALIKE[1])
    monkeypatch.setattr(placements, "_HELD_LINES", 7)
    monkeypatch.setattr(placements, "_HELD_SPANS", 5)
    queues: list[Queue] = [(f"topic-{k // 4}".encode(), k % 4) for k in range(50)] + [(ALIKE[0], 0), (ALIKE[0], 2**31 - 1)]
    plan, rows = PlanWriter(str(tmp_path), str(tmp_path / "plan")), str(tmp_path / "rows")
    with files.writing(str(tmp_path), rows) as writer:
        put = PlacementWriter(writer, rows)
        for number, (name, queue_id) in enumerate(queues):
            plan.put(name.decode(), queue_id, put.put(placement_of(number)))
        writer.finish()
    table = Placements(plan.finish(), lambda queue, kept, fills: (queue, [*kept], [*fills]))
    others: list[Queue] = [(ALIKE[1], 0), (b"topic-0", 4), (b"other", 0)]
    assert table.having([*queues, *others]).tolist() == [True] * len(queues) + [False] * len(others)
    assert [table.get(queue) for queue in others] == [None] * len(others)
    for number, queue in reversed([*enumerate(queues)]):
        placed = placement_of(number)
        assert table.get(queue) == (queue, [v for row in placed.kept for v in row], [v for row in placed.fills for v in row])


def test_no_queue_is_out_of_order(tmp_path: Path) -> None:
    path = PlanWriter(str(tmp_path), str(tmp_path / "plan")).finish()
    assert path == ""
    table = Placements(path, lambda _, kept, fills: (kept, fills))
    assert table.having([(b"a", 0)]).tolist() == [False]
    assert table.get((b"a", 0)) is None
    assert not [*tmp_path.iterdir()]


def test_the_segment_of_an_offset() -> None:
    segments = [Segment(name, "", start, start + 100, start + 100) for name, start in (("a", 100), ("b", 200))]
    offsets = (0, 99, 100, 199, 200, 999)
    assert [decisions.segment_of(segments, offset) for offset in offsets] == ["", "", "a", "a", "b", "b"]
    assert decisions.segment_of([], 5) == ""


@pytest.mark.parametrize("count", [0, 5, 6, 7, 200])
def test_the_lowest_of_many(count: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "DAMAGE_MAX", 5)
    rng = random.Random(seed)
    holes = [Hole("", rng.randrange(1000), rng.randrange(90), f"{k}") for k in range(count)]
    lowest = FirstHoles()
    for hole in holes:
        lowest.add(hole)
    lowest.settle()
    ordered = sorted(holes, key=lambda hole: (hole.offset, hole.reason))
    rest = ordered[6:]
    assert lowest.first == ordered[:6]
    assert (lowest.more, lowest.more_bytes) == (len(rest), sum(hole.length for hole in rest))
    assert lowest.more_end == max((hole.offset + hole.length for hole in rest), default=0)
