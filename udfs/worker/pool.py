"""The processes of the local engine: one imports all that the tasks need, and forks the workers, which start at once.

The driver starts it as ``python -m``, in FOLDER and with PYTHONSAFEPATH, as Spark's daemon (``udfs.worker.daemon``), with the
numbers of sockets that it inherits: one to this process, and one to each worker. The driver blocks SIGINT, SIGTERM and SIGHUP
while it starts it, so they stay blocked in all of these processes: a signal to the whole process group is the driver's to act
on. They end with the driver, whatever ends it: its end of the first socket closes then.
"""

import contextlib
import ctypes
import gc
import importlib
import importlib.abc
import os
import pickle
import shutil
import signal
import socket
import sys
import threading
import traceback
from typing import Any, Final, NoReturn

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.showing import counted
from rocketmq_reindex.udfs.worker.link import FOLDER, Waits, receive, send

READY: Final = "ready"
_BUILD: Final = ("scan.ranges", "queue_order", "placements", "write.queues", "write.index")
_NEEDED: Final = {
    "build": _BUILD,
    "repair": (*_BUILD, "repair.mend", "repair.segments"),
    "verify": (
        "scan.ranges", "queue_order", "verify.queue_tasks", "verify.queues", "verify.index", "verify.items", "verify.against",
    ),
}  # fmt: skip
"""Modules of ``udfs`` with the functions of each command's tasks. What is missing here is imported by the first task."""
_PR_SET_PDEATHSIG: Final = 1


class NoPandas(importlib.abc.MetaPathFinder):
    """pyarrow would import pandas to ask whether a list is one of its objects, which takes half a second. No task has any."""

    def find_spec(self, fullname: str, *_: object) -> None:
        """Raises ImportError for pandas."""
        if fullname == "pandas":
            raise ModuleNotFoundError("tasks have no use for pandas", name=fullname)


def _imports(command: str) -> None:
    """Import what the tasks of a command need."""
    sys.meta_path.insert(0, NoPandas())
    importlib.import_module("rocketmq_reindex.udfs.worker.tasks")
    for name in _NEEDED[command]:
        importlib.import_module(f"rocketmq_reindex.udfs.{name}")
    importlib.import_module("rocketmq_reindex.storage_format.kernels.raw_bytes").warm_up()


def _end_with(parent: int) -> None:
    """End this process by SIGKILL as soon as its parent ends, also in the middle of a task."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _sendable(error: BaseException) -> BaseException:
    """Return an error as it can be sent: those of others' packages may not be made anew from what pickle keeps."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001  whatever their code raises
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _answer(task: Any) -> tuple[bool, Any, str]:
    """Run one task: (whether it is done, its result or error, the error's trace)."""
    try:
        return True, task(), ""
    except MemoryError:
        return False, MemoryError("out of memory"), ""
    except BaseException as error:  # noqa: BLE001  the driver raises it again
        return False, _sendable(error), traceback.format_exc()


def _work(link: socket.socket) -> NoReturn:
    """Run the tasks that come, one after another, until the driver is gone."""
    from rocketmq_reindex.files import object_store

    sending = threading.Lock()

    def waits(text: str) -> None:
        # Any thread may wait.
        with sending, contextlib.suppress(OSError):
            send(link, Waits(text))

    try:
        with object_store.heard_by(waits):
            while True:
                answer = _answer(receive(link))
                with sending:
                    send(link, answer)
    except (EOFError, OSError):
        os._exit(0)
    finally:
        os._exit(1)


def _fork(numbers: list[int], control: socket.socket) -> dict[int, int]:
    """Start a worker at each of these sockets. Return the number of each worker by its process."""
    parent, workers = os.getpid(), dict[int, int]()
    # What is there now stays shared with the workers: no search for garbage writes to its pages.
    gc.collect()
    gc.freeze()
    for number, handle in enumerate(numbers):
        process = os.fork()
        if process == 0:
            _end_with(parent)
            control.close()
            for other_handle in numbers:
                if other_handle != handle:
                    os.close(other_handle)
            _work(socket.socket(fileno=handle))
        workers[process] = number
    for handle in numbers:
        os.close(handle)
    return workers


def _watch(control: socket.socket, workers: dict[int, int], folders: list[str]) -> None:
    """Tell the driver of each worker that ends. Return when the driver is gone.

    ``folders`` gets those that the driver names, to be removed in the end.
    """

    def ended(*_: object) -> None:
        while workers:
            try:
                process, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not process:
                return
            send(control, (workers.pop(process), os.waitstatus_to_exitcode(status)))

    signal.signal(signal.SIGCHLD, ended)
    # One may have ended before.
    ended()
    send(control, READY)
    with contextlib.suppress(EOFError):
        while True:
            folders.append(receive(control))


def main() -> None:
    """Import, fork, and wait for the driver to end."""
    command, first, *handles = sys.argv[1:]
    os.chdir(FOLDER)
    control, numbers = socket.socket(fileno=int(first)), [int(number) for number in handles]
    try:
        _imports(command)
        try:
            workers = _fork(numbers, control)
        except OSError as error:
            few = "ask for fewer by --master local[N]"
            raise InputError(
                f"{counted(len(numbers), 'process', 'processes')} cannot be started: {error.strerror}: {few}"
            ) from None
    except Exception as error:  # noqa: BLE001  the driver says it
        send(control, _sendable(error))
        os._exit(1)
    folders = list[str]()
    try:
        _watch(control, workers, folders)
    finally:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for process in workers:
            os.kill(process, signal.SIGKILL)
        for process in workers:
            os.waitpid(process, 0)
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        # Saves what the interpreter needs to free what it has imported.
        os._exit(0)


if __name__ == "__main__":
    main()
