"""The ConsumeQueues that a broker keeps in RocksDB: which there are, where each begins and ends, and its units."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.files.rocksdb import Database, is_broken
from rocketmq_reindex.storage_format.queue import rocksdb
from rocketmq_reindex.storage_format.queue.rocksdb import OFFSETS, ROCKSDB_UNIT, UNITS, QueueEnd, QueueName

BATCH: int = 1 << 16
"""units that are read at once"""
_FEW: Final = 1 << 12
"""units of a queue without the rest of the file behind them, which is another queue's"""

BUILD_AGAIN: Final = "; rmq-reindex info STORE says how to build it again"
"""what is advised where RocksDB cannot read a file"""


class QueueDatabase:
    """The queues of a database, which is open for reading. Close it."""

    def __init__(self, folder: str) -> None:
        """Open the database of ``folder``. Raises InputError where it cannot be read, or holds no queues."""
        self._database = Database(folder, BUILD_AGAIN)
        self.folder, self.shown = folder, self._database.shown
        try:
            self._database.check_families(UNITS, OFFSETS)
        except BaseException:
            self.close()
            raise

    def ends(self) -> Iterator[QueueEnd]:
        """Yield both ends of all queues as the database has them. A broker corrects the first one when it is asked."""
        for key, value in self._database.pairs(OFFSETS):
            end = rocksdb.queue_end(key, value)
            if end is not None:
                yield end

    def queues(self) -> Iterator[QueueName]:
        """Yield each queue that has an end, those of a topic one after the other. A broker serves no other queue.

        There may be millions of light ones: none is held.
        """
        for end in self.ends():
            if end.is_max and rocksdb.is_possible(end):
                yield end.queue

    def topics(self) -> Iterator[bytes]:
        """Yield each topic that has such a queue."""
        for topic, _ in itertools.groupby(self.queues(), key=lambda queue: queue.topic):
            yield topic

    def ids(self, topic: bytes) -> list[int]:
        """Return the numbers of the queues of a topic that have an end."""
        low, ids = rocksdb.ends_prefix(topic), list[int]()
        high = rocksdb.behind(low)
        # A topic has few: what lies behind them is not read ahead.
        while (pair := self._database.first(OFFSETS, low, high)) is not None:
            end = rocksdb.queue_end(*pair)
            if end is not None and rocksdb.is_possible(end):
                ids.append(end.queue.queue_id)
            low = pair[0] + b"\0"
        return ids

    def impossible(self) -> Iterator[QueueEnd]:
        """Yield the ends that no queue can have: such a queue counts as one that is not there."""
        yield from (end for end in self.ends() if end.is_max and not rocksdb.is_possible(end))

    def has_units_of(self, wanted: Callable[[bytes], bool], passed_over: bytes = b"") -> bool:
        """Return whether any unit is of a topic that is ``wanted``, whatever the ends of the queues say.

        Topics that begin with ``passed_over`` are not looked at, if that is not empty.
        """
        return any(wanted(queue.topic) for queue in self.queues_with_units(passed_over))

    def queues_with_units(self, passed_over: bytes = b"") -> Iterator[QueueName]:
        """Yield each queue that has a unit, whatever the ends of the queues say, as ``has_units_of`` looks at them."""
        low = b""
        while (pair := self._database.first(UNITS, low, b"\xff" * 8)) is not None:
            queue = rocksdb.queue_of_unit(pair[0])
            if queue is None:
                low = pair[0] + b"\0"
            elif passed_over and queue.topic.startswith(passed_over):
                # There may be millions of light queues: those whose names are equally long stand together.
                low = rocksdb.behind(rocksdb.topics_prefix(len(queue.topic), passed_over))
            else:
                yield queue
                low = rocksdb.behind(rocksdb.unit_prefix(queue))

    def queue(self, topic: bytes, queue_id: int) -> QueueName:
        """Return the name of a queue, whether it is there or not."""
        return QueueName(topic, queue_id)

    def last(self, queue: QueueName) -> QueueEnd | None:
        """Return where a queue ends: its last unit, which a broker serves. None for a queue that it does not have."""
        key = rocksdb.end_key(queue, is_max=True)
        value = self._database.get(OFFSETS, key)
        end = None if value is None else rocksdb.queue_end(key, value)
        return end if end is not None and rocksdb.is_possible(end) else None

    def stop(self, queue: QueueName) -> int:
        """Return the queue offset behind the last unit that a broker serves: the last one that is there, up to the end."""
        end = self.last(queue)
        return 0 if end is None else self.stop_of(end)

    def stop_of(self, end: QueueEnd) -> int:
        """Return what ``stop`` does, for a queue whose ``last`` is known."""
        prefix = rocksdb.unit_prefix(end.queue)
        pair = self._database.last(UNITS, prefix, rocksdb.unit_key(prefix, end.queue_offset + 1))
        return 0 if pair is None else int(rocksdb.queue_offsets([pair[0]])[0]) + 1

    def first(self, queue: QueueName, since: int = 0) -> int | None:
        """Return the queue offset of the first unit from ``since`` on that is there, also of a record that has expired."""
        prefix = rocksdb.unit_prefix(queue)
        pair = self._database.first(UNITS, rocksdb.unit_key(prefix, since), rocksdb.behind(prefix))
        return None if pair is None else int(rocksdb.queue_offsets([pair[0]])[0])

    def value(self, queue: QueueName, queue_offset: int) -> bytes | None:
        """Return a unit (28 bytes) as the database has it; None where there is none."""
        return self._database.get(UNITS, rocksdb.unit_key(rocksdb.unit_prefix(queue), queue_offset))

    def units(self, queue: QueueName, first: int, stop: int) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.void]]]:
        """Yield the queue offsets (int64) and units (ROCKSDB_UNIT) that stand at [first, stop) of a queue, in batches."""
        prefix = rocksdb.unit_prefix(queue)
        keys, values = list[bytes](), list[bytes]()
        low, high = rocksdb.unit_key(prefix, first), rocksdb.unit_key(prefix, stop)
        for key, value in self._database.pairs(UNITS, low, high, few=stop - first <= _FEW):
            if len(key) != len(prefix) + 8:
                continue  # no broker asks for it
            keys.append(key)
            values.append(value)
            if len(keys) == BATCH:
                yield rocksdb.queue_offsets(keys), rocksdb.units(values)
                keys, values = [], []
        if keys:
            yield rocksdb.queue_offsets(keys), rocksdb.units(values)

    def dispatched(self) -> int | None:
        """Return the byte of the log behind the last record that was dispatched; None where the database does not say."""
        value = self._database.get(OFFSETS, rocksdb.CHECKPOINT_KEY)
        return None if value is None or len(value) != 8 else int.from_bytes(value, "big", signed=True)

    def close(self) -> None:
        """Close the database."""
        self._database.close()


__all__ = ["BATCH", "BUILD_AGAIN", "ROCKSDB_UNIT", "QueueDatabase", "QueueEnd", "QueueName", "is_broken"]
