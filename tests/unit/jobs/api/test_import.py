"""``import rocketmq_reindex`` costs nothing, and says what it has."""

from __future__ import annotations

import subprocess
import sys

import pytest

import rocketmq_reindex as rr

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
