"""Notes of a scan about its range: damage and refused records, the last byte that is not zero, and sums of its blocks.

A refused record with a sound frame and CRC is never part of a torn tail: no crash leaves such a record. Where all records of a
segment have other physical offsets than where they lie, the segment has a wrong name.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.kernels.jit import jit
from rocketmq_reindex.storage_format.kernels.raw_bytes import LOW31, crc32, int32_at, int64_at
from rocketmq_reindex.storage_format.layouts import FIRST_BYTE_MAX
from rocketmq_reindex.storage_format.record import frame as f, layout as r, state as w
from rocketmq_reindex.storage_format.record.frame import TOTAL, RecordArrays, Stretch, addresses_extra, check_record, moved
from rocketmq_reindex.storage_format.record.layout import CRC_BODY
from rocketmq_reindex.storage_format.record.window import ReadInto, Window
from rocketmq_reindex.storage_format.scan.ranges import TORN_TAIL_MAX, RangeSpec, RangeSummary
from rocketmq_reindex.storage_format.scan.settings import Block

WINDOWS_MAX: Final = 10_001
HOLES_MAX: Final = 100_000
"""A log with more damaged places than that is refused, so a range lists no more of them. No disk makes as many."""
NO_MORE_TOLD: Final = "no more of them are told"
_COUNTED: Final = {
    "last_good": w.LAST_GOOD,
    "records": w.RECORDS,
    "unit_records": w.UNIT_RECORDS,
    "excluded": w.EXCLUDED,
    "first_dispatched": w.FIRST_DISPATCHED,
    "last_dispatched": w.LAST_DISPATCHED,
    "last_time": w.LAST_TIME,
    "last_unit": w.LAST_UNIT,
    "last_unit_time": w.LAST_UNIT_TIME,
    "time_min": w.TIME_MIN,
    "time_max": w.TIME_MAX,
    "tag_items": w.TAG_ITEMS,
    "waiting": w.WAITING,
    "inner_batches": w.INNER_BATCHES,
    "batches_refused": w.BATCHES_REFUSED,
    "batches_empty": w.BATCHES_EMPTY,
    "lmq_slash": w.LMQ_SLASH,
    "lmq_no_file": w.LMQ_NO_FILE,
    "lmq_malformed": w.LMQ_BAD,
}
"""Fields of a summary, and the numbers of the loop that they are."""


def left_out(holes: Sequence[object]) -> str:
    """Return what to say where the holes of a range are more than are listed; "" where all of them are."""
    return f"more than {HOLES_MAX:,} damaged places: {NO_MORE_TOLD}" if len(holes) > HOLES_MAX else ""


class RangeNotes:
    """Notes what is met in ``summary``; indexes are those of ``window.data``."""

    def __init__(self, summary: RangeSummary, window: Window) -> None:
        self._summary, self._window = summary, window
        self._highest: int | None = None
        """the highest time window so far"""

    def hole(self, offset: int, length: int, code: int) -> None:
        """Bytes that are no good record; ``code`` says why, as in ``record.layout``."""
        holes = self._summary.holes
        if code == r.STALE_ENTRY and holes and holes[-1][2] == code and holes[-1][0] + holes[-1][1] == offset:
            holes[-1][1] += length
        elif len(holes) <= HOLES_MAX:
            self._summary.holes.append([offset, length, code])

    def lost(self, start: int, end: int) -> None:
        """A stretch [start, end) that stands for lost bytes, at or behind all of those before it."""
        stretches = self._summary.lost
        if stretches and sum(stretches[-1]) == start:
            stretches[-1][1] += end - start
        elif start < end and len(stretches) <= HOLES_MAX:
            stretches.append([start, end - start])

    def fillers(self, state: w.State) -> None:
        """Take over the stretch of fillers that ``state`` has, which then has none."""
        if state[w.LOST_START] >= 0:
            self.lost(int(state[w.LOST_START]), int(state[w.LOST_END]))
        state[w.LOST_START] = state[w.LOST_END] = -1

    def nonzero(self, low: int, high: int) -> None:
        """Remember the last byte that is not zero in ``data[low:high]``, of those that are in memory."""
        window = self._window
        view = window.data[low : min(high, window.filled)]
        if len(view) and view.any():
            self._summary.last_nonzero = window.base + high - 1 - int(np.argmax(view[::-1] != 0))

    def rest(self, high: int) -> None:
        """The last bytes of a range are too few for a record, but not for a filler: they count as not zero all the same."""
        window = self._window
        while window.end < high:
            at = window.more(window.filled, 1, high)
            self.nonzero(at, window.filled)

    def count(self, block: Block, state: w.State, window: int) -> None:
        """Count the rows of a block, which ``state`` still counts, too; ``window`` as in ``ScanSettings``."""
        out, items, before = self._summary, block.items, int(state[w.ITEMS_BEFORE])
        if window and len(items.staged):
            self._rises(before, items.staged["time"] // window)
        if before == 0 and len(items.staged):
            has_maker = len(items.makers) and int(items.makers["item"][0]) == 0
            out.first_item_maker = int((items.makers if has_maker else items.staged)["phy_offset"][0])
        out.units += int(state[w.UNITS]) - int(state[w.AGAIN])
        out.lmq_again += int(state[w.AGAIN])
        out.batch_units += int(state[w.BATCHES])
        out.items += len(items.staged)

    def _rises(self, before: int, windows: npt.NDArray[np.int64]) -> None:
        """Note at which items the highest time window so far rises; ``before``: items of the range before these."""
        highest = np.maximum.accumulate(windows)
        highest_before = highest[0] - 1 if self._highest is None else self._highest
        rises = np.flatnonzero(highest > np.maximum(highest_before, np.concatenate([[highest_before], highest[:-1]])))
        # A plan is refused for one rise too many: more are not needed.
        room = WINDOWS_MAX - len(self._summary.windows)
        self._summary.windows += [[before + int(k), int(highest[k])] for k in rises[: max(0, room)]]
        self._highest = max(int(highest_before), int(highest[-1]))

    def finish(self, state: w.State) -> None:
        """Take over what the record loop counted."""
        self.fillers(state)
        if state[w.FIRST_INDEX] >= 0:
            self._summary.entries = state[w.FIRST_INDEX : w.FIRST_START + 1].tolist()
            self._summary.entries += state[w.ENTRY_INDEX : w.ENTRY_END + 1].tolist()
        for name, number in _COUNTED.items():
            setattr(self._summary, name, int(state[number]))


class RefusedRecords:
    """Looks at the refused records of one range, and notes in its summary what they say."""

    def __init__(
        self, spec: RangeSpec, summary: RangeSummary, window: Window, search_crc: int, record: RecordArrays
    ) -> None:  # fmt: skip
        """``window`` holds the range's bytes, and ``record`` what was refused last."""
        self._spec, self._summary, self._window = spec, summary, window
        self._search_crc, self._record = search_crc, record

    def pass_over(self, at: int, code: int) -> tuple[int, int]:
        """Return the index behind the framed record at ``at``, and what is wrong with it.

        It is passed over with all that follow at the same distance from their physical offsets. Those whose frame and CRC are
        right are noted.
        """
        window, size, phy_offset = self._window, int(self._record.rec[TOTAL]), self._window.base + at
        # One that lacks a CRC it should have is whole otherwise.
        if (
            code == r.NO_MESSAGE
            or code == r.BAD_BODY_CRC
            or (code == r.BAD_PROPERTY_CRC and self._record.spans[2 * f.CRC32] >= 0)
        ):
            return at + size, code
        if not has_sound_body(window.data, at + window.lead):
            return at + size, r.BAD_BODY_CRC
        self._summary.last_sound = phy_offset
        if code != r.BAD_POSITION:
            return at + size, code
        distance = int(int64_at(window.data, at + window.lead + r.AT_PHYSICAL_OFFSET)) - window.lead - phy_offset
        if not distance:
            # The entry alone names another offset.
            return at + size, code
        self._note(distance)
        return self._pass_elsewhere(at + size, distance), code

    def _note(self, distance: int) -> None:
        if distance not in self._summary.elsewhere and len(self._summary.elsewhere) < 2:
            self._summary.elsewhere.append(distance)

    def _pass_elsewhere(self, at: int, distance: int) -> int:
        """Return the index behind the records that follow on each other at ``at``, and are good but for that distance."""
        spec, window, record = self._spec, self._window, self._record
        if not 0 <= spec.segment_start + distance <= FIRST_BYTE_MAX:
            return at
        while True:
            start, before = window.base + at, at
            limit = spec.high - window.base
            code, at = map(int, pass_records(window.stretch, distance, at, limit, self._search_crc, record))
            if at > before:
                self._summary.last_sound = start
            if code != r.MORE or not window.adds_up(at, int(record.rec[TOTAL])):
                return at
            at = window.more(at, int(record.rec[TOTAL]), spec.high)

    def look_elsewhere(self, read: ReadInto) -> None:
        """Look for two records, one behind the other, that lie at the same distance from their physical offsets.

        Where there are two, it is a segment under a wrong name whose first record is damaged, and no torn tail. One alone
        proves nothing: messages may carry pieces of another log.
        """
        spec, window = self._spec, self._window
        window.open(spec.low, spec.segment_end, spec.data_end, read, None, lead=spec.lead)
        window.more(0, min(spec.high - spec.low, TORN_TAIL_MAX), spec.low)
        at = int(find_elsewhere(window.stretch, 8 * window.filled, self._record))
        if at >= 0:
            self._summary.last_sound = spec.low + at
            self._note(int(int64_at(window.data, at + r.AT_PHYSICAL_OFFSET)) - (spec.low + at))
        window.close()


