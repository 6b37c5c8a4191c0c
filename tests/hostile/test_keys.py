"""Very many keys in one slot, and KEYS that are all blanks."""

from __future__ import annotations

from pathlib import Path

from tests.golden.test_damage import build_and_compare
from tests.hostile import keys
from tests.tools.compare import SMALL
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import Message

COUNT = 100_000


def test_all_keys_in_one_slot(tmp_path: Path) -> None:
    """Ten times as many take about ten times as long; `python -m tests.hostile.keys` takes 10,000,000."""
    keys.build(1000, tmp_path / "first")
    part, whole = keys.build(COUNT // 10, tmp_path / "part"), keys.build(COUNT, tmp_path / "whole")
    assert whole < 15 * part + 0.5


def test_blanks_are_no_keys(tmp_path: Path) -> None:
    """A record's properties have at most 32,767 bytes: two records hold 64 KiB of blanks, and a third a key among them."""
    store, most = tmp_path / "store", 32_767 - len("KEYS\x01\x02")
    with LogWriter(store / "commitlog", 1 << 18) as writer:
        for text in (" " * most, " " * most, " " * (most // 2) + "k" + " " * (most // 2), "  a  b  "):
            writer.append(Message(properties={"KEYS": text}))
    for size in (0, 40_000):
        summary = build_and_compare(store, tmp_path / "out", size, **SMALL)
        assert (summary.exit, summary.records, summary.items) == (0, 4, 3)
