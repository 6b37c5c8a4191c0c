"""Scan only what no run has scanned before: a range whose bytes are known gives the rows that it gave then."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from rocketmq_reindex.storage_format.scan.range_scan import RangeScanner
from rocketmq_reindex.storage_format.scan.range_summary import RangeSpec, RangeSummary
from rocketmq_reindex.udfs import files, schemas
from rocketmq_reindex.udfs.incremental.scan_store import (
    ScanEntry,
    ScanStore,
    Seen,
    digest_of,
    file_digest,
    head_of,
    key_of,
    sample_of,
    sampled_alike,
)
from rocketmq_reindex.udfs.incremental.stored_rows import RowWriter, rows_again, stored_rows
from rocketmq_reindex.udfs.scan.ranges import ScanTask

WRITTEN_LATER = (schemas.UNITS, schemas.BATCHES)
"""Rows that are only read back for files that change (``write_again.LoadRows``)"""


@dataclass(frozen=True)
class RememberedScan:
    """A ScanTask with a memory. The data of a summary's row is JSON: the range's ``number`` and ``entry``, and bytes ``read``.

    ``recheck``: known bytes are read again and compared whole, whatever the file's time says. ``only``: entries of other keys
    are not used, since another run may be removing them.
    """

    task: ScanTask
    store: ScanStore
    fingerprint: str
    recheck: bool
    only: frozenset[str] | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        specs = [RangeSpec(*fields) for fields in json.loads(files.read_bytes(self.task.plan))]
        scanner: RangeScanner | None = None
        for batch in batches:
            for number in batch.column(0).to_pylist():
                low, high = number * len(specs) // self.task.tasks, (number + 1) * len(specs) // self.task.tasks
                for spec in specs[low:high]:
                    entry, read = self._known(spec)
                    if entry is not None:
                        yield from schemas.batches(self._again(spec, entry, read))
                        continue
                    scanner = scanner or RangeScanner(self.task.settings)
                    yield from schemas.batches(self._scan(scanner, spec, read))

    def _known(self, spec: RangeSpec) -> tuple[ScanEntry | None, int]:
        """The entry of a range, when its bytes are those that were scanned; and the bytes of the log read to tell."""
        key = key_of(self.fingerprint, spec)
        entry = self.store.find(key) if self.only is None or key in self.only else None
        if entry is None or (self.recheck and not self.store.is_sound(entry)):
            return None, 0
        alike, read = (False, 0) if self.recheck else sampled_alike(entry, spec.path)
        if alike:
            return entry, read
        found = files.look(spec.path)
        if found.size < entry.reach - entry.start:
            return None, read
        with files.Reader(spec.path) as reader:
            read += entry.reach - entry.low
            if digest_of(reader, entry.start, entry.low, entry.reach) != entry.digest:
                return None, read
            if (found.size, found.modified) != (entry.size, entry.modified):
                # Written to, but not here: next time the pages are enough.
                sample, more = sample_of(reader, entry.start, found.size, entry.low, entry.reach, entry.range_summary(0))
                entry = dataclasses.replace(entry, size=found.size, modified=found.modified, sample=sample)
                read += more
                self.store.put(entry)
        return entry, read

    def _again(self, spec: RangeSpec, entry: ScanEntry, read: int) -> Iterator[schemas.Row]:
        if "runs" in entry.data:
            name, _, digest = entry.data["runs"]
            rows = stored_rows(files.join(self.store.data, name), digest)
            yield from rows_again(rows, spec.number, self.task.keys, self.task.units_per_file)
        self.task.done(self.store.summary(entry, spec.number))
        yield self._word(spec, entry, read, known=True)

    @staticmethod
    def _word(spec: RangeSpec, entry: ScanEntry, read: int, *, known: bool) -> schemas.Row:
        text = json.dumps({"number": spec.number, "entry": dataclasses.asdict(entry), "read": read, "known": known})
        return schemas.SUMMARY, 0, 0, spec.number, text.encode(), 0

    def _scan(self, scanner: RangeScanner, spec: RangeSpec, read: int) -> Iterator[schemas.Row]:
        store, key = self.store, key_of(self.fingerprint, spec)
        found = files.look(spec.path)  # before a byte is read: what is written later has a later time
        block, seen = store.new_path(key, "block"), Seen(spec.low)
        runs, units = (RowWriter(store.temporary, store.new_path(key, ending)) for ending in ("runs", "units"))
        summary = RangeSummary(spec.number, spec.low, spec.high, spec.known)
        try:
            for row in self.task.rows(scanner, spec, store.temporary, block, seen):
                if row[0] == schemas.SUMMARY:
                    summary = RangeSummary.from_json(row[4].decode())
                elif row[0] in WRITTEN_LATER:
                    units.add(row)
                else:
                    runs.add(row)
                    yield row
            kept = {"runs": [runs.path, runs.finish()], "units": [units.path, units.finish()]}
        except BaseException:
            runs.abandon()
            units.abandon()
            raise
        if summary.block:
            kept["block"] = [block, file_digest(block)]
        with files.Reader(spec.path) as reader:
            reach, digest = seen.finish(reader, spec.segment_start)
            sample, more = sample_of(reader, spec.segment_start, found.size, spec.low, reach, summary)
            head = head_of(reader, spec.low, spec.segment_start, reach, summary)
        data = {ending: store.kept(path, its) for ending, (path, its) in kept.items() if its}
        name = f"{spec.segment_start:020d}"
        # Its block's place is found anew: a URI may have secrets, and be another next time.
        fields = dataclasses.asdict(dataclasses.replace(summary, block=""))
        entry = ScanEntry(
            key, name, spec.segment_start, found.size, found.modified, spec.low, reach, digest, sample, fields, data, head
        )
        store.put(entry)
        yield self._word(spec, entry, read + more + reach - spec.low, known=False)
