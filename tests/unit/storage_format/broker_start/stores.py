"""Small stores in memory for the tests of a start: a log of 30 records, and what a broker makes of it."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np

from rocketmq_reindex.storage_format.broker_start.loading import Prediction
from rocketmq_reindex.storage_format.broker_start.predict import predict
from rocketmq_reindex.storage_format.broker_start.store import QueueFolder, StartSettings, Store, StoreFile
from tests.tools.encode import EPOCH, Message
from tests.tools.log_writer import LogWriter, Put

SEGMENT = 1024
QUEUE_FILE = 200
"""ten units"""


def file(start: int, data: bytes, size: int) -> StoreFile:
    """A file of ``size`` bytes, zeros behind ``data``."""
    # As files are read: for an array that cannot be written to, all loops of a start would be compiled once more.
    return StoreFile(f"{start:020d}", np.frombuffer(bytearray(data.ljust(size, b"\0")), np.uint8))


def log(folder: Path, records: int = 30, first: int = 0) -> tuple[list[StoreFile], list[Put]]:
    """Segments of a log with one queue, each record with a key and 5 seconds later than the one before."""
    with LogWriter(folder, SEGMENT, first) as writer:
        for number in range(records):
            writer.append(Message(body=b"b" * 60, properties={"KEYS": f"k{number}"}, store_timestamp=EPOCH + 5000 * number))
    files = [file(int(path.name), path.read_bytes(), SEGMENT) for path in sorted(folder.iterdir())]
    return files, writer.puts


def changed(segments: list[StoreFile], offset: int, data: bytes) -> list[StoreFile]:
    """The segments with other bytes at an offset of the log."""
    number, at = divmod(offset, SEGMENT)
    whole = bytearray(segments[number].data.tobytes())
    whole[at : at + len(data)] = data
    return [*segments[:number], file(segments[number].start, bytes(whole), SEGMENT), *segments[number + 1 :]]


def units(puts: list[Put]) -> bytes:
    """The units of a queue's records."""
    return b"".join(struct.pack(">qiq", put.offset, put.size, 0) for put in puts)


def queue(data: bytes, topic: str = "TopicA", number: int = 0) -> QueueFolder:
    """A queue from offset 0 on."""
    starts = range(0, max(1, len(data)), QUEUE_FILE)
    return QueueFolder(topic, number, [file(start, data[start : start + QUEUE_FILE], QUEUE_FILE) for start in starts])


def checkpoint(physic: int = 0, logics: int = 0, index: int = 0, logics_offset: int = 0) -> bytes:
    """The file of 4,096 bytes."""
    return struct.pack(">6q", physic, logics, index, 0, 0, logics_offset).ljust(4096, b"\0")


def start(store: Store, release: str, *, abnormal: bool = False, count_limit: int = 1 << 30, **more: object) -> Prediction:
    """What a start does, under small sizes."""
    settings = StartSettings(
        release, abnormal, segment_size=SEGMENT, cq_file_size=QUEUE_FILE, hash_slots=10, index_items=1000,
    )  # fmt: skip
    return predict(store, replace(settings, **more), count_limit)  # type: ignore[arg-type]
