"""What stands in a slot of a queue: a unit whose numbers are all possible, or none."""

from __future__ import annotations

import pytest

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.queue.units import (
    BAD,
    BATCH_LAYOUT,
    BATCH_UNIT_SIZE,
    EMPTY,
    MISSING,
    UNIT,
    UNIT_LAYOUT,
    UNIT_SIZE,
    QueueUnits,
)

SOUND = (100, 50, 7, 1000, 3, 2)
"""phy_offset, size, tagsCode, store time, queue offset of the first message, messages"""


@pytest.mark.parametrize(
    ("unit", "kind"),
    [
        (SOUND, UNIT),
        ((0, 1, 0, 0, 0, 1), UNIT),
        ((-1, *SOUND[1:]), BAD),
        ((100, 0, *SOUND[2:]), BAD),
        ((100, -1, *SOUND[2:]), BAD),
        ((*SOUND[:4], -1, 2), BAD),
        ((*SOUND[:5], 0), BAD),
        ((0, 0, 0, 0, 0, 0), EMPTY),
    ],
)
def test_a_unit_of_a_batch_queue(unit: tuple[int, ...], kind: str) -> None:
    data = BATCH_LAYOUT.pack(*unit, 0, 0)
    found = QueueUnits([(0, len(data))], lambda _, at, count: data[at : at + count], batch=True)
    assert found.at(0).kind == kind
    assert found.at(1).kind == MISSING


def test_in_front_of_the_first_file_there_is_no_unit() -> None:
    data = UNIT_LAYOUT.pack(100, 50, 7)
    found = QueueUnits([(UNIT_SIZE, len(data))], lambda _, at, count: data[at:][:count])
    assert [found.at(position).kind for position in range(3)] == [MISSING, UNIT, MISSING]


def test_what_lies_in_no_file_is_passed_at_once() -> None:
    """The name of a file may be far: no search asks each position before it."""
    data, far = UNIT_LAYOUT.pack(100, 50, 7) * 2, 10**14
    found = QueueUnits([(UNIT_SIZE, len(data)), (far * UNIT_SIZE, len(data))], lambda _, at, count: data[at:][:count])
    assert [found.behind_gap(position) for position in (0, 1, 3, far // 2, far, far + 1)] == [1, 2, far, far, far + 1, far + 2]
    found.left = 1000
    assert found.first_where(lambda unit: unit.position >= far) == 3, "the gap stands before that unit"


def test_a_batch_is_looked_for_behind_a_gap() -> None:
    data, far = BATCH_LAYOUT.pack(*SOUND, 0, 0), 10**14
    files = [(0, len(data)), (far * BATCH_UNIT_SIZE, len(data))]
    found = QueueUnits(files, lambda _, at, count: data[at : at + count], batch=True)
    found.left = 1000
    assert found.find(9) == far + 1


def test_no_more_slots_than_may_be_looked_at() -> None:
    data = UNIT_LAYOUT.pack(100, 50, 7) * 50
    found = QueueUnits([(0, len(data))], lambda _, at, count: data[at:][:count])
    found.left = 30
    with pytest.raises(InputError, match="too many slots without a message"):
        found.first_where(lambda _: None)
