"""What earlier runs learned of a log, kept below ``TABLES/_scans``: ranges that were scanned need not be scanned again.

    entries/KEY                 one scanned range (``ScanEntry`` as sealed JSON); written last, so it is whole or not there
    data/KEY-ATTEMPT.runs       its runs of queue offsets and topics: rows (``udfs.incremental.stored_rows``)
    data/KEY-ATTEMPT.units      its ConsumeQueue units: rows
    data/KEY-ATTEMPT.block      its staged index items
    builds/DIGEST...            what a build was made of, by the digest of its manifest (``jobs.incremental.last_build``)

KEY stands for everything that decides a result but the bytes themselves: segment, place, settings. The bytes are known by
digest.
"""

from __future__ import annotations

import dataclasses
import json
import uuid
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.digest import new_digest
from rocketmq_reindex.storage_format.scan.range_summary import RangeSpec, RangeSummary
from rocketmq_reindex.udfs import files

FORMAT: Final = 1
"""Goes up when entries have other fields, or when the same version of the project makes something else of the same bytes."""
PAGE: Final = 4096
HEAD: Final = 256
"""Bytes of a range that tell one log from another: a record's times and checksum are among them."""
_READ_BYTES: Final = 16 << 20
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class ScanEntry:
    """One scanned range. ``digest`` is of all bytes that were looked at: from ``low`` to ``reach``, absolute offsets."""

    key: str
    segment: str
    start: int
    """of the segment, absolute"""
    size: int
    modified: int
    """size and modification time (ns) of the segment's file when it was read"""
    low: int
    reach: int
    digest: str
    sample: str
    """digest of a few pages, among them the first, the last, and those around the place where the walk ended"""
    summary: dict[str, Any]
    data: dict[str, list[Any]]
    """by ending (runs, units, block): name in data/, bytes, digest; what is empty is left out"""
    head: list[Any]
    """how many of its first HEAD bytes are records, and their digest: they stay as they are while a log grows"""

    @property
    def identity(self) -> str:
        """The same for ranges that have the same rows and items."""
        return f"{self.key}-{self.digest}"

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: bytes | str) -> ScanEntry:
        return cls(**json.loads(text))

    def range_summary(self, number: int) -> RangeSummary:
        return RangeSummary(**(self.summary | {"number": number}))


@dataclass(frozen=True)
class ScanStore:
    """The folder of one DIR's builds; executors get nothing but this path."""

    root: str

    @property
    def entries(self) -> str:
        return files.join(self.root, "entries")

    @property
    def data(self) -> str:
        return files.join(self.root, "data")

    @property
    def builds(self) -> str:
        return files.join(self.root, "builds")

    @property
    def temporary(self) -> str:
        return files.join(self.root, "temporary")

    def make(self) -> None:
        for folder in (self.entries, self.data, self.builds, self.temporary):
            files.make_folder(folder)

    def find(self, key: str) -> ScanEntry | None:
        """The entry of a key, with all its files there in their sizes; else None."""
        path = files.join(self.entries, key)
        try:
            if files.look(path).kind != files.FILE:
                return None
            entry = ScanEntry.from_json(unsealed(files.read_bytes(path)))
        except (OSError, ValueError, TypeError):
            # What a crash of the machine or a bad disk left of it is as good as none.
            return None
        return entry if self.has_data(entry) else None

    def has_data(self, entry: ScanEntry) -> bool:
        found = [(files.look(files.join(self.data, name)), size) for name, size, _ in entry.data.values()]
        return all(there.kind == files.FILE and there.size == size for there, size in found)

    def is_sound(self, entry: ScanEntry) -> bool:
        """The same, its bytes compared as well."""
        kept = entry.data.values()
        return self.has_data(entry) and all(file_digest(files.join(self.data, name)) == digest for name, _, digest in kept)

    def summary(self, entry: ScanEntry, number: int) -> RangeSummary:
        """What the range's scan said, as range ``number`` of this run."""
        summary = entry.range_summary(number)
        summary.block = files.join(self.data, entry.data["block"][0]) if "block" in entry.data else ""
        return summary

    def put(self, entry: ScanEntry) -> None:
        files.write_bytes(self.temporary, files.join(self.entries, entry.key), sealed(entry.to_json().encode()))

    def new_path(self, key: str, ending: str) -> str:
        """A name in data/ that no other attempt has."""
        return files.join(self.data, f"{key}-{uuid.uuid4().hex}.{ending}")

    def kept(self, path: str, digest: str) -> list[Any]:
        """A file in data/ as an entry tells of it."""
        return [files.base(path), files.look(path).size, digest]


def sealed(data: bytes) -> list[bytes]:
    """``data`` behind its digest, as it is kept."""
    return [new_digest([data]).digest().hex().encode(), b"\n", data]


