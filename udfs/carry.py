"""Take files of the build before into a new one: those that are full by a link, the others by a copy.

A broker never writes into a full file again, but into one with room it does, through a mapping that may outlive the rename
which publishes a build: no file with room shares its bytes with one that a broker may have open.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from udfs import files, schemas
from udfs.stage import Stage

_COPY_BYTES = 1 << 18


def carry(stage: Stage, source: str, target: str, size: int, used: int) -> None:
    """``source`` as ``target`` in the staging area. ``used`` bytes are written, up to ``size`` are zeros."""
    if size == used and files.link(source, target):
        return
    with files.Reader(source) as reader, files.writing(stage.temporary, target) as writer:
        buffer = np.empty(min(_COPY_BYTES, used), np.uint8)
        for at in range(0, used, _COPY_BYTES):
            part = buffer[: min(_COPY_BYTES, used - at)]
            reader.read_into(at, part)
            if part.any():
                # The slots of an IndexFile are mostly holes.
                writer.write_at(at, part)
        writer.finish(size)


@dataclass(frozen=True)
class Carry:
    """Carries the files of parts of a manifest from the folder ``source`` into the tree. A word a part, as a writer's."""

    stage: Stage
    source: str
    parts: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield schemas.result([json.dumps(self._carry(self.parts[number]))])

    def _carry(self, part: str) -> dict[str, object]:
        counts = {"files": 0, "units": 0, "bytes": 0}
        folders: set[str] = set()
        for line in files.lines(part):
            text, _, units = line.partition(b"\t")
            entry = json.loads(text)
            target = files.join(self.stage.tree, entry["path"])
            folder = target.rpartition("/")[0]
            if folder not in folders:
                files.make_folder(folder, below=self.stage.tree)
                folders.add(folder)
            carry(self.stage, files.join(self.source, entry["path"]), target, entry["size"], entry["used"])
            counts["files"] += 1
            counts["units"] += int(units)
        return {"part": part, **counts}
