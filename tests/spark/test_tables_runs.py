"""Runs that write to the same Delta tables, one after the other or at once, or are killed: what is in the tables meanwhile and
afterwards.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession, functions as F

from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.building.run import Build
from rocketmq_reindex.jobs.building.summary import BuildResult
from rocketmq_reindex.jobs.command.tables_place import table_path
from rocketmq_reindex.jobs.spark.engine import SparkEngine, SparkEngines
from rocketmq_reindex.jobs.tables import making, recorder
from rocketmq_reindex.jobs.tables.making import ensure
from rocketmq_reindex.jobs.tables.rows import Claim, build_row
from rocketmq_reindex.jobs.watching.progress import Reporter, Shown, Stage
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.udfs.handover import Batches
from rocketmq_reindex.udfs.scan.segments import Commitlog
from rocketmq_reindex.udfs.table_schema import BUILDS, FILES, QUARANTINE, SEGMENTS
from tests.fault.disk import tree
from tests.golden.stores import GoldenStore
from tests.golden.test_build import assert_is_rebuilt
from tests.incremental.test_incremental import kept
from tests.spark.delta_rows import at_once, commit, job_with, of, only, outcome, read, rows, versions, words
from tests.tools.faulty_processes import command, fired, running, wait_until
from tests.tools.local_engine import local_build, run_build, single

Stores = Callable[[str], GoldenStore]
SECONDS = 20
"""of the processor: a run that finds nothing new starts no Spark"""


@pytest.fixture(scope="module")
def made(delta: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables that exist, for runs with ids of their own: to make them takes longer than a small build."""
    place = tmp_path_factory.mktemp("tables")
    for table in (BUILDS, SEGMENTS, FILES, QUARANTINE):
        ensure(delta, table, table_path(str(place), table.name))
    return place


def test_a_table_that_another_process_is_making(made: Path, delta: SparkSession, tmp_path: Path) -> None:
    """Its folder is there, its first version is not: it is waited for."""
    path = tmp_path / "tables" / BUILDS.name
    (path / "_delta_log").mkdir(parents=True)
    first = f"_delta_log/{0:020d}.json"
    timer = threading.Timer(1, shutil.copy, (made / BUILDS.name / first, path / first))
    timer.start()
    ensure(delta, BUILDS, f"file:{path}")
    timer.join()
    assert read(delta, path.parent, BUILDS).columns == [column.name for column in BUILDS.columns]


