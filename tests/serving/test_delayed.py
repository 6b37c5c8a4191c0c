"""Delayed messages after a start: what preflight says of delayOffset.json, beside what a real broker then delivers."""

from __future__ import annotations

import json
import shutil
import struct
import time
from pathlib import Path
from typing import Any

import pytest

import rocketmq_reindex as rr
from tests.serving.broker import Broker, write_topics
from tests.serving.programs import Program
from tests.serving.stores import build_into
from tests.tools.encode import EPOCH, Message
from tests.tools.log_writer import LogWriter, Put, overwrite

VERSION = "5.5.1"
SEGMENT = 1 << 12
SIZES: dict[str, Any] = {"cq_file_size": 1000, "hash_slots": 50, "index_items": 150}
DELAYED = 30
PATIENCE = 500.0


LEVEL = ("SCHEDULE_TOPIC_XXXX", {"DELAY": "1", "REAL_TOPIC": "T", "REAL_QID": "0"})
TIMER = ("rmq_sys_wheel_timer", {"TIMER_OUT_MS": str(EPOCH), "REAL_TOPIC": "T", "REAL_QID": "0"})


def make(store: Path, kind: tuple[str, dict[str, str]] = LEVEL) -> list[Put]:
    """Delayed messages for T/0, which no broker has delivered yet; all are due by the broker's clock."""
    topic, properties = kind
    with LogWriter(store / "commitlog", SEGMENT) as writer:
        writer.append(Message(topic="T"))
        for number in range(DELAYED):
            time, body = EPOCH + 500 * number, b"%d" % number
            writer.append(Message(topic=topic, properties=properties, store_timestamp=time, body=body))
        puts = list(writer.puts)
    build_into(store, broker_version="5.3", **SIZES)
    write_topics(store, puts[:1])
    return puts


def delivered(program: Program, store: Path, scratch: Path, wanted: int, *options: str) -> int:
    """Delayed messages that T/0 has, once no more come; the one that it had begins the log."""
    first = (store / "commitlog" / f"{0:020d}").exists()
    with Broker(program, "b", store, scratch, *options, segment_size=SEGMENT, **SIZES) as broker:
        found, quiet, end = -1, 0, time.monotonic() + PATIENCE
        while time.monotonic() < end and quiet < 3:
            now = sum(len(pull.messages) for pull in broker.pulls() if pull.queue == ("T", 0)) - first
            quiet = quiet + 1 if now == found and now >= wanted else 0
            found = now
            time.sleep(1)
        return found


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("within", 20),
        pytest.param("missing", None, marks=pytest.mark.slow),
        pytest.param("beyond", 99, marks=pytest.mark.slow),
        pytest.param("expired", 5, marks=pytest.mark.slow),
        pytest.param("dispatched", 25, marks=pytest.mark.slow),
    ],
)
def test_what_is_delivered(name: str, kept: int | None, tmp_path: Path) -> None:
    store = tmp_path / "store"
    make(store)
    if kept is not None:
        (store / "config" / "delayOffset.json").write_text(json.dumps({"offsetTable": {1: kept}}))
    if name == "expired":
        min((store / "commitlog").iterdir()).unlink()
    if name == "dispatched":
        shutil.rmtree(store / "consumequeue")
    told = rr.preflight(store, broker_version=VERSION, segment_size=SEGMENT, **SIZES)
    (level,) = told.delayed
    with Program(VERSION, "Serve", tmp_path) as program:
        found = delivered(program, store, tmp_path, level["waiting"])
    assert level["waiting"] <= found <= level["end"] - level["begins_least"], (level, found)


@pytest.mark.slow
def test_timer_messages_that_are_lost(tmp_path: Path) -> None:
    """Units fill the places of three. The message behind them is delivered once all the same."""
    store, out = tmp_path / "store", tmp_path / "out"
    puts = make(store, TIMER)
    for put in puts[5:8]:
        overwrite(store / "commitlog", put.offset + 20, bytes(30))
    rr.repair(store, out=out, broker_version="5.5", **SIZES)
    shutil.copytree(store / "config", out / "config")
    with Program(VERSION, "Serve", tmp_path) as program:
        assert delivered(program, out, tmp_path, DELAYED - 3, "--timer-wheel") == DELAYED - 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "check"),
    [("missing", None), ("within", (20, 20)), ("master", (20, 10)), ("beyond", (99, 99)), ("bare", (20, 20))],
)
def test_timer_messages(name: str, check: tuple[int, int] | None, tmp_path: Path) -> None:
    """All that are taken into the wheel are due, and delivered at once."""
    store = tmp_path / "store"
    make(store, TIMER)
    if check is not None:
        (store / "config" / "timercheck").write_bytes(struct.pack(">qqqq", EPOCH, 0, *check).ljust(4096, b"\0"))
    if name == "bare":
        shutil.rmtree(store / "consumequeue")
    told = rr.preflight(store, broker_version=VERSION, segment_size=SEGMENT, **SIZES)
    assert told.timers is not None
    wanted = told.timers["end"] - told.timers["goes_on"]
    with Program(VERSION, "Serve", tmp_path) as program:
        assert delivered(program, store, tmp_path, wanted, "--timer-wheel") == wanted
