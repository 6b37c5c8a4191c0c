"""Look where consumer groups stand in a store, and write a new file of their offsets."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from rocketmq_reindex import files
from rocketmq_reindex.jobs.consumers.standing import (
    ConsumersQuestion,
    ConsumersResult,
    GroupEvidence,
    GroupOffset,
    OffsetChange,
    State,
)
from rocketmq_reindex.jobs.publishing.layout import check_writable, is_there, write_new
from rocketmq_reindex.jobs.store import consumer_offsets
from rocketmq_reindex.jobs.store.consumer_offsets import MergedOffsets, OffsetFile, QueueOfGroup
from rocketmq_reindex.jobs.store.contents import StoreLog, last_record
from rocketmq_reindex.jobs.store.folders import Notes
from rocketmq_reindex.jobs.store.queue import StoreQueue, StoreQueues
from rocketmq_reindex.jobs.store.settings import (
    check_has_parts,
    check_is_folder,
    check_is_store,
    check_some_log,
    rocksdb_queues,
)
from rocketmq_reindex.storage_format.errors import InputError, ProgressListener
from rocketmq_reindex.storage_format.layouts import INT64_MAX, QUEUES
from rocketmq_reindex.storage_format.record.layout import FLAG_TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from rocketmq_reindex.storage_format.record.meaning import MESSAGE, kind_of
from rocketmq_reindex.storage_format.showing import escape, listed, near_in_words, redacted, shell
from rocketmq_reindex.storage_format.topics import NUMBERED


class KnownQueue(NamedTuple):
    """A queue of the store: the queue offsets of its messages whose records the log has, from ``first`` to below ``end``."""

    first: int
    end: int
    is_read: bool = True
    """whether all files that were looked at could be read; else the offsets mean nothing"""


_NO_QUEUE: Final = KnownQueue(0, 0)


class _Queues:
    """The queues of a store, each looked at once. One of them is open at a time."""

    def __init__(self, question: ConsumersQuestion, notes: Notes) -> None:
        self._notes, self._queues = notes, StoreQueues(question.store, notes)
        self.topics, self.unread = frozenset(self._queues.topics()), self._queues.unread
        self.log = StoreLog(question.roots, notes)
        self._last = last_record(self.log)
        self._known: dict[tuple[str, int], KnownQueue | None] = {}
        self._place: tuple[str, int] | None = None
        self._open: StoreQueue | None = None
        self._lost = Notes.silent()
        """what cannot be read of the open queue"""

    def known(self, topic: str, queue_id: int) -> KnownQueue | None:
        """Return what the store knows of a queue; None where it has no such queue."""
        if (topic, queue_id) not in self._known:
            queue = self._queue(topic, queue_id)
            self._known[topic, queue_id] = None if queue is None else self._extent(queue)
        return self._known[topic, queue_id]

    def _queue(self, topic: str, queue_id: int) -> StoreQueue | None:
        """Return a queue that has files, which is open until another one is asked for."""
        if self._place != (topic, queue_id):
            self._close_queue()
            self._place, self._lost = (topic, queue_id), Notes.silent()
            if topic in self.topics:
                self._open = self._queues.open(topic, queue_id, self.log, self._lost)
        return self._open

    def _close_queue(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None
        if self._lost.lost:
            self._notes.add("queue files", self._lost.lost)

    def close(self) -> None:
        """Close what is open."""
        self._close_queue()
        self._queues.close()
        self.log.close()

    def _extent(self, queue: StoreQueue) -> KnownQueue:
        units, log_start = queue.units, self.log.start
        log_end = INT64_MAX if self._last is None else self._last.phy_offset + self._last.size
        # ConsumeQueue.correctMinOffset: a queue begins where the log does, and a start cuts it where the log ends.
        first = units.first_where(lambda unit: unit.phy_offset >= log_start)
        end = units.first_where(lambda unit: unit.phy_offset >= log_end)
        if queue.batch:
            last = units.at(end - 1) if end > units.begin else None
            end_offset = 0 if last is None else last.base + last.messages
            return KnownQueue(units.at(first).base if first < end else end_offset, end_offset, not self._lost.lost)
        return KnownQueue(min(first, end), end, not self._lost.lost)

    def check_ends(self) -> None:
        """Note that the queues lack the log's last record, as after a crash: their ends are too low then."""
        last = self._last
        if last is None or last.sys_flag & FLAG_TRANSACTION_MASK in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK):
            return
        queue = self._queue(last.topic, last.queue_id)
        if queue is None or queue.units.at(queue.units.find(last.queue_offset)).phy_offset < last.phy_offset:
            where = f"{escape(last.topic)}/{last.queue_id}"
            self._notes.add(
                "queues that end early",
                f"{where}: has no unit for the log's last record, at {last.phy_offset}: a build or a start adds what the "
                "queues lack: until then their ends, and what is said of offsets behind them, may be too low",
                lost=False,
            )

    def time_at(self, place: QueueOfGroup, offset: int) -> int | None:
        """Return when the message at an offset of a queue was stored, or the next one that is there; None where none is."""
        queue = self._queue(place.topic, place.queue_id)
        served = None if queue is None else next(queue.from_position(queue.units.find(offset)), None)
        return None if served is None else served.message.store_time

    def offset_at(self, place: QueueOfGroup, time: int) -> tuple[int, str]:
        """Return the queue offset of the first message that was stored at a time or later, and why it is that one.

        It is the queue's end where no message was.
        """
        known = self.known(place.topic, place.queue_id) or _NO_QUEUE
        if not known.is_read:
            raise InputError(f"{escape(place.topic)}/{place.queue_id}: its files cannot be read: --to-time finds nothing there")
        queue = self._queue(place.topic, place.queue_id)
        position = -1 if queue is None else queue.position_at_time(time, every=False)
        if queue is None or position >= queue.units.end:
            return known.end, "no message is stored at --to-time or later: the end of the queue"
        found = queue.units.at(position).base if queue.batch else position
        return min(max(found, known.first), known.end), "the first message stored at --to-time or later"

    @functools.cache  # noqa: B019  it lives as long as the run
    def ids_of(self, topic: str) -> list[int]:
        """Return the numbers of a topic's queues."""
        return self._queues.ids(topic) if topic in self.topics else []


