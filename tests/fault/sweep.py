"""Sweep over the cases of one kind: ``python -m tests.fault.sweep --kind flips --count 20000 --seed 1``.

A case that fails is printed with the words that repeat it alone. Exit status: 0 all right, 1 some failed.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fault import flips, salvage, sizes, truncations
from tests.fault.case import Case, faults

HANGS_AFTER = 300.0


@dataclass(frozen=True)
class Kind:
    """``make(seed, number)`` gives a case, ``numbers(seed, count)`` those of a sweep; ``big`` is the count of `make fault`."""

    make: Callable[[int, int], Case]
    numbers: Callable[[int, int], Sequence[int]]
    big: int


KINDS = {
    "flips": Kind(flips.make, lambda _, count: range(count), 20_000),
    # What comes always, and so many random ones behind it.
    "truncations": Kind(truncations.make, lambda seed, count: range(truncations.every(seed) + count), 2_000),
    "sizes": Kind(sizes.make, lambda _, count: range(len(sizes.ALL) * max(1, count)), 1),
    # The number is that of damaged places in one log.
    "salvage": Kind(salvage.make, lambda _, count: range(max(1, count - 2), count + 1), 1_000),
}


def sweep(kind: str, seed: int, wanted: Iterable[int], place: Path, tell: Callable[[str], None] = print) -> Counter[str]:
    """Run cases; returns how often each field was hit. Raises AssertionError naming the failed ones when all have run."""
    hit: Counter[str] = Counter()
    failed: list[str] = []
    for number in wanted:
        case = KINDS[kind].make(seed, number)
        hit[case.field] += 1
        watchdog = threading.Timer(HANGS_AFTER, _hangs, [str(case)])
        watchdog.daemon = True
        watchdog.start()
        wrong = faults(case, place)
        watchdog.cancel()
        if wrong:
            failed.append(f"{case}\n    " + "\n    ".join(wrong))
            tell(f"FAILED {failed[-1]}")
    assert not failed, f"{len(failed)} of {sum(hit.values())} failed:\n" + "\n".join(failed[:20])
    return hit


def warm_up(place: Path) -> None:
    """Compile the record loops, which may take a minute, outside of any case's time."""
    faults(sizes.make(0, 0), place, seconds=HANGS_AFTER)


def _hangs(case: str) -> None:
    print(f"HANGS {case}", file=sys.stderr, flush=True)
    os._exit(1)


def scratch() -> str | None:
    """A folder in memory where there is one: a sweep writes and syncs hundreds of thousands of small files."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fault.sweep", description=__doc__)
    parser.add_argument("--kind", required=True, choices=list(KINDS))
    parser.add_argument(
        "--count", type=int, help="cases; of truncations and sizes beside those that come always; of salvage places in one log"
    )
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", type=int, help="one case alone, by its number")
    words = parser.parse_args()
    seed = random.SystemRandom().randrange(2**31) if words.seed is None else words.seed
    count = KINDS[words.kind].big if words.count is None else words.count
    wanted = [words.only] if words.only is not None else KINDS[words.kind].numbers(seed, count)
    print(f"{words.kind}: {len(wanted)} cases, --seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(dir=scratch()) as folder:
        warm_up(Path(folder) / "case")
        begin = time.monotonic()
        try:
            hit = sweep(words.kind, seed, wanted, Path(folder) / "case", lambda text: print(text, flush=True))
        except AssertionError as error:
            print(str(error).splitlines()[0])
            return 1
    print(f"{words.kind}: {sum(hit.values())} cases right in {time.monotonic() - begin:.0f} s, {len(hit)} fields hit, "
          f"each {min(hit.values())} to {max(hit.values())} times")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
