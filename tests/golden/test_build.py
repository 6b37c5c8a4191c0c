"""The golden stores come out as RocketMQ's own rebuild left them, byte for byte, however the log is cut and dealt out."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rocketmq_reindex.storage_format.digest import new_digest
from tests.golden.stores import NAMES, GoldenStore, index_in_order, read_files
from tests.reference.build import reference_build
from tests.tools.compare import SMALL, compare, differences, project_settings
from tests.tools.encode import Message, body_start, encode
from tests.tools.local_engine import InlineEngine, local_build
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import FEATURES, evil_body, random_log
from tests.tools.seeds import cases

Stores = Callable[[str], GoldenStore]
SMALLER = ("transactions-delay", "trimmed-head", "v2-ipv6-batch")
"""Stores of two segments, for ranges of a few records."""
CUTS = {name: 3001 if name in SMALLER else 1 << 16 for name in NAMES}
"""The range size of each store's second build: ``make matrix`` has all of the others."""


def assert_is_rebuilt(out: Path, store: GoldenStore) -> None:
    """``out`` holds what the broker's own rebuild holds; only the names of its IndexFiles are of another clock."""
    expected, ours = store.rebuilt(), read_files(out)
    queues = {path: content for path, content in expected.items() if path.startswith("consumequeue/")}
    assert {path: content for path, content in ours.items() if path.startswith("consumequeue/")} == queues
    assert index_in_order(ours) == index_in_order(expected)
    assert ours["checkpoint"] == expected["checkpoint"]
    assert len(ours) == len(expected)


@pytest.mark.parametrize("name", NAMES)
def test_equals_the_brokers_rebuild(name: str, golden_store: Stores, tmp_path: Path) -> None:
    store = golden_store(name)
    manifests = set()
    for size, engine in ((0, InlineEngine(1, 1)), (CUTS[name], InlineEngine(7, 3))):
        out = tmp_path / f"{size}"
        summary = local_build(store.path, out, engine, range_size=size, crc="all", **store.broker_settings())
        assert (summary.exit, summary.error, summary.damage, summary.decisions) == (0, None, [], [])
        assert_is_rebuilt(out, store)
        manifests.add((out / "reindex.json").read_bytes())
    assert len(manifests) == 1


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("queue_order", ["logical", "fail"])
def test_orderly_queues_are_alike_in_every_order(
    name: str, queue_order: str, golden_store: Stores, tmp_path: Path
) -> None:  # fmt: skip
    store = golden_store(name)
    settings = store.broker_settings() | {"queue_order": queue_order}
    summary = local_build(store.path, tmp_path / "out", range_size=1 << 18, **settings)
    assert (summary.exit, summary.decisions) == (0, [])
    assert_is_rebuilt(tmp_path / "out", store)


@pytest.mark.parametrize("name", NAMES)
def test_names_and_counts_are_the_references(name: str, golden_store: Stores, tmp_path: Path) -> None:
    store = golden_store(name)
    assert differences(store.path, tmp_path / "out", range_size=1 << 17, **store.broker_settings()) == []
    made = sorted(path.name for path in (tmp_path / "out" / "index").iterdir())
    assert {len(path) for path in made} == {17}
    assert len(set(made)) == len(made)


