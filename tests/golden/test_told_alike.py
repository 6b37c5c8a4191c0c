"""What is told of a log depends on the log and the policies, never on where ranges are cut."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from tests.tools.local_engine import InlineEngine, local_build
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import FEATURES, Message, random_log
from tests.tools.seeds import STEP, cases

SIZES = (0, 100, 333, 1000, 5000)
INNER_BATCH = 0x80
LMQ = "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET"


def some_of_each(writer: LogWriter) -> None:
    """Records that each kind of warning is about."""
    writer.append(Message(topic="Plain", properties={"KEYS": "k"}))
    writer.append(Message(topic="Inner", sysflag=INNER_BATCH, properties={"INNER_NUM": "3", "INNER_BASE": "0"}))
    writer.append(Message(topic="Batch", properties={"INNER_NUM": "0", "INNER_BASE": "4"}))
    writer.append(Message(topic="Batch", properties={"INNER_NUM": "-1", "INNER_BASE": "4"}))
    writer.append(Message(topic=f"odd~{len(writer.puts)}"))
    for names, offsets in (("a/b,%LMQ%x", "0,0"), ("tab\t,..", "1,1"), ("%LMQ%x,%LMQ%x", "1,1"), ("%LMQ%y", "x"), ("a,b", "1")):
        writer.append(Message(topic="Plain", properties=dict(zip(LMQ, (names, offsets), strict=True))))
    writer.append(Message(topic="Far", queue_offset=5))
    writer.append(Message(topic="Far", queue_offset=900))


def log_of(folder: Path) -> None:
    with LogWriter(folder / "commitlog", 1 << 13) as writer:
        for _ in range(3):
            some_of_each(writer)
        writer.append_raw(b"no record at all")
        for _ in range(3):
            some_of_each(writer)
        writer.append(Message(body_crc=7))
        writer.append(Message(physical_offset=3))
        writer.append(Message(physical_offset=4))
        some_of_each(writer)
        writer.append(Message(body=b"torn", body_crc=7))


@pytest.mark.parametrize("order", ["logical", "broker", "fail"])
@pytest.mark.parametrize("policy", ["fail", "stop", "salvage"])
def test_warnings_damage_and_decisions(policy: str, order: str, tmp_path: Path) -> None:
    log_of(tmp_path / "store")
    told = []
    for size in SIZES:
        summary = local_build(
            tmp_path / "store", tmp_path / "out", InlineEngine(3, 2), overwrite=True, range_size=size, on_damage=policy,
            queue_order=order, lmq=True, batch_topics=("Batch",), hash_slots=50, index_items=60, cq_file_size=400,
        )  # fmt: skip
        told.append((summary.exit, summary.warnings, summary.damage, summary.decisions, summary.error))
    assert told == told[:1] * len(SIZES)
    assert any("inner batches" in warning for warning in told[0][1])
    if policy == "stop" and order == "broker":
        # Of the records that were built, no others.
        words = (
            "inner batches in 3 records",
            "skipped 3 dispatches to LMQ names that hold",
            "skipped 6 dispatches to LMQ names that are",
        )
        assert all(any(warning.startswith(word) for warning in told[0][1]) for word in words)


def test_random_logs(seed: int, tmp_path: Path) -> None:
    """With damage anywhere."""
    rng = random.Random(seed)
    for number in range(cases(3, 1)):
        store = tmp_path / f"{number}"
        random_log(store / "commitlog", rng.randrange(2**31), records=100, segment_size=1 << 14, features=FEATURES)
        for path in rng.sample(sorted((store / "commitlog").iterdir()), k=1):
            data = bytearray(path.read_bytes())
            for _ in range(3):
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            path.write_bytes(bytes(data))
        policies = ("stop", "salvage", "fail")
        for policy in cases(policies, (policies[seed // STEP % 3],)):
            told = set()
            for size in (0, 700, rng.randrange(90, 9000)):
                summary = local_build(
                    store, tmp_path / "out", InlineEngine(2, 2), overwrite=True, range_size=size, on_damage=policy, lmq=True,
                    hash_slots=50, index_items=60, cq_file_size=400,
                )  # fmt: skip
                told.add(json.dumps([summary.exit, summary.warnings, summary.damage, summary.decisions, summary.error]))
            assert len(told) == 1
