"""A broker that runs on a store is noticed by its lock: build refuses, verify says so; looking never takes the lock away."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.jobs.building import store_signs
from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.cli import main
from rocketmq_reindex.jobs.store.owner import holder
from tests.fault.disk import state, tiny_store
from tests.tools.local_engine import InlineEngine, local_build
from tests.tools.local_verify import local_verify

ROOT = Path(__file__).resolve().parents[2]
SIZES: dict[str, Any] = {"cq_file_size": 400, "hash_slots": 7, "index_items": 40}
TAKES = """
import fcntl, sys
refused = 0
for _ in range(3000):
    with open(sys.argv[1], "r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
        except OSError:
            refused += 1
print(refused)
"""
"""Takes a store's lock as a broker does, again and again."""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    store = tiny_store(tmp_path / "store")
    assert local_build(store, tmp_path / "built", None, **SIZES).exit == 0
    for part in ("consumequeue", "index", "checkpoint"):
        (tmp_path / "built" / part).rename(store / part)
    (store / "lock").write_bytes(b"lock")
    return store


@pytest.fixture
def broker(store: Path) -> Iterator[subprocess.Popen[str]]:
    """The real FileChannel.tryLock, as DefaultMessageStore calls it."""
    java = f"{(ROOT / '.java-home').read_text().strip()}/bin/java"
    words = [java, str(Path(__file__).with_name("HoldLock.java")), str(store / "lock")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "true\n"
        yield process
        process.kill()


def test_a_running_broker(
    store: Path, broker: subprocess.Popen[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, before = tmp_path / "out", state(store)
    told = f"{store}: a broker runs on this store (process {broker.pid} holds lock)"
    for more in ({}, {"commitlogs": (str(store / "commitlog"),)}, {"only": ("checkpoint",)}):
        summary = local_build("" if "commitlogs" in more else store, out, None, **(SIZES | more))
        assert (summary.exit, str(summary.error).startswith(f"{told}: ")) == (1, True)
        assert "--snapshot" in str(summary.error)
    # Before Spark starts.
    assert main(["build", str(store), "--out", str(out), "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert (said["error"], said["seconds"]["session"]) == (summary.error, 0.0)
    assert not out.exists()
    dry = local_build(store, out, None, dry_run=True, **SIZES)
    assert (dry.exit, [text.startswith(told) for text in dry.warnings]) == (0, [True])
    # Two of the notes of a verify are of sizes.
    verified = local_verify(store, None, **SIZES)
    assert (verified.exit, verified.notes[0].startswith(told)) == (0, True)
    verified = local_verify(tmp_path / "built", None, commitlogs=(str(store / "commitlog"),), **SIZES)
    assert verified.notes[0].startswith(told)
    assert not any("broker" in note for note in local_verify(store, None, snapshot=True, **SIZES).notes)
    assert local_build(store, out, None, snapshot=True, **SIZES).exit == 0
    # The broker has its lock still, and nobody else gets it.
    with (store / "lock").open("r+b") as file, pytest.raises(BlockingIOError):
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
    assert state(store) == before
    broker.kill()
    broker.wait()
    assert local_build(store, tmp_path / "after", None, **SIZES).warnings == []


def test_one_that_starts_meanwhile(store: Path, tmp_path: Path) -> None:
    """It is looked for again before anything is published."""

    class Starts(InlineEngine):
        def forget(self) -> None:
            super().forget()

        def collect(self, kind: int, left_out: list[int]) -> list[bytes]:
            self.holds = subprocess.Popen(
                [sys.executable, "-c", HOLDS, str(store / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            assert self.holds.stdout is not None
            self.holds.stdout.readline()
            return super().collect(kind, left_out)

    engine = Starts()
    summary = local_build(store, tmp_path / "out", engine, **SIZES)
    engine.holds.kill()
    engine.holds.communicate()
    assert (summary.exit, "a broker runs on this store" in str(summary.error)) == (1, True)
    assert not (tmp_path / "out").exists()


HOLDS = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
print("held", flush=True)
sys.stdin.read()
"""


def test_looking_keeps_no_broker_from_starting(store: Path) -> None:
    """Another process takes the lock and gives it back, thousands of times, while it is looked at without a pause."""
    words = [sys.executable, "-c", TAKES, str(store / "lock")]
    looks = 0
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            holder(str(store))
            looks += 1
        assert process.stdout is not None
        assert (process.stdout.read(), looks > 100) == ("0\n", True)


def test_no_lock_is_made(store: Path, tmp_path: Path) -> None:
    (store / "lock").unlink()
    before = state(store)
    assert holder(str(store)) is None
    assert local_build(store, tmp_path / "out", None, **SIZES).warnings == []
    assert local_verify(store, None, **SIZES).exit == 0
    assert state(store) == before


@pytest.mark.parametrize("kind", ["folder", "fifo", "link to nowhere", "unreadable"])
def test_a_lock_that_cannot_be_looked_at(kind: str, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is said, and keeps nobody from building."""
    lock = store / "lock"
    lock.unlink()
    if kind == "folder":
        lock.mkdir()
    elif kind == "fifo":
        os.mkfifo(lock)
    elif kind == "link to nowhere":
        lock.symlink_to(store / "nowhere")
    else:

        def refuse(path: str) -> int:
            raise PermissionError(13, "Permission denied", path)

        monkeypatch.setattr("rocketmq_reindex.jobs.store.owner.open_regular", refuse)
    summary = local_build(store, tmp_path / "out", None, **SIZES)
    verified = local_verify(store, None, **SIZES)
    assert (summary.exit, verified.exit) == (0, 0)
    told = [f"{lock}: {why}: whether a broker runs there is not known" for why in ("is no regular file", "Permission denied")]
    # A link to nowhere is no lock: a broker would make the file.
    expected = [] if kind == "link to nowhere" else [told[kind == "unreadable"]]
    assert (summary.warnings, [note for note in verified.notes if "lock" in note]) == (expected, expected)


def test_where_it_is_looked_for(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """STORE, and what lies around a log and looks like a store; not where a broker.conf says the live one is."""
    seen: list[str] = []

    def look(place: str) -> None:
        seen.append(place)

    monkeypatch.setattr(store_signs, "holder", look)
    for name in ("plain/log", "broken/log", "linked"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / "plain" / "log").mkdir()
    (tmp_path / "broken" / "log").mkdir()
    (tmp_path / "broken" / "index").mkdir()
    (tmp_path / "linked").symlink_to(store / "commitlog")
    for given, expected in (
        ({"store": str(store)}, ["store"]),
        ({"store": "", "commitlogs": (f"{store}/commitlog/",)}, ["store"]),
        ({"store": "", "commitlogs": (f"{tmp_path}/plain/log",)}, []),
        ({"store": "", "commitlogs": (f"{tmp_path}/broken/log", f"{tmp_path}/linked")}, ["broken", "store"]),
        ({"store": "s3://bucket/store", "commitlogs": ("s3://bucket/store/commitlog",)}, []),
        ({"store": str(store), "protected": (str(tmp_path / "live"),)}, ["store"]),
    ):
        seen.clear()
        settings = BuildSettings(out="out", **given)
        assert store_signs.brokers(settings) == ([], [])
        assert seen == [str(tmp_path / name) for name in expected]
