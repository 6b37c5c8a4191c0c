"""Which scheduled records the copies settle, and at which offset a level goes on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rocketmq_reindex.storage_format.delay.evidence import COPY, DISCARD, EVIDENCE, FIRED, HALF, SCHEDULED, TIMED, Rows
from rocketmq_reindex.storage_format.delay.settings import DELIVER, DROP
from rocketmq_reindex.storage_format.delay.waiting import (
    OPEN,
    SETTLED,
    UNCLEAR,
    LevelOffset,
    doubtful,
    join,
    last_check,
    level_offset,
    recalled,
)


def rows(*given: dict[str, Any]) -> Rows:
    """Rows in the order of the log, all of digest 1 unless they say another."""
    found = np.zeros(len(given), EVIDENCE)
    found["phy_offset"], found["digest"], found["keyed"] = np.arange(len(given)) * 100, 1, 1
    for number, fields in enumerate(given):
        for name, value in fields.items():
            found[name][number] = value
    return found


def states(*given: dict[str, Any]) -> list[int]:
    """Of each row, in the order of the log."""
    found, state = join(rows(*given))
    return [int(state[k]) for k in np.argsort(found["phy_offset"])]


def test_a_copy_settles_the_first_record_before_it() -> None:
    assert states({"kind": SCHEDULED}, {"kind": SCHEDULED}, {"kind": COPY}) == [SETTLED, OPEN, SETTLED]
    assert states({"kind": COPY}, {"kind": SCHEDULED}) == [SETTLED, OPEN]
    assert states({"kind": SCHEDULED}, {"kind": COPY}, {"kind": COPY}, {"kind": SCHEDULED}) == [1, 1, 1, OPEN]
    assert states({"kind": SCHEDULED}, {"kind": COPY, "digest": 2}) == [OPEN, SETTLED]


def test_records_without_a_key_that_are_alike_are_unclear() -> None:
    bare: dict[str, Any] = {"kind": SCHEDULED, "keyed": 0}
    assert states(bare, bare, {"kind": COPY, "keyed": 0}) == [SETTLED, UNCLEAR, SETTLED]
    assert states(bare, bare) == [OPEN, OPEN]


def test_a_roll_settles_the_record_with_one_roll_less() -> None:
    def rolled(times: int) -> dict[str, Any]:
        return {"kind": TIMED, "rolls": times}

    assert states(rolled(0), rolled(1), rolled(2)) == [SETTLED, SETTLED, OPEN]
    assert states(rolled(0), rolled(1), {"kind": FIRED}) == [SETTLED, SETTLED, SETTLED]
    # A broker that was killed rolls it once more. One whose first record is no longer in the log is pending.
    assert states(rolled(0), rolled(1), rolled(1)) == [SETTLED, OPEN, SETTLED]
    assert states(rolled(3)) == [OPEN]


def half(checks: int) -> dict[str, Any]:
    return {"kind": HALF, "rolls": checks}


def given_up(checks: int) -> dict[str, Any]:
    return {"kind": DISCARD, "rolls": checks}


def test_all_copies_of_a_half_message_but_the_last_are_passed() -> None:
    assert states(half(0), half(1), half(2)) == [SETTLED, SETTLED, OPEN]
    # After a kill a broker may check the first once more. One that is no copy was sent again.
    assert states(half(0), half(1), half(2), half(1)) == [SETTLED, SETTLED, SETTLED, OPEN]
    assert states(half(0), half(0)) == [OPEN, OPEN]
    assert states(half(0), half(0), half(1), half(0)) == [SETTLED, SETTLED, OPEN, OPEN]


def test_a_half_message_that_was_given_up_is_passed() -> None:
    assert states(half(0), half(1), given_up(1)) == [SETTLED, SETTLED, SETTLED]
    assert states(half(0), given_up(1)) == [SETTLED, SETTLED]
    # Of another count is another copy: the last one is not given up.
    assert states(half(3), given_up(1)) == [OPEN, SETTLED]
    assert states(half(0), half(1), given_up(1), half(0), half(1)) == [SETTLED, SETTLED, SETTLED, SETTLED, OPEN]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ([], (-1, -1)),
        ([half(0)], (-1, -1)),
        ([half(0), half(1)], (100, 0)),
        ([half(0), half(1), half(2)], (200, 1)),
        # Of which of two it was made, the log does not tell.
        ([half(0), half(1), half(1), half(2), half(2)], (400, 1)),
        ([half(3), half(5)], (100, -1)),
        ([half(0), half(1), given_up(1)], (200, 0)),
    ],
)
def test_where_the_last_check_had_come_to(given: list[dict[str, Any]], wanted: tuple[int, int]) -> None:
    found = rows(*({"queue_offset": number, **fields} for number, fields in enumerate(given)))
    assert last_check(join(found)[0]) == wanted


@pytest.mark.parametrize(
    ("highest", "places", "policy", "wanted"),
    [
        (-1, [], DELIVER, LevelOffset(0, 0)),
        (7, [], DELIVER, LevelOffset(8, 0)),
        (7, [3, 5], DELIVER, LevelOffset(3, 3)),
        (7, [3, 5], DROP, LevelOffset(8, 0)),
        (7, [8, 9], DELIVER, LevelOffset(8, 0)),
        (7, [8, 9], DROP, LevelOffset(10, 0)),
    ],
)
def test_where_a_level_goes_on(highest: int, places: list[int], policy: str, wanted: LevelOffset) -> None:
    assert level_offset(highest, rows(*({"queue_offset": place} for place in places)), policy) == wanted


def test_what_the_log_does_not_tell() -> None:
    given = rows(*({"queue_offset": place, "due": 50} for place in range(4)))
    masks = doubtful(given, 1, 150, 60, np.array([300]))
    assert [mask.tolist() for mask in masks] == [
        [True, False, False, False], [False, True, False, False], [False, False, False, True],
    ]  # fmt: skip
    assert not any(mask.any() for mask in doubtful(given, -1, 1000, 49, np.array([], np.int64)))


def test_a_mark_cancels_the_message_of_its_key_and_its_slot() -> None:
    found = rows(
        {"key": 5, "due": 2100},
        {"key": 5, "due": 2999, "delete": 1},
        {"key": 6, "due": 2100},
        {"key": 7, "due": 2100},
        {"key": 7, "due": 3000, "delete": 1},
        {"key": 0, "due": 2100},
        {"key": 0, "due": 2100, "delete": 1},
        {"key": 8, "due": 2100, "delete": 1},
    )
    assert recalled(found, 1000).tolist() == [True, True] + [False] * 6
    assert not recalled(found, 100).any()
    assert recalled(found[:0], 1000).tolist() == []