def test_a_table_that_a_killed_process_was_making(delta: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its log is there and stays empty: it is made anew. A log that is new, or holds anything, stays as it is."""
    monkeypatch.setattr(making, "_PAUSES", (0.01,))
    path = table_path(str(tmp_path), FILES.name)
    log = tmp_path / FILES.name / "_delta_log"
    (log / "_staged_commits").mkdir(parents=True)
    begun = log / ".00000000000000000000.json.tmp"
    for age in (0, 3600):
        if age:
            begun.touch()
        os.utime(log, (time.time() - age,) * 2)
        with pytest.raises(InputError, match="files: is there and no Delta table: move it away"):
            ensure(delta, FILES, path)
        assert (log / "_staged_commits").is_dir()
    begun.unlink()
    os.utime(log, (time.time() - 3600,) * 2)
    ensure(delta, FILES, path)
    assert read(delta, tmp_path, FILES).count() == 0


def test_tables_that_two_threads_make(delta: SparkSession, tmp_path: Path) -> None:
    path = table_path(str(tmp_path), FILES.name)
    assert at_once(lambda _: ensure(delta, FILES, path)) == []
    assert read(delta, tmp_path, FILES).count() == 0


def test_a_driver_killed_in_its_scan(golden_store: Stores, made: Path, delta: SparkSession, tmp_path: Path) -> None:
    """kill -9 while all cores scan: the row is there, and says whose process it was."""
    store, place = golden_store("trimmed-head"), made
    asleep = {"process": "worker", "event": "open", "path": "/commitlog/", "action": "sleep 1000", "times": 2}
    asked = command(store.path, tmp_path / "out", "--tables", str(place), *store.size_words(), "--build-id", "k")
    with running([*asked, "--master", "local[2]"], tmp_path / "run", [asleep]) as run:
        wait_until(lambda: fired(tmp_path / "run") or run.process.poll() is not None)
        os.kill(run.process.pid, signal.SIGKILL)
        run.process.wait()
    row = only(of(delta, place, BUILDS, "k").collect())
    assert (row.build, row.attempt, row.state, row.stage) == ("k", 1, "started", "scan")
    assert (row.host, row.pid) == (socket.gethostname(), run.process.pid)
    assert row.stageTotalBytes == sum(path.stat().st_size for path in (store.path / "commitlog").iterdir())


class Busy(SparkEngine):
    """Keeps all cores busy before the scan, with many tasks of 0.2 s: for minutes, or until ``enough`` is called."""

    until = 0.0

    def scan(self, function: Batches, tasks: int) -> list[bytes]:
        self.spark.sparkContext.setJobGroup("busy", "tasks that sleep")
        # A job that was cancelled raises an error.
        with contextlib.suppress(Exception):
            many = self.spark.range(0, 2000, 1, 2000)
            many.selectExpr("reflect('java.lang.Thread', 'sleep', 200L) AS slept").collect()
        self.until = time.time()
        self.spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
        return super().scan(function, tasks)

    def enough(self) -> None:
        self.spark.sparkContext.cancelJobGroup("busy")


def test_progress_of_a_run(
    golden_store: Stores, made: Path, delta: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """The row says how far the run is while its scan has all cores, and the row of a run that is over does not."""
    monkeypatch.setattr(recorder, "INTERVAL", 0.5)
    start = versions(made)["builds"] + 1
    engine = Busy(delta, own=True)

    def watch() -> None:
        # The first version is the start of the run, the next one is an update.
        with contextlib.suppress(AssertionError):
            wait_until(commit(made, BUILDS, start).exists)
            wait_until(commit(made, BUILDS, start + 1).exists, 300)
        engine.enough()

    watcher = threading.Thread(target=watch)
    watcher.start()
    settings = words(golden_store("trimmed-head"), tmp_path / "out", made, build_id="going")
    assert run_build(settings, single(engine)).warnings == []
    watcher.join()
    assert commit(made, BUILDS, start + 1).stat().st_mtime < engine.until, "an update waited for the scan"

    def at(version: int) -> Row:
        found = delta.read.format("delta").option("versionAsOf", version).load(table_path(str(made), BUILDS.name))
        return only(found.where("build = 'going'").collect())

    first, going, over = at(start), at(start + 1), only(of(delta, made, BUILDS, "going").collect())
    assert (going.state, going.stage, going.endedAt, over.state, over.stage) == ("started", "scan", None, "published", None)
    assert first.startedAt <= first.updatedAt < going.updatedAt < over.updatedAt == over.endedAt


def processor_seconds() -> float:
    """Of all children that have ended; others may have the machine."""
    times = os.times()
    return times.children_user + times.children_system


def test_a_store_that_grows(golden_store: Stores, made: Path, delta: SparkSession, tmp_path: Path) -> None:
    """An incremental build of a store that RocketMQ wrote, on Spark, is a full one."""
    golden = golden_store("basic-5.3")
    store, out, later = tmp_path / "store", tmp_path / "out", tmp_path / "later"
    shutil.copytree(golden.path / "commitlog", store / "commitlog")
    later.mkdir()
    last = max((store / "commitlog").iterdir())
    shutil.move(last, later / last.name)
    settings = golden.broker_settings()

    def build() -> BuildResult:
        words = BuildSettings(store=str(store), out=str(out), tables=str(made), incremental=True, master="", **settings)
        return run_build(words.check(), SparkEngines(""))

    first = build()
    assert (first.exit, first.error) == (0, None)
    local_build(store, tmp_path / "full", **settings)
    assert tree(out) == tree(tmp_path / "full")
    shutil.move(later / last.name, last)
    second = build()
    assert (second.exit, second.error) == (0, None)
    assert second.incremental
    assert second.incremental["ranges_known"] == second.incremental["ranges"] - 1
    assert second.incremental["files_kept"]
    assert_is_rebuilt(out, golden)
    builds = read(delta, made, BUILDS).where(F.col("out") == str(out))
    assert [row.state for row in builds.collect()] == ["published"] * 2
    # And as a user would have it run every hour, though the manifest was removed.
    manifest = (out / "reindex.json").read_bytes()
    (out / "reindex.json").unlink()
    (out / "notes.txt").write_text("mine")
    before, begin = kept(out), processor_seconds()
    words = [str(store), "--out", str(out), "--incremental", "--tables", str(made), "--json"]
    for name, value in settings.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    found = subprocess.run(
        [sys.executable, "-m", "rocketmq_reindex", "build", *words],
        capture_output=True,
        text=True,
        check=True,
        timeout=900,
    )
    assert processor_seconds() - begin < SECONDS
    assert json.loads(found.stdout)["incremental"]["nothing_new"]
    assert "nothing new" in found.stderr
    assert (out / "reindex.json").read_bytes() == manifest
    after = {path: found for path, found in kept(out).items() if path not in (str(out), f"{out}/reindex.json")}
    assert after == {path: found for path, found in before.items() if path != str(out)}


def test_a_later_run_with_the_same_id(golden_store: Stores, made: Path, delta: SparkSession, tmp_path: Path) -> None:
    """The former one publishes nothing and writes no row, and says why."""
    store, place = golden_store("trimmed-head"), made
    settings = words(store, tmp_path / "first", place, build_id="same")
    later = words(golden_store("basic-5.3"), tmp_path / "second", place, build_id="same")

    def another(_: Build) -> None:
        assert run_build(later, SparkEngines("")).warnings == []

    job = job_with(settings, delta, another)
    with pytest.raises(InputError, match="--build-id same: a later run has this id as well: give each run its own"):
        job.run()
    assert not (tmp_path / "first").exists()
    assert_rows_of(delta, place, "same", tmp_path / "second")


class WhenPublished(Shown):
    """Does something between a run's last look at its claim and its rows."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call

    def stage_started(self, stage: Stage) -> None:
        if stage.name == "publish":
            self._call()


def test_a_later_run_while_the_former_publishes(
    golden_store: Stores, made: Path, delta: SparkSession, tmp_path: Path
) -> None:  # fmt: skip
    """The former one writes no row where the later one may have written its own, and says so."""
    settings = words(golden_store("trimmed-head"), tmp_path / "out", made, build_id="later")
    told = run_build(settings, SparkEngines(""), Reporter([WhenPublished(lambda: claim(delta, settings))]))
    assert (told.exit, len(told.warnings)) == (0, 1)
    assert "a later run" in told.warnings[0]
    assert "the build is published, not all of its rows are in the tables" in told.warnings[0]
    assert outcome(delta, made, "later") == (2, "started")
    assert [of(delta, made, table, "later").count() for table in (SEGMENTS, FILES)] == [0, 0]


def claim(spark: SparkSession, settings: BuildSettings) -> Claim:
    """Claims the build as a run with these settings does at its start."""
    one = Claim(spark, table_path(settings.tables, BUILDS.name), settings.build_id, shared=True)
    one.make(
        lambda: spark.createDataFrame(build_row(settings, BuildResult(), Commitlog([], [], []), "started", one.attempt, None))
    )
    return one


def assert_rows_of(spark: SparkSession, place: Path, build: str, out: Path) -> None:
    """All rows of a build are those of one run, the one that wrote ``out``."""
    manifest = json.loads((out / "reindex.json").read_text())
    row = only(of(spark, place, BUILDS, build).collect())
    assert (row.state, row.out) == ("published", str(out))
    assert [segment for (segment,) in rows(of(spark, place, SEGMENTS, build), "segment")] == [
        entry["segment"] for entry in manifest["inputs"]
    ]
    listed = sorted((entry["path"], entry["digest"]) for entry in manifest["files"])
    assert rows(of(spark, place, FILES, build), "path", "digest") == listed


def test_claims_at_once(delta: SparkSession, tmp_path: Path) -> None:
    """Of runs that claim a build at the same moment one has it, and there is one row."""
    path, settings = table_path(str(tmp_path), BUILDS.name), BuildSettings("store", "out", tables=str(tmp_path), build_id="x")
    ensure(delta, BUILDS, path)
    claims: list[Claim] = []
    assert at_once(lambda _: claims.append(claim(delta, settings))) == []
    assert len(claims) == 2
    (held,) = (one for one in claims if holds(one))
    assert only(read(delta, tmp_path, BUILDS).collect()).run == held.attempt.run


def holds(claim: Claim) -> bool:
    try:
        claim.check()
    except InputError:
        return False
    return True


@pytest.mark.slow
def test_two_processes_at_once(golden_store: Stores, delta: SparkSession, tmp_path: Path) -> None:
    """First runs to new tables with one id: the tables are made once, and their rows are those of one run."""
    place, outs = tmp_path / "tables", (tmp_path / "one", tmp_path / "two")
    with contextlib.ExitStack() as stack:
        runs = []
        for name, out in zip(("trimmed-head", "basic-5.3"), outs, strict=True):
            store = golden_store(name)
            asked = command(
                store.path, out, "--tables", str(place), *store.size_words(), "--build-id", "x", "--master", "local[2]"
            )
            runs.append(stack.enter_context(running(asked, tmp_path / f"{out.name}-run")))
        told = [run.summary() for run in runs]
    refused = [summary for summary in told if summary["exit"]]
    assert len(refused) < 2, told
    for summary in refused:
        assert summary["error"].startswith("--build-id x: a later run")
    last = only(of(delta, place, BUILDS, "x").collect())
    assert last.out in [str(out) for out, summary in zip(outs, told, strict=True) if not summary["exit"]]
    assert_rows_of(delta, place, "x", Path(last.out))


@pytest.mark.slow
def test_a_killed_driver(golden_store: Stores, delta: SparkSession, tmp_path: Path) -> None:
    """kill -9 between two tables; the retry of the same id completes them, and nothing is there twice."""
    store, out, place = golden_store("trimmed-head"), tmp_path / "out", tmp_path / "tables"
    retried = command(store.path, out, "--tables", str(place), *store.size_words(), "--build-id", "k", "--master", "local[2]")
    process = subprocess.Popen(retried, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        first, deadline = commit(place, SEGMENTS, 1), time.monotonic() + 240
        while not first.exists() and time.monotonic() < deadline:
            time.sleep(0.005)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert first.exists()
    assert outcome(delta, place, "k") == (1, "started")
    assert (out / "reindex.json").exists()
    written = rows(read(delta, place, SEGMENTS))
    assert run_build(words(store, out, place, build_id="k", overwrite=True), SparkEngines("")).warnings == []
    assert outcome(delta, place, "k") == (2, "published")
    assert rows(read(delta, place, SEGMENTS)) == written
    assert read(delta, place, FILES).count() == len(json.loads((out / "reindex.json").read_text())["files"])
