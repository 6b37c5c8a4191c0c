"""What the start of a broker does to a store: ``DefaultMessageStore.load`` and ``start``, until all is dispatched; with queues
in RocksDB alone (``RocksDBConsumeQueueStore``), or beside files.
"""

import dataclasses
from collections.abc import Sequence

from rocketmq_reindex.storage_format.broker_start import (
    database_state,
    kept as start_kept,
    loading,
    outcome as start_outcome,
    queue_state,
    recovery,
    store as start_store,
)
from rocketmq_reindex.storage_format.broker_start.dledger_start import DLedgerStart
from rocketmq_reindex.storage_format.broker_start.one_start import OneStart
from rocketmq_reindex.storage_format.errors import InputError, NoListener, ProgressListener
from rocketmq_reindex.storage_format.layouts import INT64_MAX
from rocketmq_reindex.storage_format.queue import rocksdb
from rocketmq_reindex.storage_format.queue.rocksdb import QueueName, QueuePlace
from rocketmq_reindex.storage_format.showing import escape
from rocketmq_reindex.storage_format.versions import START_RULES


class DatabaseStart(OneStart):
    """One start of a broker that keeps its queues in RocksDB alone (``RocksDBConsumeQueueStore``).

    It puts units in a thread of its own (``RocksGroupCommitService``). Where what comes of a start depends on which thread is
    first, nothing is said.
    """

    @property
    def _database(self) -> rocksdb.DatabaseQueues:
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
        given = rocksdb.DatabaseQueue(QueueName(folder.topic.encode("utf-8"), folder.queue))
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
        if len(topic.encode("utf-8")) > rocksdb.TOPIC_MAX:
            raise InputError(
                f"{escape(topic, 60)}: a record has this topic, of which a broker can make no key in RocksDB: it tries for "
                "ever, and preflight does not know which units it puts before that"
            )
        return True


# ------------------------------------------------------------------------------------------------------------------ both kinds


class CombinedStart(OneStart):
    """One start of a broker with ``rocksdbCQDoubleWriteEnable``: queues in files and in RocksDB (``CombineConsumeQueueStore``).

    The files give messages their offsets. Consumers are given what the files have, or the database
    (``combineCQPreferCQType``). This follows the files, and of the database what a start makes of it that dispatches no record.
    """

    @property
    def _combined(self) -> rocksdb.CombinedQueues:
        assert self._store.combined is not None
        return self._store.combined

    def _dispatched_to(self) -> int:
        return min(self._max_physic(), self._combined.database.dispatched)

    def _segment_choice(self) -> recovery.SegmentChoice:
        choice = recovery.CombinedSegmentChoice(self._store.segments, self._settings, self._rules, self._times, self._reader)
        return choice.of(self._max_physic(), self._combined)

    def _reput_from(self, log: recovery.KeptLog) -> int:
        """Return the log's first byte where the database is read: its table of queues is empty as the broker starts."""
        return max(0, log.min_offset) if self._combined.is_read else super()._reput_from(log)

    def _read(self, log: recovery.KeptLog) -> start_outcome.Queues:
        is_read = self._combined.is_read
        if is_read and not self._store.segments:
            raise InputError(
                "the commitlog has no segment: preflight does not know what a broker then does with queues in RocksDB"
            )
        if any(records for _, records in self._dispatched):
            if is_read:
                raise InputError(
                    "with combineCQPreferCQType=defaultRocksDB the broker compares the ends of its queues while it still "
                    "dispatches records: whether it starts, and what it hides, depends on which of its threads is first, and "
                    "preflight does not know that; a start with combineCQPreferCQType=default dispatches them"
                )
            self._reader.notes.append(
                "the start dispatches records to the queues in RocksDB, too: what these hide then depends on its threads"
            )
            return self._queues
        if not self._store.segments:
            return self._queues
        queues = dict[tuple[str, int], start_outcome.AnyQueueState]()
        cuts = self._combined.database.dispatched > log.max_offset
        for name in dict.fromkeys((*self._queues, *self._combined.database.queues)):
            given = self._combined.database.queues.get(name)
            given = given or rocksdb.DatabaseQueue(QueueName(name[0].encode("utf-8"), name[1]))
            queue = database_state.DatabaseQueueState(given, self._combined.database.reader, self._spool)
            if cuts:
                queue.cut(log.max_offset, log.min_offset)
            if name in self._queues:
                self._verify(name, self._queues[name].max_offset, queue)
            if is_read:
                queue.correct_min(log.min_offset)
                queues[name] = queue
        return queues if is_read else self._queues

    def _verify(self, name: tuple[str, int], assigned: int, queue: database_state.DatabaseQueueState) -> None:
        """``verifyAndInitOffsetForAllStore`` of one queue, which ends at ``assigned`` in files. Raises LoadFailure."""
        end = queue.max_offset
        if assigned == end or (assigned <= 0 and end <= 0):
            return
        shown = f"{escape(name[0])}/{name[1]} ends at queue offset {assigned} in its files, and at {max(0, end)} in RocksDB"
        if end > 0 and self._combined.is_read:
            raise queue_state.LoadFailure("combine-offsets", shown)
        self.set_back.append(shown)
        queue.last, queue.first = QueuePlace(0, assigned - 1), QueuePlace(0, assigned)


def predict(
    store: start_store.Store,
    settings: start_store.StartSettings,
    count_limit: int = INT64_MAX,
    spool: start_kept.Spool | None = None,
    progress: ProgressListener | None = None,
) -> loading.Prediction:
    """Return what a start of ``settings.release`` does to ``store``, up to where no record waits for dispatch.

    The caller has made sure that the files load: their sizes and names, a lock, folders that disagree. What only the recovery
    itself finds, and what then keeps the broker from starting, is in ``refusals``, with ``loads`` false.

    ``count_limit`` is how many bytes of the commitlog may be walked only to count what the broker itself does not read;
    where more would have to be, counts are -1. ``spool`` has room for some 120 bytes a record, by default in
    memory; ``progress`` is told how far the work is.

    Raises ValueError for a release that is not one of RELEASES, and InputError where what comes of a start on queues in
    RocksDB, or on a log of DLedger, is not known: it may depend on which of the broker's threads is first. Mirrors
    ``DefaultMessageStore.load`` (4.9.8 to 5.5.1).
    """
    if settings.release not in START_RULES:
        raise ValueError(f"no release {settings.release!a}: it is one of {', '.join(START_RULES)}")
    progress = progress or NoListener()
    kind = _kind_of(store)
    run = kind(store, settings, spool or start_kept.MemorySpool(), progress)
    try:
        started = run.start()
    except queue_state.LoadFailure as e:
        return loading.Prediction(settings.release, False, (loading.Refusal(e.kind, e.path, e.detail),))
    outcome = start_outcome.outcome(store, settings, started, count_limit, progress)
    return dataclasses.replace(
        outcome, ext_short=tuple(run.ext_short), ext_unreadable=tuple(run.ext_unreadable), set_back=tuple(run.set_back),
        last_entry=run.last_entry, cut_as_master=run.cut_as_master,
    )  # fmt: skip


def _kind_of(store: start_store.Store) -> type[OneStart]:
    if store.entries is None:
        return DatabaseStart if store.database else CombinedStart if store.combined else OneStart
    if store.database or store.combined:
        raise InputError("preflight does not know the start of a broker with a log of DLedger and queues in RocksDB")
    return DLedgerStart
