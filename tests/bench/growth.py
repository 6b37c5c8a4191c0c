"""What a build costs as its log grows, and what larger ones should cost: ``python -m tests.bench.growth``.

A standalone cluster of this machine with two executors of one core builds logs of records of 1 KiB with 1,000 queues, 100,000
and one, and sparse logs of records of 64 KiB, the largest of which no memory holds. Each log is made, built once with
Spark's event log, and removed. Then the driver alone takes the plans of 1, 10 and 100 TiB (``tests.bench.driver``). Prints a
table and writes the figures to a JSON file; ``--page`` writes the page of docs/explanation from them.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from tests.bench.driver import drive
from tests.bench.growing import _adopt
from tests.bench.logs import BENCH, GIB, ROOT
from tests.bench.machine import describe_machine
from tests.bench.pretended import Shape
from tests.bench.process_time import tree_seconds
from tests.bench.segment import memory_by_kind
from tests.bench.template_log import message_of, write_log
from tests.tools.encode import MIN_BLANK, encode
from tests.tools.faulty_cluster import Cluster, cluster, event_log, events_of
from tests.tools.faulty_processes import command, die_with_parent

FIGURES: Final = Path(__file__).with_name("growth.json")
PAGE: Final = ROOT / "docs" / "explanation" / "growth.md"
BEGIN, END = "<!-- written by tests.bench.growth -->\n", "<!-- until here -->\n"
QUEUES_A_TOPIC: Final = 8
SHORT, LONG = 830, 65_000
"""bytes of body: a record of 1 KiB, and one most of whose pages are a hole"""
EXECUTORS: Final = 2
UNIT, ITEM = 20, 20
MIB: Final = 1 << 20


class Case(NamedTuple):
    """A log, its size in GiB of whole segments."""

    gib: int
    queues: int
    body: int

    @property
    def name(self) -> str:
        kind = "1 KiB" if self.body == SHORT else "64 KiB, sparse"
        return f"{self.gib} GiB of {kind}, {'one queue' if self.queues == 1 else f'{self.queues:,} queues'}"

    def make(self, store: Path) -> int:
        """Write the log; returns its records."""
        size = len(encode(message_of(0, 0, QUEUES_A_TOPIC, self.body), 0))
        records = (GIB - MIN_BLANK) // size * self.gib
        # Each queue has a record at least.
        queues = np.random.default_rng(7).permutation(np.arange(records) % self.queues).astype(np.int32)
        write_log(store / "commitlog", queues, QUEUES_A_TOPIC, self.body, sparse=self.body == LONG)
        return records


CASES: Final = (
    Case(1, 1_000, SHORT),
    Case(8, 1_000, SHORT),
    Case(8, 100_000, SHORT),
    Case(8, 1, SHORT),
    Case(1, 1_000, LONG),
    Case(8, 1_000, LONG),
    Case(64, 1_000, LONG),
)
DRIVEN: Final = ((1 << 10, 100_000), (10 << 10, 1_000_000), (100 << 10, 1_000_000))
"""segments of 1 GiB and queues of the logs whose plans the driver takes"""
LIMIT: Final = 256 * MIB
"""spark.driver.maxResultSize of conf/spark-defaults.conf"""


def largest(root: int, done: threading.Event, peak: dict[str, int]) -> None:
    """Sample the memory of the processes below ``root`` until ``done``: the largest Python, and the largest JVM."""
    while not done.wait(0.1):
        for kind, size in memory_by_kind(root).items():
            peak[kind] = max(peak.get(kind, 0), size)


def build(store: Path, place: Path, found: Cluster) -> dict[str, Any]:
    """Build the log on the cluster: seconds, processor time of all processes, memory, and what Spark's event log counts."""
    out, events = place / "out", place / "events"
    shutil.rmtree(events, ignore_errors=True)
    settings = {"spark.cores.max": str(EXECUTORS), "spark.executor.cores": "1", "spark.executorEnv.PYTHONPATH": str(ROOT)}
    settings |= {"spark.scheduler.minRegisteredResourcesRatio": "1.0", **event_log(events)}
    peak, done, before, begin = dict[str, int](), threading.Event(), used(os.getpid()), time.monotonic()
    sampler = threading.Thread(target=largest, args=(os.getpid(), done, peak))
    sampler.start()
    try:
        words = command(store, out, "--master", found.url)
        environment = os.environ | found.client(place / "driver", settings)
        ended = subprocess.run(
            words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, preexec_fn=die_with_parent
        )
    finally:
        done.set()
        sampler.join()
    if ended.returncode:
        raise SystemExit(f"the build failed: {ended.stderr[-2000:]}")
    whole, summary = time.monotonic() - begin, json.loads(ended.stdout)
    tasks = events_of(events, "SparkListenerTaskEnd")
    # Of all jobs the scan's alone brings the driver something for each range; it comes first.
    scan = min(task["Stage ID"] for task in tasks)
    brought = sum((task.get("Task Metrics") or {}).get("Result Size", 0) for task in tasks if task["Stage ID"] == scan)
    metrics = [task.get("Task Metrics") or {} for task in tasks]
    # Of an IndexFile that is not full only the part in use counts: with its slots an item takes 21 bytes.
    wrote = summary["units"] * UNIT + summary["items"] * (ITEM + 1)
    shutil.rmtree(out)
    return {
        "whole": whole, "build": summary["seconds"]["build"], "cpu": used(os.getpid()) - before, "tasks": len(tasks),
        "shuffle": sum(found.get("Shuffle Write Metrics", {}).get("Shuffle Bytes Written", 0) for found in metrics),
        "results": brought, "units": summary["units"], "wrote": wrote,
        "files": sum(summary["files"].values()), "jvm": peak.get("jvm", 0), "python": peak.get("worker", 0),
    }  # fmt: skip


