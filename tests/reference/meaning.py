"""What a record means, read from its row in plain Python: the columns ``kind`` to ``deliverTime``."""

from __future__ import annotations

import datetime as dt
import json
import re
from typing import Any

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
LONG = 2**63 - 1
KINDS = {
    "RMQ_SYS_TRANS_HALF_TOPIC": "half", "RMQ_SYS_TRANS_OP_HALF_TOPIC": "op", "TRANS_CHECK_MAX_TIME_TOPIC": "given_up",
    "SCHEDULE_TOPIC_XXXX": "scheduled", "rmq_sys_wheel_timer": "timer", "RMQ_SYS_TRACE_TOPIC": "trace", "TBW102": "system",
    "BenchmarkTest": "system", "SELF_TEST_TOPIC": "system", "OFFSET_MOVED_EVENT": "system", "CHECKPOINT_TOPIC": "system",
}  # fmt: skip


def kind_of(topic: str) -> str:
    if topic in KINDS:
        return KINDS[topic]
    for beginning, kind in (("%RETRY%", "retry"), ("%DLQ%", "dead_letter"), ("rmq_sys_REVIVE_LOG_", "pop"),
                            ("rmq_sys_TRACE_DATA_", "trace"), ("rmq_sys_", "system")):  # fmt: skip
        if topic.startswith(beginning):
            return kind
    return "message"


def number(text: str | None, most: int = LONG) -> int | None:
    return int(text) if text is not None and re.fullmatch("[0-9]{1,19}", text) and int(text) <= most else None


def columns_of(row: dict[str, Any]) -> dict[str, Any]:
    """The columns of a row that has all others. ``body`` is as it is stored."""
    topic, said, kind = row["topic"], row["properties"], kind_of(row["topic"])
    real: tuple[Any, Any, Any] = (None, None, None)
    group = origin = due = None
    if kind in ("half", "given_up", "scheduled", "timer"):
        real = said.get("REAL_TOPIC"), number(said.get("REAL_QID"), 2**31 - 1), None
        if kind == "timer":
            due = number(said.get("TIMER_OUT_MS"))
        if kind == "scheduled" and number(said.get("DELAY"), 2**31 - 1):
            due = row["tagsCode"]
    elif kind in ("retry", "dead_letter"):
        group = topic.split("%", 2)[2]
        named = None
        if kind == "retry" and "+" in group:
            group, named = group.split("+", 1)
        names = ["RETRY_TOPIC"] if kind == "retry" else ["DLQ_ORIGIN_TOPIC", "RETRY_TOPIC"]
        ids = ["ORIGIN_MESSAGE_ID"] if kind == "retry" else ["DLQ_ORIGIN_MESSAGE_ID", "ORIGIN_MESSAGE_ID"]
        real = next((said[name] for name in names if name in said), named), None, None
        text = next((said[name] for name in ids if name in said), "")
        if re.fullmatch("[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56}", text) and int(text[-16:], 16) <= LONG:
            origin = int(text[-16:], 16)
        if kind == "dead_letter" or "+" not in topic:
            group = group or None
    elif kind == "op":
        offsets = [number(word.strip()) for word in row["body"].decode("ascii", "replace").split(",")]
        known = [offset for offset in offsets if offset is not None]
        real = "RMQ_SYS_TRANS_HALF_TOPIC", row["queueId"], known[0] if len(known) == 1 else None
    elif kind == "pop":
        real, group, due = of_pop(row)
    elif kind in ("message", "system"):
        real = topic, row["queueId"], None
        waited = row["preparedTransactionOffset"] == 0 and {"DELAY", "TIMER_OUT_MS"} & said.keys()
        if kind == "message" and row["sysFlag"] & 12 == 8 and not waited:
            origin = row["preparedTransactionOffset"]
    near = due is not None and due < 9_223_285_600_000
    return {
        "kind": kind, "realTopic": real[0], "realQueueId": real[1], "realQueueOffset": real[2], "consumerGroup": group,
        "originOffset": origin, "deliverTimestamp": due,
        "deliverTime": EPOCH + dt.timedelta(milliseconds=due) if due is not None and near else None,
    }  # fmt: skip


def is_long(value: Any) -> bool:
    return type(value) is int and 0 <= value <= LONG


def of_pop(row: dict[str, Any]) -> tuple[tuple[Any, Any, Any], Any, Any]:
    """What a body says. Numbers that are none count as not there; without start, topic and group nothing is said."""
    nothing = (None, None, None), None, None
    try:
        said = json.loads(row["body"])
    except ValueError:
        return nothing
    if not isinstance(said, dict):
        return nothing
    numbers = {name: value for name, value in said.items() if is_long(value)}
    if "so" not in numbers or not all(isinstance(said.get(name), str) for name in "tc"):
        return nothing
    due = None
    if row["tags"] == "ck":
        steps = said["d"] if isinstance(said.get("d"), list) and said["d"] else list(range(min(numbers.get("n", 0), 127)))
        offsets = [numbers["so"] + step if is_long(step) else None for step in steps]
        due = numbers.get("pt", 0) + numbers.get("it", 0)
    elif row["tags"] == "bAck" and isinstance(said.get("aol"), list):
        offsets = [offset if is_long(offset) else None for offset in said["aol"]]
    elif row["tags"] == "ack" and "ao" in numbers:
        offsets = [numbers["ao"]]
    else:
        return nothing
    revive = numbers.get("pt", 0) + numbers.get("it", 0)
    if None in offsets or numbers.get("q", 0) > 2**31 - 1 or max(revive, *offsets, 0) > LONG:
        return nothing
    return (said["t"], numbers.get("q", 0), offsets[0] if len(offsets) == 1 else None), said["c"], due
