"""What all tests share: seeds, golden stores unpacked once, a folder for the real stores."""

import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.golden.stores import GoldenStore, unpack

pytest_plugins = ["tests.tools.seeds"]
_SHORT = ("batch_spark", "rocksdb_spark", "sources", "sql_page", "to_plain_engines", "verify_engines")
TOGETHER = {
    "tests/spark/test_tables_runs.py": "tests/spark/test_tables.py",
    **{f"tests/spark/test_{name}.py": "tests/spark/test_api.py" for name in _SHORT},
}
"""Files that run in the process of another one: to start and warm up one more JVM of Spark's takes as long as their tests."""
_JAVA_TMP = "REINDEX_JAVA_TMP"


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give the real stores' JVMs a folder for the libraries that they unpack."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell ignores it for what runs in the background, and so would each command that a test interrupts.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Of several processes the first one makes it, and removes it when the others have ended.
    if _JAVA_TMP not in os.environ:
        os.environ[_JAVA_TMP] = tempfile.mkdtemp(prefix="rmq-reindex-java-")
        config.add_cleanup(lambda: shutil.rmtree(os.environ.pop(_JAVA_TMP), ignore_errors=True))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out files as ``--dist loadfile`` does, those of TOGETHER as one."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

    class ByFiles(LoadFileScheduling):  # type: ignore[misc]  # untyped
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return TOGETHER.get(file, file)

    return ByFiles(config, log)


@pytest.fixture(scope="session")
def golden_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("golden")


@pytest.fixture(scope="session")
def golden_store(golden_root: Path) -> Callable[[str], GoldenStore]:
    """golden_store(name): the unpacked store with its sizes and its truth. Read it, do not change it."""
    return lambda name: unpack(name, golden_root)


@pytest.fixture(scope="session")
def golden(golden_root: Path) -> Callable[[str], Path]:
    """golden(name): the folder of the unpacked store. Read it, do not change it."""
    return lambda name: unpack(name, golden_root).path


@pytest.fixture
def inline_local(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands with ``--engine local`` run their tasks in this process: for tests of what they say, not of that engine."""
    from tests.tools.local_engine import InlineEngines

    for module in ("engines.local", "exporting.new_store"):
        monkeypatch.setattr(f"rocketmq_reindex.jobs.{module}.LocalEngines", InlineEngines)
