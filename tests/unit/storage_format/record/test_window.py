"""What a scan has in memory: the same bytes read or mapped, each told of once, and no buffer that grows for nothing."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import pytest

from rocketmq_reindex import files
from rocketmq_reindex.storage_format.record.window import Bytes, View, Window

SIZE = 100_000
CHUNK = 4096


class Log:
    """Bytes from absolute offset ``start`` on, and what a window told of them."""

    def __init__(self, seed: int) -> None:
        self.start = 7_000_000
        self.raw = np.frombuffer(random.Random(seed).randbytes(SIZE), np.uint8)
        self.told = bytearray()

    def read(self, at: int, out: Bytes) -> None:
        out[:] = self.raw[at - self.start : at - self.start + len(out)]

    def view(self, at: int, count: int) -> Bytes | None:
        part: Bytes = self.raw[at - self.start : at - self.start + count].copy()
        return part

    def seldom(self, at: int, count: int) -> Bytes | None:
        """A file of which only some parts can be mapped."""
        return self.view(at, count) if at // 1000 % 3 else None

    def seen(self, at: int, data: Bytes) -> None:
        """As ChunkDigests.feed: what has been told of before is passed over."""
        new = self.start + len(self.told) - at
        assert new >= 0, "bytes left out"
        self.told += data[new:].tobytes()


@pytest.mark.parametrize("kind", ["read", "view", "seldom"])
def test_walks_of_any_steps(kind: str, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(30):
        log, window = Log(seed), Window(CHUNK)
        view: View | None = None if kind == "read" else getattr(log, kind)
        window.open(log.start, log.start + SIZE, log.start + SIZE, log.read, view, log.seen)
        place, at = log.start, 0
        limit = log.start + rng.choice([SIZE, SIZE // 2])
        while place < log.start + SIZE:
            want = min(rng.choice([1, 30, 500, 3000, 9000]), log.start + SIZE - place)
            if at + want > window.filled:
                at = window.more(at, want, limit, rng.choice([0, CHUNK // 2]))
            assert window.base + at == place
            assert at + want <= window.filled <= len(window.data)
            inside = place - log.start
            assert (window.data[at : at + want] == log.raw[inside : inside + want]).all()
            step = rng.randrange(1, want + 1)
            at, place = at + step, place + step
            if place > limit and rng.random() < 0.2:
                window.pass_on(log.start + SIZE)
                break
        window.pass_on(log.start + SIZE)
        assert bytes(log.told) == log.raw.tobytes()
        window.close()
        assert window.filled == 0
        assert window.capacity == CHUNK


def test_views_of_a_file(tmp_path: Path, seed: int) -> None:
    path, rng = tmp_path / "segment", random.Random(seed)
    raw = rng.randbytes(50_000)
    path.write_bytes(raw)
    with files.Reader(str(path)) as reader:
        for _ in range(50):
            at = rng.randrange(len(raw))
            count = rng.randrange(1, len(raw) - at + 1)
            view = reader.view(at, count)
            assert view is None or view.tobytes() == raw[at : at + count]
        assert reader.view(0, 0) is None
        assert reader.view(len(raw) - 10, 20) is None, "more than there is"
        os.truncate(path, 100)
        assert reader.view(0, 40_000) is None, "an error that reading will tell of, and no signal"
