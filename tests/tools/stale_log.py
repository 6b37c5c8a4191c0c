"""A log that was truncated and written on: behind its end lie the rest of an old record, and whole old ones."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from tests.tools.encode import EPOCH, Message
from tests.tools.log_writer import LogWriter, Put

SEGMENT = 1 << 16
DOWN = 5_000
"""Milliseconds that a broker is down."""


@dataclass(frozen=True)
class StaleLog:
    """``live`` ends at ``end``; ``old`` lie whole behind it.

    ``bare`` is a store with the live records alone, ``before`` the one before it was truncated.
    """

    end: int
    live: list[Put]
    old: list[Put]
    bare: Path
    before: Path

    @property
    def last_time(self) -> int:
        return self.live[-1].message.store_timestamp


def message(rng: random.Random, now: int, body: int, queues: int) -> Message:
    """One with a tag and two keys."""
    properties = {"TAGS": rng.choice(("a", "b")), "KEYS": f"k{rng.randrange(20)}", "UNIQ_KEY": rng.randbytes(8).hex()}
    return Message(
        topic="orders", queue_id=rng.randrange(queues), body=rng.randbytes(body), properties=properties, store_timestamp=now
    )


def stale_log(
    store: Path, seed: int, *, records: int = 60, kept: int = 30, new: int = 12, body: tuple[int, int] = (200, 80),
    queues: int = 1, down: int = DOWN, old: Message | None = None,
) -> StaleLog:  # fmt: skip
    """``body``: bytes of old bodies and of new ones. ``old`` is put last of all, and cut away."""
    rng = random.Random(seed)
    now, messages = EPOCH, []
    for _ in range(records):
        now += rng.randrange(1, 2_000)
        messages.append(message(rng, now, body[0] + rng.randrange(20), queues))
    # In turn, so that each queue has as many on both sides of the gap.
    messages = [replace(one, queue_id=number % queues) for number, one in enumerate(messages)]
    messages += [old] if old else []
    later: list[Message] = []
    for _ in range(new):
        now += rng.randrange(1, 2_000)
        one = message(rng, now + down, body[1] + rng.randrange(20), queues)
        later.append(replace(one, queue_id=(kept + len(later)) % queues))
    bare = store.with_name(f"{store.name}-bare")
    with LogWriter(store / "commitlog", SEGMENT) as before:
        for one in messages:
            before.append(one)
    for more in (b"", b"x"):
        with LogWriter(bare / "commitlog", SEGMENT) as after:
            for one in [*messages[:kept], *later[:-1], replace(later[-1], body=later[-1].body + more)]:
                after.append(one)
        # Where an old record begins the broker itself would go on.
        if after.end not in {put.offset for put in before.puts}:
            break
    end = after.end
    assert end < before.end < SEGMENT
    path = store / "commitlog" / f"{0:020d}"
    live = (bare / "commitlog" / path.name).read_bytes()[:end]
    kept_whole = copy_log(store, store.with_name(f"{store.name}-before"))
    path.write_bytes(live + path.read_bytes()[end:])
    return StaleLog(end, after.puts, [put for put in before.puts if put.offset >= end], bare, kept_whole)


def write_at(store: Path, offset: int, data: bytes) -> None:
    with (store / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(offset)
        file.write(data)


def copy_log(source: Path, to: Path) -> Path:
    shutil.copytree(source / "commitlog", to / "commitlog")
    return to
