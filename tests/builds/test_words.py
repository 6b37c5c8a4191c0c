"""Of very many anomalies the first are told one by one, and of the rest exact sums."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.jobs.building import decisions as driver, summary as summaries
from rocketmq_reindex.storage_format.queue.order import OrderDecision
from rocketmq_reindex.udfs import queue_order
from rocketmq_reindex.udfs.queue_order import LISTED_MAX, cap_decisions
from tests.tools.compare import SMALL, differences
from tests.tools.local_engine import InlineEngine, local_build
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import Message

Settings = dict[str, Any]


def sums(entries: list[dict[str, Any]]) -> Counter[str]:
    """Units by kind, those of the rest with them."""
    found: Counter[str] = Counter()
    for entry in entries:
        found[entry["kind"].removeprefix("more ")] += entry["count"]
    return found


def test_the_rest_is_summed_up_by_kind() -> None:
    few = [OrderDecision("fill", n, 2) for n in range(LISTED_MAX)]
    assert cap_decisions(few) == few
    rest = [OrderDecision("fill", 900, 1), OrderDecision("out-of-line", 7, 1), OrderDecision("fill", 500, 3)]
    assert cap_decisions([*few, *rest]) == [*few, ("more fill", 500, 4), ("more out-of-line", 7, 1)]


@pytest.fixture
def store(tmp_path: Path, seed: int) -> Path:
    """One queue of 400 random offsets, and twenty queues with a few each."""
    rng = random.Random(seed)
    with LogWriter(tmp_path / "store" / "commitlog", 1 << 15) as writer:
        for _ in range(400):
            writer.append(Message(topic="Wild", queue_offset=rng.randrange(1000)))
            writer.append(Message(topic="Tame", queue_id=rng.randrange(20), queue_offset=rng.randrange(9)))
    return tmp_path / "store"


@pytest.mark.parametrize("order", ["logical", "broker", "fail"])
def test_sums_are_exact(order: str, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is told, the bytes are the reference's, and counts and bytes add up to those without any cap."""
    settings: Settings = {**SMALL, "on_damage": "salvage", "queue_order": order}
    with monkeypatch.context() as patch:
        patch.setattr(queue_order, "LISTED_MAX", 10**9)
        patch.setattr(cap_decisions, "__defaults__", (10**9,))
        full = local_build(store, tmp_path / "full", InlineEngine(3, 2), **settings)
    capped = local_build(store, tmp_path / "capped", InlineEngine(3, 2), **settings)
    assert len(full.decisions) > len(capped.decisions)
    assert sums(full.decisions) == sums(capped.decisions)
    wild = [entry for entry in capped.decisions if entry["topic"] == "Wild"]
    assert len(wild) <= LISTED_MAX + 3
    assert wild[:LISTED_MAX] == [entry for entry in full.decisions if entry["topic"] == "Wild"][:LISTED_MAX]
    assert sum(entry["length"] for entry in full.damage) == sum(entry["length"] for entry in capped.damage)
    assert (full.exit, full.units, full.records) == (capped.exit, capped.units, capped.records)
    with monkeypatch.context() as patch:
        patch.setattr(summaries, "DECISIONS_MAX", 50)
        patch.setattr(summaries, "DAMAGE_MAX", 30)
        patch.setattr(driver, "DAMAGE_MAX", 30)
        least = [local_build(store, tmp_path / f"least{size}", range_size=size, **settings) for size in (0, 3000)]
    assert sums(least[0].decisions) == sums(full.decisions)
    assert len(least[0].decisions) <= 50 + 5
    assert len(least[0].damage) <= 31
    assert sum(entry["length"] for entry in least[0].damage) == sum(entry["length"] for entry in full.damage)
    assert (least[0].damage, least[0].decisions, least[0].warnings) == (least[1].damage, least[1].decisions, least[1].warnings)
    if order == "broker":
        # In logical order the damage told is capped, the reference's is not.
        assert differences(store, tmp_path / "out", InlineEngine(3, 2), 1000, **settings) == []
