"""The stages of a run: how far each is, and how long it will take."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Final, NamedTuple

from rocketmq_reindex.udfs.staging import Positions, StagingFolder

# ------------------------------------------------------------------------------------------------------------------------- pace
# How fast a stage goes on, and so how long it will take: by its recent past, once that says something.

_SECONDS: Final = 2.0
_MOVES: Final = 3
"""What must have passed since the first move before there is a pace."""
_MEMORY: Final = 10.0
"""Seconds after which what was counts a third; later a sixth of the time since the first move, if that is longer."""


class Pace:
    """Of a share of work that grows from 0 to 1. What it took until it first moved (workers start) is left out."""

    def __init__(self) -> None:
        self._first = self._last = self._at = 0.0
        self._moves = -1
        self._seconds = self._share = 0.0
        """seconds and shares, those of the past with less weight"""

    def add(self, seconds: float, share: float) -> None:
        """``share`` is done ``seconds`` after the begin; both never become less."""
        if share > self._at:
            self._moves += 1
        if self._moves < 0:
            return
        if not self._moves and share > self._at:
            self._first = seconds
        else:
            passed = seconds - self._last
            kept = math.exp(-passed / max(_MEMORY, (seconds - self._first) / 6))
            self._seconds, self._share = self._seconds * kept + passed, self._share * kept + share - self._at
        self._last, self._at = seconds, share

    @property
    def rate(self) -> float | None:
        """The share that is done in a second; None as long as that is a guess."""
        if self._moves < _MOVES or self._last - self._first < _SECONDS:
            return None
        return self._share / self._seconds

    @property
    def left(self) -> float | None:
        """The seconds that are left; None where there is no pace."""
        rate = self.rate
        return (1 - self._at) / rate if rate else None


# --------------------------------------------------------------------------------------------------------------------- progress
# The stages of a run, how far each is, for whoever shows them, and how long they took.

INTERVAL = 0.5

Probe = Callable[[], tuple[int, float]]
"""How far a stage is: (things done, share of all its work that is done)."""


class StageWork(NamedTuple):
    """What a stage has to do, as ``Reporter.stage`` takes it."""

    things: str
    total: int
    total_bytes: int
    probe: Probe

    @classmethod
    def of_tasks(cls, staging: StagingFolder, things: str, tasks: Mapping[str, int]) -> StageWork:
        """Return work of which each task has so many things, by the name of its ``Position``."""
        total, positions = sum(tasks.values()), Positions(staging)

        def probe() -> tuple[int, float]:
            shares = positions.shares()
            done = sum(count * shares.get(name, 0) for name, count in tasks.items())
            return int(done), done / total if total else 0

        return cls(things, total, 0, probe)


class StageSeconds:
    """Seconds by stage, its rounds together, so that no second of the run counts twice.

    What a stage inside another one takes is not the outer one's. Stages of other threads than the run's own go on beside its
    stages, and are kept apart.
    """

    def __init__(self) -> None:
        self.alone: defaultdict[str, float] = defaultdict(float)
        """of the run's own thread: their sum is at most the time of the run"""
        self.beside: defaultdict[str, float] = defaultdict(float)
        """of other threads"""
        self.rounds: Counter[str] = Counter()
        """how often each stage ran"""
        self._thread = threading.get_ident()
        self._inner: list[float] = []
        """of each open stage of the run's own thread: seconds of the stages inside it"""
        self._lock = threading.Lock()

    def begin(self) -> None:
        """A stage begins in this thread."""
        if threading.get_ident() == self._thread:
            self._inner.append(0.0)

    def end(self, kind: str, seconds: float) -> None:
        """The last stage that began in this thread ends."""
        with self._lock:
            self.rounds[kind] += 1
            if threading.get_ident() != self._thread:
                self.beside[kind] += seconds
                return
            self.alone[kind] += seconds - self._inner.pop()
            if self._inner:
                self._inner[-1] += seconds


class Stage:
    """One stage of a run: ``total`` things of ``total_bytes`` bytes. Without a probe its progress is not known."""

    def __init__(
        self, reporter: Reporter, name: str, things: str = "", total: int = 0, total_bytes: int = 0, probe: Probe | None = None
    ) -> None:
        self.name, self.things, self.total, self.total_bytes, self.probe = name, things, total, total_bytes, probe
        self.counts: Counter[str] = Counter()
        """what the stage found or made"""
        self.share = 0.0
        """of the work that is done, as far as it is known"""
        self.pace = Pace()
        self._reporter = reporter
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"progress-{name}", daemon=True)

    @property
    def seconds(self) -> float:
        """since it began"""
        return time.monotonic() - self._begin

    @property
    def kind(self) -> str:
        """the name without the number of a round"""
        return self.name.partition(" (")[0]

    def count(self, **counts: int) -> None:
        """Add to what the stage found or made."""
        self.counts.update(counts)

    def __enter__(self) -> Stage:
        self._reporter.seconds.begin()
        self._begin = time.monotonic()
        for shown in self._reporter.shown:
            shown.stage_started(self)
        if self.probe is not None:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._done.set()
        if self.probe is not None:
            self._thread.join()
        self._reporter.seconds.end(self.kind, self.seconds)
        for shown in self._reporter.shown:
            shown.stage_ended(self, kind is not None)

    def _watch(self) -> None:
        assert self.probe is not None
        things = 0
        while not self._done.wait(INTERVAL):
            try:
                things_now, share = self.probe()
            except OSError:
                continue
            # What tasks leave that are tried again, or take over, may be counted as well; and it is removed.
            things, self.share = min(max(things, things_now), self.total), min(max(self.share, share), 1.0)
            self.pace.add(self.seconds, self.share)
            size = int(self.share * self.total_bytes)
            for shown in self._reporter.shown:
                shown.stage_moved(self, things, size)


class Shown:
    """One way to show stages: a subclass shows what it likes of them.

    ``stage_moved`` comes every INTERVAL seconds, from the stage's own thread.
    """

    def open(self) -> None:
        """Before the first stage."""

    def close(self) -> None:
        """After the last one."""

    def line(self, text: str) -> None:
        """One line of plain text."""

    def waits(self, text: str) -> None:
        """A request to a store is tried again after a while; ``text`` is one line about it."""
        self.line(text)

    def stage_started(self, stage: Stage) -> None:
        """A stage begins."""

    def stage_moved(self, stage: Stage, things: int, size: int) -> None:
        """So much of it is done."""

    def stage_ended(self, stage: Stage, failed: bool) -> None:
        """A stage ends."""


class Reporter:
    """Shows one stage after another, and keeps their seconds."""

    def __init__(self, shown: Sequence[Shown]) -> None:
        self.shown = shown
        self.seconds = StageSeconds()
        self.begin = time.monotonic()
        """when the command began"""

    def elapsed(self) -> float:
        """Return the seconds since the command began."""
        return time.monotonic() - self.begin

    def __enter__(self) -> Reporter:
        for shown in self.shown:
            shown.open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for shown in self.shown:
            shown.close()

    def line(self, text: str) -> None:
        """One line of plain text, above the bar when there is one."""
        for shown in self.shown:
            shown.line(text)

    def waits(self, text: str) -> None:
        """A request to a store is tried again after a while."""
        for shown in self.shown:
            shown.waits(text)

    def stage(self, name: str, things: str, total: int, total_bytes: int, probe: Probe) -> Stage:
        """Return a context in which the stage's progress is shown."""
        return Stage(self, name, things, total, total_bytes, probe)

    def step(self, name: str) -> Stage:
        """Return a context for a stage too short for lines of its own."""
        return Stage(self, name)
