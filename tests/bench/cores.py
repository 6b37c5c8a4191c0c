"""One core against two: each its own warmed session of one process tree that may use no more, builds in turn."""

from __future__ import annotations

import contextlib
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.logs import first_segments
from tests.bench.remote import remote

CORES = (1, 2)
TARGET = 1.85


def race_cores(store: Path, out: Path, rounds: int, warm_up: int) -> dict[str, Any]:
    """Seconds of builds by number of cores, and the ratio of the medians."""
    seconds: dict[int, list[float]] = {count: [] for count in CORES}
    with contextlib.ExitStack() as stack:
        sessions = {count: stack.enter_context(remote(f"local[{count}]", {}, cores=count)) for count in CORES}
        for number in range(-warm_up, rounds):
            for count, session in sessions.items():
                # Spark ends workers that idle for a minute, as while the other session builds.
                session.run(first_segments(store, 1), out)
                run = session.run(store, out)
                if number >= 0:
                    seconds[count].append(run.build)
    ratio = median(seconds[1]) / median(seconds[2])
    print("orders by cores" + " " * 19 + "      min   median      max")
    for count, values in seconds.items():
        print(f"  {count:<28} {min(values):8.2f} {median(values):8.2f} {max(values):8.2f} s")
    print(f"  two are faster than one: {ratio:.2f}x, at least {TARGET}x", flush=True)
    return {"records": run.records, "seconds": {str(k): v for k, v in seconds.items()}, "ratio": ratio, "target": TARGET}
