"""Repairs whose store, replica and DIR lie behind URIs, in a folder that may only be read, and in several folders.

The new log is always the one that the same damage gives on a disk.
"""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketmq_reindex import files
from rocketmq_reindex.jobs.commands import fetch
from rocketmq_reindex.jobs.repairing.options import explain
from tests.fault.disk import SEGMENT, state, tree
from tests.fault.repairs import damaged_store
from tests.stores.whole import published
from tests.tools.encode import Message
from tests.tools.faulty_runs import command
from tests.tools.log_writer import LogWriter
from tests.tools.tiers import ends
from tests.tools.upload import upload


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return damaged_store(tmp_path / "store")


@pytest.fixture
def truth(store: Path, tmp_path: Path) -> dict[str, bytes]:
    """What the repair gives on a disk, without the manifest."""
    return repaired(str(store), str(tmp_path / "truth"), "--replica", str(store / "backup"))


def repaired(store: str, out: str, *words: str) -> dict[str, bytes]:
    summary, said = command(store, out, *words, name="repair")
    assert summary["exit"] == 3, said
    folder = published(out) if files.no_rename(out) else out
    return read_all(folder)


def read_all(folder: str) -> dict[str, bytes]:
    """All files below a folder but the manifest, by path; IndexFiles by their number, as their names are those of attempts."""
    found: dict[str, bytes] = {}
    waiting = [""]
    while waiting:
        at = waiting.pop()
        for entry in files.listing(files.join(folder, at) if at else folder):
            name = f"{at}/{entry.name}" if at else entry.name
            if entry.kind == files.FOLDER:
                waiting.append(name)
            elif name != "reindex.json":
                key = f"index/{entry.name.partition('-')[0]}" if at == "index" and "-" in entry.name else name
                found[key] = files.read_bytes(entry.path)
    return found


def log_of(found: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in found.items() if name.startswith(("commitlog/", "quarantine/", "consumequeue/"))}


@pytest.mark.parametrize("link", ends(["reflink", "hard", "none"]))
def test_in_a_bucket(link: str, store: Path, truth: dict[str, bytes], s3_place: str, tmp_path: Path) -> None:
    there, aside, out = (files.join(s3_place, name) for name in ("store", "aside", "out"))
    upload(store, there, aside)
    found = repaired(there, out, "--replica", files.join(there, "backup"), "--link", link)
    assert log_of(found) == log_of(truth)
    assert {len(data) for name, data in found.items() if name.startswith("commitlog/")} == {SEGMENT}
    assert len(found) == len(truth)
    assert "from a replica" in list(explain(out))[-1]
    assert files.names(files.join(out, "work")) == []
    # Neither a second repair nor a build replaces it.
    for name, words in (("repair", ()), ("build", ("--overwrite", "--on-damage", "salvage"))):
        summary, _ = command(there, out, *words, name=name)
        assert summary["exit"] == 1
        assert "holds a repaired log, which nothing replaces" in summary["error"]
    assert log_of(read_all(published(out))) == log_of(truth)
    # What is derived is laid out beside a log that somebody put in place.
    (tmp_path / "broker" / "commitlog").mkdir(parents=True)
    assert fetch([out, "--to", str(tmp_path / "broker")]) == 0
    laid = tree(tmp_path / "broker") or {}
    assert {name: data for name, data in truth.items() if not name.startswith(("commitlog/", "quarantine/"))} == {
        name: data for name, data in laid.items() if data and name != ".rmq-reindex-fetched"
    }
    assert os.listdir(tmp_path / "broker" / "commitlog") == []


def test_file_uris(store: Path, truth: dict[str, bytes], tmp_path: Path) -> None:
    out = (tmp_path / "out").as_uri()
    found = repaired(store.as_uri(), out, "--replica", (store / "backup").as_uri(), "--link", "hard")
    assert log_of(found) == log_of(truth)
    assert len(found) == len(truth)


