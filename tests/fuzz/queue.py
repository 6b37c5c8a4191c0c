"""ConsumeQueue files: any bytes, beside a plain reading unit by unit.

input: 2 bytes (which start, where to split into two files), then the units.
"""

from __future__ import annotations

import itertools
import random
import struct

from rocketmq_reindex.storage_format.errors import CODES, Finding, UnreadableError
from rocketmq_reindex.storage_format.queue import consume_queue
from rocketmq_reindex.storage_format.queue.consume_queue import BAD, EMPTY, HAS_UNIT, PRE_BLANK, QueueFile, read_queue_file
from tests.fuzz.guard import allow, guarded

MAX_LEN = 1024
HEAD = 2
STARTS = (0, 20, 4000, 6_000_000, 7, 2**63 - 2000, 2**63, -20)
DICTIONARY = [
    struct.pack(">qiq", 0, 2**31 - 1, 0), bytes(20), struct.pack(">qi", 2**63 - 1, 100), struct.pack(">i", -1),
]  # fmt: skip
_NAMES = ("queue-unit", "queue-hole", "queue-pre-blank", "queue-backwards", "queue-overlap")

consume_queue._decode, consume_queue._check = guarded(consume_queue._decode), guarded(consume_queue._check)


def check(data: bytes) -> None:
    if len(data) < HEAD:
        return
    start, raw = STARTS[data[0] % len(STARTS)], data[HEAD:]
    size = (None, len(raw), 40)[data[0] // len(STARTS) % 3]
    allow(2_000 + 100 * len(raw))
    try:
        file = read_queue_file(raw, start, size)
    except UnreadableError:
        assert start < 0 or start + len(raw) + 20 > 2**63 - 1
        return
    plain_check(file, raw, start, size)
    split = len(raw) * data[1] // 256 // 20 * 20
    parts = [read_queue_file(raw[:split], start), read_queue_file(raw[split:], start + split)]
    for part, bytes_ in zip(parts, (raw[:split], raw[split:]), strict=True):
        plain_check(part, bytes_, part.start, None)


def plain_check(file: QueueFile, raw: bytes, start: int, size: int | None) -> None:
    units = list(struct.iter_unpack(">qiq", raw[: len(raw) // 20 * 20]))
    assert list(zip(file.phy_offset.tolist(), file.size.tolist(), file.tags_code.tolist(), strict=True)) == units
    kinds = [kind_of(*unit) for unit in units]
    assert file.kind.tolist() == kinds
    used = max((slot + 1 for slot, kind in enumerate(kinds) if kind != EMPTY), default=0)
    gone = [slot for slot, (place, length, _) in enumerate(units) if place < 0 or length <= 0]
    assert (file.used, file.present) == (used, min([*gone, used]))
    real = [slot for slot in range(used) if kinds[slot] == HAS_UNIT]
    assert (file.units, file.first_unit, file.last_unit) == (len(real), real[0] if real else -1, real[-1] if real else -1)
    lead = next((slot for slot in range(used) if kinds[slot] != PRE_BLANK), used)
    assert file.pre_blank == lead
    wanted: dict[str, list[int]] = {name: [] for name in _NAMES}
    wanted["queue-unit"] = [slot for slot in range(used) if kinds[slot] == BAD]
    wanted["queue-hole"] = [slot for slot in range(used) if kinds[slot] == EMPTY]
    wanted["queue-pre-blank"] = [slot for slot in range(lead, used) if kinds[slot] == PRE_BLANK]
    repeats = 0
    for one, two in itertools.pairwise(real):
        (place, length, _), (next_place, _, _) = units[one], units[two]
        repeats += units[one] == units[two]
        if next_place < place:
            wanted["queue-backwards"].append(two)
        elif next_place < place + length and units[one] != units[two]:
            wanted["queue-overlap"].append(two)
    assert file.repeats == repeats
    bad = sorted(slot for slots in wanted.values() for slot in slots)
    assert [slot for slot, bits in enumerate(file.fault.tolist()) if bits] == bad
    assert file.first_bad == (start // 20 + bad[0] if bad else -1)
    expected = [Finding(name, start // 20 + slots[0], len(slots)) for name, slots in wanted.items() if slots]
    name_bad = start % 20 != 0 or (size and start % size != 0)
    size_bad = len(raw) % 20 != 0 or (size and size != len(raw))
    others = [code for code, wrong in (("queue-name", name_bad), ("queue-size", size_bad)) if wrong]
    assert [finding.code for finding in file.findings[: len(others)]] == others
    assert file.findings[len(others) :] == expected
    assert all(finding.code in CODES for finding in file.findings)


def kind_of(place: int, length: int, tags_code: int) -> int:
    if (place, length, tags_code) == (0, 0, 0):
        return EMPTY
    if (place, length, tags_code) == (0, 2**31 - 1, 0):
        return PRE_BLANK
    return HAS_UNIT if place >= 0 and length > 0 and place + length < 2**63 else BAD


def seeds(rng: random.Random) -> list[bytes]:
    found = []
    for _ in range(20):
        place, units = rng.randrange(3) * 100, []
        for _ in range(rng.randrange(12)):
            size = rng.randrange(91, 300)
            units.append((place, size, rng.randrange(-9, 9)))
            place += size * rng.choice((0, 1, 1, 1, 2))
        blank = [(0, 2**31 - 1, 0)] * rng.choice((0, 0, 3))
        raw = b"".join(struct.pack(">qiq", *unit) for unit in blank + units) + bytes(20 * rng.randrange(4))
        found.append(bytes((rng.randrange(24), rng.randrange(256))) + raw)
    return found
