"""Dispatched records cut into ranges, as a scan sums them up: for the tests of the index plan and its writer."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass

from rocketmq_reindex.storage_format.scan.ranges import RangeSummary


@dataclass(frozen=True)
class Dispatched:
    place: int
    time: int
    keys: tuple[str, ...]


@dataclass
class Range:
    """One range: its items as (place, time, key), its makers as (item, place), and what its summary says."""

    items: list[tuple[int, int, str]]
    makers: list[tuple[int, int]]
    summary: RangeSummary


@dataclass
class File:
    """One IndexFile that IndexService would have made: the record it was made for, and its items."""

    maker: int
    items: list[tuple[int, int, str]]


def random_records(rng: random.Random, count: int, keyless: float, most_keys: int = 4) -> list[Dispatched]:
    place, time, records = rng.choice((0, 4096)), 1_700_000_000_000, []
    for number in range(count):
        time += rng.choice((0, 1, 400, 2_500, -3_000))
        keys = () if rng.random() < keyless else tuple(f"k{number}-{k}" for k in range(rng.randrange(1, most_keys + 1)))
        records.append(Dispatched(place, time, keys))
        place += rng.randrange(100, 300)
    return records


def cut(rng: random.Random, records: list[Dispatched], ranges: int) -> list[list[Dispatched]]:
    """Into so many ranges, some of them empty."""
    edges = sorted([0, len(records), *(rng.randint(0, len(records)) for _ in range(ranges - 1))])
    return [records[low:high] for low, high in itertools.pairwise(edges)]


def sum_up(number: int, records: list[Dispatched], window: int = 0) -> Range:
    summary = RangeSummary(number, number, number + 1, True, block=f"block-{number}")
    items: list[tuple[int, int, str]] = []
    makers: list[tuple[int, int]] = []
    highest: int | None = None
    for record in records:
        if summary.first_dispatched < 0:
            summary.first_dispatched = record.place
        summary.last_dispatched = record.place
        summary.records += 1
        if not record.keys:
            summary.waiting = record.place if summary.waiting < 0 else summary.waiting
            continue
        if summary.waiting >= 0:
            makers.append((len(items), summary.waiting))
            summary.waiting = -1
        if window and (highest is None or record.time // window > highest):
            highest = record.time // window
            summary.windows.append([len(items), highest])
        items += [(record.place, record.time, key) for key in record.keys]
    summary.items, summary.makers = len(items), len(makers)
    if items:
        summary.first_item_maker = makers[0][1] if makers and makers[0][0] == 0 else items[0][0]
    return Range(items, makers, summary)


def one_by_one(records: list[Dispatched], index_items: int, window: int = 0) -> list[File]:
    """The files as they come when the records are dispatched one after another."""
    files: list[File] = []
    highest: int | None = None
    for record in records:
        if not files or len(files[-1].items) == index_items - 1:
            files.append(File(record.place, []))
        for key in record.keys:
            number = record.time // window if window else 0
            rises = highest is not None and number > highest
            if len(files[-1].items) == index_items - 1 or (rises and files[-1].items):
                files.append(File(record.place, []))
            highest = number if highest is None else max(highest, number)
            files[-1].items.append((record.place, record.time, key))
    return files
