"""A small log that tests damage and repair."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocketmq_reindex.storage_format.record.message import Message, read_message
from tests.tools.encode import Message as NewMessage
from tests.tools.local_engine import local_repair
from tests.tools.log_writer import LogWriter, Put

SEGMENT = 1 << 12
SIZES = {"cq_file_size": 400, "hash_slots": 50, "index_items": 150}


@dataclass
class Log:
    """A store with records of two queues, each as long as the others, and its segments."""

    store: Path
    puts: list[Put]

    def at(self, offset: int, size: int) -> bytes:
        """Bytes of the log."""
        return bytes_at(self.store, offset, size)

    def change(self, offset: int, data: bytes) -> None:
        """Overwrite bytes of the log."""
        path = self.segment(offset)
        old = bytearray(path.read_bytes())
        old[offset % SEGMENT : offset % SEGMENT + len(data)] = data
        path.write_bytes(old)

    def segment(self, offset: int) -> Path:
        """The segment of an offset."""
        return self.store / "commitlog" / f"{offset // SEGMENT * SEGMENT:020d}"


def bytes_at(store: Path, offset: int, size: int) -> bytes:
    path = store / "commitlog" / f"{offset // SEGMENT * SEGMENT:020d}"
    return path.read_bytes()[offset % SEGMENT : offset % SEGMENT + size]


def log_of(store: Path) -> bytes:
    """The whole log."""
    return b"".join(path.read_bytes() for path in sorted((store / "commitlog").iterdir()))


def record_at(store: Path, offset: int) -> Message:
    data = bytes_at(store, offset, SEGMENT)
    found = read_message(lambda low, count: data[low : low + count], offset, len(data))
    assert isinstance(found, Message)
    return found


def make_log(store: Path, queues: int, topic: str = "TopicA") -> Log:
    with LogWriter(store / "commitlog", SEGMENT) as writer:
        for number in range(60):
            properties = {"UNIQ_KEY": f"id-{number}", "KEYS": f"key-{number}"}
            writer.append(
                NewMessage(topic, number % queues, body=b"x" * 100, properties=properties, store_timestamp=1_000_000 + number)
            )
    return Log(store, writer.puts)


def ranges_of(log: Log, out: Path, **settings: Any) -> list[dict[str, Any]]:
    told = local_repair(log.store, out, None, **SIZES, **settings)
    assert told.error is None, told.error
    assert told.repair is not None
    ranges = told.repair["ranges"]
    assert json.loads((out / "reindex.json").read_text())["repair"]["ranges"] == ranges
    return list(ranges)
