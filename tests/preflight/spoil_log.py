"""Ways to spoil a commitlog."""

from __future__ import annotations

import struct
from pathlib import Path

from tests.preflight.spoiling import Spoiler, filled


def _place(spoiler: Spoiler, *, last: bool = False) -> tuple[Path, int, int] | None:
    """A segment and a record in it: (segment, where the record begins, its size). The last records are likelier."""
    segments = [path for path in spoiler.store.segments() if filled(path)]
    if not segments:
        return None
    segment = segments[-1] if last or spoiler.rng.random() < 0.4 else spoiler.rng.choice(segments)
    data, at, places = segment.read_bytes(), 0, []
    while at + 8 <= len(data):
        size, magic = struct.unpack_from(">iI", data, at)
        if magic not in (0xDAA320A7, 0xDAA320AB) or size < 50:
            break
        places.append((segment, at, size))
        at += size
    return spoiler.rng.choice(places[-3:] if last or spoiler.rng.random() < 0.3 else places) if places else None


def torn_tail(spoiler: Spoiler) -> str | None:
    """The last record never reached the disk as a whole."""
    place = _place(spoiler, last=True)
    if not place:
        return None
    segment, at, size = place
    kept = spoiler.rng.randrange(size)
    spoiler.overwrite(segment, at + kept, bytes(spoiler.store.sizes.segment))
    return f"{spoiler.told(segment)} torn at {at}+{kept}"


def flipped_bit(spoiler: Spoiler) -> str | None:
    """One bit of a record, anywhere in it."""
    place = _place(spoiler)
    if not place:
        return None
    segment, at, size = place
    where = at + (spoiler.rng.randrange(min(size, 92)) if spoiler.rng.random() < 0.5 else spoiler.rng.randrange(size))
    byte = segment.read_bytes()[where] ^ (1 << spoiler.rng.randrange(8))
    spoiler.overwrite(segment, where, bytes([byte]))
    return f"{spoiler.told(segment)} bit flipped at {at}+{where - at}"


def changed_field(spoiler: Spoiler) -> str | None:
    """The size, the magic, a place, a time or a queue offset of one record."""
    place = _place(spoiler)
    if not place:
        return None
    segment, at, size = place
    field, where, form = spoiler.rng.choice((
        ("size", 0, ">i"), ("size", 0, ">i"), ("magic", 4, ">i"), ("queue offset", 20, ">q"), ("place", 28, ">q"),
        ("store time", 56, ">q"), ("queue", 12, ">i"),
    ))  # fmt: skip
    old = struct.unpack_from(form, segment.read_bytes(), at + where)[0]
    new = spoiler.rng.choice((0, -1, old + 1, old - 1, old + 40, 5, 2**31 - 1, -(2**31), old + 4000))
    data = struct.pack(form, (new + 2**31) % 2**32 - 2**31 if form == ">i" else new)
    spoiler.overwrite(segment, at + where, data)
    return f"{spoiler.told(segment)} {field} of the record at {at} (of {size} bytes): {new} for {old}"


def zeroed(spoiler: Spoiler) -> str | None:
    """A stretch of zeros."""
    return _stretch(spoiler, "zeros", bytes)


def garbage(spoiler: Spoiler) -> str | None:
    """A stretch of noise."""
    return _stretch(spoiler, "noise", spoiler.rng.randbytes)


def _stretch(spoiler: Spoiler, name: str, make: object) -> str | None:
    place = _place(spoiler)
    if not place:
        return None
    segment, at, _ = place
    start = at if spoiler.rng.random() < 0.5 else at + spoiler.rng.randrange(200)
    length = spoiler.rng.choice((4, 8, 300, 4096, spoiler.store.sizes.segment))
    assert callable(make)
    spoiler.overwrite(segment, start, make(length))
    return f"{spoiler.told(segment)} {length} bytes of {name} at {start}"


