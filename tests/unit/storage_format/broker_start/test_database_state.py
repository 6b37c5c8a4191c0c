"""A queue in RocksDB while a broker starts, beside plain Python: any units, any dispatches, in memory or spilled."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest

from rocketmq_reindex.storage_format.broker_start import database_state
from rocketmq_reindex.storage_format.broker_start.database_state import DatabaseQueueState
from rocketmq_reindex.storage_format.broker_start.kept import MemorySpool
from rocketmq_reindex.storage_format.queue.rocksdb import DatabaseQueue, QueueName, QueuePlace

NAME = QueueName(b"T", 0)
Int64s = npt.NDArray[np.int64]


class Units:
    """A reader of units in a dict."""

    def __init__(self, units: dict[int, int], batch: int = 3) -> None:
        self.units, self.batch = units, batch

    def phy_offset(self, _queue: QueueName, queue_offset: int) -> int | None:
        return self.units.get(queue_offset)

    def phy_offsets(self, _queue: QueueName, first: int, stop: int) -> Iterator[tuple[Int64s, Int64s]]:
        inside = sorted(at for at in self.units if first <= at < stop)
        for begin in range(0, len(inside), self.batch):
            some = inside[begin : begin + self.batch]
            yield np.array(some, np.int64), np.array([self.units[at] for at in some], np.int64)


def state_of(units: dict[int, int], last: int | None = None, first: QueuePlace | None = None) -> DatabaseQueueState:
    end = max(units, default=None) if last is None else last
    place = None if end is None else QueuePlace(units.get(end, 0), end)
    return DatabaseQueueState(DatabaseQueue(NAME, place, first), Units(units), MemorySpool())


def put(state: DatabaseQueueState, *pairs: tuple[int, int]) -> None:
    """Dispatch (queue offset, physical offset)."""
    state.append(np.array([phy for _, phy in pairs], np.int64), np.array([at for at, _ in pairs], np.int64))


@pytest.mark.parametrize("spills", [False, True])
def test_random_queues(spills: bool, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What consumers are given is what a dict of the last units has between the queue's ends."""
    monkeypatch.setattr(database_state, "_WINDOW", 4)
    rng = random.Random(seed)
    for _ in range(200):
        units = {at: 100 * at + 7 for at in rng.sample(range(40), rng.randrange(0, 30))}
        state, expected, offset = state_of(units), dict(units), 5000
        for _ in range(rng.randrange(0, 4)):
            begin, some = rng.randrange(0, 45), list[tuple[int, int]]()
            for at in range(begin, begin + rng.randrange(1, 9)):
                offset += rng.randrange(1, 50)
                some.append((at, offset))
            put(state, *some)
            expected |= dict(some)
            if spills:
                state.spill()
        state.correct_min(0)
        visible = {at: phy for at, phy in expected.items() if max(0, state.min_offset) <= at < state.max_offset}
        asked = np.unique([*expected.values(), 1, 99_999]).astype(np.int64)
        assert state.are_pointed_to(asked).tolist() == [phy in visible.values() for phy in asked.tolist()]
        missing = [at for at in range(max(0, state.min_offset), state.max_offset) if at not in visible]
        gap = missing[0] if missing else -1
        assert state.gap() == (gap, sum(at > gap for at in visible) if missing else 0)


def test_where_a_queue_begins() -> None:
    """Below the log's first byte nothing is given; a queue all of whose units are, begins behind its end."""
    state = state_of({at: 100 * at for at in range(10)})
    state.correct_min(350)
    assert (state.min_offset, state.max_offset) == (4, 10)
    state = state_of({at: 100 * at for at in range(10)})
    state.correct_min(5000)
    assert (state.min_offset, state.max_offset) == (10, 10)
    empty = state_of({})
    empty.correct_min(70)
    assert (empty.min_offset, empty.max_offset, empty.first_unit) == (0, 0, -1)


@pytest.mark.parametrize(("end", "kept"), [(1000, 10), (950, 10), (900, 9), (700, 5), (600, 6), (401, 5), (400, 1), (0, 1)])
def test_a_cut(end: int, kept: int) -> None:
    """RocketMQ's search ends where it meets the new end, with the highest unit before it that it has met."""
    state = state_of({at: 100 * at for at in range(10)})
    state.cut(end, 0)
    assert (state.max_offset, state.units_cut) == (kept, 10 - kept)


def test_a_queue_behind_the_log_is_not_cut() -> None:
    state = state_of({at: 1000 + 100 * at for at in range(10)})
    state.cut(500, 0)
    assert state.max_offset == 10


def test_two_records_of_one_queue_offset() -> None:
    """Within 256 records either may stand; farther apart the later one does. One that is dispatched again is the same."""
    near, far, again = state_of({}), state_of({}), state_of({})
    put(near, (0, 10), (1, 20), (0, 30))
    assert near.undecided() == 0
    put(far, *((at, 10 * at) for at in range(300)))
    far.spill()
    put(far, (0, 9000))
    assert far.undecided() is None
    assert far.are_pointed_to(np.array([0, 10, 9000], np.int64)).tolist() == [False, False, True]
    for _ in range(2):
        put(again, *((at, 10 * at) for at in range(5)))
    assert again.undecided() is None


def test_a_log_that_is_gone() -> None:
    """The units go; a broker still tells consumers where the queue ended."""
    state = state_of({at: 100 * at for at in range(10)})
    state.destroy()
    state.correct_min(-1)
    assert (state.min_offset, state.max_offset, state.gap()) == (0, 10, (0, 0))
