"""Stores put together from a commitlog and what was built from it, and what must be found in them."""

from __future__ import annotations

import random
import shutil
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tests.reference.java import hash_code, java_text
from tests.serving.programs import Program
from tests.tools.encode import EPOCH, Message
from tests.tools.local_engine import local_build
from tests.tools.log_writer import LogWriter, Put

SIZES: dict[str, int] = {"cq_file_size": 6000, "hash_slots": 1000, "index_items": 20_000}
"""Small files, but an IndexFile far from full."""
SEGMENT = 1 << 16
MOST_FOUND = 64
"""maxMsgsNumBatch: a broker answers no question with more records."""

TAGS = ("paid", "shipped", "Aa", "BB")

Key = tuple[str, str]
"""topic and key"""
Queue = tuple[str, int]
"""topic and queue id"""


def keyed_log(store: Path, records: int, seed: int, *, topics: int = 3, queues: int = 4, tail: int = 0) -> list[Put]:
    """Records with tags, a UNIQ_KEY and KEYS: one of its own, one that five share, one with another's hash, one of many.

    The last ``tail`` of them begin a segment.
    """
    rng = random.Random(seed)
    now = EPOCH
    with LogWriter(store / "commitlog", SEGMENT) as writer:
        for number in range(records):
            now += rng.randrange(1000, 9000)
            if number == records - tail:
                writer.roll()
            keys = [f"order-{number}", f"customer-{rng.randrange(records // 5)}", f"{number // 2}{('Aa', 'BB')[number % 2]}"]
            keys += ["ключ-vip"] if rng.random() < 0.15 else []
            writer.append(Message(
                topic=f"orders-{rng.randrange(topics)}", queue_id=rng.randrange(queues),
                body=rng.randbytes(9 + rng.randrange(99)),
                properties={"KEYS": " ".join(keys), "UNIQ_KEY": f"{number:032X}", "TAGS": rng.choice(TAGS)},
                born_timestamp=now - 5, store_timestamp=now,
            ))  # fmt: skip
        return writer.puts


def queues_of(puts: Iterable[Put]) -> dict[Queue, list[Put]]:
    """The records of each queue, in the log's order."""
    found: dict[Queue, list[Put]] = defaultdict(list)
    for put in puts:
        assert isinstance(put.message.topic, str)
        found[put.message.topic, put.message.queue_id].append(put)
    return found


def keys_of(puts: Iterable[Put]) -> dict[Key, set[int]]:
    """Where the records with each key lie: UNIQ_KEY and KEYS alike, as the index has them."""
    found: dict[Key, set[int]] = defaultdict(set)
    for put in puts:
        assert isinstance(put.message.properties, Mapping)
        assert isinstance(put.message.topic, str)
        properties = put.message.properties
        for key in [properties.get("UNIQ_KEY", ""), *properties.get("KEYS", "").split(" ")]:
            if key:
                found[put.message.topic, key].add(put.offset)
    return found


def build_into(store: Path, **settings: Any) -> None:
    """Build from the commitlog of ``store`` and put the result into ``store``, in the place of what was there."""
    out = store.with_name(f"{store.name}-out")
    summary = local_build(store, out, **(SIZES | settings))
    assert summary.exit in (0, 3), summary.error
    place(out, store)


def place(out: Path, store: Path) -> None:
    """What a user does with a result: its parts take the place of the store's."""
    for part in ("consumequeue", "consumequeue_ext", "index", "checkpoint", "config"):
        built, old = out / part, store / part
        if built.exists():
            if old.is_dir():
                shutil.rmtree(old)
            shutil.move(built, old)


def options(**sizes: int) -> list[str]:
    """Sizes as words of a step."""
    named = {"segment_size": SEGMENT} | SIZES | sizes
    return [word for name, value in named.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def ask(program: Program, name: str, keys: Mapping[Key, set[int]], scratch: Path, kind: str = "") -> dict[Key, list[int]]:
    """What a store opened as ``name`` finds for each key, or for each tag (``kind`` T): physical offsets, as they came."""
    questions, answers = scratch / f"{name}.questions", scratch / f"{name}.answers"
    questions.write_text("".join("\t".join([topic, key, *([kind] if kind else [])]) + "\n" for topic, key in keys))
    program.step("find", name, questions, answers)
    lines = answers.read_text().split("\n")[:-1]
    return {key: [int(word) for word in line.split(",") if word] for key, line in zip(keys, lines, strict=True)}


def lost(keys: Mapping[Key, set[int]], found: Mapping[Key, list[int]]) -> list[Key]:
    """The keys of which a record is missing though a broker's limit lets it be found."""
    return [key for key, places in keys.items() if len(found[key]) < MOST_FOUND and not places <= set(found[key])]


def wrong(keys: Mapping[Key, set[int]], found: Mapping[Key, list[int]]) -> list[Key]:
    """The keys for which a record came that has no key of that hash: an index that lies."""
    by_hash: dict[int, set[int]] = defaultdict(set)
    for (topic, key), places in keys.items():
        by_hash[_hash(topic, key)] |= places
    return [key for key, places in found.items() if not set(places) <= by_hash[_hash(*key)]]


def twice(found: Mapping[Key, list[int]]) -> list[Key]:
    """The keys for which one record came more than once."""
    return [key for key, places in found.items() if len(places) != len(set(places))]


@cache
def _hash(topic: str, key: str) -> int:
    return abs(hash_code(java_text(f"{topic}#{key}")))
