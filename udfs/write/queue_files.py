"""What the writers of queue files share: a file's path in the tree, its line in the manifest, a task's part of the manifest."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable

from rocketmq_reindex.storage_format.names import path_component
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.stage import Stage

Line = tuple[str, str]
"""(path, the entry of the manifest as JSON, a tab and the file's units)"""


def queue_path(folder: str, name: str, queue_id: int, start: int) -> str:
    """The path in the tree of the file of a queue that begins at logical byte ``start``."""
    topic = path_component(name)
    if topic is None:
        raise ValueError("a name that is no path component reached the writer")
    return f"{folder}/{topic}/{queue_id}/{start:020d}"


def entry_line(path: str, size: int, used: int, digest: str, units: int) -> Line:
    """The manifest takes what stands before the tab; an incremental build counts the units of files that it keeps."""
    return path, json.dumps({"path": path, "size": size, "used": used, "digest": digest}) + f"\t{units}"


def write_part(stage: Stage, folder: str, lines: Iterable[Line]) -> str:
    """A part of the manifest, in the order of paths, by which parts are merged; returns where it is."""
    part = files.join(stage.parts, f"{folder}-{uuid.uuid4().hex}")
    files.write_bytes(stage.temporary, part, [f"{line}\n".encode() for _, line in sorted(lines)])
    return part
