"""The scan store: what earlier runs found in a log, kept below ``TABLES/_scans``, so that no range is scanned twice."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import uuid
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from rocketmq_reindex import files
from rocketmq_reindex.files.digests import file_digest
from rocketmq_reindex.storage_format import digest as storage_format_digest, errors, showing
from rocketmq_reindex.storage_format.scan.ranges import RangeSpec, RangeSummary

# ------------------------------------------------------------------------------------------------------------------- scan store
#     entries/KEY                 one scanned range (``ScanEntry`` as sealed JSON); written last, so it is whole or absent
#     data/KEY-ATTEMPT.runs       its runs of queue offsets and topics: rows (``udfs.incremental.stored_rows``)
#     data/KEY-ATTEMPT.units      its ConsumeQueue units: rows
#     data/KEY-ATTEMPT.block      its staged index items
#     builds/DIGEST...            what a build was made of, by the digest of its manifest (``jobs.building.last_build``)
#
# KEY stands for all that decides a result except the bytes: segment, range, settings. A digest in the entry stands for those.
# All digests in a sealed file are of the kind that its first line names (``sealed``).

FORMAT: Final = 4
"""Goes up when entries have other fields, or when the same version of the project finds something else in the same bytes."""
_SEAL_MAX: Final = 100
"""Bytes that are enough for the first line of a sealed file."""
_SEALED_MAX: Final = 256 << 20
"""Bytes of a sealed file that are read at most."""


class KeptFile(NamedTuple):
    """A file in data/: its name there, its bytes, their digest in hex."""

    name: str
    size: int
    digest: str


class Head(NamedTuple):
    """The first bytes of a range that are records, at most ``scan_store.HEAD``, and their digest: a growing log keeps them."""

    size: int
    digest: str


@dataclass(frozen=True)
class ScanEntry:
    """One scanned range. All offsets are phy_offsets."""

    key: str
    segment: str
    """name of the segment"""
    start: int
    """where the segment begins"""
    size: int
    """bytes of the segment's file when it was read"""
    modified: int
    """modification time of that file, in nanoseconds since 1970"""
    low: int
    reach: int
    """behind the last byte that the scan read, which may lie behind the range"""
    digest: str
    """of the bytes from ``low`` to ``reach``, in hex"""
    sample: str
    """digest of a few pages, among them the first, the last, and those around the end of the walk (``samples``)"""
    summary: dict[str, Any]
    """the fields of its ``RangeSummary``"""
    data: dict[str, KeptFile]
    """its files by ending (runs, units, block); an empty one is left out"""
    head: Head

    def __post_init__(self) -> None:
        # From JSON both come as lists.
        data = {ending: KeptFile(*kept) for ending, kept in dict(self.data).items()}
        if any("/" in kept.name for kept in data.values()):
            raise ValueError("names a file elsewhere")
        object.__setattr__(self, "data", data)
        object.__setattr__(self, "head", Head(*self.head))

    @property
    def identity(self) -> str:
        """A text that is equal for ranges with the same rows and items."""
        return f"{self.key}-{self.digest}"

    def to_json(self) -> str:
        """Return the fields as one JSON object."""
        return json.dumps(dataclasses.asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: bytes | str) -> ScanEntry:
        """Return the inverse of ``to_json``. Raises ValueError or TypeError for any other text."""
        return cls(**json.loads(text))

    def range_summary(self, number: int) -> RangeSummary:
        """Return the range's summary, as range ``number`` of this run."""
        return RangeSummary(**(self.summary | {"number": number}))


