"""Inspect a checkpoint: its times and offsets.

By itself: a checkpoint is shown without numpy.
"""

from typing import Any, Final

from rocketmq_reindex import files
from rocketmq_reindex.jobs.inspecting.options import Inspected, InspectedRows
from rocketmq_reindex.storage_format.checkpoint import read_checkpoint
from rocketmq_reindex.udfs.times import show_time

_MOST: Final = 1 << 20
"""bytes that are read at most: a broker's has 4,096"""


def checkpoint(path: str) -> Inspected:
    """Return what a checkpoint holds, with a row for each field."""
    data = files.read_bytes(path, _MOST)
    fields, findings = read_checkpoint(data)
    times = {"physicMsgTimestamp": fields.physic, "logicsMsgTimestamp": fields.logics, "indexMsgTimestamp": fields.index}
    offsets = {
        "masterFlushedOffset": fields.master_flushed,
        "confirmPhyOffset": fields.confirm_offset,
        "logicsPhysicalOffset": fields.logics_offset,
    }
    summary: dict[str, Any] = {"bytes": len(data)}
    for name, value in times.items():
        summary[name] = value
        summary[name.replace("Timestamp", "Time")] = show_time(value) if value else None
    summary |= offsets
    summary["findings"] = [
        {"code": finding.code, "at": finding.at, "count": finding.count, "text": finding.text} for finding in findings
    ]
    rows = [{"field": name, "value": value} for name, value in (times | offsets).items()]
    return Inspected(summary, InspectedRows(lambda: iter(rows)))
