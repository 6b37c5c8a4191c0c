"""IndexFiles read back: RocketMQ's own, those that the build writes, and each way to spoil one by its name."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rocketmq_reindex.storage_format.checks.index import check_index, slot_lengths
from rocketmq_reindex.storage_format.errors import UnreadableError
from rocketmq_reindex.storage_format.index.file import guess_sizes, open_index
from rocketmq_reindex.storage_format.index.layout import (
    BAD_LINK,
    BAD_SLOT,
    CIRCULAR,
    FOUND_ALL,
    OUTSIDE,
    Hits,
    IndexHeader,
    LookupHeader,
    all_hits,
)
from tests.golden.stores import NAMES, GoldenStore, index_in_order
from tests.reference.index_file import IndexFile, key_hash
from tests.tools.local_engine import local_build
from tests.tools.scans import reference_walk
from tests.unit.storage_format.index import index_lookup

SLOTS, ITEMS = 5, 12
KEYS = ("T#a", "T#b", "T#c", "T#a", "T#Aa", "T#BB", "T#a")
TIME = 1_700_000_000_000


def small(keys: tuple[str, ...] = KEYS, version: str = "5.3", sealed: bool = False) -> bytearray:
    """Item n at place 100 n, a second after the one before."""
    file = IndexFile(0, SLOTS, ITEMS)
    for number, key in enumerate(keys, 1):
        file.put(key, 100 * number, TIME + 1000 * number)
    if sealed:
        file.seal()
    return bytearray(file.to_bytes(version))


def item_at(number: int, part: int = 0) -> int:
    """The byte of an item; its parts lie at 0 (hash), 4 (offset), 12 (timeDiff), 16 (link)."""
    return 40 + 4 * SLOTS + 20 * number + part


def put(content: bytearray, at: int, value: int) -> None:
    struct.pack_into(">i", content, at, value)


def codes(content: bytes | bytearray) -> dict[str, tuple[int, int]]:
    found = check_index(open_index(bytes(content), SLOTS, ITEMS)).findings
    return {finding.code: (finding.at, finding.count) for finding in found}


@pytest.mark.parametrize("name", NAMES)
def test_the_brokers_own_files(name: str, golden_store: Callable[[str], GoldenStore]) -> None:
    """Nothing is wrong with them, nobody needs to know their sizes, and every key leads to every record that has it."""
    store = golden_store(name)
    slots, items = store.sizes()["hash_slots"], store.sizes()["index_items"]
    contents = index_in_order(store.rebuilt())
    views = [open_index(content, slots, items) for content in contents]
    for view in views:
        checked = check_index(view)
        assert checked.findings == []
        assert checked.items == max(view.header.index_count, 1) - 1
        assert int(slot_lengths(view, checked.items).sum()) == checked.items
        if checked.items:
            assert guess_sizes(view.data) == (slots, items)
    (segment,) = {path.stat().st_size for path in (store.path / "commitlog").iterdir()}
    records = reference_walk(store.path / "commitlog", segment, broker_version=store.broker_version).records
    wanted: dict[str, list[int]] = {}
    for record in records:
        for text in record.index_keys():
            wanted.setdefault(text, []).insert(0, record.offset)
    assert len(wanted) > 500
    hashes: dict[int, list[int]] = {}
    for text, places in wanted.items():
        hashes.setdefault(key_hash(text), []).extend(places)
    for text in random.Random(1).sample(sorted(wanted), 300):
        found: list[int] = []
        for view, content in zip(reversed(views), reversed(contents), strict=True):
            hits = all_hits(reader(content), lookup_header(view.header, slots, items), key_hash(text))
            found += hits
            assert hits.end == FOUND_ALL
        assert found == sorted(hashes[key_hash(text)], reverse=True)


def test_a_sealed_file_of_ours(golden_store: Callable[[str], GoldenStore], tmp_path: Path) -> None:
    store = golden_store("basic-5.3")
    summary = local_build(store.path, tmp_path / "out", None, **store.sizes())
    assert summary.exit == 0
    paths = sorted((tmp_path / "out" / "index").iterdir())
    slots, items = store.sizes()["hash_slots"], store.sizes()["index_items"]
    counts = []
    for path in paths:
        view = open_index(path.read_bytes(), slots, items)
        checked = check_index(view)
        assert checked.findings == []
        assert view.sealed
        assert guess_sizes(view.data) == (slots, items)
        counts.append(checked.items)
    assert sum(counts) == summary.items
    assert counts[-1] < items - 1


def reader(content: bytes | bytearray) -> Callable[[int, int], bytes]:
    return lambda at, length: bytes(content[at : at + length])


def test_columns() -> None:
    view = open_index(bytes(small()), SLOTS, ITEMS)
    items = view.read(2, 3)
    assert items.phy_offset.tolist() == [200, 300, 400]
    assert items.key_hash.tolist() == [key_hash(text) for text in KEYS[1:4]]
    assert view.times(items.time_diff).tolist() == [TIME + 2000, TIME + 3000, TIME + 4000]
    assert [column.dtype for column in (items.phy_offset, items.key_hash, items.prev)] == [np.int64, np.int32, np.int32]
    assert view.heads().tolist() == [head for (head,) in struct.iter_unpack(">i", small()[40 : 40 + 4 * SLOTS])]
    assert view.heads(1, 2).tolist() == view.heads().tolist()[1:3]
    assert len(view.read(ITEMS, 5).phy_offset) == len(view.read(3, 0).phy_offset) == 0
    assert view.last_written() == len(KEYS)


@pytest.mark.parametrize(
    ("keys", "version"), [((), "5.3"), ((), "4.9"), (("T#a",), "5.3"), (KEYS, "5.3"), (tuple("abcdefghijk"), "5.3")]
)
@pytest.mark.parametrize("sealed", [False, True])
def test_sound_files(keys: tuple[str, ...], version: str, sealed: bool) -> None:
    assert codes(small(keys, version, sealed)) == {}


def last_of(key: str) -> int:
    """The newest item in the slot of a key."""
    slot = key_hash(key) % SLOTS
    return max(n for n, text in enumerate(KEYS, 1) if key_hash(text) % SLOTS == slot)


def test_header_findings() -> None:
    for at, code, value in ((16, "index-begin-offset", 101), (24, "index-end-offset", 701), (8, "index-end-time", TIME + 9999)):
        content = small()
        struct.pack_into(">q", content, at, value)
        assert codes(content) == {code: (value, 1)}
    content = small()
    put(content, 32, 77)
    assert codes(content) == {"index-slot-count": (77, 1)}
    content = small()
    put(content, 36, 10)
    assert codes(content) == {"index-count": (10, 1)}
    content = small()
    content[item_at(0, 3)] = 1
    assert codes(content) == {"index-item-zero": (item_at(0, 3), 1)}
    content = small()
    put(content, item_at(10), 5)  # as after a count that was not written
    assert codes(content) == {"index-item-stray": (8, 3)}
    content = small()
    put(content, 36, 6)
    found = codes(content)
    assert found["index-item-stray"] == (6, 2)
    assert "index-slot-range" in found


def test_the_header_of_a_file_without_items() -> None:
    """A broker that starts on it indexes nothing below its endPhyOffset, so none at all here."""
    for at, code in ((0, "index-empty-time"), (8, "index-empty-time"), (16, "index-empty-offset"), (24, "index-empty-offset")):
        content = small(())
        struct.pack_into(">q", content, at, 1 << 56)
        end = 1 << 56 if at in (8, 24) else 0
        assert codes(content) == {code: (end, 1)}
    content = small(())
    struct.pack_into(">qqqq", content, 0, TIME, TIME, 700, 700)  # as behind a full file
    assert codes(content) == {}
    struct.pack_into(">qqqq", content, 0, TIME, TIME, -7, -7)
    assert codes(content) == {"index-empty-offset": (-7, 1)}


def test_what_should_stand_there() -> None:
    content = small()
    put(content, 32, 77)
    put(content, 36, 10)
    chain = [n for n in range(7, 0, -1) if key_hash(KEYS[n - 1]) % SLOTS == key_hash("T#a") % SLOTS]
    put(content, item_at(chain[0], 16), 0)
    put(content, 40 + 4 * (key_hash("T#a") % SLOTS), 0)
    put(content, 36, 10)
    found = check_index(open_index(bytes(content), SLOTS, ITEMS)).findings
    wanted = {finding.code: finding.expected for finding in found if finding.expected is not None}
    slots_in_use = len({key_hash(key) % SLOTS for key in KEYS}) - 1
    assert wanted == {
        "index-count": 8, "index-slot-count": slots_in_use, "index-link-gap": chain[1], "index-slot-old": chain[0],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("number", "part", "value", "code"),
    [
        (3, 0, -5, "index-item-hash"), (3, 12, -1, "index-item-time"), (4, 16, 4, "index-link-range"),
        (4, 16, 9, "index-link-range"), (4, 16, -1, "index-link-range"),
    ],
)  # fmt: skip
def test_spoilt_items(number: int, part: int, value: int, code: str) -> None:
    content = small()
    put(content, item_at(number, part), value)
    assert codes(content)[code] == (number, 1)


def test_a_place_below_the_one_before() -> None:
    content = small()
    struct.pack_into(">q", content, item_at(4, 4), 299)
    assert codes(content) == {"index-item-place": (4, 1)}


def test_chains() -> None:
    """T#a has items 1, 4 and 7."""
    assert {n for n in range(1, 8) if KEYS[n - 1] == "T#a"} == {1, 4, 7}
    content = small()
    chain = [n for n in range(7, 0, -1) if key_hash(KEYS[n - 1]) % SLOTS == key_hash("T#a") % SLOTS]
    assert len(chain) >= 3
    put(content, item_at(chain[0], 16), chain[2])
    assert codes(content) == {"index-link-gap": (chain[0], 1), "index-item-lost": (chain[1], 1)}
    put(content, item_at(chain[0], 16), 0)
    assert codes(content) == {"index-link-gap": (chain[0], 1), "index-item-lost": (chain[-1], len(chain) - 1)}
    stranger = next(n for n in range(6, 0, -1) if n not in chain)
    put(content, item_at(chain[0], 16), stranger)
    assert codes(content) == {"index-link-foreign": (chain[0], 1), "index-item-lost": (chain[-1], len(chain) - 1)}
    content = small()
    put(content, item_at(chain[-1], 16), chain[0])
    assert codes(content) == {"index-link-range": (chain[-1], 1), "index-link-circular": (chain[-1], len(chain))}


