"""Builds by either engine write what the broker's own rebuild and the reference write, byte for byte."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.logger import SPARK_LOG_SCHEMA
from pyspark.sql import SparkSession

from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.cli import main
from rocketmq_reindex.jobs.spark.engine import SparkEngines
from tests.golden.guard import guarded
from tests.golden.stores import GoldenStore, read_files
from tests.golden.test_build import assert_is_rebuilt
from tests.reference.build import reference_build
from tests.tools import spoil
from tests.tools.compare import SMALL, compare, project_settings, tells_of_old_records
from tests.tools.encode import Message
from tests.tools.engines import ENGINES, engines_of
from tests.tools.local_engine import local_build, run_build
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import FEATURES, random_log

Stores = Callable[[str], GoldenStore]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("name", "size"), [("wide-keys", 0), ("basic-4.9", 1 << 18)])
def test_golden_stores(
    name: str, size: int, engine: str, golden_store: Stores, spark: SparkSession, tmp_path: Path
) -> None:  # fmt: skip
    store = golden_store(name)
    before = dict(spark.conf.getAll)
    settings = {**store.broker_settings(), "range_size": size}
    with guarded(store.path, tmp_path / "out"):
        summary = run_build(BuildSettings(store=str(store.path), out=str(tmp_path / "out"), **settings), engines_of(engine))
    assert (summary.exit, summary.error) == (0, None)
    assert_is_rebuilt(tmp_path / "out", store)
    local_build(store.path, tmp_path / "local", **settings)
    assert (tmp_path / "local" / "reindex.json").read_bytes() == (tmp_path / "out" / "reindex.json").read_bytes()
    assert dict(spark.conf.getAll) == before, "a run leaves the session's settings as they were"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("policy", "order"), [("salvage", "logical"), ("stop", "broker")])
def test_a_damaged_and_disordered_log(
    policy: str, order: str, engine: str, seed: int, spark: SparkSession, tmp_path: Path
) -> None:  # fmt: skip
    """Also with ranges whose first guess is wrong, so that some are scanned again."""
    assert spark.sparkContext.defaultParallelism == 2
    store, out = tmp_path / "store", tmp_path / "out"
    random_log(store / "commitlog", seed, records=300, features=FEATURES)
    for record in (280, 200, 120):
        spoil.garbage(store, record, seed)
    settings = {**SMALL, "on_damage": policy, "queue_order": order, "lmq": True}
    words = BuildSettings(store=str(store), out=str(out), range_size=3000, **project_settings(settings))
    with guarded(store, out):
        summary = run_build(words, engines_of(engine))
    # The reference gives old records behind damage the offsets of newer ones: a clock may be set back right there.
    if not tells_of_old_records(summary):
        assert compare(summary, out, reference_build(store, **settings)) == []
    assert summary.exit == 3


def test_a_session_without_delta(golden_store: Stores, spark: SparkSession, tmp_path: Path) -> None:
    """One line says what is missing, before anything is read."""
    assert spark.conf.get("spark.sql.extensions", "") == ""
    store = golden_store("wide-keys")
    words = BuildSettings(str(store.path), str(tmp_path / "out"), tables=str(tmp_path / "tables"), **store.sizes())  # type: ignore[arg-type]
    summary = run_build(words, SparkEngines(""))
    assert summary.exit == 1
    assert summary.error is not None
    assert summary.error.startswith(f"--tables {tmp_path / 'tables'}: this Spark session has no Delta Lake: ")
    assert "\n" not in summary.error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("engine", ENGINES)
def test_no_segments(engine: str, spark: SparkSession, tmp_path: Path) -> None:
    assert spark.sparkContext.defaultParallelism == 2
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    words = BuildSettings(store=str(tmp_path / "store"), out=str(tmp_path / "out"))
    assert run_build(words, engines_of(engine)).exit == 0
    assert read_files(tmp_path / "out") == {"checkpoint": bytes(4096)}


def test_the_command_line_takes_the_active_session(
    golden_store: Stores, spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    """As in a notebook, or under spark-submit: the session is used and not stopped; an error in a task is one line.

    All that can be watched is: each line on stderr is JSON, and the figures agree.
    """
    store = golden_store("trimmed-head")
    out = tmp_path / "out"
    watched = ["--log-format", "json", "--progress", "json", "--metrics", str(tmp_path / "m.prom"), "--store-name", "trimmed"]
    capfd.readouterr()
    words = ["--broker-version", store.broker_version, "--queue-order", "broker", "--checkpoint", "broker", "--json", *watched]
    assert main(["build", str(store.path), "--out", str(out), *store.size_words(), *words]) == 0
    printed = capfd.readouterr()
    assert_is_rebuilt(out, store)
    assert spark.range(3).count() == 3
    assert_is_watched(json.loads(printed.out), [json.loads(line) for line in printed.err.splitlines()], tmp_path / "m.prom")
    (tmp_path / "log.json").write_text(printed.err)
    log = spark.read.schema(SPARK_LOG_SCHEMA).json(str(tmp_path / "log.json"))
    (ended,) = log.where("context.event = 'run-ended'").select("level", "context").collect()
    assert (ended.level, ended.context["exit"]) == ("INFO", "0"), "as docs/how-to/watch.md has it read"
    assert main(["build", str(store.path), "--out", str(out), *store.size_words()]) == 1
    error = capfd.readouterr().err.splitlines()
    assert [line for line in error if line.startswith("error: ")] == [
        f"error: {out}: is not empty: name another folder, or give --overwrite"
    ]
    assert_is_rebuilt(out, store)
    assert main(["build", str(store.path), "--out", str(out), *store.size_words(), "--overwrite", "--only", "index"]) == 0
    assert sorted(path.name for path in out.iterdir()) == ["index", "reindex.json"]


def assert_is_watched(summary: dict[str, Any], lines: list[dict[str, Any]], metrics: Path) -> None:
    """The same figures in the summary, the log's last line, the stages and the file of metrics; no warning about them."""
    assert not any("Spark" in text for text in summary["warnings"])
    stages = [line for line in lines if "stage" in line]
    log = [line["context"] for line in lines if "context" in line]
    assert len(stages) + len(log) == len(lines)
    assert [(line["stage"], line["done"]) for line in stages if line["state"] == "done"] == [
        (line["stage"], line["total"]) for line in stages if line["done"] and line["state"] == "done"
    ]
    assert [c["stage"] for c in log if c["event"] == "stage-ended"] == ["scan", "decide", "write", "finish", "publish"]
    (scanned,) = (c for c in log if c["event"] == "stage-ended" and c["stage"] == "scan")
    assert (scanned["records"], scanned["bytes"]) == (summary["records"], summary["bytes"])
    assert [c["event"] for c in log][-2:] == ["published", "run-ended"]
    samples = {
        (sample.name.removeprefix("rmq_reindex_"), sample.labels.get("kind") or sample.labels.get("stage")): sample.value
        for family in text_string_to_metric_families(metrics.read_text())
        for sample in family.samples
    }
    assert samples["exit_status", None] == log[-1]["exit"] == summary["exit"]
    for name, key in (("records", "records"), ("consumequeue_units", "units"), ("index_items", "items")):
        assert samples[name, None] == log[-1][key] == summary[key]
    assert samples["files", "index"] == summary["files"]["index"]
    assert samples["work_seconds", None] == summary["seconds"]["build"] >= samples["stage_seconds", "scan"] > 0


