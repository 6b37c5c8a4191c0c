"""Columns of text, properties and hosts say what Java and the reference say, value by value."""

from __future__ import annotations

import ipaddress
import struct

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from rocketmq_reindex.storage_format.layouts import java_text
from rocketmq_reindex.storage_format.record.text_columns import (
    Bytes,
    Int64s,
    TextColumn,
    read_bytes,
    read_hosts,
    read_maps,
    read_texts,
)
from tests.reference import java
from tests.reference.records import parse_properties
from tests.tools.strategies import JAVA_BYTES

NAMES = st.sampled_from([b"KEYS", b"k", b"k\xff", b"k\xfe", b"", b"\xc3\xa9"]) | JAVA_BYTES
SEPARATORS = st.sampled_from([b"\x01", b"", b"\x01\x01"])
ENDS = st.sampled_from([b"\x02", b"\x02\x02", b""])
PROPERTIES = st.lists(st.tuples(NAMES, SEPARATORS, JAVA_BYTES, ENDS), max_size=9).map(
    lambda pieces: b"".join(b"".join(piece) for piece in pieces)
)


def spans(texts: list[bytes]) -> tuple[Bytes, Int64s, Int64s]:
    """All texts in one array, with other bytes between them."""
    data, starts, ends = b"\xe2\x82", [], []
    for text in texts:
        starts.append(len(data))
        data += text
        ends.append(len(data))
        data += b"\x80\x80"
    return np.frombuffer(data, np.uint8), np.array(starts, np.int64), np.array(ends, np.int64)


def values(column: TextColumn) -> list[str]:
    data = column.data.tobytes()
    return [data[low:high].decode() for low, high in zip(column.offsets[:-1], column.offsets[1:], strict=True)]


@given(st.lists(JAVA_BYTES, max_size=6))
@example([b"\xff" * 40, b"", b"\xf0\x9f\x98\x80", "é".encode()])
def test_texts_are_decoded_as_by_java(texts: list[bytes]) -> None:
    data, starts, ends = spans(texts)
    assert values(read_texts(data, starts, ends)) == [java_text(text) for text in texts]
    column = read_bytes(data, starts, ends)
    assert column.data.tobytes() == b"".join(texts)
    assert column.offsets.tolist() == [sum(map(len, texts[:k])) for k in range(len(texts) + 1)]


def test_no_text() -> None:
    data, starts, ends = spans([b"one", b"two"])
    column = read_texts(data, np.array([-1, starts[1], -1]), np.array([-1, ends[1], 5]))
    assert column.valid.tolist() == [False, True, False]
    assert values(column) == ["", "two", ""]


@given(st.lists(PROPERTIES, max_size=4))
@example([b"a\x01b\x02a\x01c", b"", b"a\x01b\x01c\x02b\x01\x02c\x01d\x02"])
@example([b"\xff\x01one\x02\xfe\x01two\x02"])
def test_properties_are_the_references(texts: list[bytes]) -> None:
    data, starts, ends = spans(texts)
    column = read_maps(data, starts, ends)
    names, found = values(column.names), values(column.values)
    for k, text in enumerate(texts):
        low, high = int(column.offsets[k]), int(column.offsets[k + 1])
        expected = parse_properties(java.decode_utf8(text))
        told = {java.python_text(name): java.python_text(value) for name, value in expected.items()}
        assert dict(zip(names[low:high], found[low:high], strict=True)) == told
        assert high - low == len(told), "a name twice"


def test_very_many_properties() -> None:
    """The most that a record holds, all of one name, and all different."""
    same = b"n\x01v\x02" * 8191
    many = b"".join(b"%x\x01v\x02" % k for k in range(4000))[:32767]
    data, starts, ends = spans([same, many, same])
    column = read_maps(data, starts, ends)
    assert np.diff(column.offsets).tolist() == [1, len(parse_properties(many.decode())), 1]


GROUPS = st.lists(st.sampled_from([0, 0, 1, 0xAB, 0x100, 0xFFFF]), min_size=8, max_size=8)
ADDRESSES = st.one_of(
    st.ip_addresses(v=4), st.ip_addresses(v=6), GROUPS.map(lambda groups: ipaddress.IPv6Address(struct.pack(">8H", *groups)))
)


@given(st.lists(st.tuples(ADDRESSES, st.integers(-(2**31), 2**31 - 1)), max_size=6))
@example([(ipaddress.ip_address("::"), 0), (ipaddress.ip_address("1::"), 9), (ipaddress.ip_address("0:0:1::"), 10)])
@example([(ipaddress.ip_address("1:0:0:2:0:0:0:3"), 1), (ipaddress.ip_address("1:0:2:0:3:0:4:0"), 99999)])
def test_hosts(hosts: list[tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]]) -> None:
    data, starts, _ = spans([address.packed + struct.pack(">i", port) for address, port in hosts])
    is_v6 = np.array([address.version == 6 for address, _ in hosts], np.bool_)
    expected = []
    for address, port in hosts:
        # Some Pythons write addresses that hold an IPv4 one in another way.
        text = _plain(address) if isinstance(address, ipaddress.IPv6Address) else str(address)
        expected.append(f"[{text}]:{port}" if address.version == 6 else f"{text}:{port}")
    assert values(read_hosts(data, starts, is_v6)) == expected


def _plain(address: ipaddress.IPv6Address) -> str:
    """RFC 5952 without its mixed notation."""
    groups = [int.from_bytes(address.packed[k : k + 2], "big") for k in range(0, 16, 2)]
    runs = [(0, 0)] * 8
    for k in range(8):
        stop = k
        while stop < 8 and groups[stop] == 0:
            stop += 1
        runs[k] = (stop - k, -k)
    length, start = max(runs)
    words = [f"{group:x}" for group in groups]
    if length < 2:
        return ":".join(words)
    return ":".join(words[:-start]) + "::" + ":".join(words[-start + length :])


@pytest.mark.parametrize("count", [0, 1])
def test_columns_of_nothing(count: int) -> None:
    data, starts, ends = spans([b""] * count)
    assert values(read_texts(data, starts, ends)) == [""] * count
    assert read_maps(data, starts, ends).offsets.tolist() == [0] * (count + 1)
