"""Spark's Python daemon with all imports of the tasks already made: its workers are forks, and start at once.

A local session names it in ``spark.python.daemon.module``. The imports take seconds. So while the JVM starts, the driver
starts a process of this module (``ahead``), which imports and then waits at a socket that VARIABLE names. The daemon that Spark
starts later hands its pipes and its environment to that process, and ends with it. Where no process waits, the daemon does the
imports itself.

Whoever starts it does so in FOLDER, and with PYTHONSAFEPATH: ``-m`` puts the working folder first on ``sys.path``. Python 3.10
does not know that variable, but only root can put a file into FOLDER.
"""

import contextlib
import importlib
import json
import os
import select
import socket
import struct
import sys
from collections.abc import Callable
from typing import Final

from rocketmq_reindex.udfs.worker.link import FOLDER as FOLDER

VARIABLE = "REINDEX_DAEMON_AHEAD"
"""The name of the socket, in Linux's abstract namespace: no file remains, whatever ends first."""
_TAKEN: Final = b"t"
_LENGTH = struct.Struct("<Q")
_CREDENTIALS = struct.Struct("3i")
_PIPES: Final = 3
"""stdin, by which Spark names workers to kill and ends the daemon; stdout, from which it reads the port; stderr."""


def _address(name: str) -> str:
    return f"\0rmq-reindex-{name}"


def _same_user(link: socket.socket) -> bool:
    """Return whether the other end is a process of this user: an abstract name has no permissions."""
    _, user, _ = _CREDENTIALS.unpack(link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return bool(user == os.getuid())


def _manager() -> Callable[[], None]:
    """Return Spark's own daemon, after the imports that its workers need."""
    import pandas  # type: ignore[import-untyped]  # noqa: F401  by pyarrow, at the first array that it makes
    import pyspark.worker  # noqa: F401  from Spark 4.2 on its daemon leaves that to each worker
    from pyspark.daemon import manager

    import rocketmq_reindex.udfs.scan.ranges
    import rocketmq_reindex.udfs.write.index
    import rocketmq_reindex.udfs.write.queues  # noqa: F401
    from rocketmq_reindex.storage_format.kernels.raw_bytes import warm_up
    from rocketmq_reindex.udfs.handover import settle

    warm_up()
    settle()
    # Its forks need not read the directories that have not changed since.
    importlib.invalidate_caches()
    return manager


def _handed_over(name: str) -> bool:
    """Let the waiting process be the daemon. Return when it has ended. False when no process waits."""
    with socket.socket(socket.AF_UNIX) as link:
        try:
            link.connect(_address(name))
            if not _same_user(link):
                return False
            environment = json.dumps(dict(os.environ)).encode()
            socket.send_fds(link, [_LENGTH.pack(len(environment))], list(range(_PIPES)))
            link.sendall(environment)
            if link.recv(1) != _TAKEN:
                return False
        except OSError:
            return False
        with contextlib.suppress(OSError):
            link.recv(1)
    return True


def _take_over(link: socket.socket) -> None:
    """Take over the pipes and the environment of the daemon at the other end. Raises OSError when it has ended."""
    length, pipes, _, _ = socket.recv_fds(link, _LENGTH.size, _PIPES)
    if len(length) < _LENGTH.size or len(pipes) < _PIPES:
        raise ConnectionError("the daemon has ended")
    size, environment = _LENGTH.unpack(length)[0], bytearray()
    while len(environment) < size:
        data = link.recv(size - len(environment))
        if not data:
            raise ConnectionError("the daemon has ended")
        environment += data
    os.environ.clear()
    os.environ.update(json.loads(environment))
    for number, pipe in enumerate(pipes):
        os.dup2(pipe, number)
        os.close(pipe)
    link.sendall(_TAKEN)


def _ahead(name: str) -> None:
    """Import, then stand in for the first daemon that asks; or end with stdin, which the driver holds."""
    # Ctrl-C is for the driver, which ends the run then.
    os.setpgid(0, 0)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(_address(name))
        listener.listen()
        manager = _manager()
        while True:
            ready, _, _ = select.select([listener, sys.stdin], [], [])
            if listener not in ready:
                return
            link, _ = listener.accept()
            if _same_user(link):
                break
            link.close()
    _take_over(link)
    # The link stays open until this process ends, and a worker that lives longer must not keep it open.
    os.register_at_fork(after_in_child=link.close)
    try:
        manager()
    finally:
        # Saves half a second, in which the interpreter would free what it has imported.
        os._exit(0)


def main() -> None:
    """Be the daemon, or with the argument ``ahead`` the process that waits for it."""
    os.chdir(FOLDER)
    name = os.environ.get(VARIABLE, "")
    if sys.argv[1:2] == ["ahead"]:
        _ahead(name)
    elif not (name and _handed_over(name)):
        _manager()()


if __name__ == "__main__":
    main()