@pytest.mark.parametrize("engine", ENGINES)
def test_delayed_messages(engine: str, spark: SparkSession, tmp_path: Path) -> None:
    """Their evidence goes through the shuffle: scheduled records and copies lie in different ranges."""
    assert spark.sparkContext.defaultParallelism == 2
    properties = {"DELAY": "1", "REAL_TOPIC": "T", "REAL_QID": "0"}
    waiting = [Message("SCHEDULE_TOPIC_XXXX", properties={"UNIQ_KEY": f"{k}", **properties}) for k in range(60)]
    with LogWriter(tmp_path / "store" / "commitlog", 1 << 12) as writer:
        for message in [*waiting, *(dataclasses.replace(one, topic="T") for one in waiting[:40])]:
            writer.append(message)
    words = BuildSettings(
        store=str(tmp_path / "store"), out=str(tmp_path / "out"), range_size=3000, write_delay=True, **project_settings(SMALL)
    )
    summary = run_build(words, engines_of(engine))
    assert (summary.exit, summary.error) == (0, None)
    assert json.loads((tmp_path / "out" / "config" / "delayOffset.json").read_text()) == {"offsetTable": {"1": 40}}
    assert summary.delay is not None
    assert [level["pending"] for level in summary.delay["levels"]] == [20]
