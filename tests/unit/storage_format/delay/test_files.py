"""The timer files, read as a broker reads them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from rocketmq_reindex.storage_format.delay import timer_files as files
from rocketmq_reindex.storage_format.delay.settings import TimerSettings
from rocketmq_reindex.storage_format.delay.timer_files import PENDING, TimerQueueEnd, timer_files
from tests.unit.storage_format.delay.timer_store import TimerStore

NOW = 1_700_000_000_999
CLOCK = 1_700_000_000_000
HOUR = 3_600_000
"""A broker's clock may be behind."""
SETTINGS = TimerSettings(1000, 172_800, 52 * 10 + 30)
END = TimerQueueEnd(1000, 999_000, 77)

Rows = np.ndarray[tuple[int], np.dtype[Any]]


def rows_of(*rows: tuple[int, int, bool]) -> Rows:
    """queue offset, due after the clock in ms, delete."""
    return np.array(
        [(at, at * 1000, 300 + at, CLOCK - 9000, CLOCK + due, 7 * at - 900, delete) for at, due, delete in rows], PENDING
    )


def store_of(pending: Rows, end: TimerQueueEnd = END, settings: TimerSettings = SETTINGS) -> TimerStore:
    return TimerStore(timer_files(pending, end, NOW, settings).files, settings.log_file_size, settings.precision_ms)


def random_rows(rng: random.Random, count: int) -> Rows:
    offsets = sorted(rng.sample(range(1000), count))
    return rows_of(*[(at, rng.randrange(-20_000, 20_000), rng.random() < 0.2) for at in offsets])


@pytest.mark.parametrize("count", [1, 9, 10, 11, 60, 500])
def test_every_pending_message_is_in_one_slot(count: int, seed: int) -> None:
    pending = random_rows(random.Random(seed), count)
    store = store_of(pending)
    found = [one for slot in store.delivered(CLOCK + 30_000) for one in slot]
    assert sorted((one.phy_offset, one.size, one.topic_hash, one.magic) for one in found) == sorted(
        (int(row["phy_offset"]), int(row["size"]), int(row["topic_hash"]), 5 if row["delete"] else 1) for row in pending
    )
    due = dict(zip(pending["phy_offset"].tolist(), pending["due"].tolist(), strict=True))
    for one in found:
        assert one.time == due[one.phy_offset] // 1000 * 1000 if due[one.phy_offset] >= CLOCK else one.time < CLOCK
    assert all([one.place for one in slot] == sorted(one.place for one in slot) for slot in store.delivered(CLOCK + 30_000))


def test_slots_say_what_is_linked_in_them(seed: int) -> None:
    store = store_of(random_rows(random.Random(seed), 300))
    for slot in store.delivered(CLOCK + 30_000):
        count = sum(-1 if one.magic & 4 else 1 for one in slot)
        assert store.slot(slot[0].time) == (slot[0].place, slot[-1].place, count)


