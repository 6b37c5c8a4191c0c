"""Builds and repairs in processes that can be killed at any file operation: each takes milliseconds, forked from a warm one.

As a program it reads one request a line from stdin and answers each with the child's exit status, negative for a signal.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.tools.faulty_files import Fault
from tests.tools.faulty_processes import PATIENCE, ROOT, end_session
from tests.tools.faulty_runs import command, command_with
from tests.tools.faulty_s3 import deadly_s3


class Children:
    """The warm process, asked for one child after another."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(
        self,
        store: Path | str,
        out: Path | str,
        *words: str,
        exchange: bool = True,
        limit: int = 0,
        door: str = "",
        name: str = "build",
        **fault: Any,
    ) -> None:
        """Begin the command ``name`` in a child. ``fault``: kind, number, and ``operations``, ``path`` as patterns.

        ``limit``: no file may grow beyond so many bytes. ``door``: places are URIs; the child is killed instead of its n-th
        write to a path in a bucket that matches.
        """
        assert self._process.stdin is not None
        request = {"store": str(store), "out": str(out), "words": words, "exchange": exchange, "limit": limit, "fault": fault}
        request |= {"door": door, "name": name}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()

    def answer(self) -> int:
        """How the oldest child asked for ended."""
        return self._line()[0]

    def _line(self) -> tuple[int, str]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the warm process is gone"
        status, error = json.loads(line)
        return int(status), str(error)

    def run(
        self, store: Path | str, out: Path | str, *words: str, exchange: bool = True, name: str = "build", **fault: Any
    ) -> int:  # fmt: skip
        self.ask(store, out, *words, exchange=exchange, name=name, **fault)
        return self.answer()

    def run_limited(self, limit: int, store: Path, out: Path, *words: str, name: str = "build") -> tuple[int, str]:
        """A command whose files have a limit in bytes (RLIMIT_FSIZE): exit status and error."""
        self.ask(store, out, *words, limit=limit, name=name)
        return self._line()


@contextlib.contextmanager
def children() -> Iterator[Children]:
    words = [sys.executable, "-m", "tests.tools.faulty_children"]
    process = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True
    )
    try:
        yield Children(process)
    finally:
        end_session(process.pid)
        process.communicate()


def _child(request: dict[str, Any]) -> tuple[int, str]:
    """In the child: exit status and error of the build, if it lives to tell it."""
    signal.alarm(int(PATIENCE))
    if request["limit"]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["limit"], request["limit"]))
    if request["door"]:
        return _at_door(request)
    wanted = dict(request["fault"])
    operations, path = re.compile(wanted.pop("operations", "")), re.compile(wanted.pop("path", ""))

    def matches(name: str, where: str) -> bool:
        return bool(operations.fullmatch(name) or not operations.pattern) and bool(path.search(where))

    fault = Fault(matches=matches, **{"kind": "kill", "number": sys.maxsize, **wanted})
    store, out = Path(request["store"]), Path(request["out"])
    summary, _ = command_with(fault, store, out, *request["words"], exchange=request["exchange"], name=request["name"])
    return int(summary["exit"]), str(summary["error"])


def _at_door(request: dict[str, Any]) -> tuple[int, str]:
    def kill() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with deadly_s3(os.environ["AWS_ENDPOINT_URL"], request["door"], request["fault"]["number"], kill) as endpoint:
        os.environ["AWS_ENDPOINT_URL"] = f"http://{endpoint}"
        summary, _ = command(request["store"], request["out"], *request["words"], name=request["name"])
    return int(summary["exit"]), str(summary["error"])


def _serve() -> None:
    from tests.fault.disk import tiny_store

    with tempfile.TemporaryDirectory() as folder:
        # Compiled code is loaded once, for all children.
        command(tiny_store(Path(folder) / "store"), Path(folder) / "out")
    for line in sys.stdin:
        here, there = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                os.write(there, json.dumps(_child(json.loads(line))).encode())
            finally:
                os._exit(0)
        os.close(there)
        with open(here, "rb") as pipe:
            told = pipe.read()
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        # One that says nothing was killed, or broke down in a way that no build should.
        print(told.decode() if told else json.dumps([status or 99, ""]), flush=True)


if __name__ == "__main__":
    _serve()
