"""``storage_format.queue.extended`` by itself: random units and registrations, and bytes that mean harm."""

from __future__ import annotations

import json
import random
import struct
from typing import Any

import numpy as np
import pytest

from rocketmq_reindex.storage_format.errors import UnreadableError
from rocketmq_reindex.storage_format.layouts import INT64_MAX
from rocketmq_reindex.storage_format.queue import extended
from rocketmq_reindex.storage_format.queue.extended import BloomFilter, ConsumerFilters, Registration, UnitPlaces

Unit = tuple[int, int, bytes]
"""tagsCode, store time, bit map"""


def image(units: list[Unit]) -> bytes:
    return b"".join(struct.pack(">hqqh", 20 + len(bits), tags, time, len(bits)) + bits for tags, time, bits in units)


def random_units(rng: random.Random, count: int, longest: int) -> list[Unit]:
    """Each with a size of its own."""
    return [
        (rng.randrange(-(1 << 63), 1 << 63), rng.randrange(1 << 62), rng.randbytes(rng.randrange(longest + 1)))
        for _ in range(count)
    ]


def as_units(file: extended.ExtFile, data: bytes) -> list[Unit]:
    raw = np.frombuffer(data, np.uint8)
    rows = range(len(file.at))
    return [(int(file.tags_code[row]), int(file.store_time[row]), file.bit_map(raw, row)) for row in rows]


def codes(file: extended.ExtFile) -> dict[str, tuple[int, int]]:
    return {finding.code: (finding.at, finding.count) for finding in file.findings}


# ----------------------------------------------------------------------------------------------------------------------- files


