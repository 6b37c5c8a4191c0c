"""Nothing is run or read from the folder where a command is started, nor from the one above it, by any process of ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.golden.stores import GoldenStore
from tests.tools.faulty_cluster import quick, spark_home
from tests.tools.faulty_processes import PATIENCE, java
from tests.tools.trap import Opened, Trap

Stores = Callable[[str], GoldenStore]
COMMAND = Path(sys.executable).with_name("rmq-reindex")
AS_ON_310 = """
import sys
from rocketmq_reindex.jobs.spark import session

# Python 3.10 does not know PYTHONSAFEPATH: the answer may not rest on it.
usual = session.configuration
def configuration(*words):
    found = usual(*words)
    del found["spark.executorEnv.PYTHONSAFEPATH"]
    return found
session.configuration = configuration
session._SUBMITTED.clear()

from rocketmq_reindex.jobs.cli import main
sys.exit(main())
"""


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    return Trap(tmp_path / "trap")


@pytest.fixture
def opened(trap: Trap) -> Iterator[Opened]:
    folders = [trap.here, trap.here.parent, *(path for path in trap.here.parent.rglob("*") if path.is_dir())]
    found = Opened(set(folders))
    yield found
    found.close()


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """The command line, in a session whose workers know no PYTHONSAFEPATH."""
    program = tmp_path / "program" / "as_on_310.py"
    program.parent.mkdir()
    program.write_text(AS_ON_310)
    return program


def clean() -> dict[str, str]:
    """An environment with nothing of the shell that runs the tests."""
    return {"PATH": "/usr/bin:/bin", "HOME": os.environ.get("HOME", "/"), "SPARK_LOCAL_IP": "127.0.0.1", **java()}


def run(trap: Trap, *words: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, words)), cwd=trap.here, env=clean() | more, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        errors="replace", check=False, timeout=PATIENCE,
    )  # fmt: skip


def test_build(trap: Trap, opened: Opened, plain: Path, golden_store: Stores, tmp_path: Path) -> None:
    """With tables: Delta Lake has the JVM look for data sources, which it would ask Python for."""
    store, out = golden_store("trimmed-head"), tmp_path / "out"
    words: list[str | Path] = ["--tables", tmp_path / "tables", "--json", "--master", "local[2]", *store.size_words()]
    built = run(trap, sys.executable, plain, "build", store.path, "--out", out, *words)
    assert built.returncode == 0, built.stderr
    assert json.loads(built.stdout)["error"] is None
    assert "incubator" not in built.stderr
    assert (trap.marked(), opened.paths()) == ([], set())


def test_spark_submit(trap: Trap, plain: Path, golden_store: Stores, tmp_path: Path) -> None:
    """Its JVM was started there by somebody else. Its driver and its workers are ours. Here without tables, and a verify."""
    store = golden_store("trimmed-head")
    submit: list[str | Path] = [spark_home() / "bin" / "spark-submit", "--master", "local[2]"]
    submit += [word for name, value in quick("driver").items() for word in ("--conf", f"{name}={value}")]
    submit.append(plain)
    words: list[str | Path] = ["verify", store.path / "rebuilt", "--commitlog", store.path / "commitlog", "--work", tmp_path]
    words += [*store.size_words(), "--broker-version", store.broker_version]
    # A relative path is for executors: here the driver's own Python is taken.
    pythons = {"PYSPARK_DRIVER_PYTHON": sys.executable, "PYSPARK_PYTHON": "./rmq_python"}
    done = run(trap, *submit, *words, SPARK_HOME=str(spark_home()), **pythons)
    assert done.returncode == 0, done.stdout + done.stderr
    assert trap.marked() == []


def test_the_trap_works(trap: Trap, opened: Opened) -> None:
    """As Spark starts its workers by itself: from the working folder."""
    run(trap, sys.executable, "-m", "pyspark.daemon")
    assert trap.marked()
    assert opened.paths()


def test_commands_without_spark(trap: Trap, opened: Opened, golden_store: Stores, tmp_path: Path) -> None:
    store = golden_store("trimmed-head").path
    segment = next((store / "commitlog").iterdir())
    (tmp_path / "to").mkdir()
    commands: tuple[list[str | Path], ...] = (
        ["--version"],
        ["query", store, "--topic", "TopicA", "--key", "none"],
        ["inspect", segment],
        ["build", store, "--out", tmp_path / "out", "--dry-run"],
        ["build", store, "--out", tmp_path / "built", "--engine", "local", *golden_store("trimmed-head").size_words()],
        ["verify", tmp_path / "built", "--commitlog", store / "commitlog", "--engine", "local"],
        ["fetch", store, "--to", tmp_path / "to"],
        ["report", store, "--out", tmp_path / "page.html"],
    )
    for words in commands:
        done = run(trap, COMMAND, *words)
        assert "Traceback" not in done.stderr, words
        assert done.returncode == 0 or "local" not in words, done.stderr
        assert (trap.marked(), opened.paths()) == ([], set()), words
