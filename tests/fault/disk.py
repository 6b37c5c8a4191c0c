"""One build whose n-th file operation fails: it is published whole or not at all, and nothing of it stays behind."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocketmq_reindex.jobs.command.option import PARTS
from tests.tools.encode import Message
from tests.tools.faulty_children import Children
from tests.tools.faulty_files import Fault, Matches, any_operation
from tests.tools.faulty_runs import command, command_with
from tests.tools.log_writer import LogWriter

LOCK = ".out.rmq-reindex.lock"
SEGMENT = 1 << 11
EARLIER = ("--only", "checkpoint", "--overwrite")


def tree(folder: Path) -> dict[str, bytes] | None:
    """Every file below ``folder`` with its bytes, folders with none; None when there is no such folder."""
    if not folder.exists():
        return None
    paths = sorted(folder.rglob("*"))
    return {path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else b"" for path in paths}


def state(folder: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """Everything in the input that a run must leave alone: times, modes, inodes and bytes."""
    found = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        entry = path.lstat()
        found[str(path)] = (entry.st_mtime_ns, entry.st_mode, entry.st_ino, path.read_bytes() if path.is_file() else b"")
    return found


def tiny_store(folder: Path) -> Path:
    """Two segments, a queue of two files, two IndexFiles: as few file operations as a build of every kind can have."""
    with LogWriter(folder / "commitlog", SEGMENT) as writer:
        for number in range(30):
            writer.append(Message(body=b"body", properties={"KEYS": f"a{number} b c"}))
    return folder


@dataclass
class Scene:
    """A store, DIR in a folder of its own, and what is there before and after a build."""

    store: Path
    out: Path
    earlier: bool
    """whether an earlier build is to be replaced"""
    exchange: bool = True
    name: str = "build"
    """the command"""

    def __post_init__(self) -> None:
        self.out.parent.mkdir(parents=True)
        self.input = state(self.store)
        self.words: tuple[str, ...] = ()
        self.exit = 0
        assert command(self.store, self.out)[0]["exit"] == 0
        self.truth = tree(self.out)
        assert self.truth
        assert {name.partition("/")[0] for name in self.truth} == {*PARTS, "reindex.json"}
        shutil.rmtree(self.out)
        self.before: dict[str, bytes] | None = None
        if self.earlier:
            self.words = ("--overwrite",)
            assert command(self.store, self.out, *EARLIER)[0]["exit"] == 0
            self.before = tree(self.out)

    def restore(self) -> None:
        """DIR as it was before."""
        shutil.rmtree(self.out, ignore_errors=True)
        if self.earlier:
            for name, data in (self.before or {}).items():
                path = self.out / name
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(data)

    def beside(self) -> list[str]:
        return sorted(set(os.listdir(self.out.parent)) - {self.out.name})

    def run(self, fault: Fault) -> tuple[dict[str, Any], str]:
        return command_with(fault, self.store, self.out, *self.words, exchange=self.exchange, name=self.name)

    def check(self, fault: Fault, summary: dict[str, Any], said: str) -> None:
        """What holds after a run, whatever happened to it; then the next run, undisturbed."""
        where = f"{fault.kind} {fault.number}: {fault.where}: {summary['error']}"
        lines = [line for line in said.splitlines() if line.startswith("error: ")]
        assert "Traceback" not in said, where
        found = tree(self.out)
        if summary["exit"] == self.exit:
            assert found == self.truth, where
            assert not lines, where
        else:
            assert summary["exit"] == (143 if fault.kind == "interrupt" else 1), where
            assert found == self.before, where
            assert lines == [f"error: {summary['error']}"], where
            assert len(summary["error"]) > 10, where
        left = self.beside()
        # Its lock, when it could not be removed, holds nobody up.
        assert left in ([], [LOCK]), (where, left)
        self.check_next(where)

    def check_next(self, where: str) -> None:
        """The next run to the same folder ends well, leaves nothing beside it, and the input is as it was."""
        if tree(self.out) == self.truth and not self.earlier:
            self.restore()
        summary, said = command(self.store, self.out, *self.words, name=self.name)
        assert summary["exit"] == self.exit, (where, said)
        assert tree(self.out) == self.truth, where
        assert self.beside() == [], where
        assert state(self.store) == self.input, where
        self.restore()


def check_killed(scene: Scene, where: str) -> bool:
    """What a killed run leaves: DIR whole or as it was. Then the same command again. Whether the killed one had published."""
    found = tree(scene.out)
    # Where names cannot be swapped DIR is away for a moment.
    assert found in (scene.truth, scene.before) or (found is None and not scene.exchange), where
    assert all(name == LOCK or name.startswith(".out.rmq-reindex-") for name in scene.beside()), where
    scene.check_next(where)
    return found == scene.truth


def kill_anywhere(scene: Scene, warm: Children, rng: random.Random) -> None:
    """Kill ten runs before or after any of their operations."""
    counts, killed = [Fault("EIO", 10**9) for _ in range(3)], 0
    for count in counts:
        scene.run(count)
        scene.restore()
    # How often a run looks at its progress, which are operations too, is a matter of time.
    least = min(count.seen for count in counts)
    for _ in range(10):
        number, kind = rng.randrange(least - 5) + 1, rng.choice(("kill", "kill-after"))
        status = warm.run(
            scene.store, scene.out, *scene.words, exchange=scene.exchange, name=scene.name, kind=kind, number=number
        )
        # One that looked at its progress less often had fewer operations, and may have ended before.
        assert status in (scene.exit, -signal.SIGKILL)
        killed += status != scene.exit
        check_killed(scene, f"{kind} {number}")
    assert killed >= 7


def sweep(
    scene: Scene, kind: str, number: int = 1, step: int = 1, matches: Matches = any_operation
) -> Iterator[tuple[str, dict[str, Any]]]:
    """A run for each n from ``number`` on until one passes untouched; (operation that was hit, summary)."""
    while True:
        fault = Fault(kind, number, matches)
        summary, said = scene.run(fault)
        scene.check(fault, summary, said)
        if not fault.fired:
            assert summary["exit"] == scene.exit
            return
        yield fault.where, summary
        number += step
