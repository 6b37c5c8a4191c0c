"""Checks that a page starts: ``verify`` and ``preflight`` as processes of the command itself, one at a time.

A check only reads. What it keeps meanwhile lies in a folder of its own, which is removed at its end. Its process and those
that it starts are a group of their own: who ends the check, or the pages, ends all of them.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from typing import IO, Any, Final, NamedTuple

from rocketmq_reindex.jobs.browsing import facts
from rocketmq_reindex.jobs.command import option_table
from rocketmq_reindex.jobs.tracing.timeline import TracedStore
from rocketmq_reindex.jobs.watching import watch
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.showing import counted, escape, printable, reason, redacted, shell
from rocketmq_reindex.udfs.times import now
from rocketmq_reindex.udfs.worker.link import FOLDER, own_environment

VERIFY: Final = "verify"
AGAINST: Final = "against"
PREFLIGHT: Final = "preflight"
KINDS: Final = (VERIFY, AGAINST, PREFLIGHT)
ENTRIES_MAX: Final = 10_000
"""entries that are kept of a list of a result"""
RESULT_MAX: Final = 8 << 20
"""bytes of JSON that are kept of the lists of a result: in memory they take some four times as much"""
KEPT_MAX: Final = 32 << 20
"""the same of all results: the oldest go first"""
_NICE: Final = 10
_ENDS_IN: Final = 5.0
"""seconds that a check has to clear up after SIGTERM"""
_LINES: Final = 20
_LINE_MAX: Final = 2000
_STAGES: Final = 40
_NOT_HANDED_ON: Final = ("RMQ_REINDEX_PROGRESS", "RMQ_REINDEX_LOG_FORMAT", "RMQ_REINDEX_METRICS", "RMQ_REINDEX_STORE_NAME")
"""variables that would have a check write a file, or speak in another form"""
_PIECE: Final = 1 << 16
_GUARD: Final = """read -r _; kill -TERM -- -$1
for _ in 1 2 3 4 5; do kill -0 -- -$1 && sleep 1; done; kill -KILL -- -$1; rm -rf -- "$2\""""
"""what a shell does once its input ends: the pages are gone, and could do nothing, as after SIGKILL"""


class Busy(InputError):
    """A check runs already."""


# ------------------------------------------------------------------------------------------------------------------------- JSON
# A JSON object of any length, of which as much is read as may be kept.


def bounded_json(path: str, most: int, entries: int) -> tuple[dict[str, Any], dict[str, int], int]:
    """Return the object in a file, the length of each list of it that was cut, and how many bytes of JSON were kept.

    Of a list ``entries`` are kept at most, and of all lists ``most`` bytes; memory does not grow with the file.

    Raises ValueError for what is no object, or has more bytes beside its lists, and OSError.
    """
    kept, cut, listed, beside = dict[str, Any](), dict[str, int](), 0, 0
    with open(path, encoding="utf-8") as file:
        text = _Text(file, most)
        text.take("{")
        while not text.comes("}"):
            if kept:
                text.take(",")
            name, _ = text.value()
            text.take(":")
            if not text.comes("["):
                kept[str(name)], length = text.value()
                beside += length
                if beside > most:
                    raise ValueError(f"it has more than {most:,} bytes beside its lists")
                continue
            members, count = list[Any](), 0
            while not text.comes("]"):
                if count:
                    text.take(",")
                member, length = text.value()
                count += 1
                if count <= entries and listed + length <= most:
                    members.append(member)
                    listed += length
            kept[str(name)] = members
            if count > len(members):
                cut[str(name)] = count
    return kept, cut, listed + beside


