"""The pure parts of verify: items as multisets, units slot by slot, the tally."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter

import numpy as np
import pytest

from rocketmq_reindex.storage_format.checkpoints import Checkpoint
from rocketmq_reindex.storage_format.checks.checkpoint import A_DAY, IndexEnd, LogBounds, compare_checkpoint
from rocketmq_reindex.storage_format.checks.differences import EXAMPLES_MAX, KINDS, PARTS, Tally
from rocketmq_reindex.storage_format.checks.items import Expected, FileItems, match_items
from rocketmq_reindex.storage_format.checks.queues import Int64s, QueueView, UnitChecker
from rocketmq_reindex.storage_format.versions import RULES

Item = tuple[int, int]
BLANK = (0, 0x7FFFFFFF, 0)
Unit = tuple[int, int, int]


def expected_items(items: list[Item]) -> Expected:
    place, key_hash = (np.array([item[k] for item in items], np.int64) for k in (0, 1))
    return Expected(place, place * 10, key_hash.astype(np.int32))


def found_items(items: list[Item]) -> FileItems:
    place, key_hash = (np.array([item[k] for item in items], np.int64) for k in (0, 1))
    numbers = np.arange(1, len(items) + 1, dtype=np.int32)
    zeros = np.zeros(len(items), np.int32)
    return FileItems(place, key_hash.astype(np.int32), zeros, zeros, numbers)


def model(mine: list[Item], theirs: list[Item]) -> tuple[int, int, int, int]:
    """(missing, extra, wrong hashes, repeats), record by record."""
    missing = extra = wrong = repeats = 0
    for place in {place for place, _ in mine} | {place for place, _ in theirs}:
        want = Counter(key for where, key in mine if where == place)
        have = Counter(key for where, key in theirs if where == place)
        lacks, too_many = (want - have).total(), (have - want).total()
        times = have.total() // want.total() if want else 0
        if times > 1 and have == Counter({key: count * times for key, count in want.items()}):
            repeats += too_many
            continue
        pairs = min(lacks, too_many)
        missing, extra, wrong = missing + lacks - pairs, extra + too_many - pairs, wrong + pairs
    return missing, extra, wrong, repeats


def spoil_items(items: list[Item], rng: random.Random) -> list[Item]:
    out = list(items)
    for _ in range(rng.choice((0, 1, 1, 2, 5))):
        if not out:
            break
        k = rng.randrange(len(out))
        place, key = out[k]
        what = rng.randrange(6)
        if what == 0:
            del out[k : k + rng.randrange(1, 4)]
        elif what == 1:
            out.insert(k, (place, rng.randrange(4)))
        elif what == 2:
            out[k] = (place, key + 1)
        elif what == 3:
            out[k] = (place + rng.randrange(1, 3), key)
        elif what == 4:
            record = [item for item in out if item[0] == place]
            out[k:k] = record
        else:
            other = rng.randrange(len(out))
            out[k], out[other] = out[other], out[k]
    return out


def test_items_are_matched_as_multisets(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(400):
        mine = [(place, rng.randrange(4)) for place in range(0, rng.randrange(1, 30), 2) for _ in range(rng.randrange(4))]
        theirs = spoil_items(mine, rng)
        expected, found = expected_items(mine), found_items(theirs)
        got = match_items(expected, found)
        counts = tuple(len(rows) for rows in (got.missing, got.extra, got.hashes, got.repeats))
        missing, extra, wrong, repeats = model(mine, theirs)
        if theirs == sorted(theirs, key=lambda item: item[0]):
            assert counts == (missing, extra, wrong, repeats), (mine, theirs)
        # What stands apart from its record is no record dispatched again.
        assert (counts[0], counts[1] + counts[3], counts[2]) == (missing, extra + repeats, wrong), (mine, theirs)
        assert (expected.phy_offset[got.pairs[0]] == found.phy_offset[got.pairs[1]]).all()
        assert (expected.key_hash[got.pairs[0]] == found.key_hash[got.pairs[1]]).all()
        for rows, whole in ((got.pairs[0], mine), (got.pairs[1], theirs)):
            assert len(set(rows.tolist())) == len(rows) <= len(whole)
        assert len(got.pairs[0]) + len(got.missing) + len(got.hashes) == len(mine)
        assert len(got.pairs[1]) + len(got.extra) + len(got.hashes) + len(got.repeats) == len(theirs)


# -- units ----------------------------------------------------------------------------------------------------


def test_a_queue_with_units_far_apart() -> None:
    """RocksDB takes any queue offset: what lies between two units is counted, and not walked through."""
    places, first, reads = [3, 1 << 40], 1 << 50, list[int]()

    def read(position: int, count: int) -> Int64s:
        reads.append(count)
        columns = np.zeros((3, count), np.int64)
        for k, place in enumerate((*places, first)):
            if position <= place < position + count:
                columns[:, place - position] = 1000 * (k + 1), 100, 0
        return columns

    def data_from(position: int) -> int:
        return next((place for place in (*places, first) if place >= position), first + 1)

    view = QueueView(read, ((3, first + 1),), data_from, lambda _: None, lambda _: "queue", (3000, 9000))
    checker = UnitChecker(view)
    checker.expect(np.array([[first], [3000], [100], [0]], np.int64))
    checker.finish()
    # The units at 3 and at 2**40 are of records that have expired.
    assert dict(checker.tally.counts) == {"queue-pre-blank": first - 3 - 2}
    assert (checker.first_bad, len(reads) < 20, checker.there) == (4, True, 1)


def check(expected: list[Unit], slots: list[Unit], first: int = 0, log: tuple[int, int] = (0, 10_000), cut: int = 0) -> Tally:
    """A queue whose file begins at position 0 and holds ``slots``; ``expected`` from ``first`` on, in two stretches.

    The log has a record of the queue at each expected place, and one of another queue at 5,000.
    """

    def read(position: int, count: int) -> Int64s:
        some = [slots[k] if k < len(slots) else (0, 0, 0) for k in range(position, position + count)]
        columns: Int64s = np.array(some, np.int64).reshape(-1, 3).T
        return columns

    records = {unit[0]: first + k for k, unit in enumerate(expected)}

    def look(place: int) -> int | None:
        return -1 if place == 5000 else records.get(place)

    view = QueueView(read, ((0, len(slots)),), lambda position: position, look, lambda _: "file", log)
    checker = UnitChecker(view)
    rows = np.array([(first + k, *unit) for k, unit in enumerate(expected)], np.int64).reshape(-1, 4).T
    for part in (rows[:, :cut], rows[:, cut:]):
        checker.expect(part)
    checker.finish()
    return checker.tally


UNITS: list[Unit] = [(1000 + 100 * k, 100, k) for k in range(10)]
EMPTY: Unit = (0, 0, 0)


@pytest.mark.parametrize("cut", range(0, 11, 2))
@pytest.mark.parametrize(
    ("slots", "found"),
    [
        (UNITS, {}),
        ([*UNITS, EMPTY], {}),
        (UNITS[:9], {"queue-unit-missing": 1}),
        ([*UNITS[:4], EMPTY, *UNITS[5:]], {"queue-unit-missing": 1}),
        ([*UNITS, UNITS[9]], {"queue-unit-extra": 1}),
        ([*UNITS, EMPTY, UNITS[2]], {"queue-unit-extra": 1}),
        ([*UNITS, (9000, 100, 0)], {"queue-unit-no-record": 1}),
        ([*UNITS[:4], UNITS[6], UNITS[5], UNITS[4], *UNITS[7:]], {"queue-unit-other": 2}),
        ([*UNITS[:4], (5000, 100, 4), *UNITS[5:]], {"queue-unit-other": 1}),
        ([*UNITS[:4], (1401, 100, 4), *UNITS[5:]], {"queue-unit-no-record": 1}),
        ([*UNITS[:4], (-1400, 100, 4), *UNITS[5:]], {"queue-unit-no-record": 1}),
        ([*UNITS[:4], (1400, -100, 4), *UNITS[5:]], {"queue-unit-size": 1}),
        ([*UNITS[:4], (1400, 100, 9), *UNITS[5:]], {"queue-unit-tags": 1}),
        ([*UNITS[:4], *UNITS[5:]], {"queue-shifted": 5, "queue-unit-missing": 1}),
        ([*UNITS[:8], UNITS[9]], {"queue-shifted": 1, "queue-unit-missing": 1}),
        ([*UNITS[:4], *UNITS[3:]], {"queue-shifted": 6, "queue-unit-extra": 1}),
        ([*UNITS[:4], BLANK, *UNITS[5:]], {"queue-pre-blank": 1}),
    ],
)
def test_units_of_a_queue(cut: int, slots: list[Unit], found: dict[str, int]) -> None:
    assert check(UNITS, slots, cut=cut).counts == found


@pytest.mark.parametrize(
    ("lead", "found"),
    [
        ([BLANK] * 3, {}),
        ([(100, 100, 1), (200, 100, 2), (300, 100, 3)], {}),
        ([BLANK, (200, 100, 2), (300, 100, 3)], {}),
        ([(100, 100, 1), BLANK, BLANK], {"queue-pre-blank": 2}),
        ([BLANK, EMPTY, BLANK], {"queue-pre-blank": 2}),
        ([BLANK, BLANK, (0, 0x7FFFFFFE, 0)], {"queue-pre-blank": 1}),
        ([BLANK, BLANK, (950, 100, 0)], {"queue-unit-no-record": 1}),
        ([BLANK, BLANK, (1100, 100, 1)], {"queue-unit-extra": 1}),
    ],
)
def test_what_stands_before_the_first_unit(lead: list[Unit], found: dict[str, int]) -> None:
    """Pre-blank, then units whose records lay before the log's first byte."""
    assert check(UNITS, [*lead, *UNITS], first=3, log=(1000, 10_000)).counts == found