def test_several_folders(store: Path, truth: dict[str, bytes], tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for segment in sorted((store / "commitlog").iterdir())[2:]:
        shutil.move(segment, other)
    roots = ("--commitlog", str(store / "commitlog"), "--commitlog", str(other))
    for link in ("hard", "none"):
        words = ("--replica", str(store / "backup"), "--link", link)
        assert repaired(str(store), str(tmp_path / link), *roots, *words) == truth


@pytest.mark.parametrize("size", ["300", "1000", "1500"])
def test_any_range_size(size: str, store: Path, truth: dict[str, bytes], tmp_path: Path) -> None:
    words = ("--replica", str(store / "backup"), "--range-size", size)
    assert repaired(str(store), str(tmp_path / "out"), *words) == truth


def same(_backup: Path) -> None:
    """A replica of the same log."""


def lies(backup: Path) -> None:
    """Other bytes, in a chain that is as good: nobody can tell."""
    path = backup / f"{2 * SEGMENT:020d}"
    data = bytearray(path.read_bytes())
    # No CRC of a broker covers keys, unless it is told to.
    data[data.index(b"KEYS") + 5] ^= 1
    path.write_bytes(data)


def of_another_log(backup: Path) -> None:
    """Sound records, but another one beside the damage."""
    path = backup / f"{3 * SEGMENT:020d}"
    data = bytearray(path.read_bytes())
    at, body = data.index(b"body"), b"else"
    data[at : at + 4], data[8:12] = body, (zlib.crc32(body) & 0x7FFFFFFF).to_bytes(4, "big")
    path.write_bytes(data)


def is_damaged(backup: Path) -> None:
    path = backup / f"{2 * SEGMENT:020d}"
    data = bytearray(path.read_bytes())
    data[data.index(b"body")] ^= 1
    path.write_bytes(data)


def is_shorter(backup: Path) -> None:
    os.truncate(backup / f"{2 * SEGMENT:020d}", SEGMENT - 1)


def begins_later(backup: Path) -> None:
    (backup / f"{2 * SEGMENT:020d}").rename(backup / f"{2 * SEGMENT + 100:020d}")


def is_a_folder(backup: Path) -> None:
    path = backup / f"{2 * SEGMENT:020d}"
    path.unlink()
    path.mkdir()


def is_a_fifo(backup: Path) -> None:
    path = backup / f"{2 * SEGMENT:020d}"
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("spoil", "taken"),
    [(same, True), (lies, True), (of_another_log, False), (is_damaged, False), (is_shorter, False), (begins_later, False),
     (is_a_folder, False), (is_a_fifo, False)],
)  # fmt: skip
def test_what_is_taken_from_a_replica(spoil: Callable[[Path], None], taken: bool, store: Path, tmp_path: Path) -> None:
    spoil(store / "backup")
    # The first one has the same damage.
    copied = shutil.copytree(store / "commitlog", tmp_path / "copied")
    words = ("--replica", str(copied), "--replica", str(store / "backup"))
    summary, said = command(store, tmp_path / "out", *words, name="repair")
    assert [entry["how"] for entry in summary["repair"]["ranges"]] == ["filler", "replica" if taken else "filler", "filler"], (
        said
    )
    assert [entry["replica"] for entry in summary["repair"]["ranges"]] == [None, 2 if taken else None, None]


def test_segments_of_another_size_are_refused(store: Path, tmp_path: Path) -> None:
    shutil.rmtree(store / "backup")
    (store / "backup").mkdir()
    (store / "backup" / f"{0:020d}").write_bytes(bytes(2 * SEGMENT))
    summary, said = command(store, tmp_path / "out", "--replica", str(store / "backup"), name="repair")
    assert summary["exit"] == 1
    assert f"holds no segment of at most {SEGMENT:,} bytes" in said
    assert not (tmp_path / "out").exists()


def test_a_store_that_may_only_be_read(store: Path, truth: dict[str, bytes], tmp_path: Path) -> None:
    for path in sorted(store.rglob("*"), reverse=True):
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = state(store)
    for link in ("hard", "none"):
        assert repaired(str(store), str(tmp_path / link), "--replica", str(store / "backup"), "--link", link) == truth
    assert state(store) == before
    for path in store.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


@pytest.mark.parametrize("size", ["5000", "7777", "16384", "20000"])
def test_damage_over_several_ranges(size: str, tmp_path: Path) -> None:
    """A range that was scanned again for its first record begins behind the end of the range before."""
    log = tmp_path / "store" / "commitlog"
    with LogWriter(log, 1 << 16) as writer:
        for number in range(300):
            writer.append(Message(body=bytes(500), properties={"KEYS": f"a{number}"}))
    for put in writer.puts[110:190]:
        segment = log / f"{put.offset >> 16 << 16:020d}"
        data = bytearray(segment.read_bytes())
        data[put.offset % (1 << 16) + 100] ^= 1
        segment.write_bytes(data)
    found = []
    for words in (("--range-size", size), ("--range-size", str(1 << 20))):
        out = tmp_path / f"out-{words[1]}"
        summary, said = command(tmp_path / "store", out, *words, name="repair")
        assert summary["exit"] == 3, said
        found.append((summary["records"], summary["units"], summary["items"], read_all(str(out))))
    assert found[0] == found[1]
