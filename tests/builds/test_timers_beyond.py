"""``verify`` of timer files that lead elsewhere than to their messages, where the log was cut and they were not.

Behind the log's end, or to other records once it has grown again (apache/rocketmq 10668).
"""

from __future__ import annotations

import shlex
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rocketmq_reindex.jobs.cli import main
from rocketmq_reindex.storage_format.delay.timer_layout import LOG_UNIT, SIZE, TimerCheckpoint
from tests.tools.compare import SMALL
from tests.tools.encode import Message
from tests.tools.local_engine import local_build
from tests.tools.local_verify import kinds, local_verify
from tests.tools.log_writer import LogWriter, Put

pytestmark = pytest.mark.usefixtures("inline_local")

SEGMENT, MESSAGES, KEPT = 1 << 13, 60, 40
NOW = int(time.time()) * 1000
DUE = NOW + 3_600_000
"""A build puts what is not overdue into the slot in which it is due."""
CHECK = "config/timercheck"


@pytest.fixture
def puts(tmp_path: Path) -> list[Put]:
    with LogWriter(tmp_path / "store" / "commitlog", SEGMENT) as writer:
        for number in range(MESSAGES):
            properties = {
                "UNIQ_KEY": f"W{number}",
                "REAL_TOPIC": "T",
                "REAL_QID": "0",
                "TIMER_OUT_MS": str(DUE + number * 1000),
            }
            message = Message("rmq_sys_wheel_timer", 0, queue_offset=number, properties=properties, store_timestamp=NOW)
            writer.append(message)
    return writer.puts


@pytest.fixture
def store(puts: list[Put], tmp_path: Path) -> Path:
    """A store with timer files that lead to all of its messages."""
    store = tmp_path / "store"
    assert len(puts) == MESSAGES
    timers_of(store, tmp_path / "out")
    return store


def timers_of(store: Path, out: Path) -> None:
    assert local_build(store, out, write_delay=True, **SMALL).exit == 0
    for name in ("timerlog", "config"):
        shutil.rmtree(store / name, ignore_errors=True)
        shutil.copytree(out / name, store / name)
    shutil.copy(out / "timerwheel", store / "timerwheel")


def cut(store: Path, end: int) -> None:
    """Leave zeros behind a byte of the log, and all files that lead there."""
    for path in sorted((store / "commitlog").iterdir()):
        path.write_bytes(path.read_bytes()[: max(0, end - int(path.name))].ljust(SEGMENT, b"\0"))


def grow(store: Path, puts: list[Put], kept: int) -> list[Put]:
    """Write another log behind the first records: one plain message of each length, then timer messages that are due later."""
    shutil.rmtree(store / "commitlog")
    with LogWriter(store / "commitlog", SEGMENT) as writer:
        for put in puts[:kept]:
            writer.append(put.message)
        for put in puts[kept:]:
            message = put.message
            assert isinstance(message.properties, dict)
            if put is puts[kept]:
                # TOPICLENGTH and PHYSICALOFFSET are where they were.
                writer.append(replace(message, topic="a_plain_topic_today", properties=message.properties, queue_offset=0))
                continue
            due = int(message.properties["TIMER_OUT_MS"]) + 1000
            writer.append(replace(message, queue_offset=None, properties={**message.properties, "TIMER_OUT_MS": str(due)}))
        return writer.puts


def found(store: Path) -> dict[str, Any]:
    return kinds(local_verify(store, only=("log",)))