def stale_tail(spoiler: Spoiler) -> str | None:
    """Old records behind the log's end."""
    segments = [path for path in spoiler.store.segments() if filled(path)]
    if not segments:
        return None
    last = segments[-1]
    end = filled(last)
    data = spoiler.rng.choice(segments).read_bytes()
    start = spoiler.rng.randrange(len(data))
    gap = spoiler.rng.choice((0, 0, 1, 8, 100))
    spoiler.overwrite(last, min(len(data), end + gap), data[start : start + spoiler.rng.choice((500, 5000, len(data)))])
    return f"{spoiler.told(last)} old bytes behind {end}+{gap}"


def broken_filler(spoiler: Spoiler) -> str | None:
    """A segment that does not end in its filler."""
    segments = spoiler.store.segments()[:-1]
    if not segments:
        return None
    segment = spoiler.rng.choice(segments)
    place = segment.read_bytes().rfind(b"\xcb\xd4\x31\x94") - 4
    if place < 0:
        return None
    spoiler.overwrite(segment, place, spoiler.rng.choice((bytes(8), b"\0\0\0\x09", spoiler.rng.randbytes(8))))
    return f"{spoiler.told(segment)} filler at {place} spoilt"


def lost_segment(spoiler: Spoiler) -> str | None:
    """The first, the last or another segment is gone."""
    segments = spoiler.store.segments()
    if not segments:
        return None
    gone = spoiler.rng.choice((segments[0], segments[-1], spoiler.rng.choice(segments)))
    gone.unlink()
    return f"{spoiler.told(gone)} deleted"


def trimmed(spoiler: Spoiler) -> str | None:
    """Old segments have expired, and their units have not; or new ones are lost."""
    segments = spoiler.store.segments()
    if len(segments) < 2:
        return None
    count = spoiler.rng.randrange(1, len(segments))
    first = spoiler.rng.random() < 0.6
    for path in segments[:count] if first else segments[-count:]:
        path.unlink()
    return f"{count} {'first' if first else 'last'} segments deleted"


def no_segments(spoiler: Spoiler) -> str | None:
    """An empty log."""
    for path in spoiler.store.segments():
        path.unlink()
    return "all segments deleted"


def spare_segment(spoiler: Spoiler) -> str | None:
    """One or two segments of zeros at the end, as a broker makes them ahead."""
    segments = spoiler.store.segments()
    if not segments:
        return None
    size = spoiler.store.sizes.segment
    count = spoiler.rng.randrange(1, 3)
    for number in range(1, count + 1):
        (segments[-1].parent / f"{int(segments[-1].name) + number * size:020d}").write_bytes(bytes(size))
    return f"{count} segments of zeros added"


def zero_segment(spoiler: Spoiler) -> str | None:
    """A segment whose bytes are all lost."""
    segments = spoiler.store.segments()
    if not segments:
        return None
    path = spoiler.rng.choice((segments[-1], spoiler.rng.choice(segments)))
    path.write_bytes(bytes(path.stat().st_size))
    return f"{spoiler.told(path)} zeroed"


def wrong_size(spoiler: Spoiler) -> str | None:
    """A segment too short or too long."""
    segments = spoiler.store.segments()
    if not segments:
        return None
    path = spoiler.rng.choice((segments[-1], segments[-1], spoiler.rng.choice(segments)))
    data = path.read_bytes()
    size = spoiler.rng.choice((0, len(data) // 2, len(data) - 1, len(data) + 1))
    path.write_bytes(data[:size].ljust(size, b"\0"))
    return f"{spoiler.told(path)} of {size} bytes"


def wrong_name(spoiler: Spoiler) -> str | None:
    """A segment under another number, or another kind of name."""
    segments = spoiler.store.segments()
    if not segments:
        return None
    path = spoiler.rng.choice(segments)
    size = spoiler.store.sizes.segment
    name = spoiler.rng.choice((f"{int(path.name) + 50 * size:020d}", f"{int(path.name) + 7:020d}", f"{path.name}.bak", "notes"))
    path.rename(path.with_name(name))
    return f"{spoiler.told(path)} renamed {name}"


DAMAGED = (
    torn_tail, torn_tail, flipped_bit, flipped_bit, changed_field, changed_field, zeroed, garbage, stale_tail, broken_filler,
)  # fmt: skip
SEGMENTS = (lost_segment, trimmed, trimmed, spare_segment, spare_segment, zero_segment, wrong_size, wrong_name, no_segments)
