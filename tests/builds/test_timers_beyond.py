"""``verify`` of timer files that lead behind the log's end, where that was cut and they were not (apache/rocketmq 10668)."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.jobs.cli import main
from rocketmq_reindex.storage_format.delay.timer_layout import SIZE, TimerCheckpoint
from tests.tools.compare import SMALL
from tests.tools.encode import EPOCH, Message
from tests.tools.local_engine import local_build
from tests.tools.local_verify import kinds, local_verify
from tests.tools.log_writer import LogWriter, Put

pytestmark = pytest.mark.usefixtures("inline_local")

SEGMENT, MESSAGES, KEPT = 1 << 14, 60, 40
DUE = EPOCH + 3_600_000
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
            message = Message("rmq_sys_wheel_timer", 0, queue_offset=number, properties=properties, store_timestamp=EPOCH)
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
