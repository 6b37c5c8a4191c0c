"""Keep what lay in a damaged stretch: its bytes in one file, and the records of it that can still be read in another.

quarantine/OFFSET        the bytes, up to the last one that is not zero; OFFSET has 20 digits
quarantine/OFFSET.json   offset, length, reasons, and the records whose frame is sound
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import pyarrow as pa

from rocketmq_reindex.storage_format.digest import new_digest
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.record.message import Message, read_message
from rocketmq_reindex.storage_format.repair.damage import Damage
from rocketmq_reindex.storage_format.scan.ranges import Segment
from rocketmq_reindex.storage_format.scan.settings import ScanSettings
from rocketmq_reindex.udfs import files, plans, results
from rocketmq_reindex.udfs.files.digests import UsedDigest
from rocketmq_reindex.udfs.repair.segments import read
from rocketmq_reindex.udfs.repair.walking import Walker
from rocketmq_reindex.udfs.results import Result
from rocketmq_reindex.udfs.staging import StagingFolder

FOLDER: Final = "quarantine"
_RECORDS_AT_ONCE: Final = 100
"""records that are listed by one write"""


@dataclass
class Kept(Result):
    """What was kept of the bytes from ``low`` on: their digest ("" where no file has them), entries of the manifest, records
    listed.
    """

    low: int = -1
    digest: str = ""
    entries: list[dict[str, Any]] = field(default_factory=list)
    records: int = 0
    """records in it whose frame is sound"""


@dataclass(frozen=True)
class KeepReplaced:
    """Keeps the old bytes of a task's share of the replaced stretches; leaves results (``Kept``).

    ``plan`` is the plan of these, each a ``Damage``, which ``tasks`` tasks share. ``settings`` are those of the scan.
    """

    staging: StagingFolder
    plan: str
    tasks: int
    settings: ScanSettings

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        replaced = [Damage.of_fields(fields) for fields in plans.read_plan(self.plan)]
        walker = Walker(self.settings)
        for task in plans.numbers(batches):
            yield results.batch([_keep(self.staging, walker, one) for one in plans.share(replaced, task, self.tasks)])


def _keep(staging: StagingFolder, walker: Walker, replaced: Damage) -> Kept:
    """Keep the bytes of the stretch, and list the records in them whose frame is sound."""
    low, high, segment = replaced.offset, replaced.end, replaced.segment
    kept = Kept(low)
    if not segment.path:
        return kept
    name = f"{low:020d}"
    kept.digest, used, of_used = _copy(staging, segment, low, min(high, segment.data_end), f"{FOLDER}/{name}")
    if used:
        kept.entries.append({"path": f"{FOLDER}/{name}", "size": used, "used": used, "digest": of_used})
    head = {
        "offset": low,
        "length": high - low,
        "damage": [{"offset": p.offset, "length": p.length, "reason": p.reason} for p in replaced.places],
        "bytes": f"{name}" if used else None,
        "records": [],
    }
    path, size, hasher = f"{FOLDER}/{name}.json", 0, new_digest()
    with (
        files.Reader(segment.path) as reader,
        files.writing(staging.temporary, files.join(staging.tree, path), like=(segment.path,)) as writer,
    ):
        # There may be millions, with long keys: all of them never are in memory.
        for text in _listing(head, _records(reader, walker, segment, low, high), kept):
            writer.append(text)
            hasher.update(text)
            size += len(text)
        writer.finish()
    kept.entries.append({"path": path, "size": size, "used": size, "digest": hasher.digest().hex()})
    return kept


def _listing(head: dict[str, Any], records: Iterator[dict[str, Any]], kept: Kept) -> Iterator[bytes]:
    """Yield the JSON text of a listing, one record a line; ``kept`` learns how many there are."""
    yield json.dumps(head, indent=1).encode()[: -len(b"]\n}")]
    while some := [json.dumps(record) for record in islice(records, _RECORDS_AT_ONCE)]:
        yield (",\n  " if kept.records else "\n  ").encode() + ",\n  ".join(some).encode()
        kept.records += len(some)
    yield b"\n ]\n}\n" if kept.records else b"]\n}\n"


def _copy(staging: StagingFolder, segment: Segment, low: int, high: int, path: str) -> tuple[str, int, str]:
    """Copy bytes up to the last that is not zero; returns the digest of all, how many were copied, and the digest of those."""
    whole, used = new_digest(), UsedDigest()
    writer: files.Writer | None = None
    try:
        at = 0
        for piece in read(segment.path, low - segment.start, high - segment.start):
            whole.update(piece.data)
            last = used.take(piece)
            if last:
                writer = writer or files.Writer(staging.temporary, files.join(staging.tree, path), like=(segment.path,))
                writer.write_at(at, piece[:last])
            at += len(piece)
        if writer is not None:
            writer.finish()
    except BaseException:
        if writer is not None:
            writer.abandon()
        raise
    return whole.digest().hex(), *used.finish()


def _records(reader: files.Reader, walker: Walker, segment: Segment, low: int, high: int) -> Iterator[dict[str, Any]]:
    for offset in walker.framed(segment, low, high):
        at = offset - segment.start
        size = reader.size()

        def read(inner: int, count: int, at: int = at, size: int = size) -> bytes:
            return reader.read(at + inner, max(0, min(count, size - at - inner)))

        found = read_message(read, offset, segment.data_end - offset)
        if isinstance(found, Message):
            yield record_entry(found)


def record_entry(message: Message) -> dict[str, Any]:
    """What is listed of a record. Its names come from the log: they are escaped."""
    return {
        "offset": message.phy_offset,
        "size": message.size,
        "topic": escape(message.topic),
        "queue": message.queue_id,
        "queue_offset": message.queue_offset,
        "unique_key": escape(message.unique_key) if message.unique_key else None,
        "keys": [escape(key) for key in message.keys],
        "store_time": message.store_time,
    }
