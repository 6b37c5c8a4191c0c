"""A log without ConsumeQueues: a broker of 5.4 or 5.5 makes units for its newest ten segments alone, in silence."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.serving.broker import Broker, by_pulls, write_topics
from tests.serving.programs import Program
from tests.serving.stores import SEGMENT, build_into
from tests.tools.encode import EPOCH, Message
from tests.tools.log_writer import LogWriter, Put

MESSAGES, SEGMENTS, QUEUES = 6000, 14, 4
LOOKED_AT = 10
"""commitLogRecoverMaxNum, by default"""
BODY = 44


def bare(store: Path) -> list[Put]:
    with LogWriter(store / "commitlog", SEGMENT) as writer:
        for number in range(MESSAGES):
            writer.append(Message(
                "orders", queue_id=number % QUEUES, queue_offset=number // QUEUES, body=b"%0*d" % (BODY, number),
                properties={"KEYS": f"{number}"}, store_timestamp=EPOCH + number,
            ))  # fmt: skip
        return writer.puts


def test_a_start_alone_and_after_a_build(tmp_path: Path) -> None:
    """README's first example, with these figures."""
    puts = bare(tmp_path / "bare")
    write_topics(tmp_path / "bare", puts)
    segments = sorted((tmp_path / "bare" / "commitlog").iterdir())
    assert len(segments) == SEGMENTS
    shutil.copytree(tmp_path / "bare", tmp_path / "built")
    build_into(tmp_path / "built")
    due = {
        ("orders", queue): [(put.message.queue_offset, put.offset) for put in puts[queue::QUEUES]] for queue in range(QUEUES)
    }
    newest = int(segments[-LOOKED_AT].name)
    with Program("5.5.1", "Serve", tmp_path) as program:
        with Broker(program, "bare", tmp_path / "bare", tmp_path) as broker:
            alone = by_pulls(broker.pulls())
            assert alone == {queue: [pair for pair in pairs if pair[1] >= newest] for queue, pairs in due.items()}
            served = sum(map(len, alone.values()))
            print(f"RocketMQ 5.5.1 alone serves {served:,} of {MESSAGES:,} messages")
            assert served == 4260
        with Broker(program, "built", tmp_path / "built", tmp_path) as broker:
            assert by_pulls(broker.pulls()) == due
