"""A repair on a disk that fills up, with any file operation that fails, and with a replica that changes under it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fault.disk import SEGMENT, state, tree
from tests.fault.repairs import RepairScene, damaged_store
from tests.tools.faulty_children import Children, children
from tests.tools.faulty_disk import namespace
from tests.tools.faulty_files import Fault
from tests.tools.faulty_processes import PATIENCE, ROOT
from tests.tools.faulty_runs import command, command_with


@pytest.fixture(scope="module")
def warm() -> Iterator[Children]:
    with children() as found:
        yield found


@pytest.fixture
def scene(tmp_path: Path) -> RepairScene:
    return RepairScene(damaged_store(tmp_path / "store"), tmp_path / "place" / "out", True, link="hard")


@pytest.mark.parametrize("kind", ["EIO", "ENOSPC", "full", "short", "interrupt"])
def test_operations_that_fail(kind: str, seed: int, scene: RepairScene) -> None:
    """One line of error, DIR as it was, the input as it was, and the next run ends well."""
    rng, count = random.Random(seed), Fault(kind, 10**9)
    scene.run(count)
    scene.restore()
    for number in sorted(rng.sample(range(1, count.seen), 8)):
        fault = Fault(kind, number)
        summary, said = scene.run(fault)
        scene.check(fault, summary, said)
        scene.restore()


def test_a_limit_on_file_sizes(warm: Children, scene: RepairScene) -> None:
    """RLIMIT_FSIZE: no segment fits."""
    status, error = warm.run_limited(SEGMENT - 1, scene.store, scene.out, *scene.words, name="repair")
    assert (status, "File too large" in error) == (1, True), error
    assert (tree(scene.out), scene.beside()) == (scene.before, [])
    scene.check_next("limit")


def test_no_room_for_the_log(tmp_path: Path) -> None:
    """A disk that is too small for the log is refused before anything of it is written."""
    words = namespace()
    if not words:
        return
    store, disk = damaged_store(tmp_path / "store"), tmp_path / "disk"
    disk.mkdir()
    code = (
        "import sys, os, subprocess; from pathlib import Path; from tests.tools.faulty_runs import command\n"
        "store, disk = sys.argv[1:]\n"
        "subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=16k', 'none', disk], check=True)\n"
        "summary, said = command(store, disk + '/out', name='repair')\n"
        "print(summary['exit'], summary['error'], os.listdir(disk))\n"
    )
    done = subprocess.run(
        [*words, sys.executable, "-c", code, str(store), str(disk)], capture_output=True, text=True, cwd=ROOT,
        timeout=PATIENCE, check=True,
    )  # fmt: skip
    assert done.stdout.startswith("1 "), done.stdout
    assert " bytes where " in done.stdout
    assert done.stdout.endswith(" []\n"), done.stdout


def changed(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(700)
        file.write(b"\xff" * 50)


def gone(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    os.truncate(path, 1000)


@pytest.mark.parametrize("change", [changed, gone, cut])
def test_a_replica_that_changes(change: Callable[[Path], None], scene: RepairScene) -> None:
    """After it was looked at, when segments are written: nothing is published that is not whole."""
    backup = scene.store / "backup"
    replica = backup / f"{2 * SEGMENT:020d}"
    data = replica.read_bytes()
    done: list[bool] = []

    def spoil(name: str, path: str) -> bool:
        if name == "replace" and path.endswith("/plans/segments") and not done:
            change(replica)
            done.append(True)
        return False

    signal.alarm(int(PATIENCE))
    summary, said = command_with(Fault("EIO", 1, spoil), scene.store, scene.out, *scene.words, name="repair")
    signal.alarm(0)
    assert done
    assert summary["exit"] == 1, said
    assert len([line for line in said.splitlines() if line.startswith("error: ")]) == 1
    assert "Traceback" not in said
    assert (tree(scene.out), scene.beside()) == (scene.before, [])
    replica.write_bytes(data)
    scene.input = state(scene.store)
    scene.check_next("a replica that changed")


def test_hard_links(scene: RepairScene) -> None:
    """Whole segments before the log's end are shared; those in which a broker writes on are not, nor what was mended."""
    log = scene.store / "commitlog"
    # A broker makes the next two segments while it writes.
    last = int(max(log.iterdir()).name)
    for number in (1, 2):
        (log / f"{last + number * SEGMENT:020d}").write_bytes(bytes(SEGMENT))
    before = state(scene.store)
    summary, said = command(scene.store, scene.out, *scene.words, name="repair")
    assert summary["exit"] == 3, said
    shared = {path.name for path in log.iterdir() if (scene.out / "commitlog" / path.name).samefile(path)}
    assert shared == {f"{0:020d}"}
    assert state(scene.store) == before
    assert {path.stat().st_size for path in (scene.out / "commitlog").iterdir()} == {SEGMENT}
