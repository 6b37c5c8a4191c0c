"""The kind of a file of a store: by its folders, its name, and at last by its first bytes."""

from __future__ import annotations

import struct
from typing import Final

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.file_names import first_byte, is_index_file
from rocketmq_reindex.storage_format.index.header import HEADER_SIZE, IndexHeader
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.queue.units import BATCH_UNIT_SIZE, UNIT_SIZE
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.files.pages import Pages

SEGMENT: Final = "segment"
QUEUE: Final = "consumequeue"
BATCH: Final = "batchconsumequeue"
INDEX: Final = "index"
CHECKPOINT: Final = "checkpoint"
TIMER_CHECK: Final = "timercheck"
TIMER_LOG: Final = "timerlog"
TIMER_WHEEL: Final = "timerwheel"
KINDS: Final = (SEGMENT, QUEUE, BATCH, INDEX, CHECKPOINT, TIMER_CHECK, TIMER_LOG, TIMER_WHEEL)
_MAGICS: Final = (r.MAGIC_V1, r.MAGIC_V2, r.MAGIC_BLANK)


def kind_of(path: str) -> str:
    """One of KINDS. Raises InputError where it is not known, OSError where it cannot be read."""
    full = files.absolute(path)
    name, folder = files.base(full), files.parent(full)
    above = files.base(files.parent(files.parent(folder)))
    if files.base(folder) == "index":
        return INDEX
    if above in (QUEUE, BATCH):
        return above
    if files.base(folder) == "commitlog":
        return SEGMENT
    if files.base(folder) == TIMER_LOG:
        return TIMER_LOG
    if name in (CHECKPOINT, TIMER_CHECK):
        return name
    # With timerWheelSnapshotFlush there are copies with a position of timerlog in their names.
    if name == TIMER_WHEEL or name.startswith(f"{TIMER_WHEEL}."):
        return TIMER_WHEEL
    found = _by_content(path, name)
    if found is None:
        raise InputError(f"{escape(path)}: cannot tell its kind: give --kind {'|'.join(KINDS)}")
    return found


def _by_content(path: str, name: str) -> str | None:
    pages = Pages(path)
    try:
        head, size = pages.read(0, HEADER_SIZE), pages.size
    finally:
        pages.close()
    if len(head) < HEADER_SIZE:
        return None
    if struct.unpack_from(">i", head, 4)[0] in _MAGICS:
        return SEGMENT
    if first_byte(name) is not None:
        # A queue's file: a unit's size stands at its byte 8; a batch unit begins with the same fields.
        length = struct.unpack_from(">i", head, 8)[0]
        if length > 0 and (size % UNIT_SIZE == 0) != (size % BATCH_UNIT_SIZE == 0):
            return QUEUE if size % UNIT_SIZE == 0 else BATCH
        return None
    header = IndexHeader.from_bytes(head)
    if len(name) == 17 and is_index_file(name) and 0 <= header.begin_place <= header.end_place and header.index_count >= 0:
        return INDEX
    return None
