"""Logs like the race's, made in a moment without Java: one encoded record repeated, its varying fields put in by numpy."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from tests.tools.encode import EPOCH, MAGIC_BLANK, Message, body_start, encode

Bytes = npt.NDArray[np.uint8]
TOPICS: Final = 20
QUEUES: Final = 8
_HEAD: Final = np.dtype([
    ("size", ">i4"), ("magic", ">u4"), ("body_crc", ">u4"), ("queue_id", ">i4"), ("flag", ">i4"), ("queue_offset", ">i8"),
    ("place", ">i8"), ("sysflag", ">i4"), ("born_time", ">i8"), ("born_host", "V8"), ("store_time", ">i8"),
])  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """``body`` bytes a record; ``keys`` beside UNIQ_KEY."""

    body: int
    keys: int


KINDS: Final = {"orders": Kind(865, 1), "small": Kind(83, 2), "large": Kind(16_384, 1)}


def _digits(numbers: npt.NDArray[np.int64], width: int) -> Bytes:
    """Decimal digits as ASCII, a row a number."""
    powers = 10 ** np.arange(width - 1, -1, -1, dtype=np.int64)
    digits: Bytes = (numbers[:, None] // powers % 10 + ord("0")).astype(np.uint8)
    return digits


def _put(rows: Bytes, mark: bytes, digits: Bytes) -> None:
    """Write the digits where the first row has ``mark``, in every row."""
    at = rows[0].tobytes().index(mark)
    rows[:, at : at + digits.shape[1]] = digits


def synthetic_log(folder: Path, kind: str, size: int, seed: int) -> int:
    """Write ``folder``/commitlog, one segment of ``size`` bytes at most full of records; returns how many."""
    body, keys = KINDS[kind].body, KINDS[kind].keys
    marks = [chr(ord("a") + k) * 12 for k in range(keys)]
    properties = {"UNIQ_KEY": f"7F00000100002A9F{'U' * 16}", "KEYS": " ".join(marks)}
    model = Message(topic=f"{kind}-TT", body=bytes(body), properties=properties)
    record = np.frombuffer(encode(model, 0), np.uint8)
    random = np.random.default_rng(seed)
    count = (size - 8) // len(record)
    rows = np.tile(record, (count, 1))
    number = np.arange(count, dtype=np.int64)
    queue = random.integers(0, TOPICS * QUEUES, count)
    start = body_start(model)
    rows[:, start : start + body] = np.frombuffer(random.bytes(count * body), np.uint8).reshape(count, body)

    head = rows[:, : _HEAD.itemsize].copy().view(_HEAD)[:, 0]
    head["body_crc"] = [zlib.crc32(rows[k, start : start + body].data) & 0x7FFFFFFF for k in range(count)]
    head["queue_id"] = queue % QUEUES
    order = np.argsort(queue, kind="stable")
    edges = np.searchsorted(queue[order], np.arange(TOPICS * QUEUES))
    head["queue_offset"][order] = number - edges[queue[order]]
    head["place"] = number * len(record)
    head["store_time"] = EPOCH + number // 5
    rows[:, : _HEAD.itemsize] = head.view(np.uint8).reshape(count, _HEAD.itemsize)
    _put(rows, b"TT", _digits(queue // QUEUES, 2))
    _put(rows, b"U" * 16, _digits(number, 16))
    for k, mark in enumerate(marks):
        _put(rows, mark.encode(), _digits(number if k else random.integers(0, 1_000_000, count), 12))

    rest = size - rows.size
    filler = rest.to_bytes(4, "big") + MAGIC_BLANK.to_bytes(4, "big")
    (folder / "commitlog").mkdir(parents=True)
    with open(folder / "commitlog" / f"{0:020d}", "wb") as stream:
        stream.write(rows.data)
        stream.write(filler.ljust(rest, b"\0"))
    return count
