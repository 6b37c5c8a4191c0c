"""The prediction of a start as dataclasses; and which files a start loads, by names, kinds and sizes alone."""

import re
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from rocketmq_reindex.storage_format import layouts, showing, topics
from rocketmq_reindex.storage_format.broker_start import listing as names
from rocketmq_reindex.storage_format.broker_start.listing import FILE, FOLDER, Listed, ListedQueue, Listing, OnDemand
from rocketmq_reindex.storage_format.versions import START_RULES, StartRules

# ------------------------------------------------------------------------------------------------------------------- prediction
# What the start of a broker will do to a store: the statements of ``preflight``.


@dataclass(frozen=True)
class Refusal:
    """One reason why the store does not load, or the broker does not start."""

    kind: str
    """a fixed name, such as ``queue-file-size``"""
    path: str
    """the file or folder, relative to the store"""
    detail: str


@dataclass(frozen=True)
class LogOutcome:
    """What the start makes of the commitlog. Offsets are absolute bytes; -1 stands for not known."""

    abnormal: bool
    """``recoverAbnormally``, since there is an ``abort`` file"""
    start_segment: str
    """the file name of the segment in which the recovery begins; "" for an empty log"""
    start_offset: int
    limited: bool
    """the recovery begins there only because it looks at no more segments (``commitLogRecoverMaxNum``)"""
    min_offset: int
    max_offset: int
    """where the accepted log ends: ``getMaxPhyOffset`` after the start"""
    end: int
    """where the last byte of the log ends now that is not zero, if not before ``max_offset``"""
    cut_reason: str
    """why the log is cut before ``end``; "" if it is not"""
    cut_bytes: int
    cut_records: int
    """good records behind the cut; -1 where they were not counted"""
    deleted_segments: tuple[str, ...]


@dataclass(frozen=True)
class DispatchOutcome:
    """What is dispatched again, and what is not."""

    from_offset: int
    """physical offset of the first record that is dispatched; -1 for none"""
    records: int
    units: int
    items: int
    hidden_from: int
    """records in [hidden_from, hidden_to) have no units, and get none; -1, -1 for no such stretch"""
    hidden_to: int
    hidden_records: int
    """records of the kept log that no unit points to after the start; -1 where they were not counted"""
    stopped_at: int = -1
    """physical offset of a record whose queue's file cannot be made: from it on no record gets a unit; -1 for none"""
    misplaced: int = 0
    """records of the kept log that lie elsewhere than they say, and to which no unit leads: a start makes one that leads to
    where the record says"""
    misplaced_from: int = -1
    """where the first of them lies; -1 for none"""


@dataclass(frozen=True, slots=True)
class QueueOutcome:
    """One queue after the start. ``min_offset`` and ``max_offset`` are what a consumer is told."""

    topic: str
    queue: int
    min_offset: int
    max_offset: int
    units_cut: int
    units_added: int
    log_min: int
    """lowest QUEUEOFFSET of the queue in the kept log, and ``log_max`` the highest plus 1; -1 where not known"""
    log_max: int
    hidden: int
    """messages of the queue in the kept log to which no unit points after the start; -1 where not counted"""
    passed_over: int = 0
    """messages with a unit that a consumer who begins at ``min_offset`` is not given, since the units there stand for none"""
    given_from: int = -1
    """the queue offset of the first message that it is given; -1: ``min_offset``"""
    ends_blank: bool = False
    """whether the recovery began a file for a record below the queue's end, and so hides all units before it"""
    earlier_lives: int = 0
    """records without a unit in front of the one with which the queue began again at offset 0; in none of the others"""
    moved: int = 0
    """records to which the start gives a unit at a lower queue offset than their own: a group whose offset is between
    the two misses it"""
    gap_at: int = -1
    """of a queue in RocksDB the first queue offset between its ends that has no unit: no consumer gets past it; -1 for none,
    and where units were not counted"""
    behind_gap: int = 0
    """units behind it"""


@dataclass(frozen=True)
class IndexOutcome:
    """What the start makes of the IndexFiles."""

    files: int
    deleted: tuple[str, ...]
    """file names"""
    items_lost: int
    """items in the deleted files of records that the log keeps, and that get no items again"""
    items_missing: int
    """items of the kept log that are in no file after the start, but for tags where a broker before 5.4 indexed all keys; -1
    where they were not counted"""


