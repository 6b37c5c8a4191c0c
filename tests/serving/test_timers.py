"""A broker killed among its timer messages: on files made from the log alone it delivers each pending one, and none again."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.storage_format.delay.settings import TimerSettings
from rocketmq_reindex.storage_format.delay.timer_files import place
from rocketmq_reindex.storage_format.delay.timer_layout import LOG_UNIT, MAGIC_ROLL, TimerCheckpoint, units_per_file
from tests.serving.programs import Program
from tests.serving.stores import build_into
from tests.serving.timers import (
    SIZES,
    Rows,
    Sent,
    boot,
    delete_key,
    delivered,
    forget,
    new_store,
    pending_of,
    send_timed,
    wait,
    write_timers,
)

VERSIONS = ["5.5.1", pytest.param("5.3.3", marks=pytest.mark.slow), pytest.param("5.4.0", marks=pytest.mark.slow)]
STEP = 200
SETTINGS = TimerSettings(precision_ms=STEP, roll_window_slots=40, log_file_size=52 * 16 + 30)
"""A broker lets messages roll that are due in 8 s or more; 16 units in a file."""
UNITS_END = 52 * units_per_file(SETTINGS.log_file_size)
SPAN = 16_000
"""Milliseconds in which all messages are due"""
QUIET = 2.0
"""Seconds; a broker writes its timer files once a second."""


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_killed_among_its_timer_messages(version: str, tmp_path: Path, seed: int) -> None:
    rng, store = random.Random(seed), tmp_path / "store"
    new_store(store)
    with Program(version, "Delayed", tmp_path) as program:
        boot(program, store, SETTINGS)
        now = int(time.time() * 1000)
        sent = [Sent(f"m-{i}", now + rng.randrange(3000, 11_000)) for i in range(60)]
        # A mark that rolls may get lost: so none of them does.
        near = [one for one in sent if now + 5000 < one.due < now + 7500]
        sent += [Sent(f"far-{i}", now + SPAN) for i in range(3)]
        # Each deletes a message that is due with it; the last one is due at another time, and deletes none.
        marked = near[:12]
        marks = [Sent(f"d-{one.key}", one.due, delete_key(version, one.key)) for one in marked[:-1]]
        marks.append(Sent("d-late", marked[-1].due + 3000, delete_key(version, marked[-1].key)))
        send_timed(program, rng.sample([*sent, *marks], len(sent) + len(marks)), tmp_path)
        wait(lambda: len(delivered(store)) > 10)
        program.kill()
    # What the broker's own timerlog leads to is there, and is what it means.
    kinds = {found["kind"] for found in rr.verify(store, only=["log"], engine="local").findings}
    assert not kinds & {"timer-beyond-log", "timer-other-record"}
    pending, _ = pending_of(store)
    assert len(delivered(store)) < len(sent)
    assert units_per_file(SETTINGS.log_file_size) < len(pending), "more than one file"
    wanted = {one.key: one.due for one in sent if one not in marked[:-1]}
    for number, restored in enumerate((True, True, False)):
        if restored:
            restore(version, store, tmp_path)
        with Program(version, "Delayed", tmp_path) as program:
            # The second leaves its files to the third.
            boot(program, store, SETTINGS, is_read=number == 1)
            wait(lambda: len(delivered(store)) >= len(wanted) and time.time() * 1000 > now + SPAN)
            if "last" not in wanted:
                # The second restore finds a queue that ends with a message that was delivered.
                wanted["last"] = int(time.time() * 1000) + 1000
                send_timed(program, [Sent("last", wanted["last"])], tmp_path)
                wait(lambda: "last" in delivered(store))
            time.sleep(QUIET)
            program.kill()
        found = delivered(store)
        assert {key: len(copies) for key, copies in found.items()} == dict.fromkeys(wanted, 1)
        # A broker takes off up to one step of the time, and delivers when that step is over.
        assert all(found[key][0].store_time >= due - STEP for key, due in wanted.items())


def restore(version: str, store: Path, scratch: Path) -> None:
    """Leave the commitlog alone, and make all else from it."""
    forget(store)
    for part in (store / "consumequeue", store.with_name(f"{store.name}-out")):
        shutil.rmtree(part, ignore_errors=True)
    build_into(store, broker_version="5.3", **SIZES)
    write_timers(store, SETTINGS)
    (scratch / "conf").write_text(f"mappedFileSizeTimerLog={SETTINGS.log_file_size}\n")
    told = rr.preflight(store, broker_version=version, broker_conf=scratch / "conf", **SIZES)  # type: ignore[arg-type]
    assert told.timers is not None
    assert (told.timers["goes_on"], told.timers["again"]) == (told.timers["end"], 0)
    assert {told.timers[name] for name in ("stuck", "other", "passed_over")} == {0}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_files_are_those_that_a_broker_writes(version: str, tmp_path: Path, seed: int) -> None:
    """Byte for byte, but for the times at which it took each message."""
    rng, store = random.Random(seed), tmp_path / "store"
    new_store(store)
    settings = TimerSettings(roll_window_slots=600, log_file_size=SETTINGS.log_file_size)
    with Program(version, "Delayed", tmp_path) as program:
        boot(program, store, settings)
        now = int(time.time() * 1000)
        sent = [
            Sent(f"m-{i}", now + rng.choice((rng.randrange(200, 590), rng.randrange(905, 1500))) * 1000, "none" * (i % 5 == 0))
            for i in range(50)
        ]
        send_timed(program, sent, tmp_path)
        wait(lambda: TimerCheckpoint.from_bytes((store / "config/timercheck").read_bytes()).queue_offset == len(sent))
        time.sleep(QUIET)
        program.kill()
    log = sorted((store / "timerlog").iterdir())
    units, ends, wheel = _units(log), [path.read_bytes()[UNITS_END:] for path in log], (store / "timerwheel").read_bytes()
    check = (store / "config/timercheck").read_bytes()
    pending, _ = pending_of(store)
    # Into which slots it put what is due beyond its window hangs on when it took each.
    for row, unit in zip(pending, units, strict=True):
        placed = place(
            row["due"].reshape(1), unit["written"].reshape(1), row["delete"].reshape(1), int(unit["written"]), settings
        )
        assert (int(placed.times[0]), int(placed.magics[0])) == (int(unit["written"] + unit["delayed"]), int(unit["magic"]))
    pending["due"] = units["written"] + units["delayed"]
    assert (units["magic"] & MAGIC_ROLL).any()
    forget(store)
    write_timers(store, TimerSettings(log_file_size=settings.log_file_size), int(units["written"][0]), pending)
    assert sorted(path.name for path in (store / "timerlog").iterdir()) == [path.name for path in log]
    made = _units(log)
    for name in set(LOG_UNIT.names or ()) - {"written", "delayed", "magic"}:
        assert (made[name] == units[name]).all(), name
    assert (made["magic"] == units["magic"] & ~MAGIC_ROLL).all()
    assert [path.read_bytes()[UNITS_END:] for path in log] == ends
    assert (store / "timerwheel").read_bytes() == wheel
    made_check = (store / "config/timercheck").read_bytes()
    assert len(made_check) == len(check)
    for one in (TimerCheckpoint.from_bytes(check), TimerCheckpoint.from_bytes(made_check)):
        assert (one.queue_offset, one.master_queue_offset) == (50, 50)


def _units(log: list[Path]) -> Rows:
    """All units of these files."""
    units: Rows = np.concatenate([np.frombuffer(path.read_bytes()[:UNITS_END], LOG_UNIT) for path in log])
    found: Rows = units[units["size"] == LOG_UNIT.itemsize]
    return found
