"""A real name server, broker and clients (5.5.1) on what was built: readers get every message, in order, once, at its place."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serving.broker import Broker, by_pulls, by_queue, write_topics
from tests.serving.programs import ROOT, Program
from tests.serving.stores import (
    MOST_FOUND,
    SEGMENT,
    TAGS,
    Queue,
    build_into,
    keyed_log,
    keys_of,
    lost,
    place,
    queues_of,
    twice,
    wrong,
)
from tests.tools import spoil
from tests.tools.log_writer import LogWriter, Put
from tests.tools.make_log import Message

Served = dict[Queue, list[tuple[int, int]]]
"""(queue offset, place) of each message of a queue, in the order in which it came"""


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("serving")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture(scope="module")
def serving(scratch: Path) -> Iterator[Program]:
    with Program("5.5.1", "Serve", scratch) as program:
        yield program


def due(puts: list[Put]) -> Served:
    """What queues hold that count up by one: every message, once, at its own offset."""
    return {queue: [(put.queue_offset, put.offset) for put in of_queue] for queue, of_queue in queues_of(puts).items()}


def test_a_clean_store(serving: Program, scratch: Path, seed: int, store: Path) -> None:
    puts = keyed_log(store, 2000, seed)
    build_into(store)
    write_topics(store, puts)
    with Broker(serving, "clean", store, scratch) as broker:
        assert broker.end == puts[-1].offset + puts[-1].size
        assert broker.topics == sorted({str(put.message.topic) for put in puts})

        pulls = broker.pulls()
        assert by_pulls(pulls) == due(puts)
        for pull in pulls:
            assert pull.status == ("FOUND" if pull.messages else "NO_NEW_MSG")
            assert [offset for offset, _ in pull.messages] == list(range(pull.offset, pull.following))
        assert by_queue(broker.consumed("lite", len(puts))) == due(puts)
        pushed = by_queue(broker.consumed("push", len(puts)))  # the listener's threads take batches in any order
        assert {queue: sorted(messages) for queue, messages in pushed.items()} == due(puts)
        for tag in TAGS:
            tagged = [put for put in puts if dict(put.message.properties)["TAGS"] == tag]  # type: ignore[arg-type]
            assert by_pulls(broker.pulls(tag)) == due(tagged)

        keys = keys_of(puts)
        found = broker.find(keys)
        assert (len(found), lost(keys, found), wrong(keys, found), twice(found)) == (len(keys), [], [], [])
        for queue, of_queue in queues_of(puts).items():
            times = [put.message.store_timestamp for put in of_queue]
            middle = len(times) // 2
            assert broker.offset_at(queue, times[middle]) == middle
            assert broker.offset_at(queue, times[middle] + 1) == middle + 1
            assert broker.offset_at(queue, times[0] - 1) == 0


def test_a_topic_deleted_and_made_again(serving: Program, scratch: Path, store: Path) -> None:
    """``--queue-order logical``: the new life is served from its first offset on; keys still find the old one."""
    puts = []
    with LogWriter(store / "commitlog", SEGMENT) as writer:
        for life, count in (("old", 120), ("middle", 5), ("new", 60)):
            for number in range(2 * count):
                properties = {
                    "KEYS": f"{life}-{number} all-{number % 7}",
                    "UNIQ_KEY": f"{life:>10}{number:022d}".replace(" ", "0"),
                }
                writer.append(Message(topic="again", queue_id=number % 2, queue_offset=number // 2, properties=properties))
                writer.append(Message(topic="beside", properties={"KEYS": f"beside-{life}-{number}"}))
        puts = writer.puts
    build_into(store, queue_order="logical")
    write_topics(store, puts)
    with Broker(serving, "again", store, scratch) as broker:
        living = [put for put in puts if put.message.topic == "beside" or put in puts[-240:]]
        assert len(living) == 370 + 120
        assert by_pulls(broker.pulls()) == due(living)
        assert by_queue(broker.consumed("lite", len(living))) == due(living)
        pushed = by_queue(broker.consumed("push", len(living)))
        assert {queue: sorted(messages) for queue, messages in pushed.items()} == due(living)
        keys = keys_of(puts)
        found = broker.find(keys)
        assert (lost(keys, found), wrong(keys, found), twice(found)) == ([], [], [])


def filled(survivors: list[Put]) -> tuple[Served, int]:
    """What queues hold whose missing offsets repeat the next message, and how many are missing."""
    served, missing = {}, 0
    for queue, of_queue in queues_of(survivors).items():
        served[queue] = [(put.queue_offset, put.offset) for put in of_queue]
        at = of_queue[0].queue_offset
        for put in of_queue:
            gap = put.queue_offset - at
            missing += gap
            place = served[queue].index((put.queue_offset, put.offset))
            served[queue][place:place] = [(put.queue_offset, put.offset)] * gap
            at = put.queue_offset + 1
    return served, missing


def test_a_salvaged_log(serving: Program, scratch: Path, seed: int, store: Path) -> None:
    """Who reads across a gap of n gets the next message n times more, is told the true next offset, and goes on."""
    puts = keyed_log(store, 1200, seed)
    hit = [300, *range(500, 560), 700]
    for record in reversed(hit):
        spoil.garbage(store, record, seed)
    build_into(store, on_damage="salvage")
    write_topics(store, puts)
    survivors = [put for number, put in enumerate(puts) if number not in hit]
    with Broker(serving, "salvaged", store, scratch) as broker:
        assert broker.end == puts[-1].offset + puts[-1].size

        served, missing = filled(survivors)
        pulls = broker.pulls()
        assert by_pulls(pulls) == served
        for pull in pulls:
            assert pull.status == ("FOUND" if pull.messages else "NO_NEW_MSG")
            assert pull.following == pull.offset + len(pull.messages)
        assert missing == len(hit)
        assert by_queue(broker.consumed("lite", len(survivors) + missing)) == served
        pushed = by_queue(broker.consumed("push", len(survivors) + missing))
        assert {queue: sorted(messages) for queue, messages in pushed.items()} == {q: sorted(m) for q, m in served.items()}

        keys = keys_of(survivors)
        found = broker.find(keys)
        assert (lost(keys, found), wrong(keys, found), twice(found)) == ([], [], [])
        gone = keys_of(puts).keys() - keys.keys()
        assert not any(broker.find({key: set() for key in gone}).values())


@pytest.mark.slow
def test_fills_are_popped(serving: Program, scratch: Path, store: Path) -> None:
    """A consumer that pops (as all of 5.x's gRPC clients) gets every message, too; what it popped at a filled offset it cannot
    acknowledge there, so the broker gives each of these once more, by way of a retry topic."""
    with LogWriter(store / "commitlog", SEGMENT) as writer:
        for offset in (*range(10), *range(110, 120)):
            writer.append(Message(topic="popped", queue_offset=offset))
        puts = writer.puts
    build_into(store)
    write_topics(store, puts)
    with Broker(serving, "popped", store, scratch, "--timer-wheel") as broker:
        came = Counter(delivery.place for delivery in broker.consumed("pop", len(puts), 40_000))
        places = [put.offset for put in puts]
        assert came.keys() >= set(places)
        again = sum(count for place, count in came.items() if place not in places)
        print(f"100 filled offsets: the message behind them came {came[places[10]]} times, {again} came from retry topics")
        assert came[places[10]] == 101
        assert again <= 120


def test_damage_in_the_last_segment_is_cut_off_by_the_broker(serving: Program, scratch: Path, seed: int, store: Path) -> None:
    """What lies behind it was salvaged, and is gone as soon as a broker starts: from the log, the queues and all answers."""
    puts = keyed_log(store, 1000, seed)
    last = int(spoil.segment_paths(store)[-1].name)
    number = next(k for k, put in enumerate(puts) if put.offset >= last) + 40
    assert number < len(puts) - 40
    spoil.garbage(store, number, seed)
    build_into(store, on_damage="salvage")
    write_topics(store, puts)
    with Broker(serving, "cut", store, scratch) as broker:
        assert broker.end == puts[number].offset
        assert by_pulls(broker.pulls()) == due(puts[:number])
        kept, whole = keys_of(puts[:number]), keys_of(puts)
        # Items behind the cut count among those that a broker looks at.
        keys = {key: places for key, places in kept.items() if len(whole[key]) < MOST_FOUND}
        found = broker.find(keys)
        assert (lost(keys, found), wrong(keys, found)) == ([], [])
        behind = whole.keys() - kept.keys()
        assert not any(broker.find({key: set() for key in behind}).values())


def test_a_bare_commitlog_backup_becomes_a_store_that_boots(serving: Program, scratch: Path, seed: int, store: Path) -> None:
    """By the command itself, with a broker's default file sizes and the topics drafted from the log."""
    puts = keyed_log(store, 600, seed)
    out = store.with_name("out")
    words = ["build", str(store), "--out", str(out), "--write-topics", "--engine", "local"]
    run = subprocess.run(
        [sys.executable, "-m", "rocketmq_reindex", *words], timeout=900, capture_output=True, cwd=ROOT, text=True
    )
    assert run.returncode == 0, run.stderr
    place(out, store)
    assert sorted(path.name for path in store.iterdir()) == ["checkpoint", "commitlog", "config", "consumequeue", "index"]
    with Broker(
        serving, "bare", store, scratch, cq_file_size=6_000_000, hash_slots=5_000_000, index_items=20_000_000
    ) as broker:
        assert broker.topics == sorted({str(put.message.topic) for put in puts})
        assert by_pulls(broker.pulls()) == due(puts)
        keys = keys_of(puts)
        found = broker.find(keys)
        assert (lost(keys, found), wrong(keys, found), twice(found)) == ([], [], [])
