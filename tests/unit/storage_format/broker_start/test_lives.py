"""Records of earlier lives of a queue: those in front of the record with which its units begin again at offset 0."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from rocketmq_reindex.storage_format.broker_start import store as start_store
from rocketmq_reindex.storage_format.broker_start.loading import Prediction
from rocketmq_reindex.storage_format.broker_start.store import QueueFolder, Store
from tests.tools.encode import Message
from tests.tools.log_writer import LogWriter, Put
from tests.unit.storage_format.broker_start.stores import SEGMENT, file, queue, start, units


def of(folder: Path, offsets: list[int]) -> tuple[list[start_store.StoreFile], list[Put]]:
    """A log of one queue whose records name these offsets."""
    with LogWriter(folder, SEGMENT) as writer:
        puts = [writer.append(Message(queue_offset=offset, body=b"x" * 10)) for offset in offsets]
    return [file(int(path.name), path.read_bytes(), SEGMENT) for path in sorted(folder.iterdir())], puts


def counts(found: Prediction) -> tuple[int, int, int, int]:
    """Records of earlier lives, hidden ones, and lowest offset and end of what the log holds for consumers."""
    (one,) = found.queues
    assert found.dispatch is not None
    assert found.dispatch.hidden_records == one.hidden
    return one.earlier_lives, one.hidden, one.log_min, one.log_max


@pytest.mark.parametrize("chunk", [3, 1 << 17], ids=["in chunks", "whole"])
@pytest.mark.parametrize(
    ("offsets", "served", "expected", "in_order"),
    [
        # A topic that was made again, also of one message, and twice.
        ([0, 1, 2, 3, 4, 0, 1, 2], [5, 6, 7], (5, 0, 0, 3), True),
        ([7, 8, 9, 0], [3], (3, 0, 0, 1), True),
        ([5, 0, 1, 0, 1, 2], [3, 4, 5], (3, 0, 0, 3), True),
        # The broker made the queue anew from such a log: it serves the earlier records.
        ([0, 1, 2, 0, 1], [0, 1, 2, 3], (0, 1, 0, 3), False),
        # A record with a wrong offset; a queue that was counted from above 0 again.
        ([0, 1, 2, 3, 4, 8, 6, 7, 8, 9], [0, 1, 2, 3, 4, 6, 6, 7, 8, 9], (0, 1, 0, 10), False),
        ([0, 1, 2, 3, 4, 3, 4, 5], [0, 1, 2, 5, 6, 7], (0, 2, 0, 6), False),
        # The first unit is broken: it points into a record, or to one with another offset.
        ([0, 1, 2, 0, 1, 2], [-1, 4, 5], (0, 4, 0, 3), True),
        ([0, 1, 2, 0, 1, 2], [4, 4, 5], (0, 4, 0, 3), True),
    ],
)
def test_lives(
    offsets: list[int], served: list[int], expected: tuple[int, int, int, int], in_order: bool, chunk: int,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(start_store, "_ROWS", chunk)
    segments, puts = of(tmp_path, offsets)
    data = b"".join(
        struct.pack(">qiq", puts[3].offset + 1, 50, 0) if number < 0 else units([puts[number]]) for number in served
    )
    found = start(Store(segments, [queue(data)]), "5.3.3")
    assert (counts(found), found.in_order) == (expected, in_order)
    assert found.dispatch is not None
    hidden = [put for number, put in enumerate(puts) if number not in served]
    if expected[1] == len(hidden):
        ends = (hidden[0].offset, hidden[-1].offset + hidden[-1].size)
        assert (found.dispatch.hidden_from, found.dispatch.hidden_to) == ends


def test_a_queue_whose_first_file_is_gone(tmp_path: Path) -> None:
    """Nothing shows where it began: what has no unit is hidden."""
    segments, puts = of(tmp_path, [*range(5), *range(12)])
    data = units(puts[5:])
    folder = QueueFolder("TopicA", 0, [file(200, data[200:], 200)])
    assert counts(start(Store(segments, [folder]), "5.3.3")) == (0, 15, 0, 12)
