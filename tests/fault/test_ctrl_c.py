"""ctrl-C ends each command with one line and exit status 130, also while Python imports; nothing is left of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.golden.stores import GoldenStore
from tests.tools.faulty_processes import PATIENCE, ROOT, command, in_session, java, running, wait_until

Stores = Callable[[str], GoldenStore]
SEGMENT = "commitlog/00000000000002097152"
COMMANDS = {
    "build": ["{store}", "--out", "{out}", "--cq-file-size", "1000", "--hash-slots", "300", "--index-items", "900"],
    "repair": ["{store}", "--out", "{out}", "--cq-file-size", "1000", "--hash-slots", "300", "--index-items", "900"],
    "query": ["{store}", "--topic", "none", "--key", "none", "--scan"],
    "trace": ["--store", "{store}", "--id", "none", "--scan"],
    "export": ["{store}", "--to", "{out}", "--format", "parquet"],
    "import": ["{store}", "--to", "{out}"],
    "replay": ["{store}", "--dry-run"],
    "consumers": ["{store}", "--bounds"],
    "inspect": ["{store}/" + SEGMENT, "--records"],
    "verify": ["{store}"],
    "preflight": ["{store}", "--broker-version", "5.5"],
    "fetch": ["{store}", "--to", "{out}"],
    "report": ["{store}", "--out", "{out}"],
}
PRESSED = """
import os, signal, sys
event, text = sys.argv[1:3]
pressed = []
def watch(name, given):
    if name == event and not pressed and text in str(given[0]):
        pressed.append(1)
        os.kill(os.getpid(), signal.SIGINT)
sys.addaudithook(watch)
from rocketmq_reindex.jobs.cli import main
sys.exit(main(sys.argv[3:]))
"""
"""ctrl-C when a module is first imported, or a file first opened, whose name holds a text"""


@pytest.mark.parametrize(
    ("name", "event", "text"),
    [(name, "import", "numpy.linalg") for name in COMMANDS]
    + [(name, "open", SEGMENT) for name in ("query", "inspect", "preflight")]
    + [(name, "import", "numba.core.types") for name in ("build", "query", "preflight")],
)
def test_before_spark_starts(name: str, event: str, text: str, golden_store: Stores, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = [word.format(store=golden_store("trimmed-head").path, out=out) for word in COMMANDS[name]]
    done = subprocess.run(
        [sys.executable, "-c", PRESSED, event, text, name, *words],
        cwd=ROOT, env=os.environ | {"TMPDIR": str(tmp_path)}, capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 130
    # On a slow machine preflight has said how far it is, and consumers that the store has no offsets.
    *progress, last = done.stderr.splitlines()
    assert last in ("error: interrupted", "error: interrupted: nothing was published")
    assert [line for line in progress if not line.startswith(("recover: ", "warning: "))] == []
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_while_the_jvm_starts(golden_store: Stores, tmp_path: Path) -> None:
    """As a terminal sends it, to all processes of the command. tests/spark has the same while it scans."""
    store, place = golden_store("trimmed-head"), tmp_path / "place"
    (place / "tmp").mkdir(parents=True)
    words = command(store.path, place / "out", "--master", "local[2]", "--cq-file-size=1000", "--hash-slots=300")
    environment = java() | {"TMPDIR": str(place / "tmp")}
    with running([*words, "--index-items=900"], tmp_path / "run", None, environment) as run:
        wait_until(lambda: any("SparkSubmit" in words for _, words in in_session(run.process.pid).values()))
        os.killpg(run.process.pid, signal.SIGINT)
        summary = run.summary()
        assert (summary["exit"], summary["error"]) == (130, "interrupted: nothing was published")
        assert "Traceback" not in run.err
    assert list(place.iterdir()) == [place / "tmp"]
    assert [path.name for path in (place / "tmp").iterdir() if not path.name.startswith("hsperf")] == []
