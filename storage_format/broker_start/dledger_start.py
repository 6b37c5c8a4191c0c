"""A start of a broker with ``enableDLegerCommitLog``, as a node that leads its group alone: what it keeps of its entries.

Two parts of it recover. ``DLedgerMmapFileStore.recover`` goes from entry to entry in the last three files, and cuts the log;
the store's own recovery then looks at the records. The first is the same in dledger 0.3.1.2 (RocketMQ 4.9.8 to 5.3.4), 0.3.2
(5.4.0, 5.5.0) and 0.3.3.4 (5.5.1).
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.broker_start import (
    kept as start_kept,
    one_start,
    queue_state,
    record_loop,
    recovery,
    store,
)
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.kernels.jit import jit
from rocketmq_reindex.storage_format.kernels.raw_bytes import int32_at, int64_at
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.layout import ENTRY_LAYOUT

_UNIT: Final = 32
"""``INDEX_UNIT_SIZE``"""
_READ: Final = 3
"""the last files that are read, and those before them until one begins as the index says"""
_LEAST: Final = 45
"""bytes of an entry: more than ``DLedgerEntry.HEADER_SIZE``"""
_AT_INDEX, _AT_TERM = ENTRY_LAYOUT.at["index"], ENTRY_LAYOUT.at["term"]
_AT_POSITION, _AT_BODY_SIZE = ENTRY_LAYOUT.at["position"], ENTRY_LAYOUT.at["body_size"]
_NUMBER, _TERM, _END, _COMPARES, _WANTED, _WANTED_END = range(6)
"""of ``walk_entries``: index and term of the last entry, -1 before the first, and where it ends; whether the index is compared;
the index of an entry that is asked for, and where it ends"""
Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]


@jit
def same_in_index(data: Bytes, at: int, position: int, index: Bytes, slot: int) -> bool:
    """Return whether the index has at byte ``slot`` what the entry at ``data[at]`` says, which lies at ``position``."""
    return bool(
        int32_at(index, slot) == int32_at(data, at)
        and int64_at(index, slot + 4) == position
        and int32_at(index, slot + 12) == int32_at(data, at + 4)
        and int64_at(index, slot + 16) == int64_at(data, at + _AT_INDEX)
        and int64_at(index, slot + 24) == int64_at(data, at + _AT_TERM)
    )


@jit
def walk_entries(data: Bytes, at: int, base: int, index: Bytes, first: int, state: Int64s) -> tuple[int, int]:
    """Go from entry to entry of a file from ``data[at]`` on until one is refused; return why, and at which byte.

    ``base`` is the offset of the file's first byte. ``index`` are the bytes of the index from that of entry ``first`` on: MORE
    where the next entry is not in it, NOT_FOUND where it has something else. ``state``: int64, by the names above.
    """
    size = len(data)
    while True:
        if at + 4 > size:
            return r.NO_ROOM, at
        kind = int32_at(data, at)
        if kind == r.ENTRY_BLANK:
            return r.FILLER, at
        if at + r.FILLER_MIN > size:
            return r.NO_ROOM, at
        total = int32_at(data, at + 4)
        if total == 0:
            return r.ZERO, at
        if at + r.ENTRY_HEAD > size:
            return r.NO_ROOM, at
        number, term = int64_at(data, at + _AT_INDEX), int64_at(data, at + _AT_TERM)
        if int64_at(data, at + _AT_POSITION) != base + at:
            return r.BAD_POSITION, at
        if int32_at(data, at + _AT_BODY_SIZE) != total - r.ENTRY_HEAD or kind != r.ENTRY_NORMAL:
            return r.BAD_ENTRY, at
        if total < _LEAST or at + total > size:
            return r.BAD_SIZE, at
        if (state[_NUMBER] != -1 and number != state[_NUMBER] + 1) or term < state[_TERM]:
            return r.BAD_ORDER, at
        if state[_COMPARES]:
            slot = (number - first) * _UNIT
            if number < first or number > first + len(index) or slot + _UNIT > len(index):
                return r.MORE, at
            if not same_in_index(data, at, base + at, index, slot):
                return r.NOT_FOUND, at
        at += total
        state[_NUMBER], state[_TERM], state[_END] = number, term, base + at
        if number == state[_WANTED]:
            state[_WANTED_END] = base + at


@dataclass(frozen=True)
class EntriesLeft:
    """What the recovery of DLedger leaves. Offsets are absolute."""

    start: int
    """the number, among all segments, of the file with which it began"""
    end: recovery.End
    last_end: int
    """behind the last entry; -1 where none was read"""
    last: int
    """the index of the last entry; -1 where none was read"""
    committed_end: int
    """behind the last entry that the node itself knows as committed; -1 where it knows none"""


class EntryRecovery:
    """``DLedgerMmapFileStore.recover``."""

    def __init__(self, segments: Sequence[store.StoreFile], entries: store.EntryLog, segment_size: int) -> None:
        self._first, self._files = entries.first, segments[entries.first :]
        self._index, self._committed, self._size = entries.index, entries.committed, segment_size
        self._state = np.array([-1, -1, -1, 1, entries.committed, -1], np.int64)
        self._rewritten_from = -1
        """the index of the entry from which on the index is written anew"""
        self._begins_anew = False
        """the index has nothing in front of that"""

    def left(self) -> EntriesLeft:
        """Return what it leaves. Raises LoadFailure where the node ends, InputError for what is not known."""
        for files in (self._files, self._index):
            for before, after in itertools.pairwise(files):
                if after.start - before.start != before.size:
                    raise queue_state.LoadFailure(
                        "entry-files-apart", f"{after.name} does not follow on {before.name}: {_CHECKS}"
                    )
        start = self._begin()
        number, code, at = self._walk(start)
        process = self._files[number].start + at
        last = self._files[-1]
        if last.start - process > last.size:
            raise queue_state.LoadFailure(
                "entries-cut-too-far",
                f"{r.REASONS[code]} at offset {process}, and more than one file behind it: the node ends itself before it cuts",
            )
        if self._state[_NUMBER] == -1:
            # The node takes its log for empty, and serves nothing of what lies in it.
            begin = self._files[0].start
            return EntriesLeft(self._first + start, recovery.End(self._first, begin, code), -1, -1, -1)
        end = recovery.End(self._first + number, process, code)
        last_end, last_index = int(self._state[_END]), int(self._state[_NUMBER])
        return EntriesLeft(self._first + start, end, last_end, last_index, self._committed_end())

    def _begin(self) -> int:
        """Return the number of the file to begin with: the last but two, or one before it, which begins as the index says."""
        for number in range(max(0, len(self._files) - _READ), 0, -1):
            if self._begins_well(self._files[number]):
                return number
        return 0

    def _begins_well(self, file: store.StoreFile) -> bool:
        data = file.data
        if len(data) < r.ENTRY_HEAD or int32_at(data, 0) < r.ENTRY_NORMAL or int32_at(data, 4) < _LEAST:
            return False
        total, body = int32_at(data, 4), int32_at(data, _AT_BODY_SIZE)
        if int64_at(data, _AT_POSITION) != file.start or body + r.ENTRY_HEAD != total:
            return False
        part = self._part_of(int(int64_at(data, _AT_INDEX)))
        return part is not None and bool(same_in_index(data, 0, file.start, part[0], part[1]))

    def _part_of(self, number: int) -> tuple[Bytes, int] | None:
        """Return the bytes of the file of the index that has an entry, and where; None for none."""
        for file in self._index:
            at = number * _UNIT - file.start
            if 0 <= at <= file.size - _UNIT:
                return file.data, at
        return None

    def _walk(self, number: int) -> tuple[int, int, int]:
        """Return file, code and byte where the walk from file ``number`` on ends."""
        at, index, first, state = 0, np.zeros(0, np.uint8), 0, self._state
        while True:
            file = self._files[number]
            code, at = walk_entries(file.data, at, file.start, index, first, state)
            if code == r.MORE:
                entry = int(int64_at(file.data, int(at) + _AT_INDEX))
                part = self._part_of(entry)
                if part is None:
                    code = r.NOT_FOUND
                else:
                    index, first = part[0], entry - part[1] // _UNIT
                    continue
            if code == r.NOT_FOUND:
                self._rewrite_from(int(int64_at(file.data, int(at) + _AT_INDEX)))
                continue
            if code == r.FILLER and number + 1 < len(self._files):
                number, at = number + 1, 0
                continue
            return number, int(code), file.size if code == r.FILLER else int(at)

    def _rewrite_from(self, entry: int) -> None:
        """The index is written anew from this entry on (``MmapFileList.truncateOffset``, ``rebuildWithPos``)."""
        if entry < 0:
            raise InputError(f"the first entry of DLedger that a node reads has index {entry}: {_UNKNOWN}")
        self._state[_COMPARES] = 0
        self._rewritten_from = entry
        ends = [file.start + file.size for file in self._index if file.start <= entry * _UNIT]
        self._begins_anew = not ends or ends[-1] < entry * _UNIT

    def _committed_end(self) -> int:
        """Return where the last entry ends that is committed, by the checkpoint (``updateCommittedIndex``); -1 for none."""
        state = self._state
        begin = int(int64_at(self._files[0].data, _AT_INDEX))
        if not 0 <= begin <= state[_NUMBER]:
            raise InputError(f"the first entry of DLedger has index {begin}, the last one {state[_NUMBER]}: {_UNKNOWN}")
        if self._committed == -1 or self._committed < begin:
            return -1
        if self._committed >= state[_NUMBER]:
            return int(state[_END])
        if self._begins_anew and self._committed < self._rewritten_from:
            raise InputError(
                f"the index of DLedger has nothing in front of entry {self._rewritten_from}, and the checkpoint calls entry "
                f"{self._committed} the last committed one: {_UNKNOWN}"
            )
        if state[_WANTED_END] >= 0:
            return int(state[_WANTED_END])
        part = self._part_of(self._committed)
        if part is None:
            raise queue_state.LoadFailure("entry-index", f"it has no entry {self._committed}, the last committed one")
        if not self._is_true(*part):
            raise InputError(
                f"the index of DLedger has another place for entry {self._committed}, the last committed one, than that of an "
                f"entry: {_UNKNOWN}"
            )
        return int(int64_at(part[0], part[1] + 4)) + int(int32_at(part[0], part[1] + 12))

    def _is_true(self, index: Bytes, slot: int) -> bool:
        """Return whether an entry lies where the index says, and is as it says; or the index says nothing."""
        if not index[slot : slot + _UNIT].any():
            return True
        position = int(int64_at(index, slot + 4))
        for file in self._files:
            at = position - file.start
            if 0 <= at <= file.size - r.ENTRY_HEAD:
                return bool(same_in_index(file.data, at, position, index, slot))
        return False


_CHECKS: Final = "the node ends itself"
_UNKNOWN: Final = "preflight does not know what a node then does"


@dataclass(frozen=True)
class CommittedLog(recovery.KeptLog):
    """A log of which the broker reads what is committed, as far as ``committed_end``."""

    committed_end: int = 0

    @property
    def max_offset(self) -> int:
        """``DLedgerCommitLog.getMaxOffset``."""
        return self.committed_end


class DLedgerStart(one_start.OneStart):
    """The start of a node of DLedger, until it has been elected, has committed all its entries, and has dispatched them."""

    _known: CommittedLog
    """the log as the node knows it before it is elected"""

    def _recover_log(self, before: int, _rows: start_kept.KeptRows) -> tuple[recovery.Start, recovery.End, recovery.KeptLog]:
        settings, entries, segments = self._settings, self._store.entries, self._store.segments
        assert entries is not None
        recovery.check_accelerated(settings, self._rules, self._times)
        left = EntryRecovery(segments, entries, settings.segment_size).left()
        self.last_entry = left.last
        is_kept = [number < entries.first or file.start <= left.end.offset for number, file in enumerate(segments)]
        kept = [file for file, keeps in zip(segments, is_kept, strict=True) if keeps]
        cut = left.end.offset
        if settings.abnormal and self._rules.dispatches_while_recovering:
            cut = self._read_records(kept[entries.first :])
        # DLedgerCommitLog.recover: of units that lead behind the log's end, or to where the records read end. Unlike
        # CommitLog, no release looks at the units that it has just dispatched; after a crash 5.5 looks at its checkpoint alone.
        known = self._times.logics_offset if settings.abnormal and self._rules.logics_offset else before
        if known >= cut:
            self._cut_units(cut)
        begin = segments[entries.first].start
        self._known = self._up_to(kept, entries.first, left.committed_end if left.committed_end > 0 else begin)
        log = self._up_to(kept, entries.first, left.last_end if left.last_end > 0 else begin)
        return recovery.Start(left.start, 0, False), left.end, log

    def _up_to(self, kept: Sequence[store.StoreFile], first: int, end: int) -> CommittedLog:
        size = self._settings.segment_size
        ends = [size if number < first else min(size, max(0, end - file.start)) for number, file in enumerate(kept)]
        return CommittedLog(kept, ends, size, committed_end=end)

    def _read_records(self, files: Sequence[store.StoreFile]) -> int:
        """Dispatch records from a file on that the checkpoint covers (``dledgerRecoverAbnormally``, 5.x).

        Return the offset that the broker takes for their end: it counts the records of the last file without their headers. It
        reads on behind what DLedger has cut: those bytes stay.
        """
        number = max((at for at, file in enumerate(files) if self._is_covered(file)), default=0)
        read = 0

        def dispatched(rows: record_loop.LogRows) -> None:
            nonlocal read
            is_record = (rows.flags & record_loop.LIGHT) == 0
            read += int(rows.size[is_record & (rows.at >= files[number].start)].sum())
            self._dispatch(rows)

        reading = recovery.reading_of(self._settings, self._rules)
        while True:
            read = 0
            with self._reader.handing_to(dispatched):
                code, _ = recovery.read_segment(files[number], 0, files[number].size, reading, self._reader)
            if code != r.FILLER or number + 1 == len(files):
                self._append_kept()
                return files[number].start + read
            number += 1

    def _is_covered(self, file: store.StoreFile) -> bool:
        """Return ``isMmapFileMatchedRecover``."""
        data, settings = file.data, self._settings
        if len(data) < r.ENTRY_HEAD + r.RECORD_MIN or int32_at(data, r.ENTRY_HEAD + r.AT_MAGIC) != r.MAGIC_V1:
            return False
        v6 = int32_at(data, r.ENTRY_HEAD + r.AT_SYS_FLAG) & r.FLAG_BORN_HOST_V6
        time = int64_at(data, r.ENTRY_HEAD + r.AT_STORE_TIMESTAMP + (r.IPV6_EXTRA if v6 else 0))
        phy_offset = int(int64_at(data, r.ENTRY_HEAD + r.AT_PHYSICAL_OFFSET))
        return recovery.is_dispatched(int(time), phy_offset, -1, settings, self._rules, self._times)

    def _unread(self, _start: recovery.Start, log: recovery.KeptLog) -> list[tuple[store.StoreFile, int, int]]:
        return [(file, 0, end) for file, end in zip(log.segments, log.ends, strict=True)]

    def _dispatch_rest(self, log: recovery.KeptLog) -> None:
        # In 5.x ReputMessageService begins with getConfirmOffset, and that is what DLedger calls committed.
        first = self._known.max_offset
        if not self._rules.dispatches_while_recovering or self._settings.recheck_reput:
            first = self._reput_from(self._known)
        at = self._reput(self._known, first)
        # The rest is committed once the node leads.
        self._reput(log, max(at, first))
        self._correct_min(log)
