"""Random odd logs: queues that jump, begin again and go back, and damage near each other. One seed, one log."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.tools.encode import EPOCH, Message
from tests.tools.log_writer import LogWriter, Put

SEGMENT = 1 << 13
TOPICS = ("TopicA", "B", "%RETRY%group")
NEAR = 3
"""Records between two damaged places of one log, as a rule."""


@dataclass
class OddLog:
    """A store of a commitlog alone. ``touched`` are bytes [low, high) of the log that are not as they were written."""

    store: Path
    puts: list[Put]
    deeds: list[str] = field(default_factory=list)
    touched: list[tuple[int, int]] = field(default_factory=list)

    @property
    def log(self) -> Path:
        """The folder of its segments."""
        return self.store / "commitlog"

    @property
    def sound(self) -> list[Put]:
        """The records of which no byte was touched."""
        return [put for put in self.puts if not self.meets(put.offset, put.offset + put.size)]

    def meets(self, low: int, high: int) -> bool:
        """Whether a byte of [low, high) was touched."""
        return any(start < high and low < stop for start, stop in self.touched)

    def change(self, at: int, data: bytes, what: str) -> None:
        """Overwrite bytes from ``at`` on, as far as their segment's file goes."""
        path = self.log / f"{at // SEGMENT * SEGMENT:020d}"
        if not path.exists():
            return
        old, low = bytearray(path.read_bytes()), at % SEGMENT
        data = data[: max(0, len(old) - low)]
        old[low : low + len(data)] = data
        path.write_bytes(old)
        self.touched.append((at, at + len(data)))
        self.deeds.append(f"{what} at {at}")


def odd_log(store: Path, seed: int) -> OddLog:
    """The log of a seed, in ``store``."""
    rng = random.Random(f"odd {seed}")
    first = rng.choice((0, 0, 0, 0, 1000 * SEGMENT))
    queues = rng.sample([(topic, queue) for topic in TOPICS for queue in range(2)], rng.randrange(1, 5))
    steps = {queue: _Steps(rng, first) for queue in queues}
    crc, biggest = rng.random() < 0.15, rng.choice((0, 60, 200, 600))
    with LogWriter(store / "commitlog", SEGMENT, first) as writer:
        for number in range(rng.randrange(5, 160)):
            topic, queue = rng.choice(queues)
            properties = {"UNIQ_KEY": f"{seed:X}-{number:X}"} | ({"TAGS": "T"} if rng.random() < 0.3 else {})
            writer.append(Message(
                topic, queue, rng.randbytes(rng.randrange(biggest + 1)), properties, store_timestamp=EPOCH + 10 * number,
                queue_offset=steps[topic, queue].next(), crc_property=crc,
            ))  # fmt: skip
            if rng.random() < 0.01 and writer.segment:
                writer.roll()
    log = OddLog(store, writer.puts)
    log.deeds += [f"{topic}/{queue}: {', '.join(map(str, steps[topic, queue].odd))}" for topic, queue in queues]
    _damage(log, rng)
    return log


class _Steps:
    """The queue offsets of one queue."""

    def __init__(self, rng: random.Random, first: int) -> None:
        self._rng = rng
        self._odds = rng.choice((0.0, 0.02, 0.1, 0.3))
        self._next = rng.randrange(70) if first else rng.choice((0, 0, 0, 0, rng.randrange(1, 30)))
        self._back: int | None = None
        self.odd: list[int] = []
        """where the queue does not go on by one, and its first offset"""

    def next(self) -> int:
        """The offset of the queue's next record."""
        rng, expected = self._rng, self._next
        if self._back is not None:
            self._next, self._back = self._back, None
        elif rng.random() < self._odds:
            jumped = expected + rng.choice((1, 1, 2, 3, 8, 40))
            lower = max(0, expected - rng.choice((1, 2, 3, 8)))
            ways = [jumped, jumped, 0, lower]
            if rng.random() < 0.2:
                # One record alone, behind which the queue goes on.
                self._back = rng.choice((expected, expected + 1))
            self._next = rng.choice(ways)
        if self._next != expected or not self.odd:
            self.odd.append(self._next)
        self._next += 1
        return self._next - 1


def _damage(log: OddLog, rng: random.Random) -> None:
    count = rng.choice((0, 1, 1, 2, 3, 5))
    if rng.random() < 0.2:
        at = 0
    else:
        at = rng.randrange(len(log.puts))
    for _ in range(count):
        rng.choice(WAYS)(log, rng, log.puts[at])
        step = rng.randrange(-NEAR, NEAR + 1) if rng.random() < 0.7 else rng.randrange(len(log.puts))
        at = min(max(0, at + step), len(log.puts) - 1)


def _flip(log: OddLog, rng: random.Random, put: Put) -> None:
    """A bit of the size, of the magic or of the body's CRC: each shows it."""
    at = put.offset + rng.randrange(12)
    byte = (
        (log.log / f"{at // SEGMENT * SEGMENT:020d}").read_bytes()[at % SEGMENT : at % SEGMENT + 1]
        if _is_there(log, at)
        else b""
    )
    log.change(at, bytes([byte[0] ^ 1 << rng.randrange(8)]) if byte else b"", "bit flipped")


def _is_there(log: OddLog, at: int) -> bool:
    path = log.log / f"{at // SEGMENT * SEGMENT:020d}"
    return path.exists() and path.stat().st_size > at % SEGMENT


def _noise(log: OddLog, rng: random.Random, put: Put) -> None:
    log.change(put.offset + rng.randrange(8), rng.randbytes(rng.choice((8, 60, 150, 500, 2000))), "noise")


def _zeros(log: OddLog, rng: random.Random, put: Put) -> None:
    log.change(put.offset, bytes(rng.choice((put.size, 8, 500, 2000))), "zeros")


def _lost_segment(log: OddLog, rng: random.Random, put: Put) -> None:
    """The record's segment is gone, or one behind it; neither the first nor the last."""
    paths = sorted(log.log.iterdir())
    start = put.offset // SEGMENT * SEGMENT
    between = [path for path in paths[1:-1] if int(path.name) >= start]
    if between:
        path = rng.choice(between[:2])
        path.unlink()
        log.touched.append((int(path.name), int(path.name) + SEGMENT))
        log.deeds.append(f"segment {path.name} lost")


def _cut_file(log: OddLog, rng: random.Random, put: Put) -> None:
    path = log.log / f"{put.offset // SEGMENT * SEGMENT:020d}"
    if path.exists() and path != min(log.log.iterdir()):
        kept = rng.choice((put.offset % SEGMENT, rng.randrange(SEGMENT)))
        data = path.read_bytes()
        path.write_bytes(data[:kept])
        log.touched.append((int(path.name) + kept, int(path.name) + SEGMENT))
        log.deeds.append(f"segment {path.name} cut at {kept}")


WAYS: tuple[Callable[[OddLog, random.Random, Put], None], ...] = (
    _flip,
    _flip,
    _flip,
    _noise,
    _noise,
    _zeros,
    _lost_segment,
    _cut_file,
)
