"""One broker's life with all kinds of waiting messages; then a restore by the commands, beside a start of its own store.

What is restored is a backup of commitlog/ and config/. After it every message is counted, and so it is of a copy of the whole
store, which the broker starts as it stands.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests import ROOT
from tests.delayed.cases import GROUP, POPPED, POPPING, SOLD, Mixed
from tests.delayed.judge import GROUPS, PULLED, Told, compare, delivered, due, pending_halves
from tests.delayed.life import SIZES, UNREAD, Life, pop_mode, queues
from tests.delayed.log import Stored, read_log

PATIENCE = 300.0
"""Seconds until what has not come is lost"""
QUIET = 5.0
"""Seconds without a new record, longer than a broker waits between two checks of half messages"""


@dataclass(frozen=True)
class LifeOutcome:
    """Numbers of messages, what was lost and what came twice, and what else is wrong.

    ``by_chance`` is how many came twice after the first start of the restored store, and not after another.
    ``control_twice`` is how many the broker's own store delivered more often than the restored one.
    """

    seed: int
    end: str
    own: bool
    due: int
    before: int
    pending: int
    lost: list[str]
    twice: list[str]
    faults: list[str]
    by_chance: int
    control_twice: int


def run_life(version: str, case: Mixed, scratch: Path) -> LifeOutcome:
    """A life, the restore, and both stores after it."""
    store, rng = scratch / "store", random.Random(case.seed)
    queues(case.topics, store)
    if not version.startswith("4."):
        pop_mode(store, POPPED, POPPING)
    _live(version, case, store, scratch, rng)
    first = Told(read_log(store / "commitlog"), _done([scratch]), set())
    faults = _restore(version, case, store, scratch)
    numbers = due(first.log).total(), delivered(first.log).total(), len(pending_halves(first.log))
    if not (scratch / "preflight.txt").exists():
        # A store without its build shows nothing of a restore.
        return LifeOutcome(case.seed, case.end, case.own, *numbers, [], [], faults, 0, 0)
    lost, twice, control_twice = _compare(version, case, first, scratch, "")
    by_chance = 0
    if twice:
        # A broker on a busy machine gives back what was popped before it has dispatched the acknowledgement, and asks for a
        # transaction again before the answer has come. What the store makes it repeat comes again at every start.
        again, once_more, _ = _compare(version, case, first, scratch, "-again")
        both = {_what(line) for line in twice} & {_what(line) for line in once_more}
        in_one = [line for line in twice if _what(line) not in both]
        twice = [line for line in twice if _what(line) in both]
        lost, by_chance = lost + again, len(in_one)
    if lost and not faults:
        faults.append("preflight says that nothing is lost")
    return LifeOutcome(case.seed, case.end, case.own, *numbers, lost, twice, faults, by_chance, control_twice)


def _what(line: str) -> str:
    """What came twice, without how often."""
    return re.sub(r" \d+ times, .*", "", line)


def _compare(version: str, case: Mixed, first: Told, scratch: Path, name: str) -> tuple[list[str], list[str], int]:
    """What was lost and what came twice, once copies of the restored store and of the broker's own one have started.

    And how many came from the broker's own more often than from the restored one.
    """
    folders = [scratch / f"restored{name}", scratch / f"control{name}"]
    for folder, source in zip(folders, ("backup", "store"), strict=True):
        shutil.copytree(scratch / source, folder)
    with ThreadPoolExecutor(2) as both:
        told = both.map(lambda folder: _go_on(version, case, folder, scratch / f"{folder.name}-told"), folders)
        restored, control = told
    return *compare(first, restored, control), len(compare(first, control, restored)[1])


def _consume(version: str, case: Mixed, life: Life, told: Path) -> None:
    life.step("again", GROUP, "T0", *case.again, told / f"{GROUP}.told")
    if not version.startswith("4."):
        life.step("again", POPPING, POPPED, 0, 1, told / f"{POPPING}.told", "pop")


def _live(version: str, case: Mixed, store: Path, scratch: Path, rng: random.Random) -> None:
    """Up to the end that the case says."""
    again = case.end == "killed twice"
    for number in range(1 + again):
        with Life(version, store, scratch, case.settings) as life:
            if number == 0:
                life.send(case.lines())
                life.send(case.transactions, "transact")
            _consume(version, case, life, scratch)
            time.sleep(case.seconds[number] + rng.uniform(0, 0.2))
            if case.end == "stopped":
                life.stop()


def _restore(version: str, case: Mixed, store: Path, scratch: Path) -> list[str]:
    """Restore ``scratch``/backup; returns the commands that did not end with 0. One that is refused is the last one."""
    backup, out, conf = scratch / "backup", scratch / "out", scratch / "broker.conf"
    for part in ("commitlog", "config"):
        shutil.copytree(store / part, backup / part)
    conf.write_text("".join(f"{name}={value}\n" for name, value in (SIZES | case.settings).items()))
    known = ["--broker-conf", str(conf), "--broker-version", version[:3]]
    words = ["build", str(backup), "--out", str(out), "--engine", "local", "--write-topics", "--write-delay", *known]
    offsets, moved, faults = backup / "config" / "consumerOffset.json", scratch / "moved", list[str]()
    moved.mkdir()
    if not case.own:
        # As fetch advises where the build's own shall go in.
        for path in (*offsets.parent.glob("consumerOffset.json*"), *offsets.parent.glob("delayOffset.json*")):
            path.rename(moved / path.name)
        offsets = moved / offsets.name
    older = offsets.with_name(f"{offsets.name}.bak")
    if not offsets.exists():
        # A kill came between the two names: the broker itself would read the older one.
        offsets = older
    if offsets.exists():
        words += ["--consumer-offsets", str(offsets)]
    for command in (words, ["fetch", str(out), "--to", str(backup)], ["preflight", str(backup), *known]):
        found = _run(command, scratch)
        if command is words and f"is no consumerOffset.json: name {older}" in found.stderr:
            # A kill cut the file: as the error advises.
            found = _run([str(older) if word == str(offsets) else word for word in words], scratch)
        if found.returncode:
            faults.append(f"{command[0]} ends with {found.returncode}: {found.stdout[-1500:]}{found.stderr[-1500:]}")
            break
    return faults


def _run(command: list[str], scratch: Path) -> subprocess.CompletedProcess[str]:
    """Run one of our commands; what it printed stays in ``scratch``."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    found = subprocess.run(
        [sys.executable, "-m", "rocketmq_reindex", *command], capture_output=True, text=True, env=environment, check=False
    )
    (scratch / f"{command[0]}.txt").write_text(found.stdout + found.stderr)
    return found