@dataclass(frozen=True)
class Prediction:
    """All that a start does. Without ``loads`` the other parts are None or empty."""

    release: str
    """the release whose code is followed, such as ``5.5.1``"""
    loads: bool
    refusals: tuple[Refusal, ...] = ()
    log: LogOutcome | None = None
    dispatch: DispatchOutcome | None = None
    queues: Sequence[QueueOutcome] = ()
    index: IndexOutcome | None = None
    ext_short: tuple[str, ...] = ()
    """queues whose last units have addresses behind the end of their files in ``consumequeue_ext``, where new units go"""
    ext_unreadable: tuple[str, ...] = ()
    """queues with a unit in ``consumequeue_ext`` that a broker cannot read"""
    set_back: tuple[str, ...] = ()
    """queues in files and in RocksDB whose ends differ, with both, in words: the start lets RocksDB's begin at that of files"""
    last_entry: int | None = None
    """the index of the last entry of DLedger that is kept, -1 for none; None without a log of DLedger"""
    in_order: bool | None = None
    """queue offsets in the kept log count up by one, or begin again at 0 where units do, as builds ask; None: not looked at"""
    cut_as_master: int = -1  # where a broker of a controller group cuts its log once it is master; -1 for nowhere
    notes: tuple[str, ...] = field(default=())


# ---------------------------------------------------------------------------------------------------------------------- loading
# Which files a start loads, and why a store does not load: by names, kinds and sizes alone (``DefaultMessageStore.load``).

WHEEL_SIZE: Final = 7 * 24 * 3600 * 2 * 32
"""bytes of ``timerwheel`` (``TimerWheel.wheelLength``): slots for twice seven days"""
KINDS: Final = {
    "log-file-size": "a file in the commitlog is not as large as a segment",
    "log-file-name": "a file in the commitlog has a name that is no offset",
    "queue-file-size": "a ConsumeQueue file is not as large as the setting says",
    "queue-file-name": "a file of a queue has a name that is no offset",
    "ext-file-size": "a file in consumequeue_ext is not as large as the setting says",
    "ext-file-name": "a file in consumequeue_ext has a name that is no offset",
    "queue-type": "the folder of a queue and the topic's attribute queue.type disagree",
    "index-folder": "a folder lies where an IndexFile belongs",
    "checkpoint-not-a-file": "the checkpoint is no regular file",
    "lock-not-a-file": "the lock is no regular file",
    "lock-held": "a process holds the store's lock",
    "timer-log-file-size": "a file in timerlog is not as large as the setting says",
    "timer-log-file-name": "a file in timerlog has a name that is no offset",
    "timer-wheel-size": "timerwheel does not have the one size that a broker takes",
    "timer-wheel-not-a-file": "timerwheel is no regular file",
    "timer-check-not-a-file": "config/timercheck is no regular file",
    "abort-not-a-file": "abort is no regular file: a broker writes its process id into it",
    "delay-levels": "messageDelayLevel cannot be read",
    "queue-last-file-empty": "the recovery leaves no unit in the last file of a queue, and fails on that (5.3, 5.4)",
    "ext-unit": "a unit in consumequeue_ext reaches behind its file: the recovery fails on that",
    "checkpoint-logics-offset": "with enableAcceleratedRecovery, the checkpoint's logicsPhysicalOffset is 0 or behind the log",
    "record-too-large": "a record's size is above 2147483645: the broker makes an array for it first (4.9)",
    "dispatch-stuck": "the broker waits for ever to dispatch a part of the log that is not there (4.9)",
    "light-queue-offset": "with enableLmq and enableMultiDispatch, the start fails on a light queue's offset that is no number",
    "rocksdb-check-point": "with enableAcceleratedRecovery, RocksDB's check point lies behind the segment to begin in",
    "combine-offsets": "the broker reads RocksDB, where a queue ends at another offset than in its files",
    "combine-too-far": "the broker reads RocksDB, whose check point lies before the segments that it searches",
    "rocksdb-two-places": "RocksDB's files lie where useSeparateStorePathForRocksdbCQ says that they do not (5.5)",
    "entry-file-size": "a file of DLedger is not as large as it must be: the node ends itself",
    "entry-file-name": "a file of DLedger has a name that is no offset",
    "entry-files-apart": "a file of DLedger does not follow on the one before it",
    "entry-index": "the index of DLedger lacks the last entry that is committed",
    "entries-cut-too-far": "DLedger would cut off more than its last file: the node ends itself",
}
"""What each refusal means; from ``queue-last-file-empty`` on the recovery finds them, or they concern RocksDB or DLedger."""


@dataclass(frozen=True)
class ConfiguredSizes:
    """The settings for the sizes of files, in bytes."""

    segment: int
    queue: int
    batch: int
    timer_log: int = layouts.DEFAULT_TIMER_LOG
    ext: int = layouts.DEFAULT_EXT_FILE


@dataclass(frozen=True, slots=True)
class LoadedQueue:
    """The files of a queue that are loaded, in the order of their names."""

    topic: str
    queue: int
    files: tuple[Listed, ...]
    batch: bool
    ext: tuple[Listed, ...] = ()
    """those in ``consumequeue_ext``"""


