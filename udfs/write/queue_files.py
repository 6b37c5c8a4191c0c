"""What the writers of queue files share: a file's path, its line in the manifest, and the result of a task."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from rocketmq_reindex.storage_format.names import path_component
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.results import Result
from rocketmq_reindex.udfs.staging import StagingFolder

Line = tuple[str, str]
"""(path, line of a part: the file's entry in the manifest as JSON, a tab, its units)"""


@dataclass
class FilesResult(Result):
    """Files that a task wrote, or took over from an earlier build."""

    part: str
    """path of a part of the manifest: a line for each file, by path"""
    files: int = 0
    units: int = 0
    bytes: int = 0
    """bytes in use"""

    def add(self, units: int, used: int) -> None:
        """Count one more file, with so many units and bytes in use."""
        self.files += 1
        self.units += units
        self.bytes += used


def queue_path(folder: str, name: str, queue_id: int, start: int) -> str:
    """The path below the output folder of a queue's file: ``FOLDER/TOPIC/QUEUE/START``.

    ``start`` is the logical offset of its first byte. Raises ValueError for a topic that cannot be the name of a folder.
    """
    topic = path_component(name)
    if topic is None:
        raise ValueError("a name that is no path component reached the writer")
    return f"{folder}/{topic}/{queue_id}/{start:020d}"


def entry_line(path: str, size: int, used: int, digest: str, units: int) -> Line:
    """The line of one file: ``size`` bytes, ``used`` of them in use, which have this ``digest``, and ``units`` units.

    The manifest takes the text before the tab; an incremental build counts the units of files that it keeps.
    """
    return path, json.dumps({"path": path, "size": size, "used": used, "digest": digest}) + f"\t{units}"


def write_part(staging: StagingFolder, folder: str, lines: Iterable[Line]) -> str:
    """Write lines as a part of the manifest, by path (parts are merged in that order); returns its path."""
    part = files.join(staging.parts, f"{folder}-{uuid.uuid4().hex}")
    files.write_bytes(staging.temporary, part, [f"{line}\n".encode() for _, line in sorted(lines)])
    return part
