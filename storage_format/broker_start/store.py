"""A store as a start finds it: names, sizes and bytes of its files, and stretches of segments read into rows."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, overload

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format import layouts
from rocketmq_reindex.storage_format.broker_start import record_loop
from rocketmq_reindex.storage_format.errors import ProgressListener
from rocketmq_reindex.storage_format.kernels.raw_bytes import int32_at
from rocketmq_reindex.storage_format.queue.rocksdb import CombinedQueues, DatabaseQueues
from rocketmq_reindex.storage_format.record import layout as r, state as w
from rocketmq_reindex.storage_format.record.frame import STORE_TIME, Stretch, new_record
from rocketmq_reindex.storage_format.record.loop import new_lmqs
from rocketmq_reindex.storage_format.record.name_table import NameTable

# ------------------------------------------------------------------------------------------------------------------------ store
# A store as a start finds it: names, sizes and bytes of its files. Whoever calls opens them; nothing here reads a file.


@dataclass(frozen=True)
class StoreFile:
    """A file of the commitlog or of a queue.

    ``name`` is the file's name, twenty digits: its offset, ``start``. ``data``, uint8 (size,), are its bytes, usually mapped.
    """

    name: str
    data: npt.NDArray[np.uint8]
    lead: int = 0
    """bytes in front of each record: ENTRY_HEAD in a log of DLedger"""

    @property
    def start(self) -> int:
        """The offset that the name says."""
        return int(self.name)

    @property
    def size(self) -> int:
        """The bytes of the file."""
        return len(self.data)

    def parts(self, low: int) -> Iterator[tuple[int, int]]:
        """Yield first byte and end of each part from byte ``low`` on that is not known to be all zeros."""
        yield low, self.size

    def load(self, low: int, high: int) -> None:
        """Bytes ``low`` to ``high`` are about to be read. Raises OSError or InputError where they cannot be."""

    def let_go(self, low: int, high: int) -> None:
        """Bytes ``low`` to ``high`` have been read."""


@dataclass(frozen=True)
class QueueFolder:
    """A queue's folder: its files in the order of their names.

    ``batch`` is set for a folder that the broker reads as ``BatchConsumeQueue`` (units of 46 bytes): the topic's attribute says
    so, or the folder lies in ``batchconsumequeue``.
    """

    topic: str
    queue: int
    files: Sequence[StoreFile]
    batch: bool = False
    ext: Sequence[StoreFile] = ()
    """its files in ``consumequeue_ext``, where the broker has ``enableConsumeQueueExt``"""


class FilesOf(Sequence[StoreFile]):
    """The files of one of some folders, which may be made when they are asked for, and are not kept."""

    __slots__ = ("_folders", "_length", "_number")

    def __init__(self, folders: Sequence[QueueFolder], number: int, length: int) -> None:
        self._folders, self._number, self._length = folders, number, length

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> StoreFile: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[StoreFile]: ...
    def __getitem__(self, index: int | slice) -> StoreFile | Sequence[StoreFile]:
        return self._folders[self._number].files[index]


@dataclass(frozen=True)
class IndexFileData:
    """An IndexFile: ``name`` is the time at which it was made, ``data``, uint8, its bytes; zeros follow where it is short."""

    name: str
    data: npt.NDArray[np.uint8]

    def let_go(self, low: int, high: int) -> None:
        """Bytes ``low`` to ``high`` have been read."""


@dataclass(frozen=True)
class EntryLog:
    """What a node of DLedger has beside its entries, whose files are the store's segments from number ``first`` on.

    ``index`` are the files of its index; ``committed`` is ``committedIndex`` of its checkpoint, -1 where that does not say it.
    """

    first: int
    index: Sequence[StoreFile]
    committed: int


@dataclass(frozen=True)
class Store:
    """What a start reads of a store. Files are in the order of their names, and none is empty.

    ``checkpoint`` is the whole file, or None where there is none. ``batch_topics`` are the topics whose attributes
    (``config/topics.json``, ``queue.type=BatchCQ``) make a new queue a batch ConsumeQueue; from 5.0 on.
    """

    segments: Sequence[StoreFile]
    queues: Sequence[QueueFolder] = ()
    indexes: Sequence[IndexFileData] = ()
    checkpoint: bytes | None = None
    batch_topics: frozenset[str] = field(default=frozenset())
    has_ext: bool = False
    """the broker has ``enableConsumeQueueExt``"""
    database: DatabaseQueues | None = None
    """the queues of a broker that keeps them in RocksDB alone (``storeType=defaultRocksDB``): ``queues`` is empty then"""
    combined: CombinedQueues | None = None
    """the queues in RocksDB of a broker that keeps them there and in files (``rocksdbCQDoubleWriteEnable``)"""
    entries: EntryLog | None = None
    """the log of a node of DLedger, alone or behind a plain one (``enableDLegerCommitLog``)"""


@dataclass(frozen=True)
class StartSettings:
    """The release, what kind of start it is, and the broker settings that matter to it (``MessageStoreConfig``).

    A field that the release does not know is not looked at.
    """

    release: str
    """one of RELEASES"""
    abnormal: bool
    """there is an ``abort`` file"""
    segment_size: int = layouts.DEFAULT_SEGMENT
    """``mappedFileSizeCommitLog``"""
    cq_file_size: int = layouts.DEFAULT_QUEUE_FILE
    """``getMappedFileSizeConsumeQueue()``: the bytes of a file, a multiple of 20"""
    batch_cq_file_size: int = layouts.DEFAULT_BATCH_FILE
    """``mappedFileSizeBatchConsumeQueue``, a multiple of 46"""
    cq_ext_file_size: int = layouts.DEFAULT_EXT_FILE
    """``mappedFileSizeConsumeQueueExt``"""
    hash_slots: int = layouts.DEFAULT_SLOTS
    """``maxHashSlotNum``"""
    index_items: int = layouts.DEFAULT_ITEMS
    """``maxIndexNum``"""
    recover_max_segments: int = 10
    """``commitLogRecoverMaxNum`` (5.4.0 on)"""
    check_crc: bool = True
    """``checkCRCOnRecover``"""
    force_verify_prop_crc: bool = False
    """``forceVerifyPropCRC`` (5.x)"""
    check_offset: bool = False
    """``checkCommitLogOffsetOnRecover`` (5.5.0 on)"""
    accelerated: bool = False
    """``enableAcceleratedRecovery`` (5.5.0 on)"""
    message_index: bool = True
    """``messageIndexEnable``"""
    message_index_safe: bool = False
    """``messageIndexSafe``"""
    lmq: bool = False
    """``enableLmq`` and ``enableMultiDispatch``: with both, records get units in the light queues that they name"""
    recheck_reput: bool = False
    """``recheckReputOffsetFromCq`` (5.x)"""
    in_group: bool = False
    """the broker is one of a controller group (``enableControllerMode``, 5.x): it has no role yet while it starts"""


# ------------------------------------------------------------------------------------------------------------------- log reader
# Read stretches of segments into rows, with the names and queues that they have in common.

_ROWS: Final = 1 << 17
_LIGHT: Final = 1 << 16
_SLOTS: Final = 1 << 12
_STEP: Final = 32 << 20
"""bytes of a segment that are walked before it is said how far that is"""
_BEYOND: Final = 8 << 20
"""bytes behind a step that its last record may take"""


def chosen(rows: record_loop.LogRows, selection: npt.NDArray[np.bool_] | npt.NDArray[np.int64]) -> record_loop.LogRows:
    """Return the rows of a mask or of an array of numbers."""
    columns: Any = (column[selection] for column in rows)
    return record_loop.LogRows(*columns)


class LogReader:
    """Reads records and numbers their queues; ``queue_name`` gives topic and queue id of a number."""

    def __init__(self, broker_version: str, batch_topics: tuple[str, ...], progress: ProgressListener) -> None:
        self._names = NameTable(broker_version, (), (), batch_topics)
        self._queues = w.new_queues(_SLOTS)
        self._state = w.new_state()
        self._rows = record_loop.new_rows(_ROWS)
        self._light = _new_light(_LIGHT)
        self._record = new_record(record_loop.FIELDS)
        self._take: Callable[[record_loop.LogRows], None] | None = None
        self._progress = progress
        self._loaded: tuple[StoreFile | None, int] = None, 0
        self.notes: list[str] = []
        """what else is to be said of the log"""
        self.refused_at = -1
        """where a dispatch first met no record; -1 for nowhere"""

    @contextlib.contextmanager
    def handing_to(self, take: Callable[[record_loop.LogRows], None]) -> Iterator[None]:
        """Hand the rows that are read within to ``take``, in chunks ordered by ``at``. They are overwritten when it returns."""
        self._take = take
        yield
        self._flush()
        self._take = None
        # A stretch may be read once more: that its last record has given a light queue a unit is forgotten.
        self._queues.last[:] = -1

    def read(self, segment: StoreFile, start: int, end: int, reading: record_loop.Reading) -> tuple[int, int]:
        """Read records of a segment's bytes ``start`` to ``end`` until one is refused; return why, and at which byte."""
        at, begun, state, data = start, start, self._state, segment.data
        segment_end = segment.start + segment.size
        stretch = Stretch(data, end, segment.start, segment_end, segment_end, segment.lead)
        while True:
            pause = self._load(segment, at, end)
            code, at = record_loop.read_rows(
                stretch, at, pause, reading, self._names.arrays, self._queues, self._rows, self._light, state, self._record
            )
            if code == r.NEW_NAME:
                self._names.add(data[state[w.NAME_START] : state[w.NAME_END]].tobytes())
            elif code == r.NEW_LMQS:
                self._add_lmqs(data)
            elif code == r.QUEUES_FULL:
                self._queues = w.grown_queues(self._queues, state)
            elif code == r.UNITS_FULL:
                self._flush()
            else:
                segment.let_go(begun, at)
                self._progress.moved(at - begun)
                begun = at
                if code != r.MORE:
                    return int(code), int(at)

    def _load(self, segment: StoreFile, at: int, end: int) -> int:
        """Have the next bytes of a segment loaded; return up to where."""
        file, until = self._loaded
        if file is not segment or not until - _STEP <= at < until:
            until = min(end, at + _STEP)
            segment.load(at, min(segment.size, until + _BEYOND))
            self._loaded = segment, until
        return until if until < end else end + _STEP

    def first_record(self, data: npt.NDArray[np.uint8], reading: record_loop.Reading) -> tuple[int, int] | None:
        """Return store time and PHYSICALOFFSET of the record that a segment begins with; (0, 0) for a filler, None for no
        record."""
        code = record_loop.broker_record(data, 0, len(data), reading, self._record)
        if code == r.FILLER:
            return 0, 0
        return (int(self._record.rec[STORE_TIME]), int(self._record.rec[record_loop.PHY_OFFSET])) if code == r.GOOD else None

    @property
    def refused_read(self) -> int:
        """How many bytes of the last record Java had read when it refused it (BAD_SUM)."""
        return int(self._record.rec[record_loop.READ])

    def claims(self, data: npt.NDArray[np.uint8], at: int, end: int, reading: record_loop.Reading) -> int:
        """Return for how many bytes Java makes an array before it refuses what stands at ``data[at]``; 0 for none."""
        if end - at < r.FILLER_MIN:
            return 0
        total, magic = int32_at(data, at), int32_at(data, at + r.AT_MAGIC)
        if magic != r.MAGIC_V1 and (reading.old or magic != r.MAGIC_V2):
            return 0
        return max(0, int(total)) if reading.old or total <= end - at else 0

    def refused_size(self, data: npt.NDArray[np.uint8], at: int) -> int:
        """Return TOTALSIZE of the record at ``data[at]``."""
        return int.from_bytes(data[at : at + 4].tobytes(), "big", signed=True)

    def queue_name(self, queue: int) -> tuple[str, int]:
        """Return topic and queue id of a number in ``LogRows.queue``."""
        return self._names.texts[int(self._queues.name[queue])], int(self._queues.queue_id[queue])

    def whole_rows(self, rows: record_loop.LogRows) -> record_loop.LogRows:
        """Return the rows that ``verify`` and builds take where the record lies where it says (``at`` is ``phy_offset``): it is
        not damaged, its queue's id and offset are not negative."""
        whole: npt.NDArray[np.bool_] = (rows.flags & record_loop.DAMAGED) == 0
        has_place = (rows.offset >= 0) & (rows.offset <= r.QUEUE_OFFSET_MAX) & (self._queues.queue_id[rows.queue] >= 0)
        return chosen(rows, whole & has_place)

    def _add_lmqs(self, data: npt.NDArray[np.uint8]) -> None:
        start, end = int(self._state[w.NAME_START]), int(self._state[w.NAME_END])
        bounds = np.empty(2 * (end - start + 1), np.int64)
        count = int(new_lmqs(data, start, end, self._names.arrays, bounds))
        for raw in dict.fromkeys(data[low:high].tobytes() for low, high in bounds[: 2 * count].reshape(-1, 2).tolist()):
            self._names.add(raw)

    def _flush(self) -> None:
        state = self._state
        count, light = int(state[w.RECORDS]), int(state[w.UNITS])
        state[w.RECORDS] = state[w.UNITS] = 0
        if not count or self._take is None:
            return
        columns: Any = (column[:count] for column in self._rows)
        rows = record_loop.LogRows(*columns)
        if light:
            units = self._light
            added = record_loop.new_rows(light)
            # See read_rows: a record may lie where it does not say, and its place is the order in which all are dispatched.
            added.at[:], added.phy_offset[:] = units.tags_code[:light], units.phy_offset[:light]
            added.offset[:], added.size[:], added.queue[:] = (
                units.offset[:light],
                units.size[:light],
                units.queue[:light],
            )
            added.items[:], added.messages[:], added.flags[:] = 0, 1, record_loop.LIGHT | record_loop.HAS_UNIT
            added.tag_hash[:] = 0
            pairs: Any = zip(rows, added, strict=True)
            columns = (np.concatenate(pair) for pair in pairs)
            rows = record_loop.LogRows(*columns)
            rows = chosen(rows, np.argsort(rows.at, kind="stable"))
        self._take(rows)


def _new_light(count: int) -> w.UnitArrays:
    kinds = (np.int32, np.int64, np.int64, np.int32, np.int64)
    columns: Any = (np.empty(count, kind) for kind in kinds)
    return w.UnitArrays(*columns)