@pytest.mark.parametrize(
    ("slots", "found"),
    [
        ([], {}),
        ([EMPTY] * 4, {}),
        ([BLANK, (100, 100, 1), EMPTY], {}),
        ([(100, 100, 1), (5000, 100, 2)], {"queue-unit-extra": 1}),
        ([(100, 100, 1), (2000, 100, 2)], {"queue-unit-no-record": 1}),
    ],
)
def test_a_queue_that_the_log_does_not_know(slots: list[Unit], found: dict[str, int]) -> None:
    """All of its records may have expired."""
    assert check([], slots, log=(1000, 10_000)).counts == found


# -- the rest ----------------------------------------------------------------------------------------------------


def test_the_tally_keeps_the_first_places_and_all_counts() -> None:
    tallies = [Tally(), Tally()]
    for k in range(100):
        tallies[k % 2].add("index-item-hash", 2, f"index/{99 - k:03d}", k, "")
    whole = Tally.from_json(tallies[0].to_json())
    whole.merge(tallies[1])
    assert whole.counts == {"index-item-hash": 200}
    assert [example.where for example in whole.examples["index-item-hash"]] == [f"index/{k:03d}" for k in range(EXAMPLES_MAX)]
    whole.add("index-item-hash", 0, "index/000", 0, "")
    assert whole.total == 200
    with pytest.raises(KeyError):
        whole.add("index-item-hashes", 1, "", 0, "")