def test_the_manifest_names_every_file_and_its_bytes(golden_store: Stores, tmp_path: Path) -> None:
    store = golden_store("transactions-delay")
    out = tmp_path / "out"
    summary = local_build(store.path, out, **store.broker_settings())
    manifest = json.loads((out / "reindex.json").read_text())
    ours = read_files(out)
    assert [entry["path"] for entry in manifest["files"]] == sorted(ours)
    slots = store.sizes()["hash_slots"]
    for entry in manifest["files"]:
        content = ours[entry["path"]]
        assert len(content) == entry["size"]
        assert not any(content[entry["used"] :])
        used = [content[: entry["used"]]]
        if entry["path"].startswith("index/"):
            first = 40 + 4 * slots + 20
            used = [content[: first - 20], content[first : entry["used"]]]
        assert entry["digest"] == new_digest(used).digest().hex()
    segments = sorted((store.path / "commitlog").iterdir())
    assert [(entry["segment"], entry["size"]) for entry in manifest["inputs"]] == [(p.name, p.stat().st_size) for p in segments]
    digests = [[new_digest([path.read_bytes()]).digest().hex()] for path in segments]
    assert [entry["digests"] for entry in manifest["inputs"]] == digests
    counts = {"records": summary.records, "units": summary.units, "items": summary.items}
    counts |= {"tag_items": summary.tag_items, **summary.files}
    assert manifest["counts"] == counts
    assert bool(summary.tag_items) == (store.broker_version in ("5.4", "5.5"))
    assert manifest["settings"]["queue_order"] == "broker"
    assert sorted(path.name for path in out.iterdir()) == ["checkpoint", "consumequeue", "index", "reindex.json"]


@pytest.mark.parametrize("version", ["5.3", "4.9"])
def test_light_queues_of_random_logs(version: str, seed: int, tmp_path: Path) -> None:
    """LMQ dispatches, and what they must not be, against the reference."""
    features = FEATURES - {"gaps"} - ({"v2"} if version == "4.9" else set())
    for number in range(cases(6, 1)):
        store = tmp_path / f"{number}"
        random_log(store / "commitlog", seed + number, records=200, features=features)
        engine = InlineEngine(5, 2)
        found = differences(
            store, tmp_path / "out", engine, 7000, broker_version=version, lmq=True, queue_order="broker", **SMALL
        )
        assert found == []
        made = {path.name for path in (tmp_path / "out" / "consumequeue").iterdir()}
        assert any(name.startswith("%LMQ%") for name in made)
        assert not any("slash" in name for name in made)


def _evil_log(folder: Path, seed: int) -> None:
    """Half of the bodies hold whole record images that tell where they really lie; one such body is most of a segment."""
    rng = random.Random(seed)
    with LogWriter(folder, 1 << 14) as writer:
        for number in range(60):
            message = Message(topic=f"T{number % 3}", queue_id=number % 2, properties={"KEYS": f"k{number}"})
            message = evil_body(writer, message, rng) if rng.random() < 0.6 else replace(message, body=rng.randbytes(200))
            if number == 30:
                writer.roll()
                images, at = b"", writer.end + body_start(message)
                while len(images) < 9000:
                    images += encode(Message(topic="Evil", properties={"KEYS": "evil"}), at + len(images), len(images))
                message = replace(message, body=images)
            writer.append(message)


def test_ranges_may_be_cut_at_any_byte(seed: int, tmp_path: Path) -> None:
    """Also inside a body whose bytes are a record in every respect but one: no record begins there."""
    _evil_log(tmp_path / "store" / "commitlog", seed)
    store, out = tmp_path / "store", tmp_path / "out"
    settings = {**SMALL, "crc": "all"}
    truth = reference_build(store, **settings)
    assert truth.summary.exit == 0
    manifests = set()
    sizes = (*range(200, 1200, 37), 5000, 9000)
    for size in random.Random(seed).sample(sizes, cases(len(sizes), 3)):
        summary = local_build(store, out, InlineEngine(3, 2), range_size=size, overwrite=True, **project_settings(settings))
        assert compare(summary, out, truth) == [], f"range size {size}"
        manifests.add((out / "reindex.json").read_bytes())
    assert len(manifests) == 1
    assert not (out / "consumequeue" / "Evil").exists()


def test_a_range_a_byte(seed: int, tmp_path: Path) -> None:
    """Every byte of a small log begins a range of its own."""
    store, out = tmp_path / "store", tmp_path / "out"
    random_log(store / "commitlog", seed, records=cases(4, 2), segment_size=2048, biggest_body=60, topics=1, queues=1)
    assert differences(store, out, range_size=1, **SMALL) == []
