"""Where a recovery begins and ends in the commitlog, and what a broker dispatches once its store is recovered."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rocketmq_reindex.storage_format.broker_start import queue_state, record_loop, store
from rocketmq_reindex.storage_format.checkpoints import Checkpoint
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.kernels.raw_bytes import int32_at, int64_at
from rocketmq_reindex.storage_format.layouts import INT32_MAX, INT64_MAX, INT64_MIN
from rocketmq_reindex.storage_format.queue.rocksdb import CombinedQueues
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.versions import StartRules

# --------------------------------------------------------------------------------------------------------------------- recovery
# Where a recovery begins in the commitlog, and up to where it accepts it (``CommitLog.recoverNormally`` and such).

REASONS: Final = {**r.REASONS, record_loop.BAD_SUM: r.REASONS[r.BAD_LENGTHS], r.NO_ROOM: r.REASONS[r.NO_ROOM]}
_LARGE: Final = 1 << 26
"""bytes of an array that a small heap may have no room for; a broker takes messages of 4 MiB (``maxMessageSize``)"""


@dataclass(frozen=True)
class Start:
    """The segment in which the recovery begins, by number, and the byte of it."""

    index: int
    at: int
    limited: bool


@dataclass(frozen=True)
class End:
    """Where the recovery ended: ``offset`` in segment number ``index``, for a reason: a code, FILLER at the last filler."""

    index: int
    offset: int
    code: int


def reading_of(settings: store.StartSettings, rules: StartRules) -> record_loop.Reading:
    """Return how the recovery reads records."""
    crc = record_loop.CRC_PROPERTY if settings.force_verify_prop_crc and rules.line.record_v2 else r.CRC_BODY
    return record_loop.Reading(
        crc=crc if settings.check_crc else r.CRC_NONE,
        old=not rules.line.record_v2,
        negative_sizes=rules.negative_sizes,
        sound=False,
        lowest=INT64_MIN,
        highest=INT64_MAX,
        tag_items=rules.line.tag_items,
        lmq=settings.lmq,
    )


def counting_of(settings: store.StartSettings, rules: StartRules) -> record_loop.Reading:
    """Return how records are read that are only counted: good is what ``verify`` and builds call good."""
    reading = reading_of(settings, rules)
    return reading._replace(crc=r.CRC_ALL if settings.check_crc else r.CRC_NONE, sound=True)


def check_accelerated(settings: store.StartSettings, rules: StartRules, times: Checkpoint) -> None:
    """Raise LoadFailure where the recovery ends before it begins (``ConsumeQueueStore.getDispatchFromPhyOffset``)."""
    if settings.abnormal and rules.logics_offset and settings.accelerated and times.physic > 0 and times.logics_offset <= 0:
        raise queue_state.LoadFailure(
            "checkpoint-logics-offset", "without logicsPhysicalOffset nothing is accelerated", "checkpoint"
        )


def is_dispatched(
    time: int, phy_offset: int, max_physic: int, settings: store.StartSettings, rules: StartRules, times: Checkpoint
) -> bool:
    """Return whether a recovery may begin with the segment whose first record has this store time and phy_offset.

    ``max_physic`` is as in ``SegmentChoice.start``. This is ``ConsumeQueueStore.isMappedFileMatchedRecover``, and what its
    callers look at before.
    """
    if time == 0:
        return False
    safe = settings.message_index and settings.message_index_safe
    if not rules.first_record_parses:
        return time <= (min(times.lowest_time, times.index) if safe else times.lowest_time)
    if safe and time > times.index:
        return False
    if not settings.abnormal:
        return phy_offset <= max_physic
    if not rules.logics_offset:
        return time <= times.lowest_time
    return time <= times.logics if times.logics_offset <= 0 else phy_offset <= times.logics_offset


class SegmentChoice:
    """Chooses the segment in which to begin."""

    def __init__(
        self,
        segments: Sequence[store.StoreFile],
        settings: store.StartSettings,
        rules: StartRules,
        times: Checkpoint,
        reader: store.LogReader,
    ) -> None:
        self._segments, self._settings, self._rules, self._times, self._reader = segments, settings, rules, times, reader

    def start(self, max_physic: int) -> Start:
        """Return where it begins; ``max_physic`` is the highest max physic offset of the queues. Raises LoadFailure."""
        settings, rules = self._settings, self._rules
        self._check()
        if not settings.abnormal and not rules.dispatches_while_recovering:
            return Start(max(0, len(self._segments) - 3), 0, False)
        segments_left = len(self._segments) + 1
        if rules.limits_segments:
            segments_left = settings.recover_max_segments if settings.recover_max_segments > 0 else 10
        index, limited = len(self._segments) - 1, False
        while index > 0:
            segments_left -= 1
            if self._matches(self._segments[index], max_physic):
                break
            if segments_left <= 0:
                limited = True
                break
            index -= 1
        return Start(index, self._first_byte(self._segments[index], max_physic), limited)

    def _check(self) -> None:
        check_accelerated(self._settings, self._rules, self._times)

    def _first_byte(self, segment: store.StoreFile, _max_physic: int) -> int:
        """Return the byte of a segment in which the recovery begins. Raises LoadFailure."""
        times = self._times
        if not (self._settings.abnormal and self._rules.logics_offset and self._settings.accelerated):
            return 0
        at = max(0, times.logics_offset - segment.start)
        if at > segment.size:
            raise queue_state.LoadFailure(
                "checkpoint-logics-offset", f"{times.logics_offset} is behind the log's end", "checkpoint"
            )
        return at

    def _matches(self, segment: store.StoreFile, max_physic: int) -> bool:
        """Return ``isMappedFileMatchedRecover``."""
        settings, rules, times = self._settings, self._rules, self._times
        if not settings.abnormal and not rules.first_record_parses:
            return segment.start <= max_physic
        if rules.first_record_parses:
            rec = self._reader.first_record(segment.data, reading_of(settings, rules))
            if rec is None:
                return False
            time, phy_offset = rec
        else:
            magic = int32_at(segment.data, r.AT_MAGIC)
            if magic != r.MAGIC_V1 and (magic != r.MAGIC_V2 or not rules.line.record_v2):
                return False
            v6 = int32_at(segment.data, r.AT_SYS_FLAG) & r.FLAG_BORN_HOST_V6
            time = int64_at(segment.data, r.AT_STORE_TIMESTAMP + (r.IPV6_EXTRA if v6 else 0))
            phy_offset = 0
        return is_dispatched(time, phy_offset, max_physic, settings, rules, times)


class DatabaseSegmentChoice(SegmentChoice):
    """Chooses it for a broker that keeps its queues in RocksDB: by their check point."""

    def _check(self) -> None:
        """Nothing: the checkpoint's logicsPhysicalOffset is not looked at."""

    def _first_byte(self, segment: store.StoreFile, _max_physic: int) -> int:
        settings, rules, max_physic = self._settings, self._rules, _max_physic
        if not settings.accelerated or not rules.first_record_parses or (rules.logics_offset and not settings.abnormal):
            return 0
        at = max_physic - segment.start
        if at > segment.size:
            raise queue_state.LoadFailure(
                "rocksdb-check-point", f"{max_physic} is behind the segment in which the recovery begins", "consumequeue"
            )
        if at < 0 and not settings.abnormal:
            # CommitLog.recoverNormally of 5.3.4 and 5.4.0 counts the log's end from a negative byte on.
            raise InputError(
                f"with enableAcceleratedRecovery the check point in RocksDB, {max_physic}, is in front of the log's first byte "
                f"at {segment.start}, and preflight does not know where the broker then cuts the log"
            )
        return max(0, at)

    def _matches(self, segment: store.StoreFile, max_physic: int) -> bool:
        settings, rules, times = self._settings, self._rules, self._times
        if not rules.first_record_parses:
            if not settings.abnormal:
                return segment.start <= max_physic
            magic = int32_at(segment.data, r.AT_MAGIC)
            return magic in (r.MAGIC_V1, r.MAGIC_V2) and int64_at(segment.data, r.AT_PHYSICAL_OFFSET) <= max_physic
        rec = self._reader.first_record(segment.data, reading_of(settings, rules))
        if rec is None or rec[0] == 0:
            return False
        is_behind = settings.message_index and settings.message_index_safe and rec[0] > times.index
        return not is_behind and rec[1] <= max_physic


