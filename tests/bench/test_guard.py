"""No stage has become slower by more than half; and the guard sees it where one has."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.bench.guard import GROWTH, SETS, build_locally, growth, guard, least, one_set, slower
from tests.bench.kernel import Kernel
from tests.bench.synthetic import KINDS, synthetic_log
from tests.tools.local_engine import InlineEngine, local_build

ROOT = Path(__file__).parents[2]


def test_no_stage_is_slower_than_the_baseline() -> None:
    """In a process of its own: no other test's threads or sessions are measured."""
    done = subprocess.run([sys.executable, "-m", "tests.bench.guard"], cwd=ROOT, capture_output=True, text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stderr[-3000:]


class FourTimesTheScan(InlineEngine):
    """Throws away what three scans found."""

    def scan(self, function: Any, tasks: int) -> list[bytes]:
        for _ in range(3):
            super().scan(function, tasks)
            self.forget()
        return super().scan(function, tasks)


def test_a_scan_of_four_times_the_work_is_seen(tmp_path: Path) -> None:
    synthetic_log(tmp_path / "store", "small", 16 << 20, 7)

    def builds(engine: Callable[[], InlineEngine]) -> dict[str, Callable[[], dict[str, float]]]:
        def build() -> dict[str, float]:
            costs = build_locally(tmp_path / "store", tmp_path / "out", engine(), hash_slots=1000, index_items=1_000_000)
            return {"ScanTask": costs["ScanTask"]}

        return {"small": build}

    kernel = Kernel(tmp_path)
    one_set(builds(InlineEngine), kernel, 1)
    # As often as the guard measures what looks slow: what others on the machine do can only add to each. Beside them page
    # faults may take a third longer: twice the work of a scan is then not always seen.
    sets = [one_set(builds(InlineEngine), kernel) for _ in range(SETS)]
    baseline = {stage: least(*(found[stage] for found in sets)) for stage in sets[0]}
    lines: list[str] = []
    assert guard(builds(FourTimesTheScan), kernel, baseline, lines.append) == ["small: ScanTask"]
    assert sum(line.startswith("measured again") for line in lines) == SETS - 1


def beside(stage: float, work: float = 1.0, mapped: float = 1.0, fresh: float = 1.0) -> dict[str, float]:
    return {"stage": stage, "work": work, "mapped": mapped, "fresh": fresh}


def test_more_than_half() -> None:
    found = {"a": beside(10 * GROWTH), "b": beside(10 * GROWTH + 0.1), "tiny": beside(0.01)}
    assert slower(found, {"a": beside(10), "b": beside(10)}) == ["b"]


@pytest.mark.parametrize("piece", ["work", "mapped", "fresh"])
def test_what_is_slow_on_a_machine_is_no_growth(piece: str) -> None:
    """A machine, or what others do on it, that slows one piece down may slow a stage down as much."""
    assert growth(beside(30.0, **{piece: 3.0}), beside(10.0)) == 1.0
    assert growth(beside(60.0, **{piece: 3.0}), beside(10.0)) == 2.0
    # One that is three times as fast in all but this piece.
    assert growth(beside(20.0, **{"work": 1.0, "mapped": 1.0, "fresh": 1.0, piece: 3.0}), beside(20.0, 3.0, 3.0, 3.0)) == 1.0


@pytest.mark.parametrize("costs", [{"a": 1.0}, {"a": 1.0, "b": 1.0, "new": 1.0}])
def test_stages_must_be_the_baseline_s(costs: dict[str, float]) -> None:
    with pytest.raises(AssertionError, match="not the stages of the baseline"):
        slower({stage: beside(seconds) for stage, seconds in costs.items()}, {"a": beside(1.0), "b": beside(1.0)})


@pytest.mark.parametrize("kind", KINDS)
def test_the_logs_are_logs(kind: str, tmp_path: Path) -> None:
    count = synthetic_log(tmp_path / "store", kind, 1 << 20, 7)
    summary = local_build(tmp_path / "store", tmp_path / "out", hash_slots=500, index_items=200_000)
    assert (summary.exit, summary.warnings, summary.damage) == (0, [], [])
    assert (summary.records, summary.units, summary.items) == (count, count, count * (1 + KINDS[kind].keys))
