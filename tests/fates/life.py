"""One life of a broker in which messages of each fate are sent, delayed, decided, taken, given back and traced."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.delayed.life import UNREAD, Life, pop_mode, queues
from tests.delayed.log import Stored

TRACED = "RMQ_SYS_TRACE_TOPIC"
TOPICS = {"Plain": 2, "Delayed": 1, "Sold": 1, "Again": 1, "Dead": 1, "Popped": 1, TRACED: 1}
LEVELS = "1s 2s 3h"
SETTINGS: dict[str, str | int] = {
    "messageDelayLevel": LEVELS, "traceTopicEnable": "true", "enableMultiDispatch": "true", "enableLmq": "true",
    "transactionTimeOut": 600_000, "transactionOpBatchInterval": 100, "flushConsumerOffsetInterval": 500,
    "mappedFileSizeCommitLog": 1 << 22, **UNREAD,
}  # fmt: skip
AGAIN, DEAD, POPPING = "again", "dead", "popping"
HOUR = 3_600_000


def key(name: str, number: int = 0) -> str:
    """The UNIQ_KEY of a message, which tells its fate."""
    return f"{name.encode().hex().upper():0<28}{number:04X}"


@dataclass(frozen=True)
class Fates:
    """The store of a broker that was stopped, and what its clients saw.

    ``told``: by group, lines of UNIQ_KEY, reconsume times, and done or again. ``traces``: RocketMQ's own reading of the traces.
    """

    store: Path
    log: list[Stored]
    told: dict[str, list[tuple[str, int, str]]]
    traces: list[dict[str, str]]


def lines(now: int, version: str) -> Iterator[str]:
    """What is sent: ``ServProducer.sendLines``."""
    # Up to 5.3 a mark names the topic, too.
    marked = key("recalled") if version >= "5.4" else f"Delayed+{key('recalled')}"
    for number in range(6):
        yield f"0\tPlain\t{number % 2}\ttag\tUNIQ_KEY={key('plain', number)}\tKEYS=order-{number} all"
    yield f"0\tPlain\t0\ttag\tUNIQ_KEY={key('light')}\tINNER_MULTI_DISPATCH=%LMQ%a,%LMQ%b"
    yield f"0\tDelayed\t0\ttag\tUNIQ_KEY={key('level')}\tDELAY=1"
    yield f"0\tDelayed\t0\ttag\tUNIQ_KEY={key('level-waits')}\tDELAY=3"
    yield f"0\tDelayed\t0\ttag\tUNIQ_KEY={key('timer')}\tTIMER_DELIVER_MS={now + 4000}"
    yield f"0\tDelayed\t0\ttag\tUNIQ_KEY={key('timer-waits')}\tTIMER_DELIVER_MS={now + HOUR}"
    yield f"0\tDelayed\t0\ttag\tUNIQ_KEY={key('recalled')}\tTIMER_DELIVER_MS={now + 15_000}"
    # A mark and its message have the same time: the mark is taken first.
    yield f"0\tDelayed\t0\ttag\tUNIQ_KEY={key('mark')}\tTIMER_DELIVER_MS={now + 15_000}\tTIMER_DEL_UNIQKEY={marked}"
    for number in range(2):
        yield f"0\tAgain\t0\ttag\tUNIQ_KEY={key('again', number)}\tKEYS=again-{number}"
        yield f"0\tDead\t0\ttag\tUNIQ_KEY={key('dead', number)}"
    for number in range(12):
        yield f"0\tPopped\t0\ttag\tUNIQ_KEY={key('popped', number)}"


TRANSACTIONS = [
    f"Sold\t{key('committed')}\tcommit",
    f"Sold\t{key('rolled-back')}\trollback",
    f"Sold\t{key('undecided')}\tunknow",
]


def live(version: str, scratch: Path) -> Fates:
    """Play it on a broker of a 5.x version."""
    store = scratch / "store"
    queues(TOPICS, store)
    pop_mode(store, "Popped", POPPING)
    with Life(version, store, scratch, SETTINGS) as life:
        life.send(lines(int(time.time() * 1000), version), "traced")
        life.send(TRANSACTIONS, "transact")
        life.step("sent")
        life.step("again", AGAIN, "Again", 1, 2, scratch / f"{AGAIN}.told", "traced")
        life.step("again", DEAD, "Dead", -1, 99, scratch / f"{DEAD}.told")
        life.step("again", POPPING, "Popped", 0, 1, scratch / f"{POPPING}.told", "pop")
        life.wait(lambda log: _is_done(log, _told(scratch)), "each fate")
        life.settle(12.0)
        life.step("traces", scratch / "traces")
        life.stop()
        log = life.log()
    return Fates(store, log, _told(scratch), _traces(scratch / "traces"))


def _is_done(log: list[Stored], told: dict[str, list[tuple[str, int, str]]]) -> bool:
    stored = {(record.topic, record.key) for record in log}
    wanted = {
        ("Delayed", key("level")),
        ("Delayed", key("timer")),
        ("Sold", key("committed")),
        (f"%DLQ%{DEAD}", key("dead", 1)),
    }
    done = {unique for lines_told in told.values() for unique, _, last in lines_told if last == "done"}
    return wanted <= stored and {key("again", 0), key("again", 1), *(key("popped", number) for number in range(12))} <= done


def _told(scratch: Path) -> dict[str, list[tuple[str, int, str]]]:
    found: dict[str, list[tuple[str, int, str]]] = {}
    for path in scratch.glob("*.told"):
        words = (line.split("\t") for line in path.read_text().splitlines())
        found[path.stem] = [(word[0], int(word[1]), word[2]) for word in words if len(word) == 3]
    return found


def _traces(path: Path) -> list[dict[str, str]]:
    rows = (line.split("\t") for line in path.read_text().splitlines())
    return [{"offset": offset, **dict(word.split("=", 1) for word in words)} for offset, *words in rows]
