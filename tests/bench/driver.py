"""The driver's own work for a huge log: ``python -m tests.bench.driver``.

10,000 sparse segments of 1 GiB (they take no disk), 1,000,000 queues and 500 IndexFiles go through a whole build whose
executors only pretend (``tests/bench/pretended.py``). Prints the seconds and the memory of each step.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocketmq_reindex import files
from rocketmq_reindex.jobs.api.running import make_build
from rocketmq_reindex.jobs.building import decisions, finishing, full, inputs, run, scanning
from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.building.summary import BuildResult
from rocketmq_reindex.jobs.publishing import local as output_local
from rocketmq_reindex.jobs.store import settings as store_settings
from rocketmq_reindex.storage_format.errors import ReindexError
from tests.bench.pretended import PretendedEngine, Shape
from tests.bench.steps import Steps, own_memory
from tests.tools.local_engine import QuietReporter, single

DISK = ("make durable, publish", "remove the staging folder")
WATCHED: list[tuple[Any, str, str]] = [
    (store_settings, "list_segments", "list the segments"),
    (full, "check_free", "sample, check for room"),
    (PretendedEngine, "buckets", "keys of the buckets"),
    (scanning, "cut_ranges", "cut ranges"),
    (scanning.Scan, "_round", "write plans, read summaries"),
    (scanning, "chain_ranges", "chain the ranges"),
    (decisions.Decisions, "decide", "decide on damage and order"),
    (inputs, "of_counts", "warnings"),
    (full, "plan_index_files", "plan IndexFiles"),
    (full, "write_both", "plans and results of writers"),
    (full, "name_index_files", "name IndexFiles"),
    (finishing, "make_checkpoint", "checkpoint"),
    (finishing, "write", "merge the manifest"),
    (run, "check_unchanged", "look at the segments again"),
    (output_local, "publish", DISK[0]),
    (output_local, "_sweep", "sweep the staging folder"),
    (output_local, "_clear", DISK[1]),
]
# Here, so that a step with a new name is found as soon as the tests are collected.
assert all(hasattr(owner, name) for owner, name, _ in WATCHED)


@dataclass(frozen=True)
class Driven:
    """One simulated build: seconds in all without the executors', the most memory above what the process began with."""

    seconds: float
    memory: int
    steps: Steps
    summary: BuildResult
    out: Path

    @property
    def own_seconds(self) -> float:
        """Without what the disk alone decides: making the result durable, removing the staging folder."""
        return self.seconds - sum(self.steps.seconds[label] for label in DISK)


def _enough(folder: str) -> int | None:  # noqa: ARG001  in the place of ``files.free_bytes``
    return 1 << 60


def drive(folder: Path, shape: Shape, clock: Callable[[], float] = time.perf_counter, **settings: Any) -> Driven:
    """A whole build of a pretended log in ``folder``, which is new; ``clock`` gives the seconds."""
    shape.make(folder / "store" / "commitlog")
    steps = Steps(clock=clock)
    for owner, name, label in WATCHED:
        steps.watch(owner, name, label)
    chosen = BuildSettings(store=str(folder / "store"), out=str(folder / "out"), **settings).check()
    job = make_build(chosen, QuietReporter(), single(PretendedEngine(shape, steps.elsewhere)))
    steps.watch(job, "run", "all")
    enough, files.free_bytes = files.free_bytes, _enough
    before = own_memory()
    try:
        with steps.sampling():
            job.run()
    except ReindexError as error:
        job.result.exit, job.result.error = error.exit_status, str(error)
    finally:
        files.free_bytes = enough
    return Driven(steps.seconds["all"], steps.memory["all"] - before, steps, job.result, folder / "out")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--segments", type=int, default=10_000)
    parser.add_argument("--queues", type=int, default=1_000_000)
    parser.add_argument("--odd", type=int, default=0, help="queues that miss a message each")
    parser.add_argument("--folder", type=Path, help="for the sparse segments (a temporary folder)")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="driver-", dir=given.folder))
    try:
        shape = Shape(given.segments, given.queues, given.odd)
        begin = time.monotonic()
        found = drive(folder, shape, max_fill=max(100_000, given.odd))
        print(f"{given.segments:,} segments, {given.queues:,} queues, {given.odd:,} of them out of order: ", end="")
        print(f"{found.summary.files['consumequeue']:,} ConsumeQueue files, {found.summary.files['index']:,} IndexFiles")
        for label, seconds in found.steps.seconds.items():
            print(f"  {label:<30} {seconds:8.2f} s   {found.steps.memory[label] >> 20:6,} MiB")
        print(f"driver: {found.seconds:.1f} s, {found.own_seconds:.1f} s without the disk's own; ", end="")
        print(f"{found.memory >> 20:,} MiB more than at its start; simulated in {time.monotonic() - begin:.0f} s")
    finally:
        shutil.rmtree(folder)
    if found.summary.exit:
        print(found.summary.error)
    return found.summary.exit


if __name__ == "__main__":
    sys.exit(main())
