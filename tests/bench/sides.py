"""The two sides of the race: RocketMQ's own rebuild, and ours; each run from nothing into a new folder."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.logs import ROOT
from tests.tools.faulty_processes import command

PEER = "5.3.3"
PEER_JAVA = "-Xms4g -Xmx4g -XX:+UseG1GC -XX:G1HeapRegionSize=16m -XX:G1ReservePercent=25 -XX:InitiatingHeapOccupancyPercent=30"
"""What a broker starts with (``runbroker.sh``), but half its heap: ``tests.bench.heaps`` tells of no better ones."""
SAME_BYTES = ["--queue-order", "broker", "--checkpoint", "broker", "--broker-version", "5.3"]


@dataclass(frozen=True)
class Run:
    """Seconds of one run: ``build`` alone, ``process`` as a whole (0 where it was not one), and by stage.

    ``session`` is what of the process was gone when Spark was up.
    """

    build: float
    process: float
    records: int
    session: float = 0.0
    stages: dict[str, float] = field(default_factory=dict)


def _fresh(out: Path) -> None:
    shutil.rmtree(out, ignore_errors=True)


def run_peer(store: Path, out: Path) -> Run:
    """A real store of production settings opened on the bare log: until the last record is dispatched."""
    _fresh(out)
    begin = time.monotonic()
    command = [str(ROOT / "tests/oracle/run"), PEER, "Rebuild", str(store), "--out", str(out), "--stall", "600"]
    environment = os.environ | {"ORACLE_JAVA_OPTS": os.environ.get("ORACLE_JAVA_OPTS", PEER_JAVA)}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    said = json.loads(done.stdout)
    return Run(float(said["seconds"]), time.monotonic() - begin, int(said["records"]))


def stages_told(progress: str) -> dict[str, float]:
    """The stages that the program itself tells of, in their order."""
    return {name: float(seconds) for name, seconds in re.findall(r"^(.+): done after ([0-9.]+) s$", progress, re.MULTILINE)}


def _ended(code: int, said: str, what: str) -> None:
    if code != 0:
        raise SystemExit(f"{what} ended with {code}: {said[-2000:]}")


def run_command(
    store: Path | str, out: Path, master: str, engine: str = "spark", environment: Mapping[str, str] | None = None
) -> Run:  # fmt: skip
    """The command as a user starts it: Python and, with Spark, JVM and session included. ``environment``: more variables."""
    _fresh(out)
    begin = time.monotonic()
    done = subprocess.run(
        command(store, out, "--master", master, "--engine", engine, *SAME_BYTES),
        cwd=ROOT,
        env=os.environ | dict(environment or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    took = time.monotonic() - begin
    _ended(done.returncode, done.stderr, "the command")
    summary = json.loads(done.stdout)
    build = summary["seconds"]["build"]
    return Run(build, took, summary["records"], summary["seconds"]["session"], stages_told(done.stderr))


def run_verify(store: Path, out: Path, master: str, engine: str) -> float:
    """Seconds of a whole ``verify`` of the build ``out`` and its log; it finds no difference."""
    words = ["verify", str(out), "--commitlog", str(store / "commitlog"), "--master", master, "--engine", engine]
    begin = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "rocketmq_reindex", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    took = time.monotonic() - begin
    _ended(done.returncode, done.stderr, "the verify")
    return took


class Session:
    """A started session in this process, in which builds follow one another."""

    def __init__(self, master: str) -> None:
        from rocketmq_reindex.jobs.spark.session import get_session

        begin = time.monotonic()
        self._spark, _ = get_session(master)
        self.start_seconds = time.monotonic() - begin

    def run(self, store: Path | str, out: Path) -> Run:
        from rocketmq_reindex.jobs.build import build

        _fresh(out)
        summary, progress = io.StringIO(), io.StringIO()
        begin = time.monotonic()
        with contextlib.redirect_stdout(summary), contextlib.redirect_stderr(progress):
            code = build([str(store), "--out", str(out), "--json", *SAME_BYTES])
        took = time.monotonic() - begin
        _ended(code, progress.getvalue(), "the build")
        return Run(took, 0.0, json.loads(summary.getvalue())["records"], 0.0, stages_told(progress.getvalue()))

    def stop(self) -> None:
        self._spark.stop()
