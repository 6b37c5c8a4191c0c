"""Scan one byte range of the log in chunks: walk its records, pass over damage, hand out blocks of units and items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.digest import ChunkDigests
from rocketmq_reindex.storage_format.kernels.words import int32_at
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.frame import (
    REC_SIZE,
    SPANS_SIZE,
    TOTAL,
    find_record,
)
from rocketmq_reindex.storage_format.scan.name_tables import ScanNames
from rocketmq_reindex.storage_format.scan.range_notes import RangeNotes
from rocketmq_reindex.storage_format.scan.range_summary import RangeSpec, RangeSummary
from rocketmq_reindex.storage_format.scan.record_bytes import RecordBytes
from rocketmq_reindex.storage_format.scan.refused_records import RefusedRecords
from rocketmq_reindex.storage_format.scan.row_buffers import RowBuffers, empty
from rocketmq_reindex.storage_format.scan.settings import Block, ScanSettings
from rocketmq_reindex.storage_format.scan.torn_tail import may_lie_elsewhere
from rocketmq_reindex.storage_format.versions import RULES
from rocketmq_reindex.storage_format.walk import state as w
from rocketmq_reindex.storage_format.walk.keys import MARKED_TAGS, NO_TAGS, TAGS
from rocketmq_reindex.storage_format.walk.loop import WalkOptions, walk
from rocketmq_reindex.storage_format.walk.name_table import NameTable
from rocketmq_reindex.storage_format.walk.window import ReadInto, View, Window


class _Gap(NamedTuple):
    """What lies before the record that is searched for: damage from ``offset`` on.

    ``code`` says why it is damage, NOT_FOUND where nothing has been looked at yet; ``length`` is 0 where it is not known.
    """

    offset: int
    code: int = r.NOT_FOUND
    length: int = 0


def _pass_over(_at: int, _data: npt.NDArray[np.uint8]) -> None:
    """Takes bytes of which no digest is wanted."""


class RangeScanner:
    """Scans ranges one after another with the same buffers: memory does not grow with the ranges."""

    def __init__(self, settings: ScanSettings) -> None:
        self.settings = settings
        rules = RULES[settings.broker_version]
        self._options = WalkOptions(
            settings.crc_mode,
            rules.record_v2,
            rules.batch_queues,
            rules.lmq_counts_each,
            MARKED_TAGS if settings.mark_tags else TAGS if rules.tag_items else NO_TAGS,
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
        self._search_crc = max(settings.crc_mode, settings.search_crc)
        self._rec, self._spans = np.zeros(REC_SIZE, np.int64), np.zeros(SPANS_SIZE, np.int64)
        self._rows, self._met, self._window = RowBuffers(settings), ScanNames(settings), Window(settings.chunk)

    @property
    def names(self) -> NameTable:
        """The names that the scanner has met."""
        return self._met.names

    @property
    def queues(self) -> w.QueueArrays:
        """The queues of the range; units name them by their numbers here."""
        return self._met.queues

    @property
    def queue_count(self) -> int:
        """How many rows of ``queues`` are in use."""
        return self._met.queue_count

    # -- the scan -----------------------------------------------------------------------------------------------------

    def scan(self, spec: RangeSpec, read: ReadInto, view: View | None = None) -> Iterator[Block]:
        """Scan a range: yields its blocks, and leaves the rest in ``summary``.

        ``read`` copies bytes of the segment, ``view`` gives them where the file is mapped; what ``view`` gives is not read.
        """
        self._begin(spec, read, view)
        while not self._ended:
            if self._gap is not None:
                self._search(self._gap)
            else:
                yield from self._walk()
        yield self._flush()
        self._finish()
        if spec.low == spec.segment_start and may_lie_elsewhere([self.summary], spec.low):
            self._refused.look_elsewhere(read)

    def _begin(self, spec: RangeSpec, read: ReadInto, view: View | None) -> None:
        self._spec = spec
        self._state = w.new_state()
        self._met.begin_range(self._state)
        self._digests = ChunkDigests(spec.segment_start, spec.data_end, spec.low, spec.high)
        seen = self._digests.feed if self.settings.want_digests else _pass_over
        self._window.open(spec.low, spec.data_end, read, view, seen)
        self.summary = RangeSummary(spec.number, spec.low, spec.high, spec.known, first=spec.low if spec.known else -1)
        self._notes = RangeNotes(self.summary, self._window)
        self._bytes = RecordBytes(spec, read, self._window, self._rec)
        self._refused = RefusedRecords(spec, self.summary, self._window, self._search_crc, self._rec, self._spans, self._bytes)
        self._gap: _Gap | None = None if spec.known else _Gap(spec.low)
        self._at, self._ended = 0, False

    def _search(self, gap: _Gap) -> None:
        """Look for the next good record, which ends the gap."""
        spec, window, before = self._spec, self._window, self._at
        code, at = find_record(
            window.data, window.filled, window.base, before, spec.high - window.base, spec.segment_end, spec.data_end,
            self._search_crc, self._rec, self._spans,
        )  # fmt: skip
        code, self._at = int(code), int(at)
        self._notes.nonzero(before, min(self._at, window.filled))
        if code == r.NOT_FOUND:
            self._notes.rest(spec.high)
            self._end_in(gap)
        elif code == r.MORE and self._bytes.is_sane(self._at):
            # A search forgets what it knows of the bytes whenever it gets more: so it gets more than this one record needs.
            # Where it only wants the next header, at the end of the range, no record has been found to read ahead for.
            left, half = spec.high - window.base - self._at, self.settings.chunk // 2
            ahead = half if self._rec[TOTAL] > r.HEADER_SIZE else min(left, half)
            self._at = self._bytes.more(self._at, spec.high, ahead)
        elif code == r.MORE:
            self._notes.nonzero(self._at, self._at + 1)
            self._at += 1
        else:
            self._end_gap(gap, window.base + self._at)

    def _end_gap(self, gap: _Gap, found: int) -> None:
        """A record was found behind the gap, at that offset."""
        if gap.code != r.NOT_FOUND and self.settings.stop_at_damage:
            # Whether the walk would take it, too, makes no difference: its frame and CRC make what lies before it damage.
            self._end_in(gap)
            self.summary.after_tail = found
            return
        if gap.code != r.NOT_FOUND:
            self._notes.hole(gap.offset, found - gap.offset, gap.code)
        if self.summary.first < 0:
            self.summary.first = found
        self.summary.last_nonzero = -1
        self._gap = None

    def _end_in(self, gap: _Gap) -> None:
        """Nothing behind the gap is scanned."""
        self.summary.tail, self.summary.tail_code, self.summary.tail_length = gap
        self._ended = True

    def _walk(self) -> Iterator[Block]:
        """Walk good records up to the next stop, and deal with what stopped it."""
        spec, window, rows, met = self._spec, self._window, self._rows, self._met
        code, at = walk(
            window.data, window.filled, window.base, self._at, spec.high - window.base, spec.segment_end, spec.data_end,
            self._options, met.names.arrays, met.queues, rows.units, rows.batches, rows.items, rows.messages, self._state,
            self._rec, self._spans,
        )  # fmt: skip
        # As plain Python the loops return numpy's own numbers, which JSON does not take.
        code, self._at = int(code), int(at)
        if code == r.MORE and self._bytes.is_sane(self._at):
            if self._state[w.MESSAGES]:
                # A block's records are read where they lie: the block goes out before the window moves.
                yield self._flush()
            self._at = self._bytes.more(self._at, spec.high)
        elif code == r.UNITS_FULL or code == r.ITEMS_FULL:
            yield self._flush()
        elif code == r.QUEUES_FULL:
            met.grow_queues()
        elif code == r.NEW_NAME:
            met.add_name(window.data)
        elif code == r.NEW_LMQS:
            if met.is_full:
                yield self._flush()
                met.renew()
            met.add_lmqs(window.data)
        elif code == r.NEW_LOST:
            self._notes.fillers(self._state)
        elif code in (r.LIMIT, r.FILLER, r.LATER):
            if code == r.FILLER and self._state[w.MESSAGES]:
                yield self._flush()
            self._end_at(code, window.base + self._at)
        else:
            if self._state[w.MESSAGES]:
                yield self._flush()
            self._meet_damage(code)

    def _end_at(self, code: int, offset: int) -> None:
        """The range ends at that offset: at its limit, at the segment's filler, or at a record stored too late."""
        out = self.summary
        out.end = self._spec.segment_end if code == r.FILLER else offset
        if code == r.FILLER:
            out.last_nonzero = offset + r.FILLER_MIN - 1
            self._note_blank(offset)
        if code == r.LATER:
            out.later = offset
        self._ended = True

    def _note_blank(self, offset: int) -> None:
        """Note the filler of the segment's end, at that offset, where it stands for lost bytes."""
        spec, window = self._spec, self._window
        if min(spec.segment_end, spec.data_end) - offset < r.LOST_BLANK_MIN:
            return
        if offset + r.LOST_BLANK_MIN > window.end:
            self._rec[TOTAL] = r.LOST_BLANK_MIN
            self._at = self._bytes.more(self._at, spec.high)
        if int32_at(window.data, self._at + r.FILLER_MIN) == r.LOST_FLAG:
            self._notes.fillers(self._state)
            self._notes.lost(offset, spec.segment_end)

    def _meet_damage(self, code: int) -> None:
        """What stands at ``_at`` is no good record: pass over it where its length is known, else search behind it."""
        offset = self._window.base + self._at
        if code < r.FIRST_FRAMED:
            self._gap = _Gap(offset, r.BAD_LENGTHS if code == r.MORE else code)
            self._notes.nonzero(self._at, self._at + 1)
            self._at += 1
            return
        self._at, code = self._refused.pass_over(self._at, code)
        length = self._window.base + self._at - offset
        if self.settings.stop_at_damage:
            self._gap = _Gap(offset, code, length)
            self.summary.last_nonzero = offset + length - 1
        else:
            self._notes.hole(offset, length, code)

    # -- the summary --------------------------------------------------------------------------------------------------

    def _flush(self) -> Block:
        """The block of all rows since the one before, counted in the summary."""
        block = self._rows.block(self._state, self._window)
        self._notes.count(block, self._state, self.settings.window)
        empty(self._state)
        return block

    def _finish(self) -> None:
        if self.summary.later < 0 and self.settings.want_digests:
            self._window.pass_on(self._digests.wanted_until)
        self._window.close()
        self._notes.finish(self._state)
        self.summary.digests = {str(k): v for k, v in self._digests.chunks.items()}
        self.summary.queues, self.summary.unusual_names = self._met.queues_met, self._met.unusual
        self.summary.unmatched_globs = self._met.unmatched_globs
