"""A pytest plugin, ``-p tests.mutants.cover``: it says to coverage.py which test runs, also in processes that a test starts."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator
from pathlib import Path

import coverage
import pytest

VARIABLE = "MUTANTS_TEST"
"""The number of the test, for the processes that it starts: coverage.py's settings take their context from it."""
TESTS = "MUTANTS_TESTS"
"""The file to write the tests to: a line of JSON each, [number, seconds, node id, whether it passed]"""
SETTINGS = """[run]
parallel = true
data_file = {folder}/coverage
source = jobs
    udfs
    storage_format
disable_warnings = no-data-collected, module-not-measured, couldnt-parse
context = ${{MUTANTS_TEST}}
patch = _exit
sigterm = true
"""


_failed = set[str]()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _failed.add(report.nodeid)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    path = Path(os.environ[TESTS])
    number = str(len(path.read_text().splitlines()) + 1) if path.exists() else "1"
    os.environ[VARIABLE] = number
    if (measured := coverage.Coverage.current()) is not None:
        measured.switch_context(number)
    began = time.monotonic()
    try:
        return (yield)
    finally:
        with path.open("a") as lines:
            seconds, passed = round(time.monotonic() - began, 3), item.nodeid not in _failed
            lines.write(json.dumps([int(number), seconds, item.nodeid, passed]) + "\n")
        if measured is not None:
            measured.switch_context("")
        del os.environ[VARIABLE]
