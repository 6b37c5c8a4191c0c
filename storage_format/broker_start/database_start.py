"""One start of a broker that keeps its queues in RocksDB alone (``RocksDBConsumeQueueStore``)."""

from collections.abc import Sequence

from rocketmq_reindex.storage_format.broker_start import (
    database_queues,
    database_state,
    outcome as start_outcome,
    recovery,
    store as start_store,
)
from rocketmq_reindex.storage_format.broker_start.one_start import OneStart
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.queue.rocksdb import QueueName
from rocketmq_reindex.storage_format.showing import escape


class DatabaseStart(OneStart):
    """One start of a broker that keeps its queues in RocksDB alone (``RocksDBConsumeQueueStore``).

    It puts units in a thread of its own (``RocksGroupCommitService``). Where what comes of a start depends on which thread is
    first, nothing is said.
    """

    @property
    def _database(self) -> database_queues.DatabaseQueues:
        assert self._store.database is not None
        return self._store.database

    def _states(self) -> dict[tuple[str, int], start_outcome.AnyQueueState]:
        database = self._database
        return {
            name: database_state.DatabaseQueueState(queue, database.reader, self._spool)
            for name, queue in database.queues.items()
        }

    def _state_of(
        self, folder: start_store.QueueFolder, _files: Sequence[start_store.StoreFile]
    ) -> start_outcome.AnyQueueState:
        given = database_queues.DatabaseQueue(QueueName(folder.topic.encode("utf-8"), folder.queue))
        return database_state.DatabaseQueueState(given, self._database.reader, self._spool)

    def _max_physic(self) -> int:
        """Return the check point (``getMaxPhyOffset``), as it was before the start."""
        return self._database.dispatched

    def _segment_choice(self) -> recovery.SegmentChoice:
        return recovery.DatabaseSegmentChoice(self._store.segments, self._settings, self._rules, self._times, self._reader)

    def _cut(self, before: int, end: int) -> None:
        """``RocksDBConsumeQueueOffsetTable.truncateDirty``."""
        if before <= end:
            return
        lowest = self._store.segments[0].start
        dispatched = any(queue.units_added for queue in self._queues.values())
        for (topic, number), queue in self._queues.items():
            assert isinstance(queue, database_state.DatabaseQueueState)
            if not dispatched:
                queue.cut(end, lowest)
            elif not queue.units_added and queue.max_physic >= end:
                raise InputError(
                    f"{escape(topic)}/{number}: its last unit leads to {queue.max_physic}, behind the log's end at {end}, and "
                    "records of other queues are dispatched again: whether the start cuts it depends on which of the broker's "
                    "threads is first, and preflight does not know that"
                )

    def _append_kept(self) -> None:
        super()._append_kept()
        for (topic, number), queue in self._queues.items():
            assert isinstance(queue, database_state.DatabaseQueueState)
            offset = queue.undecided()
            if offset is not None:
                raise InputError(
                    f"{escape(topic)}/{number}: the start dispatches more than one record with queue offset {offset}: which of "
                    "them has a unit then depends on the broker's threads, and preflight does not know that"
                )

    def _recover_table(self, log: recovery.KeptLog) -> None:
        """Nothing where the broker dispatches once more: a queue's beginning is worked out when somebody asks for it."""
        if not self._settings.recheck_reput:
            super()._recover_table(log)

    def _reput_from(self, log: recovery.KeptLog) -> int:
        """Return the log's first byte: the table of queues that a broker looks through for more is empty as it starts."""
        return max(0, log.min_offset)

    def _takes(self, topic: str) -> bool:
        if len(topic.encode("utf-8")) > database_queues.TOPIC_MAX:
            raise InputError(
                f"{escape(topic, 60)}: a record has this topic, of which a broker can make no key in RocksDB: it tries for "
                "ever, and preflight does not know which units it puts before that"
            )
        return True
