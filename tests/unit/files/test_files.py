"""The thin layer over files: whole files or none, holes, attempts that do not meet."""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest

from rocketmq_reindex import files
from rocketmq_reindex.files import reading
from rocketmq_reindex.storage_format.errors import InputError
from tests.tools.faulty_disk import unsent_pages


@pytest.fixture
def aside(tmp_path: Path) -> str:
    (tmp_path / "aside").mkdir()
    return str(tmp_path / "aside")


def test_nothing_is_seen_before_the_end(tmp_path: Path, aside: str) -> None:
    target = tmp_path / "file"
    with files.writing(aside, str(target)) as writer:
        writer.append(b"one ")
        writer.append(memoryview(b"two "))
        writer.append(np.array([0x33], ">u4"))
        assert not target.exists()
        writer.finish()
    assert target.read_bytes() == b"one two \0\0\0\x33"
    assert (writer.written, os.listdir(aside)) == (12, [])


def test_holes_are_zeros_and_cost_no_disk(tmp_path: Path, aside: str) -> None:
    target = tmp_path / "file"
    with files.writing(aside, str(target)) as writer:
        writer.append(b"head")
        writer.write_at(1 << 20, b"middle")
        writer.write_at((1 << 20) + 6, b"!")
        writer.finish(64 << 20)
    data = target.read_bytes()
    assert len(data) == 64 << 20
    assert (data[:4], data[1 << 20 : (1 << 20) + 7]) == (b"head", b"middle!")
    assert data.count(0) == len(data) - 11
    assert writer.written == 11
    if hasattr(os, "SEEK_HOLE"):
        assert target.stat().st_blocks * 512 < 1 << 20


def test_a_file_that_will_be_synced_is_on_its_way_when_it_is_whole() -> None:
    """Whatever the sizes of its pieces; its bytes are the same. On a disk: what lies in memory goes nowhere."""
    data = np.random.default_rng(7).integers(0, 256, (20 << 20) + 123, np.uint8)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        for piece in (1 << 16, 9 << 20, len(data)):
            for soon in (True, False):
                target = folder / f"{piece}-{soon}"
                with files.writing(name, str(target), soon=soon) as writer:
                    for low in range(0, len(data), piece):
                        writer.append(data[low : low + piece])
                    writer.finish(len(data) + 5)
                unsent = unsent_pages(target)
                assert target.read_bytes() == data.tobytes() + bytes(5)
                if unsent is not None and soon:
                    assert unsent <= 256, (piece, unsent)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, OSError])
def test_a_body_that_raises_leaves_nothing(tmp_path: Path, aside: str, error: type[BaseException]) -> None:
    target = tmp_path / "file"
    target.write_bytes(b"old")
    with pytest.raises(error), files.writing(aside, str(target)) as writer:  # noqa: PT012
        writer.append(b"half of it")
        raise error
    assert (target.read_bytes(), os.listdir(aside)) == (b"old", [])


def test_an_abandoned_file_leaves_nothing(tmp_path: Path, aside: str) -> None:
    with files.writing(aside, str(tmp_path / "file")) as writer:
        writer.append(b"x")
        writer.abandon()
    assert (os.listdir(aside), sorted(os.listdir(tmp_path))) == ([], ["aside"])


def test_attempts_of_one_task_never_meet(tmp_path: Path, aside: str) -> None:
    """Two attempts write the same bytes at the same time: whichever ends last leaves a whole file."""
    target, parts = tmp_path / "file", [bytes([k]) * 1000 for k in range(50)]
    first, second = files.Writer(aside, str(target)), files.Writer(aside, str(target))
    for part in parts:
        first.append(part)
        second.append(part)
    assert len(os.listdir(aside)) == 2
    second.finish()
    assert target.read_bytes() == b"".join(parts)
    inode = target.stat().st_ino
    first.finish()
    assert target.read_bytes() == b"".join(parts)
    assert target.stat().st_ino != inode
    assert os.listdir(aside) == []


def test_many_at_once(tmp_path: Path, aside: str) -> None:
    def work(number: int) -> None:
        for k in range(20):
            files.write_bytes(aside, str(tmp_path / f"{k}"), [b"%d" % k, b"\n"])
        files.make_folder(str(tmp_path / "folder" / str(number % 2)))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {(tmp_path / f"{k}").read_bytes() for k in range(20)} == {b"%d\n" % k for k in range(20)}
    assert os.listdir(aside) == []


