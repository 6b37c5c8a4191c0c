"""Refused records of known length: which of them are sound, and which have a physical offset that is not where they lie.

A record with a sound frame and CRC is never part of a torn tail: no crash leaves such a record. Where all records of a segment
have other physical offsets, the segment has a wrong name.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.file_names import FIRST_BYTE_MAX
from rocketmq_reindex.storage_format.kernels.crc32 import LOW31, crc32
from rocketmq_reindex.storage_format.kernels.jit import jit
from rocketmq_reindex.storage_format.kernels.words import int32_at, int64_at
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record import properties as p
from rocketmq_reindex.storage_format.record.frame import TOTAL, addresses_extra, check_record
from rocketmq_reindex.storage_format.record.layout import CRC_BODY
from rocketmq_reindex.storage_format.scan.range_summary import RangeSpec, RangeSummary
from rocketmq_reindex.storage_format.scan.record_bytes import RecordBytes
from rocketmq_reindex.storage_format.scan.torn_tail import TORN_TAIL_MAX
from rocketmq_reindex.storage_format.walk.window import ReadInto, Window


class RefusedRecords:
    """Looks at the refused records of one range, and notes in its summary what they say."""

    def __init__(
        self,
        spec: RangeSpec,
        summary: RangeSummary,
        window: Window,
        search_crc: int,
        rec: npt.NDArray[np.int64],
        spans: npt.NDArray[np.int64],
        record_bytes: RecordBytes,
    ) -> None:
        """``window`` holds the range's bytes, and ``rec`` the record that was refused last."""
        self._spec, self._summary, self._window = spec, summary, window
        self._search_crc, self._rec, self._spans = search_crc, rec, spans
        self._bytes = record_bytes

    def pass_over(self, at: int, code: int) -> tuple[int, int]:
        """(The index behind the framed record at ``at``, and behind all that follow at the same distance from their physical
        offsets; what is wrong with the record.)

        Notes those whose frame and CRC are right.
        """
        window, size, phy_offset = self._window, int(self._rec[TOTAL]), self._window.base + at
        # One that lacks a CRC it should have is whole otherwise.
        if code == r.BAD_BODY_CRC or (code == r.BAD_PROPERTY_CRC and self._spans[2 * p.CRC32] >= 0):
            return at + size, code
        if not has_sound_body(window.data, at):
            return at + size, r.BAD_BODY_CRC
        self._summary.last_sound = phy_offset
        if code != r.BAD_POSITION:
            return at + size, code
        distance = int(int64_at(window.data, at + r.AT_PHYSICAL_OFFSET)) - phy_offset
        self._note(distance)
        return self._pass_elsewhere(at + size, distance), code

    def _note(self, distance: int) -> None:
        if distance not in self._summary.elsewhere and len(self._summary.elsewhere) < 2:
            self._summary.elsewhere.append(distance)

    def _pass_elsewhere(self, at: int, distance: int) -> int:
        """The index behind the records that follow on each other at ``at``, and are good but for that distance."""
        spec, window = self._spec, self._window
        if not 0 <= spec.segment_start + distance <= FIRST_BYTE_MAX:
            return at
        while True:
            start, before = window.base + at, at
            code, at = pass_records(
                window.data, window.filled, window.base + distance, at, spec.high - window.base, spec.segment_end + distance,
                spec.data_end + distance, self._search_crc, self._rec, self._spans,
            )  # fmt: skip
            code, at = int(code), int(at)
            if at > before:
                self._summary.last_sound = start
            if code != r.MORE or not self._bytes.is_sane(at):
                return at
            at = self._bytes.more(at, spec.high)

    def look_elsewhere(self, read: ReadInto) -> None:
        """Look for two records, one behind the other, that lie at the same distance from their physical offsets.

        Where there are two, it is a segment under a wrong name whose first record is damaged, and no torn tail. One alone
        proves nothing: messages may carry pieces of another log.
        """
        spec, window = self._spec, self._window
        window.open(spec.low, spec.data_end, read, None, lambda _at, _data: None)
        window.more(0, min(spec.high - spec.low, TORN_TAIL_MAX), spec.low)
        at = int(
            find_elsewhere(
                window.data, window.filled, window.base, spec.segment_end, spec.data_end, 8 * window.filled, self._rec,
                self._spans,
            )
        )  # fmt: skip
        if at >= 0:
            self._summary.last_sound = spec.low + at
            self._note(int(int64_at(window.data, at + r.AT_PHYSICAL_OFFSET)) - (spec.low + at))
        window.close()


@jit
def pass_records(
    data: npt.NDArray[np.uint8],
    filled: int,
    base: int,
    at: int,
    limit: int,
    segment_end: int,
    data_end: int,
    crc_mode: int,
    rec: npt.NDArray[np.int64],
    spans: npt.NDArray[np.int64],
) -> tuple[int, int]:
    """Pass over the good records that start in ``data[at:limit]``; returns what stopped it (as ``check_record``) and where."""
    while at < limit:
        found = check_record(data, filled, base, at, segment_end, data_end, crc_mode, rec, spans)
        if found != r.GOOD:
            return found, at
        at += rec[TOTAL]
    return r.LIMIT, at


@jit
def find_elsewhere(
    data: npt.NDArray[np.uint8],
    filled: int,
    base: int,
    segment_end: int,
    data_end: int,
    budget: int,
    rec: npt.NDArray[np.int64],
    spans: npt.NDArray[np.int64],
) -> int:
    """The first index in ``data`` of two records, one behind the other, that are good but for the same distance from their
    physical offsets; -1 for none, or where more than ``budget`` bytes would have to be summed up.
    """
    for first in range(filled - 2 * r.RECORD_MIN + 1):
        if data[first + 4] != 0xDA or data[first + 5] != 0xA3:
            continue
        second = first + int32_at(data, first)
        if second < first + r.RECORD_MIN or second + r.RECORD_MIN > filled or data[second + 4] != 0xDA:
            continue
        distance = int64_at(data, first + r.AT_PHYSICAL_OFFSET) - (base + first)
        if distance == 0 or int64_at(data, second + r.AT_PHYSICAL_OFFSET) - (base + second) != distance:
            continue
        good, at = True, first
        for _ in range(2):
            budget -= min(max(0, int32_at(data, at)), filled)
            found = r.MORE
            if good and budget >= 0:
                found = check_record(
                    data, filled, base + distance, at, segment_end + distance, data_end + distance, CRC_BODY, rec, spans
                )  # fmt: skip
            good = found == r.GOOD
            at = second
        if good:
            return first
        if budget < 0:
            return -1
    return -1


def has_sound_body(data: npt.NDArray[np.uint8], at: int) -> bool:
    """Whether the body of the whole framed record at ``at`` has the CRC that its head says, or there is no body."""
    start = at + r.HEADER_SIZE + addresses_extra(int32_at(data, at + r.AT_SYS_FLAG))
    length = int32_at(data, start - 4)
    return length <= 0 or crc32(data, start, start + length) & LOW31 == int32_at(data, at + r.AT_BODY_CRC)
