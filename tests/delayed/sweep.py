"""``make delayed N=20 SEED=...``: many brokers that are killed while they deliver, and what their successors deliver.

    python -m tests.delayed.sweep [--count 20] [--seed S] [--versions 4.9.8,5.3.3] [--kinds levels,timers,cut] [--keep DIR]
    python -m tests.delayed.sweep --kinds lives [--jobs 4]

``make restore-lives`` is the second: lives with all kinds of messages (``lives.py``), several side by side, since they wait.

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
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from tests.delayed.cases import Case, levels, mixed, timers
from tests.delayed.cut import run_cut
from tests.delayed.lives import LifeOutcome, run_life
from tests.delayed.run import Outcome, run

VERSIONS = ("4.9.8", "5.3.3", "5.4.0", "5.5.0", "5.5.1")
LIVES = ("4.9.8", "5.3.3", "5.5.1")
KINDS = ("levels", "timers", "cut")
"""``cut``: timer messages whose log is cut, and grows again (``cut.py``)"""
SHOWN = 20
"""What is told one by one of a life"""

T = TypeVar("T")


def case_of(kind: str, version: str, seed: int) -> Case:
    """The case of a seed."""
    return levels(seed) if kind == "levels" else timers(seed, version)


def sweep(version: str, kind: str, seed: int, count: int, keep: Path | None = None) -> int:
    """How many cases of one version and kind go wrong; tells each."""
    began, outcomes, wrong = time.monotonic(), list[Outcome](), 0
    for number in range(seed, seed + count):
        outcome, faults = _in_folder(f"{version}-{kind}-{number}", keep, partial(_run, version, kind, number))
        outcomes += [outcome] if outcome else []
        wrong += bool(faults)
        for fault in faults:
            print(f"RocketMQ {version} {kind}, SEED={number}: {fault}", flush=True)
    due, before = sum(one.due for one in outcomes), sum(one.before for one in outcomes)
    middle = sum(0 < one.before < one.due for one in outcomes)
    print(
        f"{version} {kind}: {count} runs, {wrong} wrong; {due} messages, {before} delivered before, the kill fell amid them "
        f"in {middle} runs; {sum(one.undecided for one in outcomes)} undecided; {time.monotonic() - began:.0f} s",
        flush=True,
    )
    return wrong


def sweep_lives(versions: list[str], seed: int, count: int, jobs: int, keep: Path | None = None) -> int:
    """How many lives go wrong; tells each, ``jobs`` of them side by side."""
    began = time.monotonic()
    asked = [(version, number) for number in range(seed, seed + count) for version in versions]
    with ThreadPoolExecutor(jobs) as pool:
        found = list(pool.map(lambda one: _tell_life(one[0], one[1], keep), asked))
    for version in versions:
        mine = [outcome for (one, _), outcome in zip(asked, found, strict=True) if one == version]
        outcomes = [outcome for outcome in mine if outcome]
        print(
            f"{version}: {len(mine)} lives, {sum(not one or bool(_wrong(one)) for one in mine)} wrong; "
            f"{sum(one.due for one in outcomes)} messages to be delivered, {sum(one.before for one in outcomes)} were before, "
            f"{sum(one.pending for one in outcomes)} transactions pending; {sum(len(one.lost) for one in outcomes)} lost, "
            f"{sum(len(one.twice) for one in outcomes)} twice, {sum(one.by_chance for one in outcomes)} in one of two starts; "
            f"{sum(one.control_twice for one in outcomes)} twice from their own stores",
            flush=True,
        )
    print(f"{time.monotonic() - began:.0f} s", flush=True)
    return sum(not one or bool(_wrong(one)) for one in found)


def _tell_life(version: str, seed: int, keep: Path | None) -> LifeOutcome | None:
    one, wrong = _in_folder(f"{version}-lives-{seed}", keep, partial(_life, version, seed))
    head = f"RocketMQ {version} life, SEED={seed}"
    if one:
        kept = "its own" if one.own else "the build's"
        print(
            f"{head}: {one.end}, {kept} offsets; {one.due} messages, {one.before} delivered before, {one.pending} transactions "
            f"pending; {len(one.lost)} lost, {len(one.twice)} twice, {one.by_chance} in one of two starts; "
            f"{one.control_twice} twice from its own store",
            flush=True,
        )
    for line in wrong[:SHOWN]:
        print(f"{head}: {line}", flush=True)
    return one


def _life(version: str, seed: int, folder: Path) -> tuple[LifeOutcome, tuple[str, ...]]:
    outcome = run_life(version, mixed(seed, version), folder)
    return outcome, _wrong(outcome)


def _wrong(one: LifeOutcome) -> tuple[str, ...]:
    lines = [f"lost: {what}" for what in one.lost] + [f"twice: {what}" for what in one.twice]
    return (*one.faults, *lines)


def _run(version: str, kind: str, seed: int, folder: Path) -> tuple[Outcome, tuple[str, ...]]:
    outcome = run_cut(version, seed, folder) if kind == "cut" else run(version, case_of(kind, version, seed), folder)
    return outcome, outcome.faults


def _in_folder(
    name: str, keep: Path | None, run_there: Callable[[Path], tuple[T, tuple[str, ...]]]
) -> tuple[T | None, tuple[str, ...]]:  # fmt: skip
    """What comes of a case in a folder of its own, which is kept as ``keep``/``name`` if the case goes wrong."""
    folder = Path(tempfile.mkdtemp(prefix="delayed-"))
    outcome: T | None = None
    try:
        outcome, faults = run_there(folder)
    except Exception:  # noqa: BLE001  told, and the next one goes on
        faults = (traceback.format_exc(),)
    if faults and keep:
        shutil.copytree(folder, keep / name, dirs_exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    return outcome, faults


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.delayed.sweep", description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=20, help="runs of each version and kind (20)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9), help="the first one (random)")
    parser.add_argument("--versions", default="", help=f"of RocketMQ ({','.join(VERSIONS)}; lives: {','.join(LIVES)})")
    parser.add_argument("--kinds", default=",".join(KINDS), help=f"of messages ({','.join(KINDS)}), or lives")
    parser.add_argument("--jobs", type=int, default=4, help="lives side by side (4)")
    parser.add_argument("--keep", type=Path, help="a folder for the stores that go wrong")
    args = parser.parse_args(words)
    print(f"SEED={args.seed} N={args.count}", flush=True)
    chosen = [version for version in args.versions.split(",") if version]
    if args.kinds == "lives":
        return 1 if sweep_lives(chosen or [*LIVES], args.seed, args.count, args.jobs, args.keep) else 0
    return 1 if sum(
        sweep(version, kind, args.seed, args.count, args.keep)
        for version in chosen or VERSIONS
        for kind in args.kinds.split(",")
        if not (version.startswith("4.") and kind in ("timers", "cut"))
    ) else 0  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
