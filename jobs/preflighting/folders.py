"""What lies in the folders of a store, as a broker lists them; nothing is opened but the lock and topics.json."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, Final

from rocketmq_reindex.jobs.store.lock import LOCK, holder
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.start.listed_queues import QueueColumns
from rocketmq_reindex.storage_format.start.listing import FILE, FOLDER, OTHER, Listed, ListedQueue, Listing
from rocketmq_reindex.storage_format.text import fast_json
from rocketmq_reindex.storage_format.topics import QUEUE_TYPE
from rocketmq_reindex.udfs import files

TOPICS: Final = "config/topics.json"
ENTRIES_MAX: Final = 5_000_000
"""files and folders that are listed at most: beyond that it is no store, or nothing is said in seconds"""
_PARTS: Final = ("consumequeue", "batchconsumequeue", "index", "config")


class StoreFolders:
    """The folders of one store. ``notes`` are sentences about what is passed over."""

    def __init__(self, store: str, roots: Sequence[str], timers: bool) -> None:
        """Without ``timers`` (``timerWheelEnable``) the files of timer messages are not looked at."""
        self._store, self._roots, self._timers = store, roots, timers
        self._left = ENTRIES_MAX
        self.notes: list[str] = []

    def listing(self) -> Listing:
        """List all. Raises OSError for a folder that cannot be listed, InputError for too many entries."""
        if files.entry_of(self._store).kind != files.FOLDER:
            raise InputError(f"{escape(self._store)}: is not a folder: name the broker's store")
        self._check_folders()
        lock = self._place(LOCK)
        return Listing(
            segments=[entry for root in self._roots for entry in self._entries(root, self._named(root))],
            queues=self._all_queues(),
            indexes=list(self._entries(os.path.join(self._store, "index"), "index")),
            checkpoint=self._place("checkpoint"),
            lock=lock,
            lock_holder=holder(self._store) if lock is not None and lock.kind == FILE else None,
            timer_log=list(self._entries(os.path.join(self._store, "timerlog"), "timerlog")) if self._timers else [],
            timer_wheel=self._place("timerwheel") if self._timers else None,
            timer_check=self._place("config/timercheck") if self._timers else None,
            abort=self._place("abort"),
            queue_types=self._queue_types(),
        )

    def has_abort(self) -> bool:
        """Whether the last stop was unclean (``DefaultMessageStore.isTempFileExist``)."""
        return os.path.exists(os.path.join(self._store, "abort"))

    def config(self, name: str) -> Any:
        """What a file in config/ holds, or its copy where it has none (``ConfigManager.load``); None for neither."""
        for path in (f"config/{name}", f"config/{name}.bak"):
            full = os.path.join(self._store, path)
            if not os.path.exists(full):
                continue
            try:
                text = files.read_bytes(full, files.CONFIG_MAX).decode("utf-8", "replace")
                if text:
                    return fast_json.loads(text)
            except InputError as error:
                self.notes.append(str(error))
            except (ValueError, RecursionError):
                self.notes.append(f"{path}: is no JSON: a broker takes {path}.bak instead, and 5.x removes the file")
        return None

    def _named(self, folder: str) -> str:
        """A folder as messages name it: from the store on, where it lies in it."""
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
        """The entries of a folder, none where it is no folder (``File.listFiles`` is null then)."""
        if files.entry_of(folder).kind != files.FOLDER:
            return
        found = os.listdir(folder)
        self._left -= len(found)
        if self._left < 0:
            raise InputError(f"{escape(self._store)}: has more than {ENTRIES_MAX:,} files: name a broker's store")
        for name in sorted(found):
            yield self._listed(os.path.join(folder, name), f"{path}/{name}")

    def _all_queues(self) -> Sequence[ListedQueue]:
        found = QueueColumns()
        for part, batch in (("consumequeue", False), ("batchconsumequeue", True)):
            for queue in self._queues(part, batch):
                found.add(queue)
        return found.queues()

    def _queues(self, part: str, batch: bool) -> Iterator[ListedQueue]:
        for topic in self._entries(os.path.join(self._store, part), part):
            for queue in self._entries(os.path.join(self._store, part, topic.name), topic.path):
                under = os.path.join(self._store, part, topic.name, queue.name)
                within = list(self._entries(under, queue.path)) if queue.kind == FOLDER else None
                yield ListedQueue(topic.name, queue.name, queue.path, within, batch)

    def _check_folders(self) -> None:
        """Raises InputError for a folder of the store that is none: a broker starts, and fails later."""
        for place in (*self._roots, *(os.path.join(self._store, part) for part in _PARTS)):
            if os.path.lexists(place) and files.entry_of(place).kind != files.FOLDER:
                raise InputError(
                    f"{escape(place)}: is no folder: preflight does not know what a broker then does: move it away"
                )

    def _queue_types(self) -> dict[str, str]:
        """``queue.type`` of the topics that have it (``QueueTypeUtils.getCQType``)."""
        found = self.config(os.path.basename(TOPICS))
        table = found.get("topicConfigTable") if isinstance(found, dict) else None
        types = dict[str, str]()
        for name, config in table.items() if isinstance(table, dict) else ():
            attributes = config.get("attributes") if isinstance(config, dict) else None
            if isinstance(attributes, dict) and QUEUE_TYPE in attributes:
                types[name] = str(attributes[QUEUE_TYPE])
        return types
