"""From which size on an hourly run pays: ``python -m tests.bench.growing --sizes 0.5,1,2,4``.

A log of segments of 1 GiB, the last one allocated whole, grows by ``--grow`` MB again and again. After each step come an
incremental build and full ones, in turn; a size's line has the best of each, in seconds and in seconds of CPU, which other work
on the machine changes less. The bytes of both are compared at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from tests.bench.incremental import QUEUES_A_TOPIC, alike
from tests.bench.template_log import message_of, write_log
from tests.tools.encode import MIN_BLANK, encode

SEGMENT: Final = 1 << 30
QUEUES: Final = 64
_COPY: Final = 16 << 20
_PR_SET_CHILD_SUBREAPER: Final = 36


class Times(NamedTuple):
    """Seconds of one build."""

    wall: float
    cpu: float

    def best(self, other: Times) -> Times:
        return Times(min(self.wall, other.wall), min(self.cpu, other.cpu))

    def __str__(self) -> str:
        return f"{self.wall:.1f} s ({self.cpu:.1f} of CPU)"


class Growing:
    """A log in ``store`` that grows up to what ``whole`` holds, in steps, as a broker writes it: in place."""

    def __init__(self, root: Path, records: int, body: int) -> None:
        self.store, self._whole = root / "store", root / "whole" / "commitlog"
        self._record = len(encode(message_of(0, 0, QUEUES_A_TOPIC, body), 0))
        self._fits = (SEGMENT - MIN_BLANK) // self._record
        numbers = np.random.default_rng(1).integers(0, QUEUES, records).astype(np.int32)
        write_log(self._whole, numbers, QUEUES_A_TOPIC, body, SEGMENT)
        (self.store / "commitlog").mkdir(parents=True)
        self.records = 0

    @classmethod
    def records_of(cls, size: int, body: int) -> int:
        """Returns how many records take about ``size`` bytes."""
        return size // len(encode(message_of(0, 0, QUEUES_A_TOPIC, body), 0))

    def grow(self, records: int) -> None:
        """Appends so many records."""
        end = self.records + records
        while self.records < end:
            number, first = divmod(self.records, self._fits)
            last = min(self._fits, first + end - self.records)
            name = f"{number * SEGMENT:020d}"
            # Behind the last record that fits a filler follows.
            high = SEGMENT if last == self._fits else last * self._record
            self._copy(name, first * self._record, high)
            self.records += last - first

    def _copy(self, name: str, low: int, high: int) -> None:
        target = self.store / "commitlog" / name
        target.touch()
        with (self._whole / name).open("rb") as source, target.open("r+b") as segment:
            os.truncate(target, SEGMENT)
            source.seek(low)
            segment.seek(low)
            for at in range(low, high, _COPY):
                segment.write(source.read(min(_COPY, high - at)))


def _adopt() -> None:
    """Processes whose parents end become this one's children: a JVM may end after the command."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _cpu() -> float:
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def build(*words: str) -> tuple[Times, dict[str, Any]]:
    """One build as a process of its own: its times, and what it says of itself."""
    begin, before = time.monotonic(), _cpu()
    command = [sys.executable, "-m", "rocketmq_reindex", "build", *words, "--json"]
    found = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    summary: dict[str, Any] = json.loads(found.stdout)
    if summary["exit"]:
        raise SystemExit(summary["error"])
    return Times(time.monotonic() - begin, _cpu() - before), summary


def measure(root: Path, size: int, step: int, rounds: int, body: int) -> bool:
    """Prints the line of one size; returns whether incremental and full build wrote the same."""
    some = Growing.records_of(step, body)
    log = Growing(root, Growing.records_of(size, body) + 1, body)
    log.grow(Growing.records_of(size, body) - rounds * some)
    out, full, tables = root / "out", root / "full", root / "tables"
    kept = [str(log.store), "--out", str(out), "--incremental", "--tables", str(tables)]
    first, _ = build(*kept)
    best: dict[str, Times] = {}
    reads: list[int] = []
    for _ in range(rounds):
        log.grow(some)
        ways: dict[str, Times] = {}
        ways["incremental"], told = build(*kept)
        ways["full"], _ = build(str(log.store), "--out", str(full), "--overwrite")
        ways["recorded"], _ = build(str(log.store), "--out", str(full), "--overwrite", "--tables", str(root / "others"))
        reads.append(told["incremental"]["bytes_read"])
        best = {way: times.best(best.get(way, times)) for way, times in ways.items()}
    allocated = sum(path.stat().st_size for path in (log.store / "commitlog").iterdir())
    print(
        f"{size / 1e9:.1f} GB in {allocated / 1e9:.1f} GB of segments, grows by {step / 1e6:,.0f} MB: first {first}; "
        f"incremental {best['incremental']}, reads {min(reads) / 1e6:,.0f} to {max(reads) / 1e6:,.0f} MB; "
        f"full {best['full']}, with its row in tables {best['recorded']}",
        flush=True,
    )
    return alike(out, full)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="0.5,1,2,4", help="of the log, in GB")
    parser.add_argument("--grow", type=int, default=100, help="MB of one step")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--body", type=int, default=1000)
    parser.add_argument("--folder", type=Path, help="for the log and the builds (a temporary folder)")
    given = parser.parse_args()
    same = True
    _adopt()
    for size in given.sizes.split(","):
        with tempfile.TemporaryDirectory(prefix="growing-", dir=given.folder) as name:
            same &= measure(Path(name), int(float(size) * 10**9), given.grow * 10**6, given.rounds, given.body)
    print("both wrote the same bytes" if same else "the two builds differ")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
