"""The checkpoint: physicMsgTimestamp, logicsMsgTimestamp, indexMsgTimestamp, in 5.x masterFlushedOffset and
confirmPhyOffset, and from 5.5 on logicsPhysicalOffset; eight bytes each, zeros up to 4,096."""

import struct

from tests.reference.index_file import IndexFile
from tests.reference.records import Record

SIZE = 4096


def checkpoint(
    policy: str,
    broker_version: str,
    last: Record | None,
    last_dispatched: Record | None,
    index_files: list[IndexFile],
    end: int = 0,
) -> bytes:
    """`end`: where the last segment ends; the broker leaves that where no record is good (CommitLog.recoverNormally).

    `last`: the log's last good record; `last_dispatched`: the last that was handed to a ConsumeQueue."""
    if policy == "safe":
        physic = logics = last.store_timestamp if last else 0
        index = max((f.end_timestamp for f in index_files), default=0)
    else:
        physic = 0
        logics = last_dispatched.store_timestamp if last_dispatched else 0
        if broker_version == "5.5":
            # ConsumeQueueStore.FlushConsumeQueueService takes over what is above 0.
            logics = max(0, logics)
        # IndexService.flush: a full file counts once the next is made, unless its end is no positive time.
        followed = [f.end_timestamp for f in index_files[:-1] if f.end_timestamp > 0]
        index = followed[-1] if followed else 0
    nothing = end if policy == "broker" else 0
    confirm = (last.offset if last else nothing) if broker_version != "4.9" else 0
    # Where the queues end, by the record that they got last; before 5.5 nobody wrote that down.
    of_queues = last if policy == "safe" else last_dispatched
    offset = of_queues.offset if of_queues and broker_version == "5.5" else 0
    if broker_version == "5.5" and not offset:
        # With enableAcceleratedRecovery 5.5 loads without that offset only where physicMsgTimestamp is 0, too.
        physic = 0
    return struct.pack(">qqqqqq", physic, logics, index, 0, confirm, offset).ljust(SIZE, b"\0")
