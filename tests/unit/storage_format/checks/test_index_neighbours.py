"""What a last IndexFile without items must say, given those before it and the log."""

from __future__ import annotations

import pytest

from rocketmq_reindex.storage_format.checks.index import LogFacts, Neighbour, empty_headers, out_of_order
from rocketmq_reindex.storage_format.index.layout import IndexHeader

LOG = LogFacts(0, 900, 5000, True)
FULL = Neighbour("1", IndexHeader(1000, 4000, 10, 700, 5, 60), 59, 10, 700)
UNREADABLE = Neighbour("1", None, 0)


def empty(begin_time: int, end_time: int, begin_place: int, end_place: int) -> Neighbour:
    return Neighbour("2", IndexHeader(begin_time, end_time, begin_place, end_place, 0, 1), 0)


@pytest.mark.parametrize(
    ("before", "fields", "log", "fields_told"),
    [
        ([FULL], (4000, 4000, 700, 700), LOG, []),
        ([FULL], (4000, 4000, 700, 1 << 56), LOG, ["endPhyOffset"]),
        ([FULL], (4000, 4001, 700, 700), LOG, ["endTimestamp"]),
        ([FULL], (4001, 4001, 699, 699), LOG, ["beginPhyOffset", "endPhyOffset", "beginTimestamp", "endTimestamp"]),
        ([], (0, 0, 0, 0), LOG, []),
        ([], (0, 0, 0, 5), LOG, ["endPhyOffset"]),
        # The log's first segments, and the IndexFiles that spoke of them, have expired.
        ([], (4000, 4000, 700, 700), LOG._replace(start=500), []),
        ([], (4000, 4000, 700, 1 << 56), LOG._replace(start=500), ["endPhyOffset"]),
        ([], (4000, 4000, 1 << 56, 1 << 56), LOG._replace(start=500), ["beginPhyOffset", "endPhyOffset"]),
        ([], (4000, 4001, 700, 700), LOG._replace(start=500), ["beginTimestamp 4000 and endTimestamp"]),
        ([], (-1, -1, 700, 700), LOG._replace(start=500), ["beginTimestamp", "endTimestamp"]),
        # One before it is gone, which is told; so what it should say is not known.
        ([FULL], (4500, 4500, 800, 800), LOG._replace(whole=False), []),
        ([FULL], (4500, 4500, 800, 901), LOG._replace(whole=False), ["endPhyOffset"]),
        ([UNREADABLE], (4500, 4500, 800, 800), LOG, []),
        ([UNREADABLE], (4500, 1 << 56, 800, 800), LOG, ["endTimestamp"]),
    ],
)
def test_a_file_without_items(
    before: list[Neighbour], fields: tuple[int, int, int, int], log: LogFacts, fields_told: list[str]
) -> None:
    found = [text for _, _, text in empty_headers([*before, empty(*fields)], log)]
    assert len(found) == len(fields_told)
    assert all(text.startswith(f"{name} ") for text, name in zip(found, fields_told, strict=True))


def test_a_negative_end_is_not_inherited() -> None:
    """IndexFile's constructor sets only what is above 0."""
    odd = Neighbour("1", IndexHeader(-5, -5, 10, 700, 5, 60), 59, 10, 700)
    assert list(empty_headers([odd, empty(0, 0, 700, 700)], LOG)) == []


def test_files_out_of_order() -> None:
    other = Neighbour("0", FULL.header, 59, 750, 800)
    assert list(out_of_order([other, empty(0, 0, 0, 0), FULL])) == [(other, FULL)]
    assert list(out_of_order([FULL, other])) == []