def test_places_are_spread_over_queues_however_they_come(seed: int) -> None:
    """One of each queue first; in which parts the findings come together makes no difference."""
    rng = random.Random(seed)
    for _ in range(50):
        places = [
            (rng.randrange(rng.choice((2, 30))), rng.randrange(3), rng.randrange(500)) for _ in range(rng.randrange(1, 200))
        ]
        tallies = [Tally() for _ in range(rng.randrange(1, 5))]
        for queue, file, at in places:
            rng.choice(tallies).add("queue-unit-missing", 1, f"consumequeue/T/{queue:02d}/{file}", at, "")
        whole = Tally()
        for tally in rng.sample(tallies, len(tallies)):
            whole.merge(Tally.from_json(tally.to_json()))
        told = [(int(e.where[15:17]), int(e.where[18:]), e.at) for e in whole.examples["queue-unit-missing"]]
        by_queue = {queue: sorted(place for place in places if place[0] == queue) for queue, _, _ in places}
        ranked = sorted((rank, place) for group in by_queue.values() for rank, place in enumerate(group))
        assert told == [place for _, place in ranked[:EXAMPLES_MAX]]
        assert whole.counts == {"queue-unit-missing": len(places)}


def test_every_kind_says_what_to_do() -> None:
    for name, kind in KINDS.items():
        assert kind.part in PARTS, name
        assert kind.mend or kind.advice, name
        assert kind.text, name


TIMES = LogBounds(1000, 9000, 500, 400, 1, 1, 600)
FAR = 1 << 40
FULL = IndexEnd("a", 300, 59, True, False)
LAST = IndexEnd("b", 450, 20, False, False)


