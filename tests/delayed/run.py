"""One case: a broker delivers, dies, its log alone is restored, and it goes on where it was."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.delayed.cases import GROUP, RETRIES, Case
from tests.delayed.judge import Message, copies, delivered, due
from tests.delayed.life import Life, queues, restore
from tests.delayed.log import Stored, read_log


@dataclass(frozen=True)
class Outcome:
    """Numbers of messages, and what is wrong with one case."""

    seed: int
    due: int
    before: int
    undecided: int
    faults: tuple[str, ...]


def run(version: str, case: Case, scratch: Path) -> Outcome:
    """Both lives of a broker."""
    store, rng = scratch / "store", random.Random(case.seed)
    queues(case.topics | ({RETRIES: 1} if case.again else {}), store)
    with Life(version, store, scratch, case.settings) as life:
        if case.again:
            life.step("again", GROUP, *case.again)
        life.send(case.lines())
        life.wait(lambda log: _is_amid(log, case), "so many deliveries")
        # At any place between two of them, and within one.
        time.sleep(rng.uniform(0, 0.2))
    if case.crashed:
        with Life(version, store, scratch, case.settings):
            time.sleep(rng.uniform(0, 1.5))
    first = read_log(store / "commitlog")
    manifest = restore(store, version, case.settings, "--write-delay", keep_topics=case.keep_topics)
    if case.abort:
        (store / "abort").touch()
    undecided = _undecided(manifest)
    with Life(version, store, scratch, case.settings) as life:
        life.wait(lambda log: not due(log) - delivered(log), "a copy of each message")
        life.settle()
        table = json.loads((store / "config" / "topics.json").read_text())["topicConfigTable"]
        wanted = {record.topic for record in life.log() if copies([record])} & table.keys()
        pulled, log = life.pulled(sorted(wanted)), life.log()
    faults = _faults(due(log), delivered(first), delivered(log), undecided)
    # A queue of which the log had no message when topics.json was drafted is one that no consumer can ask for.
    asked = [record for record in log if record.topic in wanted and record.queue < table[record.topic]["readQueueNums"]]
    if lost := copies(asked) - pulled:
        faults.append(f"a consumer does not get {len(lost)} of {len(copies(log))} copies")
    return Outcome(case.seed, due(log).total(), delivered(first).total(), len(undecided), tuple(faults))


def _is_amid(log: list[Stored], case: Case) -> bool:
    """Whether the share is delivered. What is sent after its time, a broker stores at once."""
    found = delivered(log).total()
    direct = sum(record.topic in case.topics for record in log) - found
    return found >= case.share * (case.count - max(0, direct))


def _undecided(manifest: Path) -> set[str]:
    """UNIQ_KEYs of the messages of which the log does not tell whether they were delivered."""
    told = json.loads(manifest.read_text())["delay"]
    return {message["uniq_key"] for message in told["undecided"]}


def _faults(due: Counter[Message], before: Counter[Message], after: Counter[Message], undecided: set[str]) -> list[str]:
    """What is not as it must be: each message exactly once, and at least once where the log could not tell.

    Before the restore some may have been delivered twice by a broker that crashed, or once in spite of a delete mark.
    """
    faults = []
    for message in due.keys() | after.keys():
        wanted, found = max(due[message], before[message]), after[message]
        if found != wanted and not (message.key in undecided and found > wanted):
            faults.append(f"{message} is delivered {found} times, not {wanted}; before the restore {before[message]}")
    return faults
