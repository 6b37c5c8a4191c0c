"""The settings of a scan, the names that it has met, and the blocks that it hands out."""

import fnmatch
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format import layouts, showing, versions
from rocketmq_reindex.storage_format.record import loop, name_table, state as w, window as walk_window
from rocketmq_reindex.storage_format.record.layout import CRC_BODY
from rocketmq_reindex.storage_format.record.message import store_time_at
from rocketmq_reindex.storage_format.topics import LMQ, SEEN, TOPIC

# --------------------------------------------------------------------------------------------------------------------- settings
# What a scan is asked for, and what it hands out block by block.

CHUNK: Final = 32 << 20


@dataclass(frozen=True)
class ScanSettings:
    """What a scan looks for and how it reads.

    Times are milliseconds since 1970, ``delays`` the milliseconds of each delay level from 1 on. ``window`` is the length in
    milliseconds of the time windows by which IndexFiles are cut, 0 for none. ``search_crc`` is what a record that is searched
    for must pass besides ``crc_mode``. ``mark_tags``: TAGS give items whatever the version, with marks that tell them apart
    (``record.state.MARKED_TAGS``). ``chunk`` is bytes that are read at once, ``block_rows`` the most rows of a block.
    """

    crc_mode: int = CRC_BODY
    broker_version: str = versions.NEWEST
    lmq: bool = False
    strict_lmq: bool = False
    """a record whose light queues stop the broker that dispatches it is damage"""
    need_crc: bool = False
    """a record without ``__CRC32#`` is damage (``forceVerifyPropCRC``)"""
    delays: tuple[int, ...] = (1000,)
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    until_time: int = layouts.INT64_MAX
    committed: int = layouts.INT64_MAX
    """the index of the last entry of DLedger that is committed"""
    want_units: bool = True
    want_items: bool = True
    mark_tags: bool = False
    want_topics: bool = False
    want_messages: bool = False
    want_digests: bool = True
    search_crc: int = CRC_BODY
    batch_topics: tuple[str, ...] = ()
    window: int = 0
    stop_at_damage: bool = False
    chunk: int = CHUNK
    block_rows: int = 1 << 20
    beats: bool = False
    """blocks without rows are handed out while a record is searched for behind damage, too: who counts the time can stop"""


@dataclass(frozen=True)
class Block:
    """Units, index items and records met since the block before, as views that the next block overwrites.

    ``data`` uint8 is the log from absolute offset ``base`` on: all of ``messages`` lie in it.
    """

    units: w.UnitArrays
    batches: w.BatchArrays
    items: w.ItemArrays
    messages: w.MessageArrays
    data: npt.NDArray[np.uint8]
    base: int

    def store_time(self, number: int) -> int:
        """Return the store time of one of ``messages``, in milliseconds."""
        return store_time_at(self.data.data, int(self.messages.phy_offset[number]) - self.base)


def row_buffers(settings: ScanSettings) -> loop.RowArrays:
    """Return room for ``block_rows`` units, items and makers, and for as many batch units and records where they are wanted."""
    rows = settings.block_rows
    batch_rows = rows if settings.batch_topics else 0
    message_rows = rows if settings.want_messages else 0
    return loop.RowArrays(
        w.UnitArrays(
            np.empty(rows, np.int32), np.empty(rows, np.int64), np.empty(rows, np.int64),
            np.empty(rows, np.int32), np.empty(rows, np.int64),
        ),
        w.BatchArrays(
            np.empty(batch_rows, np.int32), np.empty(batch_rows, np.int64), np.empty(batch_rows, np.int64),
            np.empty(batch_rows, np.int32), np.empty(batch_rows, np.int64), np.empty(batch_rows, np.int64),
            np.empty(batch_rows, np.int32),
        ),
        w.ItemArrays(np.empty(rows, w.STAGED), np.empty(rows, w.MAKER)),
        w.MessageArrays(
            np.empty(message_rows, np.int64), np.empty(message_rows, np.int32), np.empty(message_rows, np.int64),
            np.empty(message_rows, np.int64), np.empty(message_rows, np.int32),
        ),
    )  # fmt: skip


def block_of(rows: loop.RowArrays, state: w.State, window: walk_window.Window) -> Block:
    """Return the rows that ``state`` counts, as views."""
    units, batches, items, makers, messages = (int(state[k]) for k in (w.UNITS, w.BATCHES, w.ITEMS, w.MAKERS, w.MESSAGES))
    return Block(
        w.UnitArrays(*(column[:units] for column in rows.units)),  # type: ignore[arg-type]  # of two dtypes
        w.BatchArrays(*(column[:batches] for column in rows.batches)),  # type: ignore[arg-type]  # of two dtypes
        w.ItemArrays(rows.items.staged[:items], rows.items.makers[:makers]),
        w.MessageArrays(*(column[:messages] for column in rows.messages)),  # type: ignore[arg-type]  # of two dtypes
        window.data,
        window.base,
    )


