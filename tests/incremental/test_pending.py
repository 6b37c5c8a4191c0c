"""A queue that begins again above zero, record by record: each hourly build publishes, and is what a full one makes."""

from __future__ import annotations

from pathlib import Path

from tests.golden.stores import read_files
from tests.tools.compare import SMALL
from tests.tools.local_engine import InlineEngine, local_build
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import Message

STEPS = {8: [], 9: [("pending", 4, 1)], 10: [("pending", 4, 2)], 11: [("generation", 4, 4)], 12: [("generation", 4, 4)]}


def test_a_queue_that_begins_again(tmp_path: Path) -> None:
    offsets = [*range(8), 4, 5, 6, 7]
    for count, expected in STEPS.items():
        folder = tmp_path / "store" / "commitlog"
        with LogWriter(folder, 1 << 12) as writer:
            for offset in offsets[:count]:
                writer.append(Message(queue_offset=offset, properties={"KEYS": f"k{offset}"}))
                writer.append(Message(topic="Other"))
        hourly = local_build(
            tmp_path / "store",
            tmp_path / "out",
            InlineEngine(3, 2),
            incremental=True,
            overwrite=True,
            tables=str(tmp_path / "tables"),
            range_size=700,
            **SMALL,
        )
        full = local_build(tmp_path / "store", tmp_path / "full", InlineEngine(3, 2), overwrite=True, **SMALL)
        for summary in (hourly, full):
            is_pending = any(kind == "pending" for kind, _, _ in expected)
            assert (summary.exit, summary.error, summary.damage) == (3 if is_pending else 0, None, [])
            assert [(d["kind"], d["offset"], d["count"]) for d in summary.decisions] == expected
        ours, theirs = read_files(tmp_path / "out"), read_files(tmp_path / "full")
        assert ours == theirs
