"""``make preflight N=1000 SEED=...``: many spoilt stores, each predicted, then started by the real store, then compared.

    python -m tests.preflight.sweep [--count 1000] [--seed S] [--version 4.9.8,5.3.3,5.4.0,5.5.1] [--one SEED]

Exit status 0: every statement holds; 1: some do not, each told with the seed of its store.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.preflight.bases import Base, make_base
from tests.preflight.compare import Comparison, Outcome, compare
from tests.preflight.disk import read_disk
from tests.preflight.log_walk import read_log
from tests.preflight.predicted import predict
from tests.preflight.real import LIFETIME, RealStores
from tests.preflight.seeds import based
from tests.preflight.spoil import Spoilt, spoil

VERSIONS = ("4.9.8", "5.3.3", "5.4.0", "5.5.1")
PER_BASE = 25
"""Stores that are spoilt from one sound one."""


@dataclass(frozen=True)
class Judged:
    """One store: its seed, what befell it, and what came of the comparison; ``unsaid`` is why there is none."""

    seed: int
    spoilt: Spoilt
    comparison: Comparison | None
    loads: bool
    unsaid: str = ""

    def lines(self, release: str) -> list[str]:
        """What is wrong."""
        if not self.comparison:
            return []
        settings = ["abort"] if self.spoilt.abnormal else []
        settings += [f"{name}={value}" for name, value in self.spoilt.conf.more.items()]
        place = f"RocketMQ {release}, SEED={self.seed} {' '.join(settings)} ({'; '.join(self.spoilt.deeds)})"
        return [f"{place}: {difference}" for difference in self.comparison.differences]


def judged(real: RealStores, scratch: Path, seed: int, count: int) -> Iterator[Judged]:
    """The stores of the seeds from ``seed`` on."""
    for number, base in based(make_base, real, scratch, range(seed, seed + count), PER_BASE):
        yield judge(real, base, scratch, number)


def judge(real: RealStores, base: Base, scratch: Path, seed: int) -> Judged:
    """One spoilt copy of ``base``."""
    spoilt, said, outcome = try_store(real, base, scratch, seed)
    if isinstance(said, str):
        return Judged(seed, spoilt, None, outcome.told.loads, said)
    return Judged(seed, spoilt, compare(said, outcome), outcome.told.loads)


def try_store(real: RealStores, base: Base, scratch: Path, seed: int) -> tuple[Spoilt, dict[str, Any] | str, Outcome]:
    """Spoil a copy, predict its start, and start it."""
    store = scratch / str(seed)
    shutil.copytree(base.path, store)
    spoilt = spoil(store, base.sizes, seed)
    said = predict(store, real.release, spoilt.conf, scratch)
    before = read_disk(store, base.sizes.hash_slots)
    log = read_log(store / "commitlog", real.release, spoilt.conf.flag("checkCRCOnRecover", True))
    last = last_bytes(store)
    told = real.start(store, spoilt.conf)
    after = read_disk(store, base.sizes.hash_slots)
    if told.loads:
        real.leave(store)
    shutil.rmtree(store, ignore_errors=True)
    end, filler = end_of(last, told.max_offset)
    indexed = spoilt.conf.flag("messageIndexEnable", True)
    reputs = real.release.startswith("4.") or spoilt.conf.flag("recheckReputOffsetFromCq", False)
    return spoilt, said, Outcome(real.release, spoilt.abnormal, told, before, after, log, end, filler, indexed, reputs)


def last_bytes(store: Path) -> list[tuple[int, bytes]]:
    """(offset of its first byte, bytes up to the last that is not zero) of each segment."""
    folder = store / "commitlog"
    paths = sorted(path for path in folder.iterdir() if path.is_file() and path.name.isdigit()) if folder.is_dir() else []
    return [(int(path.name), path.read_bytes().rstrip(b"\0")) for path in paths if path.stat().st_size]


def end_of(segments: list[tuple[int, bytes]], max_offset: int) -> tuple[int, bool]:
    """Where the last byte of a log ends that is not zero, and whether a filler stands at ``max_offset`` in its last segment."""
    used = [(start, data) for start, data in segments if data]
    if not used:
        return 0, False
    start, data = segments[-1]
    filler = start <= max_offset and data[max_offset - start + 4 : max_offset - start + 8] == b"\xcb\xd4\x31\x94"
    return used[-1][0] + len(used[-1][1]), filler


@dataclass(frozen=True)
class Sweep:
    """Many spoilt stores of one kind: ``judged`` makes, spoils and judges those of a range of seeds."""

    name: str
    count: int
    """stores of each version, unless told otherwise"""
    versions: tuple[str, ...]
    judged: Callable[[RealStores, Path, int, int], Iterator[Judged]]
    lifetime: int = LIFETIME

    def run(self, version: str, seed: int, count: int) -> int:
        """How many statements about the stores of one version do not hold; tells each."""
        began, wrong, stores, loads, unsaid = time.monotonic(), 0, 0, 0, Counter[str]()
        counts: Counter[str] = Counter()
        with (
            tempfile.TemporaryDirectory(prefix="preflight-", ignore_cleanup_errors=True) as folder,
            RealStores(version, Path(folder), self.lifetime) as real,
        ):
            for one in self.judged(real, Path(folder), seed, count):
                stores += 1
                loads += one.loads
                if one.comparison is None:
                    unsaid[one.unsaid.split(":")[-1][:60]] += 1
                    continue
                counts += one.comparison.counts
                wrong += len(one.comparison.differences)
                for line in one.lines(version):
                    print(line, flush=True)
        print(
            f"{version}: {stores} stores, of which {loads} load and {sum(unsaid.values())} are not predicted; "
            f"{sum(counts.values())} statements, {wrong} wrong, {time.monotonic() - began:.0f} s",
            flush=True,
        )
        print(f"{version}: {dict(sorted(counts.items()))} {dict(unsaid)}", flush=True)
        return wrong

    def main(self, about: str | None, words: list[str] | None = None, more: dict[str, Sweep] | None = None) -> int:
        """Run it as a command; each of ``more`` is run in its place by an option of that name. Return the exit status."""
        parser = argparse.ArgumentParser(
            prog=f"python -m tests.preflight.{self.name}", description=(about or "").splitlines()[0]
        )
        parser.add_argument("--count", type=int, help=f"stores of each version ({self.count})")
        parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9), help="the first one (random)")
        parser.add_argument("--version", help=f"of RocketMQ ({','.join(self.versions)})")
        for option, other in (more or {}).items():
            parser.add_argument(f"--{option}", action="store_const", dest="sweep", const=other, default=self, help=other.name)
        args = parser.parse_args(words)
        sweep: Sweep = getattr(args, "sweep", self)
        count = args.count or sweep.count
        print(f"SEED={args.seed} N={count}", flush=True)
        versions = args.version.split(",") if args.version else sweep.versions
        return 1 if sum(sweep.run(version, args.seed, count) for version in versions) else 0


SWEEP = Sweep("sweep", 1000, VERSIONS, judged)

if __name__ == "__main__":
    sys.exit(SWEEP.main(__doc__))
