"""A few bytes of a range stand for all of them: with size and time of the file they show whether it was written again."""

from __future__ import annotations

from typing import Final

from rocketmq_reindex.storage_format.digest import new_digest
from rocketmq_reindex.storage_format.scan.ranges import RangeSummary
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.incremental.scan_store import Head, ScanEntry

PAGE: Final = 4096
HEAD: Final = 256
"""Bytes at the start of a range by which one log is known from another: they include a record's times and checksum."""


def _sample_pages(low: int, reach: int, ended: int) -> list[tuple[int, int]]:
    """(offset, bytes) of the pages that stand for a range: the first, middle and last one, and those around ``ended``.

    They lie in [low, reach): what the scan did not read says nothing of the range.
    """
    middle = low + (reach - low) // 2
    spans = [(at, at + PAGE) for at in (low, middle, max(low, reach - PAGE))]
    if ended >= 0:
        spans.append((max(low, ended - PAGE), ended + PAGE))
    return [(at, min(end, reach) - at) for at, end in spans if at < reach]


def sample_of(reader: files.Reader, start: int, low: int, reach: int, summary: RangeSummary) -> tuple[str, int]:
    """The sample of the range [low, reach): its digest in hex, and the bytes read for it.

    The range lies in a segment that begins at offset ``start``.
    """
    hasher, count = new_digest(), 0
    for at, length in _sample_pages(low, reach, max(summary.end, summary.tail)):
        hasher.update(reader.read(at - start, length))
        count += length
    return hasher.digest().hex(), count


def head_of(reader: files.Reader, low: int, start: int, reach: int, summary: RangeSummary) -> Head:
    """The head of the range [low, reach) of the segment that begins at offset ``start``."""
    ended = max(summary.end, summary.tail)
    count = max(0, min(HEAD, (ended if ended >= 0 else reach) - low, start + reader.size() - low))
    return Head(count, new_digest([reader.read(low - start, count)]).digest().hex())


def begins_alike(entry: ScanEntry, path: str) -> bool:
    """Whether the segment at ``path`` still has the head of a range that was scanned."""
    count, digest = entry.head
    with files.Reader(path) as reader:
        if reader.size() < entry.low - entry.start + count:
            return False
        return bool(new_digest([reader.read(entry.low - entry.start, count)]).digest().hex() == digest)


def sampled_alike(entry: ScanEntry, path: str) -> tuple[bool, int]:
    """Whether the segment at ``path`` seems to be as it was when the range was scanned, and the bytes read to find out.

    A broker's writes through a mapping may leave the modification time as it is for a while: the sample shows them.
    """
    if not is_same_file(entry, files.entry_of(path)):
        return False, 0
    with files.Reader(path) as reader:
        return has_sample(entry, reader)


def is_same_file(entry: ScanEntry, found: files.Entry) -> bool:
    """Whether the segment's file has the size and time that it had when the range was scanned."""
    return (found.size, found.modified) == (entry.size, entry.modified)


def has_sample(entry: ScanEntry, reader: files.Reader) -> tuple[bool, int]:
    """Whether the sample of a range is what it was, and the bytes read to find out. The file has the bytes up to its reach."""
    sample, count = sample_of(reader, entry.start, entry.low, entry.reach, entry.range_summary(0))
    return sample == entry.sample, count
