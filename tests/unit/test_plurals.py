"""Counts in the texts of all commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from storage_format.plurals import counted

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("count", "words", "told"),
    [
        (0, ("unit",), "0 units"), (1, ("unit",), "1 unit"), (2500, ("unit",), "2,500 units"),
        (1, ("dispatch", "dispatches"), "1 dispatch"), (2, ("dispatch", "dispatches"), "2 dispatches"),
    ],
)  # fmt: skip
def test_counts(count: int, words: tuple[str, ...], told: str) -> None:
    assert counted(count, *words) == told


def test_no_count_is_written_with_a_fixed_plural() -> None:
    """``{len(x)} queues`` says "1 queues" one day. Sizes in bytes that something must have are not counts."""
    nouns = "queues|kinds|records|units|items|files|segments|ranges|keys|topics|places|IndexFiles|differences|decisions|tables"
    fixed = re.compile(rf"\{{(?:len\(|sum\(|self\.|summary\.|told\[|count)[^}}]*\}} (?:more )?(?:{nouns})\b(?!/s)")
    left = [
        f"{path.relative_to(ROOT)}: {found[0]}"
        for folder in ("jobs", "udfs", "storage_format")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for found in fixed.finditer(path.read_text(encoding="utf-8"))
        if "rises" not in found[0]  # how many are too many
    ]
    assert left == []
