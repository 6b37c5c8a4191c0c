"""A pass over a segment that looks at heads and topics alone: the newest store time, and delayed records by level."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.kernels.jit import jit
from rocketmq_reindex.storage_format.kernels.words import int32_at, int64_at
from rocketmq_reindex.storage_format.record import layout as r

NEXT_SEGMENT: Final = -1
END: Final = -2


@jit
def walk_due(
    data: npt.NDArray[np.uint8],
    at: int,
    limit: int,
    topic: npt.NDArray[np.uint8],
    delays: npt.NDArray[np.int64],
    now: int,
    newest: npt.NDArray[np.int64],
    due: npt.NDArray[np.int64],
) -> int:
    """Walk the records of a segment in ``data[at:limit]``, which the recovery has accepted.

    ``newest``, int64 (1,), becomes the latest store time in milliseconds. ``due``, int64 (n,), counts for each queue of
    ``topic``, uint8, the records whose store time and delay (``delays``, int64 (n,), milliseconds) are at most ``now``, and
    that get a unit. Returns NEXT_SEGMENT behind a filler or the last byte, END where no record stands.
    """
    while at + r.FILLER_MIN <= limit:
        total = np.int64(int32_at(data, at))
        magic = int32_at(data, at + r.AT_MAGIC)
        if magic == r.MAGIC_BLANK:
            return NEXT_SEGMENT
        if (magic != r.MAGIC_V1 and magic != r.MAGIC_V2) or total < r.RECORD_MIN or at + total > limit:
            return END
        flags = int32_at(data, at + r.AT_SYS_FLAG)
        born = r.IPV6_EXTRA if flags & r.FLAG_BORN_HOST_V6 else 0
        hosts = born + (r.IPV6_EXTRA if flags & r.FLAG_STORE_HOST_V6 else 0)
        if total < r.RECORD_MIN + hosts:
            return END
        time = int64_at(data, at + r.AT_STORE_TIMESTAMP + born)
        newest[0] = max(newest[0], time)
        queue = int32_at(data, at + r.AT_QUEUE_ID)
        kind = flags & r.FLAG_TRANSACTION_MASK
        plain = kind == r.TRANSACTION_NONE or kind == r.TRANSACTION_COMMIT
        if plain and queue >= 0 and queue < len(delays) and time + delays[queue] <= now:
            body = max(np.int64(0), np.int64(int32_at(data, at + r.AT_BODY_LENGTH + hosts)))
            name = at + r.HEADER_SIZE + hosts + body
            if magic == r.MAGIC_V1 and name + 1 + len(topic) <= at + total and data[name] == len(topic):
                same = True
                for i in range(len(topic)):
                    same = same and data[name + 1 + i] == topic[i]
                if same:
                    due[queue] += 1
        at += total
    return NEXT_SEGMENT
