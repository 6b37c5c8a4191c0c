"""Tasks run in processes of their own, one at a time each; their errors are raised here, and nothing of a pool stays."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import rocketmq_reindex
from rocketmq_reindex.jobs.command.results import outcome
from rocketmq_reindex.jobs.engines.pool import Pool, Task
from rocketmq_reindex.storage_format.errors import InputError, RefusedError
from rocketmq_reindex.udfs.worker.link import WorkerLostError
from tests.tools.faulty_processes import ROOT, in_session, wait_until


@dataclass(frozen=True)
class Say:
    """Answers with its word and the process that ran it."""

    word: int
    seconds: float = 0.0

    def __call__(self) -> tuple[int, int]:
        time.sleep(self.seconds)
        return self.word, os.getpid()


@dataclass(frozen=True)
class Fail:
    """Raises an error, or what no pickle keeps."""

    error: Exception | None = None

    def __call__(self) -> tuple[int, int]:
        if self.error is not None:
            raise self.error

        class OwnError(Exception):
            pass

        raise OwnError("of a class that nobody else has")


@dataclass(frozen=True)
class Where:
    """Answers with the package's file, and the working folder."""

    def __call__(self) -> tuple[str, str]:
        return str(rocketmq_reindex.__file__), os.getcwd()


@dataclass(frozen=True)
class End:
    """Ends its process."""

    status: int

    def __call__(self) -> tuple[int, int]:
        os._exit(self.status)


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    made = Pool("build", 2)
    made.wait_until_up()
    yield made
    made.close()


def test_results_in_order_from_both(pool: Pool) -> None:
    found = pool.run([Say(number, 0.01) for number in range(40)])
    assert [word for word, _ in found] == list(range(40))
    assert len({process for _, process in found} - {os.getpid()}) == 2


def test_several_threads_ask(pool: Pool) -> None:
    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(pool.run, [Say(1000 * k + n) for n in range(200)]) for k in range(4)]
        for k, one in enumerate(asked):
            assert [word for word, _ in one.result()] == [1000 * k + n for n in range(200)]


def test_a_large_task_and_a_large_result(pool: Pool) -> None:
    word = 1 << 80_000_000
    assert pool.run([Say(word)])[0][0] == word


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (InputError("a.bin: offset 7: is no record"), 1, "a.bin: offset 7: is no record"),
        (RefusedError("refused"), 5, "refused"),
        (OSError(28, "No space left on device", "/disk/x"), 1, "/disk/x: No space left on device: nothing was published"),
        (ConnectionResetError(104, "Connection reset by peer"), 1, "input or output: Connection reset by peer"),
        (ValueError("odd"), 1, "ValueError: odd: nothing was published"),
        (MemoryError("much"), 1, "MemoryError: out of memory: nothing was published"),
        (None, 1, "RuntimeError: OwnError: of a class that nobody else has: nothing was published"),
    ],
)
def test_errors_are_those_of_the_task(pool: Pool, error: Exception | None, status: int, line: str) -> None:
    tasks: list[Task[tuple[int, int]]] = [Say(1), Fail(error), Say(2)]
    with pytest.raises(Exception) as found:  # noqa: PT011  the line tells
        pool.run(tasks)
    assert outcome(found.value, None, "input or output", ": nothing was published") == (status, line)
    # The pool goes on.
    assert pool.run([Say(5)])[0][0] == 5


@pytest.mark.parametrize(("status", "said"), [(0, "ended with status 0"), (7, "ended with status 7")])
def test_a_worker_that_ends(status: int, said: str) -> None:
    pool = Pool("build", 1)
    pool.wait_until_up()
    with pytest.raises(WorkerLostError, match=f"^a worker process has {said}$"):
        pool.run([End(status)])
    pool.close()


def _of_pools() -> list[int]:
    """The processes of this process's pools."""
    there = {pid: parent for pid, (parent, words) in in_session(os.getsid(0)).items() if "udfs.worker.pool" in words}
    first = [pid for pid, parent in there.items() if parent == os.getpid()]
    return first + [pid for pid, parent in there.items() if parent in first]


def test_no_process_is_left() -> None:
    before = set(_of_pools())
    pools = [Pool("build", 3), Pool("verify", 1)]
    pools[0].wait_until_up()
    wait_until(lambda: len(set(_of_pools()) - before) >= 5)
    for pool in pools:
        # The second has not come up yet.
        pool.close()
        pool.close()
    assert set(_of_pools()) == before
    for pool in pools:
        with pytest.raises(WorkerLostError, match=r"^the run has ended$"):
            pool.run([Say(1)])


def test_what_goes_on_ends_as_the_pool_is_closed() -> None:
    pool, raised = Pool("build", 1), list[str]()
    pool.wait_until_up()

    def ask() -> None:
        try:
            pool.run([Say(1, 900)])
        except WorkerLostError as error:
            raised.append(str(error))

    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(0.2)
    pool.close()
    thread.join(300)
    assert raised == ["the run has ended"]


def test_what_keeps_it_from_starting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the driver itself, which would say the same."""
    tmp_path.chmod(0o777)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    made = Pool("build", 1)
    with pytest.raises(InputError, match="NUMBA_CACHE_DIR: others may write to"):
        made.wait_until_up()
    made.close()


def test_the_package_of_this_process(pool: Pool) -> None:
    assert pool.run([Where()]) == [(rocketmq_reindex.__file__, "/")]


def test_a_package_that_a_script_has_found(tmp_path: Path) -> None:
    """By a path of its own, which no other process knows."""
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("rocketmq_reindex", "tests"):
        (copy / name).symlink_to(ROOT / name)
    script = (
        f"import sys; sys.path.insert(0, {str(copy)!r})\n"
        "from tests.unit.jobs.engines.test_pool import Pool, Where\n"
        "pool = Pool('build', 1)\npool.wait_until_up()\nprint(*pool.run([Where()])[0])\npool.close()\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", script] if sys.version_info >= (3, 11) else [sys.executable, "-c", script],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == f"{copy}/rocketmq_reindex/__init__.py /\n"


def test_an_interrupt_that_another_thread_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is raised when the process is known, which ends with it, and not amid its start."""
    waiting, started = threading.Event(), list[subprocess.Popen[bytes]]()
    thread = threading.Thread(target=waiting.wait, daemon=True)
    thread.start()
    whole = subprocess.Popen.__init__
    taken, told = socket.socketpair()
    told.setblocking(False)

    def start(process: subprocess.Popen[bytes], *words: Any, **settings: Any) -> None:
        # This thread has it blocked.
        assert thread.ident is not None
        signal.pthread_kill(thread.ident, signal.SIGINT)
        # The system hands it over in its own time: on a busy machine when all here is over.
        assert taken.recv(1) == bytes([signal.SIGINT])
        whole(process, *words, **settings)
        started.append(process)

    monkeypatch.setattr(subprocess.Popen, "__init__", start)
    before = signal.set_wakeup_fd(told.fileno())
    try:
        with pytest.raises(KeyboardInterrupt):
            Pool("build", 1)
    finally:
        signal.set_wakeup_fd(before)
        taken.close()
        told.close()
    waiting.set()
    assert [process.poll() for process in started] == [-signal.SIGKILL]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
