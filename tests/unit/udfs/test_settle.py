"""Importers of a zip forget it when it changes, as Spark's worker wants before each task, and only then."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

from tests import ROOT

PROGRAM = """
import gc, importlib, os, sys, zipfile, zipimport
from rocketmq_reindex.udfs import handover

path = sys.argv[1]

def write(*names):
    with zipfile.ZipFile(path + ".new", "w") as archive:
        for name in names:
            archive.writestr(name + ".py", "VALUE = 1")
    os.replace(path + ".new", path)

write("reindex_before")
os.rename(path, path + ".before.zip")
sys.path.insert(0, path + ".before.zip")
import reindex_before
reads = []
read = zipimport._read_directory
zipimport._read_directory = lambda archive: reads.append(archive) or read(archive)
handover.settle()
assert gc.get_freeze_count() > 1000
handover.settle()
importlib.invalidate_caches()
assert reads == [path + ".before.zip"]
importlib.invalidate_caches()
assert len(reads) == 1
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
    """Else the worker would go on reading and collecting: the names are Python's, the calls are in pyspark's files."""
    for module, call in (("pyspark.worker_util", "importlib.invalidate_caches()"), ("pyspark.daemon", "gc.collect()")):
        spec = importlib.util.find_spec(module)
        assert spec is not None
        assert spec.origin is not None
        assert call in Path(spec.origin).read_text()
