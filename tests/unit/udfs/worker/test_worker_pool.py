"""The process behind the workers of the local engine, as the driver meets it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.udfs.worker.link import receive, send
from rocketmq_reindex.udfs.worker.pool import READY

NO_FORK = """
import os
def fork():
    raise BlockingIOError(11, "Resource temporarily unavailable")
os.fork = fork
"""
MAIN = "from rocketmq_reindex.udfs.worker.pool import main\nmain()\n"


@contextmanager
def started(before: str, command: str = "build") -> Iterator[tuple[subprocess.Popen[bytes], socket.socket, socket.socket]]:
    """The process with one worker: what it is, the socket to it, the socket to its worker."""
    (control, its_own), (link, its_worker) = socket.socketpair(), socket.socketpair()
    handles = [its_own.fileno(), its_worker.fileno()]
    process = subprocess.Popen([sys.executable, "-c", before + MAIN, command, *map(str, handles)], pass_fds=handles)
    its_own.close()
    its_worker.close()
    with control, link:
        yield process, control, link
        control.close()
        assert process.wait(30) in (0, 1)


def test_processes_that_cannot_be_started() -> None:
    with started(NO_FORK) as (_, control, link):
        error = receive(control)
        with pytest.raises(EOFError):
            receive(link)
    assert isinstance(error, InputError)
    assert str(error) == "1 process cannot be started: Resource temporarily unavailable: ask for fewer by --master local[N]"


def test_it_ends_with_the_driver(tmp_path_factory: pytest.TempPathFactory) -> None:
    """And removes what it was told to."""
    folder = tmp_path_factory.mktemp("rows")
    (folder / "row").write_bytes(b"x")
    with started("") as (process, control, link):
        assert receive(control) == READY
        send(control, str(folder))
        send(link, os.getppid)
        assert receive(link)[:2] == (True, process.pid)
    assert process.returncode == 0
    assert not folder.exists()
