"""``make delayed N=20 SEED=...``: many brokers that are killed while they deliver, and what their successors deliver.

    python -m tests.delayed.sweep [--count 20] [--seed S] [--versions 4.9.8,5.3.3] [--kinds levels,timers] [--keep DIR]

Exit status 0: every message is delivered exactly once, or told to be undecided; 1: some are not, each told with its seed.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.delayed.cases import Case, levels, timers
from tests.delayed.run import Outcome, run

VERSIONS = ("4.9.8", "5.3.3", "5.4.0", "5.5.0")
KINDS = ("levels", "timers")


def case_of(kind: str, version: str, seed: int) -> Case:
    """The case of a seed."""
    return levels(seed) if kind == "levels" else timers(seed, version)


def sweep(version: str, kind: str, seed: int, count: int, keep: Path | None = None) -> int:
    """How many cases of one version and kind go wrong; tells each."""
    began, outcomes, wrong = time.monotonic(), list[Outcome](), 0
    for number in range(seed, seed + count):
        folder = Path(tempfile.mkdtemp(prefix="delayed-"))
        try:
            outcome = run(version, case_of(kind, version, number), folder)
            outcomes.append(outcome)
            faults = outcome.faults
        except Exception:  # noqa: BLE001  told, and the next run goes on
            faults = (traceback.format_exc(),)
        wrong += bool(faults)
        for fault in faults:
            print(f"RocketMQ {version} {kind}, SEED={number}: {fault}", flush=True)
        if faults and keep:
            shutil.copytree(folder, keep / f"{version}-{kind}-{number}", dirs_exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
    due, before = sum(one.due for one in outcomes), sum(one.before for one in outcomes)
    middle = sum(0 < one.before < one.due for one in outcomes)
    print(
        f"{version} {kind}: {count} runs, {wrong} wrong; {due} messages, {before} delivered before, the kill fell amid them "
        f"in {middle} runs; {sum(one.undecided for one in outcomes)} undecided; {time.monotonic() - began:.0f} s",
        flush=True,
    )
    return wrong


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.delayed.sweep", description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=20, help="runs of each version and kind (20)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9), help="the first one (random)")
    parser.add_argument("--versions", default=",".join(VERSIONS), help=f"of RocketMQ ({','.join(VERSIONS)})")
    parser.add_argument("--kinds", default=",".join(KINDS), help=f"of messages ({','.join(KINDS)})")
    parser.add_argument("--keep", type=Path, help="a folder for the stores that go wrong")
    args = parser.parse_args(words)
    print(f"SEED={args.seed} N={args.count}", flush=True)
    return 1 if sum(
        sweep(version, kind, args.seed, args.count, args.keep)
        for version in args.versions.split(",")
        for kind in args.kinds.split(",")
        if not (version.startswith("4.") and kind == "timers")
    ) else 0  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
