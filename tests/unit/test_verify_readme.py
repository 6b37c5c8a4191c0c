"""The README's page on verify: every kind of difference, every option, and what the example prints."""

from __future__ import annotations

import re
from pathlib import Path

from rocketmq_reindex.jobs.verifying.options import verify_parser
from rocketmq_reindex.storage_format.checks.differences import KINDS

SECTION = (
    (Path(__file__).resolve().parents[2] / "README.md")
    .read_text(encoding="utf-8")
    .split("\n## Verify a store\n", 1)[1]
    .split("\n## ", 1)[0]
)


def test_every_kind_is_told() -> None:
    told = dict(re.findall(r"^\| `([a-z][a-z-]+)` \| (.*) \|$", SECTION, re.MULTILINE))
    assert told == {name: kind.text for name, kind in KINDS.items()}


def test_every_option_is_told() -> None:
    options = {name for action in verify_parser()._actions for name in action.option_strings if action.dest != "help"}
    assert set(re.findall(r"`(--[a-z-]+)[ `]", SECTION)) - {"--queue-order"} == options


def test_the_example_uses_names_that_exist() -> None:
    shown = re.findall(r"^    ([a-z]+-[a-z-]+) +[\d,]+   (.*)$", SECTION, re.MULTILINE)
    assert len(shown) == 3
    for name, text in shown:
        assert KINDS[name].text == text
