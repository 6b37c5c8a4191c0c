"""The driver's side of an incremental scan: what is known of each range of this run, and how much of the log was read."""

from __future__ import annotations

import dataclasses
import json
from typing import Final

from rocketmq_reindex.storage_format.digest import new_digest
from rocketmq_reindex.storage_format.scan.ranges import RangeSummary
from rocketmq_reindex.storage_format.scan.settings import ScanSettings
from rocketmq_reindex.udfs.incremental.remembered_scan import RememberedRange, RememberedScan
from rocketmq_reindex.udfs.incremental.scan_store import ScanEntry, ScanStore
from rocketmq_reindex.udfs.scan.ranges import ScanTask


def fingerprint_of(version: str, scan: ScanSettings, units_per_file: int, topics: bool) -> str:
    """Return a digest of all that decides the result of a scan. With another version of this package nothing is known."""
    text = json.dumps([version, dataclasses.astuple(scan), units_per_file, topics])
    return new_digest([text.encode()]).digest().hex()


_KNOWN: Final = 64
"""A range that is known costs a task about this part of what it costs to scan it: some pages are read."""


class ScanMemory:
    """Ranges of this run by number."""

    def __init__(self, store: ScanStore, fingerprint: str, recheck: bool) -> None:
        self.store, self._fingerprint, self._recheck = store, fingerprint, recheck
        self.entries: dict[int, ScanEntry] = {}
        self.bytes_read = 0
        self.known = 0
        """ranges that were not scanned again"""
        self.only: frozenset[str] | None = None
        """keys of the entries that may be used, when not all of them may"""
        self.bytes_before = 0
        """bytes of this log that the build before has scanned"""

    def work(self, size: int) -> int:
        """Return how many bytes a scan of the first ``size`` bytes has to read, about. Only tasks find out what is known."""
        known = min(size, self.bytes_before)
        return size - known + known // _KNOWN

    def wrap(self, task: ScanTask) -> RememberedScan:
        """Return the task that scans only what is not known."""
        return RememberedScan(task, self.store, self._fingerprint, self._recheck, self.only)

    def take(self, data: bytes) -> RangeSummary:
        """Return a range's summary from the data of its row."""
        found = RememberedRange.from_json(data)
        entry = ScanEntry(**found.entry)
        self.entries[found.number] = entry
        self.bytes_read += found.bytes_read
        self.known += found.known
        return self.store.summary(entry, found.number)