@dataclass(frozen=True)
class Loading:
    """What a start loads. Where ``refusals`` is not empty the store does not load, and the rest is of no use."""

    refusals: tuple[Refusal, ...]
    segments: tuple[Listed, ...]
    queues: Sequence[LoadedQueue]
    indexes: tuple[Listed, ...]
    timer_log: tuple[Listed, ...]
    removed: tuple[str, ...]
    """paths of last files without a byte, which the start removes (``MappedFileQueue.doLoad``, 5.x)"""
    passed_over: tuple[str, ...]
    """paths that the start does not look at"""
    odd: tuple[str, ...]
    """paths of files that are loaded though no broker gives a file such a name"""
    entries: tuple[Listed, ...] = ()
    """the files of a node of DLedger, and of its index"""
    entry_index: tuple[Listed, ...] = ()


def load(listing: Listing, sizes: ConfiguredSizes, release: str) -> Loading:
    """Return which files are loaded, and each reason why the store does not load.

    A broker stops at the first of them, and names it in its log. Mirrors ``DefaultMessageStore.load`` (4.9.8 to 5.5.1).
    """
    work = _Loading(START_RULES[release])
    work.check_places(listing)
    segments = work.mapped(listing.segments, sizes.segment, "log")
    queues = work.queues(listing, sizes)
    indexes = work.index(listing.indexes)
    timer_log = work.timers(listing, sizes.timer_log) if work.rules.timers else ()
    of_dledger = work.entries(listing.entries, sizes.segment), work.entries(listing.entry_index, names.ENTRY_INDEX_FILE)
    return Loading(
        tuple(work.refusals), segments, queues, indexes, timer_log,
        tuple(work.removed), tuple(work.passed_over), tuple(work.odd), *of_dledger,
    )  # fmt: skip


