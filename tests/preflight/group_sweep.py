"""``make preflight LIVES=20 SEED=...``: lives of a real controller group, and what preflight says of each store.

    python -m tests.preflight.group_sweep [--count 20] [--seed S] [--version 5.5.0,5.5.1]

The master is killed amid writes, the slave promoted, and killed: the start of either store, and the role of a master after it,
are compared with what preflight says. Then both start again, and the old master copies the new one's log. Exit status 0: every
statement holds, and the logs are the same; 1: some do not, or are not.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.preflight.group_lives import VERSIONS, Life, live
from tests.preflight.real import RealStores

COUNT = 20


def wrong(life: Life) -> list[str]:
    """What does not hold of one life."""
    place = f"RocketMQ {life.version}, SEED={life.seed}"
    told = [f"{place}, store {name}: {one}" for name, found in life.comparisons.items() for one in found.differences]
    return told if life.same else [*told, f"{place}: the logs differ, or end at {life.ends[0]} and {life.ends[1]}"]


def main(words: list[str] | None = None) -> int:
    """Run it as a command; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.preflight.group_sweep", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=COUNT, help=f"lives ({COUNT})")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9), help="the first one (random)")
    parser.add_argument("--version", default=",".join(VERSIONS), help="RocketMQ versions, by commas (all that have a broker)")
    args = parser.parse_args(words)
    print(f"SEED={args.seed} N={args.count}", flush=True)
    return 1 if sum(run(version, args.seed, args.count) for version in args.version.split(",")) else 0


def run(version: str, first: int, count: int) -> int:
    """Some lives of one version; return how much does not hold, each told by a line."""
    began, lines, counts = time.monotonic(), list[str](), Counter[str]()
    with (
        tempfile.TemporaryDirectory(prefix="group-", ignore_cleanup_errors=True) as folder,
        RealStores(version, Path(folder) / "real") as real,
    ):
        for seed in range(first, first + count):
            life = live(real, Path(folder) / f"{seed}", seed)
            for line in wrong(life):
                print(line, flush=True)
            lines += wrong(life)
            for found in life.comparisons.values():
                counts += found.counts
            shutil.rmtree(Path(folder) / f"{seed}", ignore_errors=True)
    seconds = time.monotonic() - began
    print(f"{version}: {count} lives, {sum(counts.values())} statements, {len(lines)} wrong, {seconds:.0f} s", flush=True)
    return len(lines)


if __name__ == "__main__":
    sys.exit(main())
