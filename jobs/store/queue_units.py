"""Where the units of one queue stand: in the files of a folder, or in a RocksDB database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rocketmq_reindex import files
from rocketmq_reindex.jobs.store.folders import Notes, entries
from rocketmq_reindex.storage_format import errors, layouts, showing
from rocketmq_reindex.storage_format.queue.lookup import QueueUnits
from rocketmq_reindex.storage_format.queue.units import ROCKSDB_UNIT_SIZE, UNIT_SIZE

if TYPE_CHECKING:
    # It brings numpy.
    from rocketmq_reindex.udfs.queue_database import QueueDatabase, QueueName


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
