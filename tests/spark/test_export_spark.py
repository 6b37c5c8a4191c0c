"""``export --engine spark``: what the local engine writes, said and refused likewise, whatever happens to its tasks."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

import rocketmq_reindex as rr
from tests.tools.encode import EPOCH, Message
from tests.tools.exported import check_spark_reads, damaged_store, rows_of
from tests.tools.faulty_processes import SITE, wait_until
from tests.tools.log_writer import LogWriter

pytestmark = pytest.mark.usefixtures("inline_local")
PATIENCE: Final = 900
TABLES: Final = {"delta": "_delta_log", "iceberg": "metadata"}
"""folders with an id and times in them: those of two tables differ"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a store of several segments, with all that a log may hold: one is missing, and two are damaged."""
    return damaged_store(tmp_path_factory.mktemp("exported") / "store")


def tree(place: Path, without: str = "") -> dict[str, bytes]:
    """Returns the files of an export by their names."""
    if place.is_file():
        return {"": place.read_bytes()}
    paths = (path for path in place.rglob("*") if path.is_file())
    named = {path.relative_to(place).as_posix(): path.read_bytes() for path in paths}
    return {name: data for name, data in named.items() if not without or not name.startswith(without)}


def said(done: Any, *without: str) -> dict[str, Any]:
    left_out = ("to", "seconds", *without)
    return {name: value for name, value in done.to_dict().items() if name not in left_out}


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet", "delta", "iceberg", "store"])
def test_it_is_what_the_local_engine_writes(spark: SparkSession, store: Path, tmp_path: Path, kind: Any) -> None:
    wanted: dict[str, Any] = {} if kind == "store" else {"kind": "all"}
    done = rr.export(store, to=tmp_path / "spark", format=kind, spark=spark, **wanted)
    local = rr.export(store, to=tmp_path / "local", format=kind, **wanted)
    assert (done.damaged, done.exit_status) == (3, 3)
    if kind in ("jsonl", "csv", "store"):
        assert said(done) == said(local)
        assert tree(tmp_path / "spark") == tree(tmp_path / "local")
    else:
        # Files of each segment, as a resumable export has them.
        assert said(done, "files", "bytes") == said(local, "files", "bytes")
        assert rows_of(tmp_path / "spark", kind) == rows_of(tmp_path / "local", kind)
        rr.export(store, to=tmp_path / "resumable", format=kind, resumable=True, **wanted)
        own = TABLES.get(kind, "")
        assert tree(tmp_path / "spark", own) == tree(tmp_path / "resumable", own)
    assert {path.name for path in tmp_path.iterdir()} <= {"spark", "local", "resumable"}


def test_spark_reads_what_the_local_engine_writes(spark: SparkSession, tmp_path: Path) -> None:
    """Parquet: topic and day are columns, also of a topic with signs; so are the map of properties, and bytes."""
    with LogWriter(tmp_path / "store" / "commitlog", 1 << 16) as writer:
        for k in range(24):
            known, time = {"KEYS": f"k{k}", "UNIQ_KEY": f"{k:032X}"}, EPOCH + k * 7_200_000
            topic = ("plain", "%RETRY%g", "a|b", "_x-y")[k % 4]
            writer.append(Message(topic=topic, body=b"\xff" * k, properties=known, store_timestamp=time))
    rr.export(tmp_path / "store", to=tmp_path / "exported", format="parquet", kind="all")
    frame = spark.read.parquet(str(tmp_path / "exported"))
    _, times = check_spark_reads(frame, tmp_path / "store")
    days = {str(row["day"]) for row in frame.select("day").distinct().collect()}
    assert days == {str(time.date()) for time in times}
    assert frame.where("topic = '%RETRY%g'").count() == 6


@pytest.mark.parametrize("chosen", [{"sql": "TAGS IS NOT NULL"}, {"text": "a", "kind": "all"}], ids=["sql", "text"])
def test_counts(spark: SparkSession, store: Path, chosen: dict[str, Any]) -> None:
    done = rr.export(store, count=True, spark=spark, **chosen)
    assert done.messages > 0
    assert said(done) == said(rr.export(store, count=True, **chosen))


def test_the_driver_takes_one_count_at_a_time(spark: SparkSession, tmp_path: Path) -> None:
    """Each segment names topics of its own: together they are more than the driver takes of a stage."""
    rng, store = random.Random(5), tmp_path / "store"
    with LogWriter(store / "commitlog", 1 << 20) as writer:
        for _ in range(24_000):
            writer.append(Message(topic=rng.randbytes(60).hex(), body=b""))
    conf = spark.sparkContext._jsc.sc().conf()
    before = conf.get("spark.driver.maxResultSize", "1g")
    conf.set("spark.driver.maxResultSize", "1m")
    try:
        done = rr.export(store, count=True, spark=spark)
    finally:
        conf.set("spark.driver.maxResultSize", before)
    assert said(done) == said(rr.export(store, count=True))
    assert len(done.topics) == 24_000


def test_ctrl_c_leaves_nothing(store: Path, tmp_path: Path) -> None:
    """A process of its own, whose tasks do not end; with --resumable it says that the same command goes on."""
    to, sleeps = tmp_path / "place" / "out.jsonl", tmp_path / "sleeps"
    to.parent.mkdir()
    fault = {"process": "worker", "event": "open", "path": "/commitlog/", "action": "sleep 1000", "marker": str(sleeps)}
    env = os.environ | {"REINDEX_FAULTS": json.dumps([fault]), "PYTHONPATH": str(SITE)}
    words = ["export", str(store), "--to", str(to), "--engine", "spark", "--master", "local[1]"]
    process = subprocess.Popen(
        [sys.executable, "-m", "rocketmq_reindex", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, start_new_session=True,
    )  # fmt: skip
    wait_until(lambda: sleeps.with_name("sleeps.0").exists() or process.poll() is not None)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, ""), err
    assert err.splitlines()[-1] == "error: interrupted: nothing was published"
    assert list(to.parent.iterdir()) == []
