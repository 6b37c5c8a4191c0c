"""``make odd-logs N=5000 SEED=1``: random odd logs, built, verified, repaired twice, and started by the real RocketMQ.

    python -m tests.repair.odd_sweep [--count 5000] [--seed S] [--no-store] [--one SEED]

Exit status 0: all are right; 1: some are not, each told with the seed that repeats it.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.preflight.real import RealStores
from tests.repair.odd_starts import judged, real_stores

TOLD_EVERY = 100


def sweep(seed: int, count: int, *, with_store: bool) -> int:
    """How many logs are not right; tells each."""
    began, wrong, counts = time.monotonic(), 0, Counter[str]()
    real: RealStores | None = None
    with tempfile.TemporaryDirectory(prefix="odd-", ignore_cleanup_errors=True) as folder:
        try:
            for number in range(seed, seed + count):
                if with_store:
                    real = real_stores(Path(folder), number, real)
                one = judged(Path(folder), number, real)
                wrong, counts = wrong + bool(one.wrong), counts + one.counts
                for line in one.lines():
                    print(line, flush=True)
                if counts["logs"] % TOLD_EVERY == 0:
                    print(f"{counts['logs']} logs, {wrong} not right, {time.monotonic() - began:.0f} s", flush=True)
        finally:
            if real is not None:
                real.__exit__(None, None, None)
    print(f"{count} logs, {wrong} not right, {time.monotonic() - began:.0f} s: {dict(sorted(counts.items()))}", flush=True)
    return wrong


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.repair.odd_sweep", description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=5000, help="logs (5000)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9), help="the first one (random)")
    parser.add_argument("--no-store", action="store_true", help="do not start the real RocketMQ")
    parser.add_argument("--one", type=int, help="the log of this seed alone")
    args = parser.parse_args(words)
    seed, count = (args.seed, args.count) if args.one is None else (args.one, 1)
    print(f"SEED={seed} N={count}", flush=True)
    return 1 if sweep(seed, count, with_store=not args.no_store) else 0


if __name__ == "__main__":
    sys.exit(main())
