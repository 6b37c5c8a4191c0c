"""``make oracle N=500 SEED=...``: many scenarios of the real store, batch after batch, each with its verdict.

    python -m tests.oracle.sweep [--count 500] [--seed S] [--versions 5.5.1,4.9.8] [--kinds plain,closed] [--keep DIR]

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
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.oracle.closed import judge_closed
from tests.oracle.cuts import judge_cuts
from tests.oracle.judge import judge
from tests.oracle.scenarios import CLOSED, PLAIN, STALE, VERSIONS, Scenario, make
from tests.oracle.stale import judge_stale

BATCH = 50


class Kind(NamedTuple):
    """What is made of a seed, who judges it, and to how many plain scenarios one of these comes."""

    made: str
    judge: Callable[[Scenario, Path], list[str]]
    share: int


KINDS = {
    "plain": Kind(PLAIN, judge, 1),
    "stale": Kind(STALE, judge_stale, 5),
    "closed": Kind(CLOSED, judge_closed, 5),
    "cut": Kind(PLAIN, judge_cuts, 10),
}


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.oracle.sweep", description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=500, help="plain scenarios of each version (500); fewer of other kinds")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9), help="the first one (random)")
    parser.add_argument("--versions", default=",".join(VERSIONS), help=f"of RocketMQ ({','.join(VERSIONS)})")
    parser.add_argument("--kinds", default=",".join(KINDS), help=f"of scenarios ({','.join(KINDS)})")
    parser.add_argument("--keep", type=Path, help="a folder for the stores that differ")
    args = parser.parse_args(words)
    print(f"SEED={args.seed} N={args.count}", flush=True)
    wrong = sum(
        sweep(version, kind, args.seed, -(-args.count // KINDS[kind].share), args.keep)
        for version in args.versions.split(",")
        for kind in args.kinds.split(",")
    )
    return 1 if wrong else 0


def sweep(version: str, kind: str, seed: int, count: int, keep: Path | None) -> int:
    """How many scenarios of one version and kind differ; tells each."""
    began, wrong, seen, unloadable = time.monotonic(), 0, 0, 0
    features: Counter[str] = Counter()
    for first in range(seed, seed + count, BATCH):
        with tempfile.TemporaryDirectory(prefix="oracle-") as folder:
            for scenario in make(version, first, min(BATCH, seed + count - first), Path(folder) / "stores", KINDS[kind].made):
                seen += 1
                features.update(scenario.settings["features"])
                if scenario.unusable:
                    unloadable += 1
                    continue
                found = KINDS[kind].judge(scenario, Path(folder) / "out")
                wrong += bool(found)
                for line in found:
                    print(line, flush=True)
                if found and keep:
                    shutil.copytree(scenario.path, keep / version / kind / scenario.path.name, dirs_exist_ok=True)
        seconds = time.monotonic() - began
        print(
            f"{version} {kind}: {seen} scenarios, {wrong} differ, "
            f"{unloadable} the real store itself does not load or close, {seconds:.0f} s",
            flush=True,
        )
    print(f"{version} {kind}: {dict(sorted(features.items()))}", flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
