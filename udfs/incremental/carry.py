"""Take over files of the earlier build: in a bucket by a copy within it, on a disk by a hard link where that is safe.

A broker never writes into a full file again. It does write into a file with room, through a mapping that may outlive the
rename which publishes a build. So on a disk a file with room is copied, never linked. Where each build has a folder of its own,
it also has files of its own: the earlier build can be removed as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.udfs import files, plans, results
from rocketmq_reindex.udfs.staging import StagingFolder
from rocketmq_reindex.udfs.write.queue_files import FilesResult

_COPY_BYTES: Final = 1 << 18
_SENT_BYTES: Final = 8 << 20
"""Bytes of one request where a file has to come here and be sent again."""
_AT_ONCE: Final = 8
"""Files of one task at the same time, behind a URI: most of the time each waits for its store."""


def carry(staging: StagingFolder, source: str, target: str, size: int, used: int) -> None:
    """Link or copy the file ``source`` to ``target`` in the staging folder.

    ``used`` bytes are written; zeros follow up to ``size`` bytes. Behind a URI ``source`` is stored as this run would store it.
    Raises InputError when ``source`` is gone.
    """
    if files.copy_in_store(source, target) if staging.build else size == used and files.link(source, target):
        return
    piece = min(_SENT_BYTES if staging.build else _COPY_BYTES, used)
    try:
        with files.Reader(source) as reader, files.writing(staging.temporary, target) as writer:
            buffer = np.empty(piece, np.uint8)
            for at in range(0, used, max(1, piece)):
                part = buffer[: min(piece, used - at)]
                reader.read_into(at, part)
                if part.any():
                    # The slots of an IndexFile are mostly holes.
                    writer.write_at(at, part)
            writer.finish(staging.stored(size))
    except FileNotFoundError:
        if files.entry_of(source).kind != files.ABSENT:
            raise
        raise InputError(
            f"{escape(source)}: is gone: others have replaced the build that this one goes on from: again"
        ) from None


@dataclass(frozen=True)
class Carry:
    """Takes over files of the folder ``source``: those in the parts whose numbers it is given; leaves ``FilesResult``.

    A part has the lines of a manifest's part (``queue_files.entry_line``). A file goes to its path in the tree, or to ``made``.
    """

    staging: StagingFolder
    source: str
    parts: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in plans.numbers(batches):
            yield results.batch([self._carry(self.parts[number])])

    def _carry(self, part: str) -> FilesResult:
        lines = [line.partition(b"\t") for line in files.lines(part)]
        entries = [json.loads(text) for text, _, _ in lines]
        into = {files.parent(self._target(entry)) for entry in entries if "made" not in entry}
        for folder in sorted(into):
            # A late attempt finds no tree, and must not make one.
            files.make_folder(folder, below=self.staging.tree)
        if self.staging.build:
            with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="carry") as pool:
                list(pool.map(self._one, entries))
        else:
            for entry in entries:
                self._one(entry)
        return FilesResult(part, len(entries), sum(int(units or 0) for _, _, units in lines))

    def _target(self, entry: dict[str, Any]) -> str:
        return entry.get("made") or files.join(self.staging.tree, entry["path"])

    def _one(self, entry: dict[str, Any]) -> None:
        source = files.join(self.source, entry.get("at", entry["path"]))
        carry(self.staging, source, self._target(entry), entry["size"], entry["used"])
