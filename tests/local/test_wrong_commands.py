"""Wrong commands of all kinds: one clear line for each thing that is wrong, the right exit status, and an unchanged store."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from rocketmq_reindex.jobs.cli import COMMANDS, main
from tests.local.wrong_world import make_world, state

LONGEST = 900
"""characters of an error: the longest one has three ways out of damage, with what each loses"""


class Wrong(NamedTuple):
    """A command, its exit status, and what its errors say."""

    words: str
    status: int
    told: tuple[str, ...]


def read_table() -> Iterator[Wrong]:
    for line in Path(__file__).with_name("wrong_commands.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            command, _, told = line.partition(" | ")
            status, _, words = command.partition(" ")
            yield Wrong(words, int(status), tuple(told.split(" || ")) if told else ())


TABLE = list(read_table())


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wrong")
    make_world(folder)
    return folder


def check(wrong: Wrong, status: int, errors: str, world: Path) -> None:
    lines = [line.removeprefix("error: ") for line in errors.splitlines() if line.startswith("error: ")]
    said = [line.replace(f"{world}/", "") for line in lines]
    assert (status, len(said)) == (wrong.status, len(wrong.told)), errors
    assert all(told in line for told, line in zip(wrong.told, said, strict=True)), said
    assert all(line.isprintable() and len(line) < LONGEST for line in lines)
    assert "Traceback" not in errors


def test_the_table() -> None:
    assert {wrong.words.split()[0] for wrong in TABLE} > COMMANDS.keys()
    assert {wrong.status for wrong in TABLE} == {1, 2, 4, 5}
    assert len({wrong.words for wrong in TABLE}) == len(TABLE) > 250


@pytest.mark.usefixtures("inline_local")
@pytest.mark.parametrize("wrong", TABLE, ids=lambda wrong: wrong.words)
def test_a_wrong_command(
    wrong: Wrong, world: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    monkeypatch.chdir(world)
    before = state(world)
    status = main(shlex.split(wrong.words))
    check(wrong, status, capsys.readouterr().err, world)
    assert state(world) == before


@pytest.mark.parametrize(
    "wrong",
    [
        Wrong("biuld store --out out", 2, ("did you mean build?",)),
        Wrong("build store --out out --onn-damage stop --queue-ordr broker", 2, ("--on-damage?", "--queue-order?")),
        Wrong("query store/commitlog --physical 0", 1, ("did you mean the store around it, store?",)),
        Wrong("fetch nowhere --to store", 1, ("nowhere: is not there",)),
    ],
    ids=lambda wrong: wrong.words,
)
def test_as_a_process(wrong: Wrong, world: Path) -> None:
    before = state(world)
    words = [sys.executable, "-m", "rocketmq_reindex", *shlex.split(wrong.words)]
    ended = subprocess.run(words, cwd=world, capture_output=True, text=True, check=False)
    check(wrong, ended.returncode, ended.stderr, world)
    assert ended.stderr.count("\n") == len(wrong.told)
    assert state(world) == before