class CombinedSegmentChoice(SegmentChoice):
    """Chooses it for a broker with queues in files and in RocksDB (``CombineConsumeQueueStore.isMappedFileMatchedRecover``)."""

    def of(self, file_max: int, combined: CombinedQueues) -> SegmentChoice:
        """Return this, for files that reach to ``file_max``, the highest max physic offset, beside a database."""
        self._file_max, self._combined, self._extra = file_max, combined, combined.extra_segments
        return self

    def _matches(self, segment: store.StoreFile, _max_physic: int) -> bool:
        if not super()._matches(segment, self._file_max):
            return False
        dispatched = self._combined.database.dispatched
        if self._rules.logics_offset and dispatched <= 0:
            return True
        rec = self._reader.first_record(segment.data, reading_of(self._settings, self._rules))
        if rec is not None and rec[1] <= dispatched:
            return True
        self._extra -= 1
        if self._extra >= 0:
            return False
        if self._combined.is_read:
            raise queue_state.LoadFailure(
                "combine-too-far", f"RocksDB's check point is {dispatched}, and segment {segment.name} begins behind it"
            )
        return True


def read_segment(
    segment: store.StoreFile, at: int, end: int, reading: record_loop.Reading, reader: store.LogReader
) -> tuple[int, int]:
    """Return what ``LogReader.read`` does, of a segment that a broker reads.

    Raises LoadFailure at a record that no heap has room for.
    """
    code, stop = reader.read(segment, at, end, reading)
    # DLedgerCommitLog.checkMessageAndReturnSize catches what Java throws.
    is_asked = code not in (r.FILLER, r.NO_ROOM) and not segment.lead
    claimed = reader.claims(segment.data, stop, end, reading) if is_asked else 0
    if claimed >= _LARGE:
        claim = f"the record at offset {segment.start + stop} says that it has {claimed:,} bytes"
        if code == record_loop.TOO_LARGE:
            raise queue_state.LoadFailure(
                "record-too-large", f"{claim}: no JVM has an array of that size", f"commitlog/{segment.name}"
            )
        reader.notes.append(
            f"{claim}: the broker makes an array of that size before it checks them, and does not start where its heap has no "
            "room for it"
        )
    return code, stop


