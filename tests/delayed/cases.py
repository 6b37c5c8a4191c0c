"""What a seed draws: messages to send, settings of the broker, and when it dies."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

TOPICS, QUEUES = 3, 2
GROUP = "again"
RETRIES = f"%RETRY%{GROUP}"


@dataclass(frozen=True)
class Case:
    """``lines`` are for Delayed.java's step send; the broker is killed when this ``share`` of them has been delivered.

    ``again``: (topic, delay level, times) for a consumer that gives messages back. With ``crashed`` the killed broker is first
    started once more as it is, and killed again: what it had not noted as delivered it delivers twice.
    """

    seed: int
    settings: dict[str, str | int]
    lines: Callable[[], list[str]]
    count: int
    share: float
    keep_topics: bool
    abort: bool
    crashed: bool
    again: tuple[str, int, int] | None = None
    topics: dict[str, int] = field(default_factory=lambda: {f"T{number}": QUEUES for number in range(TOPICS)})


def levels(seed: int) -> Case:
    """Messages of several delay levels; some are sent twice with one UNIQ_KEY, some cases have retries."""
    rng = random.Random(seed)
    count, most = rng.randrange(60, 300), rng.randrange(3, 7)
    pause, crashed = rng.choice((0, 1, 5, 10)), rng.random() < 0.2

    def lines() -> list[str]:
        # Of what a crash delivers twice nobody could tell two that were sent.
        return level_lines(rng, count, most, pause, 0 if crashed else 0.05)

    settings: dict[str, str | int] = {"messageDelayLevel": level_setting(most)}
    if rng.random() < 0.25:
        settings["enableScheduleAsyncDeliver"] = "true"
    again = (f"T{rng.randrange(TOPICS)}", rng.randint(1, 3), rng.randint(1, 2)) if rng.random() < 0.4 else None
    return Case(seed, settings, lines, count, rng.uniform(0, 0.8), rng.random() < 0.5, rng.random() < 0.5, crashed, again)


def level_setting(most: int) -> str:
    """messageDelayLevel: so many levels, a second apart."""
    return " ".join(f"{second}s" for second in range(1, most + 1))


def level_lines(rng: random.Random, count: int, most: int, pause: int, repeats: float) -> list[str]:
    """Messages of the levels up to ``most``, a tenth of none; the share ``repeats`` has a UNIQ_KEY that was sent before."""
    made: list[str] = []
    for number in range(count):
        key = rng.randrange(number) if made and rng.random() < repeats else number
        topic, queue = f"T{key % TOPICS}", key // TOPICS % QUEUES
        level = "" if rng.random() < 0.1 else f"\tDELAY={rng.randint(1, most)}"
        made.append(f"{pause}\t{topic}\t{queue}\ttag{number % 3}\tUNIQ_KEY={key:032X}{level}")
    return made


def timers(seed: int, version: str) -> Case:
    """Timer messages by a time or a delay; in some cases with delete marks, in others they roll on, or slots are short."""
    rng = random.Random(seed)
    count, pause, longest = rng.randrange(60, 300), rng.choice((0, 1, 5, 10)), rng.randrange(3, 8)
    deletes = rng.random() < 0.6

    def lines() -> list[str]:
        return timer_lines(rng, version, count, pause, longest, 0.3 if deletes else 0)

    settings: dict[str, str | int] = {"mappedFileSizeTimerLog": 52 * rng.choice((50, 1000, 20_000))}
    # A mark and its message roll one by one: a broker may lose a mark on the way.
    if not deletes and rng.random() < 0.8:
        settings["timerRollWindowSlot"] = rng.randrange(2, 6)
    if rng.random() < 0.3:
        settings["timerPrecisionMs"] = rng.choice((100, 200, 500))
    return Case(seed, settings, lines, count, rng.uniform(0, 0.7), rng.random() < 0.5, rng.random() < 0.5, rng.random() < 0.2)


def timer_lines(
    rng: random.Random, version: str, count: int, pause: int, longest: int, deletes: float, first: int = 0
) -> list[str]:  # fmt: skip
    """Timer messages of at most ``longest`` seconds, the share ``deletes`` of them recalled; keys from ``first`` on."""
    now, made = int(time.time() * 1000), list[str]()
    for number in range(count):
        topic, queue = f"T{rng.randrange(TOPICS)}", rng.randrange(QUEUES)
        head, key = f"{pause}\t{topic}\t{queue}\ttag\tUNIQ_KEY", first + number
        wait = rng.randrange(200, longest * 1000)
        at = f"TIMER_DELIVER_MS={now + 1500 + number * pause + wait}" if rng.random() < 0.6 else f"TIMER_DELAY_MS={wait}"
        made.append(f"{head}={key:032X}\t{at}")
        if "DELIVER" in at and wait > 2000 and rng.random() < deletes:
            # Up to 5.3 a mark names the topic, too.
            marked = f"{topic}+{key:032X}" if version < "5.4" else f"{key:032X}"
            made.append(f"{head}={key + 10**6:032X}\t{at}\tTIMER_DEL_UNIQKEY={marked}")
    return made


POPPED, SOLD = "P", "X"
"""Topics of messages that are popped, and of transactions"""
POPPING = "popping"
ENDS = ("stopped", "killed", "killed twice")


@dataclass(frozen=True)
class Mixed:
    """All kinds of waiting messages in one broker, whose life has this ``end`` after so many ``seconds``.

    ``transactions`` are lines for Delayed.java's step transact. ``again``: (delay level, times) of the retries of T0. With
    ``own`` the restored store keeps its own delayOffset.json and consumerOffset.json, else it gets those of the build.
    """

    seed: int
    settings: dict[str, str | int]
    lines: Callable[[], list[str]]
    transactions: list[str]
    end: str
    seconds: tuple[float, float]
    again: tuple[int, int]
    own: bool
    topics: dict[str, int]


def mixed(seed: int, version: str) -> Mixed:
    """Levels, timers, recalls, retries, popped messages and transactions of each fate."""
    rng = random.Random(seed)
    old = version.startswith("4.")
    most, longest = rng.choice(((6, 8), (12, 20), (15, 45)))
    count, pause = rng.randrange(40, 120), rng.choice((5, 10, 20))
    settings: dict[str, str | int] = {
        "messageDelayLevel": level_setting(most),
        "transactionTimeOut": 1500,
        "transactionCheckInterval": 4000,
        "flushConsumerOffsetInterval": rng.choice((500, 5000, 600_000)),
        "flushDelayOffsetInterval": rng.choice((500, 10_000)),
        "mappedFileSizeTimerLog": 52 * rng.choice((50, 1000, 20_000)),
        "timerPrecisionMs": rng.choice((100, 500, 1000, 1000)),
    }

    def lines() -> list[str]:
        parts = [level_lines(rng, count, most, pause, 0)]
        if not old:
            parts.append(timer_lines(rng, version, count, pause, longest, 0.3, 10**5))
            popped = (
                f"{pause}\t{POPPED}\t{number % QUEUES}\ttag\tUNIQ_KEY={2 * 10**5 + number:032X}" for number in range(count)
            )
            parts.append(list(popped))
        # A recall follows its message: the lines of each part stay in their order.
        turns = [number for number, part in enumerate(parts) for _ in part]
        rng.shuffle(turns)
        taken = [iter(part) for part in parts]
        return [next(taken[number]) for number in turns]

    fates = ("commit\tcommit", "rollback\trollback", "unknow\tcommit", "unknow\trollback", "unknow")
    transactions = [f"{SOLD}\t{3 * 10**5 + number:032X}\t{rng.choice(fates)}" for number in range(rng.randrange(30, 90))]
    topics = {f"T{number}": QUEUES for number in range(TOPICS)} | {SOLD: 1, RETRIES: 1, POPPED: QUEUES}
    seconds = rng.uniform(4, 12), rng.uniform(1, 7)
    again = rng.randint(1, 3), rng.randint(1, 2)
    return Mixed(seed, settings, lines, transactions, rng.choice(ENDS), seconds, again, rng.random() < 0.5, topics)
