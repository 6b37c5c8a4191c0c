"""Which tag items are compared, and what is there of each record with TAGS."""

from __future__ import annotations

import numpy as np
import pytest

from rocketmq_reindex.storage_format.checks.items import FileItems, match_items, tag_states, unmarked, wanted_items
from rocketmq_reindex.storage_format.layouts import INT32_MIN

KEY, TAG, WRONG = 7, 9, 11


def states(records: list[tuple[list[int], list[int], list[int]]]) -> str:
    """A letter for each record, given as (hashes of keys, of TAGS, of items found): Stands, Old, Gone, Lacks, or Wrong."""
    staged = [(at, h, tag) for at, (keys, tags, _) in enumerate(records) for tag, hs in ((0, keys), (1, tags)) for h in hs]
    marked = np.array([h + INT32_MIN * tag for _, h, tag in staged], np.int32)
    at = np.array([row[0] for row in staged], np.int64)
    there = [(at, h) for at, (_, _, found) in enumerate(records) for h in found]
    zeros = np.zeros(len(there), np.int32)
    found = FileItems(
        np.array([row[0] for row in there], np.int64), np.array([row[1] for row in there], np.int32), zeros, zeros, zeros
    )
    expected, tag = unmarked(at, at * 1000, marked)
    assert expected.key_hash.tolist() == [row[1] for row in staged]
    wanted = wanted_items(expected, tag, found)
    missing = match_items(expected.rows(wanted.rows), found).missing
    seen = tag_states(expected, tag, wanted, wanted.rows[missing])
    columns = (seen.stands, seen.old, seen.gone, seen.lacks)
    return "".join(next((c for c, column in zip("SOGL", columns, strict=True) if column[k]), "W") for k in range(len(at[tag])))


@pytest.mark.parametrize(
    ("records", "found"),
    [
        ([([KEY], [TAG], [KEY, TAG])] * 3, "SSS"),
        ([([KEY], [TAG], [KEY])] * 3, "OOO"),
        ([([KEY], [TAG], [KEY]), ([KEY], [TAG], [KEY, TAG])], "OS"),
        ([([KEY], [TAG], []), ([KEY], [TAG], [KEY, TAG])], "GS"),
        ([([], [TAG], []), ([], [TAG], [TAG])], "LS"),
        ([([KEY], [TAG], [KEY, WRONG])], "W"),
        ([([KEY], [TAG], [WRONG]), ([KEY], [TAG], [KEY])], "OO"),  # the key's item is the wrong one
        ([([KEY], [TAG], [KEY, KEY])], "O"),  # a record that an older broker dispatched twice
        ([([KEY], [TAG], [KEY, TAG, KEY, TAG])], "S"),
        ([([0], [0], [0, 0])], "S"),
        ([([KEY], [], [KEY])], ""),
    ],
)
def test_states(records: list[tuple[list[int], list[int], list[int]]], found: str) -> None:
    assert states(records) == found
