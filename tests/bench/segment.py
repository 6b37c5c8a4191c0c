"""One segment of 1 GiB, made by RocketMQ's own encoder, through the whole command on two cores: time and memory.

``make segment``: generates the log with tests/oracle (once, kept in .bench/), builds it with a JVM heap of 1 GiB, samples the
memory of every process, then builds it again and again in one session. Fails when a Python worker or the heap passes 1 GiB.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.bench.logs import GIB, ROOT, make_log
from tests.tools.faulty_processes import command


def memory_by_kind(root: int) -> dict[str, int]:
    """Resident bytes of the largest Python worker, of the JVM and of the driver, below process ``root``."""
    parents, names, resident = {}, {}, {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            status = Path(entry.path, "status").read_text()
        except OSError:
            continue
        fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        number = int(entry.name)
        parents[number] = int(fields["PPid"])
        names[number] = fields["Name"].strip()
        # Memory of its own: the log's pages in the page cache, mapped or not, are shared by all.
        resident[number] = int(fields.get("RssAnon", "0 kB").split()[0]) * 1024
    found = {"driver": 0, "jvm": 0, "worker": 0}
    for number, size in resident.items():
        above, chain = number, []
        while above in parents and above != root:
            chain.append(above)
            above = parents[above]
        if above != root:
            continue
        kind = "driver" if number == root else "jvm" if names[number] == "java" else "worker"
        found[kind] = max(found[kind], size)
    return found


def build_once(store: Path, out: Path, more: list[str]) -> dict[str, object]:
    """One run of the command as a user would start it, with the peak memory of its processes."""
    started = command(store, out, "--overwrite", *more)
    begin = time.monotonic()
    peak = {"driver": 0, "jvm": 0, "worker": 0}
    with subprocess.Popen(started, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT, text=True) as process:
        while process.poll() is None:
            for kind, size in memory_by_kind(process.pid).items():
                peak[kind] = max(peak[kind], size)
            time.sleep(0.05)
        assert process.stdout is not None
        summary = json.loads(process.stdout.read())
    if summary["exit"] != 0:
        raise SystemExit(f"the build failed: {summary['error']}")
    return {"process_seconds": round(time.monotonic() - begin, 1), "peak_bytes": peak, **summary}


def build_warm(store: Path, out: Path, times: int) -> list[float]:
    """Seconds of builds one after another in one session: the first pays for the warming up."""
    from rocketmq_reindex.jobs.build import build
    from rocketmq_reindex.jobs.spark.session import get_session

    spark, _ = get_session("local[2]")
    seconds = []
    for _ in range(times):
        shutil.rmtree(out, ignore_errors=True)
        begin = time.monotonic()
        if build([str(store), "--out", str(out)]) != 0:
            raise SystemExit("the build failed")
        seconds.append(round(time.monotonic() - begin, 2))
    spark.stop()
    return seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="orders", choices=("orders", "small", "large"))
    parser.add_argument("--bytes", type=int, default=GIB)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--warm", type=int, default=4)
    given = parser.parse_args()
    store = make_log(given.preset, given.bytes, given.seed)
    out = ROOT / ".bench" / "out"
    found = build_once(store, out, ["--master", "local[2]"])
    peak = found["peak_bytes"]
    assert isinstance(peak, dict)
    print(f"command: {found['process_seconds']} s, of it {found['seconds']}; {found['records']:,} records")
    print("peak memory: " + ", ".join(f"{kind} {size / 2**20:,.0f} MiB" for kind, size in peak.items()))
    warm = build_warm(store, out, given.warm)
    print(f"in one session: {warm} s, best {int(str(found['records'])) / min(warm):,.0f} records/s")
    shutil.rmtree(out, ignore_errors=True)
    return 0 if peak["worker"] < GIB else 1


if __name__ == "__main__":
    sys.exit(main())
