"""Builds of random stores of the real RocketMQ are the real store's own rebuild, byte for byte.

tests/smoke has eight more of 5.5.0, ``make oracle`` many more of each version.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.spark import session
from tests.golden.guard import guarded
from tests.golden.stores import read_files
from tests.oracle.closed import judge_closed
from tests.oracle.cuts import judge_cuts
from tests.oracle.judge import different, judge
from tests.oracle.scenarios import CLOSED, STALE, Scenario, make
from tests.oracle.stale import judge_stale, stale_tails
from tests.tools.engines import engines_of
from tests.tools.local_engine import run_build
from tests.tools.tiers import ends

SEED = 5_000
COUNT = {"5.5.1": 6, "5.5.0": 24, "5.4.0": 5, "5.3.4": 3, "5.3.3": 4, "4.9.8": 6}
FEATURES = 25
"""``Feature`` in tests/oracle/src: those of 5.x."""
BY_ENGINE = {"5.5.1": 1, "4.9.8": 1}
"""Of each version, from the first on."""
TRUNCATED = {"5.5.1": 4, "5.4.0": 4, "4.9.8": 4}
"""Each is opened some times."""
AS_CLOSED = {"5.5.1": 3, "5.4.0": 2, "5.3.3": 2, "4.9.8": 2}
GROWN = {"5.5.1": 2, "5.4.0": 1}

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


@pytest.mark.parametrize("version", [pytest.param(name, marks=pytest.mark.slow) if name == "5.3.4" else name for name in COUNT])
def test_equals_the_real_rebuild(version: str, scenarios: Stores, tmp_path: Path) -> None:
    """Ours, and the reference's: a failure tells version, seed, file and field."""
    left = [scenario for scenario in scenarios(version) if not scenario.unusable]
    assert len(left) >= COUNT[version] - 1
    assert [words for scenario in left for words in judge(scenario, tmp_path / "out")] == []


def test_the_scenarios_are_of_all_kinds(scenarios: Stores) -> None:
    """Each feature is there, and is left out; and no two scenarios are of one kind."""
    kinds = [frozenset[str](scenario.settings["features"]) for scenario in scenarios("5.5.0")]
    everything = frozenset[str]().union(*kinds)
    assert len(everything) == FEATURES
    assert frozenset[str]().union(*(everything - kind for kind in kinds)) == everything
    assert len(set(kinds)) == len(kinds)


@pytest.mark.parametrize("version", ends(TRUNCATED))
def test_truncated_stores(version: str, tmp_path: Path) -> None:
    """Old records behind the log's end are none of its own: as the real store has it, under every policy."""
    stores = make(version, SEED, TRUNCATED[version], tmp_path / "stores", STALE)
    left = [scenario for scenario in stores if not scenario.unusable]
    assert len(left) >= len(stores) - 2
    assert stale_tails(left) >= len(stores) // 2
    assert [words for scenario in left for words in judge_stale(scenario, tmp_path / "out")] == []


@pytest.mark.parametrize("version", ends(AS_CLOSED))
def test_verify_finds_nothing_in_a_store_as_the_broker_closed_it(version: str, tmp_path: Path) -> None:
    """Nor does it take it for another version's."""
    stores = make(version, SEED, AS_CLOSED[version], tmp_path / "stores", CLOSED)
    assert [words for scenario in stores for words in judge_closed(scenario, tmp_path)] == []


@pytest.mark.parametrize("version", GROWN)
def test_incremental_equals_the_real_rebuild(version: str, scenarios: Stores, tmp_path: Path) -> None:
    """Of a log that is cut at random, and grows."""
    chosen = scenarios(version)[: GROWN[version]]
    assert [words for scenario in chosen for words in judge_cuts(scenario, tmp_path / "grown")] == []


def test_by_processes(scenarios: Stores, tmp_path: Path) -> None:
    assert _by("local", scenarios, tmp_path) == []


@pytest.mark.slow
def test_through_spark(scenarios: Stores, tmp_path: Path) -> None:
    """`make test` has the golden stores through Spark, tests/spark random logs: this is a third proof of the engine."""
    spark, own = session.get_session("local[2]")
    assert own, "a session was left by another test"
    assert spark.sparkContext.defaultParallelism == 2
    try:
        assert _by("spark", scenarios, tmp_path) == []
    finally:
        session.stop(spark)


def _by(engine: str, scenarios: Stores, folder: Path) -> list[str]:
    return [
        words
        for version, count in BY_ENGINE.items()
        for scenario in scenarios(version)[:count]
        for words in _built(scenario, engine, folder / f"{version}-{scenario.path.name}")
    ]


def _built(scenario: Scenario, engine: str, out: Path) -> list[str]:
    with guarded(scenario.path, out):
        settings = BuildSettings(store=str(scenario.path), out=str(out), **scenario.options())
        summary = run_build(settings, engines_of(engine))
    if summary.exit:
        return [f"{scenario.name}: exit {summary.exit}: {summary.error}"]
    return [f"{scenario.name}: {words}" for words in different(scenario, read_files(out))]
