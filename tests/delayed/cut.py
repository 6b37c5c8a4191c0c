"""A broker is killed while timer messages wait, its log is cut and grows again, its timer files stay (apache/rocketmq 10668).

What verify and preflight say of that is compared with what the next life of the broker delivers, and with what comes once their
advice was followed.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rocketmq_reindex.jobs.preflighting.options import preflight_settings
from rocketmq_reindex.jobs.preflighting.run import Preflight, PreflightResult
from rocketmq_reindex.storage_format.delay.timer_layout import TimerCheckpoint
from rocketmq_reindex.storage_format.errors import NoListener
from tests.delayed.judge import TIMERS, delivered, due
from tests.delayed.life import SIZES, UNREAD, Life, queues
from tests.delayed.log import Stored, read_log
from tests.delayed.run import Outcome
from tests.tools.local_verify import kinds, local_verify

SETTINGS: dict[str, str | int] = {"mappedFileSizeTimerLog": 52 * 1000}
HELD: dict[str, str | int] = SETTINGS | {"timerStopDequeue": "true"}
"""Of a life that is to deliver nothing; a broker of 5.3.3 delivered what fell due all the same"""
QUIET = 5.0
"""Seconds: a slot is read within one after its time"""
GROWTHS = ("plain", "timers", "ragged")
"""What takes the places: messages that are not delayed, or timer ones, as long as those that were there; or of any length"""


def run_cut(version: str, seed: int, scratch: Path, growth: str = "") -> Outcome:
    """All lives of a broker; ``growth`` is one of GROWTHS, or drawn."""
    rng, store = random.Random(seed), scratch / "store"
    growth = growth or rng.choice(GROWTHS)
    count, faults = rng.randrange(8, 40), list[str]()
    queues({"T0": 2}, store)
    _live(version, store, scratch, lambda ahead: [*_plain(rng.randrange(1, 9), 0, [6]), *_timers(rng, count, 1000, ahead)])
    log = read_log(store / "commitlog")
    waiting = [record for record in log if record.topic == TIMERS]
    kept = rng.randrange(count - 2)
    _cut(store, waiting[kept].offset)
    _compare("cut", faults, _verified(store), {"timer-beyond-log": count - kept})
    said = _preflight(store, scratch, version)
    _compare("cut", faults, _told(said), {"timer-passed-over": count - kept})
    missing = waiting[1].offset - waiting[0].offset - (log[1].offset - log[0].offset)
    number = max(1, round((count - kept) * rng.uniform(0.5, 1.5)))
    pads = [6 + missing // 2] if growth == "plain" else [rng.randrange(1, 200) for _ in range(number)]
    others = [] if growth == "timers" else _plain(number, 2000, pads, missing % 2)
    _live(version, store, scratch, lambda ahead: [*others, *_timers(rng, number if growth == "timers" else 3, 3000, ahead)])
    before = read_log(store / "commitlog")
    said, found = _preflight(store, scratch, version), _verified(store)
    told = _told(said)
    astray = sum(told.get(f"timer-{kind}", 0) for kind in ("stuck", "other", "passed-over"))
    if astray != sum(found.values()):
        faults.append(f"preflight says {told}, verify {found}")
    # The first ragged message begins where a unit leads, and a broker reads it where it is not larger than that one's own.
    is_stuck = said["timers"]["stuck"] > 0
    wanted_stuck = is_stuck if growth == "ragged" else growth == "plain"
    _compare(growth, faults, (is_stuck, said["exit"]), (wanted_stuck, 4 * wanted_stuck))
    with Life(version, store, scratch, SETTINGS if is_stuck else SETTINGS | UNREAD) as life:
        life.wait(lambda _: time.time() * 1000 > _last(before) + 1000, "the time of the last one")
        life.settle(QUIET)
        after = life.log()
    faults += _stopped(before, after, said) if is_stuck else _judged(before, after, told)
    if is_stuck:
        line = next(command for loss in said["losses"] for command in loss["commands"])
        environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        subprocess.run(["bash", "-c", line], check=True, env=environment, capture_output=True)
        _compare("advised", faults, (_told(_preflight(store, scratch, version)), _verified(store)), ({}, {}))
        with Life(version, store, scratch, SETTINGS | UNREAD) as life:
            life.wait(lambda log: not due(log) - delivered(log), "a copy of each message")
            life.settle(QUIET)
            last = delivered(life.log())
        wanted = {message: max(times, delivered(after)[message]) for message, times in due(before).items()}
        _compare("advised", faults, dict(last), wanted)
    return Outcome(seed, due(before).total(), delivered(after).total(), 0, tuple(faults))


def _plain(count: int, first: int, pads: list[int], odd: int = 0) -> list[str]:
    """Messages whose body is the line: each byte of the pad counts twice, and ``odd`` one more once."""
    return [
        f"0{'0' * odd}\tT0\t0\ttag\tUNIQ_KEY={first + number:032X}\tPAD={'x' * pads[number % len(pads)]}"
        for number in range(count)
    ]


def _timers(rng: random.Random, count: int, first: int, ahead: int) -> list[str]:
    """At different times behind ``ahead`` milliseconds, some of them after others that are sent later."""
    now = int(time.time() * 1000) + ahead
    waits = rng.sample(range(8), 8)
    return [
        f"0\tT0\t0\ttag\tUNIQ_KEY={first + number:032X}\tTIMER_DELIVER_MS={now + 1000 * waits[number % 8]}"
        for number in range(count)
    ]


def _live(version: str, store: Path, scratch: Path, lines: Callable[[int], list[str]]) -> None:
    """Until all is in the wheel, and timercheck says so, before any of it is due."""
    with Life(version, store, scratch, HELD) as life:
        life.send(lines(life.ahead))
        life.step("sent")
        life.wait(lambda log: _taken(store) == sum(record.topic == TIMERS for record in log), "timercheck that tells of all")


def _taken(store: Path) -> int:
    path = store / "config" / "timercheck"
    return TimerCheckpoint.from_bytes(path.read_bytes()).queue_offset if path.exists() else 0


def _cut(store: Path, end: int) -> None:
    """Leave zeros behind a byte of the log, and all files that lead there."""
    for path in sorted((store / "commitlog").iterdir()):
        data = path.read_bytes()
        path.write_bytes(data[: max(0, end - int(path.name))].ljust(len(data), b"\0"))


def _preflight(store: Path, scratch: Path, version: str) -> dict[str, Any]:
    conf, result = scratch / "broker.conf", PreflightResult()
    conf.write_text("".join(f"{name}={value}\n" for name, value in (SIZES | SETTINGS).items()))
    given = {"store": str(store), "broker_version": version, "broker_conf": str(conf)}
    Preflight(preflight_settings(given), result, NoListener()).run()
    return {name: getattr(result, name) for name in ("timers", "losses", "warnings", "exit")}


def _told(said: dict[str, Any]) -> dict[str, int]:
    """Losses and warnings of timer messages."""
    told = {loss["kind"]: loss["count"] for loss in (*said["losses"], *said["warnings"])}
    return {kind: count for kind, count in told.items() if kind.startswith("timer-")}


def _verified(store: Path) -> dict[str, int]:
    return {kind: count for kind, count in kinds(local_verify(store, only=("log",))).items() if kind.startswith("timer-")}


def _compare(what: str, faults: list[str], found: object, wanted: object) -> None:
    if found != wanted:
        faults.append(f"{what}: {found}, not {wanted}")


def _last(log: list[Stored]) -> int:
    return max(_due_at(record) for record in log if record.topic == TIMERS)


def _due_at(record: Stored) -> int:
    return int(record.properties["TIMER_OUT_MS"])


def _judged(before: list[Stored], after: list[Stored], told: dict[str, int]) -> list[str]:
    """Whether so many are lost, and come again, as preflight has said.

    A copy that came ahead of its time in an earlier life may lie in front of what preflight reads of the log: it then counts
    too few.
    """
    missing, more = due(before) - delivered(after), delivered(after) - due(before)
    faults, again = list[str](), told.get("timer-again", 0)
    _compare("lost", faults, missing.total(), told.get("timer-lost", 0))
    is_early = any("TIMER_DEQUEUE_MS" in record.properties and record.store_time < _due_at(record) for record in before)
    _compare("again", faults, max(again, more.total()) if is_early else more.total(), more.total() if is_early else again)
    return faults


def _stopped(before: list[Stored], after: list[Stored], said: dict[str, Any]) -> list[str]:
    """Whether all of the slots before the one at which the broker stops have come, and of those behind it only what a unit of
    another message led to."""
    came, stop, faults = (
        Counter(message.key for message in delivered(after).elements()),
        said["timers"]["stuck_at"],
        list[str](),
    )
    early = list[str]()
    for record in before:
        if record.topic == TIMERS and _due_at(record) // 1000 < stop // 1000 and not came[record.key]:
            faults.append(f"{record.key}, due {_due_at(record)}, does not come, and the broker stops at {stop}")
        if record.topic == TIMERS and _due_at(record) // 1000 > stop // 1000:
            early += [record.key] * came[record.key]
    if len(early) > said["timers"]["other"]:
        faults.append(f"{early} come, though the broker stops at {stop}: {said['timers']}")
    return faults
