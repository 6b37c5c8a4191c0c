"""Spark's Python daemon with what every task needs already imported: its workers are forks, and begin at once.

``spark.python.daemon.module`` of a local session. The imports take seconds, so the driver has them made while the JVM gets
ready, by a process of this module (``ahead``) that waits at a socket which VARIABLE names. The daemon that Spark starts later
hands it its pipes and its environment, and stays only to end with it; where nobody waits, it imports by itself.

Whoever starts it does so in FOLDER, and with PYTHONSAFEPATH: ``-m`` puts the working folder first on ``sys.path``. Python 3.10
does not know that variable, but only root can put a file into FOLDER.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import sys
from collections.abc import Callable
from typing import Final, cast

VARIABLE = "REINDEX_DAEMON_AHEAD"
"""Names the socket, in Linux's abstract namespace: no file is left behind, whatever ends."""
FOLDER: Final = "/"
"""where the processes of a session work: only root can put there what Python or Java would load"""
_TAKEN: Final = b"t"
_WORD = struct.Struct("<Q")
_CREDENTIALS = struct.Struct("3i")
_PIPES: Final = 3
"""stdin, by which Spark says whom to kill and when to end, stdout, where it reads the port, and stderr"""


def _address(name: str) -> str:
    return f"\0rmq-reindex-{name}"


def _same_user(link: socket.socket) -> bool:
    """Whether the other end is a process of this user: an abstract name has no permissions."""
    _, user, _ = _CREDENTIALS.unpack(link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return bool(user == os.getuid())


def _manager() -> Callable[[], None]:
    """Spark's own daemon, with all imported that its workers need."""
    import pandas  # type: ignore[import-untyped]  # noqa: F401  by pyarrow, at the first array that it makes
    from pyspark.daemon import manager

    import rocketmq_reindex.udfs.scan.ranges
    import rocketmq_reindex.udfs.write.index
    import rocketmq_reindex.udfs.write.queues  # noqa: F401

    return cast("Callable[[], None]", manager)


def _handed_over(name: str) -> bool:
    """Let the process that waits be the daemon; returns when it has ended. False when nobody waits."""
    with socket.socket(socket.AF_UNIX) as link:
        try:
            link.connect(_address(name))
            if not _same_user(link):
                return False
            told = json.dumps(dict(os.environ)).encode()
            socket.send_fds(link, [_WORD.pack(len(told))], list(range(_PIPES)))
            link.sendall(told)
            if link.recv(1) != _TAKEN:
                return False
        except OSError:
            return False
        with contextlib.suppress(OSError):
            link.recv(1)
    return True


def _take_over(link: socket.socket) -> None:
    """Take the pipes and the environment of the daemon at the other end. Raises OSError when it is gone."""
    length, pipes, _, _ = socket.recv_fds(link, _WORD.size, _PIPES)
    if len(length) < _WORD.size or len(pipes) < _PIPES:
        raise ConnectionError("the daemon has ended")
    left, told = _WORD.unpack(length)[0], bytearray()
    while len(told) < left:
        some = link.recv(left - len(told))
        if not some:
            raise ConnectionError("the daemon has ended")
        told += some
    os.environ.clear()
    os.environ.update(json.loads(told))
    for number, pipe in enumerate(pipes):
        os.dup2(pipe, number)
        os.close(pipe)
    link.sendall(_TAKEN)


def _ahead(name: str) -> None:
    """Import, and be the first daemon that asks; or end with stdin, which the driver holds."""
    # Ctrl-C is for the driver, which then ends the run.
    os.setpgid(0, 0)
    with socket.socket(socket.AF_UNIX) as place:
        place.bind(_address(name))
        place.listen()
        manager = _manager()
        while True:
            ready, _, _ = select.select([place, sys.stdin], [], [])
            if place not in ready:
                return
            link, _ = place.accept()
            if _same_user(link):
                break
            link.close()
    _take_over(link)
    # The link stays open until this process ends; a worker that outlives it shall not keep the other end waiting.
    os.register_at_fork(after_in_child=link.close)
    try:
        manager()
    finally:
        # Half a second, in which an interpreter takes apart what it has imported.
        os._exit(0)


def main() -> None:
    os.chdir(FOLDER)
    name = os.environ.get(VARIABLE, "")
    if sys.argv[1:2] == ["ahead"]:
        _ahead(name)
    elif not (name and _handed_over(name)):
        _manager()()


if __name__ == "__main__":
    main()