def empty_rows(state: w.State) -> None:
    """Note that the rows were handed out: the loop fills the buffers from their start again."""
    state[w.ITEMS_BEFORE] += state[w.ITEMS]
    state[w.UNITS] = state[w.BATCHES] = state[w.ITEMS] = state[w.MAKERS] = state[w.MESSAGES] = state[w.AGAIN] = 0


# ------------------------------------------------------------------------------------------------------------------ name tables
# The names and queues that a scanner has met, and which globs of topics match none of them.
#
# Names are kept from range to range, queues belong to one range.

UNUSUAL_NAMES_MAX: Final = 20
NAMES_KEPT: Final = 100_000
"""Names that a scanner keeps, counting those of light queues within one range. A broker with many clients has no end of them,
and a record of 32 KiB can name thousands."""
_SLOTS: Final = 1 << 16


class TopicGlobs:
    """Remembers which of ``globs`` match a name that was met."""

    def __init__(self, globs: Sequence[str]) -> None:
        self._globs = list(dict.fromkeys(globs))
        self._names: list[str] = []
        """the first names that were met"""

    def meet(self, names: Iterable[str]) -> None:
        """Take in names of topics; each should come once."""
        if not self._globs:
            return
        for name in names:
            self._globs = [glob for glob in self._globs if not fnmatch.fnmatchcase(name, glob)]
            if len(self._names) < showing.COMPARED_MAX:
                self._names.append(name)

    def unmatched(self) -> dict[str, list[str]]:
        """Return the globs that match no name so far, each with at most NEAR_MAX names near it."""
        return {glob: near(glob, self._names) for glob in self._globs}


def near(glob: str, names: Iterable[str]) -> list[str]:
    """Return the names that look most like a glob, whatever their case; the most similar one first."""
    return showing.near_names(glob.replace("*", "").replace("?", ""), names)


class ScanNames:
    """``table`` and ``queues`` as the record loop takes them. ``state`` is that of the loop."""

    def __init__(self, settings: ScanSettings) -> None:
        self._settings = settings
        self._globs = TopicGlobs((*settings.include, *settings.exclude))
        self.table = self._new_names()
        self.queues = w.new_queues(_SLOTS)

    def begin_range(self, state: w.State) -> None:
        """Forget the queues of the range before, and the names where they have become too many."""
        self._state = state
        self.queues = w.new_queues(_SLOTS)
        if len(self.table.texts) > NAMES_KEPT:
            self._meet_names()
            self.table = self._new_names()
        self.table.forget_seen()
        self._lmqs = len(self.table.texts)
        self._unusual: set[str] = set()
        self._queues_before = 0

    def _new_names(self) -> name_table.NameTable:
        settings = self._settings
        self._globs_met = 0
        return name_table.NameTable(settings.broker_version, settings.include, settings.exclude, settings.batch_topics)

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
        self._unusual.update(self.table.seen_unusual(UNUSUAL_NAMES_MAX))
        return sorted(self._unusual)[:UNUSUAL_NAMES_MAX]

    def _meet_names(self) -> None:
        """Compare the names that are new with the globs. A name with %LMQ% before it is no topic of a record."""
        new = range(self._globs_met, len(self.table.texts))
        self._globs.meet(self.table.texts[k] for k in new if not self.table.arrays.flags[k] & LMQ)
        self._globs_met = len(self.table.texts)

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
        self.table.add(data[self._state[w.NAME_START] : self._state[w.NAME_END]].tobytes())

    def add_lmqs(self, data: w.Bytes) -> None:
        """Enter all new names of the list at which the loop stopped: for each one alone the record would be walked again."""
        start, end = int(self._state[w.NAME_START]), int(self._state[w.NAME_END])
        bounds = np.empty(2 * (end - start + 1), np.int64)
        count = int(loop.new_lmqs(data, start, end, self.table.arrays, bounds))
        new = dict.fromkeys(data[low:high].tobytes() for low, high in bounds[: 2 * count].reshape(-1, 2).tolist())
        for raw in new:
            self.table.add(raw)
        self._lmqs += len(new)

    def renew(self) -> None:
        """Drop all names but the topics of the range's records, and all queues but theirs."""
        names, queues, count = self.table, self.queues, self.queue_count
        self._meet_names()
        self._unusual.update(names.seen_unusual(UNUSUAL_NAMES_MAX))
        self.table = self._new_names()
        kept = {int(entry): self.table.add(names.raw(entry)) for entry in names.topics()}
        for new in kept.values():
            self.table.arrays.flags[new] |= SEEN | TOPIC
        self._state[w.QUEUES] = 0
        self.queues = w.new_queues(len(queues.slots))
        for k in np.flatnonzero(np.isin(queues.name[:count], list(kept))).tolist():
            w.enter_queue(self.queues, self._state, kept[int(queues.name[k])], int(queues.queue_id[k]))
        self._queues_before += count - self.queue_count
        self._lmqs = 0
