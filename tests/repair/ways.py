"""Ways to damage the log of a store, one to six in one log; and which bytes they touched."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from tests.preflight import spoil_log
from tests.preflight.settings import Sizes
from tests.preflight.spoiling import Spoiler, Stores

AHEAD = 2
Way = Callable[[Spoiler], str | None]


def damage(store: Path, sizes: Sizes, seed: int) -> list[str]:
    """Damage the log in ``store``, and say how; one seed, the same damage."""
    rng = random.Random(f"damage {seed}")
    spoiler = Spoiler(Stores(store, sizes), rng)
    ways = rng.choices(WAYS, k=rng.choice((1, 1, 1, 2, 2, 3, 4, 6)))
    # The others read records: a log that lacks files has fewer.
    told = [words for way in sorted(ways, key=lambda way: way in FILES) if (words := way(spoiler))]
    return told + list(_no_more_ahead(spoiler))


def _no_more_ahead(spoiler: Spoiler) -> Iterator[str]:
    """A broker makes two segments ahead: 4.9 does not look before the last three, and leaves a hole behind the log's end."""
    segments = spoiler.store.segments()
    while len(segments) > AHEAD and not any(any(path.read_bytes()) for path in segments[-AHEAD - 1 :]):
        segments.pop().unlink()
        yield "one of zeros taken away"


def flipped_anywhere(spoiler: Spoiler) -> str | None:
    """One bit of the log."""
    segment, at = _anywhere(spoiler)
    byte = segment.read_bytes()[at] ^ (1 << spoiler.rng.randrange(8))
    spoiler.overwrite(segment, at, bytes([byte]))
    return f"{spoiler.told(segment)} bit flipped at {at}"


def many_flips(spoiler: Spoiler) -> str | None:
    """Bits of many records, as of a bad memory."""
    return "; ".join(str(flipped_anywhere(spoiler)) for _ in range(spoiler.rng.randrange(5, 15)))


def short_stretch(spoiler: Spoiler) -> str | None:
    """Noise or zeros of any length, anywhere, perhaps over the border of a record."""
    segment, at = _anywhere(spoiler)
    length = spoiler.rng.choice((1, 4, 20, 60, 90, 91, 100, 150, 512, 4096))
    zeros = spoiler.rng.random() < 0.5
    spoiler.overwrite(segment, at, bytes(length) if zeros else spoiler.rng.randbytes(length))
    return f"{spoiler.told(segment)} {length} bytes of {'zeros' if zeros else 'noise'} at {at}"


def over_border(spoiler: Spoiler) -> str | None:
    """The end of a segment and the beginning of the next."""
    segments = spoiler.store.segments()
    if len(segments) < 2:
        return None
    number = spoiler.rng.randrange(len(segments) - 1)
    before, behind = spoiler.rng.choice((1, 8, 100, 3000)), spoiler.rng.choice((1, 8, 100, 3000))
    size = segments[number].stat().st_size
    spoiler.overwrite(segments[number], max(0, size - before), spoiler.rng.randbytes(before))
    spoiler.overwrite(segments[number + 1], 0, spoiler.rng.randbytes(behind))
    return f"{spoiler.told(segments[number])} {before} bytes of noise up to its end, and {behind} in the next"


def cut_file(spoiler: Spoiler) -> str | None:
    """The file of a segment is too short."""
    segment = spoiler.rng.choice(spoiler.store.segments())
    data = segment.read_bytes()
    kept = spoiler.rng.choice((1, len(data) // 2, len(data) - 1, spoiler.rng.randrange(1, len(data))))
    segment.write_bytes(data[:kept])
    return f"{spoiler.told(segment)} cut at {kept}"


def missing_in_between(spoiler: Spoiler) -> str | None:
    """One or more segments between the first and the last are gone."""
    between = spoiler.store.segments()[1:-1]
    gone = [path for path in between if spoiler.rng.random() < 0.3] or between[:1]
    for path in gone:
        path.unlink()
    return f"{', '.join(path.name for path in gone)} deleted" if gone else None


def _anywhere(spoiler: Spoiler) -> tuple[Path, int]:
    segment = spoiler.rng.choice(spoiler.store.segments())
    return segment, spoiler.rng.randrange(segment.stat().st_size)


FILES: tuple[Way, ...] = (
    missing_in_between, missing_in_between, cut_file, spoil_log.spare_segment, spoil_log.zero_segment, spoil_log.lost_segment,
)  # fmt: skip
WAYS: tuple[Way, ...] = (
    *FILES, flipped_anywhere, flipped_anywhere, many_flips, short_stretch, short_stretch, over_border, spoil_log.flipped_bit,
    spoil_log.changed_field, spoil_log.changed_field, spoil_log.zeroed, spoil_log.zeroed, spoil_log.garbage, spoil_log.garbage,
    spoil_log.broken_filler, spoil_log.torn_tail, spoil_log.stale_tail,
)  # fmt: skip


def touched(whole: Path, damaged: Path) -> list[tuple[int, int]]:
    """Stretches [low, high) of the log that ``damaged`` has otherwise than ``whole``, or not at all; in order."""
    return [stretch for path in sorted(whole.iterdir()) for stretch in _of_segment(path, damaged / path.name)]


def _of_segment(path: Path, other: Path) -> Iterator[tuple[int, int]]:
    start, data = int(path.name), path.read_bytes()
    found = other.read_bytes()[: len(data)] if other.exists() else b""
    differs = np.ones(len(data) + 2, bool)
    differs[0] = differs[-1] = False
    differs[1 : len(found) + 1] = np.frombuffer(data[: len(found)], np.uint8) != np.frombuffer(found, np.uint8)
    borders = (np.flatnonzero(differs[1:] != differs[:-1]) + start).tolist()
    yield from zip(borders[::2], borders[1::2], strict=True)
