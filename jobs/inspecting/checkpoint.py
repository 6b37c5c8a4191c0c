"""A checkpoint: its times and offsets.

By itself: a checkpoint is shown without numpy.
"""

from typing import Any, Final

from rocketmq_reindex.jobs.inspecting.options import Inspected, Rows
from rocketmq_reindex.storage_format.checkpoint import read_checkpoint
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.times import show_time

_MOST: Final = 1 << 20
"""bytes that are read at most: a broker's has 4,096"""


def checkpoint(path: str) -> Inspected:
    """What a checkpoint holds, with a row for each field."""
    data = files.read_bytes(path, _MOST)
    found, findings = read_checkpoint(data)
    times = {"physicMsgTimestamp": found.physic, "logicsMsgTimestamp": found.logics, "indexMsgTimestamp": found.index}
    offsets = {
        "masterFlushedOffset": found.master_flushed,
        "confirmPhyOffset": found.confirm_offset,
        "logicsPhysicalOffset": found.logics_offset,
    }
    summary: dict[str, Any] = {"bytes": len(data)}
    for name, value in times.items():
        summary[name] = value
        summary[name.replace("Timestamp", "Time")] = show_time(value) if value else None
    summary |= offsets
    summary["findings"] = [{"code": one.code, "at": one.at, "count": one.count, "text": one.text} for one in findings]
    rows = [{"field": name, "value": value} for name, value in (times | offsets).items()]
    return Inspected(summary, Rows(lambda: iter(rows)))
