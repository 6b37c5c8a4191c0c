"""When messages were stored, by topic: read at evenly spread units, so that a log of any size takes a second or two.

A unit's position is a count, and its record has the time: nothing has to be read in between.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.jobs.reporting.model import Index, Model, Queue
from rocketmq_reindex.storage_format.checks.index import slot_lengths
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.file_names import first_byte
from rocketmq_reindex.storage_format.index.reader import IndexView, open_index
from rocketmq_reindex.storage_format.kernels.words import int32_at, int64_at
from rocketmq_reindex.storage_format.queue.consume_queue import UNIT
from rocketmq_reindex.storage_format.queue.units import PRE_BLANK_SIZE, UNIT_SIZE
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.udfs import files

SAMPLES: Final = 20_000
"""Records looked at in all, but for the least of each topic."""
SAMPLES_OF_TOPIC: Final = 20
_HEADER: Final = r.AT_STORE_TIMESTAMP + r.IPV6_EXTRA + 8

Times = dict[str, tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]
"""by topic: milliseconds, and how many messages each stands for"""


def segments_of(commitlog: str) -> list[files.Entry]:
    """The segments in a folder, by their names."""
    return [e for e in files.listing(commitlog) if e.kind == files.FILE and first_byte(e.name) is not None]


class LogTimes:
    """Store times of records by their offsets. Files stay open until ``close``."""

    def __init__(self, folder: str) -> None:
        entries = segments_of(folder)
        self._starts = [int(entry.name) for entry in entries]
        self._entries = entries
        self._open: dict[int, files.Reader] = {}

    def time(self, phy_offset: int) -> int | None:
        """The store time of the record at an offset of the log, in milliseconds since 1970; None where there is no record."""
        number = bisect_right(self._starts, phy_offset) - 1
        if number < 0 or phy_offset + _HEADER > self._starts[number] + self._entries[number].size:
            return None
        if number not in self._open:
            self._open[number] = files.Reader(self._entries[number].path)
        data = np.frombuffer(self._open[number].read(phy_offset - self._starts[number], _HEADER), np.uint8)
        if int64_at(data, r.AT_PHYSICAL_OFFSET) != phy_offset:
            return None
        extra = r.IPV6_EXTRA if int32_at(data, r.AT_SYS_FLAG) & r.FLAG_BORN_HOST_V6 else 0
        return int64_at(data, r.AT_STORE_TIMESTAMP + extra)

    def close(self) -> None:
        for reader in self._open.values():
            reader.__exit__(None, None, None)


def message_times(model: Model, folder: str, commitlog: str) -> Times:
    """Times of messages of the queues under ``folder``/consumequeue, by the log in ``commitlog``.

    Light queues are left out: their messages stand in queues of their own topics, too.
    """
    log, found = LogTimes(commitlog), Times()
    topics = {topic: queues for topic, queues in model.topics.items() if not queues[0].light}
    size = int(model.settings.get("cq_file_size", 0) or 0)
    try:
        for topic, queues in topics.items():
            most = max(SAMPLES_OF_TOPIC, SAMPLES // len(topics))
            step = max(1, -(-sum(q.end - q.first for q in queues) // most))
            times = [
                t
                for q in queues
                for phy_offset in _phy_offsets(folder, q, size, step)
                if (t := log.time(phy_offset)) is not None
            ]
            if times:
                found[topic] = (np.array(times, np.int64), np.full(len(times), step, np.int64))
    finally:
        log.close()
    return found


def _phy_offsets(folder: str, queue: Queue, file_size: int, step: int) -> list[int]:
    """Offsets of every ``step``-th record of a queue."""
    found: list[int] = []
    per_file = max(1, file_size // UNIT_SIZE)
    position = queue.first + (step - 1) // 2
    reader, opened, last = None, -1, -1
    try:
        while position < queue.end:
            start = position // per_file * per_file
            if start != opened:
                if reader is not None:
                    reader.__exit__(None, None, None)
                path = files.join(folder, "consumequeue", queue.topic, str(queue.number), f"{start * UNIT_SIZE:020d}")
                reader, opened = files.Reader(path), start
            assert reader is not None
            (unit,) = np.frombuffer(reader.read((position - start) * UNIT_SIZE, UNIT_SIZE), UNIT)
            # Missing offsets repeat the next message's unit.
            if unit["size"] > 0 and unit["size"] != PRE_BLANK_SIZE and int(unit["phy_offset"]) != last:
                found.append(last := int(unit["phy_offset"]))
            position += step
    except (OSError, InputError):
        pass  # a file that is missing or short: what was read of the queue is shown
    finally:
        if reader is not None:
            reader.__exit__(None, None, None)
    return found


def look_into(index: Index, folder: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None:
    """Of one IndexFile: slots by chain length (0, 1, 2, 3-4, 5-8, ...), and times of evenly spread items."""
    if not index.slots or not index.items:
        return None
    with files.Reader(files.join(folder, "index", index.name)) as reader:
        view = open_index(reader.whole(), index.slots, index.places + 1)
        lengths = slot_lengths(view, index.items)
        return _by_power(lengths), _item_times(view, index.items)


def _by_power(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    used = lengths[lengths > 0]
    powers = np.ceil(np.log2(used)).astype(np.int64) if len(used) else np.zeros(0, np.int64)
    counted = np.concatenate([[len(lengths) - len(used)], np.bincount(powers)])
    return np.asarray(counted, np.int64)


def _item_times(view: IndexView, items: int) -> npt.NDArray[np.int64]:
    # The first item's time counts from the file before.
    step = max(1, items // 500)
    times = [int(view.times(view.read(n, 1).time_diff)[0]) for n in range(2 if items > 1 else 1, items + 1, step)]
    return np.array(times, np.int64)
