"""The logs that ask most of memory, in any size."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.bench.template_log import write_log
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import Message

LONGEST = 4 << 20
"""Bytes of body: the broker's maxMessageSize."""


def one_queue(store: Path, messages: int, segment_size: int = 1 << 30) -> int:
    """All messages in one queue, two index items each. Returns the log's bytes."""
    return write_log(store / "commitlog", np.zeros(messages, np.int32), segment_size=segment_size)


def hot_and_small(store: Path, messages: int, small: int, segment_size: int) -> int:
    """So many messages in one queue, and one in each of ``small`` others, which lie between."""
    queues = np.zeros(messages + small, np.int32)
    queues[np.linspace(0, messages + small - 1, small, dtype=np.int64)] = np.arange(1, small + 1)
    return write_log(store / "commitlog", queues, segment_size=segment_size)


def many_queues(store: Path, queues: int) -> int:
    """A message in each of so many queues, 8 to a topic."""
    return write_log(store / "commitlog", np.arange(queues, dtype=np.int32), queues_a_topic=8, segment_size=1 << 28)


def long_records(store: Path, ranges: int, range_size: int) -> int:
    """A record of 4 MiB across each boundary between ranges, short ones before and behind it."""
    short, filler = Message(body=b"x" * 100, properties={"KEYS": "k"}), Message(body=b"x" * 30_000)
    with LogWriter(store / "commitlog", ranges * range_size) as writer:
        for edge in range(range_size, ranges * range_size, range_size):
            while writer.end < edge - 50_000:
                writer.append(filler)
            writer.append(short)
            writer.append(Message(body=b"y" * LONGEST, properties={"KEYS": "long"}))
            assert writer.puts[-1].offset < edge < writer.end
            writer.append(short)
            writer.puts.clear()
    return ranges * range_size