def read_log(
    segments: Sequence[store.StoreFile],
    start: Start,
    settings: store.StartSettings,
    rules: StartRules,
    reader: store.LogReader,
) -> End:
    """Return where the log ends that is accepted from ``start`` on. Its records are read into ``reader``."""
    reading = reading_of(settings, rules)
    index, at = start.index, start.at
    while True:
        segment = segments[index]
        if settings.abnormal and settings.check_offset and rules.logics_offset:
            reading = reading._replace(lowest=segment.start, highest=segment.start + segment.size)
        code, stop = read_segment(segment, at, segment.size, reading, reader)
        if code != r.FILLER or index + 1 == len(segments):
            return End(index, segment.start + stop, code)
        index, at = index + 1, 0


# --------------------------------------------------------------------------------------------------------------------- dispatch
# What a broker dispatches once its store is recovered (``ReputMessageService``): 4.9, and 5.x with a recheck.


@dataclass(frozen=True)
class KeptLog:
    """The segments that the recovery leaves; ``ends[k]`` is how many bytes of segment k are in use."""

    segments: Sequence[store.StoreFile]
    ends: Sequence[int]
    segment_size: int

    @property
    def min_offset(self) -> int:
        """``CommitLog.getMinOffset``; -1 for an empty log."""
        return self.segments[0].start if self.segments else -1

    @property
    def max_offset(self) -> int:
        """``CommitLog.getMaxOffset``."""
        return self.segments[-1].start + self.ends[-1] if self.segments else 0

    def find(self, offset: int) -> int | None:
        """Return the number of the segment that holds an offset (``MappedFileQueue.findMappedFileByOffset``)."""
        for number, segment in enumerate(self.segments):
            if segment.start <= offset < segment.start + self.segment_size:
                return number
        return None


