"""The batches of ``rr.messages`` in what users read them with: DuckDB and Polars take the reader as it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import rocketmq_reindex as rr
from tests.tools.faulty_processes import PATIENCE, ROOT
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
    (packages,) = ROOT.glob(".venv-frames/lib/python3*/site-packages")
    words = [sys.executable, "-c", f"import json, sys\nimport rocketmq_reindex as rr\nstore = sys.argv[1]\n{code}", str(store)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(packages)))}
    done = subprocess.run(words, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    # DuckDB shows on stdout how far it is, where that takes two seconds.
    assert json.loads(done.stdout.splitlines()[-1]) == wanted
