"""Whatever ends a run by processes of this machine: one line, DIR as it was, no process and no file left."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fault.disk import Scene, check_killed, tiny_store
from tests.fault.processes import Point, fault
from tests.tools.faulty_processes import Running, command, fired, in_session, running, wait_until
from tests.tools.faulty_runs import SIZES

SCAN: Point = ("open", "/commitlog/")
KILLED = "a worker process has been ended by signal 9 (SIGKILL): memory may have run out: nothing was published"
INTERRUPTED = "interrupted: nothing was published"
SOON = 300.0
"""Seconds, on the slowest machine; workers that are at work would take three times as long"""
BUSY = f"sleep {3 * SOON}"


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tiny_store(tmp_path / "store"), tmp_path / "place" / "out", True)


@contextmanager
def run(scene: Scene, folder: Path, faults: list[dict[str, Any]]) -> Iterator[Running]:
    """A build under faults, with a folder for temporary files of its own."""
    (folder / "tmp").mkdir(parents=True)
    words = command(scene.store, scene.out, *SIZES, *scene.words, "--engine=local", "--master=local[2]")
    with running(words, folder / "run", faults, {"TMPDIR": str(folder / "tmp"), "JAVA_HOME": str(folder)}) as found:
        yield found


def check(scene: Scene, found: Running, exit_status: int, error: str) -> None:
    """The run ended with one line and nothing else, and nothing of it is left."""
    summary = found.summary(SOON)
    assert (summary["exit"], summary["error"]) == (exit_status, error)
    assert "Traceback" not in found.err
    assert in_session(found.process.pid) == {}, "a process outlives the run"
    assert scene.beside() == []
    assert os.listdir(found.folder.parent / "tmp") == []
    scene.check_next(error)


@pytest.mark.parametrize(
    "point",
    [
        SCAN,
        pytest.param(("os.rename", "/tree/consumequeue/"), marks=pytest.mark.slow),
        pytest.param(("os.rename", "/made/"), marks=pytest.mark.slow),
        ("open", "/rows/"),
    ],
)
def test_a_killed_worker(point: Point, scene: Scene, tmp_path: Path) -> None:
    with run(scene, tmp_path / "turn", [fault("worker", point)]) as found:
        check(scene, found, 1, KILLED)
        assert fired(found.folder) == 1


def test_the_process_behind_the_workers_is_killed(scene: Scene, tmp_path: Path) -> None:
    with run(scene, tmp_path / "turn", [fault("worker", SCAN, BUSY)]) as found:
        wait_until(lambda: fired(found.folder))
        first = next(pid for pid, (parent, _) in in_session(found.process.pid).items() if parent == found.process.pid)
        os.kill(first, signal.SIGKILL)
        check(
            scene, found, 1, "the processes of the local engine are gone: it has been ended by signal 9 (SIGKILL): "
            "memory may have run out: nothing was published",
        )  # fmt: skip


@pytest.mark.parametrize("point", [("driver", ("os.rename", "/plans/ranges-1$")), ("driver", ("os.rename", "/sealed$"))])
def test_a_killed_driver_takes_its_workers_with_it(point: tuple[str, Point], scene: Scene, tmp_path: Path) -> None:
    with run(scene, tmp_path / "turn", [fault(*point)]) as found:
        assert found.ended(SOON) == -signal.SIGKILL
        wait_until(lambda: not in_session(found.process.pid), SOON)
        check_killed(scene, "after a killed driver")


def test_a_driver_that_is_killed_while_its_workers_are_busy(scene: Scene, tmp_path: Path) -> None:
    with run(scene, tmp_path / "turn", [fault("worker", SCAN, BUSY, 2)]) as found:
        wait_until(lambda: fired(found.folder) == 2)
        found.process.kill()
        found.ended(SOON)
        wait_until(lambda: not in_session(found.process.pid), SOON)
        check_killed(scene, "after a driver killed in its scan")


@pytest.mark.parametrize(
    ("group", "number", "status"),
    [
        pytest.param(True, signal.SIGINT, 130, id="group-int"),
        pytest.param(True, signal.SIGTERM, 143, id="group-term", marks=pytest.mark.slow),
        pytest.param(True, signal.SIGHUP, 129, id="group-hup", marks=pytest.mark.slow),
        pytest.param(False, signal.SIGINT, 130, id="driver-int", marks=pytest.mark.slow),
        pytest.param(False, signal.SIGTERM, 143, id="driver-term"),
        pytest.param(False, signal.SIGHUP, 129, id="driver-hup"),
    ],
)
def test_signals(group: bool, number: signal.Signals, status: int, scene: Scene, tmp_path: Path) -> None:
    """As a terminal sends them, to all processes of the command, and to the driver alone."""
    with run(scene, tmp_path / "turn", [fault("worker", SCAN, BUSY, 2)]) as found:
        wait_until(lambda: fired(found.folder) == 2)
        (os.killpg if group else os.kill)(found.process.pid, number)
        check(scene, found, status, INTERRUPTED)


def test_ctrl_c_while_files_are_written(scene: Scene, tmp_path: Path) -> None:
    """IndexFiles are written beside ConsumeQueues: neither is waited for."""
    faults = [
        fault("worker", ("os.rename", "/tree/consumequeue/"), BUSY),
        fault("worker", ("os.rename", "/made/"), BUSY),
    ]
    with run(scene, tmp_path / "turn", faults) as found:
        wait_until(lambda: fired(found.folder) == 2)
        os.killpg(found.process.pid, signal.SIGINT)
        check(scene, found, 130, INTERRUPTED)


def test_ctrl_c_while_the_processes_start(scene: Scene, tmp_path: Path) -> None:
    # On a busy machine the whole run may be over before its processes are seen.
    with run(scene, tmp_path / "turn", [fault("worker", SCAN, BUSY, 2)]) as found:
        wait_until(lambda: any("worker.pool" in words for _, words in in_session(found.process.pid).values()))
        os.killpg(found.process.pid, signal.SIGINT)
        check(scene, found, 130, INTERRUPTED)


def verifying(scene: Scene, folder: Path, faults: list[dict[str, Any]]) -> AbstractContextManager[Running]:
    """A verify of the log and nothing else, under faults."""
    (folder / "tmp").mkdir(parents=True)
    words = [sys.executable, "-m", "rocketmq_reindex", "verify", str(scene.store), "--only=log", "--json"]
    environment = {"TMPDIR": str(folder / "tmp"), "JAVA_HOME": str(folder)}
    return running([*words, "--engine=local", "--master=local[2]"], folder / "run", faults, environment)


@pytest.mark.parametrize(("number", "status", "error"), [(signal.SIGKILL, 1, KILLED), (signal.SIGINT, 130, INTERRUPTED)])
def test_a_verify(number: signal.Signals, status: int, error: str, scene: Scene, tmp_path: Path) -> None:
    with verifying(scene, tmp_path / "turn", [fault("worker", SCAN, BUSY, 2)]) as found:
        # Both are at work: the death of one that has nothing to do ends nothing.
        wait_until(lambda: fired(found.folder) == 2)
        if number == signal.SIGKILL:
            busy = [pid for pid, (parent, _) in in_session(found.process.pid).items() if parent != found.process.pid]
            os.kill(max(pid for pid in busy if pid != found.process.pid), number)
        else:
            os.killpg(found.process.pid, number)
        summary = found.summary(SOON)
        assert (summary["exit"], summary["error"]) == (status, error.removesuffix(": nothing was published"))
        assert in_session(found.process.pid) == {}
    assert os.listdir(tmp_path / "turn" / "tmp") == []