def used(root: int) -> float:
    """Seconds of processor time of what ran below this process, whether it has ended or not: it adopts what others leave."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    return tree_seconds(root) - own.ru_utime - own.ru_stime


def driven(segments: int, queues: int, folder: Path) -> dict[str, Any]:
    """What the driver takes for a plan, in a process of its own."""
    words = [sys.executable, "-m", "tests.bench.growth", "--drive", f"{segments},{queues}", "--folder", str(folder)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, preexec_fn=die_with_parent)
    if done.returncode:
        raise SystemExit(f"the driver failed: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def drive_one(segments: int, queues: int, folder: Path) -> dict[str, Any]:
    """The driver's seconds and memory for a log of so many segments and queues."""
    made = Path(tempfile.mkdtemp(prefix="driven-", dir=folder))
    try:
        found = drive(made, Shape(segments, queues), max_fill=100_000)
    finally:
        shutil.rmtree(made)
    if found.summary.exit:
        raise SystemExit(found.summary.error)
    return {"segments": segments, "queues": queues, "seconds": found.seconds, "memory": found.memory}


def row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def table(figures: dict[str, Any]) -> Iterator[str]:
    """What was measured."""
    yield row(
        "measured",
        "records",
        "whole, s",
        "build, s",
        "cores' s a GiB",
        "tasks",
        "shuffle, MiB a GiB",
        "JVM, MiB",
        "Python, MiB",
    )
    yield row("---", *["---:"] * 8)
    for case in figures["cases"]:
        gib = case["gib"]
        yield row(
            case["name"], f"{case['records']:,}", f"{case['whole']:.1f}", f"{case['build']:.1f}", f"{case['cpu'] / gib:.1f}",
            case["tasks"], f"{case['shuffle'] / MIB / gib:.1f}", f"{case['jvm'] / MIB:,.0f}", f"{case['python'] / MIB:,.0f}",
        )  # fmt: skip
    yield ""
    yield row("measured: the driver alone", "queues", "seconds", "memory, MiB")
    yield row("---", *["---:"] * 3)
    for one in figures["driver"]:
        yield row(
            f"{one['segments']:,} segments of 1 GiB",
            f"{one['queues']:,}",
            f"{one['seconds']:.1f}",
            f"{one['memory'] / MIB:,.0f}",
        )
    yield ""


class Larger(NamedTuple):
    """What a build should cost that was not measured."""

    name: str
    tib: int
    executors: int
    cores: int = 4


LARGER: Final = (Larger("1 TiB on 10 executors", 1, 10), Larger("100 TiB on 500 executors", 100, 500))


def slope(cases: list[dict[str, Any]], name: str) -> float:
    """How much more of ``name`` a GiB of records of 1 KiB takes: of the largest log and the smallest."""
    short = [case for case in cases if case["body"] == SHORT] or cases
    fits = sorted((case for case in short if case["queues"] == short[0]["queues"]), key=lambda case: float(case["gib"]))
    low, high = fits[0], fits[-1]
    if low is high:
        return float(high[name]) / float(high["gib"])
    return max(0.0, float(high[name] - low[name]) / float(high["gib"] - low["gib"]))


