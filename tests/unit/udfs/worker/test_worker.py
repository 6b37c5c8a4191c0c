"""Importers of a zip forget it when it changes, as Spark's worker wants before each task, and only then."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

from tests import ROOT

PROGRAM = """
import importlib, os, sys, zipfile, zipimport
from rocketmq_reindex.udfs.worker import setup as worker

path = sys.argv[1]

def write(*names):
    with zipfile.ZipFile(path + ".new", "w") as archive:
        for name in names:
            archive.writestr(name + ".py", "VALUE = 1")
    os.replace(path + ".new", path)

reads = []
read = zipimport._read_directory
zipimport._read_directory = lambda archive: reads.append(archive) or read(archive)
worker.keep_zip_directories()
worker.keep_zip_directories()
write("reindex_first")
sys.path.insert(0, path)
import reindex_first
importlib.invalidate_caches()
before = len(reads)
for _ in range(5):
    importlib.invalidate_caches()
    assert importlib.util.find_spec("reindex_second") is None
assert len(reads) == before, reads
write("reindex_first", "reindex_second")
importlib.invalidate_caches()
import reindex_second
os.remove(path)
importlib.invalidate_caches()
assert importlib.util.find_spec("reindex_third") is None
print("kept")
"""


def test_a_zip_is_read_again_only_when_it_has_changed(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "some.zip")],
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    assert (run.stdout, run.stderr) == ("kept\n", "")


def test_it_is_what_spark_calls() -> None:
    """Else the worker would go on reading: the name is Python's, the call is in pyspark's worker."""
    util = importlib.util.find_spec("pyspark.worker_util")
    assert util is not None
    assert util.origin is not None
    assert "invalidate_caches" in Path(util.origin).read_text()
