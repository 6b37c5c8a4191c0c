"""The driver's side of the local engine's processes (``udfs.worker.pool``): start them, hand out tasks, notice a death."""

import contextlib
import itertools
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from rocketmq_reindex.files import object_store
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.udfs.worker.link import FOLDER, Waits, WorkerLostError, own_environment, receive, send
from rocketmq_reindex.udfs.worker.pool import READY

R = TypeVar("R")
Task = Callable[[], R]

_PATIENCE: Final = 10.0
"""Seconds in which a process that has nothing to do ends, or says why another has ended."""
_HEARD: Final = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
_ONE_THREAD: Final = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Each worker is one thread: a library that starts others would do so before the fork."""


@contextlib.contextmanager
def _blocked() -> Iterator[None]:
    """Hold back the signals that end a run, and block them for good in the processes that are started meanwhile.

    A mask is one thread's: a signal that another one takes would still be raised in the main thread, amid what it does.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
    seen: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()
    handlers = {number: handler for number in _HEARD if is_main and callable(handler := signal.getsignal(number))}
    for number in handlers:
        signal.signal(number, lambda number, _frame: seen.append(number))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if seen:
        signal.raise_signal(seen[0])


@dataclass(frozen=True, order=True)
class _Asked:
    """A task that waits for a worker; without one a thread ends."""

    rank: int
    number: int
    future: Future[Any] = field(default_factory=Future, compare=False)
    task: Task[Any] | None = field(default=None, compare=False)


class Pool:
    """Processes that run tasks, one at a time each. Any thread may ask for tasks; ``close`` ends all processes."""

    def __init__(self, command: str, cores: int) -> None:
        """Start the processes. ``command`` says whose tasks come: build or verify."""
        self.cores = cores
        self._tasks: queue.PriorityQueue[_Asked] = queue.PriorityQueue()
        self._numbers = itertools.count()
        self._threads: list[threading.Thread] = []
        self._closed = self._gone = False
        self._lock = threading.Lock()
        self._order = threading.Lock()
        """No task comes behind the end: nobody would take it."""
        self._reason = ""
        self._control, theirs = socket.socketpair()
        pairs = [socket.socketpair() for _ in range(cores)]
        self._links = [link for link, _ in pairs]
        handles = [end.fileno() for end in (theirs, *(end for _, end in pairs))]
        words = [sys.executable, "-m", "rocketmq_reindex.udfs.worker.pool", command, *map(str, handles)]
        try:
            with _blocked():
                self._process = subprocess.Popen(
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    cwd=FOLDER,
                    env=own_environment() | _ONE_THREAD,
                    pass_fds=handles,
                )
        except BaseException:
            # An interrupt that came meanwhile is raised as the process is there.
            if (started := getattr(self, "_process", None)) is not None:
                started.kill()
                started.wait()
            for end in (self._control, *self._links):
                end.close()
            raise
        finally:
            for end in (theirs, *(end for _, end in pairs)):
                end.close()

    def wait_until_up(self) -> None:
        """Wait until the workers are there. Raises what kept them from starting."""
        if self._threads:
            return
        try:
            answer = receive(self._control)
        except EOFError:
            raise WorkerLostError(f"the local engine does not start: {self._ended()}") from None
        if answer != READY:
            raise answer if isinstance(answer, BaseException) else self._lost(answer)
        self._threads = [
            threading.Thread(target=self._serve, args=(number,), name=f"worker-{number}", daemon=True)
            for number in range(self.cores)
        ]
        for thread in self._threads:
            thread.start()

    def remove_in_the_end(self, folder: str) -> None:
        """Have a folder removed when all processes have ended, also where the driver is killed."""
        send(self._control, folder)

    def run(self, tasks: Sequence[Task[R]], soon: bool = False) -> list[R]:
        """Return the results of tasks, in their order. Raises the first error, and begins no more of these tasks then.

        ``soon``: they begin before all others that wait, as long tasks should beside short ones.
        """
        futures: list[Future[R]] = [Future() for _ in tasks]
        with self._order:
            if self._closed:
                raise WorkerLostError("the run has ended")
            for future, task in zip(futures, tasks, strict=True):
                self._tasks.put(_Asked(0 if soon else 1, next(self._numbers), future, task))
        try:
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
        except Exception:
            for future in futures:
                future.cancel()
            raise
        except BaseException:
            # An interrupt: nobody waits for what goes on.
            self.close()
            raise
        return [future.result() for future in futures]

    def _serve(self, number: int) -> None:
        """Give one worker its tasks, in a thread of its own: an idle worker takes the next one."""
        while (asked := self._tasks.get()).task is not None:
            future, task = asked.future, asked.task
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(self._ask(number, task))
                except BaseException as error:  # noqa: BLE001  raised where the result is asked for
                    future.set_exception(error)

    def _ask(self, number: int, task: Task[R]) -> R:
        if self._closed:
            raise WorkerLostError("the run has ended")
        link = self._links[number]
        try:
            send(link, task)
            while isinstance(answer := receive(link), Waits):
                object_store.tell(answer.text)
            done, result, trace = answer
        except (OSError, EOFError):
            raise self._why() from None
        if not done:
            raise _named(result) from _TraceError(trace)
        return result  # type: ignore[no-any-return]  # the result of the task that was sent

    def _why(self) -> WorkerLostError:
        """Return why a worker is gone."""
        with self._lock:
            if not self._reason and not self._closed:
                with contextlib.suppress(OSError, EOFError):
                    self._control.settimeout(_PATIENCE)
                    _, status = receive(self._control)
                    self._reason = f"a worker process has {_ending(status)}"
                self._reason = self._reason or f"the processes of the local engine are gone: {self._ended()}"
            return WorkerLostError(self._reason or "the run has ended")

    def _lost(self, death: tuple[int, int]) -> WorkerLostError:
        return WorkerLostError(f"a worker process has {_ending(death[1])}")

    def _ended(self) -> str:
        """Return how the first process has ended."""
        try:
            return f"it has {_ending(self._process.wait(_PATIENCE))}"
        except subprocess.TimeoutExpired:
            return "it says nothing"

    def close(self) -> None:
        """End all processes, and wait until they are gone. Tasks that are asked for, now or later, fail."""
        if self._gone:
            return
        # An interrupt may come in between: whoever calls next begins anew.
        with self._order:
            self._closed = True
            for _ in self._threads:
                self._tasks.put(_Asked(2, next(self._numbers)))
        if not self._threads:
            # It imports, and would not look.
            self._process.kill()
        # A process that somebody forked may hold it, too.
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        self._control.close()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for link in self._links:
            # Its other end closes as the last process ends that had it.
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_WR)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(_PATIENCE)
        for link in self._links:
            link.close()
        self._gone = True


class _TraceError(Exception):
    """The trace of a task's error, as its cause."""


def _named(error: BaseException) -> BaseException:
    """Return an error of a task as the driver raises it: a connection that is lost is one to a store."""
    if isinstance(error, ConnectionError) and not error.filename:
        return InputError(f"input or output: {error.strerror or error}")
    return error


def _ending(status: int) -> str:
    """Return how a process has ended, by its exit status."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        name = f" ({signal.Signals(-status).name})"
    except ValueError:
        name = ""
    why = ": memory may have run out" if status == -signal.SIGKILL else ""
    return f"been ended by signal {-status}{name}{why}"
