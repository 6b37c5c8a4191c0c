"""The slots of timer messages, beside a word for word copy of ``TimerMessageStore.doEnqueue``."""

from __future__ import annotations

import random

import numpy as np
import pytest

from rocketmq_reindex.storage_format.delay import timer_files
from rocketmq_reindex.storage_format.delay.settings import TimerSettings
from rocketmq_reindex.storage_format.delay.timer_files import Placed, place
from rocketmq_reindex.storage_format.errors import InputError

CLOCK = 1_700_000_000_000
SECOND = 1000
DAY = 24 * 3600 * SECOND


def do_enqueue(due: int, delete: bool, clock: int, settings: TimerSettings) -> tuple[int, int]:
    slots, precision = settings.roll_window_slots, settings.precision_ms
    if slots > 7 * 24 * 3600 - 60 or slots < 2:
        slots = 7 * 24 * 3600 - 60
    magic = 1
    if due - clock >= slots * precision:
        magic |= 2
        if due - clock - slots * precision < slots // 3 * precision:
            due = clock + slots // 2 * precision
        else:
            due = clock + slots * precision
    return due, magic | (4 if delete else 0)


def placed(due: list[int], deletes: list[bool] | None = None, settings: TimerSettings | None = None) -> Placed:
    stored = np.full(len(due), CLOCK + 7)
    return place(np.array(due, np.int64), stored, np.array(deletes or [False] * len(due)), CLOCK, settings or TimerSettings())


