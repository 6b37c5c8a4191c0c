"""Parts of an object that are sent for before they are read: the same bytes, few requests, errors where they are read."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
from pyarrow import fs

from rocketmq_reindex.files import reading
from rocketmq_reindex.files.reading import PartsAhead, read_parts

PART = 1000
SIZE = 50_500


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PART_BYTES", PART)


class Object:
    """An open file that counts its requests, and refuses those that reach a byte of ``bad``."""

    def __init__(self, path: Path) -> None:
        self._file = fs.LocalFileSystem().open_input_file(str(path))
        self.asked: list[tuple[int, int]] = []
        self.bad: set[int] = set()
        self.closed = False
        self._lock = threading.Lock()

    def read_at(self, count: int, at: int) -> bytes:
        assert not self.closed
        with self._lock:
            self.asked.append((at, count))
        if any(at <= bad < at + count for bad in self.bad):
            raise OSError("no answer")
        return bytes(self._file.read_at(count, at))


@pytest.fixture
def raw(tmp_path: Path, seed: int) -> bytes:
    data = random.Random(seed).randbytes(SIZE)
    (tmp_path / "object").write_bytes(data)
    return data


@pytest.fixture
def thing(tmp_path: Path, raw: bytes) -> Object:
    assert raw
    return Object(tmp_path / "object")


def read(ahead: PartsAhead, file: Object, at: int, count: int) -> bytes:
    """As a ``files.Reader`` does."""
    out = bytearray(count)
    view, place = memoryview(out), at
    while len(view):
        got = ahead.read(place, view) or read_parts(file, place, view)
        if not got:
            raise EOFError
        view, place = view[got:], place + got
    ahead.expect(at + count, count)
    return bytes(out)


def test_chunks_in_order_are_each_read_once(thing: Object, raw: bytes, seed: int) -> None:
    """As a scan reads: a chunk less what is left of the one before."""
    rng, ahead, at = random.Random(seed), PartsAhead(thing, SIZE), 0
    while at < SIZE:
        count = min(4 * PART - rng.randrange(300), SIZE - at)
        assert read(ahead, thing, at, count) == raw[at : at + count]
        at += count
    ahead.close()
    assert sum(count for _, count in thing.asked) == SIZE
    assert len(thing.asked) <= SIZE // PART + 6


def test_whatever_is_read_where(thing: Object, raw: bytes, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(30):
        ahead, at = PartsAhead(thing, rng.randrange(SIZE)), rng.randrange(SIZE // 2)
        for _ in range(20):
            count = rng.choice([1, 30, PART - 1, PART, 3 * PART + 7, 6 * PART])
            count = min(count, SIZE - at)
            assert read(ahead, thing, at, count) == raw[at : at + count]
            at = rng.choice([at + count, at + count, at + count // 2, rng.randrange(SIZE)])
            at = min(at, SIZE - 1)
        ahead.close()


def test_no_more_than_one_chunk_and_nothing_behind_the_end_is_sent_for(thing: Object) -> None:
    ahead = PartsAhead(thing, 6 * PART + 10)
    read(ahead, thing, 0, 3 * PART)
    ahead.close()
    assert max(at + count for at, count in thing.asked) <= 6 * PART
    read(ahead, thing, 3 * PART, 3 * PART)
    ahead.close()
    thing.closed = True
    assert max(at + count for at, count in thing.asked) <= 6 * PART + 10


def test_short_reads_send_for_nothing(thing: Object) -> None:
    ahead = PartsAhead(thing, SIZE)
    for at in range(0, 5000, 100):
        read(ahead, thing, at, 100)
    assert thing.asked == [(at, 100) for at in range(0, 5000, 100)]


def test_an_error_is_that_of_the_read(thing: Object, raw: bytes) -> None:
    """What was refused before it was wanted is asked for again, once it is."""
    ahead = PartsAhead(thing, SIZE)
    thing.bad = {5 * PART + 3}
    assert read(ahead, thing, 0, 4 * PART) == raw[: 4 * PART]
    with pytest.raises(OSError, match="no answer"):
        read(ahead, thing, 4 * PART, 4 * PART)
    thing.bad = set()
    assert read(ahead, thing, 4 * PART, 4 * PART) == raw[4 * PART : 8 * PART]
    ahead.close()


def test_a_file_that_ends_too_early(thing: Object, raw: bytes) -> None:
    ahead = PartsAhead(thing, SIZE + 5000)
    assert read(ahead, thing, SIZE - 3 * PART, 2 * PART) == raw[SIZE - 3 * PART : SIZE - PART]
    with pytest.raises(EOFError):
        read(ahead, thing, SIZE - PART, 2 * PART)
    ahead.close()


def test_a_reader_that_goes_back_is_sent_for_again(thing: Object, raw: bytes) -> None:
    ahead = PartsAhead(thing, SIZE)
    for at in (20 * PART, 0):
        assert read(ahead, thing, at, 4 * PART) == raw[at : at + 4 * PART]
        assert ahead.read(at + 4 * PART, memoryview(bytearray(4 * PART))) == 4 * PART
    ahead.close()
