"""Logs of topics with batch ConsumeQueues, and what stands in these queues in plain words."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any

from tests.tools.encode import COMMIT, PREPARED, ROLLBACK, Message
from tests.tools.log_writer import LogWriter

INNER_BATCH, NEED_UNWRAP = 0x80, 0x40
BATCH_TOPICS = ("BatchA", "BatchB")
SIZES = {"cq_file_size": 400, "batch_cq_file_size": 460, "hash_slots": 50, "index_items": 60}
"""Ten units a batch queue file."""
MADE: dict[str, Any] = {"batch_topics": BATCH_TOPICS, **SIZES}
"""Settings of a build of such a log."""

BatchUnit = tuple[int, int, int, int, int, int]
"""place, size, tagsCode, store time, queue offset of the first message, messages"""


def batch(base: int, count: int, topic: str = BATCH_TOPICS[0], queue: int = 0, **more: str) -> Message:
    """A record of ``count`` messages, the first at queue offset ``base``."""
    inner = {"INNER_NUM": str(count), "INNER_BASE": str(base)}
    flags = INNER_BATCH | NEED_UNWRAP
    return Message(topic=topic, queue_id=queue, queue_offset=max(0, base), sysflag=flags, properties=more | inner)


def random_batch_log(folder: Path, seed: int, records: int = 250, odd: bool = True) -> None:
    """Inner batches among plain messages, prepared and rolled back ones, and a topic of plain queues.

    ``odd``: also offsets that repeat or jump, and numbers that no broker writes (0, below 0).
    """
    rng = random.Random(seed)
    ends: dict[tuple[str, int], int] = {}
    with LogWriter(folder, 1 << 14) as writer:
        for number in range(records):
            topic, queue = rng.choice([*BATCH_TOPICS, "Plain"]), rng.randrange(3)
            time = 1_700_000_000_000 + 50 * number - (rng.randrange(5000) if rng.random() < 0.1 else 0)
            keys = {"KEYS": f"k{rng.randrange(40)}"} | ({"TAGS": f"t{rng.randrange(4)}"} if rng.random() < 0.5 else {})
            if topic == "Plain":
                writer.append(
                    Message(topic=topic, queue_id=queue, store_timestamp=time, properties=keys, body=rng.randbytes(50))
                )
                continue
            base = ends.get((topic, queue), rng.choice((0, 0, 7)))
            if odd and rng.random() < 0.08:
                base = rng.choice((0, max(0, base - rng.randrange(60)), base + rng.randrange(40_000), -1))
            count = rng.choice((1, 2, rng.randrange(1, 40), 32767 if rng.random() < 0.02 else 3))
            if odd and rng.random() < 0.05:
                count = rng.choice((0, -1, -32768))
            message = batch(base, count, topic, queue, **keys)
            kind = rng.random()
            if kind < 0.3:
                # Neither INNER_NUM nor INNER_BASE, or one of them: a batch of one at QUEUEOFFSET.
                count, base = 1, max(0, base)
                left = rng.choice(({}, {"INNER_NUM": "7"}, {"INNER_BASE": "3"}))
                message = Message(topic=topic, queue_id=queue, queue_offset=base, properties=keys | left)
            elif kind < 0.4:
                message.sysflag |= rng.choice((PREPARED, ROLLBACK, COMMIT))
            message.store_timestamp, message.body = time, rng.randbytes(rng.randrange(200))
            writer.append(message)
            if message.sysflag & ROLLBACK in (0, COMMIT) and base >= 0 and count >= 0:
                ends[topic, queue] = base + count


def topics_json(path: Path, topics: tuple[str, ...] = BATCH_TOPICS) -> Path:
    """A broker's config/topics.json whose only entries are these batch topics."""
    table = {
        name: {"topicName": name, "perm": 6, "readQueueNums": 3, "writeQueueNums": 3, "attributes": {"queue.type": "BatchCQ"}}
        for name in topics
    }
    path.write_text(json.dumps({"topicConfigTable": table, "dataVersion": {"counter": 1, "timestamp": 0}}))
    return path


def batch_files(root: Path) -> dict[str, bytes]:
    """{relative path: bytes} of batchconsumequeue/."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted((root / "batchconsumequeue").rglob("*"))
        if path.is_file()
    }


def batch_queue(root: Path, topic: str = BATCH_TOPICS[0], queue: int = 0) -> list[BatchUnit]:
    """The units of one queue; asserts that the rest of each is as the broker writes it."""
    found: list[BatchUnit] = []
    for path, content in batch_files(root).items():
        if path.startswith(f"batchconsumequeue/{topic}/{queue}/"):
            assert int(path.rsplit("/", 1)[1]) == 46 * len(found), "files but the last are full"
            units = list(struct.iter_unpack(">qiqqqhii", content))
            used = [unit for unit in units if unit[1]]
            assert not any(any(unit) for unit in units[len(used) :])
            assert all(unit[6:] == (-1, 0) for unit in used)
            found += [unit[:6] for unit in used]
    return found
