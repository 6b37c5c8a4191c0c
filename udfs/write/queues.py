"""Write whole ConsumeQueue files from the cells of a bucket."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketmq_reindex.storage_format.digest import new_digest
from rocketmq_reindex.storage_format.queue import cells
from rocketmq_reindex.storage_format.queue.consume_queue import file_units
from rocketmq_reindex.storage_format.queue.units import UNIT_SIZE
from rocketmq_reindex.udfs import files, results, schemas
from rocketmq_reindex.udfs.staging import StagingFolder
from rocketmq_reindex.udfs.write.queue_files import FilesResult, Line, entry_line, queue_path, write_part

FOLDER = "consumequeue"
"""``StorePathConfigHelper.getStorePathConsumeQueue``"""
LINES_MAX = 20_000
"""Lines in one part of the manifest: a task may write very many small files."""
FileKey = tuple[bytes, int, int]
"""(topic in UTF-8, queue id, number of the file in its queue)"""
Rows = npt.NDArray[np.int64]


def write_empty_files(staging: StagingFolder, file_size: int, wanted: Iterable[tuple[str, int, int]]) -> FilesResult:
    """Write files that hold no unit, each of ``file_size`` bytes.

    ``wanted`` are (topic, queue id, queue offset of the file's first slot). RocketMQ 4.9 leaves such files at a queue's end.
    """
    lines = []
    for name, queue_id, position in wanted:
        relative = queue_path(FOLDER, name, queue_id, position * UNIT_SIZE)
        with files.writing(staging.temporary, files.join(staging.tree, relative)) as writer:
            writer.finish(staging.stored(file_size))
        lines.append(entry_line(relative, file_size, 0, new_digest([]).digest().hex(), 0))
    return FilesResult(write_part(staging, FOLDER, lines), len(lines))


@dataclass(frozen=True)
class WriteQueues:
    """Reduces rows of UNITS to ConsumeQueue files of ``file_size`` bytes (``ConsumeQueue``, RocketMQ 5.3).

    Rows come by bucket; the files of a bucket are written once its last cell has come. Leaves results (``FilesResult``).
    """

    staging: StagingFolder
    file_size: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        lines, folders, counts = list[Line](), set[str](), FilesResult("")
        for cells_of_bucket in schemas.by_bucket(batches):
            found: dict[FileKey, list[Rows]] = {}
            for cell in cells_of_bucket:
                for key, rows in self._pieces(cell.data):
                    found.setdefault(key, []).append(rows)
            for key, parts in found.items():
                lines.append(self._write(key, parts, counts, folders))
            if len(lines) >= LINES_MAX:
                yield self._result(lines, counts)
                lines, folders, counts = [], set(), FilesResult("")
        if lines:
            yield self._result(lines, counts)

    def _result(self, lines: list[Line], counts: FilesResult) -> pa.RecordBatch:
        return results.batch([dataclasses.replace(counts, part=write_part(self.staging, FOLDER, lines))])

    def _write(self, key: FileKey, parts: list[Rows], counts: FilesResult, folders: set[str]) -> Line:
        raw, queue_id, file_number = key
        start, used, image = file_units(self.file_size // UNIT_SIZE, file_number, parts)
        relative = queue_path(FOLDER, raw.decode(), queue_id, start)
        target = files.join(self.staging.tree, relative)
        folder = files.parent(target)
        if folder not in folders:
            # A late attempt finds no tree, and must not make one.
            files.make_folder(folder, below=self.staging.tree)
            folders.add(folder)
        with files.writing(self.staging.temporary, target) as writer:
            writer.append(image.view(np.uint8))
            writer.finish(self.staging.stored(self.file_size))
        units = sum(rows.shape[1] for rows in parts)
        counts.add(units, used)
        return entry_line(relative, self.file_size, used, new_digest([image.view(np.uint8)]).digest().hex(), units)

    def _pieces(self, cell: bytes) -> Iterator[tuple[FileKey, Rows]]:
        units_per_file = self.file_size // UNIT_SIZE
        for name, queue_id, rows in cells.unpack(cell, cells.UNIT_COLUMNS).parts():
            yield (name, queue_id, int(rows[0, 0]) // units_per_file), rows
