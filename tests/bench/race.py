"""``make bench``: RocketMQ's own rebuild against ours, turn by turn on the same machine, same logs, warm page cache.

Three logs by the real encoder; first both must have written the same bytes. Prints each side's minimum, median and maximum
and the ratio of the medians; ``--json FILE`` keeps all figures for the page (``tests/bench/page.py``).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from statistics import median

from tests.bench.logs import BENCH, GIB, make_log, warm_page_cache
from tests.bench.same import check_same
from tests.bench.sides import PEER, Run, Session, run_command, run_peer

LOGS = {"orders": 8 * GIB, "small": 4 * GIB, "large": 4 * GIB}
TARGETS = {"orders": 4.0, "small": 8.0, "large": 1.5}


def describe_machine() -> dict[str, str]:
    cpu = next(
        (line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), "?"
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": cpu,
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory / GIB:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "peer": f"RocketMQ {PEER}",
    }


def show(name: str, runs: list[float], records: int) -> str:
    middle = median(runs)
    return f"  {name:<28} {min(runs):8.2f} {middle:8.2f} {max(runs):8.2f} s   {records / middle:12,.0f} records/s"


def race(preset: str, size: int, given: argparse.Namespace, session: Session) -> dict[str, object]:
    """All rounds of one log."""
    store = make_log(preset, size, given.seed)
    ours, peer = BENCH / "ours", BENCH / "peer"
    turns: dict[str, Callable[[], Run]] = {
        "peer": lambda: run_peer(store, peer),
        "build": lambda: session.run(store, ours),
        "process": lambda: run_command(store, ours, given.master),
    }
    warm_page_cache(store)
    # The session's first builds, and the store's first reading, are not timed; what they wrote is compared.
    turns["peer"]()
    turns["build"]()
    compared = check_same(ours, peer)
    print(f"{preset}, {size / GIB:g} GiB: {compared} files equal, byte for byte", flush=True)
    runs: dict[str, list[Run]] = {name: [] for name in turns}
    for _ in range(given.rounds):
        for name, turn in turns.items():
            runs[name].append(turn())
    shutil.rmtree(ours, ignore_errors=True)
    shutil.rmtree(peer, ignore_errors=True)
    seconds = {
        "peer": [run.build for run in runs["peer"]],
        "peer process": [run.process for run in runs["peer"]],
        "build": [run.build for run in runs["build"]],
        "process": [run.process for run in runs["process"]],
    }
    records = runs["build"][0].records
    print(f"  {records:,} records{'':<14}      min   median      max")
    for name, values in seconds.items():
        print(show(name, values, records))
    ratios = {
        "build": median(seconds["peer"]) / median(seconds["build"]),
        "process": median(seconds["peer"]) / median(seconds["process"]),
    }
    print(
        f"  ratio of medians: build {ratios['build']:.2f}x (target {TARGETS[preset]}), process {ratios['process']:.2f}x",
        flush=True,
    )
    return {
        "preset": preset,
        "bytes": size,
        "records": records,
        "seconds": seconds,
        "ratios": ratios,
        "runs": {name: [asdict(run) for run in found] for name, found in runs.items()},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", default=",".join(LOGS), help="presets, separated by commas")
    parser.add_argument("--scale", type=float, default=1.0, help="of the logs' sizes: 0.125 takes 1 GiB of orders")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    session = Session(given.master)
    found = [race(preset, int(LOGS[preset] * given.scale), given, session) for preset in given.logs.split(",")]
    session.stop()
    if given.json:
        given.json.write_text(json.dumps({"machine": describe_machine(), "races": found}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
