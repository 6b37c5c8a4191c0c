"""``import rocketmq_reindex`` costs nothing, and says what it has."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from pathlib import Path

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
        "querying.question",
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


def imported(path: Path, modules: set[str]) -> set[str]:
    """The modules of this project that one imports as it is loaded: not in functions, nor for the checker of types."""
    found = set[str]()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & modules


def test_imports_go_in_no_circle() -> None:
    """One shows only where a module in it comes first: tests have others before it, and a command may not."""
    paths = {
        ".".join(("rocketmq_reindex", *path.relative_to(ROOT).with_suffix("").parts)): path
        for folder in ("storage_format", "files", "udfs", "jobs")
        for path in (ROOT / folder).rglob("*.py")
        if path.stem != "__init__"
    }
    graph = {name: imported(path, {*paths}) for name, path in paths.items()}
    assert [*graphlib.TopologicalSorter(graph).static_order()]
