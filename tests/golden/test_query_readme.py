"""What the README shows of ``query`` and ``inspect`` is what they print of a golden store."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocketmq_reindex.jobs.cli import main
from rocketmq_reindex.jobs.querying.options import build_parser
from tests.golden.stores import GoldenStore

README = Path(__file__).resolve().parents[2] / "README.md"
SHOWN = "    $ rmq-reindex "


def examples(text: str) -> Iterator[tuple[list[str], list[str]]]:
    """(words, lines printed) of each example of these two commands."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if line.startswith((f"{SHOWN}query ", f"{SHOWN}inspect ")):
            printed = []
            for below in lines[number + 1 :]:
                if below.startswith(SHOWN) or (below and not below.startswith("    ")):
                    break
                printed.append(below[4:].rstrip())
            yield shlex.split(line[len(SHOWN) :]), trimmed(printed)


def trimmed(lines: list[str]) -> list[str]:
    """Without blank lines at either end."""
    filled = [number for number, line in enumerate(lines) if line]
    return lines[filled[0] : filled[-1] + 1] if filled else []


def test_examples_are_real(
    golden_store: Callable[[str], GoldenStore],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "STORE").symlink_to(golden_store("basic-5.3").path)
    monkeypatch.chdir(tmp_path)
    shown = list(examples(README.read_text(encoding="utf-8")))
    assert [words[0] for words, _ in shown] == ["query", "query", "inspect", "inspect"]
    for words, lines in shown:
        assert main(words) == 0
        assert trimmed(capsys.readouterr().out.splitlines()) == lines


def test_every_option_is_told() -> None:
    section = README.read_text(encoding="utf-8").split("## Find messages: query")[1].split("\n## ")[0]
    options = [name for action in build_parser()._actions for name in action.option_strings if action.dest != "help"]
    assert [name for name in options if f"{name} " not in section and f"{name}`" not in section] == []
