"""``--tables`` with the real Delta Lake: what a run leaves there, once and no twice, whatever happens in between."""

from __future__ import annotations

import dataclasses
import getpass
import json
import os
import re
import shutil
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mmh3
import pytest
from pyspark.sql import DataFrame, Row, SparkSession, functions as F

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.api.running import make_build
from rocketmq_reindex.jobs.building.run import Build
from rocketmq_reindex.jobs.building.summary import BuildResult
from rocketmq_reindex.jobs.command.results import Interrupts
from rocketmq_reindex.jobs.command.tables_place import quoted, table_path
from rocketmq_reindex.jobs.spark.engine import SparkEngines
from rocketmq_reindex.jobs.spark.session import FEW_ROWS, run_settings
from rocketmq_reindex.jobs.tables import making
from rocketmq_reindex.jobs.tables.making import ensure
from rocketmq_reindex.jobs.tables.recorder import Recorder
from rocketmq_reindex.jobs.tables.rows import small_queries, write
from rocketmq_reindex.jobs.watching.progress import Reporter, Shown, Stage
from rocketmq_reindex.storage_format.digest import new_digest
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.udfs.sql import sources
from rocketmq_reindex.udfs.table_schema import BUILDS, FILES, MESSAGES, QUARANTINE, SEGMENTS, TABLES, Table
from tests.golden.guard import guarded
from tests.golden.stores import GoldenStore
from tests.spark.conftest import few_rows
from tests.spark.delta_rows import at_once, commit, job_with, of, only, outcome, read, rows, versions, words
from tests.tools import spoil
from tests.tools.encode import EPOCH, Message
from tests.tools.exported import check_spark_reads
from tests.tools.local_engine import QuietReporter, run_build
from tests.tools.log_writer import LogWriter

Stores = Callable[[str], GoldenStore]
NAME = "t`able's %41 #é"
"""A folder that SQL, URIs and shells would each read in a way of their own"""
NEW = ("store", "host", "user", "pid", "updatedAt", "stage", "stageBytes", "stageTotalBytes", "run", "digestKind")
"""Columns of builds that came later than the others"""
RUN = "scheduled__2026-01-01T00:00:00+00:00"


def as_told(row: Row, summary: BuildResult) -> None:
    """The row of a build says what its summary says."""
    assert (row.exit, row.error, row.version) == (summary.exit, summary.error, summary.version)
    assert (row.bytes, row.records, row.units, row.items) == (summary.bytes, summary.records, summary.units, summary.items)
    assert (row.queueFiles, row.indexFiles) == (summary.files["consumequeue"], summary.files["index"])
    assert (row.sessionSeconds, row.buildSeconds) == (summary.seconds["session"], summary.seconds["build"])
    assert [decision.asDict() for decision in row.decisions] == summary.decisions
    assert row.damagedPlaces == len(summary.damage)


@pytest.fixture(scope="module")
def recorded(golden_store: Stores, delta: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Build, Path, Path]:
    """One build with all tables: its job, DIR and the tables' folder."""
    root = tmp_path_factory.mktemp("recorded")
    store, out, place = golden_store("transactions-delay"), root / "out", root / NAME
    place.mkdir()
    settings = words(store, out, place, messages_table=True, build_id=RUN, range_size=300_000)
    job = make_build(settings, QuietReporter(), SparkEngines(""))
    with guarded(store.path, out):
        job.run()
    assert delta.catalog.listTables() == []
    assert delta._jvm is not None
    # The JVM works in the root folder, which is not empty.
    assert delta._jvm.java.lang.System.getProperty("user.dir") == "/"
    left = {"spark-warehouse", "metastore_db", "derby.log", "artifacts", "_delta_log"}.intersection(os.listdir("/"))
    assert not left, "nothing is left where the JVM works"
    return job, out, place


