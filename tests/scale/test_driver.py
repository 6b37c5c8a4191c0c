"""The driver's work and memory grow no faster than the number of ranges and queues, and little of it is for each."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.bench.driver import Driven, drive
from tests.bench.pretended import Shape

MIB = 1 << 20
SMALL, LARGE = Shape(250, 25_000), Shape(1_000, 100_000)
TIMES = LARGE.segments / SMALL.segments


@pytest.fixture(scope="module")
def driven(tmp_path_factory: pytest.TempPathFactory) -> list[Driven]:
    drive(tmp_path_factory.mktemp("first"), Shape(10, 100))  # compiles the loops
    return [drive(tmp_path_factory.mktemp("log"), shape, time.process_time) for shape in (SMALL, SMALL, LARGE)]


def test_the_driver_grows_no_faster_than_the_log(driven: list[Driven]) -> None:
    seconds = [run.own_seconds for run in driven]
    memory = [run.memory for run in driven]
    print(f"seconds {seconds}, MiB {[size / MIB for size in memory]}")
    # Of the processor. Twice what growing as the log does would be, and a second.
    assert seconds[2] < 2 * TIMES * min(seconds[:2]) + 1
    # Who looks now and then may miss a peak.
    assert memory[2] < max(memory[:2]) + 48 * MIB


def test_what_it_made_of_the_summaries(driven: list[Driven]) -> None:
    for run, shape in zip(driven, (SMALL, SMALL, LARGE), strict=True):
        summary, records = run.summary, (1 << 30) // 1_042
        assert (summary.exit, summary.error) == (0, None)
        assert summary.records == shape.segments * records
        assert summary.files == {"consumequeue": shape.queues, "index": -(-shape.segments * records // 19_999_999)}
        manifest = json.loads((Path(run.out) / "reindex.json").read_text())
        assert len(manifest["files"]) == sum(summary.files.values()) + 1
        assert [len(entry["digests"]) for entry in manifest["inputs"]] == [16] * shape.segments


def test_queues_out_of_order_cost_the_driver_little_each(tmp_path: Path) -> None:
    shape = Shape(50, 20_000, 20_000)
    run = drive(tmp_path, shape, max_fill=shape.odd)
    assert (run.summary.exit, run.summary.error) == (0, None)
    assert len(run.summary.decisions) == 10_001
    assert run.summary.decisions[-1] == {"kind": "more fill", "topic": "", "queue": -1, "offset": -1, "count": 10_000}
    assert run.memory < 128 * MIB
