"""``--tables`` behind URIs: Spark writes the tables by its Hadoop, pyarrow what --incremental keeps, both in one folder."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from rocketmq_reindex import files
from rocketmq_reindex.files.object_store import ObjectStore
from rocketmq_reindex.files.systems import resolve
from rocketmq_reindex.jobs.build import build
from rocketmq_reindex.jobs.command.tables_place import table_path
from rocketmq_reindex.jobs.spark import session
from rocketmq_reindex.jobs.tables.making import hadoop_settings
from rocketmq_reindex.udfs.table_schema import BUILDS, FILES, SEGMENTS, Table
from tests.fault.disk import tree
from tests.golden.stores import GoldenStore
from tests.stores.tables_session import USER, Started
from tests.stores.whole import published
from tests.tools.local_engine import local_build
from tests.tools.s3_policy import guarded_s3, moved, policies

Stores = Callable[[str], GoldenStore]
NAME = "tables é 100%25 a+b"
SECRET = "not/to+be=seen"


def read(spark: SparkSession, place: str, table: Table) -> DataFrame:
    return spark.read.format("delta").load(table_path(place, table.name))


def every_file(folder: str) -> Iterator[str]:
    for entry in files.listing(folder):
        if entry.kind == files.FOLDER:
            yield from every_file(entry.path)
        else:
            yield entry.path


def built_twice(
    golden: GoldenStore, started: Started, place: str, out: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A log that grows between two incremental builds: files and rows are those of the whole log."""
    store, newest = tmp_path / "store", max((golden.path / "commitlog").iterdir())
    shutil.copytree(golden.path / "commitlog", store / "commitlog", ignore=shutil.ignore_patterns(newest.name))
    words = [str(store), "--out", out, "--tables", place, "--incremental", "--json", *golden.size_words()]
    told = []
    for _ in range(2):
        assert build(words) == 0
        said = capfd.readouterr()
        assert SECRET not in said.out + said.err
        told.append(json.loads(said.out))
        shutil.copy(newest, store / "commitlog")
    assert [summary["warnings"] for summary in told] == [[], []]
    assert told[1]["incremental"]["ranges_known"] == told[1]["incremental"]["ranges"] - 1 == told[0]["incremental"]["ranges"]
    sized: dict[str, Any] = dict(golden.sizes())
    assert local_build(store, tmp_path / "full", **sized).exit == 0
    made = published(out) if files.no_rename(out) else out
    assert files.no_rename(out) or tree(Path(out)) == tree(tmp_path / "full")
    manifest: dict[str, Any] = json.loads((tmp_path / "full" / "reindex.json").read_text())
    told_of = json.loads(files.read_bytes(files.join(made, "reindex.json")))["files"]
    assert [entry["digest"] for entry in told_of] == [entry["digest"] for entry in manifest["files"]]
    with session.run_settings(started.spark, hadoop_settings(place)):
        rows = read(started.spark, place, BUILDS).orderBy("startedAt").collect()
        assert [(row.state, row.records) for row in rows] == [("published", summary["records"]) for summary in told]
        last = f"build = '{rows[1].build}'"
        segments = read(started.spark, place, SEGMENTS).where(last).orderBy("startOffset").collect()
        assert [(row.segment, row.chunkDigests) for row in segments] == [
            (i["segment"], i["digests"]) for i in manifest["inputs"]
        ]
        listed = read(started.spark, place, FILES).where(last).select("path", "digest").collect()
        assert sorted(map(tuple, listed)) == sorted((entry["path"], entry["digest"]) for entry in manifest["files"])
    # One folder for both: names mean the same to Hadoop and to pyarrow.
    assert set(files.names(place)) == {"_scans", "builds", "files", "quarantine", "segments"}
    assert not [path for path in every_file(place) if SECRET.encode() in files.read_bytes(path)]
    assert SECRET not in started.said.read_text()
    assert not [name for name in started.spark.conf.getAll if name.startswith("fs.")]


