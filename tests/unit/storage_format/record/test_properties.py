"""Where the values of the properties lie in a record's bytes, against a plain split of the decoded text."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given, strategies as st

from rocketmq_reindex.storage_format.kernels.raw_bytes import BLOCK
from rocketmq_reindex.storage_format.record.frame import NAMES, SPANS_SIZE, scan_properties
from tests.reference import java
from tests.reference.records import parse_properties
from tests.tools.strategies import JAVA_BYTES, embedded

WORDS = st.one_of(st.sampled_from([*NAMES, b"", b"KEY", b"KEYSS", b"keys", b"\0KEYS", b"v", b"a b", b"\0"]), JAVA_BYTES)
SEPARATORS = st.sampled_from([b"\x01", b"\x02", b"\x01", b"\x02", b"", b"\x01\x01", b"\x02\x02", b"\0", b"\x03"])
PROPERTIES = st.one_of(
    st.lists(st.tuples(WORDS, SEPARATORS).map(b"".join), max_size=12).map(b"".join),
    st.lists(st.tuples(WORDS, st.just(b"\x01"), WORDS, st.just(b"\x02")).map(b"".join), max_size=6).map(b"".join),
)


def found(raw: bytes, room: int) -> dict[bytes, str]:
    data, start, end = embedded(raw, before=b"KEYS\x01", after=b"more\x02TAGS\x01after\x02", room=room)
    spans = np.full(SPANS_SIZE, 77, np.int64)
    scan_properties(data, start, end, spans)
    values = {}
    for number, name in enumerate(NAMES):
        first, stop = spans[2 * number : 2 * number + 2].tolist()
        if first >= 0:
            assert start < first < stop <= end
            values[name] = java.decode_utf8(data[first:stop].tobytes())
    return values


@given(PROPERTIES)
@example(b"")
@example(b"KEYS\x01a\x02KEYS\x01b")
@example(b"KEYS\x01\x02TAGS\x01\x01\x02")
@example(b"\x01v\x02KEYS\x01k\x02")
@example(b"KEYS\x01a\x01b\x02\x02TAGS\x01t")
@example(b"\0KEYS\x01a\x02KEYS\0\x01b\x02")
@example(b"KEYS\x01\xf0\x9f\x02TAGS\x01t")
@example(b"\0\0\0\0KEYS\x01a\x02KEYS\0\0\0\0\x01b\x02TAGS\x01" + b"t" * 150 + b"\x02UNIQ_KEY\x01u")
def test_values_lie_where_the_text_says(raw: bytes) -> None:
    expected = parse_properties(java.decode_utf8(raw))
    wanted = {name: expected[name.decode()] for name in NAMES if name.decode() in expected}
    assert found(raw, 0) == found(raw, BLOCK) == wanted


def test_a_value_before_is_forgotten() -> None:
    spans = np.arange(SPANS_SIZE, dtype=np.int64)
    scan_properties(np.zeros(0, np.uint8), 0, 0, spans)
    assert (spans[::2] == -1).all()
