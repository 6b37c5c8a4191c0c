"""Large logs in seconds: records from one template, their numbers filled in by numpy. Good to the last CRC."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tests.tools.encode import EPOCH, MIN_BLANK, Message, blank, body_start, encode

Int64s = npt.NDArray[np.int64]
AT_QUEUE_ID, AT_QUEUE_OFFSET, AT_PLACE, AT_STORE_TIME = 12, 20, 28, 56
TOPIC_DIGITS, KEY_DIGITS = 6, 10
SPREAD = 2_654_435_761
"""Neighbouring records have keys far apart."""
_CHUNK = 1 << 16


def message_of(number: int, queue: int, queues_a_topic: int, body: int) -> Message:
    """Record ``number``, of queue ``queue``, as the plain encoder takes it: UNIQ_KEY and one key."""
    key = number * SPREAD % 10**KEY_DIGITS
    return Message(
        topic=f"topic-{queue // queues_a_topic:0{TOPIC_DIGITS}d}", queue_id=queue % queues_a_topic, body=b"x" * body,
        properties={"UNIQ_KEY": f"{key:0{KEY_DIGITS}d}", "KEYS": f"{number:0{KEY_DIGITS}d}", "TAGS": "TagA"},
        store_timestamp=EPOCH + number // 100,
    )  # fmt: skip


def write_log(folder: Path, queues: npt.NDArray[np.int32], queues_a_topic: int = 1, body: int = 60,
              segment_size: int = 1 << 30, sparse: bool = False) -> int:  # fmt: skip
    """A commitlog whose record i is of queue ``queues[i]`` (``message_of``); returns its bytes.

    ``sparse``: bodies are zeros that nothing is written of, so a log of long bodies takes little of the disk.
    """
    message = message_of(0, 0, queues_a_topic, body)
    if sparse:
        message = dataclasses.replace(message, body=bytes(body))
    template = np.frombuffer(encode(message, 0), np.uint8)
    size, start = len(template), body_start(message)
    if sparse:
        template = np.delete(template, np.s_[start : start + body])
    raw = template.tobytes()
    topic = start + (0 if sparse else body) + 1 + len("topic-")
    unique, key = raw.index(b"UNIQ_KEY\x01") + 9, raw.index(b"KEYS\x01") + 5
    fits = (segment_size - MIN_BLANK) // size
    offsets = _numbered(queues)
    folder.mkdir(parents=True)
    for low in range(0, len(queues), fits):
        high = min(low + fits, len(queues))
        base = low // fits * segment_size
        with (folder / f"{base:020d}").open("wb") as segment:
            for first in range(low, high, _CHUNK):
                number = np.arange(first, min(first + _CHUNK, high))
                queue = queues[number].astype(np.int64)
                records = np.tile(template, (len(number), 1))
                _put(records, AT_QUEUE_ID, queue % queues_a_topic, ">i4")
                _put(records, AT_QUEUE_OFFSET, offsets[number], ">i8")
                _put(records, AT_PLACE, base + (number - low) * size, ">i8")
                _put(records, AT_STORE_TIME, EPOCH + number // 100, ">i8")
                _digits(records, topic, queue // queues_a_topic, TOPIC_DIGITS)
                _digits(records, unique, number * SPREAD % 10**KEY_DIGITS, KEY_DIGITS)
                _digits(records, key, number, KEY_DIGITS)
                if sparse:
                    _put_around(segment.fileno(), records, start, (first - low) * size, size)
                else:
                    segment.write(records.data)
            if high < len(queues):
                segment.seek((high - low) * size)
                segment.write(blank(segment_size - (high - low) * size))
            segment.truncate(segment_size)
    return -(-len(queues) // fits) * segment_size


def _put_around(file: int, records: npt.NDArray[np.uint8], start: int, at: int, size: int) -> None:
    """Write records of ``size`` bytes from the byte ``at`` on, without their bodies, which would begin at ``start``."""
    view, width = memoryview(records.tobytes()), records.shape[1]
    for k in range(len(records)):
        low, place = k * width, at + k * size
        os.pwrite(file, view[low : low + start], place)
        os.pwrite(file, view[low + start : low + width], place + size - (width - start))


def _numbered(queues: npt.NDArray[np.int32]) -> Int64s:
    """The queue offset of each record: they count up from 0 in every queue."""
    order = np.argsort(queues, kind="stable")
    counts = np.bincount(queues)
    offsets = np.empty(len(queues), np.int64)
    offsets[order] = np.arange(len(queues)) - np.repeat(np.cumsum(counts) - counts, counts)
    return offsets


def _put(records: npt.NDArray[np.uint8], at: int, values: Int64s, kind: str) -> None:
    width = np.dtype(kind).itemsize
    records[:, at : at + width] = values.astype(kind).view(np.uint8).reshape(-1, width)


def _digits(records: npt.NDArray[np.uint8], at: int, values: Int64s, width: int) -> None:
    powers = 10 ** np.arange(width - 1, -1, -1)
    records[:, at : at + width] = values[:, None] // powers % 10 + ord("0")