def test_a_published_build(recorded: tuple[Build, Path, Path], golden_store: Stores, delta: SparkSession) -> None:
    job, out, place = recorded
    summary, manifest = job.result, json.loads((out / "reindex.json").read_text())
    assert (summary.exit, summary.error) == (0, None)
    build = only(read(delta, place, BUILDS).collect())
    as_told(build, summary)
    assert (build.state, build.attempt, build.build) == ("published", 1, RUN)
    assert build.startedAt < build.endedAt
    assert json.loads(build.settings) == manifest["settings"]
    store = golden_store("transactions-delay").path
    assert (build.inputs, build.out, build.store) == ([str(store / "commitlog")], str(out), str(store))
    assert (build.host, build.user, build.pid) == (socket.gethostname(), getpass.getuser(), os.getpid())
    assert (build.stage, build.updatedAt) == (None, build.endedAt)

    segments = sorted(read(delta, place, SEGMENTS).collect(), key=lambda row: row.startOffset)
    assert [(s.segment, s.size, s.chunkDigests) for s in segments] == [
        (entry["segment"], entry["size"], entry["digests"]) for entry in manifest["inputs"]
    ]
    assert sum(s.records for s in segments) == summary.records
    assert sum(s.units for s in segments) == summary.units
    assert sum(s.items for s in segments) == summary.items
    for segment in segments:
        content = Path(segment.path).read_bytes()
        assert (len(content), int(segment.segment)) == (segment.size, segment.startOffset)
        chunk = new_digest([content]).digest()
        assert segment.chunkDigests == [chunk.hex()]
        assert segment.digest == new_digest([chunk]).digest().hex()

    listed = [(f["path"], f["path"].split("/")[0], f["size"], f["used"], f["digest"]) for f in manifest["files"]]
    assert rows(read(delta, place, FILES), "path", "kind", "size", "used", "digest") == listed
    assert read(delta, place, QUARANTINE).count() == 0


def test_messages(recorded: tuple[Build, Path, Path], golden_store: Stores, delta: SparkSession) -> None:
    """Every record as the data source gives it, and the hashes of the items that RocketMQ wrote."""
    _, _, place = recorded
    store = golden_store("transactions-delay").path
    messages = read(delta, place, MESSAGES)
    sources.register(delta)
    log = delta.read.format("rocketmq-commitlog").load(str(store))
    same = [name for name in MESSAGES.arrow.names if name in log.columns]
    assert rows(messages, *same) == rows(log, *same) != []
    items = delta.read.format("rocketmq-index").load(str(store / "rebuilt"))
    hashes = messages.where("sysFlag & 12 <> 12").select(F.explode("keyHashes").alias("keyHash"), "commitLogOffset")
    assert rows(hashes) == rows(items, "keyHash", "commitLogOffset")
    first, *_ = stretches = [
        (min(segment.minStoreTimestamp, 2**62), segment.maxStoreTimestamp, segment.records)
        for segment in sorted(read(delta, place, SEGMENTS).collect(), key=lambda row: row.startOffset)
        if segment.records
    ]
    assert len(stretches) > 1
    assert messages.where(F.col("storeTimestamp").between(*first[:2])).count() >= first[2]
    for row in messages.where("size(keyFingerprints) > 1").limit(2).collect():
        keys = [*([row.uniqKey] if row.uniqKey is not None else []), *(key for key in (row["keys"] or "").split(" ") if key)]
        prints = [mmh3.hash64(f"{row.topic}#{key}")[0] for key in keys]
        assert row.keyFingerprints == prints
        assert row.uniqFingerprint == (prints[0] if row.uniqKey is not None else None)
        assert row.keyFingerprint == prints[1 if row.uniqKey is not None else 0]
        assert messages.where(F.array_contains("keyFingerprints", prints[-1])).where(F.col("topic") == row.topic).count() > 0


