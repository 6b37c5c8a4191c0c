"""Scan one byte range of the log in chunks: walk its records, pass over damage, hand out blocks of units and items."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from rocketmq_reindex.storage_format.digest import ChunkDigests
from rocketmq_reindex.storage_format.kernels.raw_bytes import int32_at
from rocketmq_reindex.storage_format.record import layout as r, loop, name_table, state as w, window as walk_window
from rocketmq_reindex.storage_format.record.entry import entry_at
from rocketmq_reindex.storage_format.record.frame import TOTAL, find_record, new_record
from rocketmq_reindex.storage_format.scan import range_notes, ranges, settings as scan_settings
from rocketmq_reindex.storage_format.versions import RULES

_DAMAGED_MAX: Final = 512
"""damaged records behind which a block goes out, where ``beats`` are asked for: each takes as long as many good ones"""


class _Buffers:
    """What the scans of all ranges have in common: the settings, and the arrays and the names that they use in turn."""

    def __init__(self, settings: scan_settings.ScanSettings) -> None:
        self.settings = settings
        rules = RULES[settings.broker_version]
        self.options = loop.WalkOptions(
            settings.crc_mode,
            rules.record_v2,
            rules.batch_queues,
            rules.lmq_counts_each,
            w.MARKED_TAGS if settings.mark_tags else w.TAGS if rules.tag_items else w.NO_TAGS,
            settings.lmq,
            settings.strict_lmq,
            settings.need_crc,
            settings.until_time,
            settings.want_units or settings.want_topics,
            settings.want_units,
            settings.want_items,
            settings.want_messages,
            np.array(settings.delays, dtype=np.int64),
        )
        self.search_crc = max(settings.crc_mode, settings.search_crc)
        self.record, self.rows = new_record(), scan_settings.row_buffers(settings)
        self.names, self.window = scan_settings.ScanNames(settings), walk_window.Window(settings.chunk)


class RangeScanner:
    """Scans ranges one after another with the same buffers: memory does not grow with the ranges.

    ``summary`` is that of the last range.
    """

    summary: ranges.RangeSummary

    def __init__(self, settings: scan_settings.ScanSettings) -> None:
        self.settings = settings
        self._buffers = _Buffers(settings)

    @property
    def names(self) -> name_table.NameTable:
        """The names that the scanner has met."""
        return self._buffers.names.table

    @property
    def queues(self) -> w.QueueArrays:
        """The queues of the range; units name them by their numbers here."""
        return self._buffers.names.queues

    @property
    def queue_count(self) -> int:
        """How many rows of ``queues`` are in use."""
        return self._buffers.names.queue_count

    def scan(
        self, spec: ranges.RangeSpec, read: walk_window.ReadInto, view: walk_window.View | None = None
    ) -> Iterator[scan_settings.Block]:
        """Yield the blocks of a range; what else the scan knows of it is in ``summary``.

        ``read`` copies bytes of the segment, ``view`` gives them where the file is mapped; what ``view`` gives is not read.
        """
        scan = self._scan = _RangeScan(self._buffers, spec, read, view)
        self.summary = scan.summary
        yield from scan.blocks()

    @property
    def place(self) -> "ScanPlace":
        """Where the scan of the last range stands, between two blocks or at its end."""
        return self._scan.place


class _Gap(NamedTuple):
    """What lies before the record that is searched for: damage from ``offset`` on.

    ``code`` says why it is damage, NOT_FOUND where nothing has been looked at yet; ``length`` is 0 where it is not known.
    """

    offset: int
    code: int = r.NOT_FOUND
    length: int = 0


class ScanPlace(NamedTuple):
    """Where a scan stands. ``offset`` is that of the next byte to look at: a record should begin there, or it is searched for.

    ``gap`` is where the damage begins behind which one is searched for, -1 for none, and ``code`` says why it is damage.
    """

    offset: int
    gap: int
    code: int
    entry: list[int]
    """the fields of ``EntryPlace`` of the entry in front of it"""


class _RangeScan:
    """The scan of one range. ``_at`` is where it stands in ``window.data``.

    It does not refer to the scanner: the two would keep each other, with all their buffers, until Python looks for cycles.
    """

    def __init__(
        self, buffers: _Buffers, spec: ranges.RangeSpec, read: walk_window.ReadInto, view: walk_window.View | None
    ) -> None:
        self._settings, self._options, self._search_crc = buffers.settings, buffers.options, buffers.search_crc
        self._record, self._rows, self._names, self._window = buffers.record, buffers.rows, buffers.names, buffers.window
        self._spec, self._read = spec, read
        self._state = w.new_state()
        self._state[w.COMMITTED] = self._settings.committed
        if spec.before:
            self._state[w.ENTRY_INDEX : w.ENTRY_END + 1] = spec.before
        self._names.begin_range(self._state)
        self._digests = ChunkDigests(spec.segment_start, spec.data_end, spec.low, spec.high)
        feed = self._digests.feed if self._settings.want_digests else walk_window.see_nothing
        self._window.open(spec.low, spec.segment_end, spec.data_end, read, view, feed, spec.lead)
        self.summary = ranges.RangeSummary(spec.number, spec.low, spec.high, spec.known, first=spec.low if spec.known else -1)
        self._notes = range_notes.RangeNotes(self.summary, self._window)
        self._refused = range_notes.RefusedRecords(spec, self.summary, self._window, self._search_crc, self._record)
        self._gap: _Gap | None = None if spec.known else _Gap(spec.low)
        self._at, self._ended, self._damaged = 0, False, 0

    def blocks(self) -> Iterator[scan_settings.Block]:
        """Yield the blocks of the range; at the end its summary is complete."""
        while not self._ended:
            if self._gap is not None:
                yield from self._search(self._gap)
                if self._settings.beats and not self._ended:
                    yield self._flush()
            else:
                yield from self._walk()
                if self._settings.beats and self._damaged >= _DAMAGED_MAX:
                    self._damaged = 0
                    yield self._flush()
        if self._state[w.MESSAGES]:
            # A block has records alone, or damage alone, behind its last record.
            yield self._flush()
        yield self._flush()
        self._finish()
        if self._spec.low == self._spec.segment_start and ranges.may_lie_elsewhere([self.summary], self._spec.low):
            self._refused.look_elsewhere(self._read)

    @property
    def place(self) -> ScanPlace:
        gap = self._gap or _Gap(-1)
        entry = self._state[w.ENTRY_INDEX : w.ENTRY_END + 1].tolist()
        return ScanPlace(self._window.base + self._at, gap.offset, gap.code, entry)

    def _more(self, ahead: int = 0) -> None:
        """Get the bytes that the record at ``_at`` wants."""
        self._at = self._window.more(self._at, int(self._record.rec[TOTAL]), self._spec.high, ahead)

    @property
    def _adds_up(self) -> bool:
        """Whether the lengths of the record at ``_at`` add up, before a buffer grows for it."""
        return self._window.adds_up(self._at, int(self._record.rec[TOTAL]))

    def _search(self, gap: _Gap) -> Iterator[scan_settings.Block]:
        """Look for the next good record, which ends the gap. Yield the block before it, where the window may move."""
        spec, window, before = self._spec, self._window, self._at
        limit = spec.high - window.base
        code, self._at = map(int, find_record(window.stretch, before, limit, self._search_crc, self._record))
        self._notes.nonzero(before, min(self._at, window.filled))
        if self._state[w.MESSAGES] and (code == r.NOT_FOUND or code == r.MORE):
            yield self._flush()
        if code == r.NOT_FOUND:
            self._notes.rest(spec.high)
            self._end_in(gap)
        elif code == r.MORE and self._adds_up:
            # A search sums its bytes up anew each time some are added: so half a chunk is added to what this record needs.
            # Where it wants a header alone, at the end of the range, no more is added than the range has left.
            half = self._settings.chunk // 2
            self._more(half if self._record.rec[TOTAL] > r.HEADER_SIZE + self._spec.lead else min(limit - self._at, half))
        elif code == r.MORE:
            self._notes.nonzero(self._at, self._at + 1)
            self._at += 1
        else:
            self._end_gap(gap, window.base + self._at)

    def _end_gap(self, gap: _Gap, end: int) -> None:
        """A record was found behind the gap, at the offset ``end``."""
        if gap.code != r.NOT_FOUND and self._settings.stop_at_damage:
            # Whether the walk would take it, too, makes no difference: its frame and CRC make what lies before it damage.
            self._end_in(gap)
            self.summary.after_tail = end
            return
        if gap.code != r.NOT_FOUND:
            self._notes.hole(gap.offset, end - gap.offset, gap.code)
        if self.summary.first < 0:
            self.summary.first = end
        self.summary.last_nonzero = -1
        self._gap = None

    def _end_in(self, gap: _Gap) -> None:
        """Nothing behind the gap is scanned."""
        self.summary.tail, self.summary.tail_code, self.summary.tail_length = gap
        self._ended = True

    def _walk(self) -> Iterator[scan_settings.Block]:
        """Walk good records up to the next stop, and deal with what stopped it. Yield the blocks that are full."""
        window, names, limit = self._window, self._names, self._spec.high - self._window.base
        code, at = loop.walk(
            window.stretch, self._at, limit, self._options, names.table.arrays, names.queues, self._rows, self._state,
            self._record,
        )  # fmt: skip
        # As plain Python the loops return numpy's own numbers, which JSON does not take.
        code, self._at = int(code), int(at)
        if code == r.AHEAD or (code == r.MORE and self._adds_up):
            if self._state[w.MESSAGES]:
                # A block's records are read where they lie: the block goes out before the window moves.
                yield self._flush()
            self._more()
        elif code == r.UNITS_FULL or code == r.ITEMS_FULL:
            yield self._flush()
        elif code == r.QUEUES_FULL:
            names.grow_queues()
        elif code == r.NEW_NAME:
            names.add_name(window.data)
        elif code == r.NEW_LMQS:
            if names.is_full:
                yield self._flush()
                names.renew()
            names.add_lmqs(window.data)
        elif code == r.NEW_LOST:
            self._notes.fillers(self._state)
        elif code in (r.LIMIT, r.FILLER, r.LATER, r.UNCOMMITTED):
            if code == r.FILLER and self._state[w.MESSAGES]:
                yield self._flush()
            self._end_at(code, window.base + self._at)
        else:
            if self._state[w.MESSAGES] and (self._settings.beats or code == r.BAD_POSITION):
                # The window may move with what is passed over. Else the block goes on: damage can be all over the log.
                yield self._flush()
            self._meet_damage(code)

    def _end_at(self, code: int, offset: int) -> None:
        """The range ends at that offset: at its limit, at the segment's filler, or at a record that is not of this log."""
        out = self.summary
        out.end = self._spec.segment_end if code == r.FILLER else offset
        if code == r.FILLER:
            out.last_nonzero = offset + r.FILLER_MIN - 1
            if not self._spec.lead:
                self._note_blank(offset)
        if code == r.LATER or code == r.UNCOMMITTED:
            out.later = offset
        if code == r.UNCOMMITTED:
            out.uncommitted = int(entry_at(self._window.data, self._at, 0, 0).number)
        self._ended = True

    def _note_blank(self, offset: int) -> None:
        """Note the filler of the segment's end, at that offset, where it stands for lost bytes."""
        spec, window = self._spec, self._window
        if min(spec.segment_end, spec.data_end) - offset < r.LOST_BLANK_MIN:
            return
        if offset + r.LOST_BLANK_MIN > window.end:
            self._record.rec[TOTAL] = r.LOST_BLANK_MIN
            self._more()
        if int32_at(window.data, self._at + r.FILLER_MIN) == r.LOST_FLAG:
            self._notes.fillers(self._state)
            self._notes.lost(offset, spec.segment_end)

    def _meet_damage(self, code: int) -> None:
        """What stands at ``_at`` is no good record: pass over it where its length is known, else search behind it."""
        offset = self._window.base + self._at
        self._damaged += 1
        if code < r.FIRST_FRAMED:
            self._gap = _Gap(offset, r.BAD_LENGTHS if code == r.MORE else code)
            self._notes.nonzero(self._at, self._at + 1)
            self._at += 1
            return
        self._at, code = self._refused.pass_over(self._at, code)
        length = self._window.base + self._at - offset
        if self._settings.stop_at_damage:
            self._gap = _Gap(offset, code, length)
            self.summary.last_nonzero = offset + length - 1
        else:
            self._notes.hole(offset, length, code)

    def _flush(self) -> scan_settings.Block:
        """Return the block of all rows since the one before, counted in the summary."""
        block = scan_settings.block_of(self._rows, self._state, self._window)
        self._notes.count(block, self._state, self._settings.window)
        scan_settings.empty_rows(self._state)
        return block

    def _finish(self) -> None:
        if self.summary.later < 0 and self._settings.want_digests:
            self._window.pass_on(self._digests.wanted_until)
        self._window.close()
        self._notes.finish(self._state)
        self.summary.digests = {str(k): v for k, v in self._digests.chunks.items()}
        self.summary.queues, self.summary.unusual_names = self._names.queues_met, self._names.unusual
        self.summary.unmatched_globs = self._names.unmatched_globs
