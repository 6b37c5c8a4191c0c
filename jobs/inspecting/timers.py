"""The files of timer messages: ``config/timercheck``, a file of ``timerlog``, ``timerwheel``."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import astuple
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.jobs.command.times import show_time
from rocketmq_reindex.jobs.inspecting.inspected import Inspected, Row, Rows
from rocketmq_reindex.storage_format.timer.check import CHECK_LAYOUT, TimerCheckpoint
from rocketmq_reindex.storage_format.timer.layout import (
    BLANK_SIZE,
    LOG_LAYOUT,
    LOG_UNIT,
    MAGIC_BITS,
    MAGIC_BLANK,
    MAGIC_DELETE,
    MAGIC_ROLL,
    SLOT,
    WHEEL_SIZE,
)
from rocketmq_reindex.udfs import files

_CHECK_MAX: Final = 1 << 20
_WHEEL_MAX: Final = 4 * WHEEL_SIZE
"""bytes that are read at most; a broker takes WHEEL_SIZE alone"""
_MAGIC: Final = struct.Struct(">i")


def timer_check(path: str) -> Inspected:
    """What ``timercheck`` holds, with a row for each field."""
    data = files.read_bytes(path, _CHECK_MAX)
    check = TimerCheckpoint.from_bytes(data)
    fields = dict(zip(CHECK_LAYOUT.names, astuple(check), strict=True))
    summary = {"bytes": len(data), "lastReadTime": show_time(check.read_time) if check.read_time else None, **fields}
    return Inspected(summary, Rows(lambda: iter([{"field": name, "value": value} for name, value in fields.items()])))


def timer_log(path: str) -> Inspected:
    """What a file of ``timerlog`` holds, with a row for each unit in front of the first that is none."""
    with files.Reader(path) as reader:
        data = reader.whole()
    units = data[: len(data) - len(data) % LOG_UNIT.itemsize].view(LOG_UNIT)
    good = (units["size"] == LOG_UNIT.itemsize) & ((units["magic"] | MAGIC_BITS) == MAGIC_BITS)
    count = len(units) if good.all() else int(np.argmin(good))
    end, used = count * LOG_UNIT.itemsize, units[:count]
    # The blank unit may be cut off: a file closes where no whole one fits.
    closed = end + BLANK_SIZE <= len(data) and _MAGIC.unpack_from(data.data, end + LOG_LAYOUT.at["magic"])[0] == MAGIC_BLANK
    rest = not closed and bool(data[end:].any())
    summary = {
        "bytes": len(data),
        "units": count,
        "rolled": int(np.count_nonzero(used["magic"] & MAGIC_ROLL)),
        "deleting": int(np.count_nonzero(used["magic"] & MAGIC_DELETE)),
        "end": end,
        "closed": closed,
        "first": _unit(used, 0) if count else None,
        "last": _unit(used, count - 1) if count else None,
        "findings": [{"code": "timer", "at": end, "count": 1, "text": "bytes that are no unit"}] if rest else [],
    }
    return Inspected(summary, Rows(lambda: (_unit(used, number) for number in range(count))))


def timer_wheel(path: str) -> Inspected:
    """What ``timerwheel`` holds, with a row for each slot in use, by its time in units of ``timerPrecisionMs``."""
    data = files.read_bytes(path, _WHEEL_MAX)
    slots = np.frombuffer(data[: len(data) - len(data) % SLOT.itemsize], SLOT)
    used = slots[slots["time"] != 0]
    used = used[np.argsort(used["time"], kind="stable")]
    summary: dict[str, Any] = {
        "bytes": len(data),
        "slots": len(slots),
        "used": len(used),
        "messages": int(used["count"].sum(dtype=np.int64)),
        "first": _slot(used, 0) if len(used) else None,
        "last": _slot(used, len(used) - 1) if len(used) else None,
        "findings": [] if len(data) == WHEEL_SIZE
        else [{"code": "timer", "at": len(data), "count": 1, "text": f"a broker takes {WHEEL_SIZE} bytes alone"}],
    }  # fmt: skip
    return Inspected(summary, Rows(lambda: _slots(used)))


def _unit(units: npt.NDArray[np.void], number: int) -> Row:
    unit = units[number]
    time = int(unit["written"]) + int(unit["delayed"])
    return {
        "position": number * LOG_UNIT.itemsize, "previous": int(unit["prev_pos"]), "magic": int(unit["magic"]),
        "time": time, "slotTime": show_time(time), "written": int(unit["written"]), "physicalOffset": int(unit["phy_offset"]),
        "size": int(unit["record_size"]), "topicHash": int(unit["topic_hash"]),
    }  # fmt: skip


def _slots(slots: npt.NDArray[np.void]) -> Iterator[Row]:
    return (_slot(slots, number) for number in range(len(slots)))


def _slot(slots: npt.NDArray[np.void], number: int) -> Row:
    slot = slots[number]
    return {
        "time": int(slot["time"]),
        "first": int(slot["first_pos"]),
        "last": int(slot["last_pos"]),
        "num": int(slot["count"]),
    }
