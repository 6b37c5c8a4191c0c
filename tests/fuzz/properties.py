"""Properties and text: where values lie, Java's decoding, hashes, numbers and names, beside plain readings of all of it."""

from __future__ import annotations

import random

import numpy as np

from rocketmq_reindex.storage_format import layouts, showing
from rocketmq_reindex.storage_format.kernels import java_text
from rocketmq_reindex.storage_format.record import frame, loop
from rocketmq_reindex.storage_format.record.frame import SPANS_SIZE
from rocketmq_reindex.storage_format.topics import path_component
from tests.fuzz.guard import allow, guard
from tests.reference import java
from tests.reference.names import is_plain_component
from tests.reference.records import parse_properties
from tests.tools.make_log import COLLIDING, DELAYS, MALFORMED, RAW, UNICODE

MAX_LEN = 512
BITS = ((16, -(2**15)), (32, -(2**31)), (64, -(2**63)))
DICTIONARY = [
    *(name + b"\x01" for name in frame.NAMES),
    *MALFORMED,
    b"\x01",
    b"\x02",
    b"\x00",
    b"-9223372036854775808",
    b"\xd9\xa3",
]


def check(data: bytes) -> None:
    allow(10_000 + 400 * len(data))
    # Between other bytes, which must not be read.
    around = np.frombuffer(b"KEYS\x01" + data + b"\x80\x80\x02TAGS\x01t\x02", np.uint8)
    array, start, end = guard(around[: 5 + len(data)]), 5, 5 + len(data)
    text = java.decode_utf8(data)
    spans = np.full(SPANS_SIZE, 77, np.int64)
    frame.scan_properties(array, start, end, guard(spans))
    expected = parse_properties(text)
    for number, name in enumerate(frame.NAMES):
        first, stop = spans[2 * number : 2 * number + 2].tolist()
        if first < 0:
            assert name.decode() not in expected
        else:
            assert start < first < stop <= end
            assert java.decode_utf8(around[first:stop].tobytes()) == expected[name.decode()]
    assert layouts.java_text(data) == java.python_text(text)
    code = java_text.java_hash(array, start, end, 0)
    assert java_text.signed32(code) == java.hash_code(text)
    assert java_text.index_hash(code) == (0 if java.hash_code(text) == -(2**31) else abs(java.hash_code(text)))
    for bits, low in BITS:
        number, value = java_text.parse_number(array, start, end, low, -low - 1)
        assert (value if number else None) == java.parse_number(text, bits)
    assert loop.is_blank(array, start, end) == java.is_blank(text)
    assert (path_component(java.python_text(text)) is not None) == is_plain_component(text)
    shown = showing.escape(java.python_text(text))
    assert shown.isascii()
    assert shown.isprintable() or not shown


def seeds(rng: random.Random) -> list[bytes]:
    words = [*(word.encode() for word in (*UNICODE, *COLLIDING, *DELAYS)), *MALFORMED, b"9223372036854775807", b"-2147483649"]
    found = [*RAW, *words]
    for _ in range(20):
        pieces = [rng.choice(frame.NAMES) + b"\x01" + rng.choice(words) + b"\x02" for _ in range(rng.randrange(1, 5))]
        found.append(b"".join(pieces))
    return found
