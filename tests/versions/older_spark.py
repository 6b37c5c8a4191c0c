"""What ``make dist`` made, under the spark-submit of older Sparks: `scripts/versions older` runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import ROOT
from tests.golden.stores import GoldenStore
from tests.golden.test_build import assert_is_rebuilt

Stores = Callable[[str], GoldenStore]
VERSIONS = ("4.0.1", "3.5.7")
PATIENCE = 600


def home(version: str) -> Path:
    (found,) = (ROOT / f".venv-spark-{version}").glob("lib/python*/site-packages/pyspark")
    return found


def submitted(version: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """``rmq_reindex.py WORDS`` in local mode. Driver and workers have this Python's packages, and that Spark's pyspark."""
    dist, spark = ROOT / "dist", home(version)
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_HOME": str(spark)}
    given = ["--master", "local[2]", "--properties-file", str(dist / "spark-defaults.conf")]
    given += ["--py-files", str(dist / "rocketmq_reindex.zip"), str(dist / "rmq_reindex.py"), *words]
    return subprocess.run(
        [str(spark / "bin" / "spark-submit"), *given], env=os.environ | python, cwd=folder, capture_output=True, text=True,
        check=False, timeout=PATIENCE,
    )  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
def test_a_build_and_its_verify(version: str, golden_store: Stores, tmp_path: Path) -> None:
    store, out = golden_store("basic-5.3"), tmp_path / "out"
    words = [*store.size_words(), "--broker-version", store.broker_version]
    broker = ["--queue-order", "broker", "--checkpoint", "broker"]
    built = submitted(version, tmp_path, "build", str(store.path), "--out", str(out), *words, *broker)
    assert built.returncode == 0, built.stdout[-2000:]
    assert_is_rebuilt(out, store)
    sizes = store.size_words()
    verified = submitted(version, tmp_path, "verify", str(out), "--commitlog", str(store.path / "commitlog"), *sizes)
    assert verified.returncode == 0, verified.stdout[-2000:]


@pytest.mark.parametrize("version", VERSIONS)
def test_tables_are_refused_by_name(version: str, golden_store: Stores, tmp_path: Path) -> None:
    store = golden_store("trimmed-head").path
    done = submitted(
        version, tmp_path, "build", str(store), "--out", str(tmp_path / "out"), "--tables", str(tmp_path / "tables")
    )
    # Spark passes on both streams of a driver in Python as one.
    errors = [line for line in done.stdout.splitlines() if line.startswith("error: ")]
    assert (done.returncode, len(errors)) == (1, 1), done.stdout[-2000:]
    words = f"Spark {version} has no Delta Lake, and --tables is tested with Spark 4.1 and 4.2 alone"
    if version.startswith("3."):
        words = f"Delta tables need Spark 4, and this is Spark {version}"
    assert errors[0] == f"error: --tables: {words}: leave out --tables"


def test_data_sources_of_sql_are_refused_by_name(tmp_path: Path) -> None:
    """By Spark 3, which has none in Python."""
    text = (
        "import types, rocketmq_reindex as rr\n"
        "try: rr.sql.register(types.SimpleNamespace(version='3.5.7'))\n"
        "except rr.InputError as error: print(error)\n"
    )
    paths = os.pathsep.join([str(home("3.5.7").parent), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", text], env=os.environ | {"PYTHONPATH": paths}, cwd=tmp_path, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    words = "data sources in Python need Spark 4, and this is Spark 3.5.7: a build and a verify run on it"
    assert done.stdout == f"rr.sql.register: {words}\n", done.stderr