@pytest.mark.parametrize("window", [1, 2, 7, 100, 172_800, 604_740, 604_741])
@pytest.mark.parametrize("precision", [100, 1000])
def test_messages_that_are_due_later(window: int, precision: int, seed: int) -> None:
    rng = random.Random(seed)
    settings = TimerSettings(precision, window)
    edge = settings.roll_window
    due = [CLOCK + rng.randrange(0, 3 * edge) for _ in range(300)] + [CLOCK + edge + d for d in (-1, 0, 1)]
    due += [CLOCK, CLOCK + edge + settings.roll_window // precision // 3 * precision]
    deletes = [rng.random() < 0.3 for _ in due]
    found = placed(due, deletes, settings)
    # By default a record lives for three days.
    direct = min(edge + edge // 2, max(edge, 3 * DAY), 604_740 * precision)
    wanted = [
        do_enqueue(one, delete, CLOCK, settings) if one - CLOCK >= direct else (one, 5 if delete else 1)
        for one, delete in zip(due, deletes, strict=True)
    ]
    assert list(zip(found.times.tolist(), found.magics.tolist(), strict=True)) == wanted
    assert found.first == CLOCK


def test_messages_roll_when_a_broker_would_have_let_them() -> None:
    """Stored at a time when the broker still ran; one of those that should have rolled by now, and one to come."""
    due = np.array([CLOCK + 2 * DAY, CLOCK + 2 * DAY, CLOCK + 2 * DAY, CLOCK - DAY])
    stored = np.array([CLOCK - 3 * DAY, CLOCK - DAY, CLOCK - DAY + SECOND, CLOCK - 4 * DAY])
    found = place(due, stored, np.zeros(4, bool), CLOCK, TimerSettings())
    assert found.times.tolist() == [CLOCK, CLOCK + DAY, CLOCK + 2 * DAY, CLOCK - SECOND]
    assert found.magics.tolist() == [3, 3, 1, 1]


@pytest.mark.parametrize(("hours", "wanted"), [(48, 3), (60, 3), (61, 1), (72, 1), (9, 3)])
def test_messages_roll_before_their_records_are_deleted(hours: int, wanted: int) -> None:
    """Due 60 hours after they were stored, with a window of 48."""
    found = placed([CLOCK + 60 * 3600 * SECOND], settings=TimerSettings(reserved_hours=hours))
    assert found.magics.tolist() == [wanted]


@pytest.mark.parametrize("stored", [0, -5, CLOCK + DAY])
def test_store_times_that_say_nothing(stored: int) -> None:
    due = np.array([CLOCK + 2 * DAY, CLOCK + 3 * DAY])
    found = place(due, np.full(2, stored), np.zeros(2, bool), CLOCK, TimerSettings())
    assert found.times.tolist() == [CLOCK + 2 * DAY, CLOCK + 2 * DAY]
    assert found.magics.tolist() == [1, 3]


def test_a_mark_and_its_message_do_not_roll() -> None:
    """Unless the wheel does not reach as far: then they roll, and the broker has to start before they are due."""
    due = np.array([CLOCK + 4 * DAY] * 3 + [CLOCK + 8 * DAY] * 2)
    recalled = np.array([True, True, False, True, True])
    deletes = np.array([False, True, False, False, True])
    found = place(due, np.full(5, CLOCK), deletes, CLOCK, TimerSettings(), recalled)
    assert found.times.tolist() == [CLOCK + 4 * DAY] * 2 + [CLOCK + 2 * DAY] * 3
    assert found.magics.tolist() == [1, 5, 3, 3, 7]


def test_overdue_messages_have_a_slot_for_each_step() -> None:
    """In the order in which they were due, without the time between them."""
    found = placed([CLOCK - 30 * DAY, CLOCK + 5 * SECOND, CLOCK - 1, CLOCK - DAY + 1, CLOCK - SECOND, CLOCK - DAY])
    assert [(one - CLOCK) // SECOND for one in found.times.tolist()] == [-3, 5, -1, -2, -1, -2]
    assert (found.first, found.magics.tolist()) == (CLOCK - 3 * SECOND, [1] * 6)


@pytest.mark.parametrize("precision", [100, 1000])
def test_overdue_messages_keep_their_order(precision: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where steps share slots: then each has two at least, and a step with a mark shares none."""
    rng = random.Random(seed)
    for room in (1000, 7):
        monkeypatch.setattr(timer_files, "OVERDUE_SLOTS", room)
        due = [CLOCK - rng.randrange(1, 200) * 500 for _ in range(120)]
        deletes = [rng.random() < 0.05 for _ in due]
        found = placed(due, deletes, TimerSettings(precision))
        times, steps = found.times.tolist(), [one // precision for one in due]
        assert found.first == min(times)
        assert max(times) == CLOCK - precision
        pairs = sorted(zip(steps, times, strict=True))
        assert [slot for _, slot in pairs] == sorted(times)
        marked = {step for step, delete in zip(steps, deletes, strict=True) if delete}
        for step in set(steps):
            slots = {slot for one, slot in pairs if one == step}
            assert len(slots) == 1
            sharing = {one for one, slot in pairs if slot in slots}
            assert room == 7 or sharing == {step}
            assert not marked & sharing or sharing == {step}
        assert len(set(times)) <= room + 2 * len(marked) + 1


def test_marks_keep_the_slots_of_what_they_delete() -> None:
    """A mark and its message are due together; one that is due at another time deletes nothing."""
    due = [CLOCK - one * SECOND for one in (50, 40, 40, 39, 30, 20, 20, 10)]
    deletes = [False, False, True, False, False, True, False, False]
    found = placed(due, deletes)
    assert [(one - CLOCK) // SECOND for one in found.times.tolist()] == [-6, -5, -5, -4, -3, -2, -2, -1]
    assert found.first == CLOCK - 6 * SECOND
    assert found.magics.tolist() == [1, 1, 5, 1, 1, 5, 1, 1]


def test_two_slots_with_marks_side_by_side() -> None:
    found = placed([CLOCK - 2 * SECOND, CLOCK - 2 * SECOND, CLOCK - SECOND], [True, False, True])
    assert [(one - CLOCK) // SECOND for one in found.times.tolist()] == [-2, -2, -1]


def test_overdue_slots_are_not_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timer_files, "OVERDUE_PER_SLOT", 3)
    found = placed([CLOCK - 5 * DAY] * 7 + [CLOCK - DAY] * 5, [False] * 7 + [True] * 5)
    assert [(one - CLOCK) // SECOND for one in found.times.tolist()] == [-4, -4, -4, -3, -3, -3, -2] + [-1] * 5


def test_too_many_slots_with_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timer_files, "OVERDUE_SLOTS_MAX", 3)
    placed([CLOCK - one * SECOND for one in (1, 2, 3)], [True] * 3)
    with pytest.raises(InputError, match="of 4 seconds"):
        placed([CLOCK - one * SECOND for one in (1, 2, 3, 4)], [True] * 4)
