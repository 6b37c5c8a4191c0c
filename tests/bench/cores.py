"""One core against two: each its own warmed session of one process tree that may use no more, builds in turn. Both engines.

Of the local engine, whose processes end with each command, the build counts, and not the start.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.logs import first_segments
from tests.bench.remote import remote
from tests.bench.sides import run_command

CORES = (1, 2)
TARGET = 1.85


@contextlib.contextmanager
def held_to(count: int) -> Iterator[None]:
    """This process, and those that it starts meanwhile, use no more than so many cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def race_cores(store: Path, out: Path, rounds: int, warm_up: int) -> dict[str, Any]:
    """Seconds of builds by engine and number of cores, and of each engine the ratio of the medians."""
    seconds: dict[str, dict[int, list[float]]] = {
        "spark": {count: [] for count in CORES},
        "local": {count: [] for count in CORES},
    }
    with contextlib.ExitStack() as stack:
        sessions = {count: stack.enter_context(remote(f"local[{count}]", {}, cores=count)) for count in CORES}
        for number in range(-warm_up, rounds):
            for count, session in sessions.items():
                # Spark ends workers that idle for a minute, as while the other session builds.
                session.run(first_segments(store, 1), out)
                run = session.run(store, out)
                if number >= 0:
                    seconds["spark"][count].append(run.build)
                    with held_to(count):
                        seconds["local"][count].append(run_command(store, out, f"local[{count}]", "local").build)
    ratios = {engine: median(found[1]) / median(found[2]) for engine, found in seconds.items()}
    print("orders by cores" + " " * 19 + "      min   median      max")
    for engine, found in seconds.items():
        for count, values in found.items():
            print(f"  {f'{engine}, {count}':<28} {min(values):8.2f} {median(values):8.2f} {max(values):8.2f} s")
        print(f"  {engine}: two are faster than one: {ratios[engine]:.2f}x, at least {TARGET}x", flush=True)
    told = {engine: {str(count): values for count, values in found.items()} for engine, found in seconds.items()}
    return {"records": run.records, "seconds": told["spark"], "ratio": ratios["spark"], "target": TARGET,
            "local": {"seconds": told["local"], "ratio": ratios["local"]}}  # fmt: skip