def reput(log: KeptLog, start: int, reading: record_loop.Reading, reader: store.LogReader) -> int:
    """Read into ``reader`` what ``doReput`` dispatches from ``start`` to the log's end, damage passed over as it does.

    Return up to where it gets.

    Raises LoadFailure where it never gets there: then ``DefaultMessageStore.start`` does not end.
    """
    at = max(start, log.min_offset)
    while at < log.max_offset:
        number = log.find(at)
        if number is None or at % log.segment_size >= log.ends[number]:
            raise queue_state.LoadFailure(
                "dispatch-stuck", f"the broker waits for ever to dispatch the log from offset {at} on"
            )
        at = _through(log, number, at, reading, reader)
    return at


def _through(log: KeptLog, number: int, at: int, reading: record_loop.Reading, reader: store.LogReader) -> int:
    """Read one segment of the log; return where the log goes on."""
    segment, end = log.segments[number], log.ends[number]
    first = position = at % log.segment_size
    read_bytes = 0
    while read_bytes < end - first:
        code, stop = read_segment(segment, position, end, reading, reader)
        read_bytes += stop - position
        at += stop - position
        if read_bytes >= end - first:
            break
        if code == r.FILLER:
            return at + log.segment_size - at % log.segment_size
        reader.refused_at = at if reader.refused_at < 0 else reader.refused_at
        if code != record_loop.BAD_SUM:
            return at + (end - first) - read_bytes
        # The size is taken, but what was read is behind the sum of the parts.
        at += segment.lead + reader.refused_size(segment.data, stop + segment.lead)
        position = stop + segment.lead + reader.refused_read
    return at


def follow_unconfirmed(log: KeptLog, start: int, reading: record_loop.Reading, reader: store.LogReader) -> None:
    """Follow the records from ``start``, the confirmed offset of a controller group, as its broker does while it loads.

    It asks them for the next offset of each queue (``ConsumeQueueStore.compensateForHA``). Where it meets bytes that are none
    of its first format it does not load: then this raises LoadFailure. A record that is damaged in another way ends the walk.
    """
    at, stopped = start, f"the broker follows the records from the confirmed offset {start} on, and does not load: at offset"
    while (number := log.find(at)) is not None:
        segment, end, newer = log.segments[number], log.ends[number], list[int]()

        def take(rows: record_loop.LogRows, segment: store.StoreFile = segment, newer: list[int] = newer) -> None:
            places = rows.at - segment.start
            magic = segment.data[places[:, None] + range(r.AT_MAGIC, r.AT_MAGIC + 4)]
            newer.extend(rows.at[(magic.view(">i4")[:, 0] != r.MAGIC_V1)][:1].tolist())

        with reader.handing_to(take):
            _, stop = reader.read(segment, at - segment.start, end, reading)
        if newer:
            detail = f"{stopped} {newer[0]} is a record of the second format, as for topics longer than 127 bytes"
            raise queue_state.LoadFailure("confirmed-offset", detail, "checkpoint")
        at = segment.start + stop
        size = int(int32_at(segment.data, stop)) if stop + 4 <= end else INT32_MAX - stop
        if end < stop + size <= INT32_MAX:
            return
        magic = int32_at(segment.data, stop + r.AT_MAGIC) if r.FILLER_MIN <= size <= end - stop else 0
        if magic not in (r.MAGIC_BLANK, r.MAGIC_V1):
            raise queue_state.LoadFailure("confirmed-offset", f"{stopped} {at} no record begins", "checkpoint")
        if magic == r.MAGIC_V1:
            return
        at += size