def run(question: ConsumersQuestion, result: ConsumersResult, notes: Notes, progress: ProgressListener) -> None:
    """Fill the result, and write the new file where one is asked for. Raises InputError and UsageError."""
    check_is_folder(question.store)
    check_is_store(question.store)
    check_has_parts(question.store)
    if question.commitlogs:
        check_some_log(question.commitlogs)
    if question.out is not None:
        _check_out(question.out)
    databases = [] if question.out is None else _databases(question.store)
    paths = question.consumer_offsets
    offset_files = consumer_offsets.named(paths, notes) if paths else consumer_offsets.of_store(question.store, notes)
    if not paths and len(offset_files) > 1:
        names = listed([escape(file.path) for file in offset_files])
        raise InputError(
            f"{names}: are both there: a broker with enableLmq=true reads the second, any other the first: name that one by "
            "--consumer-offsets"
        )
    merged = consumer_offsets.merged(offset_files, question.merge, notes)
    queues = _Queues(question, notes)
    with contextlib.closing(queues):
        _check_has_queues(question.store, queues)
        queues.check_ends()
        evidence = _evidence(question, notes, progress)
        if not offset_files and not question.bounds and question.to_time is None:
            raise InputError(
                f"{escape(question.store)}: has no file of consumer offsets that can be read: name a copy, or a replica's, by "
                "--consumer-offsets FILE, or read by --bounds what the log tells of the groups"
            )
        asked = _places(merged, evidence, queues, question)
        if not asked:
            _tell_near({"group": question.group, "topic": question.topic}, [*merged.offsets, *evidence], notes)
        elif question.to_time is not None:
            # A new group may be set to a time, and a mistyped one is written as a new one.
            _tell_near({"group": question.group}, [*merged.offsets, *evidence], notes)
        for place in asked:
            _check_evidence(place, evidence, queues, notes)
        result.merge = question.merge
        result.groups += [_row(place, merged, evidence, queues) for place in asked]
        result.differences += [each for each in merged.differences if question.is_asked(each.group, each.topic)]
        if question.out is not None:
            _write(question, result, offset_files, databases, merged, queues, asked)
            _tell_of_database([*offset_files, *databases], notes)


