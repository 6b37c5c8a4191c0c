"""What records of the broker's own topics mean: the columns, the meaning of one record and the reference say the same."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.storage_format.record import meaning
from rocketmq_reindex.storage_format.record.message import Message as Record, read_message
from rocketmq_reindex.udfs.times import DELAY_LEVELS, delay_levels
from tests.golden import stores
from tests.reference import meaning as reference
from tests.tools.encode import COMMIT, ROLLBACK, Message
from tests.tools.log_writer import LogWriter

SEGMENT = 1 << 16
NAMES = [
    "kind",
    "realTopic",
    "realQueueId",
    "realQueueOffset",
    "consumerGroup",
    "originOffset",
    "deliverTimestamp",
    "deliverTime",
]
TOPICS = [
    "Orders", "TBW102", "rmq_sys_x", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_TRACE_DATA_eu", "rmq_sys_REVIVE_LOG_Cluster",
    "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC", "SCHEDULE_TOPIC_XXXX",
    "rmq_sys_wheel_timer", "%RETRY%g", "%RETRY%g+Orders", "%RETRY%g_Orders", "%RETRY%", "%RETRY%+", "%DLQ%g", "%DLQ%g+T",
    "%DLQ%",
]  # fmt: skip
NUMBERS = [
    "0", "5", "2147483647", "2147483648", "1700000000123", str(2**63 - 1), str(2**63), "9" * 19, "1" * 20, "-1", "+5", "", "x",
    "٣", "1_0", " 7",
]  # fmt: skip
LEVELS = ["1", "18", "19", "0", "-1", "+5", "2147483647"]
"""A broker does not dispatch a record behind one whose DELAY is no number."""
IDS = [
    "0A20BD02000070540000000000003D41", "0a20bd02000070540000000000003d41", "F" * 32, "0" * 56, "7" * 56, "0" * 31, "G" * 32,
    "AC1100020007", "É" * 32, "", "0" * 32 + "\n",
]  # fmt: skip


def random_body(rng: random.Random, tag: str) -> bytes:
    """The body of an op message or of a record of POP, now and then a broken one."""
    offsets = [rng.randrange(2**40) for _ in range(rng.randrange(4))]
    if rng.random() < 0.3:
        return "".join(f"{offset}," for offset in offsets).encode()
    said: dict[str, Any] = {"so": 100, "t": "Orders", "c": "g", "q": 3, "pt": 1_700_000_000_000, "it": 60_000, "bn": "b"}
    of_tag: dict[str, dict[str, Any]] = {
        "ck": {"n": len(offsets), "d": list(range(len(offsets)))},
        "ack": {"ao": 104},
        "bAck": {"aol": offsets},
    }
    said |= of_tag.get(tag, {})
    name = rng.choice(list(said))
    odd = rng.random()
    if odd < 0.2:
        said[name] = rng.choice([None, "text", -1, 1.5, True, [1, "2"], {}, 2**63, 2**63 - 1, 2**31, []])
    elif odd < 0.3:
        del said[name]
    text = json.dumps(said, ensure_ascii=rng.random() < 0.5).encode()
    return text[: rng.randrange(len(text))] if rng.random() < 0.1 else text


def random_record(rng: random.Random) -> Message:
    properties = {
        name: rng.choice(values)
        for name, values in {
            "REAL_TOPIC": [*TOPICS, "Ключ"], "REAL_QID": NUMBERS, "TIMER_OUT_MS": NUMBERS, "DELAY": LEVELS,
            "RETRY_TOPIC": ["Orders", "T"], "DLQ_ORIGIN_TOPIC": ["Dead"], "ORIGIN_MESSAGE_ID": IDS,
            "DLQ_ORIGIN_MESSAGE_ID": IDS, "TIMER_DEL_UNIQKEY": ["Orders+K"], "INNER_MULTI_DISPATCH": ["%LMQ%a,%LMQ%b"],
        }.items()
        if rng.random() < 0.6
    }  # fmt: skip
    tag = rng.choice(["ck", "ack", "bAck", "d", "", "odd"])
    return Message(
        topic=rng.choice(TOPICS), queue_id=rng.choice([0, 1, 7]), properties=properties | ({"TAGS": tag} if tag else {}),
        body=random_body(rng, tag), sysflag=rng.choice([0, 0, COMMIT, ROLLBACK]),
        prepared_offset=rng.choice([0, rng.randrange(2**33)]),
        reconsume_times=rng.randrange(4),
    )  # fmt: skip


def rows_of(store: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = rr.messages(store, body="stored", damage="skip").read_all().to_pylist(maps_as_pydicts="strict")
    return rows


def segment_bytes(store: Path, offset: int) -> bytes:
    """The log from an offset to the end of its segment."""
    base = offset // SEGMENT * SEGMENT
    return (store / "commitlog" / f"{base:020d}").read_bytes()[offset - base :]


def of_one(raw: bytes, offset: int) -> dict[str, Any]:
    """The meaning of one record, by the names of the columns."""
    record = read_message(lambda at, count: raw[at : at + count], offset, len(raw))
    assert isinstance(record, Record)
    meant = meaning.meaning(record, raw[record.body_at :][: record.body_size], delay_levels(DELAY_LEVELS))
    return {name: meant.to_dict().get(name) for name in NAMES}


def test_random_records(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    with LogWriter(tmp_path / "commitlog", SEGMENT) as writer:
        for _ in range(400):
            writer.append(random_record(rng))
    rows = rows_of(tmp_path)
    assert len(rows) == len(writer.puts)
    for row, put in zip(rows, writer.puts, strict=True):
        wanted = reference.columns_of(row)
        assert {name: row[name] for name in NAMES} == wanted, (row, put.message)
        assert of_one(segment_bytes(tmp_path, put.offset), put.offset) | {"deliverTime": wanted["deliverTime"]} == wanted
    assert {row["kind"] for row in rows} == {reference.kind_of(topic) for topic in TOPICS}


@pytest.mark.parametrize("name", ["transactions-delay", "basic-5.5"])
def test_real_records(name: str, tmp_path: Path) -> None:
    store = stores.unpack(name, tmp_path)
    rows = rows_of(store.path)
    assert [{column: row[column] for column in NAMES} for row in rows] == [reference.columns_of(row) for row in rows]
