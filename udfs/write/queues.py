"""Write whole ConsumeQueue files from the cells of a bucket."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketmq_reindex.storage_format.digest import new_digest
from rocketmq_reindex.storage_format.queue import cells
from rocketmq_reindex.storage_format.queue.consume_queue import file_units
from rocketmq_reindex.storage_format.queue.units import UNIT_SIZE
from rocketmq_reindex.udfs import files, schemas
from rocketmq_reindex.udfs.stage import Stage
from rocketmq_reindex.udfs.write.queue_files import Line, entry_line, queue_path, write_part

FOLDER = "consumequeue"
"""``StorePathConfigHelper.getStorePathConsumeQueue``"""
LINES_MAX = 20_000
"""of a part of the manifest: a task may write very many small files"""
FileKey = tuple[bytes, int, int]
Rows = npt.NDArray[np.int64]


def write_empty_files(stage: Stage, file_size: int, wanted: Iterable[tuple[str, int, int]]) -> str:
    """Files that hold no unit: (topic, queue id, position of the first unit to come) each. A word as a writer's."""
    lines = []
    for name, queue_id, position in wanted:
        relative = queue_path(FOLDER, name, queue_id, position * UNIT_SIZE)
        with files.writing(stage.temporary, files.join(stage.tree, relative)) as writer:
            writer.finish(stage.stored(file_size))
        lines.append(entry_line(relative, file_size, 0, new_digest([]).digest().hex(), 0))
    return json.dumps({"part": write_part(stage, FOLDER, lines), "files": len(lines), "units": 0, "bytes": 0})


@dataclass(frozen=True)
class WriteQueues:
    """Rows come sorted by bucket; each bucket's files are written when its last cell is there."""

    stage: Stage
    file_size: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        lines: list[Line] = []
        counts = {"files": 0, "units": 0, "bytes": 0}
        folders: set[str] = set()
        for cells_of_bucket in schemas.by_bucket(batches):
            found: dict[FileKey, list[Rows]] = {}
            for _, _, cell in cells_of_bucket:
                for key, rows in self._pieces(cell):
                    found.setdefault(key, []).append(rows)
            for key, parts in found.items():
                lines.append(self._write(key, np.concatenate(parts, axis=1), counts, folders))
            if len(lines) >= LINES_MAX:
                yield self._word(lines, counts)
                lines, counts, folders = [], dict.fromkeys(counts, 0), set()
        if lines:
            yield self._word(lines, counts)

    def _word(self, lines: list[Line], counts: dict[str, int]) -> pa.RecordBatch:
        return schemas.result([json.dumps({"part": write_part(self.stage, FOLDER, lines), **counts})])

    def _write(self, key: FileKey, rows: Rows, counts: dict[str, int], folders: set[str]) -> Line:
        raw, queue_id, file_number = key
        start, used, image = file_units(self.file_size // UNIT_SIZE, file_number, rows)
        relative = queue_path(FOLDER, raw.decode(), queue_id, start)
        target = files.join(self.stage.tree, relative)
        folder = files.parent(target)
        if folder not in folders:
            # An attempt that comes late finds no tree, and must not make one.
            files.make_folder(folder, below=self.stage.tree)
            folders.add(folder)
        with files.writing(self.stage.temporary, target) as writer:
            writer.append(image.view(np.uint8))
            writer.finish(self.stage.stored(self.file_size))
        counts["files"] += 1
        counts["units"] += rows.shape[1]
        counts["bytes"] += used
        return entry_line(relative, self.file_size, used, new_digest([image.view(np.uint8)]).digest().hex(), rows.shape[1])

    def _pieces(self, cell: bytes) -> Iterator[tuple[FileKey, Rows]]:
        units_per_file = self.file_size // UNIT_SIZE
        for name, queue_id, rows in cells.unpack(cell, cells.UNIT_COLUMNS).parts():
            yield (name, queue_id, int(rows[0, 0]) // units_per_file), rows
