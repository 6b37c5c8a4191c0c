"""Write whole ConsumeQueue files from the cells of a bucket."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage_format import cells
from storage_format.consume_queue import UNIT_SIZE, file_units
from storage_format.digest import new_digest
from storage_format.names import path_component
from udfs import files, schemas
from udfs.stage import Stage

FileKey = tuple[bytes, int, int]
Rows = npt.NDArray[np.int64]


def write_empty_files(stage: Stage, file_size: int, wanted: Iterable[tuple[str, int, int]]) -> str:
    """Files that hold no unit: (topic, queue id, position of the first unit to come) each. A word as a writer's."""
    lines = []
    for name, queue_id, position in wanted:
        topic = path_component(name)
        if topic is None:
            raise ValueError("a name that is no path component reached the writer")
        relative = f"consumequeue/{topic}/{queue_id}/{position * UNIT_SIZE:020d}"
        with files.writing(stage.temporary, files.join(stage.tree, relative)) as writer:
            writer.finish(file_size)
        lines.append(json.dumps({"path": relative, "size": file_size, "used": 0, "digest": new_digest([]).digest().hex()}))
    part = files.join(stage.parts, f"consumequeue-{uuid.uuid4().hex}")
    files.write_bytes(stage.temporary, part, [f"{line}\n".encode() for line in sorted(lines)])
    return json.dumps({"part": part, "files": len(lines), "units": 0, "bytes": 0})


@dataclass(frozen=True)
class WriteQueues:
    """Rows come sorted by bucket; each bucket's files are written when its last cell is there."""

    stage: Stage
    file_size: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        lines: list[tuple[str, str]] = []
        counts = {"files": 0, "units": 0, "bytes": 0}
        folders: set[str] = set()
        for bucket in self._buckets(batches):
            for key, parts in bucket.items():
                lines.append(self._write(key, np.concatenate(parts, axis=1), counts, folders))
        if lines:
            part = files.join(self.stage.parts, f"consumequeue-{uuid.uuid4().hex}")
            files.write_bytes(self.stage.temporary, part, [f"{line}\n".encode() for _, line in sorted(lines)])
            yield schemas.result([json.dumps({"part": part, **counts})])

    def _write(self, key: FileKey, rows: Rows, counts: dict[str, int], folders: set[str]) -> tuple[str, str]:
        raw, queue_id, file_number = key
        topic = path_component(raw.decode())
        if topic is None:
            raise ValueError("a name that is no path component reached the writer")
        start, used, image = file_units(self.file_size // UNIT_SIZE, file_number, rows)
        relative = f"consumequeue/{topic}/{queue_id}/{start:020d}"
        target = files.join(self.stage.tree, relative)
        folder = target.rpartition("/")[0]
        if folder not in folders:
            # An attempt that comes late finds no tree, and must not make one.
            files.make_folder(folder, below=self.stage.tree)
            folders.add(folder)
        with files.writing(self.stage.temporary, target) as writer:
            writer.append(image.view(np.uint8))
            writer.finish(self.file_size)
        counts["files"] += 1
        counts["units"] += rows.shape[1]
        counts["bytes"] += used
        entry = {
            "path": relative,
            "size": self.file_size,
            "used": used,
            "digest": new_digest([image.view(np.uint8)]).digest().hex(),
        }
        return relative, json.dumps(entry)

    def _buckets(self, batches: Iterator[pa.RecordBatch]) -> Iterator[dict[FileKey, list[Rows]]]:
        """The pieces of each bucket, by file."""
        current, held = -1, dict[FileKey, list[Rows]]()
        for batch in batches:
            numbers = batch.column(batch.schema.get_field_index("bucket")).to_pylist()
            data = batch.column(batch.schema.get_field_index("data")).to_pylist()
            for number, cell in zip(numbers, data, strict=True):
                if number != current and held:
                    yield held
                    held = {}
                current = number
                for key, rows in self._pieces(cell):
                    held.setdefault(key, []).append(rows)
        if held:
            yield held

    def _pieces(self, cell: bytes) -> Iterator[tuple[FileKey, Rows]]:
        pieces = cells.unpack(cell, cells.UNIT_COLUMNS)
        units_per_file = self.file_size // UNIT_SIZE
        at = 0
        for name, queue_id, count in zip(pieces.names, pieces.queue_ids.tolist(), pieces.counts.tolist(), strict=True):
            rows = pieces.columns[:, at : at + count]
            yield (name, queue_id, int(rows[0, 0]) // units_per_file), rows
            at += count