def _go_on(version: str, case: Mixed, store: Path, scratch: Path) -> Told:
    """A start on this store, until all has come or nothing more does."""
    scratch.mkdir()
    old = version.startswith("4.")
    with Life(version, store, scratch, case.settings | UNREAD) as life:
        _consume(version, case, life, scratch)
        life.step("answer", SOLD, "commit")

        def all_came(log: list[Stored]) -> bool:
            done = _done([scratch, scratch.parent])
            given = {(group, record.key) for group, topics in GROUPS.items() for record in log
                     if record.topic in topics and not (old and group == POPPING)}  # fmt: skip
            return not due(log) - delivered(log) and not pending_halves(log) and not given - done.keys()

        end = time.monotonic() + PATIENCE
        # A consumer that pops makes the broker wait for more.
        while time.monotonic() < end and not (_now(life, all_came) and life.settle(QUIET) and _now(life, all_came)):
            time.sleep(1)
        log = life.log()
        return Told(log, _done([scratch]), life.pulled(PULLED))


def _now(life: Life, done: Callable[[list[Stored]], bool]) -> bool:
    """A record may be there in part: then it is not yet so."""
    with contextlib.suppress(struct.error, UnicodeDecodeError, AssertionError):
        return done(life.log())
    return False


def _done(folders: list[Path]) -> Counter[tuple[str, str]]:
    """How often the consumers that wrote into these folders were done with each (group, UNIQ_KEY)."""
    found: Counter[tuple[str, str]] = Counter()
    for path in (path for folder in folders for path in folder.glob("*.told")):
        for line in path.read_text().splitlines():
            key, _, last = line.partition("\t")
            found[path.stem, key] += last.endswith("\tdone")
    return +found
