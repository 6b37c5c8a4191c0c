"""Scan only what no run has scanned before, for a build and for a verify with a memory."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from rocketmq_reindex import files
from rocketmq_reindex.files.digests import ReadDigest, digest_of, file_digest
from rocketmq_reindex.storage_format.scan.range_scan import RangeScanner
from rocketmq_reindex.storage_format.scan.ranges import RangeSpec, RangeSummary
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.incremental import scan_store
from rocketmq_reindex.udfs.incremental.stored_rows import RowWriter, rows_again, stored_rows
from rocketmq_reindex.udfs.scan.ranges import ScanTask

# -------------------------------------------------------------------------------------------------------------- remembered scan
# Scan only what no run has scanned before: a range with known bytes gives the rows of its earlier scan.

WRITTEN_LATER = (handover.UNITS, handover.BATCHES)
"""Rows that are only read back for files that change (``stored_rows.LoadRows``)."""


@dataclass
class RememberedRange(handover.TaskResult):
    """The data of a SUMMARY row: one range of this run."""

    number: int
    entry: dict[str, Any]
    """the fields of its ``ScanEntry``"""
    bytes_read: int
    """bytes of the log"""
    known: bool
    """whether an earlier run had scanned it"""


@dataclass(frozen=True)
class RememberedScan:
    """A ``ScanTask`` with a memory; the data of its SUMMARY rows are ``RememberedRange``.

    ``recheck``: all bytes of a known range are read and compared, whatever the file's time says. ``only``: entries with other
    keys are not used, since another run may be removing them.
    """

    task: ScanTask
    store: scan_store.ScanStore
    fingerprint: str
    recheck: bool
    only: frozenset[str] | None = None
    later: ClassVar[tuple[int, ...]] = WRITTEN_LATER
    """kinds of rows that a scan stores and does not hand on"""
    checks_files: ClassVar[bool] = False
    """whether a range counts as known only while its files are as they were written, also without ``recheck``"""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        scanner: RangeScanner | None = None
        for spec in self.task.specs(batches):
            entry, read = self._known(spec)
            if entry is not None:
                yield from handover.batches(self._again(spec, entry, read))
                continue
            scanner = scanner or RangeScanner(self.task.settings)
            yield from handover.batches(self._scan(scanner, spec, read))

    def _known(self, spec: RangeSpec) -> tuple[scan_store.ScanEntry | None, int]:
        """Return the entry of a range if its bytes are those that were scanned, and the bytes of the log read to find out.

        The sample comes first: where the log grew it differs, and then the scan is the only one to read the range.
        """
        key = scan_store.key_of(self.fingerprint, spec)
        entry = self.store.find(key) if self.only is None or key in self.only else None
        if entry is not None and not scan_store.all_committed(entry, self.task.settings.committed):
            return None, 0
        if entry is None or ((self.recheck or self.checks_files) and not self.store.is_sound(entry)):
            return None, 0
        file = files.entry_of(spec.path)
        if file.size < entry.reach - entry.start:
            return None, 0
        with files.Reader(spec.path) as reader:
            alike, read = scan_store.has_sample(entry, reader)
            if not alike:
                return None, read
            if scan_store.is_same_file(entry, file) and not self.recheck:
                return entry, read
            read += entry.reach - entry.low
            if digest_of(reader, entry.start, entry.low, entry.reach) != entry.digest:
                return None, read
        if not scan_store.is_same_file(entry, file):
            # The file was written elsewhere: next time the sample is enough.
            entry = dataclasses.replace(entry, size=file.size, modified=file.modified)
            self.store.put(entry)
        return entry, read

    def _again(self, spec: RangeSpec, entry: scan_store.ScanEntry, read: int) -> Iterator[handover.Row]:
        if "runs" in entry.data:
            runs = entry.data["runs"]
            rows = stored_rows(files.join(self.store.data, runs.name), runs.digest)
            yield from self._rows(rows, spec.number)
        self.task.done(self.store.summary(entry, spec.number))
        yield self._summary(spec, entry, read, known=True)

    def _rows(self, rows: Iterator[handover.Row], number: int) -> Iterator[handover.Row]:
        """Return stored rows, as range ``number`` of this run leaves them."""
        return rows_again(rows, number, self.task.keys, self.task.units_per_file)

    @staticmethod
    def _summary(spec: RangeSpec, entry: scan_store.ScanEntry, read: int, *, known: bool) -> handover.Row:
        remembered = RememberedRange(spec.number, vars(entry), read, known)
        return handover.summary(spec.number, remembered.to_json().encode())

    def _scan(self, scanner: RangeScanner, spec: RangeSpec, read: int) -> Iterator[handover.Row]:
        store, key = self.store, scan_store.key_of(self.fingerprint, spec)
        file = files.entry_of(spec.path)  # before a byte is read: what is written later has a later time
        block, read_digest = store.new_path(key, "block"), ReadDigest(spec.low)
        runs, units = (RowWriter(store.temporary, store.new_path(key, ending)) for ending in ("runs", "units"))
        summary = RangeSummary(spec.number, spec.low, spec.high, spec.known)
        try:
            for row in self.task.rows(scanner, spec, store.temporary, block, read_digest):
                if row.kind == handover.SUMMARY:
                    summary = RangeSummary.from_json(row.data.decode())
                elif row.kind in self.later:
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
            reach, digest = read_digest.finish(reader, spec.segment_start)
            sample, sample_read = scan_store.sample_of(reader, spec.segment_start, spec.low, reach, summary)
            head = scan_store.head_of(reader, spec.low, spec.segment_start, reach, summary)
        data = {ending: store.kept(path, its) for ending, (path, its) in kept.items() if its}
        name = f"{spec.segment_start:020d}"
        # The block's path is found again each time: a URI may hold secrets, and may be another next time.
        fields = dataclasses.asdict(dataclasses.replace(summary, block=""))
        entry = scan_store.ScanEntry(
            key, name, spec.segment_start, file.size, file.modified, spec.low, reach, digest, sample, fields, data, head
        )
        store.put(entry)
        yield self._summary(spec, entry, read + sample_read + reach - spec.low, known=False)


# ------------------------------------------------------------------------------------------------------------ remembered verify
# The scan of a verify with a memory: all rows of a range are stored, and come back as that scan left them.


@dataclass(frozen=True)
class RememberedVerify(RememberedScan):
    """A ``VerifyScan`` with a memory.

    A spoilt file of the memory must not look like a difference, nor hide one: a range whose files are not as they were written
    is scanned again.
    """

    later: ClassVar[tuple[int, ...]] = ()
    checks_files: ClassVar[bool] = True

    def _rows(self, rows: Iterator[handover.Row], number: int) -> Iterator[handover.Row]:
        keys = self.task.keys
        for row in rows:
            if row.kind == handover.UNITS:
                # The buckets of queues are the same in every run (``verify.queue_tasks.GROUPS``), their keys are not.
                yield row._replace(key=keys[row.bucket % len(keys)], range_number=number)
            else:
                yield from rows_again([row], number, keys, self.task.units_per_file)
