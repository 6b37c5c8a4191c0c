"""A commitlog that lives: it grows, rolls, expires, is torn, damaged, mended; and what an incremental build of it must be."""

from __future__ import annotations

import os
import random
import shutil
import struct
import time
from pathlib import Path
from typing import Any

from tests.fault.disk import tree
from tests.golden.stores import read_files
from tests.tools.encode import EPOCH, Message, encode
from tests.tools.faulty_files import Fault
from tests.tools.faulty_runs import command, command_with
from tests.tools.log_writer import LogWriter

SEGMENT = 1 << 13
SALVAGE = ("--on-damage", "salvage")
SETTINGS: tuple[tuple[str, ...], ...] = (
    SALVAGE,
    (*SALVAGE, "--queue-order", "broker", "--checkpoint", "broker"),
    (*SALVAGE, "--index-policy", "window:1m", "--write-topics"),
    (*SALVAGE, "--queue-order", "broker", "--broker-version", "4.9"),
    (*SALVAGE, "--range-size", "3000"),
    ("--on-damage", "stop"),
    ("--on-damage", "fail"),
    (*SALVAGE, "--queue-order", "broker", "--checkpoint", "broker", "--broker-version", "5.4"),
    (*SALVAGE, "--broker-version", "5.3"),
)
_END_PLACE = 24
"""of an IndexFile's header: endPhyOffset"""


