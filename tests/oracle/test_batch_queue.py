"""Batch ConsumeQueues beside the real RocketMQ 5.3.3: its own rebuild, and what it serves from ours."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.storage_format.topics import batch_topics
from tests.golden.stores import index_in_order, read_files
from tests.oracle.scenarios import FOLDER, java_home
from tests.tools.batch_log import BATCH_TOPICS, MADE, SIZES, batch, batch_files, random_batch_log, topics_json
from tests.tools.local_engine import InlineEngine, local_build
from tests.tools.log_writer import LogWriter


def run(store: Path, topics: Path, *words: str, version: str = "5.3.3") -> subprocess.CompletedProcess[str]:
    sizes = [word for name, size in SIZES.items() for word in (f"--{name.replace('_', '-')}", str(size))]
    command = [str(FOLDER / "run"), version, "BatchStore", str(store), "--topics", str(topics), *sizes, *words]
    return subprocess.run(command, env=java_home(), capture_output=True, text=True, timeout=900, check=False)


def real(store: Path, topics: Path, *words: str) -> list[str]:
    """Run BatchStore on a folder; the lines it prints."""
    ran = run(store, topics, *words)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def same(store: Path, topics: Path, rebuilt: Path, out: Path) -> None:
    """The real store rebuilds the log in ``rebuilt``, we in ``out``."""
    shutil.copytree(store / "commitlog", rebuilt / "commitlog")
    real(rebuilt, topics, "--rebuild")
    settings = SIZES | {"batch_topics": batch_topics(topics.read_text()), "queue_order": "broker", "checkpoint": "broker"}
    settings |= {"broker_version": "5.3"}
    for size in (0, 2000):
        summary = local_build(store, out, InlineEngine(3, 2), range_size=size, overwrite=True, **settings)
        assert (summary.exit, summary.error) == (0, None)
        ours, theirs = read_files(out), read_files(rebuilt)
        assert batch_files(out) == batch_files(rebuilt)
        assert {k: v for k, v in ours.items() if k[0] == "c"} == {k: v for k, v in theirs.items() if k[0] == "c"}
        assert index_in_order(ours) == index_in_order(theirs)


def test_what_the_real_store_was_put(seed: int, tmp_path: Path) -> None:
    topics = topics_json(tmp_path / "topics.json")
    real(tmp_path / "store", topics, "--put", "400", "--seed", str(seed), "--segment-size", "32k")
    same(tmp_path / "store", topics, tmp_path / "real", tmp_path / "out")


@pytest.mark.parametrize("odd", [True, False])
def test_random_logs(odd: bool, seed: int, tmp_path: Path) -> None:
    """Also offsets and numbers that no broker writes."""
    random_batch_log(tmp_path / "store" / "commitlog", seed, odd=odd)
    same(tmp_path / "store", topics_json(tmp_path / "topics.json"), tmp_path / "real", tmp_path / "out")


def pulled(store: Path, topics: Path) -> tuple[list[tuple[int, int]], list[int]]:
    """A consumer of queue 0 that asks for 32 messages at a time: (asked, next) of each answer, and where the records lie."""
    answers = [line.split() for line in real(store, topics, "--pull", "32")]
    assert all(words[:2] == ["BatchA", "0"] and words[4] == "FOUND" for words in answers)
    return [(int(words[2]), int(words[3])) for words in answers], [int(place) for words in answers for place in words[5:]]


def test_a_consumer_gets_past_a_gap(tmp_path: Path) -> None:
    """It does not on the broker's own rebuild; both are opened with the topics.json that was drafted."""
    store, out = tmp_path / "store", tmp_path / "out"
    with LogWriter(store / "commitlog", 1 << 14) as writer:
        puts = [writer.append(batch(base, 20)) for base in (0, 20, 40, 100, 120, 140, 70_000, 70_020, 70_040)]
    assert local_build(store, out, write_topics=True, **MADE).exit == 0
    topics = out / "config" / "topics.json"
    shutil.copytree(store / "commitlog", tmp_path / "real" / "commitlog")
    real(tmp_path / "real", topics, "--rebuild")
    assert pulled(tmp_path / "real", topics)[0][-1] == (60, 60)
    shutil.copytree(store / "commitlog", out / "commitlog")
    answers, places = pulled(out, topics)
    assert [after for _, after in answers][:-1] == [asked for asked, _ in answers][1:]
    assert answers[-1][1] == 70_060
    assert list(dict.fromkeys(places)) == [put.offset for put in puts]


