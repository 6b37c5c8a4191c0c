"""IndexFiles: any bytes, checked and looked into, beside ``plain_index``.

input: 3 bytes (slots, items, what to look up), then the file.
"""

from __future__ import annotations

import random
import struct
from itertools import islice

from rocketmq_reindex.storage_format.checks import index as index_check
from rocketmq_reindex.storage_format.checks.index import ITEM_FAULTS, LINK_FAULTS, SLOT_FAULTS, check_index, slot_lengths
from rocketmq_reindex.storage_format.errors import CODES, Finding, UnreadableError
from rocketmq_reindex.storage_format.index import layout as index_header
from rocketmq_reindex.storage_format.index.file import guess_sizes, open_index
from tests.fuzz.guard import allow, guarded
from tests.fuzz.plain_index import PlainIndex
from tests.reference.index_file import IndexFile

MAX_LEN = 1024
HEAD = 3
KEYS = ("T#a", "T#b", "T#Aa", "T#BB", "T#C#", "T#d", "T#e")
DICTIONARY = [struct.pack(">i", n) for n in (0, 1, 2, 3, 5, 8, -1, 2**31 - 1, -(2**31), 214748365)]

for _name in ("_check_items", "_check_slots", "_find_circles", "_find_lost"):
    setattr(index_check, _name, guarded(getattr(index_check, _name)))


def check(data: bytes) -> None:
    if len(data) < HEAD:
        return
    slots, items, chosen = data[0] % 24, data[1] % 48, data[2]
    raw = data[HEAD:]
    allow(4_000 + 200 * (len(raw) + 4 * slots + 20 * items))
    guessed = guess_sizes(raw)
    assert guessed is None or 40 + 4 * guessed[0] + 20 * guessed[1] == len(raw)
    try:
        view = open_index(raw, slots, items)
    except UnreadableError:
        assert len(raw) < 40 or slots < 1 or items < 1
        return
    plain = PlainIndex(raw, slots, items)
    plain.judge()
    found = check_index(view)
    assert found.items == plain.used
    assert (found.item_fault[0], len(found.item_fault)) == (0, plain.used + 1)
    assert named(found.item_fault.tolist(), ITEM_FAULTS) == plain.item_faults
    assert named(found.slot_fault.tolist(), SLOT_FAULTS) == {slot: {name} for slot, name in plain.slot_faults.items()}
    assert found.findings == [*view.findings, *header_findings(plain, len(raw)), *fault_findings(plain)]
    assert all(finding.code in CODES for finding in found.findings)
    lengths = [0] * slots
    for number in range(1, plain.used + 1):
        if (slot := plain.slot(number)) is not None:
            lengths[slot] += 1
    assert slot_lengths(view, plain.used).tolist() == lengths
    look_up(raw, view.slots, view.items, plain, chosen)


def named(bits: list[int], names: tuple[str, ...]) -> dict[int, set[str]]:
    return {k: {name for n, name in enumerate(names) if value >> n & 1} for k, value in enumerate(bits) if value}


def header_findings(plain: PlainIndex, length: int) -> list[Finding]:
    begin, end, begin_place, end_place, slot_count, count = plain.header
    used, found = plain.used, []
    if length != len(plain.content):
        pass  # told by open_index
    zero = plain.content[40 + 4 * plain.slots :][:20]
    if any(zero):
        found.append(Finding("index-item-zero", 40 + 4 * plain.slots + next(k for k in range(20) if zero[k]), 1))
    if plain.written > used:
        found.append(Finding("index-item-stray", used + 1, plain.written - used))
    if not used and (begin_place != end_place or end_place < 0):
        found.append(Finding("index-empty-offset", end_place, 1))
    if not used and (begin != end or end < 0):
        found.append(Finding("index-empty-time", end, 1))
    if count not in ((used + 1, plain.places) if plain.written else (0, 1, plain.places)):
        found.append(Finding("index-count", count, 1, used + 1))
    slots_used = sum(head != 0 for head in plain.heads)
    if slot_count != slots_used:
        found.append(Finding("index-slot-count", slot_count, 1, slots_used))
    if used:
        if begin_place != plain.items[1].place:
            found.append(Finding("index-begin-offset", begin_place, 1, plain.items[1].place))
        if end_place != plain.items[used].place:
            found.append(Finding("index-end-offset", end_place, 1, plain.items[used].place))
        # What putKey makes of the last item, put once more.
        put = IndexFile(0, 1, 3, begin_timestamp=begin)
        put.put("T#a", 0, end)
        (seconds,) = struct.unpack_from(">i", put.items[0], 12)
        if (begin != end) if used == 1 else (seconds != plain.items[used].seconds):
            found.append(Finding("index-end-time", end, 1))
    return found


def fault_findings(plain: PlainIndex) -> list[Finding]:
    found = []
    for name in SLOT_FAULTS:
        at = [slot for slot, fault in sorted(plain.slot_faults.items()) if fault == name]
        found += [Finding(name, at[0], len(at), plain.newest[at[0]])] if at else []
    for name in ITEM_FAULTS:
        at = [number for number, faults in sorted(plain.item_faults.items()) if name in faults]
        found += [Finding(name, at[0], len(at), plain.links[at[0]] if name in LINK_FAULTS else None)] if at else []
    return found


def look_up(raw: bytes, slots: int, items: int, plain: PlainIndex, chosen: int) -> None:
    """The physical offsets that the broker would give for every hash in the file, and an end where it has none."""
    header = index_header.LookupHeader(max(open_index(raw, slots, items).header.index_count, 1), slots, items)
    most = (1, 2, 64, 10**9)[chosen % 4]
    for key_hash in {item.key_hash for item in plain.items if item.key_hash >= 0} | set(range(min(slots, 4))):
        reads: list[int] = []

        def read(at: int, size: int, reads: list[int] = reads) -> bytes:
            reads.append(at)
            return raw[at : at + size]

        hits = index_header.all_hits(read, header, key_hash)
        given = list(islice(hits, most))
        expected, ends = plain.select(key_hash)
        if ends:
            assert given == expected[:most]
            assert hits.end != index_header.CIRCULAR
        else:
            # The broker's goes round for ever: what it would give comes first, until ``most`` of them are there.
            assert given[: len(expected)] == expected[:most]
            assert hits.end == (index_header.CIRCULAR if len(given) < most else "")
        # A slot, then items.
        assert len(reads) <= 1 + 2 * items + 2


def seeds(rng: random.Random) -> list[bytes]:
    found = []
    for _ in range(30):
        slots, items = rng.randrange(1, 8), rng.randrange(2, 20)
        file = IndexFile(0, slots, items)
        place, time = rng.randrange(1000), 1_700_000_000_000
        for _ in range(rng.choice((0, 1, 3, items - 1, items - 1))):
            if not file.full:
                file.put(rng.choice(KEYS), place, time)
                place += rng.choice((0, 100))
                time += rng.choice((0, 999, 5000, -2000))
        if rng.random() < 0.3:
            file.seal()
        content = bytearray(file.to_bytes(rng.choice(("5.3", "4.9"))))
        if rng.random() < 0.3:  # a link or a slot to anywhere
            at = rng.choice((40 + 4 * rng.randrange(slots), 40 + 4 * slots + 20 * rng.randrange(items) + 16))
            content[at : at + 4] = struct.pack(">i", rng.randrange(-1, items + 1))
        found.append(bytes((slots, items, rng.randrange(12))) + content)
    return found
