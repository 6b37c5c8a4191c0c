"""The folders of a store as a preflight reads them: their entries, bytes that are mapped on demand, and a spool for rows."""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex import files
from rocketmq_reindex.files.entries import MADV_POPULATE_READ, open_regular
from rocketmq_reindex.files.systems import naming
from rocketmq_reindex.jobs.store import config_databases
from rocketmq_reindex.jobs.store.folders import Notes
from rocketmq_reindex.jobs.store.owner import LOCK, holder
from rocketmq_reindex.storage_format import errors, layouts, showing, topics
from rocketmq_reindex.storage_format.broker_start.listing import FILE, FOLDER, OTHER, Listed, ListedQueue, Listing, QueueColumns
from rocketmq_reindex.storage_format.broker_start.store import IndexFileData, StoreFile

# ------------------------------------------------------------------------------------------------------------------------ spool
# Room for what a preflight keeps of each record: a little of it in memory, then a file without a name in TMPDIR.

_IN_MEMORY: Final = 16 << 20
"""bytes: what a log of some 150,000 to 300,000 records needs"""


class TemporarySpool:
    """A ``broker_start.kept.Spool``, as a context manager. Nothing of it is left behind, however the process ends."""

    def __init__(self) -> None:
        self._kept = tempfile.SpooledTemporaryFile(_IN_MEMORY, prefix="rmq-reindex-")  # noqa: SIM115  closed by __exit__
        self._size = 0

    def put(self, data: bytes) -> int:
        """Keep bytes. Return their place. Raises InputError where there is no room."""
        place = self._size
        try:
            self._kept.seek(place)
            self._kept.write(data)
        except OSError as error:
            raise _no_room(error) from error
        self._size += len(data)
        return place

    def get(self, place: int, size: int) -> npt.NDArray[np.uint8]:
        """Return ``size`` bytes, uint8, from a place on."""
        self._kept.seek(place)
        return np.frombuffer(bytearray(self._kept.read(size)), np.uint8)

    def room(self, size: int) -> npt.NDArray[np.uint8]:
        """Return a new array, uint8 (size,), of zeros, which lies in a file of its own. Raises InputError where there is no
        room."""
        try:
            with tempfile.TemporaryFile(prefix="rmq-reindex-") as file:
                # To write to a mapped file on a full disk is a signal, and no error.
                os.posix_fallocate(file.fileno(), 0, size)
                return np.frombuffer(mmap.mmap(file.fileno(), size), np.uint8)
        except OSError as error:
            raise _no_room(error) from error

    def __enter__(self) -> TemporarySpool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._kept.close()


def _no_room(error: OSError) -> errors.InputError:
    return errors.InputError(
        f"{showing.escape(tempfile.gettempdir())}: {error.strerror}: while preflight runs, up to 120 bytes of each record lie "
        "there: set TMPDIR to a folder with room"
    )


# ---------------------------------------------------------------------------------------------------------------------- mapping
# The bytes of a store's files, mapped when they are asked for, so that only what a start reads comes from the disk.

Bytes = npt.NDArray[np.uint8]
_MAPPED_MAX: Final = 256
"""Files that are mapped at once: each mapping holds a handle."""
_FLAGS: Final = mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", 0)
_PROTECTION: Final = mmap.PROT_READ | mmap.PROT_WRITE
"""Never written to: to compiled loops a read-only array is another type."""


class Maps:
    """Mapped files, the latest used of them; each with the size that it had when it was listed."""

    def __init__(self) -> None:
        self._held: OrderedDict[str, tuple[mmap.mmap, Bytes]] = OrderedDict()

    def get(self, path: str, size: int) -> Bytes:
        """Return ``size`` bytes of a file. Raises OSError, and InputError for one that is shorter by now, or no regular
        file."""
        return self._mapped(path, size)[1]

    def _mapped(self, path: str, size: int) -> tuple[mmap.mmap, Bytes]:
        mapped = self._held.get(path)
        if mapped is None:
            mapped = self._held[path] = self._map(path, size)
            if len(self._held) > _MAPPED_MAX:
                self._held.popitem(last=False)
            return mapped
        self._held.move_to_end(path)
        with naming(path):
            # To touch what a file has lost is a signal, and no error.
            if mapped[0].size() < size:
                raise _shorter(path)
        return mapped

    @staticmethod
    def _map(path: str, size: int) -> tuple[mmap.mmap, Bytes]:
        handle = open_regular(path)
        try:
            with naming(path):
                if os.fstat(handle).st_size < size:
                    raise _shorter(path)
                mapped = mmap.mmap(handle, size, flags=_FLAGS, prot=_PROTECTION)
                return mapped, np.frombuffer(mapped, np.uint8)
        finally:
            os.close(handle)

    def load(self, path: str, size: int, low: int, high: int) -> None:
        """Load the pages of bytes ``low`` to ``high`` of a mapped file. Raises the same."""
        mapped, _ = self._mapped(path, size)
        low -= low % mmap.PAGESIZE
        try:
            if low < high:
                mapped.madvise(MADV_POPULATE_READ, low, high - low)
        except OSError as error:
            if error.errno in (errno.EFAULT, errno.ENOMEM):
                raise _shorter(path) from None
            if error.errno != errno.EINVAL:  # an older Linux
                raise OSError(error.errno, error.strerror or os.strerror(error.errno or 0), path) from error

    def parts(self, path: str, size: int, low: int) -> Iterator[tuple[int, int]]:
        """Yield first byte and end of each part of a file from byte ``low`` on that is no hole. Raises OSError."""
        with files.Reader(path) as reader:
            while low < size:
                begin, end = reader.next_part(low)
                if begin < size:
                    yield begin, min(end, size)
                low = end

    def let_go(self, path: str, low: int, high: int) -> None:
        """Take the pages of bytes ``low`` to ``high`` out of this process: the page cache keeps them."""
        if path in self._held:
            mapped, data = self._held[path]
            low -= low % mmap.PAGESIZE
            high = min(high, len(data))
            if low < high:
                mapped.madvise(mmap.MADV_DONTNEED, low, high - low)