def keyed(endpoint: str, root: str) -> str:
    """The folder of a bucket by a URI with its endpoint, region and keys: the session knows none of them."""
    return f"s3://someone:{SECRET.replace('/', '%2F')}@{root}?endpoint_override={endpoint}&scheme=http&region=us-east-1"


@pytest.mark.slow
def test_in_a_bucket(
    golden_store: Stores, started: Started, s3_place: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """DIR and tables. `make test-rest` has tables in a bucket whose answers are lost, and DIR in many."""
    root = s3_place.partition("?")[0].removeprefix("s3://")
    place = keyed(os.environ["AWS_ENDPOINT_URL"].removeprefix("http://"), root)
    built_twice(golden_store("basic-5.3"), started, files.join(place, NAME), files.join(place, "out"), tmp_path, capfd)


@pytest.mark.slow
def test_within_the_policy(
    golden_store: Stores, started: Started, s3_place: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """All of it, Hadoop's requests as well, keeps to the policy of the page on permissions. Its gate takes minutes."""
    root = s3_place.partition("?")[0].removeprefix("s3://")
    policy = moved(
        policies("how-to/bucket-permissions.md")[0], {"logs/rebuilt-a": f"{root}/out", "logs/tables": f"{root}/{NAME}"}
    )
    with guarded_s3(os.environ["AWS_ENDPOINT_URL"], policy) as (endpoint, held):
        place = keyed(endpoint, root)
        built_twice(golden_store("basic-5.3"), started, files.join(place, NAME), files.join(place, "out"), tmp_path, capfd)
    # Delta Lake looks whether this is part of a table in a folder above, and is content with a refusal.
    assert held.refused <= {("s3:GetObject", f"arn:aws:s3:::{root}/{name}") for name in (NAME, "_delta_log")}


@pytest.mark.slow
def test_in_an_hdfs(
    golden_store: Stores, started: Started, hdfs_place: str, hdfs_uris: tuple[str, str], tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """All of it is the user's that the URI names. It is Hadoop's own protocol: that of HTTP does not work in Hadoop 3.5.0."""
    golden = golden_store("basic-5.3")
    web = files.join(hdfs_place.replace("root@", f"{USER}@"), NAME)
    place = web.replace(hdfs_uris[0].replace("root@", f"{USER}@"), hdfs_uris[1].replace("root@", f"{USER}@"))
    out, other = str(tmp_path / "out"), tmp_path / "other"
    assert build([str(golden.path), "--out", out, "--tables", place, "--json", *golden.size_words()]) == 0
    summary = json.loads(capfd.readouterr().out)
    assert summary["warnings"] == []
    manifest = json.loads((tmp_path / "out" / "reindex.json").read_text())
    (row,) = read(started.spark, place, BUILDS).collect()
    assert (row.state, row.records) == ("published", summary["records"])
    listed = read(started.spark, place, FILES).select("path", "digest").collect()
    assert sorted(map(tuple, listed)) == sorted((entry["path"], entry["digest"]) for entry in manifest["files"])
    system, inner = resolve(files.join(web, "builds"))
    assert system is not None
    assert not isinstance(system.fs, ObjectStore)
    assert system.fs.handler.fs.info(inner)["owner"] == USER
    for wrong, line in (
        (place.replace(f"{USER}@", "bob@"), f"this Spark session is {USER} in an HDFS: start it with HADOOP_USER_NAME=bob"),
        (web, "webhdfs:// does not work in the Hadoop of this Spark"),
    ):
        assert build([str(golden.path), "--out", str(other), "--tables", wrong, *golden.size_words()]) == 1
        (error,) = (line for line in capfd.readouterr().err.splitlines() if line.startswith("error: "))
        assert line in error
        assert not other.exists()
    # Without a user in the URI it is that of the session.
    assert read(started.spark, place.replace(f"{USER}@", ""), BUILDS).count() == 1