class _Text:
    """JSON that is read from a file as it is needed."""

    def __init__(self, file: IO[str], most: int) -> None:
        self._file, self._most = file, most
        self._text, self._at, self._ended = "", 0, False
        self._decoder = json.JSONDecoder()

    def _more(self) -> None:
        piece = self._file.read(max(_PIECE, len(self._text) - self._at))
        self._ended = not piece
        self._text, self._at = self._text[self._at :] + piece, 0

    def _next(self) -> str:
        """Return the next character that is no space; "" at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in " \t\r\n":
                self._at += 1
            if self._at < len(self._text) or self._ended:
                return self._text[self._at : self._at + 1]
            self._more()

    def comes(self, character: str) -> bool:
        """Pass over this character if it comes next, and return whether it does."""
        found = self._next() == character
        self._at += found
        return found

    def take(self, character: str) -> None:
        """Pass over this character. Raises ValueError where another one comes."""
        if not self.comes(character):
            raise ValueError(f"{character} is missing")

    def value(self) -> tuple[Any, int]:
        """Return the value that comes next, and how long it is. Raises ValueError."""
        self._next()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
                # A number may go on.
                if end < len(self._text) or self._ended:
                    length, self._at = end - self._at, end
                    return value, length
            except RecursionError:
                raise ValueError("it is nested too deeply") from None
            except json.JSONDecodeError:
                if self._ended:
                    raise ValueError("it is no JSON") from None
            if len(self._text) - self._at > self._most:
                raise ValueError(f"one value has more than {self._most:,} bytes")
            self._more()


# ------------------------------------------------------------------------------------------------------------------------ check
# One check: what it asks, its process, how far it is, and what it ended with.


class CheckOrder(NamedTuple):
    """What is checked: ``against`` is another store for AGAINST, ``version`` a release for PREFLIGHT, "" for its default."""

    kind: str
    store: TracedStore
    against: TracedStore | None = None
    version: str = ""
    delay_levels: str = option_table.default_of("delay_levels")

    def words(self) -> list[str]:
        """Return the words of the command line behind the command's name."""
        words = [self.store.path]
        if self.against is not None:
            words += ["--against", self.against.path]
        words += facts.roots_words(self.store)
        if self.kind == PREFLIGHT:
            return [*words, *(["--broker-version", self.version] if self.version else [])]
        levels = [] if self.delay_levels == option_table.default_of("delay_levels") else ["--delay-levels", self.delay_levels]
        return [*words, *levels, "--engine", "local"]

    @property
    def name(self) -> str:
        """The command's name."""
        return PREFLIGHT if self.kind == PREFLIGHT else VERIFY

    def command(self) -> str:
        """Return the command line that does the same, without passwords."""
        return shell(["rmq-reindex", self.name, *map(redacted, self.words())])


class EndedCheck(NamedTuple):
    """What a check ended with. ``found`` is its JSON object; None where it has printed none, and ``why`` says why."""

    id: str
    order: CheckOrder
    began: str
    seconds: float
    found: dict[str, Any] | None
    cut: dict[str, int]
    """of lists of ``found`` that are not whole: how long they were"""
    size: int
    why: str