def _shorter(path: str) -> errors.InputError:
    return errors.InputError(f"{showing.escape(path)}: is shorter than it was a moment ago: {CHANGED}")


CHANGED: Final = "the store changes while it is read: stop the broker, or take a snapshot"


class MappedFile(StoreFile):
    """A file of the commitlog or of a queue whose bytes are mapped when they are asked for."""

    def __init__(self, name: str, path: str, size: int, maps: Maps, lead: int = 0) -> None:
        for field, value in (("name", name), ("_path", path), ("_size", size), ("_maps", maps), ("lead", lead)):
            object.__setattr__(self, field, value)

    _path: str
    _size: int
    _maps: Maps

    @property
    def data(self) -> Bytes:
        """The bytes, uint8."""
        return self._maps.get(self._path, self._size)

    @property
    def size(self) -> int:
        """The bytes of the file."""
        return self._size

    def parts(self, low: int) -> Iterator[tuple[int, int]]:
        """Return each part from byte ``low`` on that is no hole."""
        return self._maps.parts(self._path, self._size, low)

    def load(self, low: int, high: int) -> None:
        """Have bytes ``low`` to ``high`` loaded. Raises OSError, and InputError where the file is shorter by now."""
        self._maps.load(self._path, self._size, low, high)

    def let_go(self, low: int, high: int) -> None:
        """Take bytes ``low`` to ``high`` out of this process."""
        self._maps.let_go(self._path, low, high)


class MappedIndex(IndexFileData):
    """An IndexFile, mapped likewise, at most as much of it as the broker maps."""

    def __init__(self, name: str, path: str, size: int, whole: int, maps: Maps) -> None:
        for field, value in (("name", name), ("_path", path), ("_size", size), ("_whole", whole), ("_maps", maps)):
            object.__setattr__(self, field, value)

    _path: str
    _size: int
    _whole: int
    _maps: Maps

    @property
    def data(self) -> Bytes:
        """The bytes, uint8."""
        mapped_size = min(self._size, self._whole)
        return self._maps.get(self._path, mapped_size) if mapped_size else np.zeros(0, np.uint8)

    def let_go(self, low: int, high: int) -> None:
        """Take bytes ``low`` to ``high`` out of this process."""
        self._maps.let_go(self._path, low, high)


# ---------------------------------------------------------------------------------------------------------------------- folders
# What lies in the folders of a store, as a broker lists them; nothing is opened but the lock and topics.json.

TOPICS: Final = "config/topics.json"
ENTRIES_MAX: Final = 5_000_000
"""files and folders that are listed at most: beyond that it is no store, or nothing is said in seconds"""


