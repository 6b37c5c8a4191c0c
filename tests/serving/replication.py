"""A master and a slave of it, each a real broker in a program of its own, and how far the slave has come."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.serving.broker import Broker, by_pulls
from tests.serving.programs import PATIENCE, Program
from tests.serving.stores import Queue, place, queues_of
from tests.tools.log_writer import Put

VERSION = "5.3.3"
STILL = 0.5
"""Seconds in which a slave tries what it cannot dispatch hundreds of times."""

Served = dict[Queue, list[tuple[int, int]]]
"""(queue offset, place) of each message of a queue"""


class Member(Program):
    """One broker of a group, on the store in ``store``."""

    def __init__(self, store: Path, role: str, *settings: str) -> None:
        scratch = store.with_name(f"{store.name}-scratch")
        scratch.mkdir(exist_ok=True)
        super().__init__(VERSION, "Serve", scratch)
        try:
            self.broker = Broker(self, "group", store, scratch, "--set", ",".join([f"brokerRole={role}", *settings]))
        except BaseException:
            self.kill()
            raise

    def __enter__(self) -> Member:
        return self

    @property
    def ends(self) -> tuple[int, int]:
        """Physical offsets: up to where it dispatched, and the end of its log."""
        end, behind, _ = map(int, self.step("state").split(" "))
        return end - behind, end

    @property
    def ha_port(self) -> int:
        return int(self.step("state").split(" ")[2])

    def served(self) -> Served:
        """What a consumer is given, pull by pull."""
        return {queue: messages for queue, messages in by_pulls(self.broker.pulls()).items() if messages}


def master_on(store: Path) -> Member:
    return Member(store, "ASYNC_MASTER")


def slave_on(store: Path, master_port: int) -> Member:
    """The slave tells where its log ends every 200 ms, not every 5 s: the first time it does so, the master begins to send."""
    return Member(store, "SLAVE", f"haMasterAddress=127.0.0.1:{master_port}", "haSendHeartbeatInterval=200")


def stopped(slave: Member, end: int) -> int:
    """Up to where the slave has dispatched, when its log goes to ``end`` and it gets no further in it."""
    _until(lambda: slave.ends[1] == end)
    before = -1
    while (dispatched := slave.ends[0]) != before:
        before = dispatched
        time.sleep(STILL)
    return dispatched


def caught_up(slave: Member, end: int) -> None:
    """Returns when the slave has all of the master's log, and has dispatched it."""
    _until(lambda: slave.ends == (end, end))


def _until(done: Callable[[], bool], seconds: float = PATIENCE) -> None:
    patience = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < patience
        time.sleep(0.05)


def due_of(puts: Iterable[Put]) -> Served:
    return {queue: [(put.queue_offset, put.offset) for put in of_queue] for queue, of_queue in queues_of(puts).items()}


def taken(out: Path, store: Path, into: Path) -> Path:
    """A copy of ``store`` with the log of a repair and all that was derived from it in the place of its own."""
    shutil.copytree(store, into)
    shutil.rmtree(into / "commitlog")
    shutil.move(out / "commitlog", into / "commitlog")
    place(out, into)
    return into


def log_of(store: Path) -> bytes:
    """All segments, one after the other."""
    return b"".join(path.read_bytes() for path in sorted((store / "commitlog").iterdir()))
