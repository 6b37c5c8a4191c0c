"""Processes of a test: each with a session of its own, so that all it started can be ended, whatever process group it is in."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SITE = Path(__file__).parent / "faulty_site"
ROOT = Path(__file__).parents[2]
PATIENCE = 900.0
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Running:
    """A process with what it says, in files: a killed one's children may hold pipes open."""

    process: subprocess.Popen[bytes]
    folder: Path

    @property
    def out(self) -> str:
        return (self.folder / "stdout").read_text(errors="replace")

    @property
    def err(self) -> str:
        return (self.folder / "stderr").read_text(errors="replace")

    def ended(self, patience: float = PATIENCE) -> int:
        """Its exit status. AssertionError when it does not end."""
        try:
            return self.process.wait(patience)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"does not end in {patience} s: {self.err[-2000:]}") from None

    def summary(self, patience: float = PATIENCE) -> dict[str, Any]:
        """The JSON object that a build leaves on stdout when it ends by itself.

        spark-submit joins what Python says on stderr into stdout: the object is the last line there.
        """
        status = self.ended(patience)
        found: dict[str, Any] = json.loads(self.out.splitlines()[-1])
        assert found["exit"] == status, (found, status, self.err)
        lines = [line for line in (self.out + self.err).splitlines() if line.startswith("error: ")]
        assert lines == ([f"error: {found['error']}"] if found["error"] else [])
        return found


def stat(process: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name, which may hold anything: state, parent's pid, ... Raises OSError."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()


def in_session(session: int) -> dict[int, tuple[int, str]]:
    """Living processes of a session: {pid: (parent's pid, command line)}."""
    found = {}
    for name in os.listdir("/proc"):
        # It may end while it is looked at.
        with contextlib.suppress(OSError):
            if name.isdigit() and os.getsid(int(name)) == session:
                fields = stat(int(name))
                words = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if fields[0] != "Z":
                    found[int(name)] = (int(fields[1]), words)
    return found


def end_session(session: int) -> None:
    """Kill all processes of a session that a test began."""
    end = time.monotonic() + PATIENCE
    while left := in_session(session):
        assert time.monotonic() < end, left
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


@contextlib.contextmanager
def hearing_hangups() -> Iterator[None]:
    """What is started here hears SIGHUP, too, where the tests were started by nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def die_with_parent() -> None:
    """Let this process be killed when the thread that started it ends, however that comes: for ``preexec_fn``."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


@contextlib.contextmanager
def running(
    words: list[str], folder: Path, faults: list[dict[str, Any]] | None = None, environment: dict[str, str] | None = None,
    is_tied: bool = False,
) -> Iterator[Running]:  # fmt: skip
    """Start ``words``; in the end nothing is left of it. ``faults`` as in faulty_site.

    One that ``is_tied`` dies with the thread that calls, too, however that ends.
    """
    folder.mkdir(parents=True)
    for number, fault in enumerate(faults or []):
        fault.setdefault("marker", str(folder / f"fault-{number}"))
    more = os.environ | {"REINDEX_FAULTS": json.dumps(faults or [])} | (environment or {})
    more["PYTHONPATH"] = os.pathsep.join([str(SITE), *filter(None, [os.environ.get("PYTHONPATH")])])
    with open(folder / "stdout", "wb") as out, open(folder / "stderr", "wb") as err, hearing_hangups():
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=more, cwd=ROOT, start_new_session=True,
            preexec_fn=die_with_parent if is_tied else None,
        )  # fmt: skip
    try:
        yield Running(process, folder)
    finally:
        end_session(process.pid)
        process.wait()


def command(store: Path | str, out: Path, *words: str, name: str = "build") -> list[str]:
    """The command line's words for a run of the command ``name`` in a process of its own."""
    return [sys.executable, "-m", "rocketmq_reindex", name, str(store), "--out", str(out), "--json", *words]


def fired(folder: Path) -> int:
    """How many faults of ``running`` have come to pass."""
    return len(list(folder.glob("fault-*")))


def wait_until(what: Callable[[], object], patience: float = PATIENCE) -> None:
    """AssertionError when it does not come true."""
    end = time.monotonic() + patience
    while not what():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def java() -> dict[str, str]:
    """JAVA_HOME as the project's set-up chose it, for what is not started by the project."""
    chosen = ROOT / ".java-home"
    return {"JAVA_HOME": chosen.read_text().strip()} if chosen.exists() else {}
