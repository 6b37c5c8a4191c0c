"""``import rocketmq_reindex`` costs nothing, and says what it has."""

from __future__ import annotations

import subprocess
import sys

import pytest

import rocketmq_reindex as rr
from tests.tools.faulty_processes import ROOT

IMPORTED = """
import sys
before = set(sys.modules)
import rocketmq_reindex
new = {name.partition(".")[0] for name in set(sys.modules) - before}
heavy = [name for name in sys.modules if name.startswith("rocketmq_reindex.")]
print(sorted(new & {"pyspark", "pyarrow", "numpy", "numba", "pandas", "argparse"}), heavy)
print(rocketmq_reindex.build.__module__, "pyspark" in sys.modules)
"""


def test_an_import_loads_nothing_else() -> None:
    printed = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == ["[] []", "rocketmq_reindex.jobs.api.with_engine False"]


@pytest.mark.parametrize(
    "command",
    [
        "build",
        "repair",
        "commands",
        "querying.answer",
        "querying.options",
        "reporting.make",
        "tracing.run",
        "exporting.options",
    ],
)
def test_a_command_starts_before_the_heavy_packages(command: str) -> None:
    """So a usage error, ``--help`` and ctrl-C wait for nothing."""
    code = f"""
import sys
import rocketmq_reindex.jobs.{command}
print(sorted(set(sys.modules) & {{"pyspark", "pyarrow", "numpy", "numba", "pandas", "rich"}}))
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_every_name_is_there() -> None:
    assert set(rr.__all__) <= set(dir(rr))
    for name in rr.__all__:
        assert getattr(rr, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = rr.nonsense


ALONE = """
import importlib, os, sys, traceback
for name in sys.argv[1:]:
    child = os.fork()
    if not child:
        try:
            importlib.import_module(name)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        print(name)
"""


def test_each_module_can_be_the_first_one() -> None:
    """A circle of imports shows only where a module in it comes first: of some commands a test has others before it."""
    modules = sorted(
        ".".join(("rocketmq_reindex", *path.relative_to(ROOT).with_suffix("").parts))
        for folder in ("storage_format", "files", "udfs", "jobs")
        for path in (ROOT / folder).rglob("*.py")
        if path.stem not in ("__init__", "__main__") and "dags" not in path.parts
    )
    # What most of them import, and no circle goes through.
    first = "import numpy, pyarrow, pyarrow.compute, pyarrow.parquet, pyspark.sql.datasource\n"
    words = [sys.executable, "-c", first + ALONE, *modules]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
