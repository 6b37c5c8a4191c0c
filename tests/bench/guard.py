"""A guard against getting slower: what each stage of a build costs, beside fixed pieces of work on the same machine.

    python -m tests.bench.guard            compares with baseline.json: exit status 1 where a stage has grown by more than half
    python -m tests.bench.guard --write    makes a new baseline

Small logs of three kinds are built in this process, and one in a Spark session. Costs are processor time, not time on the
clock, so that others on the machine hardly count. Before, between and after the builds the kernel does its pieces of work:
one in the caches, one through memory, one of page faults. A stage is a mix of the three, so on another machine, or beside
others, it is slower by no more than the slowest of them: it counts as grown by what it grew beyond that one. All times are
the least of five rounds. A stage that looks slow is measured again, three times at most: a real loss is there each time.
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
"""Stages below this part of the kernel's work are too short to be told apart from chance; the whole build has them."""
STAGE, WORK = "stage", "work"
"""a stage's own seconds, and those of the kernel's piece in the caches, by name"""
SPARK, SPARK_WARM, SPARK_GROWTH = "spark", 4, 2.5
"""the first builds of a JVM are not counted; how much it compiles and collects after them differs from run to run"""

Costs = dict[str, float]
Set = dict[str, Costs]
"""by stage: its seconds, and those of each piece of the kernel beside it"""


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


def least(first: Costs, *others: Costs) -> Costs:
    return {name: min([seconds, *(other[name] for other in others if name in other)]) for name, seconds in first.items()}


def one_round(builds: dict[str, Callable[[], Costs]], kernel: Kernel) -> tuple[Costs, Costs]:
    """Seconds of each stage of each build, and the least of each piece of the kernel before, between and after them."""
    stages: Costs = {}
    pieces = [kernel.seconds()]
    for name, build in builds.items():
        stages |= {f"{name}: {stage}": seconds for stage, seconds in build().items()}
        pieces.append(kernel.seconds())
    return stages, least(*pieces)


def one_set(builds: dict[str, Callable[[], Costs]], kernel: Kernel, rounds: int = ROUNDS) -> Set:
    """What each stage of each build costs, and beside it the kernel's pieces: the least of some rounds."""
    found: Set = {}
    # Spark ends a Python worker that has idled for a minute: its builds do not wait for others.
    alone = [{name: build} for name, build in builds.items() if name == SPARK]
    others = {name: build for name, build in builds.items() if name != SPARK}
    for group in filter(None, [others, *alone]):
        stages, pieces = zip(*(one_round(group, kernel) for _ in range(rounds)), strict=True)
        found |= {stage: {STAGE: seconds, **least(*pieces)} for stage, seconds in least(*stages).items()}
    return found


def growth(costs: Costs, baseline: Costs) -> float:
    """How many times dearer a stage is than by the baseline, beyond what the machine's slowest piece explains."""
    return min(costs[STAGE] / baseline[STAGE] * baseline[piece] / costs[piece] for piece in baseline if piece != STAGE)


def has_grown(stage: str, found: Set, baseline: Set) -> bool:
    return growth(found[stage], baseline[stage]) > (SPARK_GROWTH if stage.startswith(SPARK) else GROWTH)


def slower(found: Set, baseline: Set) -> list[str]:
    """Stages that have grown by more than half, or Spark's build. AssertionError where they are not the baseline's stages."""
    known = {stage for stage, costs in found.items() if stage in baseline or costs[STAGE] >= 2 * LEAST_COST * costs[WORK]}
    assert known == set(baseline), (
        f"not the stages of the baseline: {sorted(known ^ set(baseline))}: python -m tests.bench.guard --write"
    )
    return [stage for stage in baseline if has_grown(stage, found, baseline)]


def guard(builds: dict[str, Callable[[], Costs]], kernel: Kernel, baseline: Set, tell: Callable[[str], None]) -> list[str]:
    """The stages that stay slower however often they are measured."""
    found = one_set(builds, kernel)
    for stage, known in baseline.items():
        costs = found.get(stage)
        told = ", ".join(f"{piece} {costs[piece] / known[piece]:.2f}x" for piece in known) if costs else "not built"
        tell(f"{stage:<32} {growth(costs, known) if costs else 0:5.2f}x    in seconds: {told}")
    slow = slower(found, baseline)
    for _ in range(SETS - 1):
        if not slow:
            break
        tell(f"measured again: {', '.join(slow)}")
        names = {stage.partition(":")[0] for stage in slow}
        again = one_set({name: build for name, build in builds.items() if name in names}, kernel)
        slow = [stage for stage in slow if has_grown(stage, again, baseline)]
    return slow


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="make a new baseline")
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    # What writes the log's records or starts Spark's processes has no part in the measuring.
    with place() as folder:
        kernel, out = Kernel(folder), folder / "out"
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
                costs = {
                    stage: {name: round(median(s[stage][name] for s in sets if stage in s), 5) for name in found}
                    for stage, found in sets[0].items()
                }
                costs = {stage: found for stage, found in costs.items() if found[STAGE] >= LEAST_COST * found[WORK]}
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
