"""One start of a broker, followed in its order (``DefaultMessageStore.load`` and ``start``), until all is dispatched."""

import itertools
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.broker_start import (
    database_state,
    index_state,
    kept as start_kept,
    other_queue_states,
    outcome as start_outcome,
    own_units,
    queue_state,
    record_loop,
    recovery,
    store as start_store,
)
from rocketmq_reindex.storage_format.checkpoints import read_checkpoint
from rocketmq_reindex.storage_format.errors import ProgressListener
from rocketmq_reindex.storage_format.record.layout import CRC_BODY, CRC_NONE
from rocketmq_reindex.storage_format.showing import escape
from rocketmq_reindex.storage_format.versions import START_RULES

_HELD: Final = 1 << 20
"""units of this start in memory, of all queues: 12 bytes each"""


class OneStart:
    """One start: the queues, the IndexFiles and the log while it goes on."""

    def __init__(
        self, store: start_store.Store, settings: start_store.StartSettings, spool: start_kept.Spool, progress: ProgressListener
    ) -> None:
        self._store, self._settings, self._rules = store, settings, START_RULES[settings.release]
        self._spool, self._progress = spool, progress
        self._times, _ = read_checkpoint(store.checkpoint or b"")
        self._reader = start_store.LogReader(self._rules.line.version, tuple(sorted(store.batch_topics)), progress)
        self._numbers = own_units.QueueNumbers()
        self._queues = self._states()
        self._by_number: list[start_outcome.AnyQueueState] = []
        self._is_met = np.zeros(0, np.bool_)
        """whether each of these has been dispatched to"""
        self._by_queue = start_kept.RowsByQueue(spool)
        """rows of a log with many queues, which get their units when all are there"""
        self._without_files = set[int]()
        self._appended = 0
        """rows since the units in memory were counted"""
        self._index = index_state.IndexState(store.indexes, settings, self._times.index, spool)
        self._dispatched: list[tuple[int, int]] = []
        self._stopped_at = -1
        self._confirmed = self._times.confirm_offset
        """of a controller group: up to where its records are confirmed (``CommitLog.confirmOffset``)"""
        self.ext_short: list[str] = []
        self.ext_unreadable: list[str] = []
        self.set_back: list[str] = []
        """of queues in files and in RocksDB, those whose ends differ"""
        self.cut_as_master = -1
        """where a master cuts its log"""
        self.last_entry: int | None = None
        """index of the last entry of DLedger that is kept"""

    def _states(self) -> dict[tuple[str, int], start_outcome.AnyQueueState]:
        """Return the queues that the store has."""
        return {
            (folder.topic, folder.queue): self._state_of(
                folder, start_store.FilesOf(self._store.queues, number, len(folder.files))
            )
            for number, folder in enumerate(self._store.queues)
        }

    def _state_of(
        self, folder: start_store.QueueFolder, _files: Sequence[start_store.StoreFile]
    ) -> start_outcome.AnyQueueState:
        if folder.batch:
            return other_queue_states.BatchQueueState(folder.files, self._settings.batch_cq_file_size, self._spool)
        return queue_state.QueueState(_files, self._settings.cq_file_size, self._spool, self._numbers)

    def start(self) -> start_outcome.Started:
        """Do what ``load`` and ``start`` of the broker do. Return the store behind them.

        Raises LoadFailure where one of them fails, or never ends.
        """
        self._recover_queues()
        before = self._dispatched_to()
        rows = start_kept.KeptRows(self._spool)
        start, end, log = self._recover_log(before, rows)
        self._recover_table(log)
        self._dispatch_rest(log)
        return start_outcome.Started(
            start=start,
            unread=self._unread(start, log),
            end=end,
            rows=rows,
            log=log,
            queues=self._read(log),
            index=self._index,
            reader=self._reader,
            dispatched=self._dispatched,
            stopped_at=self._stopped_at,
            covered=before,
        )

    def _recover_log(self, before: int, rows: start_kept.KeptRows) -> tuple[recovery.Start, recovery.End, recovery.KeptLog]:
        """Return where the recovery of the log begins and ends, and the log that it leaves; ``before`` is up to where all
        records are dispatched. The whole records that it reads go into ``rows``. Raises LoadFailure."""
        settings, rules = self._settings, self._rules
        log = recovery.KeptLog((), (), settings.segment_size)
        start, end = recovery.Start(0, 0, False), recovery.End(0, 0, 0)
        if self._store.segments:
            start = self._segment_choice().start(before)

            confirmed_end = self._store.segments[start.index].start + start.at

            def recovered(chunk: record_loop.LogRows) -> None:
                nonlocal confirmed_end
                if settings.abnormal and settings.in_group:
                    # Until it has a role, a broker takes the checkpoint's word for what is confirmed.
                    confirmed = start_store.chosen(chunk, chunk.phy_offset + chunk.size <= self._confirmed)
                    if len(confirmed.at):
                        confirmed_end = int(confirmed.phy_offset[-1]) + int(confirmed.size[-1])
                    self._dispatch(confirmed)
                elif settings.abnormal:
                    self._dispatch(chunk)
                elif rules.dispatches_while_recovering:
                    # CommitLog.recoverNormally compares what the record says, and leaves out the one that begins there.
                    self._dispatch(start_store.chosen(chunk, chunk.phy_offset > before))
                rows.add(self._reader.whole_rows(chunk))

            self._progress.begin("recover", sum(segment.size for segment in self._store.segments[start.index :]) - start.at)
            with self._reader.handing_to(recovered):
                end = recovery.read_log(self._store.segments, start, settings, rules, self._reader)
            self._append_kept()
            self._cut(before, end.offset)
            log = self._kept(end.offset)
            self._confirmed = max(log.min_offset, min(self._confirmed, confirmed_end if settings.abnormal else end.offset))
        else:
            for queue in self._queues.values():
                queue.destroy()
        return start, end, log

    def _unread(self, start: recovery.Start, _log: recovery.KeptLog) -> list[tuple[start_store.StoreFile, int, int]]:
        """Return the stretches of the kept log that the recovery did not read."""
        segments = self._store.segments
        below = [(segment, 0, segment.size) for segment in segments[: start.index]]
        return [*below, (segments[start.index], 0, start.at)] if start.at else below

    def _dispatch_rest(self, log: recovery.KeptLog) -> None:
        """Dispatch what the recovery did not, where the broker does. Raises LoadFailure.

        A broker of a controller group goes on from the confirmed offset, wherever the recovery began, and once it is master
        to the log's end (``DefaultMessageStore.start``).
        """
        rechecks = not self._rules.dispatches_while_recovering or self._settings.recheck_reput
        if rechecks or self._settings.in_group:
            self._reput(log, self._reput_from(log) if rechecks else self._confirmed)
            self._correct_min(log)
        if self._settings.in_group:
            # AutoSwitchHAService.truncateInvalidMsg walks from where the dispatch is to the first bytes that are no record.
            self.cut_as_master = self._reader.refused_at

    def _reput(self, log: recovery.KeptLog, first: int) -> int:
        """Dispatch the log from ``first`` on. Return up to where that comes. Raises LoadFailure."""
        self._progress.begin("dispatch", max(0, log.max_offset - first))
        reading = recovery.reading_of(self._settings, self._rules)._replace(crc=CRC_NONE)
        with self._reader.handing_to(self._dispatch):
            end = recovery.reput(log, first, reading, self._reader)
        self._append_kept()
        return end

    def _recover_queues(self) -> None:
        """Recover the files of all queues. Raises LoadFailure where that fails."""
        for queue in self._queues.values():
            if not isinstance(queue, database_state.DatabaseQueueState):
                queue.recover()
        self._recover_ext()

    def _dispatched_to(self) -> int:
        """Return up to where all records are dispatched before the start (``getDispatchFromPhyOffset``)."""
        return self._max_physic()

    def _read(self, _log: recovery.KeptLog) -> start_outcome.Queues:
        """Return the queues that consumers are given. Raises LoadFailure where the broker ends."""
        return self._queues

    def _segment_choice(self) -> recovery.SegmentChoice:
        return recovery.SegmentChoice(self._store.segments, self._settings, self._rules, self._times, self._reader)

    def _cut(self, before: int, end: int) -> None:
        """Cut what leads to the log's ``end`` or behind it; ``before`` is up to where the queues reached before the start."""
        if (self._max_physic() if self._rules.cuts_by_new_units else before) >= end:
            self._cut_units(end)

    def _cut_units(self, end: int) -> None:
        """Cut the units that lead to ``end`` or behind it (``truncateDirtyLogicFiles``)."""
        for queue in self._queues.values():
            if not isinstance(queue, database_state.DatabaseQueueState):
                queue.cut(end)

    def _recover_table(self, log: recovery.KeptLog) -> None:
        """``recoverTopicQueueTable``. Raises LoadFailure."""
        self._correct_min(log)
        if self._settings.in_group:
            crc = record_loop.CRC_PROPERTY if self._settings.force_verify_prop_crc else CRC_BODY
            reading = recovery.reading_of(self._settings, self._rules)._replace(crc=crc)
            recovery.follow_unconfirmed(log, self._confirmed, reading, self._reader)

    def _reput_from(self, log: recovery.KeptLog) -> int:
        """Return from where on the log is dispatched (``doRecheckReputOffsetFromCq``)."""
        return max(0, log.min_offset, self._max_physic())

    def _recover_ext(self) -> None:
        """Recover ``consumequeue_ext``. Raises LoadFailure where Java throws."""
        if not self._store.has_ext:
            return
        for folder in self._store.queues:
            if folder.batch or not folder.files:
                continue
            name = f"{folder.topic}/{folder.queue}"
            try:
                sizes = self._settings.cq_file_size, self._settings.cq_ext_file_size
                ext = other_queue_states.ExtState.recovered(folder, *sizes)
            except other_queue_states.ExtDamage as damage:
                path, detail = f"consumequeue_ext/{name}/{damage.file.name}", f"the unit at byte {damage.at} reaches behind it"
                raise queue_state.LoadFailure("ext-unit", detail, path) from None
            if ext.is_short:
                self.ext_short.append(name)
            if ext.is_unreadable:
                self.ext_unreadable.append(name)

    def _max_physic(self) -> int:
        """Return ``getMaxPhyOffsetInConsumeQueue``."""
        return max((queue.max_physic for queue in self._queues.values()), default=-1)

    def _kept(self, offset: int) -> recovery.KeptLog:
        """Return the log as ``MappedFileQueue.truncateDirtyFiles`` leaves it."""
        size = self._settings.segment_size
        kept = [segment for segment in self._store.segments if segment.start <= offset]
        ends = [size if segment.start + size <= offset else offset % size for segment in kept]
        return recovery.KeptLog(kept, ends, size)

    def _correct_min(self, log: recovery.KeptLog) -> None:
        for (topic, number), queue in self._queues.items():
            if isinstance(queue, queue_state.QueueState):
                queue.correct_min(log.min_offset, self._rules, f"consumequeue/{escape(topic)}/{number}")
            else:
                queue.correct_min(log.min_offset)

    def _dispatch(self, rows: record_loop.LogRows) -> None:
        if not len(rows.at):
            return
        stops = np.flatnonzero(rows.flags & record_loop.STOPS)
        if len(stops):
            detail = f"the record at offset {rows.at[stops[0]]} gives a light queue an offset that is no number"
            raise queue_state.LoadFailure("light-queue-offset", detail)
        records = (rows.flags & record_loop.LIGHT) == 0
        self._dispatched.append((int(rows.phy_offset.min()), int(np.count_nonzero(records))))
        self._index.build(rows)
        self._name_queues(rows.queue[(rows.flags & record_loop.HAS_UNIT) > 0])
        end = self._units_end(rows)
        if end < len(rows.at):
            rows = start_store.chosen(rows, np.arange(end))
        elsewhere = (rows.at != rows.phy_offset).astype(np.uint8) * record_loop.ELSEWHERE
        to_queues = start_kept.QueueRows.of(rows._replace(flags=rows.flags | elsewhere), rows.phy_offset)
        if not self._by_queue.takes(to_queues):
            self._append(to_queues)

    def _append_kept(self) -> None:
        """Give the rows that were kept their units."""
        self._by_queue.hand_over(self._append, "dispatch to queues", self._progress)

    def _append(self, rows: start_kept.QueueRows) -> None:
        for number, own in start_kept.by_queue(rows):
            queue = self._by_number[number]
            if number in self._without_files:
                continue
            if isinstance(queue, queue_state.QueueState):
                elsewhere = (rows.flags[own] & record_loop.ELSEWHERE) > 0
                queue.append(rows.at[own], rows.size[own], rows.offset[own], elsewhere)
            elif isinstance(queue, database_state.DatabaseQueueState):
                queue.append(rows.at[own], rows.offset[own])
            else:
                queue.append(rows.at[own], rows.size[own], rows.offset[own], rows.messages[own])
        self._appended += len(rows.queue)
        # To count them asks each queue.
        if self._appended >= _HELD // 8:
            self._appended = 0
            self._spill()

    def _spill(self) -> None:
        """Where too many units are in memory, put those of the queues with most of them into the spool."""
        rooms = np.fromiter((queue.room for queue in self._queues.values()), np.int64, len(self._queues))
        if rooms.sum() > _HELD:
            is_large = rooms * np.count_nonzero(rooms) >= _HELD // 2
            for queue in itertools.compress(self._queues.values(), is_large.tolist()):
                queue.spill()

    def _units_end(self, rows: record_loop.LogRows) -> int:
        """Return the number of the row from which on no queue gets a unit.

        Where a queue's file cannot be made, a broker tries 30 times, a second each, and then puts no unit any more
        (``ConsumeQueue.putMessagePositionInfoWrapper``, ``RunningFlags.makeLogicsQueueError``). A light queue's it passes over.
        """
        if self._stopped_at >= 0:
            return 0
        if self._without_files:
            fails = np.isin(rows.queue, list(self._without_files)) & (
                (rows.flags & (record_loop.HAS_UNIT | record_loop.LIGHT)) == record_loop.HAS_UNIT
            )
            if fails.any():
                end = int(np.argmax(fails))
                self._stopped_at = int(rows.at[end])
                return end
        return len(rows.at)

    def _takes(self, topic: str) -> bool:
        """Return whether a broker can make the files of a topic: Java opens no path with a zero in it."""
        return "\0" not in topic

    def _name_queues(self, numbers: npt.NDArray[np.int32]) -> None:
        """Have a state for each queue up to the highest number, and count those numbered among the store's."""
        for new in range(len(self._by_number), int(numbers.max(initial=-1)) + 1):
            topic, queue = self._reader.queue_name(new)
            batch = self._rules.line.batch_queues and topic in self._store.batch_topics
            made = self._queues.get((topic, queue))
            self._by_number.append(
                made if made is not None else self._state_of(start_store.QueueFolder(topic, queue, (), batch), ())
            )
            if not self._takes(topic):
                self._without_files.add(new)
        room = np.zeros(len(self._by_number) - len(self._is_met), np.bool_)
        self._is_met = np.concatenate((self._is_met, room))
        for number in np.unique(numbers[~self._is_met[numbers]]).tolist():
            self._queues.setdefault(self._reader.queue_name(number), self._by_number[number])
        self._is_met[numbers] = True