def test_the_tables_are_as_defined(recorded: tuple[Build, Path, Path], delta: SparkSession) -> None:
    _, _, place = recorded
    for table in TABLES:
        path = table_path(str(place), table.name)
        found = delta.read.format("delta").load(path).schema
        told = [(f.name, f.dataType.simpleString(), f.metadata.get("comment")) for f in found]
        assert told == [(c.name, re.sub(r"(?<=[,:]) | (?=[,:])", "", c.sql).lower(), c.comment) for c in table.columns]
        # Spark shows a table's columns as nullable: the log's own schema says what Delta holds to.
        first = (Path(path.removeprefix("file:")) / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
        schema = json.loads(next(json.loads(line)["metaData"]["schemaString"] for line in first if "metaData" in line))
        assert {f["name"] for f in schema["fields"] if not f["nullable"]} == {c.name for c in table.columns if c.required}
        detail = only(delta.sql(f"DESCRIBE DETAIL {quoted(path)}").collect())
        assert tuple(detail.clusteringColumns) == table.clustered
        checks = {name.removeprefix("delta.constraints."): check for name, check in detail.properties.items()}
        assert checks == table.checks


@pytest.mark.parametrize(
    ("table", "change"),
    [
        (BUILDS, {"state": "done"}),
        (BUILDS, {"exit": None}),
        (BUILDS, {"exit": 5}),
        (SEGMENTS, {"records": -1}),
        (SEGMENTS, {"digest": "00"}),
        (FILES, {"used": 10_000_000}),
        (FILES, {"kind": "abort"}),
        (MESSAGES, {"msgSize": 0}),
        (MESSAGES, {"topic": None}),
    ],
)
def test_what_a_table_refuses(
    table: Table, change: dict[str, Any], recorded: tuple[Build, Path, Path], delta: SparkSession
) -> None:  # fmt: skip
    _, _, place = recorded
    found = read(delta, place, table)
    wrong = found.limit(1)
    for name, value in change.items():
        wrong = wrong.withColumn(name, F.lit(value).cast(found.schema[name].dataType))
    before = versions(place)
    with pytest.raises(Exception, match="_CONSTRAINT_"):
        wrong.write.format("delta").mode("append").save(table_path(str(place), table.name))
    assert versions(place) == before


def test_twice_adds_nothing(recorded: tuple[Build, Path, Path]) -> None:
    """The same call again, as by a driver that was not told of its success, commits nothing."""
    job, out, place = recorded
    at = versions(place)
    assert isinstance(job.recorder, Recorder)
    job.recorder.write_published(str(out / "reindex.json"), lambda: None)
    assert job.result.warnings == []
    assert versions(place) == at


def test_a_table_that_fails_after_publishing(
    recorded: tuple[Build, Path, Path], golden_store: Stores, delta: SparkSession, tmp_path: Path
) -> None:  # fmt: skip
    """A warning, and no change of the status; the retry completes the tables, and nothing is there twice."""
    _, _, place = recorded
    store, out, at = golden_store("trimmed-head"), tmp_path / "out", versions(place)
    broken = commit(place, FILES, at["files"] + 1)
    job = make_build(words(store, out, place, build_id="b1"), Reporter([Spoiler(broken)]), SparkEngines(""))
    job.run()
    assert (job.result.exit, len(job.result.warnings)) == (0, 1)
    assert "the build is published, not all of its rows are in the tables" in job.result.warnings[0]
    assert "\n" not in job.result.warnings[0]
    assert (out / "reindex.json").exists()
    assert outcome(delta, place, "b1") == (1, "started")
    written = rows(of(delta, place, SEGMENTS, "b1"))
    assert written
    shutil.rmtree(broken)

    others = {table.name: rows(read(delta, place, table).drop("decisions").where("build <> 'b1'")) for table in TABLES}
    summary = run_build(words(store, out, place, build_id="b1", overwrite=True), SparkEngines(""))
    assert (summary.exit, summary.warnings) == (0, [])
    assert outcome(delta, place, "b1") == (2, "published")
    assert rows(of(delta, place, SEGMENTS, "b1")) == written
    listed = [f["path"] for f in json.loads((out / "reindex.json").read_text())["files"]]
    assert [path for (path,) in rows(of(delta, place, FILES, "b1"), "path")] == listed
    for table in TABLES:
        assert rows(read(delta, place, table).drop("decisions").where("build <> 'b1'")) == others[table.name]

    # A third run that publishes nothing leaves the rows of what is published: its claim to the build is all it writes.
    spoilt, at = spoil.copy_store(store.path, tmp_path / "store"), versions(place)
    spoil.bad_magic(spoilt, 20)
    summary = run_build(words(store, out, place, store=str(spoilt), build_id="b1", overwrite=True), SparkEngines(""))
    assert summary.exit == 5
    assert "build b1 was published before: this run is not recorded" in summary.warnings[-1]
    assert versions(place) == at | {"builds": at["builds"] + 1}
    assert outcome(delta, place, "b1") == (2, "published")
    assert rows(of(delta, place, SEGMENTS, "b1")) == written


def test_a_start_that_cannot_be_recorded(
    recorded: tuple[Build, Path, Path], golden_store: Stores, delta: SparkSession, tmp_path: Path
) -> None:  # fmt: skip
    """Nothing is read, written or published, and a retry publishes."""
    _, _, place = recorded
    store, out = golden_store("trimmed-head"), tmp_path / "out"
    path = table_path(str(place), BUILDS.name)
    delta.sql(f"ALTER TABLE {quoted(path)} ADD CONSTRAINT closed CHECK (build <> 'c' OR state <> 'started')")
    settings = words(store, out, place, build_id="c")
    job = make_build(settings, QuietReporter(), SparkEngines(""))
    try:
        with pytest.raises(InputError, match=r"--tables .*: nothing was published") as caught:
            job.run()
    finally:
        delta.sql(f"ALTER TABLE {quoted(path)} DROP CONSTRAINT closed")
    assert "\n" not in str(caught.value)
    assert "scan" not in job.reporter.seconds.rounds
    assert list(tmp_path.iterdir()) == [], "nothing is left of DIR"
    assert of(delta, place, BUILDS, "c").count() == 0
    assert run_build(settings, SparkEngines("")).warnings == []
    assert outcome(delta, place, "c") == (1, "published")


def test_a_signal_after_the_scan(
    recorded: tuple[Build, Path, Path], golden_store: Stores, delta: SparkSession, tmp_path: Path
) -> None:  # fmt: skip
    """Nothing is published, nothing goes on behind the run's back, and the row stays started until a retry publishes."""
    _, _, place = recorded
    store, out = golden_store("trimmed-head"), tmp_path / "out"
    settings = words(store, out, place, build_id="signal")
    job = job_with(settings, delta, lambda _: signal.raise_signal(signal.SIGTERM))
    with Interrupts() as interrupts, pytest.raises(KeyboardInterrupt):
        job.run()
    assert interrupts.seen
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("tables")]
    assert list(tmp_path.iterdir()) == [], "nothing is left of DIR"
    assert outcome(delta, place, "signal") == (1, "started")
    assert run_build(settings, SparkEngines("")).warnings == []
    assert outcome(delta, place, "signal") == (2, "published")


