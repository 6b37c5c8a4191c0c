"""A guard against getting slower: what each stage of a build costs, relative to a fixed kernel on the same machine.

    python -m tests.bench.guard            compares with baseline.json: exit status 1 where a stage has grown by more than half
    python -m tests.bench.guard --write    makes a new baseline

Small logs of three kinds are built in this process, and one in a Spark session. Costs are processor time, not time on the
clock, so that others on the machine hardly count; the kernel runs before and after each build, so that what slows the
processor itself down hits both. What others do to caches and memory can only add to either: so a stage's cost is its least of
five rounds in times of the kernel's least. One that looks slow is measured again, three times at most: a real loss is there
each time.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.kernel import Kernel
from tests.bench.process_time import tree_seconds
from tests.bench.synthetic import KINDS, synthetic_log
from tests.tools.local_engine import InlineEngine, local_build

BASELINE = Path(__file__).with_name("baseline.json")
LOG_BYTES = 64 << 20
ROUNDS = 5
SETS = 4
GROWTH = 1.5
LEAST_COST = 0.15
"""Stages below this part of the kernel's time are too short to be told apart from chance; the whole build has them."""
SPARK, SPARK_WARM = "spark", 2

Costs = dict[str, float]


class TimedEngine:
    """A local engine that notes what each function costs it: the stages run one after another in threads of their own."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.seconds: Costs = defaultdict(float)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._engine, name)
        if not callable(found):
            return found

        def timed(*words: Any) -> Any:
            functions = [type(word).__name__ for word in words if callable(word)]
            begin = time.thread_time()
            result = found(*words)
            if functions:
                self.seconds[functions[-1]] += time.thread_time() - begin
            return result

        return timed


@contextmanager
def place() -> Iterator[Path]:
    """A folder in memory where that can be: no disk is measured."""
    memory = Path("/dev/shm")
    free = shutil.disk_usage(memory).free if memory.is_dir() else 0
    folder = Path(tempfile.mkdtemp(prefix="reindex-guard-", dir=memory if free > 16 * LOG_BYTES else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def build_locally(store: Path, out: Path, engine: Any = None, **settings: Any) -> Costs:
    """Processor seconds of one build in this process: by the function that a stage runs, and of the whole."""
    shutil.rmtree(out, ignore_errors=True)
    timed = TimedEngine(engine or InlineEngine())
    begin = time.process_time()
    summary = local_build(store, out, timed, **settings)
    whole = time.process_time() - begin
    assert summary.exit == 0, summary.error
    return {**timed.seconds, "whole build": whole}


class SparkBuilds:
    """Whole builds in one session: processor seconds of this process and all below it."""

    def __init__(self) -> None:
        from tests.bench.sides import Session

        self._session = Session("local[2]")

    def build(self, store: Path, out: Path) -> Costs:
        before = tree_seconds(os.getpid())
        self._session.run(store, out)
        return {"whole build": tree_seconds(os.getpid()) - before}

    def stop(self) -> None:
        self._session.stop()


def one_round(builds: dict[str, Callable[[], Costs]], kernel: Kernel) -> tuple[Costs, float]:
    """Seconds of each stage of each build, and the least of the kernel before, between and after them."""
    found: Costs = {}
    least = kernel.seconds()
    for name, build in builds.items():
        found |= {f"{name}: {stage}": seconds for stage, seconds in build().items()}
        least = min(least, kernel.seconds())
    return found, least


def one_set(builds: dict[str, Callable[[], Costs]], kernel: Kernel, rounds: int = ROUNDS) -> Costs:
    """What each stage of each build costs, in times of the kernel: the least of some rounds."""
    costs: Costs = {}
    # Spark ends a Python worker that has idled for a minute: its builds do not wait for others.
    alone = [{name: build} for name, build in builds.items() if name == SPARK]
    others = {name: build for name, build in builds.items() if name != SPARK}
    for group in filter(None, [others, *alone]):
        found, kernels = zip(*(one_round(group, kernel) for _ in range(rounds)), strict=True)
        costs |= {stage: min(seconds.get(stage, inf) for seconds in found) / min(kernels) for stage in found[0]}
    return costs


def slower(costs: Costs, baseline: Costs) -> list[str]:
    """Stages that have grown by more than half. AssertionError where they are not the baseline's stages."""
    known = {stage for stage, cost in costs.items() if stage in baseline or cost >= 2 * LEAST_COST}
    assert known == set(baseline), (
        f"not the stages of the baseline: {sorted(known ^ set(baseline))}: python -m tests.bench.guard --write"
    )
    return [stage for stage in baseline if costs[stage] > GROWTH * baseline[stage]]


def guard(builds: dict[str, Callable[[], Costs]], kernel: Kernel, baseline: Costs, tell: Callable[[str], None]) -> list[str]:
    """The stages that stay slower however often they are measured."""
    costs = one_set(builds, kernel)
    for stage, known in baseline.items():
        tell(f"{stage:<32} {costs.get(stage, 0):8.2f} kernels, baseline {known:8.2f}: {costs.get(stage, 0) / known:5.2f}x")
    slow = slower(costs, baseline)
    for _ in range(SETS - 1):
        if not slow:
            break
        tell(f"measured again: {', '.join(slow)}")
        names = {stage.partition(":")[0] for stage in slow}
        again = one_set({name: build for name, build in builds.items() if name in names}, kernel)
        slow = [stage for stage in slow if again[stage] > GROWTH * baseline[stage]]
    return slow


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="make a new baseline")
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    # What writes the log's records or starts Spark's processes has no part in the measuring.
    with place() as folder:
        kernel, out = Kernel(), folder / "out"
        for kind in KINDS:
            synthetic_log(folder / kind, kind, LOG_BYTES, given.seed)
        builds: dict[str, Callable[[], Costs]] = {
            kind: (lambda store=folder / kind: build_locally(store, out))  # type: ignore[misc]
            for kind in KINDS
        }
        spark = SparkBuilds()
        builds[SPARK] = lambda: spark.build(folder / "orders", out)
        try:
            for name, build in builds.items():
                for _ in range(SPARK_WARM if name == SPARK else 1):
                    build()
            if given.write:
                # A JVM gets faster with each build: what is compared is its first set.
                later = {name: build for name, build in builds.items() if name != SPARK}
                sets = [one_set(builds, kernel), *(one_set(later, kernel) for _ in range(SETS - 1))]
                costs = {stage: round(median(s[stage] for s in sets if stage in s), 3) for stage in sets[0]}
                costs = {stage: cost for stage, cost in costs.items() if cost >= LEAST_COST}
                BASELINE.write_text(json.dumps(costs, indent=1) + "\n", encoding="utf-8")
                print(BASELINE.read_text(encoding="utf-8"), end="")
                return 0
            baseline = json.loads(BASELINE.read_text(encoding="utf-8"))
            slow = guard(builds, kernel, baseline, lambda text: print(text, flush=True))
        finally:
            spark.stop()
    for stage in slow:
        print(f"slower by more than half: {stage}: see tests/bench/guard.py", file=sys.stderr)
    return 1 if slow else 0


if __name__ == "__main__":
    assert threading.current_thread() is threading.main_thread()
    sys.exit(main())