class _Loading:
    """What is found on the way."""

    def __init__(self, rules: StartRules) -> None:
        self.rules = rules
        self.refusals: list[Refusal] = []
        self.removed: list[str] = []
        self.passed_over: list[str] = []
        self.odd: list[str] = []

    def _refuse(self, kind: str, path: str, detail: str) -> None:
        self.refusals.append(Refusal(kind, path, detail))

    def check_places(self, listing: Listing) -> None:
        """What is opened by a name of its own (``StoreCheckpoint``, ``DefaultMessageStore.lockFile``)."""
        for entry, kind in ((listing.checkpoint, "checkpoint"), (listing.lock, "lock"), (listing.abort, "abort")):
            if entry is not None and entry.kind != FILE and (kind != "abort" or self.rules.opens_abort):
                self._refuse(
                    f"{kind}-not-a-file", entry.path, f"is {'a folder' if entry.kind == FOLDER else 'no regular file'}"
                )
        if listing.lock is not None and listing.lock_holder is not None:
            who = f"process {listing.lock_holder}" if listing.lock_holder else "a process that is not known here"
            self._refuse("lock-held", listing.lock.path, f"{who} holds it: a broker runs on this store")

    def mapped(self, entries: Iterable[Listed], size: int, part: str) -> tuple[Listed, ...]:
        """Return the files that are mapped (``MappedFileQueue.doLoad``). ``part`` begins the kinds of refusals."""
        ordered, loaded = sorted(entries, key=names.java_order), list[Listed]()
        for number, entry in enumerate(ordered, 1):
            if entry.kind == FOLDER and self.rules.line.drops_empty_files:
                self.passed_over.append(entry.path)
            elif entry.size == 0 and number == len(ordered) and self.rules.line.drops_empty_files:
                self.removed.append(entry.path)
            elif entry.size != size or entry.kind != FILE:
                fault = (
                    f"has {showing.counted(entry.size, 'byte')} where {size:,} belong"
                    if entry.kind == FILE
                    else "is no regular file"
                )
                self._refuse(f"{part}-file-size", entry.path, fault)
            elif not layouts.is_number(entry.name):
                self._refuse(f"{part}-file-name", entry.path, "has a name that is no offset")
            else:
                if (
                    not re.fullmatch(r"[0-9]{20}", entry.name)
                    or int(entry.name) % size
                    or int(entry.name) > layouts.FIRST_BYTE_MAX
                ):
                    self.odd.append(entry.path)
                loaded.append(entry)
        return tuple(loaded)

    def entries(self, entries: Iterable[Listed], size: int) -> tuple[Listed, ...]:
        """Return the files that DLedger maps."""
        ordered = tuple(sorted(entries, key=names.java_order))
        faults = list(names.faults_of_entries(ordered, size))
        for kind, entry, detail in faults:
            self._refuse(kind, entry.path, detail)
        self.odd += [entry.path for entry in ordered if not faults and int(entry.name) % size]
        return ordered

    def queues(self, listing: Listing, sizes: ConfiguredSizes) -> Sequence[LoadedQueue]:
        """Return the queues that are loaded (``ConsumeQueueStore.load``; 4.9: ``DefaultMessageStore.loadConsumeQueue``)."""
        named, folders, numbers = array("q"), array("q"), array("q")
        ext_at = {f"{queue.topic}/{queue.name}": at for at, queue in enumerate(listing.ext)}
        disagree = set[tuple[bool, str]]()
        for _, listed in groupby(enumerate(listing.queues), lambda each: (each[1].batch, each[1].topic)):
            of_topic = list[tuple[int, str]]()
            for at, queue in listed:
                number = names.parse_int(queue.name)
                if number is None or (queue.batch and not self.rules.line.batch_queues):
                    self.passed_over.append(queue.path)
                    continue
                if self.rules.line.batch_queues:
                    self._check_type(queue, listing.queue_types.get(queue.topic, topics.SIMPLE_QUEUE), disagree)
                of_topic.append((at, queue.name))
            by_name = {name: at for at, name in of_topic}
            first_named = {int(name): at for at, name in reversed(of_topic)}
            for number, at in sorted(first_named.items(), key=lambda each: each[1]):
                named.append(at)
                # The name becomes a number, and the number the name of the folder that is read.
                folders.append(by_name.get(str(number), -1))
                numbers.append(number)

        def entries(index: int) -> Sequence[Listed]:
            return (listing.queues[folders[index]].files or ()) if folders[index] >= 0 else ()

        def ext_entries(queue: ListedQueue, number: int) -> Sequence[Listed]:
            at = -1 if queue.batch else ext_at.get(f"{queue.topic}/{number}", -1)
            return (listing.ext[at].files or ()) if at >= 0 else ()

        def ordered(entries: Iterable[Listed], size: int) -> tuple[Listed, ...]:
            # What is to be said of the others is said already.
            return tuple(sorted((one for one in entries if one.kind == FILE and one.size == size), key=names.java_order))

        def loaded(index: int) -> LoadedQueue:
            queue, number = listing.queues[named[index]], numbers[index]
            files = ordered(entries(index), sizes.batch if queue.batch else sizes.queue)
            return LoadedQueue(queue.topic, number, files, queue.batch, ordered(ext_entries(queue, number), sizes.ext))

        for index in range(len(numbers)):
            queue = listing.queues[named[index]]
            self.mapped(entries(index), sizes.batch if queue.batch else sizes.queue, "queue")
            if ext_at:
                self.mapped(ext_entries(queue, numbers[index]), sizes.ext, "ext")
        return OnDemand(len(numbers), loaded)

    def _check_type(self, queue: ListedQueue, configured: str, disagree: set[tuple[bool, str]]) -> None:
        """``ConsumeQueueStore.queueTypeShouldBe``."""
        lies = topics.BATCH_QUEUE if queue.batch else topics.SIMPLE_QUEUE
        if configured == lies or (queue.batch, queue.topic) in disagree:
            return
        disagree.add((queue.batch, queue.topic))
        path = queue.path.rpartition("/")[0]
        self._refuse(
            "queue-type", path, f"holds queues of {lies}, and config/topics.json says {showing.escape(configured, 60)}"
        )

    def timers(self, listing: Listing, size: int) -> tuple[Listed, ...]:
        """Return the files of ``timerlog``; what is opened beside it (``TimerWheel``, ``TimerCheckpoint``; 5.x)."""
        for entry, kind in ((listing.timer_wheel, "timer-wheel"), (listing.timer_check, "timer-check")):
            if entry is not None and entry.kind != FILE:
                self._refuse(
                    f"{kind}-not-a-file", entry.path, f"is {'a folder' if entry.kind == FOLDER else 'no regular file'}"
                )
        wheel = listing.timer_wheel
        if wheel is not None and wheel.kind == FILE and wheel.size not in (0, WHEEL_SIZE):
            self._refuse(
                "timer-wheel-size", wheel.path, f"has {showing.counted(wheel.size, 'byte')} where {WHEEL_SIZE:,} belong"
            )
        return self.mapped(listing.timer_log, size, "timer-log")

    def index(self, entries: Iterable[Listed]) -> tuple[Listed, ...]:
        """Return the IndexFiles that are loaded (``IndexService.load``)."""
        loaded = list[Listed]()
        for entry in sorted(entries, key=names.java_order):
            if not layouts.is_number(entry.name):
                self.passed_over.append(entry.path)
            elif entry.kind == FILE:
                loaded.append(entry)
            elif not self.rules.index_folder_fails:
                # 4.9 loads no file behind it, and starts all the same.
                self.passed_over.append(entry.path)
                break
            else:
                self._refuse("index-folder", entry.path, f"is {'a folder' if entry.kind == FOLDER else 'no regular file'}")
        return tuple(loaded)
