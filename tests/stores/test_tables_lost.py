"""Delta tables on two real S3 servers that do what is asked and do not always say so: each row is there once."""

from __future__ import annotations

import json
import os
import random
import re
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from pyspark.sql import Row

from rocketmq_reindex import files
from rocketmq_reindex.files import object_store
from rocketmq_reindex.jobs.build import build
from rocketmq_reindex.jobs.command.tables_place import table_path
from rocketmq_reindex.jobs.spark import session
from rocketmq_reindex.jobs.tables.making import hadoop_settings
from rocketmq_reindex.jobs.tables.rows import write
from rocketmq_reindex.udfs.table_schema import BUILDS, FILES, MESSAGES, SEGMENTS, Table
from tests.incremental.world import SALVAGE, World
from tests.stores.tables_session import Started
from tests.tools.faulty_s3 import at_random
from tests.tools.real_s3 import KEY, NAMES, SECRET, SERVERS, real_s3
from tests.tools.s3_door import CUT, LOST, Refuses, Sought, all_pass, s3_door

HOWS = ("commits", "random")
SIZES = ("--cq-file-size", "400", "--hash-slots", "50", "--index-items", "60")
_COMMIT = re.compile(r"/_delta_log/\d{20}\.json$")


class Faults:
    """What the door does at this moment: Hadoop keeps a bucket as it was opened first, so the door stays the same."""

    def __init__(self) -> None:
        self.now: Refuses = all_pass
        self.counts = Counter[tuple[str, int]]()

    def __call__(self, sought: Sought) -> int:
        fault = self.now(sought)
        self.counts[sought.kind, fault] += 1
        return fault


@pytest.fixture(scope="module", params=SERVERS)
def door(request: pytest.FixtureRequest, started: Started) -> Iterator[tuple[str, Faults]]:
    """A folder in a bucket of the server's own, and what its door does."""
    from pyarrow import fs

    with real_s3(request.param), s3_door(os.environ["AWS_ENDPOINT_URL"], faults := Faults()) as (endpoint, _):
        # Hadoop keeps a bucket as it was opened first: another server, at another port, has one of another name.
        bucket = f"tables-{request.param}-{uuid.uuid4().hex[:8]}"
        options = {"endpoint_override": endpoint, "scheme": "http", "region": "us-east-1"}
        fs.S3FileSystem(allow_bucket_creation=True, **options).create_dir(bucket)
        with session.run_settings(started.spark, {f"fs.s3a.bucket.{bucket}.multipart.size": "5M"}):
            yield f"s3://{KEY}:{SECRET}@{bucket}?{urlencode(options)}", faults


def commits_without_answer(fault: int) -> Refuses:
    """Each version of a table is written twice, of which the tables hear nothing, and then once more."""
    lock, asked = threading.Lock(), Counter[str]()

    def refuses(sought: Sought) -> int:
        if sought.kind != "PUT" or not _COMMIT.search(sought.path):
            return 0
        with lock:
            asked[sought.path] += 1
            return fault if asked[sought.path] <= 2 else 0

    return refuses


@pytest.mark.parametrize(
    ("door", "how", "count"),
    [
        ("seaweedfs", "commits", 2),
        *(pytest.param(server, how, 3, marks=pytest.mark.slow) for server in NAMES for how in HOWS),
    ],
    indirect=["door"],
)
def test_each_row_is_there_once(
    how: str, count: int, door: tuple[str, Faults], started: Started, tmp_path: Path, seed: int,
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """A log that grows between incremental builds, of which the last is another attempt at the one before.

    `make slow` has a third build before the two, and the other pairs.
    """
    monkeypatch.setattr(object_store, "FIRST_PAUSE", 0.02)
    (root, faults), rng, world = door, random.Random(seed), World(tmp_path)
    place = files.join(root, uuid.uuid4().hex)
    words = [str(world.store), "--out", str(world.out), "--tables", place, "--incremental", "--messages-table", "--json"]
    runs = [(LOST, ()), (CUT, ("--build-id", "again")), (LOST, ("--build-id", "again"))]
    for fault, more in runs[-count:]:
        world.append(rng, 80)
        faults.now = at_random(rng, 0.1)[0] if how == "random" else commits_without_answer(fault)
        try:
            status = build([*words, *SALVAGE, *SIZES, *more])
        finally:
            faults.now = all_pass
        said = capfd.readouterr()
        warnings = json.loads(said.out)["warnings"]
        assert (status, [text for text in warnings if "--tables" in text]) == (0, []), said.err
    # At random, how many there are differs from run to run: which request comes first does.
    assert sum(count for (kind, fault), count in faults.counts.items() if fault and kind == "PUT") > (
        0 if how == "random" else 10
    )
    manifest = json.loads((world.out / "reindex.json").read_text())
    with session.run_settings(started.spark, hadoop_settings(place)):

        def rows(table: Table, *names: str) -> list[Row]:
            return started.spark.read.format("delta").load(table_path(place, table.name)).select(*names).collect()

        builds = sorted(rows(BUILDS, "startedAt", "build", "state", "attempt", "records"))
        assert [tuple(row)[2:] for row in builds] == [("published", 1, 80)] * (count - 2) + [("published", 2, 80 * count)]
        for table, name, expected in (
            (FILES, "path", [entry["path"] for entry in manifest["files"]]),
            (SEGMENTS, "segment", [entry["segment"] for entry in manifest["inputs"]]),
            (MESSAGES, "commitLogOffset", [put.offset for put in world.writer.puts]),
        ):
            found = rows(table, "build", name)
            assert {row.build for row in found} == {row.build for row in builds}
            assert sorted(row[name] for row in found if row.build == "again") == sorted(expected)
            assert len(set(found)) == len(found)


def test_an_upload_in_parts(door: tuple[str, Faults], started: Started, seed: int) -> None:
    """The answer that it is complete is lost: asked once more, a server may say that there is no such upload."""
    root, faults = door
    path = table_path(files.join(root, uuid.uuid4().hex), "large")
    rows = started.spark.range(8000).selectExpr("'one' AS build", f"randstr(1000, {seed}) AS text", "id").coalesce(1)
    lock, completed = threading.Lock(), list[str]()

    def refuses(sought: Sought) -> int:
        if sought.kind != "POST" or "uploadId" not in sought.query:
            return 0
        with lock:
            completed.append(sought.path)
            return LOST if len(completed) == 1 else 0

    with session.run_settings(started.spark, hadoop_settings(root)):
        faults.now = refuses
        try:
            write(rows, path, "one", "run", 0)
        finally:
            faults.now = all_pass
        found = started.spark.read.format("delta").load(path)
        assert (found.count(), found.select("id").distinct().count()) == (8000, 8000)
    assert len(completed) > 1
