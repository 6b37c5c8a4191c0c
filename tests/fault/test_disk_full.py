"""A disk that is really full, a limit on file sizes, input that changes under the run, and two runs to one DIR."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fault.disk import Scene, tiny_store, tree
from tests.tools.encode import Message
from tests.tools.faulty_children import Children, children
from tests.tools.faulty_disk import namespace
from tests.tools.faulty_files import Fault
from tests.tools.faulty_processes import PATIENCE, ROOT
from tests.tools.faulty_runs import command_with
from tests.tools.log_writer import LogWriter


def wide_store(folder: Path) -> Path:
    """About 300 KB, with the units and items to match."""
    with LogWriter(folder / "commitlog", 1 << 17) as writer:
        for number in range(1200):
            keys = " ".join(f"k{number}-{k}" for k in range(8))
            writer.append(Message(queue_id=number % 20, body=b"body", properties={"KEYS": keys}))
    return folder


@pytest.fixture(scope="module")
def warm() -> Iterator[Children]:
    with children() as found:
        yield found


def test_a_full_disk(seed: int, warm: Children, tmp_path: Path) -> None:
    """Too small from the beginning, or filled by somebody else on the way; by a limit on files where none may be mounted."""
    store, disk = wide_store(tmp_path / "store"), tmp_path / "disk"
    disk.mkdir()
    words = namespace()
    if not words:
        assert warm.run_limited(20_000, store, disk / "out") == (1, f"{disk}: File too large")
        return
    asked = [*words, sys.executable, "-m", "tests.tools.faulty_disk", str(store), str(disk), str(seed)]
    done = subprocess.run(asked, stdout=subprocess.PIPE, text=True, cwd=ROOT, timeout=PATIENCE, check=True)
    whole, little, *filled = map(json.loads, done.stdout.splitlines())
    assert (whole["summary"]["exit"], whole["names"]) == (0, ["out"])
    assert "bytes where" in little["summary"]["error"]
    for found in (little, *filled):
        summary = found["summary"]
        if summary["exit"]:
            assert (summary["exit"], found["names"], found["left"]) == (1, [], 0)
            assert "bytes where" in summary["error"] or "No space left on device" in summary["error"], summary
        else:
            assert (found["manifest"], found["names"]) == (whole["manifest"], ["out"])
    assert len(filled) == 6
    assert any("No space left on device" in str(found["summary"]["error"]) for found in filled)


def test_a_limit_on_file_sizes(seed: int, warm: Children, tmp_path: Path) -> None:
    """RLIMIT_FSIZE: the bytes are those of a build without, or there are none."""
    scene = Scene(wide_store(tmp_path / "store"), tmp_path / "place" / "out", True)
    largest = max(len(data) for data in (scene.truth or {}).values())
    for limit in (*random.Random(seed).sample(range(1, 4096), 4), largest - 1):
        status, error = warm.run_limited(limit, scene.store, scene.out, *scene.words)
        assert (status, "File too large" in error) == (1, True), error
        assert (tree(scene.out), scene.beside()) == (scene.before, [])
    assert warm.run_limited(1 << 20, scene.store, scene.out, *scene.words)[0] == 0
    assert tree(scene.out) == scene.truth
    scene.restore()
    scene.check_next("limit")


def grows(path: Path) -> None:
    with path.open("ab") as file:
        file.write(bytes(100))


def shrinks(path: Path) -> None:
    os.truncate(path, 1000)


def changes(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff")


def goes(path: Path) -> None:
    path.unlink()


def turns_into_a_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def gets_a_neighbour(path: Path) -> None:
    path.with_name("99999999999999").write_bytes(b"")


def _reads(name: str, path: str) -> bool:
    """The segments have been listed before the first of them is read."""
    return "/commitlog/" in path and name in ("open", "fstat", "preadv", "close")


CHANGES = [grows, shrinks, changes, goes, turns_into_a_fifo, gets_a_neighbour]


@pytest.mark.parametrize("change", CHANGES)
def test_input_changes_during_the_run(change: Callable[[Path], None], seed: int, tmp_path: Path) -> None:
    """At any moment after the segments have been listed: never published, and said to have changed."""
    count = Fault("EIO", 10**9, _reads)
    command_with(count, tiny_store(tmp_path / "whole"), tmp_path / "out")
    for number in sorted({1, *random.Random(seed).sample(range(2, count.seen), 4), count.seen}):
        store, place = tiny_store(tmp_path / f"store-{number}"), tmp_path / f"place-{number}"
        place.mkdir()
        seen = 0
        for segment in (store / "commitlog").iterdir():
            # The clock of a file system moves in steps of milliseconds: its time does not tell what is changed within one.
            os.utime(segment, ns=(10**18, 10**18))

        def spoil(name: str, path: str, number: int = number, store: Path = store) -> bool:
            nonlocal seen
            if _reads(name, path):
                seen += 1
                if seen == number:
                    change(max((store / "commitlog").iterdir()))
            return False

        signal.alarm(int(PATIENCE))
        summary, said = command_with(Fault("EIO", 1, spoil), store, place / "out")
        signal.alarm(0)
        assert (summary["exit"], list(place.iterdir())) == (1, []), (number, said)
        assert said.count("error: ") == 1
        reasons = ("changed during the run", "input changed", "appeared", "No such file", "is no regular file")
        assert any(reason in summary["error"] for reason in reasons), said


def test_two_at_once(seed: int, tmp_path: Path) -> None:
    """Processes that race for one DIR: each publishes the same bytes or is refused, and nothing is left."""
    rng = random.Random(seed)
    scene = Scene(tiny_store(tmp_path / "store"), tmp_path / "place" / "out", False)
    (tmp_path / "link").symlink_to(scene.out.parent)
    outs = [scene.out, tmp_path / "link" / "out", scene.out.parent / ".." / "place" / "out"]
    statuses = []
    with children() as one, children() as two, children() as three:
        for turn in range(15):
            words = ("--overwrite",) if turn % 3 else ()
            for child in (one, two, three):
                child.ask(scene.store, rng.choice(outs), *words)
            statuses.append(sorted(child.answer() for child in (one, two, three)))
            assert statuses[-1][0] == 0, statuses
            assert set(statuses[-1]) <= {0, 1}, statuses
            assert tree(scene.out) == scene.truth, statuses
            assert scene.beside() == [], statuses
            scene.restore()
    assert any(1 in found for found in statuses), "they never met"