def test_a_users_own_setting_stays(delta: SparkSession) -> None:
    # As the session of these tests has one.
    assert small_queries(delta) == {}
    for name in FEW_ROWS:
        delta.conf.unset(name)
    try:
        (name,) = small_queries(delta)
        with run_settings(delta, {name: "FALLBACK"}):
            assert small_queries(delta) == {}
    finally:
        few_rows(delta)


@pytest.mark.slow
def test_rows_that_were_deleted_can_be_written_again(
    recorded: tuple[Build, Path, Path], golden_store: Stores, delta: SparkSession, tmp_path: Path
) -> None:  # fmt: skip
    """The id of a build whose rows are gone is free again: Delta's memory of its commits keeps no row out."""
    _, _, place = recorded
    store, written = golden_store("trimmed-head"), []
    for number in range(2):
        settings = words(store, tmp_path / f"out{number}", place, build_id="again")
        assert run_build(settings, SparkEngines("")).warnings == []
        assert outcome(delta, place, "again") == (1, "published")
        written.append([rows(of(delta, place, table, "again")) for table in (SEGMENTS, FILES)])
        for table in () if number else (FILES, SEGMENTS, BUILDS):
            delta.sql(f"DELETE FROM {quoted(table_path(str(place), table.name))} WHERE build = 'again'")
    assert written[0] == written[1] != [[], []]


