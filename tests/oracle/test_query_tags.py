"""``query --tag`` and the real store of 5.5.0 answer alike, and after an upgrade in place ``query --tag`` misses nothing.

The real store is asked by its queryMessage for the index type of tags (``tests/oracle``: Ask).
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

from rocketmq_reindex.jobs.querying.search import Search
from rocketmq_reindex.jobs.store.folders import Notes
from tests.golden.stores import GoldenStore
from tests.oracle.scenarios import FOLDER, java_home
from tests.reference import java
from tests.reference.log import read_segments, walk
from tests.reference.records import ROLLBACK
from tests.reference.settings import Settings
from tests.tools.encode import EPOCH, Message
from tests.tools.log_writer import LogWriter

Tag = tuple[str, str]
"""topic and tag"""
SEGMENT = 1 << 14
SIZES = {"cq_file_size": 400, "hash_slots": 50, "index_items": 200}
EVIL = ("TagA || TagB", "T#a", "ключ", "a b", "\x01", "😀", "Aa", "BB", "x" * 2000)


def tags_of(store: Path) -> dict[Tag, list[int]]:
    """Physical offsets by topic and tag, of the records that a broker indexes."""
    found: dict[Tag, list[int]] = {}
    for record in walk(*read_segments([store / "commitlog"], None), Settings()).records:
        tag = record.properties.get("TAGS")
        if tag is not None and record.transaction != ROLLBACK:
            found.setdefault((java.python_text(record.topic), java.python_text(tag)), []).append(record.offset)
    return found


def run(version: str, *words: object) -> str:
    done = subprocess.run(
        [FOLDER / "run", version, *map(str, words)], env=java_home(), capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def ask(store: Path, sizes: dict[str, int], tags: Iterable[Tag]) -> list[list[int]]:
    """What the real 5.5.0 answers. It opens the store itself, and dispatches what is not dispatched yet."""
    segment = next((store / "commitlog").iterdir()).stat().st_size
    opened = f"store {store} {segment} {sizes['cq_file_size']} 46000 {sizes['hash_slots']} {sizes['index_items']}"
    questions = store.parent / "questions"
    questions.write_text("\n".join([opened, *(f"tag {topic.encode().hex()} {tag.encode().hex()}" for topic, tag in tags)]))
    return [json.loads(line) for line in run("5.5.0", "Ask", questions).splitlines()]


def found_in(store: Path, tags: Iterable[Tag]) -> tuple[list[list[int]], str]:
    """What ``query --tag`` finds, and what it says of the way."""
    said: list[str] = []
    with Search(str(store), (str(store / "commitlog"),), Notes(say=said.append)) as search:
        found = [[message.phy_offset for message in search.by_tag(topic, tag)] for topic, tag in tags]
    return found, min(said)


def test_the_golden_store(golden_store: Callable[[str], GoldenStore], tmp_path: Path) -> None:
    golden = golden_store("basic-5.5")
    store = tmp_path / "store"
    shutil.copytree(golden.path / "rebuilt", store)
    shutil.copytree(golden.path / "commitlog", store / "commitlog")
    wanted = tags_of(store)
    found, said = found_in(store, wanted)
    theirs = ask(store, golden.sizes(), wanted)
    assert len(wanted) > 100
    assert found == list(wanted.values())
    for (topic, tag), places, mine in zip(wanted, theirs, found, strict=True):
        # A broker gives whatever has the hash, too.
        same = {
            place
            for (t, g), those in wanted.items()
            if (t, java.hash_code(g)) == (topic, java.hash_code(tag))
            for place in those
        }
        assert set(mine) <= set(places) <= same, (topic, tag)
    assert said.startswith("searched: the tag items of 6 of 6 IndexFiles")


def test_after_an_upgrade_in_place(seed: int, tmp_path: Path) -> None:
    """5.3.3 indexes the first segments, 5.5.0 the rest: the broker finds a tag in the newer part alone, ``query`` in all."""
    rng, store = random.Random(seed), tmp_path / "store"
    with LogWriter(store / "commitlog", SEGMENT) as writer:
        for k in range(600):
            properties = {"UNIQ_KEY": f"u{k}"} | ({"KEYS": f"all k{k % 5}"} if k % 3 else {})
            properties |= {"TAGS": rng.choice([*EVIL, "a", "a", "b", "b"])} if rng.random() < 0.8 else {}
            writer.append(Message(topic=rng.choice("TU"), properties=properties, store_timestamp=EPOCH + 100 * k))
    segments = sorted((store / "commitlog").iterdir())
    newer = segments[len(segments) // 2 :]
    for segment in newer:
        segment.rename(tmp_path / segment.name)
    sizes = [f"--{name.replace('_', '-')}={size}" for name, size in SIZES.items()]
    words = [word for size in sizes for word in size.split("=")]
    run("5.3.3", "Rebuild", store, "--in-place", "--segment-size", SEGMENT, *words)
    for segment in newer:
        (tmp_path / segment.name).rename(segment)
    wanted = tags_of(store)
    theirs = ask(store, SIZES, wanted)
    found, said = found_in(store, wanted)
    assert found == list(wanted.values())
    assert " of the log without tag items" in said
    assert "the tag items of" in said
    upgraded = int(newer[0].name)
    for (topic, tag), places, mine in zip(wanted, theirs, found, strict=True):
        assert {place for place in mine if place >= upgraded} <= set(places), (topic, tag)
        assert all(place >= upgraded for place in places)
