"""What the IndexFiles of a store say of each other, in the order of their names: the log goes on from one to the next.

A file begins as the one before it ended (``IndexService.getAndCreateLastIndexFile``): as long as it has no item, its header is
all that it says. Its endPhyOffset counts: ``IndexService.buildIndex`` passes over every record below the last file's.
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
    """One file: its header (None where it cannot be read), its items, and the places of the first and the last of them."""

    name: str
    header: IndexHeader | None
    items: int
    first: int = -1
    last: int = -1


class LogFacts(NamedTuple):
    """Offsets of the log's first byte and of its last record, and the latest store time in it.

    ``whole``: no key lacks its item, and the files stand in order, so each follows on the one that it was made after.
    """

    start: int
    last: int
    latest: int
    whole: bool


def out_of_order(files: Sequence[Neighbour]) -> Iterator[tuple[Neighbour, Neighbour]]:
    """Neighbours (one, the next) of which the next begins before the one ends; a record's keys may lie in both."""
    for before, after in pairwise(file for file in files if file.items):
        if after.first < before.last:
            yield before, after


def empty_headers(files: Sequence[Neighbour], log: LogFacts) -> Iterator[tuple[Neighbour, int, str]]:
    """(file, value, what is wrong) of each header field of files without items."""
    before: IndexHeader | None = IndexHeader(0, 0, 0, 0, 0, 0) if log.start == 0 else None
    for file in files:
        header = file.header
        if header is not None and not file.items:
            known = before if log.whole else None
            # Where the file before has expired, or is gone, its end was that of a record all the same.
            place, time = max(log.last, log.start), log.latest + A_DAY
            offsets = (("beginPhyOffset", header.begin_place), ("endPhyOffset", header.end_place))
            times = (("beginTimestamp", header.begin_time), ("endTimestamp", header.end_time))
            told = f"where the log's last record lies at {place}"
            yield from _judge(file, offsets, known.end_place if known else None, place, told)
            told = f"where the log's latest store time is {log.latest}"
            yield from _judge(file, times, known.end_time if known else None, time, told)
        before = header


def _judge(file: Neighbour, fields: Fields, before: int | None, most: int, told: str) -> Iterator[tuple[Neighbour, int, str]]:
    """Begin and end of a file without items: both the end of the file ``before``, where that is known, else alike."""
    if before is not None:
        for name, value in fields:
            if value != max(0, before):
                yield file, value, f"{name} {value} instead of {max(0, before)}"
        return
    absurd = [field for field in fields if not 0 <= field[1] <= most]
    for name, value in absurd:
        yield file, value, f"{name} {value} {told}"
    (begin_name, begin), (end_name, end) = fields
    if not absurd and begin != end:
        yield file, end, f"{begin_name} {begin} and {end_name} {end}, which are alike in a file without items"
