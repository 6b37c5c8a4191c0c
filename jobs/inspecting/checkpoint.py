"""A checkpoint: its times and offsets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rocketmq_reindex.jobs.command.times import show_time
from rocketmq_reindex.jobs.inspecting.show import Row
from rocketmq_reindex.storage_format.checkpoint import read_checkpoint
from rocketmq_reindex.udfs import files


def checkpoint(path: str) -> tuple[dict[str, Any], Iterator[Row]]:
    """(summary, the fields as rows)."""
    data = files.read_bytes(path)
    found, findings = read_checkpoint(data)
    times = {"physicMsgTimestamp": found.physic, "logicsMsgTimestamp": found.logics, "indexMsgTimestamp": found.index}
    offsets = {"masterFlushedOffset": found.master_flushed, "confirmPhyOffset": found.confirm_offset}
    summary: dict[str, Any] = {"bytes": len(data)}
    for name, value in times.items():
        summary[name] = value
        summary[name.replace("Timestamp", "Time")] = show_time(value) if value else None
    summary |= offsets
    summary["findings"] = [{"code": one.code, "at": one.at, "count": one.count, "text": one.text} for one in findings]
    return summary, iter([{"field": name, "value": value} for name, value in (times | offsets).items()])
