"""Builds of random stores of the real RocketMQ are the real store's own rebuild, byte for byte.

tests/smoke has those of 5.3.3 in one process.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rocketmq_reindex.jobs.building.settings import BuildSettings
from rocketmq_reindex.jobs.spark import session
from rocketmq_reindex.jobs.spark.engine import SparkEngines
from tests.golden.guard import guarded
from tests.golden.stores import read_files
from tests.oracle.judge import different, judge
from tests.oracle.scenarios import UNCLEAN, UNLOADABLE, VERSIONS, Scenario, make
from tests.oracle.stale import judge_stale, stale_tails
from tests.tools.local_engine import run_build

SEED = 5_000
THROUGH_SPARK = 5
"""Of each version, from the first on."""
COUNT = {"5.3.3": THROUGH_SPARK, "4.9.8": 50, "5.5.0": 8}
STALE = 10
"""Truncated stores of each version: each is opened some times."""

Stores = Callable[[str], list[Scenario]]


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    """scenarios(version): the same ones in every run, made once."""
    made: dict[str, list[Scenario]] = {}

    def get(version: str) -> list[Scenario]:
        if version not in made:
            made[version] = make(version, SEED, COUNT[version], tmp_path_factory.mktemp(version) / "stores")
        return made[version]

    return get


@pytest.mark.parametrize("version", ["4.9.8", "5.5.0"])
def test_equals_the_real_rebuild(version: str, scenarios: Stores, tmp_path: Path) -> None:
    """Ours, and the reference's: a failure tells version, seed, file and field."""
    found = [words for scenario in scenarios(version) for words in judge(scenario, tmp_path / "out")]
    assert found == []


def test_the_scenarios_are_of_all_kinds(scenarios: Stores) -> None:
    assert_all_kinds(scenarios("4.9.8"), "4.9.8")


def assert_all_kinds(found: list[Scenario], version: str) -> None:
    """Each feature is there, and is left out; and no two scenarios are of one kind."""
    kinds = [frozenset(scenario.settings["features"]) for scenario in found]
    everything = frozenset().union(*kinds)
    assert len(everything) == (25 if version.startswith("5.") else 23)
    assert frozenset[str]().union(*(everything - kind for kind in kinds)) == everything
    assert len(set(kinds)) == len(kinds)


@pytest.mark.parametrize("version", VERSIONS)
def test_truncated_stores(version: str, tmp_path: Path) -> None:
    """Old records behind the log's end are none of its own: as the real store has it, under every policy."""
    stores = make(version, SEED, STALE, tmp_path / "stores", stale=True)
    left = [scenario for scenario in stores if scenario.failure not in (UNCLEAN, UNLOADABLE)]
    assert len(left) >= STALE - 2
    assert stale_tails(left) >= STALE // 2
    assert [words for scenario in left for words in judge_stale(scenario, tmp_path / "out")] == []


def test_through_spark(scenarios: Stores, tmp_path: Path) -> None:
    spark, own = session.get_session("local[2]")
    assert own, "a session was left by another test"
    try:
        found = [
            words
            for version in VERSIONS
            for scenario in scenarios(version)[:THROUGH_SPARK]
            for words in _through_spark(scenario, spark, tmp_path / f"{version}-{scenario.path.name}")
        ]
    finally:
        session.stop(spark)
    assert found == []


def _through_spark(scenario: Scenario, spark: SparkSession, out: Path) -> list[str]:
    assert spark.sparkContext.defaultParallelism == 2
    with guarded(scenario.path, out):
        settings = BuildSettings(store=str(scenario.path), out=str(out), **scenario.options())
        summary = run_build(settings, SparkEngines(""))
    if summary.exit:
        return [f"{scenario.name}: exit {summary.exit}: {summary.error}"]
    return [f"{scenario.name}: {words}" for words in different(scenario, read_files(out))]
