"""The scan of a verify with a memory: all rows of a range are stored, and come back as that scan left them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from rocketmq_reindex.udfs import schemas
from rocketmq_reindex.udfs.incremental.remembered_scan import RememberedScan
from rocketmq_reindex.udfs.incremental.stored_rows import rows_again


@dataclass(frozen=True)
class RememberedVerify(RememberedScan):
    """A ``VerifyScan`` with a memory.

    A spoilt file of the memory must not look like a difference, nor hide one: a range whose files are not as they were written
    is scanned again.
    """

    later: ClassVar[tuple[int, ...]] = ()
    checks_files: ClassVar[bool] = True

    def _rows(self, rows: Iterator[schemas.Row], number: int) -> Iterator[schemas.Row]:
        keys = self.task.keys
        for row in rows:
            if row.kind == schemas.UNITS:
                # The buckets of queues are the same in every run (``verify.scan.GROUPS``), their keys are not.
                yield row._replace(key=keys[row.bucket % len(keys)], range_number=number)
            else:
                yield from rows_again([row], number, keys, self.task.units_per_file)
