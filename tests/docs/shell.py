"""Runs the commands of a page: bash as it is, ``rmq-reindex`` in this process, and builds there without Spark."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from unittest.mock import patch

from rocketmq_reindex.jobs.cli import main
from tests.tools.local_engine import InlineEngine, single

STAND_IN: Final = """#!{python} -SE
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as door:
    door.connect({door!r})
    door.sendall(json.dumps([os.getcwd(), sys.argv[1:]]).encode())
    door.shutdown(socket.SHUT_WR)
    status, out, err = json.loads(door.makefile("rb").read())
sys.stdout.write(out)
sys.stderr.write(err)
sys.exit(status)
"""
_SHOWN: Final = re.compile(r"(?:error|warning|note): ")
"""What a page shows of stderr: no progress."""


@contextlib.contextmanager
def no_spark() -> Iterator[None]:
    """Commands and functions that would start Spark work in this process."""

    @contextlib.contextmanager
    def compiled() -> Iterator[bool]:
        yield False

    with (
        patch("rocketmq_reindex.jobs.spark.engine.SparkEngines", lambda *_, **__: single(InlineEngine())),
        patch("rocketmq_reindex.jobs.spark.session.starting", lambda *_: contextlib.nullcontext()),
        patch("rocketmq_reindex.jobs.spark.daemon.daemon_ahead", contextlib.nullcontext),
        patch("rocketmq_reindex.jobs.watching.watch.loops_kept", compiled),
    ):
        yield


class Shell:
    """Commands one after another, as in one terminal. Paths in ``moved`` stand for others while they run."""

    def __init__(self, folder: Path, moved: dict[str, str]) -> None:
        self.folder, self.moved = folder, moved
        self._tools = Path(tempfile.mkdtemp(prefix="sh"))
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(str(self._tools / "door"))
        self._door.listen()
        self._door.settimeout(0.02)
        tool = self._tools / "rmq-reindex"
        tool.write_text(STAND_IN.format(python=sys.executable, door=str(self._tools / "door")))
        tool.chmod(0o755)

    def run(self, script: str) -> str:
        """What is shown on the terminal but progress. Raises AssertionError where the last command failed."""
        where = self._tools / "folder"
        text = f"trap 'pwd > {where}' EXIT\n{self._put(script)}\n"
        env = {**os.environ, "PATH": f"{self._tools}:{os.environ['PATH']}", "COLUMNS": "400"}
        with tempfile.TemporaryFile("w+") as out:
            bash = subprocess.Popen(["bash", "-u", "-c", text], cwd=self.folder, env=env, stdout=out, stderr=subprocess.STDOUT)
            while bash.poll() is None:
                with contextlib.suppress(TimeoutError):
                    self._answer()
            out.seek(0)
            shown = self._back(out.read())
        self.folder = Path(where.read_text().strip())
        if bash.returncode:
            raise AssertionError(f"exit status {bash.returncode} of\n{script}\n{shown}")
        return shown

    def close(self) -> None:
        self._door.close()
        shutil.rmtree(self._tools)

    def _answer(self) -> None:
        """One call of ``rmq-reindex``."""
        caller, _ = self._door.accept()
        with caller:
            folder, words = json.loads(caller.makefile("rb").read())
            out, err, before = io.StringIO(), io.StringIO(), os.getcwd()
            os.chdir(folder)
            try:
                with no_spark(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                    status = main(words)
            except SystemExit as ended:
                status = int(ended.code or 0)
            finally:
                os.chdir(before)
            shown = "".join(line for line in err.getvalue().splitlines(keepends=True) if _SHOWN.match(line))
            caller.sendall(json.dumps([status, out.getvalue(), shown]).encode())

    def _put(self, text: str) -> str:
        for theirs, ours in self.moved.items():
            text = re.sub(rf"(?<![\w.]){re.escape(theirs)}(?=[/\s]|$)", ours, text, flags=re.MULTILINE)
        return text

    def _back(self, text: str) -> str:
        for theirs, ours in self.moved.items():
            text = text.replace(ours, theirs)
        return text


def steps(console: str) -> Iterator[tuple[str, str]]:
    """(command, what it printed) of a block that shows a terminal."""
    for part in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
        command, _, printed = part.partition("\n")
        yield command, printed.strip("\n")


def same(printed: str) -> str:
    """Without what differs from run to run."""
    text = "\n".join(line.rstrip() for line in printed.strip("\n").splitlines())
    return re.sub(r"\bon \d+ cores?\b", "on - cores", re.sub(r"[\d.]+ s\b", "- s", text))
