"""One hot queue among many small ones: are both cores busy to the end? ``python -m tests.bench.skew``.

10,000,000 messages of one queue and 1,000 each of 1,000 others, mixed, through Spark on two cores. Prints the tasks of the
write stage, from Spark's event log, and for how much of that stage both cores were busy.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from tests.bench.logs import BENCH
from tests.bench.template_log import write_log


@dataclass(frozen=True)
class Task:
    """A task of Spark; times in seconds since 1970."""

    stage: int
    name: str
    begin: float
    end: float


def make_store(messages: int, small: int, each: int, seed: int) -> Path:
    """The store with the log; queue 0 is the hot one."""
    store = BENCH / f"skew-{messages}-{small}-{each}-{seed}"
    if not store.exists():
        queues = np.concatenate([np.zeros(messages, np.int32), np.repeat(np.arange(1, small + 1, dtype=np.int32), each)])
        np.random.default_rng(seed).shuffle(queues)
        aside = BENCH / f".making-{store.name}"
        shutil.rmtree(aside, ignore_errors=True)
        write_log(aside / "commitlog", queues)
        aside.rename(store)
    return store


def _kind(stage: dict[str, Any]) -> str:
    scopes = " ".join(f"{rdd['Name']} {rdd.get('Scope')}" for rdd in stage["RDD Info"])
    if "ShuffledRowRDD" in scopes:
        return "ConsumeQueue files"
    return "units to their tasks" if "InMemoryTableScan" in scopes else "an IndexFile"


def tasks_of(log: Path, begin: float, end: float) -> list[Task]:
    """The tasks that ran between two times, from an event log."""
    kinds, found = dict[int, str](), []
    for line in log.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        if event["Event"] == "SparkListenerStageSubmitted":
            kinds[event["Stage Info"]["Stage ID"]] = _kind(event["Stage Info"])
        elif event["Event"] == "SparkListenerTaskEnd":
            info, stage = event["Task Info"], event["Stage ID"]
            task = Task(stage, kinds[stage], info["Launch Time"] / 1e3, info["Finish Time"] / 1e3)
            if task.end > begin and task.begin < end:
                found.append(task)
    return sorted(found, key=lambda task: (task.stage, task.begin))


def busy(tasks: list[Task], begin: float, end: float, cores: int) -> list[float]:
    """For how much of the time 0, 1, ... up to ``cores`` tasks ran at once."""
    edges = sorted({begin, end, *(min(max(at, begin), end) for task in tasks for at in (task.begin, task.end))})
    shares = [0.0] * (cores + 1)
    for low, high in pairwise(edges):
        running = sum(task.begin <= low and task.end >= high for task in tasks)
        shares[min(running, cores)] += (high - low) / (end - begin)
    return shares


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--small", type=int, default=1_000)
    parser.add_argument("--each", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--builds", type=int, default=3, help="in one session; the last one is told")
    given = parser.parse_args()
    store = make_store(given.messages, given.small, given.each, given.seed)
    events, out = BENCH / "events", BENCH / "skew-out"
    shutil.rmtree(events, ignore_errors=True)
    events.mkdir(parents=True)
    conf = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri(), "spark.eventLog.compress": "false"}
    conf["spark.eventLog.rolling.enabled"] = "false"
    os.environ["PYSPARK_SUBMIT_ARGS"] = " ".join(f"--conf {name}={value}" for name, value in conf.items()) + " pyspark-shell"
    from rocketmq_reindex.jobs.build import build
    from rocketmq_reindex.jobs.building import full
    from rocketmq_reindex.jobs.spark.session import get_session

    spark, _ = get_session("local[2]")
    times: list[tuple[float, float]] = []
    plain = full.write_both

    def timed(*arguments: Any) -> Any:
        begin = time.time()
        try:
            return plain(*arguments)
        finally:
            times.append((begin, time.time()))

    with patch.object(full, "write_both", timed):
        for _ in range(given.builds):
            shutil.rmtree(out, ignore_errors=True)
            if build([str(store), "--out", str(out)]):
                return 1
    spark.stop()
    begin, end = times[-1]
    tasks = tasks_of(next(events.iterdir()), begin, end)
    for task in tasks:
        print(f"  {task.name:<22} {task.begin - begin:6.2f} to {task.end - begin:6.2f} s")
    shares = busy(tasks, begin, end, 2)
    print(f"write stage {end - begin:.2f} s: two tasks {shares[2]:.0%}, one {shares[1]:.0%}, none {shares[0]:.0%}")
    print(f"cores' time in tasks: {(shares[1] + 2 * shares[2]) / 2:.0%}")
    shutil.rmtree(out, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
