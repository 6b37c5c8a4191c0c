"""What the log shows of how far consumer groups got, where no file says it: retries, dead letters, POP and traces.

Each shows that a group was given a message. What it was given behind that is not shown, nor whether it was done with all that
lies before.
"""

from __future__ import annotations

import contextlib
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_reindex.jobs.consumers.standing import ConsumersQuestion, GroupEvidence
from rocketmq_reindex.jobs.querying.message_rows import MessageQuestion
from rocketmq_reindex.jobs.store import consumer_offsets
from rocketmq_reindex.jobs.store.consumer_offsets import QueueOfGroup
from rocketmq_reindex.jobs.store.contents import StoreLog
from rocketmq_reindex.jobs.store.folders import Notes
from rocketmq_reindex.storage_format.errors import ProgressListener
from rocketmq_reindex.storage_format.layouts import java_text
from rocketmq_reindex.storage_format.record import meaning as m
from rocketmq_reindex.storage_format.record.layout import pop_record, trace_records
from rocketmq_reindex.storage_format.record.message import Message
from rocketmq_reindex.storage_format.showing import escape
from rocketmq_reindex.storage_format.topics import (
    DEAD_LETTER_PREFIX,
    RETRY_PREFIX,
    REVIVE_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRACE_PREFIX,
    TRACE_TOPIC,
)

_TOPICS: Final = (
    f"{RETRY_PREFIX}*", f"{DEAD_LETTER_PREFIX}*", f"{REVIVE_PREFIX}*", f"{TRACE_PREFIX}*", TRACE_TOPIC, SCHEDULE_TOPIC,
    TIMER_TOPIC,
)  # fmt: skip
"""where it is shown; in the last two it waits"""
_CLUES: Final = (
    "topic", "queueId", "consumeQueueOffset", "commitLogOffset", "storeTimestamp", "kind", "realTopic", "uniqKey",
    "reconsumeTimes", "tags", "properties", "body",
)  # fmt: skip
_MESSAGES: Final = ("topic", "queueId", "consumeQueueOffset", "commitLogOffset", "storeTimestamp", "kind", "uniqKey")
CLUES_MAX: Final = 200_000
"""clues of a kind that are held: the newest. What is left out can only make a bound lower"""
_DROPPED_BITS: Final = 1 << 24
_BEFORE_TRACE: Final = "SubBefore"
"""``TraceType``: written before a client works on a message"""


class _Clue(NamedTuple):
    """A record that shows that a group was given another one: the message at ``origin``, or that with ``unique_key``."""

    group: str
    what: str
    record: str
    time: int
    topic: str | None
    unique_key: str | None
    origin: int | None = None


class _Copy(NamedTuple):
    """A message that came again: its retry topic, its unique key, and how often it came before."""

    topic: str
    unique_key: str
    times: int


