"""Loading ahead of a reader: the same bytes, in the page cache before they are asked for, and let go where that is wished."""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from pathlib import Path

import pytest

from rocketmq_reindex import files
from rocketmq_reindex.files import entries
from rocketmq_reindex.storage_format.errors import InputError

KIB = 1 << 10
SIZE = 8192 * KIB
VIEW = 256 * KIB


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "AHEAD_BYTES", 1024 * KIB)
    monkeypatch.setattr(entries, "PIECE_BYTES", 512 * KIB)
    monkeypatch.setattr(entries, "_STEP_BYTES", 128 * KIB)


@pytest.fixture
def path(tmp_path: Path, seed: int) -> str:
    """A file of SIZE bytes on the disk, none of which is in the page cache."""
    made = tmp_path / "segment"
    made.write_bytes(random.Random(seed).randbytes(SIZE))
    drop(str(made))
    return str(made)


def drop(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(handle)


def cached(path: str, low: int, high: int) -> float:
    """The share of the pages of [low, high) that are in the page cache, of one in sixteen of them, the last one first."""
    handle = os.open(path, os.O_RDONLY)
    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_RANDOM)
    found = []
    for at in range(high - 1, low - 1, -16 * 4 * KIB):
        with contextlib.suppress(BlockingIOError):
            found.append(os.preadv(handle, [bytearray(1)], at, os.RWF_NOWAIT))
            continue
        found.append(0)
    os.close(handle)
    return sum(found) / len(found)


def drops(path: str) -> bool:
    """Whether the file system of the tests can drop pages: a tmpfs cannot."""
    with open(path, "rb") as file:
        file.read(1)
    drop(path)
    try:
        return cached(path, 0, 1) < 1
    except OSError:
        # It does not say what is cached.
        return False


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "read-ahead"]


def test_the_same_bytes(path: str) -> None:
    raw = Path(path).read_bytes()
    drop(path)
    with files.Reader(path) as reader:
        reader.read_ahead(SIZE)
        at = 0
        while at < SIZE:
            count = min(VIEW, SIZE - at)
            view = reader.view(at, count)
            assert view is None or view.tobytes() == raw[at : at + count]
            at += count - 100 if at + count < SIZE else count
    assert threads() == []


def test_it_loads_further_than_it_was_asked_for_and_not_all(path: str) -> None:
    known = drops(path)
    with files.Reader(path) as reader:
        reader.read_ahead(SIZE)
        assert reader.view(0, VIEW) is not None
        end = time.monotonic() + 30
        while known and cached(path, VIEW, VIEW + 1024 * KIB) < 1 and time.monotonic() < end:
            assert threads() == ["read-ahead"]
            time.sleep(0.05)
        if known:
            assert cached(path, VIEW, VIEW + 1024 * KIB) == 1


def test_what_it_loaded_is_let_go_and_what_was_there_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces longer than what the system itself reads ahead, as they are."""
    path, size, step = str(tmp_path / "long"), 192 << 20, 16 << 20
    Path(path).touch()
    os.truncate(path, size)
    monkeypatch.undo()
    known = drops(path)
    with files.Reader(path) as reader:
        reader.read(0, entries.PIECE_BYTES)
    with files.Reader(path) as reader:
        reader.read_ahead(size, let_go=True)
        for at in range(0, size, step):
            assert reader.view(at, step) is not None
    if known:
        assert cached(path, 0, entries.PIECE_BYTES) == 1
        assert cached(path, 2 * entries.PIECE_BYTES, size) < 0.4


def test_without_that_it_stays(path: str) -> None:
    known = drops(path)
    with files.Reader(path) as reader:
        reader.read_ahead(SIZE)
        for at in range(0, SIZE, VIEW):
            assert reader.view(at, VIEW) is not None
    if known:
        assert cached(path, 0, SIZE) == 1


def test_a_file_read_by_one_view_takes_no_thread(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(*_: object, **__: object) -> threading.Thread:
        raise AssertionError("a thread was made")

    monkeypatch.setattr(threading, "Thread", no_thread)
    with files.Reader(path) as reader:
        reader.read_ahead(SIZE)
        assert reader.view(0, SIZE) is not None


def test_without_a_thread_it_is_read_all_the_same(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = Path(path).read_bytes()

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with files.Reader(path) as reader:
        reader.read_ahead(SIZE)
        for at in range(0, SIZE, VIEW):
            view = reader.view(at, VIEW)
            assert view is not None
            assert view.tobytes() == raw[at : at + VIEW]


def test_a_file_that_becomes_shorter_is_an_error_and_no_wait(path: str) -> None:
    with files.Reader(path) as reader:
        reader.read_ahead(SIZE)
        assert reader.view(0, VIEW) is not None
        os.truncate(path, VIEW)
        assert reader.view(VIEW, VIEW) is None
        assert reader.view(SIZE - VIEW, VIEW) is None
        with pytest.raises(InputError, match="input changed"):
            reader.read(VIEW, 10)
    assert threads() == []


def test_what_cannot_be_loaded_ahead_is_read_all_the_same(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = Path(path).read_bytes()
    drop(path)

    def refuse(*_: int) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "sendfile", refuse)
    with files.Reader(path) as reader:
        reader.read_ahead(SIZE)
        for at in range(0, SIZE, VIEW):
            view = reader.view(at, VIEW)
            assert view is not None
            assert view.tobytes() == raw[at : at + VIEW]


def test_the_reader_may_stop_anywhere(path: str, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(10):
        drop(path)
        with files.Reader(path) as reader:
            reader.read_ahead(SIZE, let_go=rng.random() < 0.5)
            at = 0
            for _ in range(rng.randrange(4)):
                at += rng.randrange(VIEW)
                assert reader.view(at, VIEW) is not None
        assert threads() == []


def test_a_log_of_more_than_half_of_the_memory_outgrows_the_cache() -> None:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert not files.outgrows_cache(memory // 2)
    assert files.outgrows_cache(memory // 2 + 1)