@dataclass(frozen=True)
class ScanStore:
    """The store of the builds in one DIR; executors get only this path."""

    root: str

    @property
    def entries(self) -> str:
        """the folder of scanned ranges"""
        return files.join(self.root, "entries")

    @property
    def data(self) -> str:
        """the folder of their rows and index items"""
        return files.join(self.root, "data")

    @property
    def builds(self) -> str:
        """the folder of builds"""
        return files.join(self.root, "builds")

    @property
    def temporary(self) -> str:
        """the folder of files that are being written"""
        return files.join(self.root, "temporary")

    def make(self) -> None:
        """Make the folders that are missing.

        Raises InputError for a symbolic link among them: what no run needs is removed in them, and nowhere else.
        """
        folders = (self.entries, self.data, self.builds, self.temporary)
        for folder in (self.root, *folders):
            if not files.is_remote(folder) and os.path.islink(folder):
                raise errors.InputError(f"{showing.escape(folder)}: is a symbolic link: remove it")
        for folder in folders:
            files.make_folder(folder)

    def has_earlier_kind(self) -> bool:
        """Return whether ranges have digests of a kind that no run takes any longer: then none of what they keep is of use.

        One of them is looked at: a store has several kinds only behind a run that was killed.
        """
        try:
            names = files.names(self.entries)
            if not names:
                return False
            with files.Reader(files.join(self.entries, min(names))) as reader:
                return _kind_of(reader.read(0, min(_SEAL_MAX, reader.size()))) == storage_format_digest.EARLIER_KIND
        except (FileNotFoundError, errors.InputError):
            # Another run removes it.
            return False

    def find(self, key: str) -> ScanEntry | None:
        """Return the entry of a key; None unless all of its files are there with their sizes.

        Raises OSError where the store cannot be read now: that says nothing about the entry.
        """
        path = files.join(self.entries, key)
        try:
            if files.entry_of(path).kind != files.FILE:
                return None
            entry = ScanEntry.from_json(read_sealed(path))
        except (FileNotFoundError, ValueError, TypeError):
            # Another run removed it, or a crash of the machine spoilt it.
            return None
        return entry if self.has_data(entry) else None

    def has_data(self, entry: ScanEntry) -> bool:
        """Return whether all files of an entry are there with their sizes."""
        entries = [(files.entry_of(files.join(self.data, kept.name)), kept.size) for kept in entry.data.values()]
        return all(kept_entry.kind == files.FILE and kept_entry.size == size for kept_entry, size in entries)

    def is_sound(self, entry: ScanEntry) -> bool:
        """Return whether all files of an entry are there with their bytes."""
        kept = entry.data.values()
        return self.has_data(entry) and all(file_digest(files.join(self.data, file.name)) == file.digest for file in kept)

    def summary(self, entry: ScanEntry, number: int) -> RangeSummary:
        """Return the range's summary as range ``number`` of this run, with the path of its staged index items."""
        summary = entry.range_summary(number)
        summary.block = files.join(self.data, entry.data["block"].name) if "block" in entry.data else ""
        return summary

    def put(self, entry: ScanEntry) -> None:
        """Store an entry; its files are there already."""
        files.write_bytes(self.temporary, files.join(self.entries, entry.key), sealed(entry.to_json().encode()))

    def new_path(self, key: str, ending: str) -> str:
        """Return a path in data/ that no other attempt takes."""
        return files.join(self.data, f"{key}-{uuid.uuid4().hex}.{ending}")

    def kept(self, path: str, digest: str) -> KeptFile:
        """Return a file in data/ for an entry."""
        return KeptFile(files.base(path), files.entry_of(path).size, digest)


def sealed(data: bytes) -> list[bytes]:
    """Return ``data`` behind a line with the kind of its digests, and its own digest, as the store keeps it."""
    return [_seal(data), b"\n", data]


def unsealed(kept: bytes) -> bytes:
    """Return the inverse of ``sealed``. Raises ValueError when a byte has changed, or digests are of another kind."""
    seal, _, data = kept.partition(b"\n")
    if _seal(data) != seal:
        raise ValueError("not as it was written")
    return data


def read_sealed(path: str) -> bytes:
    """Return what is sealed in a file. Raises OSError, and ValueError as ``unsealed`` does, also where no run makes it so
    large."""
    try:
        return unsealed(files.read_bytes(path, _SEALED_MAX))
    except errors.InputError as error:
        raise ValueError(str(error)) from None


def _seal(data: bytes) -> bytes:
    return f"{storage_format_digest.KIND} {storage_format_digest.new_digest([data]).digest().hex()}".encode()


def _kind_of(kept: bytes) -> str:
    """Return the kind of the digests in a sealed file, from its first bytes; "" for what is none.

    A file that names none is of before xxh3.
    """
    kind, _, digest = kept.partition(b"\n")[0].rpartition(b" ")
    if not re.fullmatch(rb"[0-9a-f]{32}", digest):
        return ""
    return kind.decode("utf-8", "replace") or storage_format_digest.EARLIER_KIND


