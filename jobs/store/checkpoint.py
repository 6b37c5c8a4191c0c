"""The times, and the offset, in a store's checkpoint, for who only asks how far it vouches."""

from __future__ import annotations

from dataclasses import astuple

from rocketmq_reindex.storage_format.checkpoint import SIZE, Checkpoint
from rocketmq_reindex.udfs import files


def read_times(path: str) -> Checkpoint:
    """The fields of a checkpoint: 0 for what is not there or below it."""
    if files.entry_of(path).kind != files.FILE:
        return Checkpoint()
    with files.Reader(path) as reader:
        found = Checkpoint.from_bytes(reader.read(0, min(reader.size(), SIZE)).ljust(SIZE, b"\0"))
    return Checkpoint(*(max(0, value) for value in astuple(found)))