class World:
    """``out`` is built incrementally; ``history`` keeps the segments that the cut of its IndexFiles goes back to."""

    def __init__(self, root: Path) -> None:
        self.store, self.out, self.full = root / "store", root / "place" / "out", root / "full" / "out"
        self.tables, self.history = root / "tables", root / "history"
        for folder in (self.out.parent, self.full.parent, self.tables, self.history / "commitlog"):
            folder.mkdir(parents=True)
        self.log = self.store / "commitlog"
        self.writer = LogWriter(self.log, SEGMENT)
        self.words = SETTINGS[0]
        self.now = EPOCH
        self.sound = 0
        """bytes of the last segment before a torn record"""
        self.mended: dict[str, bytes] = {}
        self.changed = False
        """whether the beginning of all that is left may be another: IndexFiles then may be cut anew, as of another log"""
        self.built: tuple[tuple[str, ...], list[int], int] | None = None
        """settings, starts of segments, and where the cut of IndexFiles begins, of the build in ``out``"""

    # -- the log --------------------------------------------------------------------------------------------------------

    def segments(self) -> list[Path]:
        return sorted(self.log.iterdir())

    def _recover(self) -> None:
        """A broker that starts cuts a torn record off."""
        if self.sound:
            del self.writer.segment[self.sound :]
            self.sound = 0

    def append(self, rng: random.Random, count: int) -> None:
        self._recover()
        for _ in range(count):
            self.writer.append(self._message(rng))
        self.writer.close()

    def _message(self, rng: random.Random, **more: Any) -> Message:
        self.now += rng.randrange(20_000)
        keys = " ".join(f"k{rng.randrange(30)}" for _ in range(rng.randrange(5)))
        tags = rng.choice(("T", "T", "a||b", "Тег", ""))
        properties = ({"TAGS": tags} if tags else {}) | ({"KEYS": keys} if keys else {})
        topic, body = rng.choice(("A", "B", "Тема")), rng.randbytes(rng.randrange(1, 400))
        fields: dict[str, Any] = {"topic": topic, "queue_id": rng.randrange(2), "body": body} | more
        return Message(properties=properties, store_timestamp=self.now, **fields)

    def disorder(self, rng: random.Random) -> None:
        """A topic that was made anew, or offsets that jump."""
        self._recover()
        self.writer.append(self._message(rng, queue_offset=rng.choice((0, 0, 3, 60))))
        self.writer.close()

    def roll(self) -> None:
        self._recover()
        if self.writer.segment:
            self.writer.roll()
            self.writer.close()

    def allocate_ahead(self) -> None:
        size = self.writer.segment_size
        (self.log / f"{self.writer.base + size:020d}").write_bytes(bytes(size))

    def tear(self, rng: random.Random) -> None:
        """A record of which only the beginning reached the disk."""
        self._recover()
        data = encode(self._message(rng), self.writer.end, 0)
        if self.writer.segment and self.writer.place(len(data)) == self.writer.end:
            self.sound = len(self.writer.segment)
            self.writer.append_raw(data[: rng.randrange(8, 80)])
            self.writer.close()

    def crash(self, rng: random.Random) -> None:
        """The last records of the last segment never reached the disk; the broker goes on before them."""
        self.changed = True
        self._recover()
        here = [put for put in self.writer.puts if put.offset >= self.writer.base]
        if here:
            kept = rng.randrange(len(here))
            for put in reversed(here[kept:]):
                self.writer.queue_ends[put.message.topic, put.message.queue_id] = put.queue_offset
                self.writer.puts.remove(put)
            del self.writer.segment[here[kept].offset - self.writer.base :]
            self.writer.close()

    def expire(self) -> None:
        first = self.segments()[0]
        if int(first.name) < self.writer.base:
            first.unlink()
            self.mended.pop(first.name, None)

    def damage(self, rng: random.Random) -> None:
        """A bit of some record flips, in a segment that is no longer written to."""
        self.changed = True
        whole = [path for path in self.segments() if int(path.name) < self.writer.base and path.name not in self.mended]
        if whole:
            path = rng.choice(whole)
            data = bytearray(path.read_bytes())
            self.mended[path.name] = bytes(data)
            data[rng.randrange(len(data) // 2)] ^= 1 << rng.randrange(8)
            path.write_bytes(data)

    def mend(self) -> None:
        self.changed = True
        for name, data in self.mended.items():
            (self.log / name).write_bytes(data)
        self.mended = {}

    def spoil_result(self, rng: random.Random) -> None:
        """Somebody removes, cuts or changes a file of the build, or puts one beside it."""
        folders = [self.out / "consumequeue", self.out / "index"]
        found = sorted(path for folder in folders if folder.is_dir() for path in folder.rglob("*") if path.is_file())
        if found:
            path = rng.choice(found)
            how = rng.randrange(4)
            if how == 0:
                path.unlink()
            elif how == 1:
                os.truncate(path, path.stat().st_size // 2)
            elif how == 2:
                path.with_name(f"{10**17 - 1:020d}").touch()
            else:
                data = bytearray(path.read_bytes())
                data[rng.randrange(len(data))] ^= 1
                path.write_bytes(data)

    def touch(self, rng: random.Random) -> None:
        """A segment gets another time, an older one perhaps: it was copied, or restored."""
        os.utime(rng.choice(self.segments()), ns=(1, rng.choice((EPOCH * 10**6 + rng.randrange(2**50), time.time_ns()))))

    # -- builds ---------------------------------------------------------------------------------------------------------

    def incremental(self, *more: str) -> dict[str, Any]:
        summary, said = command(self.store, self.out, *self.words, "--incremental", "--tables", str(self.tables), *more)
        assert "Traceback" not in said
        return summary

    def broken(self, fault: Fault) -> dict[str, Any]:
        """An incremental build that a fault hits; it publishes all or nothing. Returns its summary."""
        before, was = tree(self.out), self.built
        summary, _ = command_with(fault, self.store, self.out, *self.words, "--incremental", "--tables", str(self.tables))
        after = tree(self.out)
        if after != before:
            self._remember()
            self.compare(summary)
        else:
            self.built = was
        return summary

    def build(self, *more: str) -> dict[str, Any]:
        """An incremental build, compared with a full one."""
        before = tree(self.out)
        summary = self.incremental(*more)
        if summary["exit"] in (0, 3):
            self._remember()
        else:
            assert tree(self.out) == before
        self.compare(summary)
        return summary

    def _remember(self) -> None:
        starts = [int(path.name) for path in self.segments()]
        origin = starts[0]
        # The size of ranges decides no byte: IndexFiles go on.
        words = self.words[: self.words.index("--range-size")] if "--range-size" in self.words else self.words
        if self.built and self.built[0] == words and starts[0] in self.built[1]:
            origin = self.built[2]
        self.built = (words, starts, origin)
        for path in self.segments():
            shutil.copy(path, self.history / "commitlog" / path.name)
        for path in (self.history / "commitlog").iterdir():
            if int(path.name) < origin or int(path.name) > starts[-1]:
                path.unlink()

    def compare(self, summary: dict[str, Any]) -> None:
        shutil.rmtree(self.full, ignore_errors=True)
        full, _ = command(self.store, self.full, *self.words)
        # Refused at most: no life makes a log that is none, and a comparison of two errors would be none either.
        assert full["exit"] in (0, 3, 5), full["error"]
        if summary["exit"] == 1 and summary["error"] != full["error"]:
            return  # published, and then a fault hit
        assert (summary["exit"], summary["error"]) == (full["exit"], full["error"])
        if summary["exit"] not in (0, 3):
            return
        for name in ("bytes", "records", "units", "items", "damage", "decisions"):
            assert summary[name] == full[name], name
        assert self.built is not None
        ours, truth = tree(self.out), tree(self.full)
        assert ours is not None
        assert truth is not None
        words, starts, _ = self.built
        if self.changed and ours == truth:
            self.built = words, starts, starts[0]
        self.changed = False
        if self.built[2] == starts[0]:
            assert ours == truth
            return
        for found in (ours, truth):
            found.pop("reindex.json")
            found.pop("checkpoint", None)
            for name in [name for name in found if name.startswith("index/")]:
                del found[name]
        assert ours == truth
        if self.words != SETTINGS[5]:
            self._compare_index(starts[0])

    def _compare_index(self, low: int) -> None:
        """The files of a broker that indexed everything and deleted what expired (``IndexService.deleteExpiredFile``)."""
        shutil.rmtree(self.full, ignore_errors=True)
        words = self.words if self.words != SETTINGS[6] else SALVAGE
        summary, _ = command(self.history, self.full, *words)
        assert summary["exit"] in (0, 3)
        ours, truth = ({k: v for k, v in read_files(out).items() if k.startswith("index/")} for out in (self.out, self.full))
        for name in sorted(truth)[:-1]:
            if struct.unpack_from(">q", truth[name], _END_PLACE)[0] >= low:
                break
            del truth[name]
        assert list(ours) == list(truth)
        assert ours == truth