def key_of(fingerprint: str, spec: RangeSpec) -> str:
    """Return the key of a range. ``fingerprint`` stands for the settings, and for what this version makes of them."""
    fields = [spec.segment_start, spec.segment_end, spec.data_end, spec.low, spec.high, spec.known]
    fields += [spec.lead, *spec.before] if spec.lead else []
    return storage_format_digest.new_digest([json.dumps([FORMAT, fingerprint, *fields]).encode()]).digest().hex()


# ---------------------------------------------------------------------------------------------------------------------- samples
# A few bytes of a range stand for all of them: with size and time of the file they show whether it was written again.

PAGE: Final = 4096
HEAD: Final = 256
"""Bytes at the start of a range by which one log is known from another: they include a record's times and checksum."""


def _sample_pages(low: int, reach: int, ended: int) -> list[tuple[int, int]]:
    """Return (offset, bytes) of the pages that stand for a range: the first, middle and last one, and those around ``ended``.

    They lie in [low, reach): what the scan did not read says nothing of the range.
    """
    middle = low + (reach - low) // 2
    spans = [(at, at + PAGE) for at in (low, middle, max(low, reach - PAGE))]
    if ended >= 0:
        spans.append((max(low, ended - PAGE), ended + PAGE))
    return [(at, min(end, reach) - at) for at, end in spans if at < reach]


def sample_of(reader: files.Reader, start: int, low: int, reach: int, summary: RangeSummary) -> tuple[str, int]:
    """Return the sample of the range [low, reach): its digest in hex, and the bytes read for it.

    The range lies in a segment that begins at offset ``start``.
    """
    hasher, count = storage_format_digest.new_digest(), 0
    for at, length in _sample_pages(low, reach, max(summary.end, summary.tail)):
        hasher.update(reader.read(at - start, length))
        count += length
    return hasher.digest().hex(), count


def head_of(reader: files.Reader, low: int, start: int, reach: int, summary: RangeSummary) -> Head:
    """Return the head of the range [low, reach) of the segment that begins at offset ``start``."""
    ended = max(summary.end, summary.tail)
    count = max(0, min(HEAD, (ended if ended >= 0 else reach) - low, start + reader.size() - low))
    return Head(count, storage_format_digest.new_digest([reader.read(low - start, count)]).digest().hex())


def all_committed(entry: ScanEntry, committed: int) -> bool:
    """Return whether a range holds all its entries of DLedger, none of them behind the index ``committed``."""
    known = entry.range_summary(0)
    return known.uncommitted < 0 and (not known.entries or known.entries[4] <= committed)


def begins_alike(entry: ScanEntry, path: str) -> bool:
    """Return whether the segment at ``path`` still has the head of a range that was scanned."""
    count, digest = entry.head
    with files.Reader(path) as reader:
        if reader.size() < entry.low - entry.start + count:
            return False
        return bool(storage_format_digest.new_digest([reader.read(entry.low - entry.start, count)]).digest().hex() == digest)


def sampled_alike(entry: ScanEntry, path: str) -> tuple[bool, int]:
    """Return whether the segment at ``path`` seems to be as it was when the range was scanned, and the bytes read to find out.

    A broker's writes through a mapping may leave the modification time as it is for a while: the sample shows them.
    """
    if not is_same_file(entry, files.entry_of(path)):
        return False, 0
    with files.Reader(path) as reader:
        return has_sample(entry, reader)


def is_same_file(entry: ScanEntry, file: files.Entry) -> bool:
    """Return whether the segment's file has the size and time that it had when the range was scanned."""
    return (file.size, file.modified) == (entry.size, entry.modified)


def has_sample(entry: ScanEntry, reader: files.Reader) -> tuple[bool, int]:
    """Return whether the sample of a range is what it was, and the bytes read to find out. The file has the bytes up to its
    reach."""
    sample, count = sample_of(reader, entry.start, entry.low, entry.reach, entry.range_summary(0))
    return sample == entry.sample, count
