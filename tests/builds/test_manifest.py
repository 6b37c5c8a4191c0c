"""reindex.json: the same bytes however the work is cut; its files, sizes and digests are what stands there."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import xxhash

from rocketmq_reindex.files import reading
from rocketmq_reindex.jobs.publishing import output
from rocketmq_reindex.udfs import queue_order
from rocketmq_reindex.udfs.write import queues as write_queues
from tests.golden.stores import read_files
from tests.tools import spoil
from tests.tools.local_engine import InlineEngine, local_build
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import FEATURES, Message, random_log

SMALL: dict[str, Any] = {"cq_file_size": 400, "hash_slots": 50, "index_items": 60}


def built(store: Path, out: Path, range_size: int, engine: InlineEngine, **more: Any) -> tuple[dict[str, bytes], bytes]:
    summary = local_build(store, out, engine, range_size=range_size, overwrite=True, **(SMALL | more))
    assert summary.exit in (0, 3), summary.error
    return read_files(out), (out / "reindex.json").read_bytes()


@pytest.mark.parametrize(
    "more",
    [
        {"on_damage": "salvage", "crc": "all", "lmq": True},
        {"on_damage": "stop"},
        {"on_damage": "salvage", "queue_order": "broker", "index_policy": "window:1h", "checkpoint": "broker"},
        # Some seeds begin behind this time, or with a V2 record, where a log of 4.9 ends: nothing is built.
        {
            "on_damage": "salvage",
            "only": ("index",),
            "include_topics": ("*",),
            "until_time": 1_700_000_100_000,
            "allow_empty": True,
        },
        {"on_damage": "stop", "until_offset": 40_000, "broker_version": "4.9", "allow_empty": True},
    ],
    ids=["salvage", "stop", "broker", "index", "until"],
)
def test_the_same_bytes_however_it_is_cut(tmp_path: Path, seed: int, more: dict[str, Any]) -> None:
    store, rng = tmp_path / "store", random.Random(seed)
    random_log(store / "commitlog", seed, records=130, segment_size=1 << 15, features=FEATURES)
    offsets = spoil.record_offsets(store)
    spoil.flip_body(store, next(k for k, (_, size) in enumerate(offsets) if k > 50 and size > 400), seed)
    spoil.garbage(store, rng.randrange(70, 110), seed)
    whole = built(store, tmp_path / "out", 0, InlineEngine(), **more)
    for range_size, engine in ((700, InlineEngine(1, 1)), (rng.randrange(2000, 40_000), InlineEngine(50, 5))):
        cut = built(store, tmp_path / "out", range_size, engine, **more)
        assert cut[0] == whole[0], f"range size {range_size}"
        assert cut[1] == whole[1], f"range size {range_size}"


@pytest.mark.parametrize("stored", [1, 0])
def test_nothing_was_read_behind_a_first_record_that_is_too_late(tmp_path: Path, stored: int) -> None:
    """Also where it is the log's first: no digest stands for bytes behind it."""
    with LogWriter(tmp_path / "store" / "commitlog", 1 << 12) as writer:
        for number in range(3):
            writer.append(Message("T", store_timestamp=1000 + (number >= stored)))
    summary = local_build(tmp_path / "store", tmp_path / "out", until_time=1000, allow_empty=True)
    assert (summary.exit, summary.records) == (0, stored)
    (segment,) = json.loads((tmp_path / "out" / "reindex.json").read_text())["inputs"]
    assert segment["digests"] == [None]


def test_many_odd_topics_are_told_alike(tmp_path: Path) -> None:
    """Only the first twenty are named: which ones does not depend on who meets which."""
    topics = [f"t~{k}" for k in range(60)]
    random.Random(5).shuffle(topics)
    with LogWriter(tmp_path / "store" / "commitlog", 1 << 14) as writer:
        for topic in topics:
            writer.append(Message(topic=topic, body=bytes(200)))
    manifests = {built(tmp_path / "store", tmp_path / "out", size, InlineEngine())[1] for size in (0, 900, 5000)}
    (manifest,) = manifests
    warnings = json.loads(manifest)["warnings"]
    assert [w.partition(":")[0] for w in warnings] == [f"topic {name}" for name in sorted(topics)[:20]]


def test_what_it_says_is_so(tmp_path: Path, seed: int) -> None:
    store, out = tmp_path / "store", tmp_path / "out"
    random_log(store / "commitlog", seed, segment_size=1 << 15)
    made, text = built(store, out, 0, InlineEngine(3, 2))
    said = json.loads(text)
    assert list(said) == [
        "format", "version", "digest", "settings", "inputs", "log", "counts", "checkpoint", "damage", "decisions", "warnings",
        "files",
    ]  # fmt: skip
    entries = {entry["path"]: entry for entry in said["files"]}
    assert [entry["path"] for entry in said["files"]] == sorted(made)
    for path, content in made.items():
        entry = entries[path]
        assert entry["size"] == len(content)
        assert not any(content[entry["used"] :])
        if not path.startswith("index/"):
            assert entry["digest"] == xxhash.xxh3_128_digest(content[: entry["used"]]).hex()
    segments = {path.name: path.read_bytes() for path in sorted((store / "commitlog").iterdir())}
    log = b"".join(segments.values())
    assert said["log"]["samples"][0]["offset"] == 0
    assert (
        max(one["offset"] + one["length"] for one in said["log"]["samples"]) == said["log"]["end"] <= len(log.rstrip(b"\0")) + 2
    )
    for one in said["log"]["samples"]:
        data = log[one["offset"] :][: one["length"]]
        assert (len(data), xxhash.xxh3_128_digest(data).hex()) == (one["length"], one["digest"])
    assert said["inputs"] == [
        {"segment": name, "size": len(data), "digests": [xxhash.xxh3_128_digest(data).hex()]} for name, data in segments.items()
    ]
    assert said["counts"]["consumequeue"] == sum(path.startswith("consumequeue/") for path in made)
    assert said["counts"]["index"] == sum(path.startswith("index/") for path in made)


def test_many_parts_are_merged_by_groups(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "store"
    random_log(store / "commitlog", seed, records=500, features=FEATURES, topics=8, queues=5)
    expected = built(store, tmp_path / "out", 0, InlineEngine(), on_damage="salvage", lmq=True)
    monkeypatch.setattr(write_queues, "LINES_MAX", 2)
    monkeypatch.setattr(queue_order, "QUEUES_MAX", 2)
    monkeypatch.setattr(output, "FAN_IN", 3)
    monkeypatch.setattr(reading, "_LINES_BYTES", 50)
    assert built(store, tmp_path / "out", 0, InlineEngine(9, 4), on_damage="salvage", lmq=True) == expected


def test_it_tells_nothing_of_time_and_place(tmp_path: Path) -> None:
    texts = []
    for place in ("one", "elsewhere"):
        with LogWriter(tmp_path / place / "store" / "commitlog", 1 << 14) as writer:
            writer.append(Message(properties={"KEYS": "k"}))
        texts.append(built(tmp_path / place / "store", tmp_path / place / "out", 0, InlineEngine())[1])
    assert texts[0] == texts[1]
    assert b"elsewhere" not in texts[1]


def test_an_empty_log(tmp_path: Path) -> None:
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    made, text = built(tmp_path / "store", tmp_path / "out", 0, InlineEngine())
    assert made == {"checkpoint": bytes(4096)}
    said = json.loads(text)
    assert (said["inputs"], [entry["path"] for entry in said["files"]]) == ([], ["checkpoint"])
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["checkpoint", "consumequeue", "index", "reindex.json"]
