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
        made: list[str] = []
        for number in range(count):
            # Of what a crash delivers twice nobody could tell two that were sent.
            repeats = bool(made) and not crashed and rng.random() < 0.05
            key = rng.randrange(number) if repeats else number
            topic, queue = f"T{key % TOPICS}", key // TOPICS % QUEUES
            level = "" if rng.random() < 0.1 else f"\tDELAY={rng.randint(1, most)}"
            made.append(f"{pause}\t{topic}\t{queue}\ttag{number % 3}\tUNIQ_KEY={key:032X}{level}")
        return made

    settings: dict[str, str | int] = {"messageDelayLevel": " ".join(f"{second}s" for second in range(1, most + 1))}
    if rng.random() < 0.25:
        settings["enableScheduleAsyncDeliver"] = "true"
    again = (f"T{rng.randrange(TOPICS)}", rng.randint(1, 3), rng.randint(1, 2)) if rng.random() < 0.4 else None
    return Case(seed, settings, lines, count, rng.uniform(0, 0.8), rng.random() < 0.5, rng.random() < 0.5, crashed, again)


def timers(seed: int, version: str) -> Case:
    """Timer messages by a time or a delay; in some cases with delete marks, in others they roll on, or slots are short."""
    rng = random.Random(seed)
    count, pause, longest = rng.randrange(60, 300), rng.choice((0, 1, 5, 10)), rng.randrange(3, 8)
    deletes = rng.random() < 0.6

    def lines() -> list[str]:
        now, made = int(time.time() * 1000), list[str]()
        for number in range(count):
            topic, queue = f"T{rng.randrange(TOPICS)}", rng.randrange(QUEUES)
            head = f"{pause}\t{topic}\t{queue}\ttag\tUNIQ_KEY"
            wait = rng.randrange(200, longest * 1000)
            at = f"TIMER_DELIVER_MS={now + 1500 + number * pause + wait}" if rng.random() < 0.6 else f"TIMER_DELAY_MS={wait}"
            made.append(f"{head}={number:032X}\t{at}")
            if deletes and "DELIVER" in at and wait > 2000 and rng.random() < 0.3:
                # Up to 5.3 a mark names the topic, too.
                marked = f"{topic}+{number:032X}" if version < "5.4" else f"{number:032X}"
                made.append(f"{head}={number + 10**6:032X}\t{at}\tTIMER_DEL_UNIQKEY={marked}")
        return made

    settings: dict[str, str | int] = {"mappedFileSizeTimerLog": 52 * rng.choice((50, 1000, 20_000))}
    # A mark and its message roll one by one: a broker may lose a mark on the way.
    if not deletes and rng.random() < 0.8:
        settings["timerRollWindowSlot"] = rng.randrange(2, 6)
    if rng.random() < 0.3:
        settings["timerPrecisionMs"] = rng.choice((100, 200, 500))
    return Case(seed, settings, lines, count, rng.uniform(0, 0.7), rng.random() < 0.5, rng.random() < 0.5, rng.random() < 0.2)