def calculated(figures: dict[str, Any]) -> Iterator[str]:
    """What follows from it for logs of records of 1 KiB, executors of four cores each, and what breaks first."""
    cases, driver = figures["cases"], figures["driver"]
    cores, shuffle, wrote, results = (slope(cases, name) for name in ("cpu", "shuffle", "wrote", "results"))
    if cores <= 0:
        yield "Nothing: the largest log took no more processor time than the smallest, so other work decided these figures."
        return
    least = min(cases, key=lambda case: float(case["whole"]))
    start = max(0.0, least["whole"] - least["build"])
    yield row(
        "calculated",
        "tasks' work, s",
        "driver, s",
        "start, s",
        "log read an executor, MiB/s",
        "shuffle, GiB",
        "written, GiB",
        "results to the driver, MiB",
    )
    yield row("---", *["---:"] * 7)
    for one in LARGER:
        gib = one.tib << 10
        work = gib * cores / (one.executors * one.cores)
        nearest = min(driver, key=lambda found: abs(found["segments"] - gib), default=None)
        plan = nearest["seconds"] * gib / nearest["segments"] if nearest else 0.0
        read = gib * 1024 / one.executors / max(work, 1e-9)
        planned = f"{plan:.0f}" if nearest else "not measured"
        carried = (f"{gib * size / GIB:,.0f}" for size in (shuffle, wrote))
        yield row(one.name, f"{work:.0f}", planned, f"{start:.0f}", f"{read:,.0f}", *carried, f"{gib * results / MIB:,.0f}")
    yield ""
    most = LIMIT / results / 1024 if results else 0.0
    yield from [
        "An executor has four cores as fast as these. The work of tasks is the processor time a GiB more of 1 KiB records.",
        "Where disks, the network or the bucket give an executor less than that column says, it is read as fast as they can.",
        "",
        "**What breaks first**: each range sends the driver its summary. `spark.driver.maxResultSize` is 256 MiB, which the",
        f"results of some {most:,.0f} TiB fill (calculated). Then the run ends with that setting's name, and nothing is",
        "published: give a larger log a larger setting. Next is the driver's memory, by the table above.",
    ]


def page(figures: dict[str, Any]) -> str:
    """The part of the page between its marks."""
    machine = figures["machine"]
    about = ", ".join(
        f"{name} {machine[name]}" for name in ("processor", "cores", "memory", "Python", "pyspark", "load before")
    )
    lines = [
        "## Measured",
        "",
        f"    {figures['command']}",
        "",
        f"{about}. {figures['minutes']:.0f} minutes, each build once.",
        "",
    ]
    lines += [*table(figures), "## Calculated", ""]
    if figures["cases"]:
        lines += calculated(figures)
    return "\n".join(lines) + "\n"


def write_page(figures: dict[str, Any]) -> None:
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{page(figures)}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", default="", help="numbers of the logs to build, from 1 on, separated by commas (all)")
    parser.add_argument("--shrink", type=int, default=1, help="divide sizes, queues and segments by this, to try it out")
    parser.add_argument("--json", type=Path, default=BENCH / "growth.json")
    parser.add_argument("--folder", type=Path, default=BENCH, help="for logs and builds")
    parser.add_argument("--page", type=Path, help="write the page from these figures, and measure nothing")
    parser.add_argument("--drive", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.page:
        write_page(json.loads(given.page.read_text(encoding="utf-8")))
        return 0
    if given.drive:
        segments, queues = map(int, given.drive.split(","))
        print(json.dumps(drive_one(segments, queues, given.folder)))
        return 0
    given.folder.mkdir(exist_ok=True)
    chosen = [CASES[int(number) - 1] for number in given.cases.split(",")] if given.cases else list(CASES)
    figures: dict[str, Any] = {
        "command": " ".join(["python -m tests.bench.growth", *sys.argv[1:]]),
        "machine": describe_machine(),
        "cases": [],
        "driver": [],
    }
    begin = time.monotonic()
    _adopt()
    # One that is told to end removes its logs; whatever ends it, its cluster and its builds die with it.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))

    def keep() -> None:
        figures["minutes"] = (time.monotonic() - begin) / 60
        given.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")

    with tempfile.TemporaryDirectory(prefix="growth-", dir=given.folder) as name:
        place = Path(name)
        with cluster(place / "spark") as found:
            for case in chosen:
                case = case._replace(gib=max(1, case.gib // given.shrink), queues=max(1, case.queues // given.shrink))
                store = place / "store"
                records = case.make(store)
                if not figures["cases"]:
                    # Not counted: it pays for what this host reads and compiles for the first time.
                    build(store, place, found)
                figures["cases"].append({"name": case.name, **case._asdict(), "records": records, **build(store, place, found)})
                shutil.rmtree(store)
                print(f"{case.name}: {figures['cases'][-1]['whole']:.1f} s", flush=True)
                keep()
        for segments, queues in DRIVEN:
            figures["driver"].append(driven(max(1, segments // given.shrink), max(1, queues // given.shrink), place))
            keep()
    print(page(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
