"""``make repair N=500 SEED=...``: damaged stores of the real RocketMQ, each repaired, then started by the real one.

    python -m tests.repair.sweep [--count 500] [--seed S] [--version 4.9.8,5.3.3,5.4.0,5.5.1] [--one SEED]

Exit status 0: all are right; 1: some are not, each told with the seed that repeats it.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.preflight.real import RealStores
from tests.preflight.seeds import based
from tests.repair.bases import make_base
from tests.repair.judge import Verdict, judge

VERSIONS = ("4.9.8", "5.3.3", "5.4.0", "5.5.1")
TOLD_EVERY = 25
PER_BASE = 5
"""Stores that are damaged from one sound one."""


def judged(real: RealStores, scratch: Path, seed: int, count: int) -> Iterator[Verdict]:
    """The stores of the seeds from ``seed`` on."""
    for number, base in based(make_base, real, scratch, range(seed, seed + count), PER_BASE):
        yield judge(real, base, scratch, number)


def sweep(version: str, seed: int, count: int) -> int:
    """How many stores of one version are not right; tells each."""
    began, wrong = time.monotonic(), 0
    counts, kinds = Counter[str](), Counter[str]()
    with (
        tempfile.TemporaryDirectory(prefix="repair-", ignore_cleanup_errors=True) as folder,
        RealStores(version, Path(folder)) as real,
    ):
        for one in judged(real, Path(folder), seed, count):
            wrong += bool(one.wrong)
            counts += one.counts
            kinds[one.kind.split(" (")[0]] += 1
            for line in one.lines(version):
                print(line, flush=True)
            if counts["stores"] % TOLD_EVERY == 0:
                print(f"{version}: {counts['stores']} stores, {wrong} not right", flush=True)
    print(f"{version}: {count} stores, {wrong} not right, {time.monotonic() - began:.0f} s", flush=True)
    print(f"{version}: {dict(sorted(counts.items()))} {dict(sorted(kinds.items()))}", flush=True)
    return wrong


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.repair.sweep", description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=500, help="stores of each version (500)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9), help="the first one (random)")
    parser.add_argument("--version", default=",".join(VERSIONS), help=f"of RocketMQ ({','.join(VERSIONS)})")
    parser.add_argument("--one", type=int, help="the store of this seed alone")
    args = parser.parse_args(words)
    seed, count = (args.seed, args.count) if args.one is None else (args.one, 1)
    print(f"SEED={seed} N={count}", flush=True)
    return 1 if sum(sweep(version, seed, count) for version in args.version.split(",")) else 0


if __name__ == "__main__":
    sys.exit(main())
