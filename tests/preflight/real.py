"""Stores that the real RocketMQ starts, many by one JVM (Start.java)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.preflight.settings import Conf
from tests.serving.programs import Program, StepFailed

HEAP = "3g"
"""A store makes room for a record as large as its first bytes say, up to 2 GiB."""
LIFETIME = 150
"""Starts in one JVM: a store that does not load leaves some of its parts behind."""
ROCKSDB_LIFETIME = 10
"""The same of stores with RocksDB, which go on until the JVM ends: a minute after a start they clean up, and may end it."""


DLEDGER = "enableDLegerCommitLog"
ENDED_ITSELF = 255
"""The exit status of a node that ends itself."""


@dataclass(frozen=True)
class RealQueue:
    """``served``: where the message at each offset from ``min_offset`` to ``max_offset`` lies; -1 where there is none, -2 where
    the store finds no unit."""

    min_offset: int
    max_offset: int
    served: tuple[int, ...]


@dataclass(frozen=True)
class RealPut:
    """A message that a real store took: ``offset`` is where it lies in the log, ``key`` its UNIQ_KEY."""

    topic: str
    queue: int
    queue_offset: int
    offset: int
    sysflag: int
    key: str


@dataclass(frozen=True)
class RealStart:
    """What a real store said when all was dispatched; ``behind`` bytes it never dispatches.

    ``lowest`` and ``highest`` of the offsets of all the records it dispatched, in recovery and after it; -1 for none.
    """

    loads: bool
    reason: str = ""
    min_offset: int = -1
    max_offset: int = -1
    behind: int = 0
    lowest: int = -1
    highest: int = -1
    records: int = 0
    queues: dict[tuple[str, int], RealQueue] | None = None


@dataclass(frozen=True)
class RealRole:
    """A store of a controller group that has taken a role. ``changed`` is what it said of that; ``epochs`` are as in its file,
    epoch-offset."""

    changed: bool
    epochs: tuple[str, ...]
    said: RealStart


class RealStores:
    """A JVM with the store of one release, begun anew after some starts. Use as a context manager."""

    def __init__(self, release: str, scratch: Path, lifetime: int = LIFETIME) -> None:
        self.release = release
        self._scratch, self._lifetime = scratch, lifetime
        self._starts = 0
        self._program: Program | None = None

    def __enter__(self) -> RealStores:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end()

    def _end(self) -> None:
        if self._program:
            self._program.kill()
            self._program = None

    def start(self, path: Path, conf: Conf) -> RealStart:
        """Start the store in ``path``. It stays open until ``leave`` or ``close``."""
        if self._starts % self._lifetime == 0:
            self._end()
        if self._program is None:
            self._scratch.mkdir(parents=True, exist_ok=True)
            self._program = Program(self.release, "Start", self._scratch, HEAP)
        self._starts += 1
        try:
            return _read(json.loads(self._program.step("start", path, path, *conf.words())))
        except StepFailed as failed:
            # DLedgerMmapFileStore ends the JVM by System.exit(-1) where it does not start. A JVM that dies has another status.
            if "the program ended" not in str(failed) or DLEDGER not in conf.more or self._program.status() != ENDED_ITSELF:
                raise
            self._end()
            self._starts = 0
            return RealStart(False, "the node ended itself")

    def die(self) -> None:
        """kill -9: what the stores hold in memory alone is gone, their files stay. The next start begins another JVM."""
        self._end()

    def put(self, path: Path, seed: int, count: int, queues: Sequence[tuple[str, int]]) -> list[RealPut]:
        """Let the store in ``path`` take random messages for these queues; some are delayed, some of transactions."""
        assert self._program
        told = self._program.step("put", path, seed, count, *(f"{_hex(topic)}/{queue}" for topic, queue in queues))
        return [RealPut(_text(topic), *rest) for topic, *rest in json.loads(told)]

    def look(self, path: Path, queues: Iterable[tuple[str, int]] = ()) -> RealStart:
        """What the store in ``path`` says of itself now. Of queues in RocksDB it knows only those that somebody names."""
        assert self._program
        words = [f"{_hex(topic)}/{queue}" for topic, queue in queues]
        return _read(json.loads(self._program.step("look", path, *words)))

    def read(self, path: Path) -> dict[tuple[str, int], list[int]]:
        """Where the messages lie that a consumer from each queue's min offset on is given, in the order in which they come."""
        assert self._program
        told = json.loads(self._program.step("read", path))
        return {(_text(topic), queue): places for topic, queue, places in told}

    def find(self, path: Path, keys: Sequence[tuple[str, str]]) -> list[list[int]]:
        """Where the messages lie that the store in ``path`` finds by each topic and key."""
        assert self._program
        words = [_hex(word) for topic_and_key in keys for word in topic_and_key]
        found: list[list[int]] = json.loads(self._program.step("find", path, *words))
        return found

    def master(self, path: Path, epoch: int) -> RealRole:
        """Have the store in ``path``, of a controller group, become master (``AutoSwitchHAService.changeToMaster``)."""
        assert self._program
        return _role(json.loads(self._program.step("master", path, epoch)))

    def slave(self, path: Path, master: Path, epoch: int, *, copies: bool = True) -> RealRole:
        """Have it become slave of the store in ``master``, and copy what that gives. ``copies``: whether it ever does."""
        assert self._program
        # It tells its master where its log ends after five seconds, and a connection that fails is tried again after five more.
        return _role(json.loads(self._program.step("slave", path, master, epoch, 90 if copies else 12)))

    def leave(self, path: Path) -> None:
        """End a store whose folder is wanted no more."""
        assert self._program
        self._program.step("leave", path)

    def close(self, path: Path) -> None:
        """Shut a store down cleanly."""
        assert self._program
        self._program.step("close", path)


def _read(told: dict[str, object]) -> RealStart:
    if not told["loads"]:
        return RealStart(False, _text(str(told["reason"])))
    dispatched, queues = told["dispatched"], told["queues"]
    assert isinstance(dispatched, dict)
    assert isinstance(queues, list)
    return RealStart(
        True, "", int(str(told["min"])), int(str(told["max"])), int(str(told["behind"])),
        dispatched["lowest"], dispatched["highest"], dispatched["records"],
        {(_text(topic), queue): RealQueue(low, high, tuple(served)) for topic, queue, low, high, served in queues},
    )  # fmt: skip


def _role(told: dict[str, Any]) -> RealRole:
    return RealRole(told["changed"], tuple(told["epochs"]), _read(told["said"]))


def _hex(text: str) -> str:
    return text.encode().hex()


def _text(hexed: str) -> str:
    return bytes.fromhex(hexed).decode()