def test_slots() -> None:
    slot = key_hash("T#a") % SLOTS
    chain = [n for n in range(7, 0, -1) if key_hash(KEYS[n - 1]) % SLOTS == slot]
    content = small()
    put(content, 40 + 4 * slot, 0)
    assert codes(content) == {
        "index-slot-old": (slot, 1), "index-slot-count": (len({key_hash(k) % SLOTS for k in KEYS}), 1),
        "index-item-lost": (chain[-1], len(chain)),
    }  # fmt: skip
    put(content, 40 + 4 * slot, chain[1])
    assert codes(content) == {"index-slot-old": (slot, 1), "index-item-lost": (chain[0], 1)}
    put(content, 40 + 4 * slot, 8)
    assert codes(content) == {"index-slot-range": (slot, 1), "index-item-lost": (chain[-1], len(chain))}
    stranger = next(n for n in range(7, 0, -1) if n not in chain)
    put(content, 40 + 4 * slot, stranger)
    assert codes(content) == {"index-slot-foreign": (slot, 1), "index-item-lost": (chain[-1], len(chain))}


def test_files_of_another_size() -> None:
    whole = small()
    used = item_at(8)
    assert codes(whole[:used]) == {"index-size": (used, 1)}  # the broker maps zeros behind it
    assert codes(whole + bytes(5)) == {"index-size": (len(whole) + 5, 1)}
    with pytest.raises(UnreadableError):
        open_index(bytes(39), SLOTS, ITEMS)
    for slots, items in ((0, 5), (5, 0), (-1, 5), (5_000_000, 200_000_000)):
        with pytest.raises(UnreadableError):
            open_index(bytes(whole), slots, items)


