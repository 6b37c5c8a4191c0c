"""verify on stores as RocketMQ wrote them, live and rebuilt, and as the project builds them: no differences."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.jobs.building.options import read_batch_topics
from rocketmq_reindex.storage_format.checks.differences import KINDS
from tests.golden.guard import guarded
from tests.golden.stores import NAMES, GoldenStore
from tests.tools.local_engine import InlineEngine, local_build
from tests.tools.local_verify import kinds, local_verify

Stores = Callable[[str], GoldenStore]
BATCH = ("batch-5.3", "batch-odd-5.3")
TREES = [(name, "") for name in NAMES] + [(name, "rebuilt") for name in (*NAMES, *BATCH)]


def beside(store: Path) -> dict[str, Any]:
    """The log of another folder, and its batch topics."""
    return {"commitlogs": (str(store / "commitlog"),), "batch_topics": read_batch_topics(str(store / "config" / "topics.json"))}


@pytest.mark.parametrize(("name", "tree"), TREES)
def test_what_a_broker_wrote_is_clean(name: str, tree: str, golden_store: Stores, tmp_path: Path) -> None:
    """Sizes are taken from the files; a trimmed store has expired units, items and files."""
    store = golden_store(name)
    told = []
    with guarded(store.path, tmp_path / "out"):
        for engine, size in ((InlineEngine(), 0), (InlineEngine(5, 3), 40_001)):
            summary = local_verify(
                store.path / tree,
                engine,
                broker_version=store.broker_version,
                range_size=size,
                work=str(tmp_path),
                **beside(store.path),
            )
            assert (summary.exit, summary.error, summary.findings) == (0, None, [])
            summary.seconds = {}
            told.append(summary)
    assert told[0] == told[1]
    assert told[0].records > 0
    assert told[0].units > 0
    assert told[0].orders.keys() <= {"in order", "broker", "logical"}
    assert list(tmp_path.iterdir()) == [], "what the run kept for a while is gone"


@pytest.mark.parametrize("name", ["trimmed-head", "transactions-delay", "batch-5.3", "batch-odd-5.3"])
@pytest.mark.parametrize("order", ["logical", "broker"])
def test_what_a_build_wrote_is_clean(name: str, order: str, golden_store: Stores, tmp_path: Path) -> None:
    """Queues out of order fit one order or the other; the last IndexFile is sealed."""
    store, out = golden_store(name).path, tmp_path / "out"
    sizes: dict[str, Any] = dict(golden_store(name).sizes())
    more = beside(store)
    if name in BATCH:
        sizes["batch_cq_file_size"] = 460
    settings: dict[str, Any] = {"queue_order": order, "on_damage": "salvage", "max_fill": 10**6, **sizes}
    assert local_build(store, out, batch_topics=more["batch_topics"], **settings).exit in (0, 3)
    summary = local_verify(out, max_fill=10**6, **sizes, **more)
    assert summary.error is None
    # A record out of line is damage to a logical build, and is told as that.
    assert kinds(summary).keys() <= {"log-out-of-line"}
    assert summary.checkpoint is not None
    assert summary.checkpoint["index"] == max(file["header"]["end_time"] for file in summary.index_list)
    if name == "batch-odd-5.3":
        assert summary.orders[order] > 0


def test_the_summary_tells_what_was_compared(golden_store: Stores) -> None:
    store = golden_store("basic-5.3")
    summary = local_verify(store.path)
    assert (summary.records, summary.units, summary.queues, summary.items) == (2500, 2500, 20, 6755)
    assert summary.files == {"consumequeue": 20, "index": 5}
    assert [(entry["used"], entry["sealed"]) for entry in summary.index_list] == [(1499, True)] * 4 + [(759, False)]
    for entry in summary.index_list:
        assert entry["slots_used"] == entry["header"]["slot_count"]
        assert sum(entry["chains"]) == entry["slots_used"]
    assert sum(queue["units"] for queue in summary.queue_list) == 2500
    assert summary.settings["cq_file_size"] == store.sizes()["cq_file_size"]
    assert any("759 items" in note and "as with any broker" in note for note in summary.notes)
    assert summary.to_text().splitlines()[-2] == "clean    no differences"


def test_a_part_alone(golden_store: Stores, tmp_path: Path) -> None:
    store = golden_store("v2-ipv6-batch").path
    copy = tmp_path / "store"
    shutil.copytree(store, copy, ignore=shutil.ignore_patterns("rebuilt"))
    for part, spoil in (("consumequeue", "consumequeue"), ("index", "index"), ("checkpoint", "checkpoint")):
        found = copy / spoil
        shutil.rmtree(found) if found.is_dir() else found.unlink()
        summary = local_verify(copy, only=(part,))
        assert {KINDS[kind].part for kind in kinds(summary)} == {part}
    summary = local_verify(copy, only=("log",))
    assert (summary.exit, summary.findings, summary.units, summary.items) == (0, [], 0, 0)


def test_nothing_is_said_of_parts_that_nobody_asked_for(golden_store: Stores) -> None:
    store = golden_store("basic-5.3").path
    queues, index, line = "2,500 units in 20 ConsumeQueue files", "6,755 items in 5 IndexFiles", "compared "
    for only, compared in {("log",): "", ("checkpoint",): "", ("index",): index, ("consumequeue", "log"): queues}.items():
        lines = local_verify(store, only=only).to_text().splitlines()
        assert [text for text in lines if text.startswith(line)] == ([f"{line}{compared}"] if compared else [])
        noted = {text.split()[1].rstrip(":") for text in lines if text.endswith("taken from the files")}
        assert noted == {*only} & {"consumequeue", "index"}


def test_a_sample_reads_some_segments_always_the_same(golden_store: Stores, tmp_path: Path) -> None:
    store = golden_store("basic-5.3").path
    summaries = [local_verify(store, InlineEngine(k, 1), sample=0.4) for k in (1, 3)]
    for summary in summaries:
        assert (summary.exit, summary.findings) == (0, [])
        assert (summary.segments, summary.segments_read, summary.bytes) == (5, 3, 3 << 20)
        assert 0 < summary.units < 2500
        assert any(note.startswith("a sample: 3 of 5 segments") for note in summary.notes)
        summary.seconds = {}
    assert summaries[0] == summaries[1]
    copy = tmp_path / "store"
    shutil.copytree(store, copy, ignore=shutil.ignore_patterns("rebuilt"))
    shutil.rmtree(copy / "consumequeue" / "TopicA" / "0")
    (max((copy / "index").iterdir())).unlink()
    found = kinds(local_verify(copy, sample=0.4))
    assert found.keys() == {"queue-unit-missing", "index-item-missing"}
    whole = kinds(local_verify(copy))
    assert found["queue-unit-missing"] < whole["queue-unit-missing"]
