"""The names and queues that a scanner has met: names are kept from range to range, queues belong to one range."""

from __future__ import annotations

from typing import Final

import numpy as np

from rocketmq_reindex.storage_format.names import LMQ, SEEN, TOPIC
from rocketmq_reindex.storage_format.scan.settings import ScanSettings
from rocketmq_reindex.storage_format.scan.topic_globs import TopicGlobs
from rocketmq_reindex.storage_format.walk import state as w
from rocketmq_reindex.storage_format.walk.lmq import new_lmqs
from rocketmq_reindex.storage_format.walk.name_table import NameTable

UNUSUAL_NAMES_MAX: Final = 20
NAMES_KEPT: Final = 100_000
"""Names that a scanner keeps, counting those of light queues within one range. A broker with many clients has no end of them,
and a record of 32 KiB can name thousands."""
_SLOTS: Final = 1 << 16


class ScanNames:
    """``names`` and ``queues`` as the record loop takes them. ``state`` is that of the loop."""

    def __init__(self, settings: ScanSettings) -> None:
        self._settings = settings
        self._globs = TopicGlobs((*settings.include, *settings.exclude))
        self.names = self._new_names()
        self.queues = w.new_queues(_SLOTS)

    def begin_range(self, state: w.State) -> None:
        """Forget the queues of the range before, and the names where they have become too many."""
        self._state = state
        self.queues = w.new_queues(_SLOTS)
        if len(self.names.texts) > NAMES_KEPT:
            self._meet_names()
            self.names = self._new_names()
        self.names.forget_seen()
        self._lmqs = len(self.names.texts)
        self._unusual: set[str] = set()
        self._queues_before = 0

    def _new_names(self) -> NameTable:
        settings = self._settings
        self._globs_met = 0
        return NameTable(settings.broker_version, settings.include, settings.exclude, settings.batch_topics)

    @property
    def queue_count(self) -> int:
        """Queues in ``queues``."""
        return int(self._state[w.QUEUES])

    @property
    def queues_met(self) -> int:
        """Queues of the whole range."""
        return self._queues_before + self.queue_count

    @property
    def unusual(self) -> list[str]:
        """The first unusual names of the range, sorted."""
        self._unusual.update(self.names.seen_unusual(UNUSUAL_NAMES_MAX))
        return sorted(self._unusual)[:UNUSUAL_NAMES_MAX]

    def _meet_names(self) -> None:
        """Compare the names that are new with the globs. A name with %LMQ% before it is no topic of a record."""
        new = range(self._globs_met, len(self.names.texts))
        self._globs.meet(self.names.texts[k] for k in new if not self.names.arrays.flags[k] & LMQ)
        self._globs_met = len(self.names.texts)

    @property
    def unmatched_globs(self) -> dict[str, list[str]]:
        """The globs of topics that match none that the scanner has met, each with names near it."""
        self._meet_names()
        return self._globs.unmatched()

    @property
    def is_full(self) -> bool:
        """Whether ``renew`` should make room before more names of light queues are added."""
        return self._lmqs >= NAMES_KEPT

    def grow_queues(self) -> None:
        """Make room for twice as many queues."""
        self.queues = w.grown_queues(self.queues, self._state)

    def add_name(self, data: w.Bytes) -> None:
        """Enter the name at which the loop stopped."""
        self.names.add(data[self._state[w.NAME_START] : self._state[w.NAME_END]].tobytes())

    def add_lmqs(self, data: w.Bytes) -> None:
        """Enter all new names of the list at which the loop stopped: for each one alone the record would be walked again."""
        start, end = int(self._state[w.NAME_START]), int(self._state[w.NAME_END])
        found = np.empty(2 * (end - start + 1), np.int64)
        count = int(new_lmqs(data, start, end, self.names.arrays, found))
        new = dict.fromkeys(data[low:high].tobytes() for low, high in found[: 2 * count].reshape(-1, 2).tolist())
        for raw in new:
            self.names.add(raw)
        self._lmqs += len(new)

    def renew(self) -> None:
        """Drop all names but the topics of the range's records, and all queues but theirs."""
        names, queues, count = self.names, self.queues, self.queue_count
        self._meet_names()
        self._unusual.update(names.seen_unusual(UNUSUAL_NAMES_MAX))
        self.names = self._new_names()
        kept = {int(entry): self.names.add(names.raw(entry)) for entry in names.topics()}
        for new in kept.values():
            self.names.arrays.flags[new] |= SEEN | TOPIC
        self._state[w.QUEUES] = 0
        self.queues = w.new_queues(len(queues.slots))
        for k in np.flatnonzero(np.isin(queues.name[:count], list(kept))).tolist():
            w.enter_queue(self.queues, self._state, kept[int(queues.name[k])], int(queues.queue_id[k]))
        self._queues_before += count - self.queue_count
        self._lmqs = 0
