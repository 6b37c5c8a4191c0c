"""Streams that are full or closed: one line, the right exit status, and the result is there all the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.worlds import whole
from tests.tools.tiers import half

COMMANDS = (
    ("--help",),
    ("--version",),
    ("build", "--help"),
    ("info", "store"),
    ("info", "store", "--json"),
    ("query", "store", "--physical", "0"),
    ("query", "store", "--physical", "0", "--json"),
    ("inspect", "store/checkpoint", "store/checkpoint"),
    ("build", "store", "--out", "planned", "--engine", "local", "--dry-run"),
    ("build", "store", "--out", "out", "--engine", "local", "--master", "local[1]"),
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("streams")
    whole(folder)
    return folder


def run(world: Path, words: tuple[str, ...], streams: str, env: str = "") -> subprocess.CompletedProcess[str]:
    shell = ["bash", "-c", f'{env} exec "$@" {streams}', "bash", sys.executable, "-m", "rocketmq_reindex", *words]
    return subprocess.run(shell, cwd=world, capture_output=True, text=True, check=False)


def told(stderr: str) -> list[str]:
    return [line for line in stderr.splitlines() if not line.startswith(("scan:", "write:", "compiling"))]


@pytest.mark.parametrize(("words", "unbuffered"), half(COMMANDS, ["", "PYTHONUNBUFFERED=1"]))
def test_a_full_stdout(words: tuple[str, ...], unbuffered: str, world: Path) -> None:
    more = ("--overwrite",) if "out" in words and (world / "out").exists() else ()
    ended = run(world, (*words, *more), ">/dev/full", unbuffered)
    assert told(ended.stderr) == ["error: stdout: No space left on device: what was printed is not whole"]
    assert ended.returncode == 1
    if "out" in words:
        assert (world / "out" / "reindex.json").is_file()


@pytest.mark.parametrize("words", COMMANDS[:-1], ids=" ".join)
def test_a_closed_stdout(words: tuple[str, ...], world: Path) -> None:
    ended = run(world, words, "<&- >&-")
    assert (ended.returncode, ended.stdout, told(ended.stderr)) == (0, "", [])


def test_a_closed_stderr(world: Path) -> None:
    ended = run(world, ("info", "nowhere"), "2>&-")
    assert (ended.returncode, ended.stdout) == (1, "")
