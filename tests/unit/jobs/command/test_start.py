"""The line about a Python that lacks something."""

from __future__ import annotations

import platform
import sys

import pytest

from rocketmq_reindex.jobs.command.start import PLACES, lacking, this_python


def test_which_python_on_which_host() -> None:
    assert this_python() == f"{sys.executable} (Python {platform.python_version()} on {platform.node()})"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ModuleNotFoundError("No module named 'numba.core'", name="numba.core"), "lacks numba"),
        (ImportError("\nlong words of numpy\nOriginal error was: no x.so\n\n", name="numpy"),
         "cannot load numpy (Original error was: no x.so)"),
        (ImportError(), "cannot load a package"),
    ],
)  # fmt: skip
def test_what_it_lacks(error: ImportError, told: str) -> None:
    assert lacking(error) == f"{this_python()} {told}: {PLACES}"