def _tell_near(asked: Mapping[str, str | None], known: Sequence[QueueOfGroup], notes: Notes) -> None:
    """Note names near the asked ones, where nobody tells of these: a name that is written wrong is the usual cause."""
    for kind, name in asked.items():
        names = {str(getattr(place, kind)) for place in known}
        if name is not None and (near := near_in_words(name, names)):
            text = f"{kind} {escape(name)}: no group reads it" if kind == "topic" else f"group {escape(name)}: is not known"
            notes.add(f"unknown {kind}", text + near, lost=False)


def _evidence(question: ConsumersQuestion, notes: Notes, progress: ProgressListener) -> dict[QueueOfGroup, GroupEvidence]:
    if not question.bounds:
        return {}
    # It brings numba: half a second.
    from rocketmq_reindex.jobs.consumers.bounds import bounds

    return bounds(question, notes, progress)


def _check_evidence(
    place: QueueOfGroup, evidence: dict[QueueOfGroup, GroupEvidence], queues: _Queues, notes: Notes
) -> None:  # fmt: skip
    """Leave out evidence of a message that the queue does not have, and note it: the queue has lost its end."""
    found, known = evidence.get(place), queues.known(place.topic, place.queue_id) or _NO_QUEUE
    if found is not None and known.is_read and found.offset >= known.end:
        del evidence[place]
        notes.add(
            "messages that queues do not have",
            f"{escape(place.topic)}/{place.queue_id}: ends at {known.end}, but group {escape(place.group)} was given offset "
            f"{found.offset} ({found.what} {found.record}): the queue or the log has lost its end, or the topic was made anew",
            lost=False,
        )


def _check_has_queues(store: str, queues: _Queues) -> None:
    """Raise InputError where no queue is there: each offset would be behind its end."""
    if queues.topics:
        return
    if queues.unread:
        raise InputError(queues.unread)
    if found := rocksdb_queues(store):
        raise InputError(
            f"{escape(found.folder)}: RocksDB holds no queue, and there is no file of one: verify says what it lacks"
        )
    raise InputError(
        f"{escape(files.join(store, QUEUES))}: holds no queue: build the queues first: "
        f"{shell(['rmq-reindex', 'build', redacted(store), '--out', 'DIR'])}, then "
        f"{shell(['rmq-reindex', 'fetch', 'DIR', '--to', redacted(store)])}"
    )


def _places(
    merged: MergedOffsets, evidence: dict[QueueOfGroup, GroupEvidence], queues: _Queues, question: ConsumersQuestion
) -> list[QueueOfGroup]:
    """Return the queues that are asked for, also those of which no file says an offset: of each topic that a group reads."""
    named = {place for place in (*merged.offsets, *evidence) if question.is_asked(place.group, place.topic)}
    read = {(place.group, place.topic) for place in named}
    if question.group is not None and question.topic is not None:
        read.add((question.group, question.topic))
    return sorted(named | {QueueOfGroup(group, topic, queue_id) for group, topic in read for queue_id in queues.ids_of(topic)})


