"""``make oracle N=500 SEED=...``: many scenarios of the real store, batch after batch, each with its verdict.

    python -m tests.oracle.sweep [--count 500] [--seed S] [--versions 5.3.3,4.9.8] [--keep DIR]

Exit status 0: all equal; 1: some differ, each told by seed, file and field.
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

from tests.oracle.judge import judge
from tests.oracle.scenarios import UNCLEAN, UNLOADABLE, VERSIONS, make
from tests.oracle.stale import judge_stale

BATCH = 50
TRUNCATED = 5
"""One truncated store comes to so many others."""


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.oracle.sweep", description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=500, help="scenarios of each version (500)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9), help="the first one (random)")
    parser.add_argument("--versions", default=",".join(VERSIONS), help=f"of RocketMQ ({','.join(VERSIONS)})")
    parser.add_argument("--keep", type=Path, help="a folder for the stores that differ")
    args = parser.parse_args(words)
    print(f"SEED={args.seed} N={args.count}", flush=True)
    wrong = sum(
        sweep(version, args.seed, count, args.keep, stale=stale)
        for version in args.versions.split(",")
        for stale, count in ((False, args.count), (True, -(-args.count // TRUNCATED)))
    )
    return 1 if wrong else 0


def sweep(version: str, seed: int, count: int, keep: Path | None, *, stale: bool = False) -> int:
    """How many scenarios of one version differ; tells each. ``stale``: of truncated stores."""
    began, wrong, seen, unloadable = time.monotonic(), 0, 0, 0
    features: Counter[str] = Counter()
    for first in range(seed, seed + count, BATCH):
        with tempfile.TemporaryDirectory(prefix="oracle-") as folder:
            for scenario in make(version, first, min(BATCH, seed + count - first), Path(folder) / "stores", stale=stale):
                seen += 1
                features.update(scenario.settings["features"])
                if (scenario.failure == UNLOADABLE and not scenario.keeps_empty_files) or scenario.failure == UNCLEAN:
                    unloadable += 1
                    continue
                found = (judge_stale if stale else judge)(scenario, Path(folder) / "out")
                wrong += bool(found)
                for line in found:
                    print(line, flush=True)
                if found and keep:
                    shutil.copytree(scenario.path, keep / version / scenario.path.name, dirs_exist_ok=True)
        seconds = time.monotonic() - began
        print(
            f"{version}{' truncated' if stale else ''}: {seen} scenarios, {wrong} differ, "
            f"{unloadable} the real store itself does not load or close, {seconds:.0f} s",
            flush=True,
        )
    print(f"{version}: {dict(sorted(features.items()))}", flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
