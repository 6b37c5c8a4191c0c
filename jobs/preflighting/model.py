"""The input of the model of a start: the files that it loads, their sizes and version, and the state of delivery."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from rocketmq_reindex import files
from rocketmq_reindex.files import MAPPED_MAX
from rocketmq_reindex.jobs.preflighting.database import StoreDatabase
from rocketmq_reindex.jobs.preflighting.folders import MappedFile, MappedIndex, Maps, StoreFolders
from rocketmq_reindex.jobs.preflighting.options import BrokerSettings, PreflightSettings
from rocketmq_reindex.jobs.store.contents import IndexSizes, StoreLog
from rocketmq_reindex.jobs.store.fitting import fit, of_store
from rocketmq_reindex.jobs.store.folders import Notes
from rocketmq_reindex.storage_format import errors, layouts, topics
from rocketmq_reindex.storage_format.broker_start import store as start_store
from rocketmq_reindex.storage_format.broker_start.delayed import (
    DelayedOutcome,
    DueUnits,
    LogEnd,
    StoreTimes,
    TimerOutcome,
    delayed,
    due_in_files,
    due_in_log,
    kept_offsets,
    log_end,
    newest_time,
    timers,
)
from rocketmq_reindex.storage_format.broker_start.listing import FILE, Listed, Listing, OnDemand
from rocketmq_reindex.storage_format.broker_start.loading import (
    ConfiguredSizes,
    LoadedQueue,
    Loading,
    Prediction,
    QueueOutcome,
)
from rocketmq_reindex.storage_format.broker_start.other_queue_states import ExtState
from rocketmq_reindex.storage_format.delay.evidence import STUCK
from rocketmq_reindex.storage_format.delay.timer_layout import TimerCheckpoint
from rocketmq_reindex.storage_format.delay.waiting import TimerCounts, TimerStart, count
from rocketmq_reindex.storage_format.delay.wheel import Longs, Wheel, fates_in, sizes_to_read, slot_step
from rocketmq_reindex.storage_format.index.file import guess_sizes
from rocketmq_reindex.storage_format.index.layout import file_size
from rocketmq_reindex.storage_format.queue.units import BATCH_UNIT_SIZE, UNIT_SIZE
from rocketmq_reindex.storage_format.record.layout import ENTRY_HEAD
from rocketmq_reindex.storage_format.record.message import Message, read_message
from rocketmq_reindex.storage_format.showing import counted

# ------------------------------------------------------------------------------------------------------------------------ sizes
# The sizes of a store's files: as they were given, or else as the files themselves show.

_INDEX_ASKED: Final = 4


@dataclass(frozen=True)
class StoreSizes:
    """All sizes, and notes about those that were taken from the files."""

    files: ConfiguredSizes
    hash_slots: int
    index_items: int
    notes: tuple[str, ...]
    unsized: tuple[str, ...] = ()
    """parts whose sizes are the default ones, since neither a setting nor a file shows others"""

    @property
    def index_file(self) -> int:
        """The bytes of an IndexFile."""
        return file_size(self.hash_slots, self.index_items)


def sizes_of(listing: Listing, broker: BrokerSettings, store: str, maps: Maps) -> StoreSizes:
    """Return the sizes that the broker is taken to have."""
    notes = list[str]()

    def size(folder: str, configured: int | None, entries: Iterable[Listed], unit: int, default: int) -> int:
        if configured is not None:
            return configured
        usual = usual_size(entries, unit)
        if usual not in (0, default):
            notes.append(f"{folder}: files of {usual:,} bytes, taken from the files")
        return usual or default

    def of_queues(batch: bool) -> Iterable[Listed]:
        return (file for queue in listing.queues if queue.batch == batch for file in queue.files or ())

    files = ConfiguredSizes(
        size(layouts.COMMITLOG, broker.segment_size, (*listing.segments, *listing.entries), 1, layouts.DEFAULT_SEGMENT),
        size(layouts.QUEUES, broker.cq_file_size, of_queues(False), UNIT_SIZE, layouts.DEFAULT_QUEUE_FILE),
        size(layouts.BATCH_QUEUES, broker.batch_cq_file_size, of_queues(True), BATCH_UNIT_SIZE, layouts.DEFAULT_BATCH_FILE),
        broker.timer_log_size,
        size(
            layouts.EXT_QUEUES, broker.cq_ext_file_size, (file for queue in listing.ext for file in queue.files or ()), 1,
            layouts.DEFAULT_EXT_FILE,
        ),
    )  # fmt: skip
    slots, items = broker.hash_slots, broker.index_items
    if slots is None or items is None:
        slots, items = _index_sizes(listing.indexes, lambda entry: maps.get(os.path.join(store, entry.path), entry.size))
        if (slots, items) != (layouts.DEFAULT_SLOTS, layouts.DEFAULT_ITEMS):
            notes.append(f"index: {counted(slots, 'slot')} and {counted(items, 'item')} a file, taken from the files")
    unsized = [layouts.QUEUES] if broker.cq_file_size is None and not any(of_queues(False)) else []
    unsized += [layouts.INDEX] if broker.hash_slots is None and not listing.indexes else []
    return StoreSizes(files, slots, items, tuple(notes), tuple(unsized))


def usual_size(entries: Iterable[Listed], unit: int) -> int:
    """Return the size that most files have, of those that fit the names; 0 for none."""
    counts, starts = Counter[int](), set[int]()
    for entry in entries:
        start = layouts.first_byte(entry.name)
        if entry.kind == FILE and 0 < entry.size <= MAPPED_MAX and entry.size % unit == 0 and start is not None:
            counts[entry.size] += 1
            starts.add(start)
    fitting = {size: count for size, count in counts.items() if all(start % size == 0 for start in starts)} or counts
    return max(fitting, key=lambda size: (fitting[size], size), default=0)


def _index_sizes(entries: Sequence[Listed], bytes_of: Callable[[Listed], object]) -> tuple[int, int]:
    """Return (slots, items) as a few files of one size show; the defaults where they do not."""
    index_files = [
        entry for entry in entries if entry.kind == FILE and 0 < entry.size <= MAPPED_MAX and layouts.is_index_file(entry.name)
    ]
    for entry in index_files[:_INDEX_ASKED]:
        guess = guess_sizes(bytes_of(entry))  # type: ignore[arg-type]  # an array, which the caller maps
        if guess is not None:
            return guess
    return layouts.DEFAULT_SLOTS, layouts.DEFAULT_ITEMS


# ---------------------------------------------------------------------------------------------------------------------- release
# Where the version comes from whose start is worked out.


def release_from(settings: PreflightSettings, sizes: IndexSizes) -> str:
    """Return where the version comes from, in words: the option, or the default, and what the store's files fit then.

    The broker that starts need not be the one that wrote the store, so nothing is taken from the files. ``sizes`` are those of
    the IndexFiles.
    """
    if settings.named:
        return f"--broker-version {settings.broker_version}"
    try:
        with closing(StoreLog(settings.roots, Notes.silent())) as log:
            signs = of_store(settings.store, log, sizes)
    except (OSError, errors.InputError):
        # A broker that does not start is told by its own reasons.
        signs = []
    shown = f"the store's files fit {' or '.join(fit(signs).versions)}" if signs else "no file of the store shows one"
    return f"by default; {shown}: --broker-version names another"


# ------------------------------------------------------------------------------------------------------------------------ model
# The files that a start loads, as the model of the start takes them.

_CHECKPOINT_MAX = 4096
"""bytes that are mapped (``StoreCheckpoint``)"""


class StoreFiles:
    """The files of one store by their entries."""

    def __init__(self, store: str, maps: Maps) -> None:
        self._store, self._maps = store, maps

    def place(self, entry: Listed) -> str:
        """Return the path of an entry."""
        return os.path.join(self._store, entry.path)

    def mapped(self, entries: Iterable[Listed], lead: int = 0) -> list[start_store.StoreFile]:
        """Return files of the commitlog, a queue or timerlog; ``lead`` bytes stand in front of each record."""
        return [MappedFile(entry.name, self.place(entry), entry.size, self._maps, lead) for entry in entries]

    def head(self, entry: Listed | None, size_max: int = _CHECKPOINT_MAX) -> bytes | None:
        """Return the first bytes of a small file; None where there is none."""
        if entry is None or entry.kind != FILE:
            return None
        with files.Reader(self.place(entry)) as reader:
            return reader.read(0, min(reader.size(), size_max))

    def _folder(self, queue: LoadedQueue) -> start_store.QueueFolder:
        return start_store.QueueFolder(queue.topic, queue.queue, self.mapped(queue.files), queue.batch, self.mapped(queue.ext))

    def store(
        self, listing: Listing, loading: Loading, sizes: StoreSizes, has_ext: bool, database: StoreDatabase, committed: int
    ) -> start_store.Store:
        """Return all files of the store, as the model takes them, and the queues in RocksDB; of a log of DLedger ``committed``
        is the last entry that its checkpoint calls so, -1 for none."""
        whole, alone = sizes.index_file, database.queues() if database.in_rocksdb else None
        return start_store.Store(
            segments=[*self.mapped(loading.segments), *self.mapped(loading.entries, ENTRY_HEAD)],
            entries=start_store.EntryLog(len(loading.segments), self.mapped(loading.entry_index), committed)
            if loading.entries
            else None,
            queues=OnDemand(len(loading.queues), lambda number: self._folder(loading.queues[number])),
            indexes=[MappedIndex(e.name, self.place(e), e.size, whole, self._maps) for e in loading.indexes],
            checkpoint=self.head(listing.checkpoint),
            has_ext=has_ext,
            # In RocksDB a batch has one unit, as any record.
            batch_topics=frozenset(
                topic for topic, kind in listing.queue_types.items() if kind == topics.BATCH_QUEUE and alone is None
            ),
            database=alone,
            combined=database.combined(),
        )


def start_settings(
    settings: PreflightSettings, abnormal: bool, sizes: StoreSizes, *, in_group: bool = False
) -> start_store.StartSettings:
    """Return the settings of the start, from those of the broker; ``in_group``: it is one of a controller group."""
    return start_store.StartSettings(
        settings.release,
        abnormal,
        segment_size=sizes.files.segment,
        cq_file_size=sizes.files.queue,
        batch_cq_file_size=sizes.files.batch,
        cq_ext_file_size=sizes.files.ext,
        hash_slots=sizes.hash_slots,
        index_items=sizes.index_items,
        in_group=in_group,
        **settings.broker.start,  # type: ignore[arg-type]  # by the names of StartSettings
    )


# --------------------------------------------------------------------------------------------------------------------- delivery
# Delayed and timer messages: what the store's files say of them, for the rules in ``storage_format.broker_start``.


NOT_IN_ROCKSDB: Final = "what becomes of delayed and timer messages is not worked out for a broker with queues in RocksDB"
_NO_FATES: Final = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Delivery:
    """The parts of a store that matter to messages which wait for their time."""

    folders: StoreFolders
    files: StoreFiles
    listing: Listing
    loading: Loading
    store: start_store.Store
    settings: PreflightSettings
    delays: tuple[int, ...]
    ext_sizes: tuple[int, int]
    """bytes of a ConsumeQueue file and of one in consumequeue_ext"""

    @property
    def reads_database(self) -> bool:
        """Whether consumers are given what queues in RocksDB have."""
        combined = self.store.combined
        return self.store.database is not None or (combined is not None and combined.is_read)

    def delayed(self, prediction: Prediction) -> tuple[DelayedOutcome, ...]:
        """Return each delay level that has messages, or an offset of its own."""
        if self.reads_database:
            if any(queue.topic in (topics.SCHEDULE_TOPIC, topics.TIMER_TOPIC) for queue in prediction.queues):
                self.folders.notes.append(NOT_IN_ROCKSDB)
            return ()
        queues = {queue.queue: queue for queue in prediction.queues if queue.topic == topics.SCHEDULE_TOPIC}
        kept = kept_offsets(self.folders.config("delayOffset.json"))
        if not queues and not kept:
            return ()
        return delayed(prediction, self.delays, kept, self._due(prediction, queues, kept))

    def _due(self, prediction: Prediction, queues: dict[int, QueueOutcome], kept: dict[int, int]) -> dict[int, DueUnits]:
        """Return by queue how many messages from the kept offset on are due when the newest record was stored."""
        assert prediction.log is not None
        assert prediction.dispatch is not None
        now = newest_time(self.store.segments, prediction.log.max_offset)
        added = dict.fromkeys(queues, 0)
        low, high = prediction.dispatch.from_offset, prediction.log.max_offset
        if any(queue.units_added for queue in queues.values()):
            counted = low >= 0 and high - low <= self.settings.count_limit
            due = due_in_log(self.store.segments, low, high, self.delays, now) if counted else [-1] * len(self.delays)
            added = {queue: due[queue] if queue < len(due) else 0 for queue in queues}
        folders = {
            folder.queue: folder for folder in self.store.queues if folder.topic == topics.SCHEDULE_TOPIC and not folder.batch
        }
        log, total = StoreTimes(self.store.segments, high, self.settings.count_limit), dict[int, DueUnits]()
        for number, queue in queues.items():
            recovered = queue.max_offset - queue.units_added
            begin = max(kept.get(number + 1, 0), queue.min_offset, 0)
            folder, delay = folders.get(number), self.delays[number] if 0 <= number < len(self.delays) else 0
            units, overwrites = DueUnits(), False
            if folder is not None:
                ext = ExtState.recovered(folder, *self.ext_sizes) if self.store.has_ext else None
                units = due_in_files(folder.files, begin, recovered, now, delay, ext, log)
                # What is dispatched again takes the places to which older units lead.
                overwrites = ext is not None and ext.is_short and prediction.dispatch.records > 0
            # Else some of the messages that are dispatched again lie below the kept offset: which of them is not known.
            known = units.due >= 0 and not overwrites and (not queue.units_added or (added[number] >= 0 and begin <= recovered))
            total[number] = units._replace(due=units.due + added[number] if known else -1)
        self._note(total)
        return total

    def _note(self, units: dict[int, DueUnits]) -> None:
        """Say where the times of units with addresses come from."""
        by_log = {number: of_level.by_log for number, of_level in units.items() if of_level.by_log}
        if not by_log:
            return
        shown = f"{topics.SCHEDULE_TOPIC}: {counted(sum(by_log.values()), 'unit')} of {counted(len(by_log), 'queue')}"
        why = (
            "lead to no unit in consumequeue_ext"
            if self.store.has_ext
            else "have addresses in consumequeue_ext, which a broker without enableConsumeQueueExt does not read"
        )
        self.folders.notes.append(f"{shown} {why}: a broker takes the time of the message in the log, and so does this count")

    @property
    def timer_files(self) -> list[str]:
        """The paths in the store of its timer files."""
        listed = (self.listing.timer_check, self.listing.timer_wheel)
        return [file.path for file in listed if file is not None] + (["timerlog"] if self.listing.timer_log else [])

    def timers(self, prediction: Prediction) -> TimerOutcome | None:
        """Return what becomes of timer messages; None for a broker or a store without them, and where that is not known."""
        if not self.settings.has_timers or self.reads_database:
            return None
        head = self.files.head(self.listing.timer_check)
        check = None if head is None else TimerCheckpoint.from_bytes(head)
        log_files = self.files.mapped(self.loading.timer_log)
        queue = next((queue for queue in prediction.queues if queue.topic == topics.TIMER_TOPIC and queue.queue == 0), None)
        ended = log_end(log_files, check.log_flushed if check else 0)
        wheel = self.listing.timer_wheel is not None and self.listing.timer_wheel.size > 0
        end = prediction.log.max_offset if prediction.log else 0
        outcome = timers(wheel, log_files, check, queue, _queue_offset(self.store.segments, ended, end))
        rocksdb = self.settings.broker.timer_rocksdb
        if outcome is None or prediction.log is None or prediction.dispatch is None or rocksdb:
            return outcome
        read = check or TimerCheckpoint()
        if not wheel and not log_files and not read.log_flushed:
            # Of a build, whose clock was ahead of what was overdue: a broker has a wheel from its first start on.
            read = replace(read, read_time=0)
        newest = newest_time(self.store.segments, end)
        slots = self.files.mapped([self.listing.timer_wheel])[0].data if wheel and self.listing.timer_wheel else None
        step = self.settings.broker.timer_precision or slot_step(slots, newest)
        linked = Wheel(slots, log_files, read, ended.end, step)
        outcome = self._led_astray(outcome, linked, end)
        if queue is None:
            return outcome
        start = TimerStart(
            goes_on=outcome.goes_on, known=outcome.kept, low=max(queue.min_offset, 0),
            high=queue.max_offset - queue.units_added, read_time=read.read_time, newest=newest, log_end=end,
            dispatch_from=prediction.dispatch.from_offset if queue.units_added else -1,
        )  # fmt: skip
        counts = self._count_timers(start, linked)
        return replace(outcome, lost=counts.lost, again=counts.again)

    def _led_astray(self, outcome: TimerOutcome, wheel: Wheel, end: int) -> TimerOutcome:
        """Return what a broker does, too, with units that are still to be read, and lead to other records of a log up to
        ``end`` than they mean. Nothing is said of those whose message has expired."""
        segments, left = [segment for segment in self.store.segments if segment.start < end], self.settings.count_limit
        places, fates, times = [(one.start, one.size) for one in segments], list[Longs](), list[Longs]()
        start = places[0][0] if places else 0
        for every in wheel.to_read():
            units = every[every["phy_offset"] >= start]
            left -= int(sizes_to_read(units, end).sum())
            if left >= 0:
                fates.append(fates_in(units, places, lambda number, at, size: segments[number].data[at : at + size], end))
                times.append(units["written"][fates[-1] == STUCK] + units["delayed"][fates[-1] == STUCK])
        if left < 0:
            self.folders.notes.append(
                "timerlog: what its units lead to was not looked at: whether that is still the message that each means is not "
                f"known; --count-limit {self.settings.count_limit - left} reads it"
            )
            return replace(outcome, passed_over=-1, other=-1, stuck=-1)
        _, over, other, stuck = np.bincount(np.concatenate([_NO_FATES, *fates]), minlength=4).tolist()
        stuck_at = min((int(time) for part in times for time in part), default=-1)
        return replace(outcome, passed_over=over, other=other, stuck=stuck, stuck_at=stuck_at)

    def _count_timers(self, start: TimerStart, wheel: Wheel) -> TimerCounts:
        """Count the timer messages that are lost, or come again."""
        units = [
            file
            for folder in self.store.queues
            if folder.topic == topics.TIMER_TOPIC and folder.queue == 0 and not folder.batch
            for file in folder.files
        ]
        segments = [segment for segment in self.store.segments if segment.start < start.log_end]
        return count(start, wheel, units, segments, self.settings.count_limit)


def _queue_offset(segments: Sequence[start_store.StoreFile], last: LogEnd, end: int) -> int:
    """Return the queue offset of the record that the ``last`` unit of ``timerlog`` leads to; -1 where a broker finds none in
    front of the log's ``end``."""
    stops = ((segment, min(segment.start + segment.size, end)) for segment in segments)
    holding = [segment for segment, stop in stops if segment.start <= last.place and last.place + last.size <= stop]
    if not holding:
        return -1
    data, low = holding[0].data, last.place - holding[0].start
    message = read_message(lambda at, count: data[low + at : low + at + count].tobytes(), last.place, last.size)
    return message.queue_offset if isinstance(message, Message) else -1
