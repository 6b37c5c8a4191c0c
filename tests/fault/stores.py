"""Small stores to spoil: three segments with records of every shape, by seed."""

from __future__ import annotations

import random
import tempfile
from functools import lru_cache
from itertools import product
from pathlib import Path

from tests.fault.case import Segments
from tests.tools.encode import COMMIT, EPOCH, PREPARED, ROLLBACK, Message, property_bytes
from tests.tools.log_writer import LogWriter, Put
from tests.tools.make_log import evil_body

SEGMENT = 5 << 10
V4, V6 = ("10.0.0.1", 51234), ("2001:db8::1", 80)
SHAPES = list(product((1, 2), (V4, V6), (V4, V6)))
"""Version, born host, store host."""
TOPICS = ("TopicA", "TopicB", "%RETRY%group-1")


def message(rng: random.Random, shape: int, now: int) -> Message:
    """One message of a shape; which properties it has goes by the shape and by chance."""
    version, born, store = SHAPES[shape]
    schedule = rng.random() < 0.1
    properties = {
        "UNIQ_KEY": rng.randbytes(6).hex(),
        "KEYS": " ".join(rng.choice(("Aa", "BB", "ключ", f"k{rng.randrange(40)}")) for _ in range(rng.randrange(1, 4))),
        "TAGS": rng.choice(("TagA", "тег😀")),
    }
    if rng.random() < 0.2:
        del properties[rng.choice(list(properties))]
    if schedule:
        properties |= {"DELAY": rng.choice(("1", "3", "18")), "REAL_TOPIC": "TopicA"}
    if rng.random() < 0.1:
        properties |= {"INNER_NUM": "2", "INNER_BASE": "7"}
    topic = "SCHEDULE_TOPIC_XXXX" if schedule else rng.choice(TOPICS)
    return Message(
        topic="L" * rng.randrange(128, 140) if version == 2 and rng.random() < 0.4 else topic,
        queue_id=rng.randrange(2),
        body=rng.randbytes(rng.randrange(1, 60)),
        properties=property_bytes(properties),
        sysflag=rng.choice((0, 0, 0, 0, 0x1, PREPARED, COMMIT, ROLLBACK)),
        flag=rng.randrange(9),
        born_timestamp=now - rng.randrange(99),
        store_timestamp=now,
        born_host=born,
        store_host=store,
        prepared_offset=rng.randrange(99),
        version=version,
        crc_property=rng.random() < 0.5,
        lmq=tuple(rng.sample(("%LMQ%one", "%LMQ%two", "plain"), k=rng.randrange(1, 3))) if rng.random() < 0.15 else (),
    )


@lru_cache(maxsize=4)
def small_store(seed: int, *, short_tail: bool = False) -> Segments:
    """Three segments of 5 KiB; every shape at least twice. ``short_tail``: the last two records have few bytes."""
    rng = random.Random(f"store {seed}")
    with tempfile.TemporaryDirectory() as folder, LogWriter(Path(folder), SEGMENT) as writer:
        shapes = [*range(len(SHAPES))] * 2
        rng.shuffle(shapes)
        now = EPOCH
        while True:
            now += rng.randrange(1500)
            one = message(rng, shapes.pop() if shapes else rng.randrange(len(SHAPES)), now)
            if rng.random() < 0.06:
                one = evil_body(writer, one, rng)
            if writer.base >= 2 * SEGMENT and len(writer.segment) > 600 + rng.randrange(2500) and not shapes:
                break
            writer.append(one)
        if short_tail:
            for version, host in ((2, V6), (1, V4)):
                properties = {"KEYS": "k", "TAGS": "t"}
                writer.append(Message(version=version, body=b"b", born_host=host, properties=properties, store_timestamp=now))
        writer.close()
        return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}


@lru_cache(maxsize=2)
def orderly_store(seed: int, records: int, segment: int = 1 << 15) -> tuple[Segments, tuple[Put, ...]]:
    """A log of so many records without images of records in bodies, every queue counting up; and where they went."""
    rng = random.Random(f"orderly {seed}")
    now = EPOCH
    with tempfile.TemporaryDirectory() as folder, LogWriter(Path(folder), segment) as writer:
        for _ in range(records):
            now += rng.randrange(1500)
            writer.append(message(rng, rng.randrange(len(SHAPES)), now))
        writer.close()
        return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}, tuple(writer.puts)
