"""Spoils a copy of a store in one place, as disks, crashes and people do.

Every function takes the store's folder, which record or segment (negative: from the end) and a seed, changes
the files in place, and says which bytes it hit.
"""

import random
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.tools.encode import BORN_V6, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, STORE_V6

# Fields a flipped bit of which is always seen, as (offset in the record, bytes).
SEEN_FIELDS = {"TOTALSIZE": (0, 4), "MAGICCODE": (4, 4), "BODYCRC": (8, 4), "PHYSICALOFFSET": (28, 8)}
HUGE = 0x7FFFFFFF


@dataclass(frozen=True)
class Spoilt:
    """The bytes hit: the segment's name, the logical offset, how many."""

    segment: str
    offset: int
    length: int


@dataclass(frozen=True)
class Place:
    """A record in its file; `body` is (offset in the record, bytes)."""

    path: Path
    at: int
    size: int
    body: tuple[int, int]

    @property
    def offset(self) -> int:
        return int(self.path.name) + self.at


def copy_store(store: Path, into: Path) -> Path:
    """A writable copy of the commitlog of `store` as `into`."""
    shutil.copytree(store / "commitlog", into / "commitlog")
    return into


def segment_paths(store: Path) -> list[Path]:
    return sorted((store / "commitlog").iterdir())


def record_offsets(store: Path) -> list[tuple[int, int]]:
    """(physical offset, bytes) of every record of an unspoilt store."""
    return [(place.offset, place.size) for place in _places(store)]


def has_body(store: Path, record: int) -> bool:
    """Whether a record of an unspoilt store can have a bit of its body spoilt."""
    return _places(store)[record].body[1] > 0


def _places(store: Path) -> list[Place]:
    places = []
    for path in segment_paths(store):
        data, at = path.read_bytes(), 0
        while at + 8 <= len(data):
            size, magic = struct.unpack_from(">iI", data, at)
            if size < 91 or magic == MAGIC_BLANK or magic not in (MAGIC_V1, MAGIC_V2):
                break
            (sysflag,) = struct.unpack_from(">i", data, at + 36)
            body = 88 + (12 if sysflag & BORN_V6 else 0) + (12 if sysflag & STORE_V6 else 0)
            places.append(Place(path, at, size, (body, struct.unpack_from(">i", data, at + body - 4)[0])))
            at += size
    return places


def _overwrite(path: Path, at: int, data: bytes) -> Spoilt:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)
    return Spoilt(path.name, int(path.name) + at, len(data))


def _flip(path: Path, at: int, rng: random.Random) -> Spoilt:
    return _overwrite(path, at, bytes([path.read_bytes()[at] ^ 1 << rng.randrange(8)]))


def _size(store: Path, record: int, change: Callable[[int], int]) -> Spoilt:
    place = _places(store)[record]
    return _overwrite(place.path, place.at, struct.pack(">i", change(place.size)))


def bad_magic(store: Path, record: int, seed: int = 0) -> Spoilt:
    place = _places(store)[record]
    return _overwrite(place.path, place.at + 4, struct.pack(">I", random.Random(seed).randrange(1, 0x80000000)))


def flip_body(store: Path, record: int, seed: int = 0) -> Spoilt:
    """One bit of the body. Raises ValueError if the record has none."""
    place = _places(store)[record]
    rng = random.Random(seed)
    return _flip(place.path, place.at + place.body[0] + rng.randrange(place.body[1]), rng)


def flip_header(store: Path, record: int, seed: int = 0, field: str | None = None) -> Spoilt:
    """One bit of a header field that a reader checks (BODYCRC only counts where there is a body)."""
    place = _places(store)[record]
    rng = random.Random(seed)
    fields = [name for name in SEEN_FIELDS if name != "BODYCRC" or place.body[1]]
    start, length = SEEN_FIELDS[field or rng.choice(fields)]
    return _flip(place.path, place.at + start + rng.randrange(length), rng)


def size_too_small(store: Path, record: int, seed: int = 0) -> Spoilt:  # noqa: ARG001
    return _size(store, record, lambda size: size - 4)


def size_negative(store: Path, record: int, seed: int = 0) -> Spoilt:
    return _size(store, record, lambda _: -random.Random(seed).randrange(1, HUGE))


def size_huge(store: Path, record: int, seed: int = 0) -> Spoilt:  # noqa: ARG001
    return _size(store, record, lambda _: HUGE)


def size_zero(store: Path, record: int, seed: int = 0) -> Spoilt:  # noqa: ARG001
    return _size(store, record, lambda _: 0)


def zeros(store: Path, record: int, seed: int = 0, records: int = 1) -> Spoilt:  # noqa: ARG001
    """`records` whole records in one segment become zeros."""
    places = _places(store)
    run = places[record : record + records] if record >= 0 else places[record:][:records]
    return _overwrite(run[0].path, run[0].at, bytes(sum(p.size for p in run if p.path == run[0].path)))


def garbage(store: Path, record: int, seed: int = 0) -> Spoilt:
    """The whole record becomes random bytes."""
    place = _places(store)[record]
    return _overwrite(place.path, place.at, random.Random(seed).randbytes(place.size))


def torn_record(store: Path, record: int = -1, seed: int = 0) -> Spoilt:
    """All from some byte before the record's topic to its segment's end becomes zeros, as after a crash.

    A tear further on, in the properties, is not seen: their length stands, and nothing sums them up.
    """
    place = _places(store)[record]
    kept = place.at + random.Random(seed).randrange(8, sum(place.body) + 1)
    return _overwrite(place.path, kept, bytes(place.path.stat().st_size - kept))


def shorten_last(store: Path, record: int = -1, seed: int = 0) -> Spoilt:
    """The last segment's file ends inside `record`, which must lie in it."""
    place = _places(store)[record]
    path = segment_paths(store)[-1]
    if place.path != path:
        raise ValueError("that record is not in the last segment")
    whole = path.stat().st_size
    # At least the first byte of its magic code: the bytes before it may all be zeros, which are no record's.
    kept = place.at + random.Random(seed).randrange(5, place.size)
    with path.open("r+b") as file:
        file.truncate(kept)
    return Spoilt(path.name, int(path.name) + kept, whole - kept)


def remove_segment(store: Path, segment: int, seed: int = 0) -> Spoilt:  # noqa: ARG001
    path = segment_paths(store)[segment]
    size = path.stat().st_size
    path.unlink()
    return Spoilt(path.name, int(path.name), size)


def add_zero_segment(store: Path, segment: int = -1, seed: int = 0) -> Spoilt:  # noqa: ARG001
    """One more segment of zeros at the end, as the broker allocates it ahead."""
    last = segment_paths(store)[segment]
    size = last.stat().st_size
    path = last.with_name(f"{int(last.name) + size:020d}")
    path.write_bytes(bytes(size))
    return Spoilt(path.name, int(path.name), size)


# What hits one record anywhere in the log, by name.
RECORD_KINDS: dict[str, Callable[[Path, int, int], Spoilt]] = {
    "bad-magic": bad_magic,
    "flip-body": flip_body,
    "flip-header": flip_header,
    "size-too-small": size_too_small,
    "size-negative": size_negative,
    "size-huge": size_huge,
    "size-zero": size_zero,
    "zeros": zeros,
    "garbage": garbage,
}


def spoil_any(store: Path, record: int, rng: random.Random) -> Spoilt:
    """One of RECORD_KINDS that the record can have."""
    can = has_body(store, record)
    kinds = [kind for kind in RECORD_KINDS if kind != "flip-body" or can]
    return RECORD_KINDS[rng.choice(kinds)](store, record, rng.randrange(2**31))
