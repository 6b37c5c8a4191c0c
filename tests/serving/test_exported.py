"""Stores of exported and of imported messages: real consumers get all of them as from the old store, and go on from there."""

from __future__ import annotations

from pathlib import Path

import pytest

import rocketmq_reindex as rr
from tests.serving.broker import Broker, Delivery, by_pulls, write_topics
from tests.serving.programs import Program
from tests.serving.stores import SEGMENT, Queue, build_into, keyed_log, keys_of
from tests.tools.log_writer import Put

QUEUE = ("orders-0", 0)


def contents(deliveries: list[Delivery]) -> dict[Queue, list[tuple[int, str]]]:
    """Of each queue, in the order in which they came: the offset and the contents of its messages."""
    found: dict[Queue, list[tuple[int, str]]] = {}
    for delivery in deliveries:
        found.setdefault(delivery.queue, []).append((delivery.offset, delivery.contents))
    return found


def alone(old: dict[Queue, list[tuple[int, str]]], topics: set[str]) -> dict[Queue, list[tuple[int, str]]]:
    """The queues of some topics."""
    return {queue: messages for queue, messages in old.items() if queue[0] in topics}


@pytest.mark.random
def test_consumers_get_each_message(seed: int, tmp_path: Path) -> None:
    old = tmp_path / "old"
    puts: list[Put] = keyed_log(old, 1500, seed)
    build_into(old)
    write_topics(old, puts)
    topics = {"orders-0", "orders-2"}
    taken = [put for put in puts if put.message.topic in topics]
    with Program("5.5.1", "Serve", tmp_path) as program:
        with Broker(program, "old", old, tmp_path) as broker:
            given = contents(broker.consumed("lite", len(puts)))
        assert sum(map(len, given.values())) == len(puts)

        rr.export(old, topic=sorted(topics), format="store", to=tmp_path / "small")
        with Broker(program, "small", tmp_path / "small", tmp_path) as broker:
            assert broker.topics == sorted(topics)
            assert contents(broker.consumed("lite", len(taken))) == alone(given, topics), "queues were whole: so are offsets"
            found = broker.find(keys_of(taken))
            assert min(map(len, found.values())) > 0
            sent = broker.send(QUEUE, "new", 3)
            pulled = by_pulls(broker.pulls())[QUEUE]
            assert [offset for offset, _ in pulled] == list(range(len(given[QUEUE]) + 3)), "what is sent goes on behind them"
            assert [place for _, place in pulled[-3:]] == sent

        paid = rr.export(old, tag="paid", to=tmp_path / "paid.jsonl")
        rr.import_messages(tmp_path / "paid.jsonl", to=tmp_path / "imported", segment_size=SEGMENT)
        with Broker(
            program, "imported", tmp_path / "imported", tmp_path, cq_file_size=6_000_000, hash_slots=5_000_000,
            index_items=20_000_000,
        ) as broker:  # fmt: skip
            got = contents(broker.consumed("lite", paid.messages))
    with_tag = {put.offset for put in puts if dict(put.message.properties)["TAGS"] == "paid"}  # type: ignore[arg-type]
    assert sum(map(len, got.values())) == paid.messages == len(with_tag)
    for queue, messages in got.items():
        assert [offset for offset, _ in messages] == list(range(len(messages)))
        of_old = [number for _, number in given[queue]]
        order = [of_old.index(number) for _, number in messages]
        assert order == sorted(order), "each as it was, in order"