def test_an_incremental_run_writes_rows_that_are_owed(
    recorded: tuple[Build, Path, Path], golden_store: Stores, delta: SparkSession, tmp_path: Path
) -> None:  # fmt: skip
    """DIR was published, its rows were not: the next run finds nothing new in the log, and writes them."""
    _, _, place = recorded
    store, out, at = golden_store("trimmed-head"), tmp_path / "out", versions(place)
    settings = words(store, out, place, build_id="owed", incremental=True)
    broken = commit(place, FILES, at["files"] + 1)
    first = run_build(settings, SparkEngines(""), Reporter([Spoiler(broken)]))
    shutil.rmtree(broken)
    assert (first.exit, len(first.warnings), outcome(delta, place, "owed")) == (0, 1, (1, "started"))
    before = (out / "reindex.json").stat()
    second = run_build(settings, SparkEngines(""))
    assert (second.exit, second.warnings, outcome(delta, place, "owed")) == (0, [], (2, "published"))
    listed = [f["path"] for f in json.loads((out / "reindex.json").read_text())["files"]]
    assert [path for (path,) in rows(of(delta, place, FILES, "owed"), "path")] == listed
    assert (out / "reindex.json").stat() == before

    def no_engine() -> Any:
        raise AssertionError("Spark was asked for")

    third = run_build(settings, no_engine)
    assert third.incremental
    assert third.incremental["nothing_new"]
    with pytest.raises(AssertionError, match="asked for"):
        run_build(dataclasses.replace(settings, messages_table=True), no_engine)


