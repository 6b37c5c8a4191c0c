"""A random store that grows from one build to the next: what incremental builds leave is the real store's own rebuild."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from tests.golden.stores import read_files
from tests.oracle.judge import different
from tests.oracle.scenarios import Scenario
from tests.reference.log import read_segments, walk
from tests.reference.settings import Settings
from tests.tools.local_engine import InlineEngine, local_build

CUTS = 3


def judge_cuts(scenario: Scenario, folder: Path) -> list[str]:
    """What is wrong with ours: nothing, if all goes well. ``folder`` is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    rng = random.Random(scenario.settings["seed"])
    options = scenario.options()
    size = int(options["segment_size"])
    names = ("lmq", "delay_levels", "broker_version")
    rules = Settings(segment_size=size, **{name: options[name] for name in names})
    records = walk(read_segments([scenario.path / "commitlog"], size)[0], size, rules).records
    ends = sorted(rng.sample([record.offset + record.size for record in records], min(CUTS, len(records))))
    ranges = rng.choice((0, rng.randrange(700, 5_000), rng.randrange(5_000, 200_000)))
    for end in [*ends, None]:
        lay_down(scenario.path, folder / "store", end)
        summary = local_build(
            folder / "store", folder / "out", InlineEngine(2, 2), range_size=ranges, incremental=True,
            tables=str(folder / "tables"), **options,
        )  # fmt: skip
        if summary.exit:
            return [f"{scenario.name}: incremental up to {end or 'the end'}: exit {summary.exit}: {summary.error}"]
    return [
        f"{scenario.name}: incremental, cut at {ends}: {words}" for words in different(scenario, read_files(folder / "out"))
    ]


def lay_down(store: Path, out: Path, end: int | None) -> None:
    """Of the log in ``store`` what lies before ``end`` goes into ``out``, with zeros behind it as in a segment that fills."""
    (out / "commitlog").mkdir(parents=True, exist_ok=True)
    for path in sorted((store / "commitlog").iterdir()):
        data, kept = path.read_bytes(), len(path.read_bytes()) if end is None else max(0, end - int(path.name))
        if kept:
            (out / "commitlog" / path.name).write_bytes(data[:kept].ljust(len(data), b"\0"))
