"""Builds and verifies by processes of this machine, as the command line and in this process: the bytes of RocketMQ's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.engines.local import LocalEngines
from tests.golden.guard import guarded
from tests.golden.stores import NAMES, GoldenStore
from tests.golden.test_build import CUTS, assert_is_rebuilt
from tests.tools.faulty_processes import PATIENCE, ROOT, command
from tests.tools.local_engine import local_build, run_build

Stores = Callable[[str], GoldenStore]
KINDS = ("basic-5.5", "transactions-delay", "v2-ipv6-batch")
"""Between them they have what the engine moves from process to process; tests/golden builds all stores in one process."""
NO_SPARK = """
import sys
import importlib.abc

class NoSpark(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, *_):
        if fullname.partition(".")[0] in ("pyspark", "py4j", "pandas"):
            raise ModuleNotFoundError(f"no {fullname} here", name=fullname)

sys.meta_path.insert(0, NoSpark())
from rocketmq_reindex.jobs.cli import main
sys.exit(main(sys.argv[1:]))
"""


def without_java(folder: Path) -> dict[str, str]:
    """An environment that leads to no Java."""
    return os.environ | {"PATH": str(folder), "JAVA_HOME": str(folder / "no-java"), "TMPDIR": str(folder)}


@pytest.mark.parametrize("name", [name if name in KINDS else pytest.param(name, marks=pytest.mark.slow) for name in NAMES])
def test_equals_the_brokers_rebuild(name: str, golden_store: Stores, tmp_path: Path) -> None:
    store, out = golden_store(name), tmp_path / "out"
    settings = {"range_size": CUTS[name], "crc": "all", **store.broker_settings()}
    with guarded(store.path, out):
        summary = run_build(BuildSettings(str(store.path), str(out), **settings).check(), LocalEngines("build", "local[3]"))
    assert (summary.exit, summary.error, summary.damage, summary.decisions) == (0, None, [], [])
    assert_is_rebuilt(out, store)
    local_build(store.path, tmp_path / "truth", **settings)
    assert (out / "reindex.json").read_bytes() == (tmp_path / "truth" / "reindex.json").read_bytes()


def test_the_command_without_java_and_pyspark(golden_store: Stores, tmp_path: Path) -> None:
    store, out, tmp = golden_store("basic-5.3"), tmp_path / "place" / "out", tmp_path / "tmp"
    (tmp_path / "place").mkdir()
    tmp.mkdir()
    orders = ["--queue-order=broker", "--checkpoint=broker", "--broker-version", store.broker_version]
    build = [*command(store.path, out, "--engine=local", "--log-format=json", *orders, *store.size_words())]
    verify = ["verify", str(out), "--commitlog", str(store.path / "commitlog"), "--engine=local", "--json"]
    for words in (build[3:], verify):
        with guarded(store.path, out):
            done = subprocess.run(
                [sys.executable, "-c", NO_SPARK, *words], cwd=ROOT, env=without_java(tmp), capture_output=True, text=True,
                timeout=PATIENCE, check=False,
            )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert json.loads(done.stdout)["error"] is None
        assert list(tmp.iterdir()) == []
    assert json.loads(done.stdout)["findings"] == []
    assert_is_rebuilt(out, store)