def test_exported_batches_have_the_queues_that_the_real_store_makes(seed: int, tmp_path: Path) -> None:
    """Of a part of a store, in which each batch has another offset: its files, and what a consumer gets from them."""
    store, new, rebuilt = tmp_path / "store", tmp_path / "new", tmp_path / "real"
    topics = topics_json(tmp_path / "topics.json")
    real(tmp_path / "put", topics, "--put", "400", "--seed", str(seed), "--segment-size", "32k")
    # With all of its files, whose sizes the new ones get.
    shutil.copytree(tmp_path / "put" / "commitlog", store / "commitlog")
    real(store, topics, "--rebuild")
    (store / "config").mkdir(exist_ok=True)
    shutil.copy(topics, store / "config" / "topics.json")
    table = rr.messages(store, columns=("topic", "storeTimestamp")).read_all().to_pydict()
    times = sorted(time for topic, time in zip(table["topic"], table["storeTimestamp"], strict=True) if topic == "BatchA")
    rr.export(store, topic=["BatchA", "BatchB"], since=times[len(times) // 3], format="store", to=new)
    shutil.copytree(new / "commitlog", rebuilt / "commitlog")
    real(rebuilt, topics, "--rebuild")
    assert batch_files(new) == batch_files(rebuilt) != batch_files(store)
    ours, theirs = index_in_order(read_files(new)), index_in_order(read_files(rebuilt))
    assert ours[:-1] == theirs[:-1]
    # A build counts the last file as full unless --checkpoint says broker: a broker that starts puts no item there again.
    count = slice(36, 40)
    assert ours[-1][count] == (60).to_bytes(4, "big")
    assert (ours[-1][: count.start], ours[-1][count.stop :]) == (theirs[-1][: count.start], theirs[-1][count.stop :])
    answers = [line.split() for line in real(new, topics, "--pull", "32")]
    assert answers == [line.split() for line in real(rebuilt, topics, "--pull", "32")]
    ends = dict.fromkeys(((topic, queue) for topic, queue, *_ in answers), 0)
    assert len(ends) > 1
    for topic, queue, asked, after, status, *_ in answers:
        assert (int(asked), status) == (ends[topic, queue], "FOUND"), "each queue begins at 0, and has no gap"
        ends[topic, queue] = int(after)


@pytest.mark.parametrize("version", [pytest.param("5.3.3", marks=pytest.mark.slow), "5.5.0"])
def test_topics_and_folders_must_agree(version: str, tmp_path: Path) -> None:
    """A broker starts neither on plain queues of batch topics, nor on batch queues of topics that it does not know as such."""
    random_batch_log(tmp_path / "log" / "commitlog", 3, odd=False)
    known, unknown = topics_json(tmp_path / "topics.json"), tmp_path / "none.json"
    unknown.write_text('{"topicConfigTable": {}}')
    for name, batch_topics_of, topics, starts in (
        ("both", BATCH_TOPICS, known, True),
        ("plain folders", (), known, False),
        ("unknown topics", BATCH_TOPICS, unknown, False),
        ("neither", (), unknown, True),
    ):
        store = tmp_path / name
        settings: dict[str, Any] = {"batch_topics": batch_topics_of, "on_damage": "salvage", **SIZES}
        assert local_build(tmp_path / "log", store, **settings).exit in (0, 3)
        shutil.copytree(tmp_path / "log" / "commitlog", store / "commitlog")
        ran = run(store, topics, "--pull", "32", version=version)
        assert (ran.returncode == 0) == starts, f"{name}: {ran.stderr}"
        assert starts or "does not load" in ran.stderr
