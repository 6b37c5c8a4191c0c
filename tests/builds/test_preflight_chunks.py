"""A preflight walks a log in chunks and keeps what it knows in a spool: how small these are changes no word of its answer."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.jobs.preflighting import folders
from rocketmq_reindex.storage_format.broker_start import index_state, kept, one_start, store
from tests.preflight import predicted
from tests.preflight.settings import Conf, Sizes
from tests.tools.local_engine import local_build
from tests.tools.make_log import FEATURES, random_log
from tests.tools.seeds import cases

SMALL = (
    (store, "_ROWS", 7), (store, "_STEP", 3000), (store, "_BEYOND", 500), (one_start, "_HELD", 40),
    (kept, "_NUMBERS", 5), (kept, "_MANY", 2), (kept, "_PARTS", 3), (kept, "_PART_ROWS", 5),
    (index_state, "_ITEMS", 6), (folders, "_IN_MEMORY", 1000),
)  # fmt: skip
SIZES = Sizes(1 << 15, 400, 50, 60)


LIGHT = {"enableLmq": "true", "enableMultiDispatch": "true", "recheckReputOffsetFromCq": "true"}
STARTS = tuple(itertools.product(("4.9.8", "5.3.3", "5.5.1"), (True, False), ({}, LIGHT)))


def answers(store: Path, scratch: Path, starts: Sequence[tuple[str, bool, dict[str, str]]]) -> list[Any]:
    """What is said of each start: the release, whether the broker crashed before it, its settings."""
    found = []
    for release, stop, more in starts:
        (store / "abort").unlink(missing_ok=True)
        if stop:
            (store / "abort").touch()
        said = predicted.predict(store, release, Conf(SIZES, dict(more)), scratch)
        if isinstance(said, dict):
            said.pop("seconds")
        found.append(said)
    return found


def test_chunks_change_nothing(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, store = random.Random(seed), tmp_path / "store"
    random_log(store / "commitlog", seed, records=300, segment_size=SIZES.segment, features=FEATURES - {"v2"})
    local_build(store, tmp_path / "out", on_damage="salvage", cq_file_size=400, hash_slots=50, index_items=60)
    for name in ("consumequeue", "index", "checkpoint"):
        (tmp_path / "out" / name).rename(store / name)
    # Queues, items and records are missing: each kind of number is to be counted.
    for folder in (store / "consumequeue", store / "index"):
        some = sorted(path for path in folder.rglob("*") if path.is_file())
        for path in rng.sample(some, len(some) // 4):
            path.unlink()
    last = max((store / "commitlog").iterdir())
    data = bytearray(last.read_bytes())
    data[rng.randrange(200)] ^= 1
    last.write_bytes(data)
    starts = rng.sample(STARTS, cases(len(STARTS), 2))
    whole = answers(store, tmp_path, starts)
    for module, name, value in SMALL:
        monkeypatch.setattr(module, name, value)
    assert answers(store, tmp_path, starts) == whole
    # A broker may refuse all of a few.
    assert len(starts) < len(STARTS) or any(isinstance(said, dict) and said["loads"] for said in whole)