def test_a_log_that_was_cut(store: Path, puts: list[Put], tmp_path: Path) -> None:
    assert found(store) == {}
    # Files end where the broker's size says, mostly within a unit.
    (units,) = (store / "timerlog").iterdir()
    with units.open("rb+") as file:
        file.truncate(MESSAGES * 52 + 30)
    end = puts[KEPT].offset
    cut(store, end)
    assert found(store) == {"timer-beyond-log": MESSAGES - KEPT}
    (kind,) = local_verify(store, only=("log",)).findings
    told = f"{MESSAGES - KEPT} units of messages behind the log's end at {end}"
    assert [example["text"] for example in kind["examples"]] == [told]
    # What a broker has read by then is of no matter.
    check = TimerCheckpoint.from_bytes((store / CHECK).read_bytes()[:SIZE])
    (store / CHECK).write_bytes(TimerCheckpoint(1 << 50, check.log_flushed, MESSAGES, MESSAGES).to_bytes())
    assert found(store) == {}
    (store / CHECK).unlink()
    assert found(store) == {"timer-beyond-log": MESSAGES - KEPT}
    # As it advises.
    timers_of(store, tmp_path / "anew")
    assert found(store) == {}


def test_the_build_that_verify_prints_makes_them_too(store: Path, puts: list[Put], tmp_path: Path) -> None:
    """Laid out by fetch, where the old ones are moved away as is advised, it leads to a clean verify."""
    assert local_build(store, tmp_path / "whole", **SMALL).exit == 0
    assert main(["fetch", str(tmp_path / "whole"), "--to", str(store)]) == 0
    cut(store, puts[KEPT].offset)
    summary = local_verify(store, **SMALL)
    assert kinds(summary)["timer-beyond-log"] == MESSAGES - KEPT
    assert summary.mend is not None
    _, *words = shlex.split(summary.mend)
    assert "--write-delay" in words
    assert "--write-delay" not in (local_verify(store, only=("log", "index", "checkpoint"), **SMALL).mend or "")
    words[words.index("DIR")] = str(tmp_path / "mended")
    assert main(words) == 0
    (tmp_path / "away").mkdir()
    for name in ("timerlog", "timerwheel", CHECK):
        (store / name).rename(tmp_path / "away" / Path(name).name)
    assert main(["fetch", str(tmp_path / "mended"), "--to", str(store)]) == 0
    assert (store / "timerlog").is_dir()
    assert kinds(local_verify(store, **SMALL)) == {}


def test_a_log_that_has_grown_again(store: Path, puts: list[Put], tmp_path: Path) -> None:
    """Each record of the new log is as long as the one that stood there. What verify prints leads to a clean verify."""
    again = grow(store, puts, KEPT)
    assert [put.offset for put in again] == [put.offset for put in puts]
    assert local_build(store, tmp_path / "whole", **SMALL).exit == 0
    assert main(["fetch", str(tmp_path / "whole"), "--to", str(store)]) == 0
    summary = local_verify(store, **SMALL)
    assert kinds(summary) == {"timer-other-record": MESSAGES - KEPT}
    (kind,) = summary.findings
    place = puts[KEPT].offset
    told = f"{MESSAGES - KEPT} units of other messages: offset {place}: a message of a_plain_topic_today/0"
    assert [(example["at"], example["text"]) for example in kind["examples"]] == [(KEPT * 52, told)]
    assert "--write-delay" in kind["mend"]
    for name in ("timerlog", "timerwheel", CHECK):
        (store / name).rename(tmp_path / Path(name).name)
    timers_of(store, tmp_path / "mended")
    assert kinds(local_verify(store, **SMALL)) == {}


def test_units_that_lead_into_a_record_and_to_what_has_expired(store: Path, puts: list[Put]) -> None:
    (path,) = (store / "timerlog").iterdir()
    data = bytearray(path.read_bytes())
    units = np.frombuffer(data, LOG_UNIT, MESSAGES)
    units["phy_offset"][3:6] += 1
    path.write_bytes(data)
    (kind,) = local_verify(store, only=("log",)).findings
    assert (kind["kind"], kind["count"]) == ("timer-other-record", 3)
    (example,) = kind["examples"]
    assert example["text"].startswith(f"3 units of other messages: offset {puts[3].offset + 1}: ")
    units["phy_offset"][3:6] -= 1
    path.write_bytes(data)
    (first, *_) = sorted((store / "commitlog").iterdir())
    assert puts[-1].offset > SEGMENT
    first.unlink()
    assert found(store) == {}
