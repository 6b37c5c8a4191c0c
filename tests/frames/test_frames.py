"""The batches of ``rr.messages`` in what users read them with: DuckDB and Polars take the reader as it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rocketmq_reindex as rr
from tests.tools.encode import EPOCH, Message
from tests.tools.faulty_processes import PATIENCE, ROOT
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import random_log

COUNT = 300
DUCKDB = """
import duckdb
messages = rr.messages(store, body="stored")
print(json.dumps(duckdb.sql(
    "SELECT topic, count(*), sum(octet_length(body))::BIGINT, max(properties['UNIQ_KEY']) "
    "FROM messages GROUP BY topic ORDER BY topic"
).fetchall()))
"""
POLARS = """
import polars as pl
columns = ["topic", "body", "uniqKey", "storeTime", "properties"]
frame = pl.DataFrame(rr.messages(store, body="stored", columns=columns))
assert frame.schema["storeTime"] == pl.Datetime("us", "UTC")
found = frame.group_by("topic").agg(pl.len().alias("n"), pl.col("body").bin.size().sum(), pl.col("uniqKey").max()).sort("topic")
print(json.dumps(found.rows()))
"""
PANDAS = """
frame = rr.messages(store, body="stored").read_pandas()
assert str(frame.dtypes["storeTime"]) == "datetime64[us, UTC]"
frame["size"] = frame["body"].str.len()
found = frame.groupby("topic").agg(n=("topic", "size"), size=("size", "sum"), key=("uniqKey", "max")).reset_index()
print(json.dumps([[row.topic, int(row.n), int(row.size), row.key] for row in found.itertuples(index=False)]))
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("frames") / "store"
    random_log(store / "commitlog", 11, records=COUNT, segment_size=1 << 15)
    return store


@pytest.mark.parametrize("code", [DUCKDB, POLARS, PANDAS], ids=["duckdb", "polars", "pandas"])
def test_they_count_the_same(code: str, store: Path) -> None:
    rows = rr.messages(store, body="stored").read_all().to_pylist(maps_as_pydicts="strict")
    assert len(rows) == COUNT
    wanted = []
    for topic in sorted({row["topic"] for row in rows}):
        own = [row for row in rows if row["topic"] == topic]
        key = max((row["uniqKey"] for row in own if row["uniqKey"] is not None), default=None)
        wanted.append([topic, len(own), sum(len(row["body"]) for row in own), key])
    assert ran(code, store) == wanted


def ran(code: str, store: Path) -> Any:
    """Returns what a program prints that has the packages."""
    (packages,) = ROOT.glob(".venv-frames/lib/python3*/site-packages")
    words = [sys.executable, "-c", f"import json, sys\nimport rocketmq_reindex as rr\nstore = sys.argv[1]\n{code}", str(store)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(packages)))}
    done = subprocess.run(words, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    # DuckDB shows on stdout how far it is, where that takes two seconds.
    return json.loads(done.stdout.splitlines()[-1])


EXPORTED = {
    "duckdb": """
import duckdb
rows = duckdb.sql(
    "SELECT topic, day::VARCHAR, count(*), sum(octet_length(body))::BIGINT, max(storeTime)::VARCHAR FROM "
    "read_parquet($files, hive_partitioning = true) GROUP BY ALL ORDER BY ALL", params={"files": store + "/**/*.parquet"}
).fetchall()
print(json.dumps([row[:4] for row in rows]))
""",
    "polars": """
import polars as pl
frame = pl.read_parquet(store, hive_partitioning=True)
assert frame.schema["storeTime"] == pl.Datetime("us", "UTC")
found = frame.group_by("topic", pl.col("day").cast(pl.String)).agg(pl.len(), pl.col("body").bin.size().sum())
print(json.dumps(found.sort("topic", "day").rows()))
""",
}


@pytest.mark.parametrize("name", sorted(EXPORTED))
def test_they_read_an_export_by_its_folders(name: str, tmp_path: Path) -> None:
    """Topic and day are columns, whatever the name of a topic is."""
    topics = ("plain", "%RETRY%g", "a=b&c", "ключ", "a b", "_x", "%25")
    with LogWriter(tmp_path / "store" / "commitlog", 1 << 16) as writer:
        for k, topic in enumerate(topics * 2):
            writer.append(Message(topic=topic, body=b"x" * k, store_timestamp=EPOCH + k * 86_400_000 // 4))
    to = tmp_path / "exported"
    rr.export(tmp_path / "store", to=to, format="parquet", kind="all")
    rows = rr.messages(tmp_path / "store").read_all().to_pylist()
    assert len(rows) == 2 * len(topics)
    sizes: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        sizes.setdefault((row["topic"], str(row["storeTime"].date())), []).append(len(row["body"]))
    wanted = sorted([topic, day, len(lengths), sum(lengths)] for (topic, day), lengths in sizes.items())
    assert sorted(ran(EXPORTED[name], to)) == wanted
