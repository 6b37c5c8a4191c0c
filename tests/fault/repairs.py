"""A repair under faults: a damaged store, what its repair gives, and what is at DIR before."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.fault.disk import SEGMENT, Scene, state, tree
from tests.tools.encode import Message
from tests.tools.faulty_runs import command
from tests.tools.log_writer import LogWriter

PARTS = {"commitlog", "quarantine", "consumequeue", "index", "checkpoint", "reindex.json"}


def damaged_store(folder: Path) -> Path:
    """Five segments of 2 KiB: garbage in the second, the third missing, zeros up to the end of the fourth.

    ``backup`` in it has the third segment alone, with its neighbours.
    """
    with LogWriter(folder / "commitlog", SEGMENT) as writer:
        for number in range(75):
            writer.append(Message(body=b"body", properties={"KEYS": f"a{number} b c"}))
    segments = sorted((folder / "commitlog").iterdir())
    assert len(segments) == 5, len(segments)
    (folder / "backup").mkdir()
    for segment in segments[1:4]:
        shutil.copy2(segment, folder / "backup")
    first = segments[1]
    data = bytearray(first.read_bytes())
    data[500:900] = b"\xff" * 400
    first.write_bytes(data)
    shutil.copy2(first, folder / "backup")
    segments[2].unlink()
    data = bytearray(segments[3].read_bytes())
    data[1500:] = bytes(SEGMENT - 1500)
    segments[3].write_bytes(data)
    shutil.copy2(segments[3], folder / "backup")
    return folder


@dataclass
class RepairScene(Scene):
    """A damaged store and DIR. ``earlier``: nothing is ever replaced, so an empty folder stands at DIR before."""

    name: str = "repair"
    link: str = "none"

    def __post_init__(self) -> None:
        self.out.parent.mkdir(parents=True)
        self.input = state(self.store)
        self.words = ("--replica", str(self.store / "backup"), "--link", self.link)
        self.exit = 3
        self.is_empty, self.earlier = self.earlier, False
        summary, said = command(self.store, self.out, *self.words, name="repair")
        assert summary["exit"] == self.exit, said
        assert [entry["how"] for entry in summary["repair"]["ranges"]] == ["filler", "replica", "filler"]
        self.truth = tree(self.out)
        assert {name.partition("/")[0] for name in self.truth or {}} == PARTS
        self.before = {} if self.is_empty else None
        self.restore()

    def restore(self) -> None:
        shutil.rmtree(self.out, ignore_errors=True)
        if self.is_empty:
            self.out.mkdir()