def lookup_header(header: IndexHeader, slots: int, items: int) -> LookupHeader:
    """As ``IndexHeader.load`` takes it: a count below 1 is 1."""
    return LookupHeader(max(header.index_count, 1), slots, items)


def hits_of(content: bytes | bytearray, key: str, read: Callable[[int, int], bytes] | None = None) -> Hits:
    header = IndexHeader.from_bytes(bytes(content[:40]))
    return all_hits(read or reader(content), lookup_header(header, SLOTS, ITEMS), key_hash(key))


def look(content: bytes | bytearray, key: str) -> tuple[list[int], str]:
    """The physical offsets that a lookup finds, and why it ended."""
    hits = hits_of(content, key)
    return list(hits), hits.end


def test_lookups() -> None:
    content = small()
    assert look(content, "T#a") == ([700, 400, 100], FOUND_ALL)
    assert look(content, "T#Aa") == look(content, "T#BB") == ([600, 500], FOUND_ALL)
    assert look(content, "T#none") == ([], FOUND_ALL)


def test_no_more_is_read_than_is_asked_for() -> None:
    content, reads = small(), list[int]()

    def read(at: int, size: int) -> bytes:
        reads.append(at)
        return bytes(content[at : at + size])

    hits = hits_of(content, "T#a", read)
    assert reads == []
    assert next(iter(hits)) == 700
    assert (reads, hits.end) == ([40 + 4 * (key_hash("T#a") % SLOTS), item_at(7)], "")


