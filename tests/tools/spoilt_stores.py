"""Random stores, built, spoilt in one random place each, and verified: ``python -m tests.tools.spoilt_stores --count 200``."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from rocketmq_reindex.jobs.verifying.summary import VerifyResult
from tests.tools.compare import SMALL
from tests.tools.encode import EPOCH, Message
from tests.tools.local_engine import InlineEngine, local_build
from tests.tools.local_verify import kinds, local_verify
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import ORDERLY, random_log
from tests.tools.spoil_derived import KINDS
from tests.tools.spoiling import NotHere, Sizes

SIZES = Sizes(**SMALL)
CHECKPOINTS = ("safe", "broker")
_BY = {"queue-file-empty": {"broker_version": "5.4"}}
"""Nothing but 5.5 and 4.9 starts on a queue's file without a unit."""
_OF_TAGS = {"index-item-missing": "index-tag-missing"}
"""what stands for a kind where all that it is about are items of TAGS"""


def full_index(folder: Path, seed: int, checkpoint: str = "safe") -> Path:
    """A log whose keys just fill IndexFiles, with a record without a key behind them: a last IndexFile without items."""
    rng, full = random.Random(seed), SIZES.index_items - 1
    with LogWriter(folder / "commitlog", 1 << 14) as writer:
        for number in range(full * rng.randrange(4)):
            time = EPOCH + 1000 * number
            writer.append(Message(f"T{number % 3}", store_timestamp=time, properties={"KEYS": f"k{rng.randrange(99)}"}))
        for number in range(9):
            writer.append(Message("T0", store_timestamp=EPOCH + 10**6 + number, properties={}))
    return _derive(folder, checkpoint)


def make_store(folder: Path, seed: int, checkpoint: str = "safe") -> Path:
    """A random log with what the project builds from it, in one folder; half of them without their first segment."""
    rng = random.Random(seed)
    if seed % 10 == 0:
        return full_index(folder, seed, checkpoint)
    # Where the clock jumps back, a broker's checkpoint gives up whole files at the next crash: that is no sound store.
    features = ORDERLY - {"lmq"} - ({"clock"} if checkpoint == "broker" else set())
    random_log(folder / "commitlog", seed, records=rng.randrange(150, 300), segment_size=1 << 14, features=features)
    if rng.random() < 0.5:
        min((folder / "commitlog").iterdir()).unlink()
    return _derive(folder, checkpoint)


def _derive(folder: Path, checkpoint: str) -> Path:
    summary = local_build(folder, folder.with_name(f"{folder.name}-out"), checkpoint=checkpoint, **SMALL)
    assert summary.exit == 0, summary.error
    for path in list(folder.with_name(f"{folder.name}-out").iterdir()):
        shutil.move(path, folder / path.name)
    (folder / "reindex.json").unlink()
    folder.with_name(f"{folder.name}-out").rmdir()
    return folder


def spoilt(store: Path, into: Path, name: str, seed: int) -> str:
    """A copy of ``store`` spoilt in that way; returns the kind to be found. Raises NotHere."""
    shutil.rmtree(into, ignore_errors=True)
    shutil.copytree(store, into)
    spoiler, kind = KINDS[name]
    spoiler(into, SIZES, random.Random(seed))
    return kind


def checked(store: Path, name: str, kind: str, engine: InlineEngine, **settings: Any) -> tuple[VerifyResult, list[str]]:
    """A verify of a store spoilt in that way, and which of the kinds that say so it found."""
    summary = local_verify(store, engine, **SMALL, **settings, **_BY.get(name, {}))
    return summary, sorted(kinds(summary).keys() & {kind, _OF_TAGS.get(kind, kind)})


def try_one(folder: Path, seed: int) -> tuple[str, str]:
    """One random store, spoilt in one random way: (how, what went wrong or nothing)."""
    rng = random.Random(seed)
    store = make_store(folder / "store", rng.randrange(2**31), rng.choice(CHECKPOINTS))
    engine: dict[str, Any] = {"range_size": rng.choice((0, 1 << 13, 3001))}
    clean = local_verify(store, InlineEngine(3, 2), **engine, **SMALL)
    names = sorted(KINDS)
    rng.shuffle(names)
    for name in names:
        try:
            kind = spoilt(store, folder / "spoilt", name, rng.randrange(2**31))
        except NotHere:
            continue
        summary, found = checked(folder / "spoilt", name, kind, InlineEngine(3, 2), **engine)
        if (clean.exit, kinds(clean)) != (0, {}):
            return name, f"the sound store is not clean: {clean.error} {clean.findings}"
        if summary.exit != 4 or not found:
            return name, f"exit {summary.exit} ({summary.error}): {kinds(summary)} instead of {kind}"
        return name, ""
    raise AssertionError("no store is so poor that nothing of it can be spoilt")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    given = parser.parse_args()
    print(f"seed {given.seed}")
    begin, ways, wrong = time.monotonic(), Counter[str](), 0
    for number in range(given.count):
        with tempfile.TemporaryDirectory(prefix="spoilt-") as folder:
            name, trouble = try_one(Path(folder), given.seed + number)
        ways[name] += 1
        if trouble:
            wrong += 1
            print(f"--seed {given.seed + number} --count 1: {name}: {trouble}")
    print(f"{given.count - wrong} of {given.count} found by name, {len(ways)} ways, {time.monotonic() - begin:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
