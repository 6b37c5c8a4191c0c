"""Does memory have a bound that the log does not move? ``python -m tests.bench.memory``: the full numbers, through Spark.

10,000,000 messages in one queue (with them a full IndexFile of 19,999,999 items), 100,000 queues of one message each, records
of 4 MiB across the edges of ranges. Prints the most memory of a Python worker, the JVM (heap of 1 GiB) and the driver; fails
where a bound is passed. The same in small, in one process, is ``peak_of``.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.bench import cases
from tests.bench.logs import BENCH, ROOT
from tests.bench.segment import build_once
from tests.bench.steps import own_memory

MIB = 1 << 20
BOUNDS = {"worker": 512 * MIB, "driver": 512 * MIB, "jvm": 1536 * MIB}
"""Of each process. The JVM's is its heap of 1 GiB with what a JVM needs besides."""
CASES: dict[str, tuple[Callable[[Path], int], list[str]]] = {
    "10,000,000 messages in one queue": (lambda store: cases.one_queue(store, 10_000_000), []),
    "100,000 queues": (lambda store: cases.many_queues(store, 100_000), []),
    "4 MiB across ranges": (lambda store: cases.long_records(store, 8, 64 * MIB), ["--range-size", str(64 * MIB)]),
}


def peak_of(store: Path, out: Path, bucket_bytes: int, **settings: Any) -> tuple[int, dict[str, Any]]:
    """Bytes that a build in one process (``tests.bench.spooled``) takes at most beside what it begins with; its summary."""
    command = [sys.executable, "-m", "tests.bench.spooled", str(store), str(out), str(bucket_bytes), json.dumps(settings)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RuntimeError("the build in a process of its own does not start")
        before = most = own_memory(process.pid)
        process.stdin.write("go\n")
        process.stdin.flush()
        while process.poll() is None:
            most = max(most, own_memory(process.pid))
            time.sleep(0.002)
        return most - before, json.loads(process.stdout.read())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--master", default="local[2]")
    given = parser.parse_args()
    BENCH.mkdir(exist_ok=True)
    store, out, passed = BENCH / "memory", BENCH / "memory-out", True
    for name, (make, words) in CASES.items():
        shutil.rmtree(store, ignore_errors=True)
        size = make(store)
        found = build_once(store, out, ["--master", given.master, *words])
        peak = found["peak_bytes"]
        assert isinstance(peak, dict)
        print(f"{name}: {size:,} bytes, {found['units']:,} units, {found['items']:,} items, {found['files']}")
        print("  " + ", ".join(f"{kind} {bytes_ / MIB:,.0f} MiB of {BOUNDS[kind] // MIB:,}" for kind, bytes_ in peak.items()))
        passed &= all(peak[kind] < bound for kind, bound in BOUNDS.items())
        shutil.rmtree(out, ignore_errors=True)
    shutil.rmtree(store, ignore_errors=True)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
