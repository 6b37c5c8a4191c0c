"""Delayed and timer messages: what the store's files say of them, for the rules in ``storage_format.start``."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rocketmq_reindex.jobs.preflighting.folders import StoreFolders
from rocketmq_reindex.jobs.preflighting.model import StoreFiles
from rocketmq_reindex.jobs.preflighting.settings import PreflightSettings
from rocketmq_reindex.storage_format.delay.waiting import TimerCounts, TimerStart, count
from rocketmq_reindex.storage_format.delay.wheel import Wheel, slot_step
from rocketmq_reindex.storage_format.names import SCHEDULE_TOPIC, TIMER_TOPIC
from rocketmq_reindex.storage_format.record.message import Message, read_message
from rocketmq_reindex.storage_format.start.delayed import (
    DelayedOutcome,
    delayed,
    due_in_files,
    due_in_log,
    kept_offsets,
    newest_time,
)
from rocketmq_reindex.storage_format.start.listing import Listing
from rocketmq_reindex.storage_format.start.loading import Loading
from rocketmq_reindex.storage_format.start.prediction import DispatchOutcome, Prediction, QueueOutcome
from rocketmq_reindex.storage_format.start.store import Store, StoreFile
from rocketmq_reindex.storage_format.start.timers import TimerOutcome, log_end, timers
from rocketmq_reindex.storage_format.timer.check import TimerCheckpoint


@dataclass(frozen=True)
class Delivery:
    """The parts of a store that matter to messages which wait for their time."""

    folders: StoreFolders
    files: StoreFiles
    listing: Listing
    loading: Loading
    store: Store
    settings: PreflightSettings
    delays: tuple[int, ...]

    def delayed(self, found: Prediction) -> tuple[DelayedOutcome, ...]:
        """Each delay level that has messages, or an offset of its own."""
        queues = {queue.queue: queue for queue in found.queues if queue.topic == SCHEDULE_TOPIC}
        kept = kept_offsets(self.folders.config("delayOffset.json"))
        if not queues and not kept:
            return ()
        return delayed(found, self.delays, kept, self._due(found, queues, kept))

    def _due(self, found: Prediction, queues: dict[int, QueueOutcome], kept: dict[int, int]) -> dict[int, int]:
        """By queue, the messages from the kept offset on whose time has come when the newest record was stored."""
        assert found.log is not None
        assert found.dispatch is not None
        now = newest_time(self.store.segments, found.log.max_offset)
        added = dict.fromkeys(queues, 0)
        low, high = found.dispatch.from_offset, found.log.max_offset
        if any(queue.units_added for queue in queues.values()):
            counted = low >= 0 and high - low <= self.settings.count_limit
            due = due_in_log(self.store.segments, low, high, self.delays, now) if counted else [-1] * len(self.delays)
            added = {queue: due[queue] if queue < len(due) else 0 for queue in queues}
        there = {
            folder.queue: folder.files for folder in self.store.queues if folder.topic == SCHEDULE_TOPIC and not folder.batch
        }
        total = dict[int, int]()
        for number, queue in queues.items():
            recovered = queue.max_offset - queue.units_added
            begin = max(kept.get(number + 1, 0), queue.min_offset, 0)
            if not queue.units_added:
                total[number] = due_in_files(there.get(number, ()), begin, recovered, now)
            elif added[number] < 0 or begin > recovered:
                # Some of the messages that are dispatched again lie below the kept offset: which of them is not known.
                total[number] = -1
            else:
                total[number] = due_in_files(there.get(number, ()), begin, recovered, now) + added[number]
        return total

    @property
    def timer_files(self) -> list[str]:
        """The paths in the store of its timer files."""
        listed = (self.listing.timer_check, self.listing.timer_wheel)
        return [one.path for one in listed if one is not None] + (["timerlog"] if self.listing.timer_log else [])

    def timers(self, found: Prediction) -> TimerOutcome | None:
        """What becomes of timer messages; None for a broker or a store without them."""
        if self.settings.release.startswith("4.") or not self.settings.broker.timer_wheel:
            return None
        head = self.files.head(self.listing.timer_check)
        check = None if head is None else TimerCheckpoint.from_bytes(head)
        log_files = self.files.mapped(self.loading.timer_log)
        queue = next((queue for queue in found.queues if queue.topic == TIMER_TOPIC and queue.queue == 0), None)
        _, place = log_end(log_files, check.log_flushed if check else 0)
        wheel = self.listing.timer_wheel is not None and self.listing.timer_wheel.size > 0
        end = found.log.max_offset if found.log else 0
        told = timers(wheel, log_files, check, queue, _queue_offset(self.store.segments, place, end))
        rocksdb = self.settings.broker.timer_rocksdb
        if told is None or queue is None or found.log is None or found.dispatch is None or rocksdb:
            return told
        read = check or TimerCheckpoint()
        if not wheel and not log_files and not read.log_flushed:
            # Of a build, whose clock was ahead of what was overdue: a broker has a wheel from its first start on.
            read = replace(read, read_time=0)
        counts = self._count_timers(told, read, log_files, queue, found.log.max_offset, found.dispatch)
        return replace(told, lost=counts.lost, again=counts.again)

    def _count_timers(
        self, told: TimerOutcome, check: TimerCheckpoint, log_files: list[StoreFile], queue: QueueOutcome, end: int,
        dispatch: DispatchOutcome,
    ) -> TimerCounts:  # fmt: skip
        """Timer messages that are lost, or come again."""
        recovered = queue.max_offset - queue.units_added
        start = TimerStart(
            goes_on=told.goes_on, known=told.kept, low=max(queue.min_offset, 0), high=recovered, read_time=check.read_time,
            newest=newest_time(self.store.segments, end), log_end=end,
            dispatch_from=dispatch.from_offset if queue.units_added else -1,
        )  # fmt: skip
        held = self.listing.timer_wheel
        slots = self.files.mapped([held])[0].data if held is not None and held.size else None
        log_stop, _ = log_end(log_files, check.log_flushed)
        step = self.settings.broker.timer_precision or slot_step(slots, start.newest)
        wheel = Wheel(slots, log_files, check, log_stop, step)
        units = [
            file
            for folder in self.store.queues
            if folder.topic == TIMER_TOPIC and folder.queue == 0 and not folder.batch
            for file in folder.files
        ]
        segments = [segment for segment in self.store.segments if segment.start < end]
        return count(start, wheel, units, segments, self.settings.count_limit)


def _queue_offset(segments: object, place: int, end: int) -> int:
    """The queue offset of the record at ``place`` of the log, -1 where none lies there in front of ``end``."""
    assert isinstance(segments, list)
    holding: list[StoreFile] = [one for one in segments if one.start <= place < min(one.start + one.size, end)]
    if place < 0 or not holding:
        return -1
    data, low = holding[0].data, place - holding[0].start
    found = read_message(lambda at, count: data[low + at : low + at + count].tobytes(), place, len(data) - low)
    return found.queue_offset if isinstance(found, Message) else -1
