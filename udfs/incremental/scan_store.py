"""The scan store: what earlier runs found in a log, kept below ``TABLES/_scans``, so that no range is scanned twice.

    entries/KEY                 one scanned range (``ScanEntry`` as sealed JSON); written last, so it is whole or absent
    data/KEY-ATTEMPT.runs       its runs of queue offsets and topics: rows (``udfs.incremental.stored_rows``)
    data/KEY-ATTEMPT.units      its ConsumeQueue units: rows
    data/KEY-ATTEMPT.block      its staged index items
    builds/DIGEST...            what a build was made of, by the digest of its manifest (``jobs.incremental.last_build``)

KEY stands for all that decides a result except the bytes: segment, range, settings. A digest in the entry stands for those.
"""

from __future__ import annotations

import dataclasses
import json
import os
import uuid
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from rocketmq_reindex.storage_format.digest import new_digest
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.scan.range_summary import RangeSpec, RangeSummary
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.files.digests import file_digest

FORMAT: Final = 3
"""Goes up when entries have other fields, or when the same version of the project finds something else in the same bytes."""


class KeptFile(NamedTuple):
    """A file in data/: its name there, its bytes, their digest in hex."""

    name: str
    size: int
    digest: str


class Head(NamedTuple):
    """The first bytes of a range that are records, at most ``samples.HEAD``, and their digest: a growing log keeps them."""

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
        """The fields as one JSON object."""
        return json.dumps(dataclasses.asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: bytes | str) -> ScanEntry:
        """The inverse of ``to_json``. Raises ValueError or TypeError for any other text."""
        return cls(**json.loads(text))

    def range_summary(self, number: int) -> RangeSummary:
        """The range's summary, as range ``number`` of this run."""
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
                raise InputError(f"{escape(folder)}: is a symbolic link: remove it")
        for folder in folders:
            files.make_folder(folder)

    def find(self, key: str) -> ScanEntry | None:
        """The entry of a key; None unless all of its files are there with their sizes."""
        path = files.join(self.entries, key)
        try:
            if files.entry_of(path).kind != files.FILE:
                return None
            entry = ScanEntry.from_json(unsealed(files.read_bytes(path)))
        except (OSError, ValueError, TypeError):
            # A crash of the machine or a bad disk spoilt it.
            return None
        return entry if self.has_data(entry) else None

    def has_data(self, entry: ScanEntry) -> bool:
        """Whether all files of an entry are there with their sizes."""
        found = [(files.entry_of(files.join(self.data, kept.name)), kept.size) for kept in entry.data.values()]
        return all(there.kind == files.FILE and there.size == size for there, size in found)

    def is_sound(self, entry: ScanEntry) -> bool:
        """Whether all files of an entry are there with their bytes."""
        kept = entry.data.values()
        return self.has_data(entry) and all(file_digest(files.join(self.data, one.name)) == one.digest for one in kept)

    def summary(self, entry: ScanEntry, number: int) -> RangeSummary:
        """The range's summary as range ``number`` of this run, with the path of its staged index items."""
        summary = entry.range_summary(number)
        summary.block = files.join(self.data, entry.data["block"].name) if "block" in entry.data else ""
        return summary

    def put(self, entry: ScanEntry) -> None:
        """Store an entry; its files are there already."""
        files.write_bytes(self.temporary, files.join(self.entries, entry.key), sealed(entry.to_json().encode()))

    def new_path(self, key: str, ending: str) -> str:
        """A path in data/ that no other attempt takes."""
        return files.join(self.data, f"{key}-{uuid.uuid4().hex}.{ending}")

    def kept(self, path: str, digest: str) -> KeptFile:
        """A file in data/ for an entry."""
        return KeptFile(files.base(path), files.entry_of(path).size, digest)


def sealed(data: bytes) -> list[bytes]:
    """``data`` behind a line with its digest, as the store keeps it."""
    return [new_digest([data]).digest().hex().encode(), b"\n", data]


def unsealed(kept: bytes) -> bytes:
    """The inverse of ``sealed``. Raises ValueError when a byte has changed."""
    digest, _, data = kept.partition(b"\n")
    if new_digest([data]).digest().hex().encode() != digest:
        raise ValueError("not as it was written")
    return data


def key_of(fingerprint: str, spec: RangeSpec) -> str:
    """The key of a range. ``fingerprint`` stands for the settings, and for what this version makes of them."""
    fields = [spec.segment_start, spec.segment_end, spec.data_end, spec.low, spec.high, spec.known]
    return new_digest([json.dumps([FORMAT, fingerprint, *fields]).encode()]).digest().hex()
