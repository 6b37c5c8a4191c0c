"""A program of tests/oracle that is led step by step, and killed where a test wants it to die."""

from __future__ import annotations

import os
import queue
import subprocess
import threading
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).resolve().parents[2]
ORACLE = ROOT / "tests/oracle"
PATIENCE = 500.0
QUICK_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
"""As tests/oracle/run has it"""


class StepFailed(Exception):
    """A step was answered with an error, or not at all."""


class Program:
    """``tests/oracle/run VERSION NAME``, its steps on stdin (CrashSteps.java). Nothing of it outlives the ``with`` block."""

    def __init__(self, version: str, name: str, scratch: Path, heap: str = "512m") -> None:
        # RocketMQ's parts write logs and settings below the user's home.
        options = f"-Xms64m -Xmx{heap} {QUICK_JAVA} -Duser.home={scratch}"
        environment = os.environ | {"ORACLE_JAVA_OPTS": options}
        if (ROOT / ".java-home").exists():
            environment["JAVA_HOME"] = (ROOT / ".java-home").read_text().strip()
        self._log = scratch / f"{name}-{version}.log"
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                [ORACLE / "run", version, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                env=environment, cwd=scratch, start_new_session=True,
            )  # fmt: skip
        self._answers: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self) -> Program:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line.rstrip("\n"))
        self._answers.put("")

    def step(self, *words: str | int | Path, patience: float = PATIENCE) -> str:
        """The value that the program answers. Raises StepFailed, with the end of what it said on stderr."""
        assert self._process.stdin is not None
        try:
            print(*words, sep="\t", file=self._process.stdin, flush=True)
            answer = self._answers.get(timeout=patience)
        except queue.Empty:
            answer = f"no answer after {patience} s"
        except OSError as error:
            answer = str(error)
        word, _, value = answer.partition(" ")
        if word != "ok":
            raise StepFailed(f"{words[0]}: {answer or 'the program ended'}\n{self._log.read_text()[-2000:]}")
        return value

    def status(self) -> int:
        """The exit status of the program, which has ended by itself."""
        return self._process.wait(PATIENCE)

    def halt(self) -> None:
        """The program ends itself at once, by Runtime.halt: no hook runs, nothing is closed."""
        assert self._process.stdin is not None
        print("halt", file=self._process.stdin, flush=True)
        self._process.wait(PATIENCE)
        self.kill()

    def kill(self) -> None:
        """kill -9; returns when it is dead."""
        self._process.kill()
        self._process.wait(PATIENCE)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
