"""How long ``rmq-reindex query`` takes on a store with 20 million index items: python -m tests.bench.query_latency FOLDER

Makes a log of ten million records (a unique key and a key each) in FOLDER, builds it, and asks a process of its own for random
ones; cold: the store's pages are dropped from memory before. FOLDER must be new; its 3 GB are removed at the end. Prints one
JSON object of seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from tests.tools.encode import EPOCH, Message, blank, encode
from tests.tools.local_engine import local_build

SEGMENT = 1 << 30
RECORDS = 9_999_999
"""with two items each, one less than an IndexFile of the default size holds"""
QUEUES = 8
UNIQUE = "7F00000100002A9F00000000"
_AT_ONCE = 1 << 18
_POWERS = 10 ** np.arange(7, -1, -1, dtype=np.int64)


def template() -> bytes:
    """A record, with eight digits where its keys say its number."""
    properties = {"KEYS": "order-" + "#" * 8, "UNIQ_KEY": UNIQUE + "@" * 8, "TAGS": "paid"}
    return encode(Message(topic="orders", body=b'{"amount": 4711}', properties=properties), 0)


def records(first: int, places: npt.NDArray[np.int64]) -> bytes:
    """Records ``first``, ``first + 1``, ... that lie at ``places``."""
    one = template()
    rows = np.tile(np.frombuffer(one, np.uint8), (len(places), 1))
    numbers = first + np.arange(len(places), dtype=np.int64)

    def put(at: int, values: npt.NDArray[np.int64], size: int) -> None:
        rows[:, at : at + size] = values.astype(f">i{size}").view(np.uint8).reshape(len(values), size)

    put(12, numbers % QUEUES, 4)
    put(20, numbers // QUEUES, 8)
    put(28, places, 8)
    put(56, EPOCH + numbers, 8)
    digits = (numbers[:, None] // _POWERS % 10 + ord("0")).astype(np.uint8)
    for mark in (b"#", b"@"):
        at = one.index(mark * 8)
        rows[:, at : at + 8] = digits
    return rows.tobytes()


def write_small(file: BinaryIO, low: int, stop: int, base: int) -> None:
    """Records ``low`` to ``stop`` at the beginning of the segment at ``base``."""
    size = len(template())
    for first in range(low, stop, _AT_ONCE):
        numbers = np.arange(first, min(first + _AT_ONCE, stop), dtype=np.int64)
        file.write(records(first, base + size * (numbers - low)))


def write_log(folder: Path, count: int) -> None:
    """The log of ``count`` records."""
    folder.mkdir(parents=True)
    per_segment = (SEGMENT - 8) // len(template())
    for number, start in enumerate(range(0, count, per_segment)):
        base, stop = number * SEGMENT, min(start + per_segment, count)
        with (folder / f"{base:020d}").open("wb") as file:
            write_small(file, start, stop, base)
            if stop < count:
                file.write(blank(SEGMENT - file.tell()))
            file.truncate(SEGMENT)


@contextlib.contextmanager
def built_store(folder: Path, write: Callable[[Path, int], None] = write_log) -> Iterator[tuple[Path, Any]]:
    """Give a store in ``folder``, a new one, and the summary of its build; it is removed at the end."""
    store = folder / "store"
    folder.mkdir(parents=True)
    try:
        write(store / "commitlog", RECORDS)
        summary = local_build(store, folder / "built", None)
        assert summary.exit == 0, summary.error
        for part in ("consumequeue", "index", "checkpoint"):
            (folder / "built" / part).rename(store / part)
        yield store, summary
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def forget(store: Path) -> None:
    """Drop the store's pages from memory."""
    for path in store.rglob("*"):
        if path.is_file():
            handle = os.open(path, os.O_RDONLY)
            os.fsync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)


def questions(rng: random.Random, count: int) -> Iterator[tuple[str, list[str], int]]:
    """(what, words, number of the record wanted)"""
    for _ in range(count):
        k = rng.randrange(RECORDS)
        yield "key", ["--topic", "orders", "--key", f"order-{k:08d}"], k
        yield "unique id, topic not given", ["--id", f"{UNIQUE}{k:08d}"], k
        yield "queue and offset", ["--topic", "orders", "--queue", str(k % QUEUES), "--offset", str(k // QUEUES)], k
        yield "queue and time", ["--topic", "orders", "--queue", str(k % QUEUES), "--time", str(EPOCH + k)], k


Took = tuple[float, float]
"""seconds by the clock, and of a core"""


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def ask(store: Path, words: list[str], wanted: int) -> Took:
    """What a process took that answers; raises AssertionError for a wrong answer."""
    began, before = time.perf_counter(), _children()
    done = subprocess.run(
        [sys.executable, "-m", "rocketmq_reindex", "query", str(store), "--json", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    took = time.perf_counter() - began, _children() - before
    assert done.returncode == 0, done.stderr
    (found,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert found["uniqueKey"] == f"{UNIQUE}{wanted:08d}", found
    return took


def arguments() -> argparse.Namespace:
    """The folder, the number of runs and the seed, as the command line has them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main() -> int:
    asked = arguments()
    with built_store(asked.folder) as (store, summary):
        took: dict[str, list[Took]] = {}
        for cold in (False, True):
            for what, words, wanted in questions(random.Random(asked.seed + cold), asked.runs):
                if cold:
                    forget(store)
                took.setdefault(f"{what}, {'cold' if cold else 'warm'}", []).append(ask(store, words, wanted))
        empty = [_seconds([sys.executable, "-c", "pass"]) for _ in range(asked.runs)]
        told = {name: _figures(values) for name, values in took.items()}
        print(json.dumps({"items": summary.items, "bytes": summary.bytes, "python alone": _figures(empty), **told}, indent=1))
    return 0


def _seconds(command: list[str]) -> Took:
    began, before = time.perf_counter(), _children()
    subprocess.run(command, check=True)
    return time.perf_counter() - began, _children() - before


def _figures(values: list[Took]) -> dict[str, float]:
    clock, core = zip(*values, strict=True)
    return {
        "p50": round(statistics.median(clock), 3),
        "worst": round(max(clock), 3),
        "of a core, p50": round(statistics.median(core), 3),
    }


if __name__ == "__main__":
    sys.exit(main())
