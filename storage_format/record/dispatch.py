"""What a broker derives from a record besides its bytes: a unit, and index items of its keys (4.9 to 5.5)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.kernels.jit import inlined
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record import properties as p


@inlined
def gives_unit(sys_flag: int) -> bool:
    """Whether a record with this SYSFLAG gets a unit (``CommitLogDispatcherBuildConsumeQueue``)."""
    transaction = sys_flag & r.FLAG_TRANSACTION_MASK
    return transaction == r.TRANSACTION_NONE or transaction == r.TRANSACTION_COMMIT


@inlined
def gives_items(sys_flag: int) -> bool:
    """Whether a record with this SYSFLAG is indexed, if it has keys or tags (``IndexService.buildIndex``)."""
    return sys_flag & r.FLAG_TRANSACTION_MASK != r.TRANSACTION_ROLLBACK


@inlined
def is_filler(sys_flag: int, flag: int) -> bool:
    """Whether a record with this SYSFLAG and FLAG is a filler for lost bytes (``repair.records``)."""
    return sys_flag & r.FLAG_TRANSACTION_MASK == r.TRANSACTION_ROLLBACK and flag == r.LOST_FLAG


@inlined
def is_tombstone(flag: int, tags_code: int) -> bool:
    """Whether a record with this FLAG and tagsCode stands at the offset of a lost message (``repair.records``)."""
    return flag == r.LOST_FLAG and tags_code == r.LOST_TAG_CODE


@inlined
def count_keys(data: npt.NDArray[np.uint8], spans: npt.NDArray[np.int64]) -> int:
    """Return how many items the keys of a record give: one for UNIQ_KEY, and one for each of KEYS (``index_record``)."""
    count = 1 if spans[2 * p.UNIQ_KEY] >= 0 else 0
    at = spans[2 * p.KEYS]
    if at >= 0:
        blank = True
        while at < spans[2 * p.KEYS + 1]:
            space = data[at] == 0x20
            if blank and not space:
                count += 1
            blank = space
            at += 1
    return count