@jit
def pass_records(
    stretch: Stretch, distance: int, at: int, limit: int, crc_mode: int, record: RecordArrays
) -> tuple[int, int]:  # fmt: skip
    """Pass over the records that start in ``data[at:limit]``, and are good but for that distance from their physical offsets.

    Return what stopped it (as ``check_record``) and where.
    """
    log = moved(stretch, distance)
    while at < limit:
        code = check_record(log, at, crc_mode, record)
        if code != r.GOOD:
            return code, at
        at += record.rec[TOTAL]
    return r.LIMIT, at


@jit
def find_elsewhere(stretch: Stretch, budget: int, record: RecordArrays) -> int:
    """Return the index of the first of two records, one behind the other, that are good but for the same distance from their
    physical offsets; -1 for none, or where more than ``budget`` bytes would have to be summed up.
    """
    data, filled, base, lead = stretch.data, stretch.filled, stretch.base, stretch.lead
    for first in range(lead, filled - 2 * r.RECORD_MIN + 1):
        if data[first + 4] != 0xDA or data[first + 5] != 0xA3:
            continue
        second = first + int32_at(data, first) + lead
        if second < first + r.RECORD_MIN or second + r.RECORD_MIN > filled or data[second + 4] != 0xDA:
            continue
        distance = int64_at(data, first + r.AT_PHYSICAL_OFFSET) - (base + first)
        if distance == 0 or int64_at(data, second + r.AT_PHYSICAL_OFFSET) - (base + second) != distance:
            continue
        good, at = True, first
        for _ in range(2):
            budget -= min(max(0, int32_at(data, at)), filled)
            code = r.MORE
            if good and budget >= 0:
                code = check_record(moved(stretch, distance), at - lead, CRC_BODY, record)
            good = code == r.GOOD
            at = second
        if good:
            return first
        if budget < 0:
            return -1
    return -1


def has_sound_body(data: npt.NDArray[np.uint8], at: int) -> bool:
    """Return whether the body of the whole framed record at ``at`` has the CRC that its head says, or there is no body."""
    start = at + r.HEADER_SIZE + addresses_extra(int32_at(data, at + r.AT_SYS_FLAG))
    length = int32_at(data, start - 4)
    return length <= 0 or crc32(data, start, start + length) & LOW31 == int32_at(data, at + r.AT_BODY_CRC)
