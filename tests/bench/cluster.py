"""One executor of one core against two: each its own warmed session on one standalone cluster of this machine, in turn."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.logs import BENCH, ROOT
from tests.bench.remote import remote
from tests.tools.faulty_cluster import cluster

EXECUTORS = (1, 2)
TARGET = 1.6


def _settings(executors: int) -> dict[str, str]:
    return {
        "spark.cores.max": str(executors),
        "spark.executor.cores": "1",
        # This tree's code, whatever is installed.
        "spark.executorEnv.PYTHONPATH": str(ROOT),
    }


def race_executors(store: Path, out: Path, rounds: int, warm_up: int) -> dict[str, Any]:
    """Seconds of builds by number of executors, and the ratio of the medians."""
    seconds: dict[int, list[float]] = {count: [] for count in EXECUTORS}
    with contextlib.ExitStack() as stack:
        # Beside the logs, for the shuffle's files as well.
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cluster-", dir=BENCH)))
        found = stack.enter_context(cluster(place / "spark"))
        sessions = {
            count: stack.enter_context(remote(found.url, found.client(place / f"driver-{count}", _settings(count))))
            for count in EXECUTORS
        }
        for number in range(-warm_up, rounds):
            for count, session in sessions.items():
                run = session.run(store, out)
                if number >= 0:
                    seconds[count].append(run.build)
    ratio = median(seconds[1]) / median(seconds[2])
    print("orders by executors of one core" + " " * 3 + "      min   median      max")
    for count, values in seconds.items():
        print(f"  {count:<28} {min(values):8.2f} {median(values):8.2f} {max(values):8.2f} s")
    print(f"  two are faster than one: {ratio:.2f}x, at least {TARGET}x", flush=True)
    return {"records": run.records, "seconds": {str(k): v for k, v in seconds.items()}, "ratio": ratio, "target": TARGET}
