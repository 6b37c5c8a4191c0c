"""``consumequeue_ext`` beside the real stores: their own rebuilds, and what RocketMQ's ``getExt`` reads of ours."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.storage_format.queue.extended import BloomFilter
from tests.golden.test_extended import FILTERS, extended
from tests.oracle.scenarios import FOLDER, java_home
from tests.tools.local_engine import InlineEngine, local_build
from tests.tools.local_verify import kinds, local_verify
from tests.tools.make_log import FEATURES, random_log

VERSIONS = ("4.9.8", "5.3.3", "5.5.0", "5.5.1")
SIZES: dict[str, Any] = {"cq_file_size": 200, "hash_slots": 50, "index_items": 100}
EXT_SIZE = 300
CONDITIONS = (
    # The last one has a word that 5.x added: the parser of 4.9 passes over it.
    "a > 5", "a BETWEEN 2 AND 9", "NOT (a = 3)", "a IS NULL", "price >= 10.5", "price < a", "colour IN ('red', 'it''s')",
    "colour NOT IN ('blue')", "colour = 'ä你'", "TAGS = 'tag1'", "TAGS IS NOT NULL", "a <> 4", "TRUE", "colour CONTAINS 'e'",
)  # fmt: skip


def real(version: str, store: Path, *words: str) -> list[str]:
    """Run FilterStore on a folder; the lines it prints of units."""
    sizes = [word for name, size in SIZES.items() for word in (f"--{name.replace('_', '-')}", str(size))]
    command = [str(FOLDER / "run"), version, "FilterStore", str(store), *sizes, "--ext-file-size", str(EXT_SIZE), *words]
    ran = subprocess.run(command, env=java_home(), capture_output=True, text=True, timeout=900, check=False)
    assert ran.returncode == 0, ran.stderr
    # 4.9 logs to stdout.
    return [line for line in ran.stdout.splitlines() if line.startswith("Topic")]


def subscriptions(path: Path, rng: random.Random, version: str) -> Path:
    """Groups with random conditions on three of the four topics; of one topic more than 64, so that two numbers name them."""
    lines = []
    for topic, groups in (("Topic0", 3), ("Topic1", 70), ("Topic2", 1)):
        for group in range(groups):
            parts = [rng.choice(CONDITIONS[: -1 if version.startswith("4") else None]) for _ in range(rng.randrange(1, 4))]
            condition = rng.choice((" AND ", " OR ")).join(parts)
            lines.append(f"{topic}\tgroup{group}\t{condition}\n")
    path.write_text("".join(lines))
    return path


@pytest.mark.parametrize(
    "version", [pytest.param(version, marks=[] if version == "5.5.0" else pytest.mark.slow) for version in VERSIONS]
)
def test_bits_are_those_of_the_real_dispatcher(version: str, seed: int, tmp_path: Path) -> None:
    """What a store was put and what it rebuilds; then it opens ours, and finds the same units by their addresses."""
    store, ours, rng = tmp_path / "store", tmp_path / "ours", random.Random(seed)
    store.mkdir()
    # 5.5.1 takes none on a topic that its broker does not have.
    registrar = "5.5.0" if version == "5.5.1" else version
    real(registrar, store, "--register", str(subscriptions(tmp_path / "subscriptions", rng, version)))
    real(version, store, "--put", "300", "--seed", str(seed), "--segment-size", "32k")
    read = real(version, store, "--dump")
    line = ".".join(version.split(".")[:2])
    for size in (0, 2000):
        summary = local_build(
            store, ours, InlineEngine(3, 2), range_size=size, overwrite=True, broker_version=line, cq_ext="bitmap",
            cq_ext_file_size=EXT_SIZE, **SIZES,
        )  # fmt: skip
        assert (summary.exit, summary.error, summary.warnings) == (0, None, [])
        assert extended(ours) == extended(store)
    assert kinds(local_verify(store, broker_version=line)) == {}
    for name in ("commitlog", "config"):
        shutil.copytree(store / name, ours / name, dirs_exist_ok=True)
    assert real(version, ours, "--dump") == read
    assert len(read) == 300
    assert (store / FILTERS).exists()


def test_odd_logs(seed: int, tmp_path: Path) -> None:
    """Queues that jump and repeat, light queues, transactions: also a record without a unit in its queue has one there."""
    store, theirs, ours = tmp_path / "store", tmp_path / "theirs", tmp_path / "ours"
    store.mkdir()
    conditions = tuple(enumerate(("KEYS IS NOT NULL", "TAGS IS NOT NULL OR DELAY IS NULL")))
    lines = [f"{topic}\tgroup{k}\t{condition}\n" for topic in ("TopicA", "TopicB", "Тема") for k, condition in conditions]
    (tmp_path / "subscriptions").write_text("".join(lines))
    real("5.5.0", store, "--register", str(tmp_path / "subscriptions"))
    random_log(store / "commitlog", seed, records=200, features=FEATURES)
    shutil.copytree(store, theirs)
    real("5.5.0", theirs, "--rebuild", "--enable-lmq")
    made: dict[str, Any] = {**SIZES, "broker_version": "5.5", "cq_ext": "bitmap", "cq_ext_file_size": EXT_SIZE, "lmq": True}
    summary = local_build(store, ours, InlineEngine(3, 2), range_size=3000, queue_order="broker", **made)
    assert (summary.exit, summary.error) == (0, None)
    assert extended(ours) == extended(theirs)
    wrong = kinds(local_verify(theirs, broker_version="5.5"))
    assert not {kind for kind in wrong if kind.startswith("queue-")}
    # In logical order some units are filled in: they lead to the unit of the message that they repeat.
    assert local_build(store, tmp_path / "logical", on_damage="salvage", **made).exit in (0, 3)
    log = (str(store / "commitlog"),)
    wrong = kinds(local_verify(tmp_path / "logical", commitlogs=log, broker_version="5.5"))
    assert not {kind for kind in wrong if kind.startswith("queue-")}


@pytest.mark.parametrize("version", ["5.5.0"])
def test_the_size_of_a_bloom_filter(version: str, tmp_path: Path) -> None:
    for rate, consumers in ((20, 32), (1, 1), (99, 7), (10, 128), (50, 1000), (33, 100)):
        words = ["--error-rate", str(rate), "--consumers", str(consumers)]
        command = [str(FOLDER / "run"), version, "FilterStore", str(tmp_path), "--bloom", *words]
        ran = subprocess.run(command, env=java_home(), capture_output=True, text=True, timeout=900, check=True)
        assert tuple(map(int, ran.stdout.split()[-2:])) == BloomFilter.of(rate, consumers)