@pytest.mark.random
def test_what_is_written_is_read(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(30):
        units = random_units(rng, rng.randrange(40), rng.choice((0, 14, 3000)))
        data = image(units)
        ending = rng.choice((b"", b"\xff\xff", bytes(2)))
        data += ending + bytes(rng.randrange(50) if ending else 0)
        file = extended.read_ext_file(data, 0)
        assert as_units(file, data) == units
        assert (codes(file), file.used, file.is_full) == ({}, len(image(units)), ending == b"\xff\xff")
        # And each by its address.
        found = extended.units_at(np.frombuffer(data, np.uint8), file.at)
        assert found.there.all()
        assert [list(column) for column in found[1:]] == [list(file.tags_code), list(file.store_time), list(file.bit_map_size)]


@pytest.mark.random
def test_images_of_units_of_one_size(seed: int) -> None:
    rng = random.Random(seed)
    for length in (0, 1, 14, extended.BIT_MAP_MAX):
        units = [(tags, time, rng.randbytes(length)) for tags, time, _ in random_units(rng, 5, 0)]
        bits = np.frombuffer(b"".join(unit[2] for unit in units), np.uint8).reshape(5, length)
        made = extended.ext_image(np.array([u[0] for u in units]), np.array([u[1] for u in units]), bits)
        assert made.tobytes() == image(units)


@pytest.mark.random
def test_places_are_those_that_put_takes(seed: int) -> None:
    """As ``ConsumeQueueExt.put`` counts: a unit that leaves less than four bytes goes to the next file."""
    rng = random.Random(seed)
    for _ in range(20):
        size = rng.randrange(20, 300)
        file_size = rng.randrange(size + 4, 2000)
        places, at = UnitPlaces(file_size, size), 0
        expected = []
        for _ in range(100):
            if size > file_size - at % file_size - 4:
                at = (at // file_size + 1) * file_size
            expected.append(at)
            at += size
        assert places.offsets(np.arange(100)).tolist() == expected
        addresses = extended.address_of(np.array(expected))
        assert extended.is_address(addresses).all()
        assert extended.address_of(addresses).tolist() == expected


def test_what_is_an_address() -> None:
    low = -(1 << 31)
    codes_given = np.array([-(1 << 63), low - 2, low - 1, low, -1, 0, 1, (1 << 31) - 1, INT64_MAX])
    assert extended.is_address(codes_given).tolist() == [True, True, True, *[False] * 6]


@pytest.mark.parametrize(("data", "wrong"), [
    (b"", {}),
    (b"\0", {}),
    (b"\0\x13" + bytes(30), {"ext-unit": (0, 1)}),  # less than a unit takes
    (b"\xff\xfe" + bytes(30), {"ext-unit": (0, 1)}),
    (b"\x7f\xff" + bytes(30), {"ext-unit": (0, 1)}),  # more than there is
    (image([(1, 2, b"")]) + b"\0\x14" + bytes(17), {"ext-unit": (20, 1)}),  # a byte is missing
    (image([(1, 2, b"")]) + bytes(9) + b"\x01", {"ext-stray": (29, 1)}),
    (image([(1, 2, b"")]) + b"\xff\xff\0\x01", {"ext-stray": (23, 1)}),
    (image([(1, 2, b"a")])[:18] + b"\x7f\xff\0", {"ext-bit-map": (0, 1)}),
    (image([(1, 2, b"a")])[:18] + b"\x80\0\0", {"ext-bit-map": (0, 1)}),
])  # fmt: skip
def test_what_is_wrong_in_a_file(data: bytes, wrong: dict[str, Any]) -> None:
    file = extended.read_ext_file(data, 0)
    assert codes(file) == wrong
    for row in range(len(file.at)):
        assert file.bit_map(np.frombuffer(data, np.uint8), row) in (data[20:], b"")


def test_names() -> None:
    data = image([(1, 2, b"")])
    assert codes(extended.read_ext_file(data, 40)) == {}
    assert codes(extended.read_ext_file(data, 41)) == {"ext-name": (41, 1)}
    for start in (-1, INT64_MAX, INT64_MAX - 19):
        with pytest.raises(UnreadableError, match="is not the first logical byte"):
            extended.read_ext_file(data, start)


@pytest.mark.random
def test_any_bytes_are_read(seed: int) -> None:
    """Units never overlap nor reach behind the file, and no place is read that is not there."""
    rng = random.Random(seed)
    for _ in range(300):
        data = bytearray(image(random_units(rng, rng.randrange(5), 20)) + rng.randbytes(rng.randrange(30)))
        for _ in range(rng.randrange(4)):
            if data:
                data[rng.randrange(len(data))] = rng.choice((0, 1, 0x14, 0x7F, 0x80, 0xFF))
        raw = np.frombuffer(bytes(data), np.uint8)
        file = extended.read_ext_file(raw, 0)
        ends = file.at + file.size
        assert (file.at[1:] == ends[:-1]).all()
        assert (ends <= len(data)).all()
        assert file.used == (int(ends[-1]) if len(ends) else 0)
        at = np.array([-(1 << 62), -1, *range(len(data) + 2), 1 << 62])
        found = extended.units_at(raw, at)
        inside = (at >= 0) & (at + 20 <= len(data))
        assert not (found.there & ~inside).any()
        assert (at[found.there] + 20 + found.bit_map_size[found.there] <= len(data)).all()


# -------------------------------------------------------------------------------------------------------------- registrations


def registered(*groups: tuple[str, str, dict[str, Any]], bits: Any = 112) -> dict[str, Any]:
    """A consumerFilter.json: topic, group, and what its registration has beside a filter of ``bits`` bits."""
    topics: dict[str, Any] = {}
    for topic, group, more in groups:
        entry = {"expression": "a > 5", "bornTime": 7, "bloomFilterData": {"bitNum": bits, "bitPos": [1, 9, 111]}} | more
        topics.setdefault(topic, {"groupFilterData": {}})["groupFilterData"][group] = entry
    return {"filterDataByTopic": topics}


def filters_of(*groups: tuple[str, str, dict[str, Any]], bits: Any = 112, **more: Any) -> ConsumerFilters:
    return extended.read_filters(json.dumps(registered(*groups, bits=bits)), **more)


def test_registrations() -> None:
    found = filters_of(("T", "g", {}), ("T", "h", {"bornTime": -1}), ("U", "g", {"expression": "TRUE"}))
    assert (found.bits, found.words, found.notes, found.unasked) == (112, 1, (), 0)
    assert found.topics["T"] == (Registration("g", "a > 5", (1, 9, 111), 7), Registration("h", "a > 5", (1, 9, 111), 0))
    assert [found.bit_map_size(topic) for topic in ("T", "U", "V")] == [14, 14, 0]
    assert extended.read_filters("{}") == extended.read_filters('{"filterDataByTopic": null}') == ConsumerFilters()


def test_a_broker_with_another_filter_passes_over_all() -> None:
    assert filters_of(("T", "g", {}), bloom=BloomFilter(3, 112)).bits == 112
    other = filters_of(("T", "g", {}), bloom=BloomFilter(3, 120))
    assert (other.bits, other.topics, len(other.notes)) == (0, {}, 1)
    mixed = filters_of(("T", "g", {}), ("T", "h", {"bloomFilterData": {"bitNum": 8, "bitPos": [1]}}))
    assert (mixed.topics, mixed.notes[0][:41]) == ({}, "registrations of more than one bloom filt")


def test_words_that_5_added() -> None:
    groups = tuple(("T", f"g{k}", {"expression": text}) for k, text in enumerate(("a contains 'x'", "a = 'CONTAINS'", "b > 1")))
    assert filters_of(*groups).unasked == 0
    old = filters_of(*groups, old=True)
    assert (old.unasked, [group.born for group in old.topics["T"]]) == (1, [INT64_MAX, 7, 7])


@pytest.mark.parametrize("more", [
    {"expression": "a >"}, {"expression": None}, {"expression": 5}, {"expression": "(" * 5000 + "a" + ")" * 5000},
])  # fmt: skip
def test_an_expression_that_is_none_takes_all(more: dict[str, Any]) -> None:
    found = filters_of(("T", "g\x1b[31m", more))
    assert found.topics["T"][0].expression == "TRUE"
    assert found.notes[0].isprintable()


@pytest.mark.parametrize("more", [
    {"bloomFilterData": None}, {"bloomFilterData": {"bitNum": "112", "bitPos": [1]}}, {"bloomFilterData": {"bitNum": 112}},
    {"bloomFilterData": {"bitNum": 0, "bitPos": []}}, {"bloomFilterData": {"bitNum": -8, "bitPos": [1]}},
    {"bloomFilterData": {"bitNum": 113, "bitPos": [1]}}, {"bloomFilterData": {"bitNum": 1 << 40, "bitPos": [1]}},
    {"bloomFilterData": {"bitNum": 112, "bitPos": [112]}}, {"bloomFilterData": {"bitNum": 112, "bitPos": [-1]}},
    {"bloomFilterData": {"bitNum": 112, "bitPos": ["1"]}}, {"bloomFilterData": {"bitNum": 112, "bitPos": [1.5]}},
])  # fmt: skip
def test_a_filter_that_is_none(more: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"bloomFilterData|bitPos"):
        filters_of(("T", "g", more))


@pytest.mark.parametrize(("rate", "consumers"), [(0, 32), (100, 32), (-1, 1), (20, 0), (20, -5)])
def test_settings_of_no_broker(rate: int, consumers: int) -> None:
    with pytest.raises(ValueError, match="maxErrorRateOfBloomFilter"):
        BloomFilter.of(rate, consumers)


@pytest.mark.random
def test_bits_of_messages(seed: int) -> None:
    """Beside a loop over messages and groups; also for more groups than a number has bits."""
    rng = random.Random(seed)
    for groups in (1, 63, 64, 65, 130):
        bits = 8 * rng.randrange(1, 30)
        many = tuple(
            Registration(f"g{k}", "TRUE", tuple(rng.sample(range(bits), min(3, bits))), rng.randrange(100))
            for k in range(groups)
        )
        filters = ConsumerFilters(bits, {"T": many})
        taken = [[rng.random() < 0.3 for _ in range(groups)] for _ in range(40)]
        times = [rng.randrange(100) for _ in taken]
        words = np.zeros((filters.words, len(taken)), np.uint64)
        for message, takes in enumerate(taken):
            for group in np.flatnonzero(takes).tolist():
                words[group // 64, message] |= np.uint64(1 << group % 64)
        given = words.view(np.int64)
        assert filters.bit_maps("T", given).tolist() == [_bits(bits, many, takes) for takes in taken]
        trusted = filters.trusted("T", given, np.array(times))
        expected = [
            _bits(bits, many, [takes and time > group.born for takes, group in zip(row, many, strict=True)])
            for row, time in zip(taken, times, strict=True)
        ]
        assert filters.bit_maps("T", trusted).tolist() == expected
        assert filters.bit_maps("U", given).shape == (40, 0)


def _bits(bits: int, groups: tuple[Registration, ...], takes: list[bool]) -> list[int]:
    """``BloomFilter.hashTo``: bit i is bit i % 8 of byte i // 8."""
    found = bytearray(bits // 8)
    for group, taken in zip(groups, takes, strict=True):
        for bit in group.positions if taken else ():
            found[bit // 8] |= 1 << bit % 8
    return list(found)
