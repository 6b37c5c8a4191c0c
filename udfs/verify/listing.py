"""List the files of ConsumeQueues: rows that go where the units of their queues go, and what else lies there."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rocketmq_reindex.storage_format.checks.differences import Tally
from rocketmq_reindex.storage_format.file_names import first_byte, is_number, queue_id
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.queue import cells
from rocketmq_reindex.storage_format.queue.grouping import bucket_of
from rocketmq_reindex.udfs import files, schemas
from rocketmq_reindex.udfs.scan.batch_rows import QUEUE_BUCKETS
from rocketmq_reindex.udfs.verify.scan import AT_FILES, GROUPS

NOT_QUEUES_MAX = 10


@dataclass(frozen=True)
class ListQueues:
    """Lists the topics whose names are in ``plan`` below ``folder``; ``tasks`` share them. ``batch``: of batch queues.

    ``trimmed``: zeros at a file's end may not be stored. ``old_broker``: it is for RocketMQ 4.9.
    Leaves rows of files and, as a summary, {tally, files, bytes, others}.
    """

    folder: str
    plan: str
    tasks: int
    file_size: int
    keys: tuple[int, ...]
    batch: bool = False
    trimmed: bool = False
    old_broker: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        names = json.loads(files.read_bytes(self.plan))
        for batch in batches:
            for task in batch.column(0).to_pylist():
                yield from schemas.batches(self._rows(names[task :: self.tasks]))

    def _rows(self, names: list[str]) -> Iterator[schemas.Row]:
        tally, others = Tally(), list[str]()
        counts = {"files": 0, "bytes": 0}
        for name in names:
            topic = files.join(self.folder, name)
            is_folder = files.look(topic).kind == files.FOLDER
            if not is_folder:
                others.append(escape(name))
            for entry in files.listing(topic) if is_folder else []:
                number = queue_id(entry.name)
                if entry.kind != files.FOLDER or number is None:
                    # ConsumeQueueStore.loadConsumeQueues passes over it.
                    others.append(escape(f"{name}/{entry.name}"))
                    continue
                table = self._files(entry.path, tally, others)
                counts["files"] += len(table)
                counts["bytes"] += sum(size for _, size in table)
                raw = os.fsencode(name)
                ids = np.array([number], np.int32)
                crc = np.array([zlib.crc32(raw)], np.uint32)
                bucket = int(bucket_of(crc, ids, np.zeros(1, np.int64), QUEUE_BUCKETS if self.batch else GROUPS)[0])
                columns = np.zeros((cells.BATCH_COLUMNS if self.batch else cells.UNIT_COLUMNS, len(table)), np.int64)
                columns[:2] = np.array(table, np.int64).reshape(-1, 2).T
                cell = cells.pack([raw], ids, np.array([len(table)], np.int32), columns)
                kind = schemas.BATCHES if self.batch else schemas.UNITS
                yield kind, bucket, self.keys[bucket % len(self.keys)], -1, cell, AT_FILES
        word = {"tally": tally.to_json(), "others": others[:NOT_QUEUES_MAX], "passed_over": len(others), **counts}
        yield schemas.SUMMARY, 0, 0, -1, json.dumps(word).encode(), 0

    def _files(self, folder: str, tally: Tally, others: list[str]) -> list[tuple[int, int]]:
        """(first logical byte, size) of each file of a queue. Of what else lies there is told what keeps a broker from
        starting, or misleads it (``MappedFileQueue.doLoad``; tests/serving/test_start.py tries each with real ones)."""
        found = []
        entries = files.listing(folder)
        for number, entry in enumerate(entries):
            path = escape(_last_names(entry.path))
            if entry.kind == files.FOLDER:
                if self.old_broker:
                    tally.add("queue-file-stray", 1, path, 0, "a folder, which RocketMQ 4.9 takes for a file of another size")
                else:
                    others.append(path.partition("/")[2])
                continue
            if entry.kind == files.FILE and entry.size == 0 and number == len(entries) - 1 and not self.old_broker:
                continue  # 5.x removes it, whatever its name is
            if entry.kind != files.FILE or not is_number(entry.name):
                tally.add("queue-file-stray", 1, path, 0, "its name is no number")
                continue
            start = first_byte(entry.name)
            if start is None or start % self.file_size:
                tally.add("queue-file-name", 1, path, 0, f"not 20 digits, or no multiple of {self.file_size}")
                continue
            if entry.size > self.file_size or (entry.size < self.file_size and not self.trimmed):
                tally.add("queue-file-size", 1, path, entry.size, f"{entry.size} bytes instead of {self.file_size}")
            found.append((start, entry.size))
        return found


def _last_names(path: str) -> str:
    """``consumequeue/TOPIC/QUEUE/FILE``."""
    last: list[str] = []
    for _ in range(4):
        last.insert(0, files.base(path))
        path = files.parent(path)
    return "/".join(last)
