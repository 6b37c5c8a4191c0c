"""The queues of a store, and the messages of one: through ConsumeQueue or batch ConsumeQueue files, or through RocksDB."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from rocketmq_reindex import files
from rocketmq_reindex.jobs.store.contents import EXPIRED, StoreLog
from rocketmq_reindex.jobs.store.folders import Notes, entries
from rocketmq_reindex.jobs.store.settings import rocksdb_queues
from rocketmq_reindex.storage_format import errors, layouts, showing
from rocketmq_reindex.storage_format.queue.units import (
    EMPTY,
    MISSING,
    PRE_BLANK,
    ROCKSDB_UNIT_SIZE,
    UNIT,
    UNIT_SIZE,
    QueueUnits,
    Unit,
)
from rocketmq_reindex.storage_format.record.message import Message
from rocketmq_reindex.storage_format.showing import escape
from rocketmq_reindex.storage_format.topics import LMQ_PREFIX, path_component
from rocketmq_reindex.udfs.times import show_time

if TYPE_CHECKING:
    from rocketmq_reindex.udfs.queue_database import QueueDatabase, QueueName


# ------------------------------------------------------------------------------------------------------------------ queue units


class UnitSource(Protocol):
    """The units of one queue, and what to call the place where they stand."""

    batch: bool
    """whether these are units of a batch ConsumeQueue"""
    units: QueueUnits
    place: str
    """escaped"""
    part: str
    """the folder in the store of all such queues"""
    missing: str
    """what is said of a unit that is not there"""

    @property
    def sizes(self) -> list[int]:
        """The bytes of each file."""

    def close(self) -> None:
        """Close what is open for this queue alone."""


def _start(entry: files.Entry) -> int | None:
    """Return the first logical byte of a queue's file, by its name."""
    return layouts.first_byte(entry.name) if entry.kind == files.FILE else None


class FileUnits:
    """Units in ConsumeQueue or batch ConsumeQueue files. What cannot be read is added to ``notes``."""

    missing = "lies in a part of the queue's files that is missing"

    def __init__(self, folder: str, batch: bool, notes: Notes) -> None:
        self.place, self.batch, self._notes = showing.escape(folder), batch, notes
        self.part = layouts.BATCH_QUEUES if batch else layouts.QUEUES
        self._entries = []
        for entry in entries(folder, notes) or []:
            if _start(entry) is None:
                notes.add(
                    "not a file of the queue", f"{showing.escape(entry.path)}: is no file of a queue: not looked at", lost=False
                )
            else:
                self._entries.append(entry)
        self._entries.sort(key=lambda entry: entry.name)
        self._pages: dict[int, files.Pages | None] = {}
        self.units = QueueUnits([(int(e.name), e.size) for e in self._entries], self._read, batch)

    @property
    def has_files(self) -> bool:
        """Whether the queue has any file."""
        return bool(self._entries)

    @property
    def sizes(self) -> list[int]:
        """The bytes of each file."""
        return [entry.size for entry in self._entries]

    def _read(self, number: int, at: int, count: int) -> bytes:
        if number not in self._pages:
            self._pages[number] = self._open(self._entries[number].path)
        pages = self._pages[number]
        try:
            return pages.read(at, count) if pages is not None else b""
        except (OSError, errors.InputError) as error:
            self._unread(self._entries[number].path, error)
            self._pages[number] = None
            return b""

    def _open(self, path: str) -> files.Pages | None:
        try:
            return files.Pages(path)
        except (OSError, errors.InputError) as error:
            self._unread(path, error)
            return None

    def _unread(self, path: str, error: Exception) -> None:
        self._notes.add("unreadable queue file", f"{showing.escape(path)}: {showing.reason(error)}")

    def close(self) -> None:
        """Close the files."""
        for pages in self._pages.values():
            if pages is not None:
                pages.close()