@pytest.mark.parametrize(
    ("fields", "index", "found", "usual"),
    [
        ((0, 400, 300), [FULL, LAST], {}, 20),
        ((500, 400, 300, 0, 8000), [FULL, LAST], {}, 20),
        ((500, 500, 450), [FULL, LAST], {}, 0),
        ((500, 500, 0), [LAST], {}, 20),
        ((500, 500, 0), [FULL], {}, 59),
        ((500, 500, 0), [IndexEnd("a", 300, 59, True, True)], {"checkpoint-index": 1}, 0),
        ((500, 500, 0), [FULL, IndexEnd("b", 300, 0, False, False)], {"checkpoint-index": 1}, 0),
        ((500, 500, 299), [FULL, LAST], {"checkpoint-index": 1}, 20),
        ((500, 399, 300), [FULL, LAST], {"checkpoint-stale": 1}, 20),
        ((399, 500, 300), [FULL, LAST], {}, 20),  # the flush of a clean stop does not set physic
        ((399, 399, 300), [FULL, LAST], {"checkpoint-stale": 2}, 20),
        ((501, 501, 300), [FULL, LAST], {"checkpoint-ahead": 1}, 20),
        ((500, 501, 300), [FULL, LAST], {}, 20),
        ((500, 500, 300, 0, 9001), [FULL, LAST], {"checkpoint-confirm": 1}, 20),
        ((500, 500, 300, 0, 900), [FULL, LAST], {}, 20),  # set at a start, before its segment expired
        ((0, FAR, 300), [FULL, LAST], {"checkpoint-ahead": 1}, 20),
        ((FAR, 400, 300), [FULL, LAST], {"checkpoint-ahead": 1}, 20),
        ((0, 600 + A_DAY, 300), [FULL, LAST], {}, 20),  # a crash that cost the log its end
        ((500, 500, 449), [FULL, LAST], {}, 20),
        ((500, 500, 451), [FULL, LAST], {"checkpoint-index-ahead": 1}, 0),
        ((500, 500, 460), [IndexEnd("a", 460, 59, True, False), LAST], {}, 0),  # the clock was set back
        ((500, 500, FAR), [IndexEnd("a", 300, 59, True, True)], {"checkpoint-index-ahead": 1}, 0),
        ((500, 500, FAR), [], {"checkpoint-index-ahead": 1}, 0),
        ((500, 500, 451), [FULL], {}, 0),  # a newer full one is gone: that is told as such
        ((500, 500, 300, 9001), [FULL, LAST], {}, 20),  # of a replica that lags
        ((500, 500, 300, 1 << 56), [FULL, LAST], {"checkpoint-master": 1}, 20),
    ],
)
def test_a_checkpoint(fields: tuple[int, ...], index: list[IndexEnd], found: dict[str, int], usual: int) -> None:
    """What a broker leaves while it fills its last IndexFile is no difference; a full one, or a sealed one, below it is."""
    _, tally, costs = compare_checkpoint(Checkpoint(*fields).to_bytes(), TIMES, index, RULES["5.3"])
    assert (tally.counts, costs) == (found, usual)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (Checkpoint(500, 500, 300).to_bytes()[:17], "17 bytes instead of 4096"),
        (Checkpoint(500, 500, 300, -7).to_bytes(), "masterFlushedOffset -7: negative"),
        (Checkpoint(500, 500, 300).to_bytes()[:-1] + b"\x05", "byte 4095: 5 instead of 0"),
        (Checkpoint(500, FAR, 300).to_bytes(), f"logicsMsgTimestamp {FAR}, the latest record is of 600"),
        (Checkpoint(500, 500, 451).to_bytes(), "indexMsgTimestamp 451, b, which is not full, ends at 450"),
        (Checkpoint(500, 500, 300, 0, 9001).to_bytes(), "confirmPhyOffset 9001, the log ends at 9000"),
    ],
)
def test_a_checkpoint_is_told_by_its_fields(data: bytes, text: str) -> None:
    _, tally, _ = compare_checkpoint(data, TIMES, [FULL, LAST], RULES["5.3"])
    assert text in [example.text for examples in tally.examples.values() for example in examples]


@pytest.mark.parametrize(
    ("fields", "version", "found"),
    [
        ((500, 100, 300, 0, 0, 700), "5.5", {}),  # logics moves once a minute alone
        ((500, 100, 300, 0, 0, 700), "5.4", {"checkpoint-stale": 1}),
        ((100, 100, 300, 0, 0, 700), "5.5", {}),
        ((500, 500, 300, 0, 0, 8000), "5.5", {}),
        ((500, 500, 300, 0, 0, 8001), "5.5", {"checkpoint-offset-ahead": 1}),
        ((500, 500, 300, 0, 0, 8001), "5.3", {}),  # left by a newer broker, and asked of none
        ((500, 500, 300, 0, 0, -1), "5.5", {"checkpoint-bytes": 1}),
    ],
)
def test_a_checkpoint_of_a_version(fields: tuple[int, ...], version: str, found: dict[str, int]) -> None:
    times = dataclasses.replace(TIMES, last_record=8000)
    _, tally, _ = compare_checkpoint(Checkpoint(*fields).to_bytes(), times, [FULL, LAST], RULES[version])
    assert tally.counts == found