def unsealed(kept: bytes) -> bytes:
    """The inverse of ``sealed``. Raises ValueError when a byte is another."""
    digest, _, data = kept.partition(b"\n")
    if new_digest([data]).digest().hex().encode() != digest:
        raise ValueError("not as it was written")
    return data


def key_of(fingerprint: str, spec: RangeSpec) -> str:
    """The name of a range's entry. ``fingerprint`` stands for the settings, and for what this version makes of them."""
    fields = [spec.segment_start, spec.segment_end, spec.data_end, spec.low, spec.high, spec.known]
    return new_digest([json.dumps([FORMAT, fingerprint, *fields]).encode()]).digest().hex()


class Seen:
    """Takes in what a scan reads, and tells of it: from ``low`` on, without gaps, each byte once."""

    def __init__(self, low: int) -> None:
        self._low = self._at = self._far = low
        self._hasher = new_digest()

    def __call__(self, at: int, data: Bytes) -> None:
        end = at + len(data)
        if at > self._at:
            # A look at the end of what may be a record: the bytes before it follow, or are read at last.
            self._far = max(self._far, end)
        elif end > self._at:
            self._hasher.update(data[self._at - at :].data)
            self._at = end

    def finish(self, reader: files.Reader, start: int) -> tuple[int, str]:
        """(offset behind the last byte that was looked at, digest of all from ``low`` on); ``start`` is the segment's."""
        _feed(reader, start, self._at, self._far, self)
        return self._at, self._hasher.digest().hex()


def _feed(reader: files.Reader, start: int, low: int, high: int, seen: Seen) -> None:
    for at in range(low, high, _READ_BYTES):
        count = min(_READ_BYTES, high - at)
        data = reader.view(at - start, count)
        if data is None:
            data = np.empty(count, np.uint8)
            reader.read_into(at - start, data)
        seen(at, data)


def digest_of(reader: files.Reader, start: int, low: int, reach: int) -> str:
    """The digest of the bytes ``low`` to ``reach`` of the segment that begins at ``start``."""
    seen = Seen(low)
    _feed(reader, start, low, reach, seen)
    return seen.finish(reader, start)[1]


def file_digest(path: str, used: int | None = None) -> str:
    """The digest of a file, or of its first ``used`` bytes."""
    with files.Reader(path) as reader:
        return digest_of(reader, 0, 0, reader.size() if used is None else used)


def sample_pages(entry_low: int, reach: int, ended: int, data_end: int) -> list[tuple[int, int]]:
    """(offset, bytes) of the pages that stand for a range: first, middle and last one, and those around ``ended``."""
    middle = entry_low + (reach - entry_low) // 2
    lows = [entry_low, middle, max(entry_low, reach - PAGE)]
    pages = [(low, min(PAGE, data_end - low)) for low in lows]
    if ended >= 0:
        low = max(entry_low, ended - PAGE)
        pages.append((low, min(ended + PAGE, data_end) - low))
    return [(low, count) for low, count in pages if count > 0]


def sample_of(reader: files.Reader, start: int, size: int, low: int, reach: int, summary: RangeSummary) -> tuple[str, int]:
    """(digest, bytes read) of a range's sample; ``size`` is that of the segment's file."""
    hasher, count = new_digest(), 0
    for at, length in sample_pages(low, reach, max(summary.end, summary.tail), start + size):
        hasher.update(reader.read(at - start, length))
        count += length
    return hasher.digest().hex(), count


def head_of(reader: files.Reader, entry_low: int, start: int, reach: int, summary: RangeSummary) -> list[Any]:
    """``ScanEntry.head`` of a range of the segment that begins at ``start``."""
    ended = max(summary.end, summary.tail)
    count = max(0, min(HEAD, (ended if ended >= 0 else reach) - entry_low, start + reader.size() - entry_low))
    return [count, new_digest([reader.read(entry_low - start, count)]).digest().hex()]


def begins_alike(entry: ScanEntry, path: str) -> bool:
    """Whether a segment's file has, where the range begins, what it had there."""
    count, digest = entry.head
    with files.Reader(path) as reader:
        if reader.size() < entry.low - entry.start + count:
            return False
        return bool(new_digest([reader.read(entry.low - entry.start, count)]).digest().hex() == digest)


def sampled_alike(entry: ScanEntry, path: str) -> tuple[bool, int]:
    """Whether a segment's file seems to be as it was when the range was scanned, and the bytes read to tell.

    A broker's writes through a mapping may leave the modification time alone for a while: the pages tell of them.
    """
    found = files.look(path)
    if (found.size, found.modified) != (entry.size, entry.modified):
        return False, 0
    with files.Reader(path) as reader:
        sample, count = sample_of(reader, entry.start, entry.size, entry.low, entry.reach, entry.range_summary(0))
    return sample == entry.sample, count
