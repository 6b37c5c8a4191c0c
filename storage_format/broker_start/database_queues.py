"""The queues that a broker keeps in RocksDB, as a start finds them: where each begins and ends, and a way to its units."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.queue.rocksdb import QueueName

Int64s = npt.NDArray[np.int64]
TOPIC_MAX: Final = 281
"""bytes of the longest topic of which a broker can make a key (``RocksDBConsumeQueueStore.MAX_KEY_LEN``)"""


class QueuePlace(NamedTuple):
    """A physical offset and a queue offset that belong together."""

    phy_offset: int
    queue_offset: int


class UnitReader(Protocol):
    """The units of a database, as it was when it was opened."""

    def phy_offset(self, queue: QueueName, queue_offset: int, /) -> int | None:
        """Return where a unit leads; None where there is none. Raises InputError where it cannot be read."""

    def phy_offsets(self, queue: QueueName, first: int, stop: int, /) -> Iterator[tuple[Int64s, Int64s]]:
        """Yield the queue offsets in [first, stop) that have a unit, and where each leads, both int64 and in batches."""


@dataclass(frozen=True, slots=True)
class DatabaseQueue:
    """What the family ``offset`` says of one queue."""

    name: QueueName
    last: QueuePlace | None = None
    """its last unit; None where the database does not say"""
    first: QueuePlace | None = None
    """its first unit, as it was when somebody last asked for it"""


@dataclass(frozen=True)
class DatabaseQueues:
    """All queues of a database, by topic and queue id."""

    reader: UnitReader
    queues: Mapping[tuple[str, int], DatabaseQueue] = field(default_factory=dict)
    dispatched: int = 0
    """the check point: the byte behind the last record that was dispatched; 0 where the database has none"""


@dataclass(frozen=True)
class CombinedQueues:
    """Queues in RocksDB beside those in files, which give messages their offsets (``CombineConsumeQueueStore``)."""

    database: DatabaseQueues
    is_read: bool = False
    """consumers are given what the database has (``combineCQPreferCQType``), and not the files"""
    extra_segments: int = 3
    """``combineCQMaxExtraSearchCommitLogFiles``"""


class NoUnits:
    """The reader of an empty database."""

    def phy_offset(self, _queue: QueueName, _queue_offset: int) -> int | None:
        return None

    def phy_offsets(self, _queue: QueueName, _first: int, _stop: int) -> Iterator[tuple[Int64s, Int64s]]:
        yield from ()