class DatabaseUnits:
    """Units in RocksDB (``RocksDBConsumeQueueTable``, 5.3.3). What cannot be read is added to ``notes``.

    A broker serves a queue up to the end that the database names. Units may stand behind it: new ones replace them.
    """

    missing = "has no unit in RocksDB"
    batch = False

    def __init__(self, database: QueueDatabase, queue: QueueName, notes: Notes) -> None:
        """Take a queue that the database has."""
        name = queue.topic.decode("utf-8", "surrogateescape")
        self.place = f"{database.shown}: {showing.escape(name)}/{queue.queue_id}"
        self.part = files.base(database.folder)
        self._database, self._queue, self._notes = database, queue, notes
        stop, first = database.stop(queue), database.first(queue)
        self._first = stop if first is None else min(first, stop)
        span = [(self._first * UNIT_SIZE, (stop - self._first) * UNIT_SIZE)] if stop > self._first else []
        self.sizes = [size for _, size in span]
        self.units = QueueUnits(span, self._read, behind_gap=self._behind_gap)

    def _read(self, _number: int, at: int, count: int) -> bytes:
        try:
            value = self._database.value(self._queue, self._first + at // UNIT_SIZE)
        except errors.InputError as error:
            self._notes.add("unreadable unit", str(error))
            return b""
        return value[:count] if value is not None and len(value) == ROCKSDB_UNIT_SIZE else b""

    def _behind_gap(self, position: int) -> int:
        try:
            found = self._database.first(self._queue, position + 1)
        except errors.InputError:
            return position + 1
        # The end that the database names may be far behind its last unit.
        return max(position + 1, self.units.stop) if found is None else found

    def close(self) -> None:
        """Do nothing: other queues are in the same database."""


# -------------------------------------------------------------------------------------------------------------- served messages
# What a search finds.


class ServedMessage(NamedTuple):
    """A message, and the queue offset at which its queue serves it. The offset is None where no queue was asked.

    The offset should be the record's own QUEUEOFFSET.
    """

    message: Message
    queue_offset: int | None


# ------------------------------------------------------------------------------------------------------------------------ queue

_WHY: Final = {
    PRE_BLANK: "stands before the queue's first message (pre-blank)",
    EMPTY: "has no unit (zeros stand there)",
}


class StoreQueue:
    """One queue of a store. Close it."""

    def __init__(self, source: UnitSource, log: StoreLog, notes: Notes) -> None:
        self.units, self.batch, self.place, self.part = source.units, source.batch, source.place, source.part
        self._source, self._log, self._notes = source, log, notes

    def span(self) -> OffsetSpan | None:
        """Return the queue offsets that the queue's files hold. None for a queue without a unit."""
        unit, first, end = self.last_unit(), self.units.begin, self.units.end
        if unit is None:
            return None
        return OffsetSpan(self.units.at(first).base, unit.base + unit.messages) if self.batch else OffsetSpan(first, end)

    def last_unit(self) -> Unit | None:
        """Return the queue's last unit, of any kind; None where it has none."""
        return self.units.at(self.units.end - 1) if self.units.end > self.units.begin else None

    def last_stored(self) -> str:
        """Return when the queue's last message was stored, as the end of a clause; "" where that cannot be read."""
        unit = self.last_unit()
        message = "" if unit is None else self._log.message(unit.phy_offset)
        return "" if isinstance(message, str) else f": the last message was stored at {show_time(message.store_time)}"

    def _message(self, unit: Unit) -> Message | None:
        message = self._log.message(unit.phy_offset)
        name = f"offset {unit.base}" if self.batch else f"offset {unit.position}"
        if isinstance(message, str):
            self._notes.add(
                "unit without a record",
                f"{name}: its unit points to {unit.phy_offset}, which {message}",
                lost=message != EXPIRED,
            )
            return None
        if message.size != unit.size:
            self._notes.add("unit of a wrong size", f"{name}: its unit says {unit.size} bytes, the record has {message.size}")
        return message

    def from_position(self, position: int, until: int | None = None) -> Iterator[ServedMessage]:
        """Yield every message from a unit on that can be read, to the end or below the offset ``until``. The rest is noted."""
        end = self.units.end
        if until is not None and not self.batch:
            end = min(end, until)
        while position < end:
            unit = self.units.at(position)
            if unit.kind == UNIT:
                if until is not None and unit.base >= until:
                    return
                message = self._message(unit)
                if message is not None:
                    yield ServedMessage(message, unit.base)
                position += 1
                continue
            stop = min(self.units.behind_gap(position), end)
            while stop < end and self.units.at(stop).kind == unit.kind:
                stop = self.units.behind_gap(stop)
            stop = min(stop, end)
            self._gap(unit.kind, position, stop)
            position = stop

    def _gap(self, kind: str, position: int, stop: int) -> None:
        offsets = f"offsets {position} to {stop - 1}" if stop - position > 1 else f"offset {position}"
        why = self._source.missing if kind == MISSING else _WHY.get(kind, "its unit is broken")
        self._notes.add("offset without a message", f"{offsets}: {why}", lost=kind != PRE_BLANK)

    def position_at_time(self, time: int, every: bool) -> int:
        """Return the position of the first unit whose record was stored at ``time`` or later.

        This is a binary search, as in ``ConsumeQueue.getOffsetInQueueByTime`` of 5.3.3. It relies on times that rise.
        With ``every`` all units are read instead. Records that have expired are older than all others.
        """

        def reached(unit: Unit) -> bool | None:
            if unit.phy_offset < self._log.start:
                return False
            message = self._log.message(unit.phy_offset)
            return None if isinstance(message, str) else message.store_time >= time

        if not every:
            return self.units.first_where(reached)
        position, end = self.units.begin, self.units.end
        while position < end:
            unit = self.units.at(position)
            if unit.kind == UNIT and reached(unit):
                return position
            position = position + 1 if unit.kind == UNIT else self.units.behind_gap(position)
        return end

    def close(self) -> None:
        """Close what is open for this queue."""
        self._source.close()


class OffsetSpan(NamedTuple):
    """Queue offsets from ``first`` up to, but not including, ``end``."""

    first: int
    end: int


def behind_log(folder: str, units: str, end: int) -> str:
    """Return what to say of a ``folder`` of queues that has ``units``, both in words, of messages behind the log's end.

    Segments may be missing.
    """
    return (
        f"{folder}: has {units} behind the log's end at {end}: look first for segments at that end: a build lacks their "
        "messages, and after a start without them new messages take their offsets, and they cannot be put back"
    )


# ----------------------------------------------------------------------------------------------------------------------- queues
# All queues of a store: in files, in RocksDB, or in both, as rocksdbCQDoubleWriteEnable writes them.


class StoreQueues:
    """The queues of a store. Close them, which closes no queue that is open.

    A queue that is in files and in RocksDB is read where it goes further, and a note says so where the two differ.
    """

    def __init__(self, store: str, notes: Notes, *, database: bool = True) -> None:
        """Open the queues; without ``database`` those in files alone."""
        self._store, self._notes = store, notes
        self._database: QueueDatabase | None = None
        self.unread, self.broken = "", False
        """why there are queues in RocksDB, and not in files, that cannot be read; whether RocksDB cannot read what it has,
        beside files or alone"""
        found = rocksdb_queues(store) if database else None
        if found is None:
            return
        # It brings numpy.
        from rocketmq_reindex.udfs.queue_database import BUILD_AGAIN, QueueDatabase, is_broken

        try:
            self._database = QueueDatabase(found.folder)
        except errors.InputError as error:
            self.broken = is_broken(error.__cause__)
            text = str(error).removesuffix(BUILD_AGAIN)
            if found.beside:
                notes.add("queues in RocksDB", f"{text}: the ConsumeQueue files beside it are read", lost=False)
            else:
                self.unread = text

    def topics(self) -> list[str]:
        """Return the names of all topics that have a queue."""
        names = self._folders()
        return sorted(names.union(map(_text, self._database.topics())) if self._database else names)

    def _folders(self) -> set[str]:
        """Return the names of the topics that have a folder."""
        listed = (entries(files.join(self._store, kind), self._notes) for kind in (layouts.QUEUES, layouts.BATCH_QUEUES))
        return {entry.name for some in listed for entry in some or () if entry.kind == files.FOLDER}

    def ids(self, topic: str) -> list[int]:
        """Return the numbers of the queues that a topic has."""
        kinds = (layouts.QUEUES, layouts.BATCH_QUEUES) if path_component(topic) else ()
        listed = (entry for kind in kinds for entry in entries(files.join(self._store, kind, topic), self._notes) or [])
        names = [entry.name for entry in listed if entry.kind == files.FOLDER]
        numbers = {int(name) for name in names if name.isascii() and name.isdigit() and name == str(int(name))}
        return sorted(numbers.union(self._database.ids(_bytes(topic))) if self._database else numbers)

    def each(self) -> Iterator[tuple[str, int]]:
        """Yield all queues, by topic and number: light ones last, and those of RocksDB alone behind all others.

        There may be millions of these: none is held.
        """
        folders, in_database = self._folders(), map(_text, self._database.topics() if self._database else ())
        names = folders.union(name for name in in_database if not name.startswith(LMQ_PREFIX))
        for topic in sorted(names, key=lambda name: (name.startswith(LMQ_PREFIX), name)):
            for number in self.ids(topic):
                yield topic, number
        for queue in self._database.queues() if self._database else ():
            if (topic := _text(queue.topic)).startswith(LMQ_PREFIX) and topic not in folders:
                yield topic, queue.queue_id

    def open(self, topic: str, queue_id: int, log: StoreLog, notes: Notes) -> StoreQueue | None:
        """Return a queue, which the caller closes; None where it has no file and is not in RocksDB."""
        in_files, in_database = self._in_files(topic, queue_id, notes), self._in_database(topic, queue_id, notes)
        if in_files is None or in_database is None:
            source = in_files or in_database
            return None if source is None else StoreQueue(source, log, notes)
        ends = in_files.units.end, in_database.units.end
        chosen, other = (in_database, in_files) if ends[1] > ends[0] else (in_files, in_database)
        if ends[0] != ends[1]:
            notes.add(
                "queue of two ends",
                f"{escape(topic)}/{queue_id}: ends at {ends[0]} in its files, at {ends[1]} in RocksDB: {chosen.place} is read",
                lost=False,
            )
        other.close()
        return StoreQueue(chosen, log, notes)

    def _in_files(self, topic: str, queue_id: int, notes: Notes) -> FileUnits | None:
        for kind in (layouts.QUEUES, layouts.BATCH_QUEUES) if path_component(topic) else ():
            folder = files.join(self._store, kind, topic, str(queue_id))
            if files.entry_of(folder).kind == files.FOLDER:
                units = FileUnits(folder, kind == layouts.BATCH_QUEUES, notes)
                return units if units.has_files else None
        return None

    def _in_database(self, topic: str, queue_id: int, notes: Notes) -> DatabaseUnits | None:
        if self._database is None:
            return None
        queue = self._database.queue(_bytes(topic), queue_id)
        return None if self._database.last(queue) is None else DatabaseUnits(self._database, queue, notes)

    def close(self) -> None:
        """Close the database."""
        if self._database is not None:
            self._database.close()


def _text(topic: bytes) -> str:
    return topic.decode("utf-8", "surrogateescape")


def _bytes(topic: str) -> bytes:
    return topic.encode("utf-8", "surrogateescape")