class StoreFolders:
    """The folders of one store. ``notes`` are sentences about what is passed over."""

    def __init__(self, store: str, roots: Sequence[str], timers: bool, ext: bool, entries: str = "") -> None:
        """Without ``timers`` (``timerWheelEnable``) the files of timer messages are not looked at, and without ``ext``
        (``enableConsumeQueueExt``) those in consumequeue_ext. ``entries`` is the folder with the log of a node of DLedger."""
        self._store, self._timers, self._ext, self._of_dledger = store, timers, ext, entries
        self._roots = [root for root in roots if root != entries]
        self._entry_index = os.path.join(os.path.dirname(entries), "index") if entries else ""
        self._left = ENTRIES_MAX
        self.notes: list[str] = []

    def listing(self) -> Listing:
        """Return a list of all. Raises OSError for a folder that cannot be listed, InputError for too many entries."""
        if files.entry_of(self._store).kind != files.FOLDER:
            raise errors.InputError(f"{showing.escape(self._store)}: is not a folder: name the broker's store")
        self._check_folders()
        lock = self._place(LOCK)
        return Listing(
            segments=[entry for root in self._roots for entry in self._entries(root, self._named(root))],
            queues=self._all_queues((layouts.QUEUES, False), (layouts.BATCH_QUEUES, True)),
            ext=self._all_queues((layouts.EXT_QUEUES, False)) if self._ext else (),
            indexes=list(self._entries(os.path.join(self._store, "index"), "index")),
            checkpoint=self._place("checkpoint"),
            lock=lock,
            lock_holder=holder(self._store) if lock is not None and lock.kind == FILE else None,
            timer_log=list(self._entries(os.path.join(self._store, "timerlog"), "timerlog")) if self._timers else [],
            timer_wheel=self._place("timerwheel") if self._timers else None,
            timer_check=self._place("config/timercheck") if self._timers else None,
            abort=self._place("abort"),
            queue_types=self._queue_types(),
            entries=self._all_of(self._of_dledger),
            entry_index=self._all_of(self._entry_index),
        )

    def has_abort(self) -> bool:
        """Return whether the last stop was unclean (``DefaultMessageStore.isTempFileExist``)."""
        return os.path.exists(os.path.join(self._store, "abort"))

    def config(self, name: str) -> Any:
        """Return what a file in config/ holds, or its copy where it has none (``ConfigManager.load``); None for neither."""
        for path in (f"config/{name}", f"config/{name}.bak"):
            full = os.path.join(self._store, path)
            if not os.path.exists(full):
                continue
            try:
                text = files.read_bytes(full, files.CONFIG_MAX).decode("utf-8", "replace")
                if text:
                    return layouts.loads(text)
            except errors.InputError as error:
                self.notes.append(str(error))
            except (ValueError, RecursionError):
                self.notes.append(f"{path}: is no JSON: a broker takes {path}.bak instead, and 5.x removes the file")
        return None

    def _all_of(self, folder: str) -> list[Listed]:
        return list(self._entries(folder, self._named(folder))) if folder else []

    def _named(self, folder: str) -> str:
        """Return a folder as messages name it: from the store on, where it lies in it."""
        inside = os.path.relpath(folder, self._store)
        return folder if inside.startswith("..") else inside

    def _place(self, name: str) -> Listed | None:
        full = os.path.join(self._store, name)
        return self._listed(full, name) if os.path.lexists(full) else None

    def _listed(self, full: str, path: str) -> Listed:
        entry = files.entry_of(full)
        kind = {files.FILE: FILE, files.FOLDER: FOLDER}.get(entry.kind, OTHER)
        return Listed(entry.name, path, kind, entry.size, entry.modified if kind == FILE else 0)

    def _entries(self, folder: str, path: str) -> Iterator[Listed]:
        """Yield the entries of a folder, none where it is no folder (``File.listFiles`` is null then)."""
        if files.entry_of(folder).kind != files.FOLDER:
            return
        entry_names = os.listdir(folder)
        self._left -= len(entry_names)
        if self._left < 0:
            raise errors.InputError(
                f"{showing.escape(self._store)}: has more than {ENTRIES_MAX:,} files: name a broker's store"
            )
        for name in sorted(entry_names):
            yield self._listed(os.path.join(folder, name), f"{path}/{name}")

    def _all_queues(self, *parts: tuple[str, bool]) -> Sequence[ListedQueue]:
        columns = QueueColumns()
        for part, batch in parts:
            for queue in self._queues(part, batch):
                columns.add(queue)
        return columns.queues()

    def _queues(self, part: str, batch: bool) -> Iterator[ListedQueue]:
        for topic in self._entries(os.path.join(self._store, part), part):
            for queue in self._entries(os.path.join(self._store, part, topic.name), topic.path):
                under = os.path.join(self._store, part, topic.name, queue.name)
                within = list(self._entries(under, queue.path)) if queue.kind == FOLDER else None
                yield ListedQueue(topic.name, queue.name, queue.path, within, batch)

    def _check_folders(self) -> None:
        """Raise InputError for a folder of the store that is none: a broker starts, and fails later."""
        for place in (
            *self._roots,
            *filter(None, [self._of_dledger, self._entry_index]),
            *(os.path.join(self._store, part) for part in layouts.FOLDERS),
        ):
            if os.path.lexists(place) and files.entry_of(place).kind != files.FOLDER:
                raise errors.InputError(
                    f"{showing.escape(place)}: is no folder: preflight does not know what a broker then does: move it away"
                )

    def _queue_types(self) -> dict[str, str]:
        """Return ``queue.type`` of the topics that have it (``QueueTypeUtils.getCQType``)."""
        kept = config_databases.topics(self._store, Notes(self.notes.append))
        config_file = self.config(os.path.basename(TOPICS)) if kept is None else kept.said
        table = config_file.get("topicConfigTable") if isinstance(config_file, dict) else None
        types = dict[str, str]()
        for name, config in table.items() if isinstance(table, dict) else ():
            attributes = config.get("attributes") if isinstance(config, dict) else None
            if isinstance(attributes, dict) and topics.QUEUE_TYPE in attributes:
                types[name] = str(attributes[topics.QUEUE_TYPE])
        return types
