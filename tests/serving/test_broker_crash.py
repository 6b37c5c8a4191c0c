"""A real broker (5.5.1) on what was built: three sessions of producers and consumers, each ended by kill -9."""

from __future__ import annotations

from pathlib import Path

from tests.serving.broker import Broker, by_pulls, write_topics
from tests.serving.programs import Program
from tests.serving.stores import Queue, build_into, keyed_log, keys_of, lost, queues_of, wrong

OLD, MORE, TAIL = 600, 40, 60
QUEUE = ("orders-0", 0)


def served(broker: Broker, tag: str = "*") -> dict[Queue, list[tuple[int, int]]]:
    """Without the queues of topics that a broker makes for itself."""
    return {queue: messages for queue, messages in by_pulls(broker.pulls(tag)).items() if messages}


def test_three_sessions(seed: int, tmp_path: Path) -> None:
    store = tmp_path / "store"
    puts = keyed_log(store, OLD, seed, tail=TAIL)
    build_into(store)
    write_topics(store, puts)
    keys = keys_of(puts)
    due = {queue: [(put.queue_offset, put.offset) for put in of_queue] for queue, of_queue in queues_of(puts).items()}
    sent: dict[str, list[int]] = {}
    for session in ("first", "second", "third", ""):
        with Program("5.5.1", "Serve", tmp_path) as program:
            broker = Broker(program, "b", store, tmp_path)
            assert served(broker) == due, session
            for tag, places in sent.items():
                assert served(broker, tag) == {QUEUE: [pair for pair in due[QUEUE] if pair[1] in places]}
            found = broker.find(keys)
            assert (lost(keys, found), wrong(keys, found)) == ([], []), session
            if session:
                places = sent[session] = broker.send(QUEUE, session, MORE)
                first = due[QUEUE][-1][0] + 1
                due[QUEUE] += list(zip(range(first, first + MORE), places, strict=True))
                keys |= {(QUEUE[0], f"{session}-{number}"): {place} for number, place in enumerate(places)}
            program.kill()
