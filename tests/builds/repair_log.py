"""A small log that tests damage and repair."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocketmq_reindex.jobs.building.summary import RepairResult
from rocketmq_reindex.storage_format.record.message import Message, read_message
from tests.tools.encode import Message as NewMessage
from tests.tools.local_engine import InlineEngine, local_repair
from tests.tools.log_writer import LogWriter, Put
from tests.tools.stale_log import copy_log

SEGMENT = 1 << 12
SIZES = {"cq_file_size": 400, "hash_slots": 50, "index_items": 150}
MAGIC, BODY_CRC, FLAG, SYSFLAG, BORN, RECONSUMED, BODY = 4, 8, 16, 39, 40, 72, 95
"""Where some fields lie in a record; no CRC covers those from FLAG to RECONSUMED."""


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


def copy(whole: Log, store: Path) -> Log:
    return Log(copy_log(whole.store, store), whole.puts)


def repaired(log: Log, out: Path, *replicas: Log, **settings: Any) -> RepairResult:
    shutil.rmtree(out, ignore_errors=True)
    told = local_repair(
        log.store, out, InlineEngine(3, 2), replicas=tuple(str(one.store) for one in replicas), segment_size=SEGMENT,
        **(SIZES | settings),
    )  # fmt: skip
    assert told.error is None, told.error
    return told


def first_of_second(whole: Log) -> int:
    """The number of the first record of the second segment."""
    return next(k for k in range(1, len(whole.puts)) if whole.puts[k].offset >= SEGMENT)


def spoil(whole: Log, log: Log, replica: Log, first: int, pattern: str, field: int = FLAG) -> None:
    """Spoil the records from ``first`` on: ``x`` is damaged in the log, ``r`` in the replica, ``b`` in both, and ``c`` in its
    body, in the replica.

    ``~`` and ``-`` have another byte in ``field`` in the replica, or in the log; ``.`` is the same in both.
    """
    for number, kind in enumerate(pattern, first):
        put = whole.puts[number]
        for one in [log] * (kind in "xb") + [replica] * (kind in "rb"):
            one.change(put.offset + MAGIC, b"\0")
        if kind == "c":
            replica.change(put.offset + BODY, b"\xff")
        if kind in "~-":
            one = replica if kind == "~" else log
            one.change(put.offset + field, bytes([whole.at(put.offset + field, 1)[0] ^ 1]))


def kinds_of(out: Path, log: Log, *replicas: Log) -> str:
    """Of each record whose bytes it has: ``=`` of the log and all replicas, ``l``, or the number of a replica; else ``?``."""
    found = ""
    for put in log.puts:
        new = Log(out, log.puts).at(put.offset, put.size)
        having = "".join(
            name for name, one in zip("l12", (log, *replicas), strict=False) if one.at(put.offset, put.size) == new
        )
        found += "=" if len(having) == 1 + len(replicas) else having[:1] or "?"
    return found
