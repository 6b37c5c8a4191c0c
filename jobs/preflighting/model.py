"""The files that a start loads, as the model of the start takes them."""

from __future__ import annotations

import os
from collections.abc import Iterable

from rocketmq_reindex.jobs.preflighting.mapping import MappedFile, MappedIndex, Maps
from rocketmq_reindex.jobs.preflighting.settings import PreflightSettings
from rocketmq_reindex.jobs.preflighting.sizes import StoreSizes
from rocketmq_reindex.storage_format.start.listing import FILE, Listed, Listing
from rocketmq_reindex.storage_format.start.loading import LoadedQueue, Loading
from rocketmq_reindex.storage_format.start.on_demand import OnDemand
from rocketmq_reindex.storage_format.start.store import QueueFolder, StartSettings, Store, StoreFile
from rocketmq_reindex.storage_format.topics import BATCH_QUEUE
from rocketmq_reindex.udfs import files

_CHECKPOINT_MAX = 4096
"""bytes that are mapped (``StoreCheckpoint``)"""


class StoreFiles:
    """The files of one store by their entries."""

    def __init__(self, store: str, maps: Maps) -> None:
        self._store, self._maps = store, maps

    def place(self, entry: Listed) -> str:
        """The path of an entry."""
        return os.path.join(self._store, entry.path)

    def mapped(self, entries: Iterable[Listed]) -> list[StoreFile]:
        """Files of the commitlog, a queue or timerlog."""
        return [MappedFile(entry.name, self.place(entry), entry.size, self._maps) for entry in entries]

    def head(self, entry: Listed | None, most: int = _CHECKPOINT_MAX) -> bytes | None:
        """The first bytes of a small file; None where there is none."""
        if entry is None or entry.kind != FILE:
            return None
        with files.Reader(self.place(entry)) as reader:
            return reader.read(0, min(reader.size(), most))

    def _folder(self, queue: LoadedQueue) -> QueueFolder:
        return QueueFolder(queue.topic, queue.queue, self.mapped(queue.files), queue.batch)

    def store(self, listing: Listing, loading: Loading, sizes: StoreSizes) -> Store:
        """All of them, as the model takes them."""
        whole = sizes.index_file
        return Store(
            segments=self.mapped(loading.segments),
            queues=OnDemand(len(loading.queues), lambda number: self._folder(loading.queues[number])),
            indexes=[MappedIndex(e.name, self.place(e), e.size, whole, self._maps) for e in loading.indexes],
            checkpoint=self.head(listing.checkpoint),
            batch_topics=frozenset(topic for topic, kind in listing.queue_types.items() if kind == BATCH_QUEUE),
        )


def start_settings(settings: PreflightSettings, abnormal: bool, sizes: StoreSizes) -> StartSettings:
    """The settings of the start, from those of the broker."""
    return StartSettings(
        settings.release,
        abnormal,
        segment_size=sizes.files.segment,
        cq_file_size=sizes.files.queue,
        batch_cq_file_size=sizes.files.batch,
        hash_slots=sizes.hash_slots,
        index_items=sizes.index_items,
        **settings.broker.start,  # type: ignore[arg-type]  # by the names of StartSettings
    )
