"""Find a key without an index: read every record of the log, as the build does. Compiles, or loads compiled code, once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from jobs.store.folders import reason
from jobs.store.log import SegmentFile, StoreLog
from jobs.store.notes import Notes
from storage_format import record as r
from storage_format.errors import InputError
from storage_format.frame import CRC_NONE
from storage_format.java_string import key_hash
from storage_format.names import escape
from storage_format.range_scan import Block, RangeScanner, ScanSettings
from storage_format.range_summary import RangeSpec, RangeSummary
from storage_format.stale_tail import StaleTail
from udfs import files
from udfs.stale_tails import framed, has_data, judge_segment
from udfs.stale_tails import reason as stale_reason


def scan_log(log: StoreLog, names: list[str] | None, key: str, notes: Notes) -> set[int]:
    """Physical offsets of records that may have the key: its hash is theirs. ``names`` None: of any topic."""
    scanner = RangeScanner(ScanSettings(crc_mode=CRC_NONE, want_units=False))
    found: set[int] = set()
    for number, segment in enumerate(log.segments):
        end = segment_end(log.segments, segment)
        if _scan(scanner, segment, end, names, key, found, notes):
            _without_stale(segment, end, log.segments[number + 1 :], scanner.summary, found, notes)
    return found


def _without_stale(
    segment: SegmentFile, end: int, later: list[SegmentFile], summary: RangeSummary, found: set[int], notes: Notes
) -> None:
    """Forget old records behind the log's end, and tell of the segment's damage."""
    broken = damage(summary)
    try:
        tail = stale_tail(segment, end, later, summary)
    except (OSError, InputError):
        tail = None  # as the scan has told
    if tail is not None:
        found -= {place for place in found if tail.offset <= place < end}
        notes.add("stale tail", f"{escape(segment.path)}: offset {tail.offset}: {stale_reason(tail)}", lost=False)
        broken = [place for place in broken if place[0] < tail.offset]
    for offset, length, why in broken:
        notes.add("damage", f"{escape(segment.path)}: offset {offset}, {length} bytes: {why}: no record found in it")


def stale_tail(segment: SegmentFile, end: int, later: list[SegmentFile], summary: RangeSummary) -> StaleTail | None:
    """The old records behind the log's end, where they lie in a scanned segment. Raises OSError, InputError."""
    if not summary.holes or any(has_data(other.path, other.size) for other in later):
        return None
    tail = judge_segment(segment.path, (segment.start, segment.start + segment.size, end), framed(summary.holes))
    return tail if isinstance(tail, StaleTail) else None


def segment_end(segments: list[SegmentFile], segment: SegmentFile) -> int:
    """Absolute offset where a segment would end whole; a short one may be the last alone."""
    longest = max(other.size for other in segments)
    return segment.start + (longest if segment is segments[-1] else segment.size)


def scan_segment(scanner: RangeScanner, segment: SegmentFile, end: int) -> Iterator[Block]:
    """The blocks of one whole segment, which would end at absolute offset ``end``. Raises OSError, InputError."""
    stop = segment.start + segment.size
    spec = RangeSpec(0, segment.path, segment.start, end, stop, segment.start, stop, True)
    with files.Reader(segment.path) as reader:

        def read(at: int, out: npt.NDArray[np.uint8]) -> None:
            reader.read_into(at - segment.start, out)

        def view(at: int, count: int) -> npt.NDArray[np.uint8] | None:
            return reader.view(at - segment.start, count)

        yield from scanner.scan(spec, read, view)


def _scan(
    scanner: RangeScanner,
    segment: SegmentFile,
    end: int,
    names: list[str] | None,
    key: str,
    found: set[int],
    notes: Notes,
) -> bool:
    """Whether all of the segment could be read."""
    try:
        for block in scan_segment(scanner, segment, end):
            # Every topic of the block's records is in the table by now.
            hashes = {key_hash(name, key) for name in (scanner.names.texts if names is None else names)}
            hit = np.isin(block.items.key_hash, np.array(sorted(hashes), dtype=np.int64))
            found.update(block.items.place[hit].tolist())
    except (OSError, InputError) as error:
        notes.add("unreadable segment", f"{escape(segment.path)}: {reason(error)}")
        return False
    return True


def damage(summary: RangeSummary) -> list[tuple[int, int, str]]:
    """(absolute offset, bytes, reason) of what is no record in a scanned segment; zeros to its end are none."""
    found = [(offset, length, r.REASONS[code]) for offset, length, code in summary.holes]
    if summary.tail >= 0 and summary.last_nonzero >= summary.tail:
        found.append((summary.tail, summary.last_nonzero + 1 - summary.tail, r.REASONS[summary.tail_code]))
    return found
