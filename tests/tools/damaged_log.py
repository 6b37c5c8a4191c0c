"""A small log that is damaged in one or more ways, and what of it survives."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.tools.log_writer import Put

SEGMENT = 1 << 14
SIZES = {"cq_file_size": 400, "hash_slots": 50, "index_items": 150}


@dataclass
class Damaged:
    """The damaged store, the whole one beside it, and bytes [low, high) of the log that were touched."""

    store: Path
    whole: Path
    puts: list[Put]
    touched: list[tuple[int, int]]

    def survivors(self) -> list[Put]:
        """The records of which no byte was touched."""
        return [
            put for put in self.puts if not any(low < put.offset + put.size and put.offset < high for low, high in self.touched)
        ]

    def change(self, at: int, data: bytes) -> None:
        """Overwrite bytes of the log from ``at`` on, as far as their segment goes."""
        start = at // SEGMENT * SEGMENT
        path = self.store / "commitlog" / f"{start:020d}"
        if not path.exists():
            return
        old = path.read_bytes()
        data = data[: len(old) - (at - start)]
        path.write_bytes(old[: at - start] + data + old[at - start + len(data) :])
        self.touched.append((at, at + len(data)))


Way = Callable[[Damaged, random.Random], None]


def _some(damaged: Damaged, rng: random.Random) -> Put:
    # Damage at the last records is a torn tail.
    return rng.choice(damaged.puts[: -len(damaged.puts) // 4])


def flip(damaged: Damaged, rng: random.Random) -> None:
    """A bit of a body: its CRC shows it."""
    put = _some(damaged, rng)
    data = (damaged.whole / "commitlog" / f"{put.offset // SEGMENT * SEGMENT:020d}").read_bytes()
    at = put.offset % SEGMENT + 4 + rng.randrange(4)
    damaged.change(put.offset // SEGMENT * SEGMENT + at, bytes([data[at] ^ 1 << rng.randrange(8)]))


def garbage(damaged: Damaged, rng: random.Random) -> None:
    """Random bytes over some records."""
    put = _some(damaged, rng)
    damaged.change(put.offset + rng.randrange(put.size), rng.randbytes(rng.choice((1, 50, 800, 5000))))


def zeroed(damaged: Damaged, rng: random.Random) -> None:
    """Zeros over some records, as pages that never reached the disk."""
    put = _some(damaged, rng)
    damaged.change(put.offset - rng.randrange(60), bytes(rng.choice((100, 800, 5000))))


def wrong_size(damaged: Damaged, rng: random.Random) -> None:
    """A record that says another size."""
    put = _some(damaged, rng)
    damaged.change(put.offset, rng.choice((put.size + 4, put.size - 4, 0x7FFFFFFF, -5)).to_bytes(4, "big", signed=True))


def missing(damaged: Damaged, rng: random.Random) -> None:
    """A segment in the middle is gone."""
    paths = sorted((damaged.store / "commitlog").iterdir())
    if len(paths) > 3:
        path = rng.choice(paths[1:-2])
        path.unlink()
        damaged.touched.append((int(path.name), int(path.name) + SEGMENT))


def cut(damaged: Damaged, rng: random.Random) -> None:
    """A file in the middle is too short."""
    path = rng.choice(sorted((damaged.store / "commitlog").iterdir())[:-2])
    kept = rng.randrange(SEGMENT)
    path.write_bytes(path.read_bytes()[:kept])
    damaged.touched.append((int(path.name) + kept, int(path.name) + SEGMENT))


WAYS: tuple[Way, ...] = (flip, garbage, garbage, zeroed, wrong_size, missing, cut)


def copy_of(whole: Path, store: Path, puts: list[Put]) -> Damaged:
    """A copy to be damaged."""
    shutil.copytree(whole, store)
    return Damaged(store, whole, puts, [])