class Check:
    """A check that runs."""

    def __init__(self, order: CheckOrder) -> None:
        """Start it. Raises InputError where it cannot be started."""
        self.order, self.id, self.began, self._begin = order, secrets.token_urlsafe(12), now(), time.monotonic()
        self.stopping = False
        self.lines: deque[str] = deque(maxlen=_LINES)
        self.stages: dict[str, dict[str, Any]] = {}
        self._lock, self._reaped = threading.Lock(), False
        try:
            self.folder = tempfile.mkdtemp(prefix="rmq-reindex-check-")
        except OSError as error:
            raise InputError(f"no temporary folder for a check: {reason(error)}") from None
        self._out = os.path.join(self.folder, "result.json")
        if order.kind == VERIFY:
            # With its progress as JSON the command does not say so.
            with contextlib.suppress(InputError):
                self.lines += filter(None, [watch.compiling_line(watch.SCAN_LOOP)])
        words = [sys.executable, "-m", "rocketmq_reindex", order.name, *order.words(), "--json"]
        words += [] if order.kind == PREFLIGHT else ["--progress", "json"]
        environment = {name: value for name, value in own_environment().items() if name not in _NOT_HANDED_ON}
        try:
            with open(self._out, "wb") as out:
                self._process = subprocess.Popen(
                    words, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE, cwd=FOLDER,
                    env=environment | {"TMPDIR": self.folder}, start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise InputError(f"the check was not started: {reason(error)}") from None
        self._guard: subprocess.Popen[bytes] | None = None
        with contextlib.suppress(OSError):
            self._guard = subprocess.Popen(
                ["/bin/sh", "-c", _GUARD, "sh", str(self.pid), self.folder], stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=FOLDER, start_new_session=True,
            )  # fmt: skip
            os.setpriority(os.PRIO_PROCESS, self.pid, _NICE)
        self._reader = threading.Thread(target=self._read, name="check-progress", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The number of its process, and of the group of all of its processes."""
        return self._process.pid

    @property
    def seconds(self) -> float:
        """since it began"""
        return time.monotonic() - self._begin

    def _read(self) -> None:
        """Take in what it says on stderr: stages as JSON, or lines. What it says is not trusted to be short."""
        assert self._process.stderr is not None
        with self._process.stderr as stream:
            while line := stream.readline(_LINE_MAX):
                text = line.decode("utf-8", "replace").rstrip("\n")
                stage = _stage(text)
                if stage is None:
                    self.lines.append(printable(text))
                elif stage["stage"] in self.stages or len(self.stages) < _STAGES:
                    self.stages[stage["stage"]] = stage

    def stop(self, within: float = _ENDS_IN) -> None:
        """Ask it to end and clear up; what has not ended ``within`` these seconds is killed."""
        self.stopping = True
        with self._lock:
            # ``Popen.send_signal`` would reap it.
            if not self._reaped:
                os.kill(self.pid, signal.SIGTERM)
        timer = threading.Timer(within, self._kill)
        timer.daemon = True
        timer.start()

    def _kill(self) -> None:
        with self._lock:
            # As long as it is not reaped nobody else can have its number.
            if not self._reaped:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.pid, signal.SIGKILL)

    def wait(self) -> EndedCheck:
        """Wait for its end, end what it has left behind, remove its folder, and return what it found."""
        with contextlib.suppress(ChildProcessError):  # a program around this one may reap what it has not started
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            self._kill()
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
        with self._lock:
            self._reaped = True
            status = self._process.wait()
        self._reader.join(_ENDS_IN)
        try:
            found, cut, size, why = self._found(status)
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)
        return EndedCheck(self.id, self.order, self.began, self.seconds, found, cut, size, why)

    def _found(self, status: int) -> tuple[dict[str, Any] | None, dict[str, int], int, str]:
        if self.stopping:
            return None, {}, 0, f"stopped after {self.seconds:.1f} s"
        try:
            return *bounded_json(self._out, RESULT_MAX, ENTRIES_MAX), ""
        except (OSError, ValueError):
            # Killed, or without memory: it has printed nothing, or a part.
            how = f"by signal {-status}" if status < 0 else f"with status {status}"
            return None, {}, 0, f"ended {how}, and without a result: {' '.join([*self.lines][-3:]) or 'it said nothing'}"


def _stage(text: str) -> dict[str, Any] | None:
    """Return a line of ``--progress json`` about a stage; None for any other line."""
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return None
    names = ("stage", "state", "things")
    if not isinstance(told, dict) or not all(isinstance(told.get(name), str) for name in names):
        return None
    return {"done": 0, "total": 0, "bytes": 0, "total_bytes": 0, "seconds": 0.0, "eta": None} | told


# ----------------------------------------------------------------------------------------------------------------------- checks
# The check that runs, if one does, and what others ended with.


class Checks:
    """At most one check runs. What each kind found of each store last is kept, as far as there is room."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: Check | None = None
        self._watcher: threading.Thread | None = None
        self._ended: dict[tuple[str, str], EndedCheck] = {}
        """by kind and name of the store, the oldest first"""
        self._closed = False

    @property
    def running(self) -> Check | None:
        """The check that runs."""
        return self._running

    def ended(self, kind: str, store: TracedStore) -> EndedCheck | None:
        """Return what the last check of this kind of this store ended with."""
        return self._ended.get((kind, store.name))

    def start(self, order: CheckOrder) -> Check:
        """Start a check, and return it. Raises Busy where one runs, and InputError where it cannot be started."""
        with self._lock:
            if self._closed:
                raise InputError("the pages are being closed")
            if (other := self._running) is not None:
                since, store = counted(int(other.seconds), "second"), escape(other.order.store.name)
                raise Busy(f"a {other.order.name} of store {store} runs since {since}: wait for it, or stop it")
            check = Check(order)
            self._running = check
            self._watcher = threading.Thread(target=self._watch, args=(check,), name="check", daemon=True)
            # Where nobody closes the pages, the process's end does.
            atexit.register(self.close)
            self._watcher.start()
        return check

    def _watch(self, check: Check) -> None:
        ended = check.wait()
        atexit.unregister(self.close)
        with self._lock:
            key = check.order.kind, check.order.store.name
            self._ended.pop(key, None)
            self._ended[key] = ended
            while sum(each.size for each in self._ended.values()) > KEPT_MAX and len(self._ended) > 1:
                del self._ended[next(iter(self._ended))]
            self._running = None

    def stop(self, check_id: str) -> bool:
        """Stop the check with this id, and return whether it is the one that runs: a late click stops no other one."""
        check = self._running
        if check is None or not secrets.compare_digest(check.id.encode(), check_id.encode("utf-8", "surrogateescape")):
            return False
        check.stop()
        return True

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until no check runs. Return whether that is so."""
        watcher = self._watcher
        if watcher is not None:
            watcher.join(seconds)
        return self._running is None

    def close(self, within: float = 2.0) -> None:
        """End the check that runs, and all of its processes; no other one can be started."""
        with self._lock:
            self._closed = True
            check = self._running
        if check is not None:
            check.stop(within)
            self.wait(within + _ENDS_IN)