def test_the_log_alone_gives_the_same_slots(seed: int) -> None:
    """``recoverAndRevise`` over an empty wheel: the first and the last unit of each slot's time."""
    store = store_of(random_rows(random.Random(seed), 300))
    revised: dict[int, list[int]] = {}
    for place, (_, previous, _, written, delayed, *_) in store.units():
        chain = revised.setdefault((written + delayed) // 1000 * 1000, [])
        assert previous == (chain[-1] if chain else -1)
        chain.append(place)
    assert store.slots() == sorted(revised)
    assert {time: store.slot(time)[:2] for time in revised} == {time: (chain[0], chain[-1]) for time, chain in revised.items()}


@pytest.mark.parametrize("last", [998, 999])
def test_a_broker_goes_on_at_the_end_of_the_queue(last: int) -> None:
    """``reviseQueueOffset`` asks the last unit. One that is there for it alone lies in a slot that is never read."""
    store = store_of(rows_of((3, 5000, False), (last, -5000, False)))
    *_, (_, unit) = store.units()
    assert unit[5:7] == ((999_000, 77) if last == 998 else (999_000, 300 + 999))
    assert store.check == (CLOCK - 1000 - HOUR, 0, 1000, 1000)
    assert len([one for slot in store.delivered(CLOCK + 10_000) for one in slot]) == 2
    assert len(list(store.units())) == (3 if last == 998 else 2)
    assert min(store.slots()) == CLOCK - 1000 - (HOUR + 1000 if last == 998 else 0)


def test_nothing_is_pending() -> None:
    store = store_of(rows_of())
    ((_, unit),) = store.units()
    assert unit[5] == 999_000
    assert store.check == (CLOCK - HOUR, 0, 1000, 1000)
    assert store.slots() == [CLOCK - HOUR - 1000]


def test_no_timer_message_ever() -> None:
    assert timer_files(rows_of(), TimerQueueEnd(0, 0, 0), NOW).files == ()


def test_a_slot_around_the_end_of_the_wheel() -> None:
    """Slots are counted from 1970, modulo those of the wheel."""
    turn = 14 * 24 * 3600 * 1000
    begin = CLOCK // turn * turn + turn
    pending = rows_of((1, begin - CLOCK - 1000, False), (2, begin - CLOCK, False))
    pending["store_time"] = begin - 9000
    found = TimerStore(timer_files(pending, END, begin - 5000, SETTINGS).files, SETTINGS.log_file_size, 1000)
    assert [slot[0].time for slot in found.delivered(begin + 5000)] == [begin - 1000, begin]


def test_until_when_a_broker_finds_what_is_overdue() -> None:
    """``TimerMessageStore.recover`` goes back by 604,800 slots, less 60."""
    pending = rows_of((1, -5000, True), (2, -1000, True), (3, 9000, False))
    for step in (100, 1000):
        found = timer_files(pending, END, NOW, TimerSettings(step))
        store = TimerStore(found.files, TimerSettings().log_file_size, step)
        first = min(slot[0].time for slot in store.delivered(CLOCK + 9000))
        assert found.start_by == first + (604_800 - 60) * step
        # A broker whose clock is behind finds what it takes until then.
        assert store.check[0] == first - HOUR


def test_large_files_come_in_parts(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    pending = random_rows(random.Random(seed), 400)
    settings = TimerSettings(1000, 172_800, 52 * 150 + 20)
    whole = store_of(pending, settings=settings)
    monkeypatch.setattr(files, "_PART_UNITS", 7)
    monkeypatch.setattr(files, "_PART_SLOTS", 3)
    parted = store_of(pending, settings=settings)
    assert (parted.log, parted.wheel) == (whole.log, whole.wheel)
    assert all(len(data) <= 7 * 52 for file in timer_files(pending, END, NOW, settings).files[:3] for _, data in file.parts())


@pytest.mark.parametrize(
    "pending",
    [
        rows_of((5, 0, False), (5, 0, False)),
        rows_of((5, 0, False), (4, 0, False)),
        rows_of((1000, 0, False)),
        rows_of((-1, 0, False)),
    ],
)
def test_rows_that_are_not_in_order(pending: Rows) -> None:
    with pytest.raises(ValueError, match="order"):
        timer_files(pending, END, NOW)


@pytest.mark.parametrize(
    "settings", [TimerSettings(precision_ms=0), TimerSettings(precision_ms=3551), TimerSettings(log_file_size=67)]
)
def test_settings_that_no_broker_runs_with(settings: TimerSettings) -> None:
    with pytest.raises(ValueError, match="size"):
        timer_files(rows_of((5, 0, False)), END, NOW, settings)


@pytest.mark.parametrize("due", [-(2**63), -1, 2**63 - 1])
def test_a_time_that_no_clock_has(due: int) -> None:
    """TIMER_OUT_MS is what the log says."""
    pending = rows_of((5, 0, False), (6, 1000, False))
    pending["due"][0] = due
    store = store_of(pending)
    assert sorted(one.phy_offset for slot in store.delivered(CLOCK + 3 * 24 * 3600_000) for one in slot) == [5000, 6000]
