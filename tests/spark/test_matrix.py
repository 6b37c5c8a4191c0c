"""The same bytes from every range size, shuffle, adaptive setting and master."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rocketmq_reindex.jobs.building import decisions
from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.spark.engine import SparkEngines
from rocketmq_reindex.jobs.spark.session import run_settings
from tests.reference.build import ReferenceBuild, reference_build
from tests.tools import spoil
from tests.tools.compare import compare, project_settings
from tests.tools.local_engine import run_build
from tests.tools.make_log import FEATURES, random_log

SEED = 20240229
RANGES = (1 << 16, 1 << 20, 0)
"""64 KiB, 1 MiB, a segment (of 2 MiB)."""
PARTITIONS = (1, 2, 7, 200)
MASTERS = ("local[1]", "local[2]")
ADAPTIVE = ("true", "false")
BUCKETS = ("", "7", "1", "3")
"""As many as the plan thinks, more than there are partitions, or fewer; with each number of partitions another."""
ALL = list(product(MASTERS, RANGES, PARTITIONS, ADAPTIVE))
PAIRS = [
    (MASTERS[(r + p // 2) % 2], size, count, ADAPTIVE[(r + p) % 2])
    for (r, size), (p, count) in product(enumerate(RANGES), enumerate(PARTITIONS))
]
SETTINGS: dict[str, Any] = {
    "cq_file_size": 4000, "hash_slots": 500, "index_items": 6000,
    "queue_order": "logical", "on_damage": "salvage", "lmq": True, "crc": "all",
}  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every feature, queues out of order, damage in two places."""
    store = tmp_path_factory.mktemp("matrix") / "store"
    random_log(store / "commitlog", SEED, records=3000, segment_size=1 << 21, features=FEATURES)
    for record in (2500, 1000):
        spoil.garbage(store, record, SEED)
    return store


@pytest.fixture(scope="module")
def truth(store: Path) -> ReferenceBuild:
    return reference_build(store, **SETTINGS)


@pytest.fixture(scope="module")
def manifests() -> set[bytes]:
    """The manifests seen so far: one, if all are alike."""
    return set()


def check(
    spark: SparkSession, size: int, partitions: int, adaptive: str, out: Path, store: Path, truth: ReferenceBuild,
    seen: set[bytes],
) -> None:  # fmt: skip
    buckets = BUCKETS[PARTITIONS.index(partitions)]
    conf = {"spark.sql.shuffle.partitions": str(partitions), "spark.sql.adaptive.enabled": adaptive}
    if buckets:
        conf["spark.reindex.buckets"] = buckets
    settings = BuildSettings(store=str(store), out=str(out), range_size=size, **project_settings(SETTINGS))
    # Half of them have their queues judged by reducers.
    few = decisions.FEW_RUNS if adaptive == "true" else 0
    with run_settings(spark, conf), pytest.MonkeyPatch.context() as patch:
        patch.setattr(decisions, "FEW_RUNS", few)
        summary = run_build(settings, SparkEngines(""))
    assert summary.exit == 3
    assert compare(summary, out, truth) == []
    seen.add((out / "reindex.json").read_bytes())
    assert len(seen) == 1


def test_the_pairs_are_all_there() -> None:
    """Any two values of two different settings meet in one run."""
    assert [sum(run[0] == master for run in PAIRS) for master in MASTERS] == [len(PAIRS) // 2] * 2
    for one in range(4):
        for other in range(one):
            assert {(run[one], run[other]) for run in PAIRS} == {(run[one], run[other]) for run in ALL}


# The master is a parameter of its own, so that pytest keeps its session through all of its runs.
@pytest.mark.parametrize("number", range(len(PAIRS) // 2))
@pytest.mark.parametrize("spark", MASTERS, indirect=True)
def test_pairwise(
    spark: SparkSession, number: int, tmp_path: Path, store: Path, truth: ReferenceBuild, manifests: set[bytes]
) -> None:  # fmt: skip
    mine = [run for run in PAIRS if run[0] == spark.sparkContext.master]
    _, size, partitions, adaptive = mine[number]
    check(spark, size, partitions, adaptive, tmp_path / "out", store, truth, manifests)


@pytest.mark.matrix
@pytest.mark.parametrize("adaptive", ADAPTIVE)
@pytest.mark.parametrize("partitions", PARTITIONS)
@pytest.mark.parametrize("size", RANGES)
@pytest.mark.parametrize("spark", MASTERS, indirect=True)
def test_every_combination(
    spark: SparkSession, size: int, partitions: int, adaptive: str, tmp_path: Path, store: Path, truth: ReferenceBuild,
    manifests: set[bytes],
) -> None:  # fmt: skip
    check(spark, size, partitions, adaptive, tmp_path / "out", store, truth, manifests)