def test_reading_ranges(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(bytes(range(200)))
    with files.Reader(str(path)) as reader:
        assert reader.read(10, 5) == bytes(range(10, 15))
        out = np.zeros(200, np.uint8)
        reader.read_into(0, out)
        assert out.tobytes() == bytes(range(200))
        reader.read_into(150, out[:50])
        assert out[:2].tolist() == [150, 151]
        assert reader.read(200, 0) == b""
        with pytest.raises(InputError, match="ends at byte 200, shorter than when the run began: input changed"):
            reader.read(150, 51)


def test_what_stands_at_a_path(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"four")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("file")
    found = {entry.name: entry for entry in files.listing(str(tmp_path))}
    assert {name: entry.kind for name, entry in found.items()} == {
        "fifo": files.OTHER, "file": files.FILE, "folder": files.FOLDER, "link": files.FILE,
    }  # fmt: skip
    assert (found["file"].size, found["link"].size) == (4, 4)
    assert found["file"].modified == (tmp_path / "file").stat().st_mtime_ns
    assert found["file"] == files.entry_of(str(tmp_path / "file"))
    assert files.entry_of(str(tmp_path / "none")).kind == files.ABSENT


def test_a_link_that_leads_nowhere_is_listed(tmp_path: Path) -> None:
    """Else a segment on a disk that is not mounted would be missing without a word."""
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    (tmp_path / "round").symlink_to(tmp_path / "round")
    assert [(entry.name, entry.kind) for entry in files.listing(str(tmp_path))] == [
        ("gone", files.ABSENT),
        ("round", files.ABSENT),
    ]


def test_odd_names_are_names(tmp_path: Path) -> None:
    """Neither a URI nor a pattern: a path is taken as it is."""
    for name in ("a b", "a%20b", "é😀", "*", "#x", "a:b", "..."):
        files.make_folder(str(tmp_path / name))
        files.write_bytes(str(tmp_path), str(tmp_path / name / "f"), [name.encode()])
        assert files.read_bytes(str(tmp_path / name / "f")) == name.encode()
    assert {entry.name for entry in files.listing(str(tmp_path))} == {"a b", "a%20b", "é😀", "*", "#x", "a:b", "..."}


def test_removing(tmp_path: Path) -> None:
    (tmp_path / "keep").mkdir()
    (tmp_path / "keep" / "file").write_bytes(b"")
    (tmp_path / "tree" / "deep").mkdir(parents=True)
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "keep")
    (tmp_path / "link").symlink_to(tmp_path / "keep")
    (tmp_path / "file").write_bytes(b"")
    for name in ("tree", "link", "file", "none"):
        files.remove_tree(str(tmp_path / name))
    assert os.listdir(tmp_path) == ["keep"]
    assert os.listdir(tmp_path / "keep") == ["file"]


def test_durable_and_free(tmp_path: Path) -> None:
    files.sync(str(tmp_path))
    free = files.free_bytes(str(tmp_path))
    assert free is not None
    assert free > 0


def test_a_handle_for_sync_ends_with_its_owner(tmp_path: Path) -> None:
    owner = threading.Event()
    handle = files.handle_for_sync(str(tmp_path), owner)
    files.sync(str(tmp_path), handle)
    assert os.path.samestat(os.fstat(handle), tmp_path.stat())
    del owner
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(handle)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1 << 16])
def test_lines(tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_LINES_BYTES", size)
    path = tmp_path / "lines"
    for lines in ([], [b""], [b"one"], [b"one", b"", b"three of them", b"x"]):
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        assert list(files.lines(str(path))) == lines


def test_names(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / name).touch()
    assert sorted(files.names(str(tmp_path))) == sorted(files.names(tmp_path.as_uri())) == ["a", "b"]


def test_a_hard_link_is_the_same_file(tmp_path: Path) -> None:
    """It tells whether there is one now: where there is none, the caller copies."""
    old, new, other = tmp_path / "old", tmp_path / "new", tmp_path / "other"
    old.write_bytes(b"old")
    assert files.link(str(old), str(new))
    assert os.path.samefile(old, new)
    other.write_bytes(b"other")
    assert files.link(str(old), str(other))
    assert other.read_bytes() == b"other"
    assert not files.link(str(tmp_path / "none"), str(tmp_path / "x"))
    assert not (tmp_path / "x").exists()


def test_a_clone_is_a_file_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the file system shares no bytes, nothing is left. Where it does, one with the mode of the old one is there."""
    old, new, temporary = tmp_path / "old", tmp_path / "new", tmp_path / "temporary"
    old.write_bytes(b"old")
    temporary.mkdir()
    for given, shares in ((OSError(errno.EOPNOTSUPP, "no"), False), (None, True)):

        def ioctl(*_: object, error: OSError | None = given) -> None:
            if error:
                raise error

        monkeypatch.setattr(fcntl, "ioctl", ioctl)
        assert files.clone(str(old), str(temporary), str(new)) == new.exists() == shares
        assert os.listdir(temporary) == []
    assert not os.path.samefile(old, new)