class _Clues:
    """Clues of a log, and what they show. Of each queue of a group the message with the highest offset counts, as it was
    given last."""

    def __init__(self, log: StoreLog, notes: Notes) -> None:
        self._log, self._notes = log, notes
        self.by_key: dict[str, dict[str, _Clue]] = {}
        """the newest of each group"""
        self._with_keys = 0
        self._of_copies: deque[tuple[_Copy, _Clue]] = deque(maxlen=CLUES_MAX)
        self._copies: dict[_Copy, tuple[int, int] | None] = {}
        """queue and queue offset of each message that came again; None where two lie in that topic"""
        self._dropped = bytearray(_DROPPED_BITS // 8)
        """a bit for each copy that is not held any more: what may be a second one shows nothing"""
        self.shown: dict[QueueOfGroup, GroupEvidence] = {}

    def _say_dropped(self) -> None:
        text = f"more than {CLUES_MAX:,} traces or retries show how far groups are: the newest count, so a bound may be too low"
        self._notes.add("older clues", text, lost=False)

    def _add_by_key(self, unique_key: str, clue: _Clue) -> None:
        known = self.by_key.pop(unique_key, {})
        before = known.get(clue.group)
        self._with_keys += before is None
        if before is None or clue.time >= before.time:
            known[clue.group] = clue
        self.by_key[unique_key] = known
        while self._with_keys > CLUES_MAX:
            oldest = next(iter(self.by_key))
            self._with_keys -= len(self.by_key.pop(oldest))
            self._say_dropped()

    def _add_of_copy(self, copy: _Copy, clue: _Clue) -> None:
        if len(self._of_copies) == CLUES_MAX:
            self._say_dropped()
        self._of_copies.append((copy, clue))

    def _add_copy(self, copy: _Copy, place: tuple[int, int]) -> None:
        byte, bit = _bit_of(copy)
        is_second = copy in self._copies or self._dropped[byte] >> bit & 1
        self._copies[copy] = None if is_second else place
        if len(self._copies) > CLUES_MAX:
            oldest = next(iter(self._copies))
            del self._copies[oldest]
            byte, bit = _bit_of(oldest)
            self._dropped[byte] |= 1 << bit
            self._say_dropped()

    def show_copies(self) -> None:
        """Show what is known of messages that came again."""
        for copy, clue in self._of_copies:
            place = self._copies.get(copy)
            if place is not None:
                self.show(QueueOfGroup(clue.group, copy.topic, place[0]), place[1], clue)

    def _show_origin(self, clue: _Clue) -> None:
        assert clue.origin is not None
        given = self._log.message(clue.origin)
        # A message that a client sent back to another broker has its offset there.
        if not isinstance(given, Message) or clue.unique_key is None or given.unique_key != clue.unique_key:
            return
        if clue.topic == given.topic:
            self.show(QueueOfGroup(clue.group, given.topic, given.queue_id), given.queue_offset, clue)

    def show(self, queue: QueueOfGroup, offset: int, clue: _Clue) -> None:
        """Note that a group was given the message at an offset of a queue."""
        known = self.shown.get(queue)
        if known is None or (offset, clue.time) > (known.offset, known.time):
            self.shown[queue] = GroupEvidence(offset, clue.what, clue.record, clue.time)

    def take(self, row: dict[str, Any]) -> None:
        """Take the clues of one record."""
        kind = row["kind"] if row["kind"] not in (m.SCHEDULED, m.TIMER) else m.kind_of(row["realTopic"])
        record = f"{escape(row['topic'])}/{row['queueId']}/{row['consumeQueueOffset']}"
        if kind == m.POP:
            self._take_pop(row, record)
        elif kind == m.TRACE:
            self._take_traces(row, record)
        elif kind in (m.RETRY, m.DEAD_LETTER):
            self._take_retry(row, kind, record)

    def _take_pop(self, row: dict[str, Any], record: str) -> None:
        said = pop_record(row["body"] or b"", row["tags"])
        if said is not None and said.offsets:
            clue = _Clue(said.group, "pop", record, said.pop_time or row["storeTimestamp"], said.topic, None)
            self.show(QueueOfGroup(said.group, said.topic, said.queue_id), max(said.offsets), clue)

    def _take_traces(self, row: dict[str, Any], record: str) -> None:
        for trace in trace_records(java_text(row["body"] or b"")):
            group, unique_key = trace.get("groupName"), trace.get("msgId")
            if trace["traceType"] != _BEFORE_TRACE or not group or not unique_key:
                continue
            times, time = trace.get("retryTimes") or 0, trace.get("timeStamp")
            clue = _Clue(group, "trace", record, row["storeTimestamp"] if time is None else time, None, unique_key)
            if times:
                self._add_of_copy(_Copy(f"{RETRY_PREFIX}{group}", unique_key, times), clue)
            else:
                self._add_by_key(unique_key, clue)

    def _take_retry(self, row: dict[str, Any], kind: str, record: str) -> None:
        properties = dict(row["properties"] or ())
        topic = row["topic"] if row["kind"] == kind else row["realTopic"]
        group, _ = m.group_of(topic)
        rule, times = m.RULES[kind], row["reconsumeTimes"]
        origin = next((m.offset_of_id(properties[name]) for name in rule.origin if name in properties), None)
        real = next((properties[name] for name in rule.topic if name in properties), None)
        if row["kind"] == m.RETRY and row["uniqKey"] is not None:
            self._add_copy(_Copy(topic, row["uniqKey"], times), (row["queueId"], row["consumeQueueOffset"]))
        # The topic of a retry of POP may be that of a group with a longer name. Its check point says the same.
        if group is None or real is None or m.pop_group(topic, real) is not None:
            return
        what = "retry" if kind == m.RETRY else "dead letter"
        clue = _Clue(group, what, record, row["storeTimestamp"], real, row["uniqKey"], origin)
        if origin is not None:
            self._show_origin(clue)
        if times > 1 and row["uniqKey"] is not None:
            self._add_of_copy(_Copy(f"{RETRY_PREFIX}{group}", row["uniqKey"], times - 1), clue)


def _bit_of(copy: _Copy) -> tuple[int, int]:
    return divmod(zlib.crc32(repr(copy).encode("utf-8", "backslashreplace")) % _DROPPED_BITS, 8)


def bounds(question: ConsumersQuestion, notes: Notes, progress: ProgressListener) -> dict[QueueOfGroup, GroupEvidence]:
    """Return for each queue of a group the furthest message that the log shows to have been given to it.

    The log is read once for the records that show it, and once more where traces name messages by their unique keys. Of these
    records, CLUES_MAX of each kind are held, the newest: a note says that there are more.
    """
    with contextlib.closing(StoreLog(question.roots, notes)) as log:
        clues = _Clues(log, notes)
        for batch in _read(question, _TOPICS, _CLUES, log, "records of groups", progress):
            for row in _own(batch).to_pylist():
                clues.take(row)
        clues.show_copies()
        for queue, taken in consumer_offsets.taken_in_rocksdb(question.store, notes):
            clue = _Clue(queue.group, "pop", consumer_offsets.POP_DATABASE, taken.pop_time, queue.topic, None)
            clues.show(queue, taken.offset, clue)
        if clues.by_key:
            _by_keys(clues, _read(question, (), _MESSAGES, log, "traced messages", progress))
    return clues.shown


def _read(
    question: ConsumersQuestion, topics: Sequence[str], columns: Sequence[str], log: StoreLog, stage: str,
    progress: ProgressListener,
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    """Yield batches of the log. ``progress`` is told of the bytes that lie before each."""
    asked = MessageQuestion(
        question.store, question.commitlogs, tuple(topics), columns=tuple(columns), damage="skip",
        body="stored" if "body" in columns else "none",
    )  # fmt: skip
    progress.begin(stage, log.end - log.start)
    at = log.start
    for batch in asked.read(asked.schema()):
        if batch.num_rows:
            reached = batch.column("commitLogOffset")[-1].as_py()
            progress.moved(max(reached - at, 0))
            at = max(at, reached)
        yield batch
    progress.moved(log.end - at)
    progress.end()


def _own(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows of a batch that speak of a group: among those that wait most are messages of users."""
    real, kinds = batch.column("realTopic"), batch.column("kind")
    waits = pc.is_in(kinds, value_set=pa.array([m.SCHEDULED, m.TIMER]))
    speaks = pc.or_(pc.starts_with(real, RETRY_PREFIX), pc.starts_with(real, REVIVE_PREFIX))
    return batch.filter(pc.or_(pc.invert(waits), pc.fill_null(speaks, fill_value=False)))


def _by_keys(clues: _Clues, batches: Iterator[pa.RecordBatch]) -> None:
    """Show what is known of messages by their unique keys alone. A key that two messages have shows nothing."""
    wanted = pa.array(clues.by_key, pa.string())
    places: dict[str, tuple[str, int, int, int] | None] = {}
    for batch in batches:
        is_one = pc.and_(pc.is_in(batch.column("uniqKey"), value_set=wanted), pc.equal(batch.column("kind"), m.MESSAGE))
        for row in batch.filter(pc.fill_null(is_one, fill_value=False)).to_pylist():
            place = (row["topic"], row["queueId"], row["consumeQueueOffset"], row["storeTimestamp"])
            places[row["uniqKey"]] = None if row["uniqKey"] in places else place
    for unique_key, at in places.items():
        for clue in clues.by_key[unique_key].values() if at is not None else ():
            assert at is not None
            # One that was stored later is a second copy: the first has expired.
            if at[3] <= clue.time:
                clues.show(QueueOfGroup(clue.group, at[0], at[1]), at[2], clue)
