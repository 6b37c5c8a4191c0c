"""Counts in the texts of all commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.building.planning import dry_run_lines, scan_settings
from rocketmq_reindex.jobs.building.summary import BuildResult, Warnings
from rocketmq_reindex.jobs.cli import main
from rocketmq_reindex.jobs.store.settings import list_segments
from rocketmq_reindex.storage_format.showing import counted, form, listed
from tests import ROOT
from tests.tools.encode import Message
from tests.tools.local_engine import local_build
from tests.tools.log_writer import LogWriter
from tests.unit.jobs.querying.test_query import make

WRONG = re.compile(r"\b1 (?:more )?(?:ConsumeQueue )?(?:[A-Za-z]+s|dispatches|queues are)\b")
"""a plural behind a single one; seconds (``1 s``) are none"""


@pytest.mark.parametrize(
    ("count", "words", "told"),
    [
        (0, ("unit",), "0 units"), (1, ("unit",), "1 unit"), (2500, ("unit",), "2,500 units"),
        (1, ("dispatch", "dispatches"), "1 dispatch"), (2, ("dispatch", "dispatches"), "2 dispatches"),
    ],
)  # fmt: skip
def test_counts(count: int, words: tuple[str, ...], told: str) -> None:
    assert counted(count, *words) == told
    assert form(count, words[0], (*words, f"{words[0]}s")[1]) in told


def test_no_count_is_written_with_a_fixed_plural() -> None:
    """``{len(x)} queues`` says "1 queues" one day. Sizes in bytes that something must have are not counts."""
    nouns = "queues|kinds|records|units|items|files|segments|ranges|keys|topics|places|IndexFiles|differences|decisions|tables"
    fixed = re.compile(rf"\{{(?:len\(|sum\(|self\.|summary\.|told\[|count)[^}}]*\}} (?:more )?(?:{nouns})\b(?!/s)")
    left = [
        f"{path.relative_to(ROOT)}: {found[0]}"
        for folder in ("jobs", "udfs", "files", "storage_format")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for found in fixed.finditer(path.read_text(encoding="utf-8"))
        if "rises" not in found[0]  # how many are too many
    ]
    assert left == []


def test_a_build_of_one_of_each(tmp_path: Path) -> None:
    with LogWriter(tmp_path / "store" / "commitlog", 1 << 12) as writer:
        writer.append(Message("T", properties={"KEYS": "k"}))
    settings = BuildSettings(store=str(tmp_path / "store"), out=str(tmp_path / "out"), master="local[1]", hash_slots=7).check()
    lines = list(dry_run_lines(settings, scan_settings(settings), list_segments(settings.roots, settings.segment_size)))
    assert "about 1 unit in at least 1 ConsumeQueue file" in "\n".join(lines)
    text = local_build(tmp_path / "store", tmp_path / "out", hash_slots=7).to_text()
    assert "wrote    1 unit in 1 ConsumeQueue file, 1 item in 1 IndexFile" in text
    assert WRONG.findall("\n".join([*lines, text])) == []


def test_warnings_of_one_thing() -> None:
    summary, found = BuildResult(bytes=1, records=1), Warnings()
    found.add_damage("0" * 20, 7, 1, "bad magic code")
    found.add_decisions([("gap", "T", 0, 1, 1)] * 10_001)
    found.add_to(summary)
    assert summary.warnings[0].endswith("offset 7, 1 byte: bad magic code")
    assert summary.warnings[-1].endswith("1 more decision, units 1")
    assert WRONG.findall("\n".join([*summary.warnings, summary.to_text()])) == []


def test_a_queue_of_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(tmp_path, [Message("T"), Message("U"), Message("U")])
    assert main(["query", str(tmp_path), "--topic", "T", "--queue", "0", "--offset", "1"]) == 0
    assert "has the offset 0 alone" in capsys.readouterr().err
    assert main(["query", str(tmp_path), "--topic", "U", "--queue", "0", "--offset", "5"]) == 0
    assert "has the offsets 0 to 1" in capsys.readouterr().err
    assert main(["query", str(tmp_path), "--topic", "U", "--queue", "0", "--time", "2100-01-01T00:00:00Z"]) == 0
    assert re.search(r"has the offsets 0 to 1: the last message was stored at \d{4}-", capsys.readouterr().err)


@pytest.mark.parametrize(("parts", "text"), [([], ""), (["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")])
def test_a_list_in_a_sentence(parts: list[str], text: str) -> None:
    assert listed(parts) == text
