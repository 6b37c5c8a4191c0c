"""Messages of one queue, through its ConsumeQueue or batch ConsumeQueue files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from rocketmq_reindex import files
from rocketmq_reindex.jobs.store.contents import EXPIRED, StoreLog
from rocketmq_reindex.jobs.store.folders import Notes, entries
from rocketmq_reindex.storage_format import errors, layouts, showing
from rocketmq_reindex.storage_format.queue.lookup import EMPTY, MISSING, PRE_BLANK, UNIT, QueueUnits, Unit
from rocketmq_reindex.storage_format.record.message import Message
from rocketmq_reindex.storage_format.topics import path_component
from rocketmq_reindex.udfs.times import show_time

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
    MISSING: "lies in a part of the queue's files that is missing",
}


def _start(entry: files.Entry) -> int | None:
    """Return the first logical byte of a queue's file, by its name."""
    return layouts.first_byte(entry.name) if entry.kind == files.FILE else None


class StoreQueue:
    """One queue of a store."""

    def __init__(self, folder: str, batch: bool, log: StoreLog, notes: Notes) -> None:
        self.folder, self.batch = folder, batch
        self._log, self._notes = log, notes
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
        return bool(self._entries)

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
            stop = position + 1
            while stop < end and self.units.at(stop).kind == unit.kind:
                stop += 1
            self._gap(unit.kind, position, stop)
            position = stop

    def _gap(self, kind: str, position: int, stop: int) -> None:
        offsets = f"offsets {position} to {stop - 1}" if stop - position > 1 else f"offset {position}"
        why = _WHY.get(kind, "its unit is broken")
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
        end = self.units.end
        for position in range(self.units.begin, end):
            unit = self.units.at(position)
            if unit.kind == UNIT and reached(unit):
                return position
        return end

    def close(self) -> None:
        for pages in self._pages.values():
            if pages is not None:
                pages.close()


class ListedFolder(NamedTuple):
    """The folder of a queue; ``batch``: of batch ConsumeQueue files."""

    path: str
    batch: bool


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


def queue_folder(store: str, topic: str, queue: int) -> ListedFolder | None:
    """Return the folder of a queue in a store. None where the queue has no folder."""
    for kind in (layouts.QUEUES, layouts.BATCH_QUEUES):
        folder = files.join(store, kind, topic, str(queue))
        if files.entry_of(folder).kind == files.FOLDER:
            return ListedFolder(folder, kind == layouts.BATCH_QUEUES)
    return None


def open_queue(store: str, topic: str, queue_id: int, log: StoreLog, notes: Notes) -> StoreQueue | None:
    """Return a queue of a store, which the caller closes; None where it has no files, or none that its topic could have."""
    folder = queue_folder(store, topic, queue_id) if path_component(topic) else None
    queue = StoreQueue(*folder, log, notes) if folder else None
    return queue if queue is not None and queue.has_files else None


def queue_ids(store: str, topic: str, notes: Notes) -> list[int]:
    """Return the numbers of the queues that a topic has in a store."""
    kinds = (layouts.QUEUES, layouts.BATCH_QUEUES) if path_component(topic) else ()
    listed = (entry for kind in kinds for entry in entries(files.join(store, kind, topic), notes) or [])
    names = [entry.name for entry in listed if entry.kind == files.FOLDER]
    return sorted({int(name) for name in names if name.isascii() and name.isdigit() and name == str(int(name))})


def topics(store: str, notes: Notes) -> list[str]:
    """Return the names of all topics that have a queue."""
    names = set()
    for kind in (layouts.QUEUES, layouts.BATCH_QUEUES):
        names |= {entry.name for entry in entries(files.join(store, kind), notes) or [] if entry.kind == files.FOLDER}
    return sorted(names)