class Spoiler(Shown):
    """When a build is published makes something that no commit can take the place of: its first row is there by then."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def stage_started(self, stage: Stage) -> None:
        if stage.name == "publish":
            self._path.mkdir(parents=True)


def test_refused_and_salvaged(
    recorded: tuple[Build, Path, Path], golden_store: Stores, delta: SparkSession, tmp_path: Path
) -> None:  # fmt: skip
    """Damage is listed with its first bytes, of a build that was refused as well."""
    _, _, place = recorded
    sound = golden_store("trimmed-head")
    store = spoil.copy_store(sound.path, tmp_path / "store")
    spoil.bad_magic(store, 20)
    spoil.garbage(store, 40, 7)
    refused = run_build(words(sound, tmp_path / "refused", place, store=str(store)), SparkEngines(""))
    assert refused.exit == 5
    assert not (tmp_path / "refused").exists()
    build = only(read(delta, place, BUILDS).where("state = 'refused'").collect())
    as_told(build, refused)
    _quarantined(of(delta, place, QUARANTINE, build.build), refused)
    assert of(delta, place, SEGMENTS, build.build).count() == of(delta, place, FILES, build.build).count() == 0

    settings = words(sound, tmp_path / "out", place, store=str(store), on_damage="salvage", build_id="s")
    salvaged = run_build(settings, SparkEngines(""))
    assert (salvaged.exit, salvaged.error) == (3, None)
    as_told(only(of(delta, place, BUILDS, "s").collect()), salvaged)
    _quarantined(of(delta, place, QUARANTINE, "s"), salvaged)
    told = of(delta, place, SEGMENTS, "s").selectExpr("sum(damagedPlaces)", "sum(damagedBytes)").collect()
    assert tuple(only(told)) == (len(salvaged.damage), sum(d["length"] for d in salvaged.damage))


@pytest.mark.slow
def test_optimize_and_vacuum(recorded: tuple[Build, Path, Path], delta: SparkSession) -> None:
    """As docs/how-to/delta-tables.md advises, and nothing that was read before is lost."""
    _, _, place = recorded
    before = rows(read(delta, place, MESSAGES))
    table = quoted(table_path(str(place), MESSAGES.name))
    delta.sql(f"OPTIMIZE {table}")
    delta.sql(f"VACUUM {table}")
    assert rows(read(delta, place, MESSAGES)) == before


def _quarantined(found: DataFrame, summary: BuildResult) -> None:
    columns = ("segment", "offset", "length", "reason")
    assert rows(found, *columns) == sorted(tuple(d[name] for name in columns) for d in summary.damage) != []
    for row in found.collect():
        at = row.offset - int(row.segment)
        assert row.firstBytes == Path(row.path).read_bytes()[at : at + min(64, row.length)].hex() != ""


def test_what_is_refused_at_the_start(
    golden_store: Stores, delta: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """In a line that says what is wrong, not that Delta Lake is missing."""
    store = golden_store("trimmed-head")
    out, place = tmp_path / "out", tmp_path / "tables"
    delta.range(3).write.format("delta").save(str(place / "segments"))
    wrong = run_build(words(store, out, place), SparkEngines(""))
    assert wrong.exit == 1
    assert "is a table with other columns" in str(wrong.error)
    monkeypatch.setattr(making, "_PAUSES", (0.01,))
    (tmp_path / "file").touch()
    (tmp_path / "in the way").mkdir()
    (tmp_path / "in the way" / "builds").touch()
    (tmp_path / "strange" / "files").mkdir(parents=True)
    (tmp_path / "strange" / "files" / "a").touch()
    broken = tmp_path / "broken" / "builds" / "_delta_log" / f"{0:020d}.json"
    broken.parent.mkdir(parents=True)
    broken.write_text("no JSON")
    for wrong_place, why in (
        (tmp_path / "file" / "tables", "Not a directory: name another --tables"),
        ("/proc/tables", "No such file or directory: name another --tables"),
        (tmp_path / "in the way", "builds: is there and no Delta table: move it away, or name another --tables"),
        (tmp_path / "strange", "files: is there and no Delta table: move it away, or name another --tables"),
        (tmp_path / "broken", f"reading file file://{broken}"),
        ("nosuchscheme://bucket/tables", "this Spark session has no file system for nosuchscheme://"),
        ("hdfs://127.0.0.1:1/tables", "Connection refused"),
    ):
        told = run_build(words(store, out, wrong_place), SparkEngines(""))
        assert (told.exit, why in str(told.error)) == (1, True), told.error
        assert str(told.error).endswith(": nothing was published")
        assert ("Delta Lake" in str(told.error), "\n" in str(told.error)) == (False, False)
    lacking = run_build(words(store, out, "s3://key:secret@bucket/tables"), SparkEngines(""))
    assert lacking.exit == 1
    assert "no file system for it: start it with org.apache.hadoop:hadoop-aws" in str(lacking.error)
    assert "secret" not in str(lacking.error)
    inside = run_build(words(store, out, store.path / "tables"), SparkEngines(""))
    assert (inside.exit, "lies inside" in str(inside.error)) == (1, True)
    assert not out.exists()


def test_tables_of_an_older_version(
    recorded: tuple[Build, Path, Path], golden_store: Stores, delta: SparkSession, tmp_path: Path
) -> None:  # fmt: skip
    """They get the columns that they lack, also from two runs at once, and their rows stay."""
    _, _, place = recorded
    for table in (SEGMENTS, FILES, QUARANTINE):
        # These are as they were, and to make them takes longer than all else here.
        shutil.copytree(place / table.name, tmp_path / table.name)
    older = dataclasses.replace(BUILDS, columns=tuple(c for c in BUILDS.columns if c.name not in NEW))
    assert len(older.columns) + len(NEW) == len(BUILDS.columns)
    path = table_path(str(tmp_path), BUILDS.name)
    ensure(delta, older, path)
    build = read(delta, place, BUILDS).where(F.col("build") == RUN).drop(*NEW)
    for name in ("before", "b"):
        write(build.withColumn("build", F.lit(name)), path, name, name, 0)
    found = rows(read(delta, tmp_path, BUILDS).drop("decisions"))
    failed = at_once(lambda _: ensure(delta, BUILDS, path))
    assert list(map(str, failed)) == []
    assert read(delta, tmp_path, BUILDS).columns == [column.name for column in BUILDS.columns]
    assert rows(read(delta, tmp_path, BUILDS).drop("decisions", *NEW)) == found
    settings = words(golden_store("trimmed-head"), tmp_path / "out", tmp_path, build_id="b")
    assert run_build(settings, SparkEngines("")).warnings == []
    assert outcome(delta, tmp_path, "b") == (2, "published")
    before = only(of(delta, tmp_path, BUILDS, "before").collect())
    assert {before[name] for name in NEW} == {None}


@pytest.mark.slow
def test_runs_at_the_same_time(delta: SparkSession, recorded: tuple[Build, Path, Path], tmp_path: Path) -> None:
    """Writers of one table wait for each other, and each row is there once."""
    _, _, place = recorded
    row = read(delta, place, BUILDS).limit(1)
    path = table_path(str(tmp_path), BUILDS.name)
    ensure(delta, BUILDS, path)

    def runs(name: str) -> None:
        for attempt in (1, 2):
            frame = row.withColumn("build", F.lit(name)).withColumn("attempt", F.lit(attempt))
            write(frame, path, name, f"{name}-{attempt}", 0, replace=attempt > 1)

    assert at_once(runs) == []
    assert rows(read(delta, tmp_path, BUILDS), "build", "attempt") == [("a", 2), ("b", 2)]


def test_an_export_is_a_table_that_spark_reads_and_changes(delta: SparkSession, tmp_path: Path) -> None:
    """Another library than Spark's wrote it; what Spark changes in it is imported."""
    topics = ("plain", "%RETRY%g", "a=b&c", "ключ")
    with LogWriter(tmp_path / "store" / "commitlog", 1 << 16) as writer:
        for k in range(40):
            known = {"KEYS": f"k{k}", "UNIQ_KEY": f"{k:032X}"}
            writer.append(Message(topic=topics[k % 4], body=b"x" * k, properties=known, store_timestamp=EPOCH + k * 7_200_000))
    rr.export(tmp_path / "store", to=tmp_path / NAME, format="delta", kind="all")
    frame = delta.read.format("delta").load(str(tmp_path / NAME))
    found, times = check_spark_reads(frame, tmp_path / "store")
    assert frame.select("day").distinct().count() == len({time.date() for time in times})
    offset = found[9]["commitLogOffset"]
    delta.sql(f"UPDATE {quoted(str(tmp_path / NAME))} SET body = CAST('mended' AS BINARY) WHERE commitLogOffset = {offset}")
    delta.sql(f"DELETE FROM {quoted(str(tmp_path / NAME))} WHERE topic = 'ключ'")
    rr.import_messages(tmp_path / NAME, to=tmp_path / "new", segment_size=1 << 16)
    bodies = rr.messages(tmp_path / "new").read_all().column("body").to_pylist()
    assert bodies == [b"mended" if k == 9 else b"x" * k for k in range(40) if k % 4 != 3]
