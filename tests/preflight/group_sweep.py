"""``make preflight LIVES=20 SEED=...``: lives of a real controller group, and what preflight says of each store.

    python -m tests.preflight.group_sweep [--count 20] [--seed S]

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

from tests.preflight.group_lives import VERSION, Life, live
from tests.preflight.real import RealStores

COUNT = 20


def wrong(life: Life) -> list[str]:
    """What does not hold of one life."""
    place = f"RocketMQ {VERSION}, SEED={life.seed}"
    told = [f"{place}, store {name}: {one}" for name, found in life.comparisons.items() for one in found.differences]
    return told if life.same else [*told, f"{place}: the logs differ, or end at {life.ends[0]} and {life.ends[1]}"]


def main(words: list[str] | None = None) -> int:
    """Run it as a command; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.preflight.group_sweep", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=COUNT, help=f"lives ({COUNT})")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9), help="the first one (random)")
    args = parser.parse_args(words)
    print(f"SEED={args.seed} N={args.count}", flush=True)
    began, lines, counts = time.monotonic(), list[str](), Counter[str]()
    with (
        tempfile.TemporaryDirectory(prefix="group-", ignore_cleanup_errors=True) as folder,
        RealStores(VERSION, Path(folder) / "real") as real,
    ):
        for seed in range(args.seed, args.seed + args.count):
            life = live(real, Path(folder) / f"{seed}", seed)
            for line in wrong(life):
                print(line, flush=True)
            lines += wrong(life)
            for found in life.comparisons.values():
                counts += found.counts
            shutil.rmtree(Path(folder) / f"{seed}", ignore_errors=True)
    print(f"{args.count} lives, {sum(counts.values())} statements, {len(lines)} wrong, {time.monotonic() - began:.0f} s")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
