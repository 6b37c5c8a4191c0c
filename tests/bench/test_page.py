"""The race's page tells what the race's figures are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.bench.page import BEGIN, END, is_full, middle_run, page, stages
from tests.bench.race import ENGINES, LOGS, PARTS, TARGETS
from tests.bench.sides import stages_told


def results() -> dict[str, Any]:
    build = {"build": 2.0, "process": 0.0, "records": 1000, "session": 0.0, "stages": {"scan": 1.25, "write": 0.5}}
    process = {**build, "process": 9.0, "session": 5.0}
    seconds = {"peer": [7.0, 9.0, 8.0], "peer process": [9.0, 9.0, 9.0], "build": [2.0, 1.0, 4.0], "process": [9.0, 9.0, 9.0]}
    seconds["local"] = [2.0, 3.0, 2.5]
    seconds["local build"] = [1.0, 2.0, 1.6]
    races = [
        {
            "preset": preset, "bytes": 4 << 30, "records": 1000, "files": 12, "first": [9.0, 3.0], "seconds": seconds,
            "ratios": {"build": 4.0, "process": 8 / 9, "local": 3.2}, "targets": TARGETS[preset],
            "engines": {"warm": 1.25, "start": 6.5}, "engines_targets": ENGINES,
            "runs": {"peer": [], "build": [{**build, "build": s} for s in seconds["build"]], "process": [process] * 3,
                     "local": [{**process, "process": 4.0, "session": 0.5}] * 3},
        }
        for preset in LOGS
    ]  # fmt: skip
    found = [{"bytes": k << 30, "records": k, "peer": [3.0 * k], "build": [1.0 * k]} for k in (1, 2, 4, 8)]
    return {
        "command": "make bench", "scale": 1.0, "rounds": 3, "minutes": 21.3, "stolen": 0.01, "warm": True,
        "machine": {"cores": "2"}, "races": races, "sizes": {"found": found, "ratio": 4.0, "target": 4.2},
        "executors": {"records": 5, "seconds": {"1": [3.0], "2": [2.0]}, "ratio": 1.5, "target": 1.6},
        "cores": {"records": 5, "seconds": {"1": [3.8], "2": [2.0]}, "ratio": 1.9, "target": 1.85,
                  "local": {"seconds": {"1": [2.6], "2": [2.0]}, "ratio": 1.3}},
        "verify": {"seconds": {"local": [4.5, 3.5, 3.0], "spark": [9.0]}, "target": 4.0},
        "starts": {"seconds": {"local, with bytecode": [1.1], "local, without": [3.8]}, "target": 1.2},
        "submits": {
            "bytes": 1 << 30, "more": 13.5, "more_target": 12.0, "ran": 7.0, "ran_target": 8.0,
            "starts": {"cluster, again": [{"whole": 40.0, "ran": 7.0, "ended": 9.5}]},
        },
    }  # fmt: skip


def test_the_page() -> None:
    told = page(results())
    assert "    make bench\n" in told
    assert "| rmq-reindex: build alone, in a started session | 1.00 | **2.00** | 4.00 | 500 |" in told
    assert told.count("**4.00x** | at least 6: missed |") == 1, "orders"
    assert told.count("**4.00x** | at least 8.5: missed |") == 1, "small"
    assert told.count("**0.89x** | at least 2.6: missed |") == 1, "orders, the process"
    assert "| orders: process | start and end 2.0, engine's start 5.0, scan 1.2, write 0.5, other 0.2 |" in told
    assert "| orders: local | start and end 1.5, engine's start 0.5, scan 1.2" in told
    assert told.count("**3.20x** | at least 4.5: missed |") == 1, "orders, --engine local"
    assert "Spark: two are 1.90 times as fast as one (at least 1.85: met)" in told
    assert "`--engine local`: two are 1.30 times as fast as one (at least 1.85: missed)" in told
    assert (
        told.count("takes 1.25 times as long as the local engine's\n(at most 1.3: met), and its whole command 6.5 s longer\n")
        == 3
    )
    assert "| local, without | 3.80 | **3.80** | 3.80 |" in told
    assert "where Python keeps none: 1.10 s (at most 1.2: met)." in told
    assert "| cluster, again | 40.00 | **40.00** | 40.00 | 7.00 | 9.50 |" in told
    assert "costs 13.5 s more than `--master local[2]`\n(at most 12: missed). Its first task ran 7.0 s" in told
    assert "With `--engine local`: 3.50 s (at most 4: met)." in told
    assert "4.00 times as long (at most 4.2: met)" in told
    assert "1.50 times as fast as one (at least 1.6: missed)" in told
    assert "page cache" not in told
    assert "page cache" in page(results() | {"warm": False})


@pytest.mark.parametrize(
    "less",
    [{"scale": 0.5}, {"races": results()["races"][:2]}, *({name: None} for name in PARTS[1:])],
)
def test_only_a_full_race_is_kept(less: dict[str, Any]) -> None:
    """Anything less must not take the committed page's place."""
    assert is_full(results())
    assert not is_full({name: value for name, value in (results() | less).items() if value is not None})


def test_the_run_of_the_median() -> None:
    runs = results()["races"][0]["runs"]["build"]
    assert middle_run(runs, "build")["build"] == 2.0
    assert middle_run([*runs, *runs], "build")["build"] == 2.0
    assert stages(runs[0]) == {"scan": 1.25, "write": 0.5, "other": 0.25}


def test_stages_are_what_the_program_tells() -> None:
    said = "scan: 3 ranges, 5 bytes\nscan: 1/3 ranges\nscan: done after 1.2 s\nscan again (2): done after 0.1 s\nwarning: x\n"
    assert stages_told(said) == {"scan": 1.2, "scan again (2)": 0.1}


def test_the_page_can_be_written() -> None:
    committed = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
    assert (committed.count(BEGIN), committed.count(END)) == (1, 1)
    assert committed.index(BEGIN) < committed.index(END)