def test_lookups_in_broken_chains() -> None:
    slot = 40 + 4 * (key_hash("T#a") % SLOTS)
    for value, end in ((-1, BAD_SLOT), (9, BAD_SLOT), (0, FOUND_ALL)):
        content = small()
        put(content, slot, value)
        assert look(content, "T#a") == ([], end)
    content = small()
    put(content, item_at(7, 16), 7)
    assert look(content, "T#a") == ([700], BAD_LINK)
    content = small()
    put(content, item_at(7, 12), -1)  # the broker ends there
    assert look(content, "T#a") == ([700, 400, 100], FOUND_ALL)
    content = small()
    put(content, 36, 2**31 - 1)
    put(content, item_at(7, 16), ITEMS)
    assert look(content, "T#a") == ([700], OUTSIDE)
    content = small()
    put(content, item_at(1, 16), 7)
    phy_offsets, end = look(content, "T#a")
    assert (phy_offsets[:3], end) == ([700, 400, 100], CIRCULAR)
    assert len(phy_offsets) <= 2 * ITEMS


def test_a_place_that_wraps_in_a_java_int() -> None:
    """Item 214,748,365 lies four bytes further on than item -0.8 would: Java's int wraps, and the broker reads there."""
    content = small()
    put(content, 36, 2**31 - 1)
    number = 2**32 // 20 + 3  # 4 bytes before item 3
    put(content, 40 + 4 * (key_hash("T#a") % SLOTS), number)
    plain = index_lookup_of(content, number)
    assert look(content, "T#a")[0] == plain


def index_lookup_of(content: bytearray, number: int) -> list[int]:
    """What stands where Java would look for ``number``, and where its links lead."""
    found, wanted = [], key_hash("T#a")
    for _ in range(100):
        at = (item_at(number) + 2**31) % 2**32 - 2**31
        if not 0 <= at <= len(content) - 20:
            break
        hashed, place, _, prev = struct.unpack_from(">iqii", content, at)
        if hashed == wanted:
            found.append(place)
        if prev <= 0 or prev == number:
            break
        number = prev
    return found


def test_lookups_as_the_brokers(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        content = small(tuple(rng.choice(KEYS) for _ in range(rng.randrange(ITEMS))))
        begin = TIME + rng.randrange(-2000, 14_000)
        end = begin + rng.choice((0, 999, 5000, 10**6))
        for key in KEYS:
            # By ``small`` the time of an item follows from its physical offset.
            in_time = [offset for offset in look(content, key)[0] if begin <= TIME + 10 * offset <= end]
            for most in (1, 2, 64):
                assert index_lookup.select(bytes(content), SLOTS, key, most, begin, end) == in_time[:most]


def test_sizes_nobody_knows() -> None:
    assert guess_sizes(bytes(small())) == (SLOTS, ITEMS)
    assert guess_sizes(bytes(small(sealed=True))) == (SLOTS, ITEMS)
    assert guess_sizes(bytes(small(()))) is None
    for content in (b"", bytes(39), bytes(40), bytes(140), b"\x7f" * 160, b"\xff" * 160):
        assert guess_sizes(content) is None


def test_sizes_of_a_file_with_few_items() -> None:
    """A stretch of a table of slots that are mostly empty may look like the first items, where slot 0 is in use."""
    slots, items, count = 5000, 20_000, 1234
    for seed in (3, 9, 18, 34):
        rng = random.Random(seed)
        hashes = [rng.randrange(1 << 31) for _ in range(500)] + [0] * 9
        heads, table = [0] * slots, bytearray(20)
        for number in range(1, count):
            hashed = rng.choice(hashes)
            table += struct.pack(">iqii", hashed, number * 100, number // 50, heads[hashed % slots])
            heads[hashed % slots] = number
        header = struct.pack(">qqqqii", 1, 2, 0, count * 100, slots - heads.count(0), count)
        content = header + struct.pack(f">{slots}i", *heads) + bytes(table).ljust(20 * items, b"\0")
        assert guess_sizes(content) == (slots, items)
