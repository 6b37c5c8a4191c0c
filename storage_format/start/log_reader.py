"""Read stretches of segments into rows, with the names and queues that they have in common."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.kernels.words import int32_at
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.frame import STORE_TIME, Stretch, new_record
from rocketmq_reindex.storage_format.start.broker_record import FIELDS, PHY_OFFSET, READ, Reading, broker_record
from rocketmq_reindex.storage_format.start.record_loop import DAMAGED, HAS_UNIT, LIGHT, Rows, new_rows, read_rows
from rocketmq_reindex.storage_format.start.store import StoreFile
from rocketmq_reindex.storage_format.told import Told
from rocketmq_reindex.storage_format.walk import state as w
from rocketmq_reindex.storage_format.walk.lmq import new_lmqs
from rocketmq_reindex.storage_format.walk.name_table import NameTable

_ROWS: Final = 1 << 17
_LIGHT: Final = 1 << 16
_SLOTS: Final = 1 << 12
_STEP: Final = 32 << 20
"""bytes of a segment that are walked before it is said how far that is"""
_BEYOND: Final = 8 << 20
"""bytes behind a step that its last record may take"""


def chosen(rows: Rows, which: npt.NDArray[np.bool_] | npt.NDArray[np.int64]) -> Rows:
    """The rows of a mask or of an array of numbers."""
    columns: Any = (column[which] for column in rows)
    return Rows(*columns)


class LogReader:
    """Reads records and numbers their queues; ``queue_name`` gives topic and queue id of a number."""

    def __init__(self, broker_version: str, batch_topics: tuple[str, ...], told: Told) -> None:
        self._names = NameTable(broker_version, (), (), batch_topics)
        self._queues = w.new_queues(_SLOTS)
        self._state = w.new_state()
        self._rows = new_rows(_ROWS)
        self._light = _new_light(_LIGHT)
        self._record = new_record(FIELDS)
        self._take: Callable[[Rows], None] | None = None
        self._told = told
        self._loaded: tuple[StoreFile | None, int] = None, 0
        self.notes: list[str] = []
        """what else is to be said of the log"""

    @contextlib.contextmanager
    def handing_to(self, take: Callable[[Rows], None]) -> Iterator[None]:
        """Within, ``take`` gets the rows that are read in chunks, ordered by ``at``. They are overwritten when it returns."""
        self._take = take
        yield
        self._flush()
        self._take = None
        # A stretch may be read once more: that its last record has given a light queue a unit is forgotten.
        self._queues.last[:] = -1

    def read(self, segment: StoreFile, start: int, end: int, reading: Reading) -> tuple[int, int]:
        """Read records of a segment's bytes ``start`` to ``end`` until one is refused; returns why, and at which byte."""
        at, begun, state, data = start, start, self._state, segment.data
        stretch = Stretch(data, end, segment.start, segment.start + segment.size, segment.start + segment.size)
        while True:
            pause = self._load(segment, at, end)
            code, at = read_rows(
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
                self._told.moved(at - begun)
                begun = at
                if code != r.MORE:
                    return int(code), int(at)

    def _load(self, segment: StoreFile, at: int, end: int) -> int:
        """Have the next bytes of a segment loaded; returns up to where."""
        file, until = self._loaded
        if file is not segment or not until - _STEP <= at < until:
            until = min(end, at + _STEP)
            segment.load(at, min(segment.size, until + _BEYOND))
            self._loaded = segment, until
        return until if until < end else end + _STEP

    def first_record(self, data: npt.NDArray[np.uint8], reading: Reading) -> tuple[int, int] | None:
        """Store time and PHYSICALOFFSET of the record that a segment begins with; (0, 0) for a filler, None for no record."""
        code = broker_record(data, 0, len(data), reading, self._record)
        if code == r.FILLER:
            return 0, 0
        return (int(self._record.rec[STORE_TIME]), int(self._record.rec[PHY_OFFSET])) if code == r.GOOD else None

    @property
    def refused_read(self) -> int:
        """How many bytes of the last record Java had read when it refused it (BAD_SUM)."""
        return int(self._record.rec[READ])

    def claims(self, data: npt.NDArray[np.uint8], at: int, end: int, reading: Reading) -> int:
        """For how many bytes Java makes an array before it refuses what stands at ``data[at]``; 0 for none."""
        if end - at < r.FILLER_MIN:
            return 0
        total, magic = int32_at(data, at), int32_at(data, at + r.AT_MAGIC)
        if magic != r.MAGIC_V1 and (reading.old or magic != r.MAGIC_V2):
            return 0
        return max(0, int(total)) if reading.old or total <= end - at else 0

    def refused_size(self, data: npt.NDArray[np.uint8], at: int) -> int:
        """TOTALSIZE of the record at ``data[at]``."""
        return int.from_bytes(data[at : at + 4].tobytes(), "big", signed=True)

    def queue_name(self, queue: int) -> tuple[str, int]:
        """Topic and queue id of a number in ``Rows.queue``."""
        return self._names.texts[int(self._queues.name[queue])], int(self._queues.queue_id[queue])

    def are_sound(self, rows: Rows) -> npt.NDArray[np.bool_]:
        """Which rows ``verify`` and builds take: each record is where it says, its queue's id and offset are not negative."""
        sound: npt.NDArray[np.bool_] = (rows.at == rows.phy_offset) & ((rows.flags & DAMAGED) == 0)
        return sound & (rows.offset >= 0) & (rows.offset <= r.QUEUE_OFFSET_MAX) & (self._queues.queue_id[rows.queue] >= 0)

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
        rows = Rows(*columns)
        if light:
            units = self._light
            added = new_rows(light)
            # A light queue's row says where its record lies; a record that is not where it says is rare enough.
            added.at[:], added.phy_offset[:] = units.phy_offset[:light], units.phy_offset[:light]
            added.offset[:], added.size[:], added.queue[:] = (
                units.offset[:light],
                units.size[:light],
                units.queue[:light],
            )
            added.items[:], added.messages[:], added.flags[:] = 0, 1, LIGHT | HAS_UNIT
            added.tag_hash[:] = 0
            pairs: Any = zip(rows, added, strict=True)
            columns = (np.concatenate(pair) for pair in pairs)
            rows = Rows(*columns)
            rows = chosen(rows, np.argsort(rows.at, kind="stable"))
        self._take(rows)


def _new_light(count: int) -> w.UnitArrays:
    kinds = (np.int32, np.int64, np.int64, np.int32, np.int64)
    columns: Any = (np.empty(count, kind) for kind in kinds)
    return w.UnitArrays(*columns)