def _row(
    place: QueueOfGroup, merged: MergedOffsets, evidence: dict[QueueOfGroup, GroupEvidence], queues: _Queues
) -> GroupOffset:  # fmt: skip
    offset, source = merged.offsets.get(place), merged.sources.get(place)
    known = queues.known(place.topic, place.queue_id)
    row = GroupOffset(*place, _state(offset, known), offset, source, evidence=evidence.get(place))
    if known is None:
        # A queue that never had a message has no files.
        return dataclasses.replace(row, first=0, end=0)
    if not known.is_read:
        return row
    row = dataclasses.replace(row, first=known.first, end=known.end)
    due = known.first if offset is None else max(offset, known.first)
    return dataclasses.replace(row, next_time=queues.time_at(place, due)) if due < known.end else row


def _state(offset: int | None, known: KnownQueue | None) -> State:
    if known is not None and not known.is_read:
        return "unknown"
    if offset is None:
        return "no offset"
    if known is None:
        return "in the queue" if offset == 0 else "no such queue"
    if offset > known.end:
        return "behind the end"
    return "expired" if offset < known.first else "in the queue"


# -------------------------------------------------------------------------------------------------------------------- new file
# A new file of offsets, each within its queue, beside the old ones.


def _check_out(path: str) -> None:
    """Raise InputError for a place where no new file can be written."""
    if os.path.lexists(path):
        raise is_there("--out", path)
    check_writable("--out", path, b"", "offsets")


def _databases(store: str) -> list[OffsetFile]:
    """Return the store's own databases of offsets: a new file must have a higher counter. Raises InputError."""
    try:
        return consumer_offsets.in_databases(store)
    except InputError as error:
        raise InputError(
            f"{error}: --out: which offsets count, and which counter a broker takes in, is not known: nothing is written: mend "
            "it, or take it out of STORE where the broker does without it"
        ) from None


def _write(
    question: ConsumersQuestion, result: ConsumersResult, offset_files: Sequence[OffsetFile],
    databases: Sequence[OffsetFile], merged: MergedOffsets, queues: _Queues, asked: Sequence[QueueOfGroup],
) -> None:  # fmt: skip
    assert question.out is not None
    offsets = dict(merged.offsets)
    places = {*offsets, *(asked if question.to_time is not None else ())}
    if not asked or not places:
        raise InputError(
            "--out: no file says an offset of what was asked for: nothing is written: set a group to a time by --group, "
            "--topic and --to-time, or name a file by --consumer-offsets"
        )
    # Copies that wait, and what comes again, are no messages of that time: a group is set there if the topic is named.
    moved = {place for place in asked if question.topic is not None or kind_of(place.topic) == MESSAGE}
    moved = moved if question.to_time is not None else set()
    for place in sorted(places & {*offsets, *moved}):
        before = offsets.get(place)
        if place in moved and question.to_time is not None:
            after, why = queues.offset_at(place, question.to_time)
        else:
            after, why = _within(before or 0, queues.known(place.topic, place.queue_id))
        offsets[place] = after
        if after != before:
            result.changes.append(OffsetChange(*place, before, after, why))
    write_new("--out", question.out, json.dumps(consumer_offsets.made(offset_files, offsets, databases), indent=1))
    result.out = question.out


def _tell_of_database(offset_files: Sequence[OffsetFile], notes: Notes) -> None:
    """Say whether a broker that keeps offsets in RocksDB takes a new file in (``RocksDBConsumerOffsetManager.merge``)."""
    for file in {file.path: file for file in offset_files}.values():
        if file.in_rocksdb and files.base(file.path) == NUMBERED:
            text = f"{escape(file.path)}: a broker with configManagerVersion=v2 takes no file in: set its offsets by mqadmin"
            notes.add("in RocksDB", text, lost=False)
        elif file.in_rocksdb:
            notes.say(f"{escape(file.path)}: a broker that keeps offsets there takes the new file in when it starts")


def _within(offset: int, known: KnownQueue | None) -> tuple[int, str]:
    """Return an offset that the queue has, and why it is another one than the file's."""
    if known is None:
        return 0, "the store has no such queue"
    if not known.is_read:
        return offset, ""
    if offset > known.end:
        return known.end, "the queue ends there"
    return (known.first, "the queue begins there") if offset < known.first else (offset, "")
