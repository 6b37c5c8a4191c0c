"""Compare the IndexFiles of a store with each other, in the order of their names: the log goes on from one to the next.

A file begins with the end of the one before it (``IndexService.getAndCreateLastIndexFile``), and as long as it has no item, its
header is all that it has. Its endPhyOffset counts: ``IndexService.buildIndex`` passes over every record below that of the last
file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from rocketmq_reindex.storage_format.checks.checkpoint import A_DAY
from rocketmq_reindex.storage_format.index.header import IndexHeader

Fields = tuple[tuple[str, int], tuple[str, int]]


@dataclass(frozen=True)
class Neighbour:
    """One file: its header (None where it cannot be read), how many items, and the physical offsets of the first and the
    last."""

    name: str
    header: IndexHeader | None
    items: int
    first: int = -1
    last: int = -1


class LogFacts(NamedTuple):
    """Absolute offsets of the log's first byte and of its last record, and its latest store time in milliseconds.

    ``whole``: no key lacks its item and the files are in order, so each file follows on the one after which it was made.
    """

    start: int
    last: int
    latest: int
    whole: bool


def out_of_order(files: Sequence[Neighbour]) -> Iterator[tuple[Neighbour, Neighbour]]:
    """Neighbours of which the second begins before the first ends. The keys of one record may lie in both: that is in order."""
    for before, after in pairwise(file for file in files if file.items):
        if after.first < before.last:
            yield before, after


def empty_headers(files: Sequence[Neighbour], log: LogFacts) -> Iterator[tuple[Neighbour, int, str]]:
    """(file, value, what is wrong) of each wrong header field of files without items."""
    before: IndexHeader | None = IndexHeader(0, 0, 0, 0, 0, 0) if log.start == 0 else None
    for file in files:
        header = file.header
        if header is not None and not file.items:
            known = before if log.whole else None
            # Where the file before has expired, or is gone, its end was that of a record all the same.
            phy_offset, time = max(log.last, log.start), log.latest + A_DAY
            offsets = (("beginPhyOffset", header.begin_place), ("endPhyOffset", header.end_place))
            times = (("beginTimestamp", header.begin_time), ("endTimestamp", header.end_time))
            compared = f"where the log's last record lies at {phy_offset}"
            yield from _check_fields(file, offsets, known.end_place if known else None, phy_offset, compared)
            compared = f"where the log's latest store time is {log.latest}"
            yield from _check_fields(file, times, known.end_time if known else None, time, compared)
        before = header


def _check_fields(
    file: Neighbour, fields: Fields, before: int | None, most: int, compared: str
) -> Iterator[tuple[Neighbour, int, str]]:
    """Check begin and end of a file without items: both are the end of the file ``before``, or alike where that is not
    known."""
    if before is not None:
        for name, value in fields:
            if value != max(0, before):
                yield file, value, f"{name} {value} instead of {max(0, before)}"
        return
    absurd = [field for field in fields if not 0 <= field[1] <= most]
    for name, value in absurd:
        yield file, value, f"{name} {value} {compared}"
    (begin_name, begin), (end_name, end) = fields
    if not absurd and begin != end:
        yield file, end, f"{begin_name} {begin} and {end_name} {end}, which are alike in a file without items"
