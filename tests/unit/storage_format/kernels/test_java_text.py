"""Text is decoded, hashed and read as a number as Java does it, on valid and malformed bytes alike."""

from __future__ import annotations

import pytest
from hypothesis import example, given, strategies as st

from rocketmq_reindex.storage_format.kernels.java_text import index_hash, java_hash, parse_number, signed32
from rocketmq_reindex.storage_format.kernels.raw_bytes import BLOCK, HASHED
from rocketmq_reindex.storage_format.layouts import java_text, key_hash as plain_key_hash, string_hash
from tests.reference import java
from tests.reference.index_file import key_hash
from tests.tools.strategies import JAVA_BYTES, embedded

DIGITS = "0123456789\u0660\u0663\u0669\u0966\u0be6\uff10\uff19"
NO_DIGITS = "+- _.,aA²½Ⅷ\u3007\U0001d7d8\U0001d7ff\ufffd"
RANGES = {16: 2**15, 32: 2**31, 64: 2**63}


@given(JAVA_BYTES)
@example(b"\xed\xa0\x80")
@example(b"\xed\xa0\x7f")
@example(b"\xed\xbf\xbf")
@example(b"\xed\xa0\xc0")
@example(b"\xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf \xf4\x90\x80\x80")
@example(b"\xe0\x80\x80\xe0\xa0\x80\xf0\x80\x80\x80\xf0\x90\x80\x80")
@example(b"a\xe2")
@example(b"a\xe2\x82")
@example(b"a\xf0")
@example(b"a\xf0\x9f")
@example(b"a\xf0\x9f\x98")
def test_decodes_as_java(raw: bytes) -> None:
    assert java_text(raw) == java.python_text(java.decode_utf8(raw))


@given(JAVA_BYTES)
@example("Привет 😀\0".encode())
@example(b"\xf4\x8f\xbf\xbf \xf4\x90\x80\x80")
@example(b"a\xe2\x82")
@example(b"a\xf0\x9f")
@example(b"a\xf0\x9f\x98")
@example(b"abcdefgh\xff")
@example(b"\x7f" * (2 * HASHED + 1))
@example(b"\x7f" * HASHED + b"\x80" + b"z" * HASHED)
def test_hashes_what_java_decodes(raw: bytes) -> None:
    for room in (0, BLOCK):
        data, start, end = embedded(raw, room=room)
        assert signed32(java_hash(data, start, end, 0)) == java.hash_code(java.decode_utf8(raw))
    assert string_hash(java_text(raw)) == java.hash_code(java.decode_utf8(raw))


@given(JAVA_BYTES, JAVA_BYTES)
def test_a_hash_goes_on_from_the_topics(topic: bytes, key: bytes) -> None:
    """``topic#key`` is hashed as the key, from where ``topic#`` ended: the # keeps sequences of the two apart."""
    data, start, end = embedded(topic + b"#")
    seed = java_hash(data, start, end, 0)
    data, start, end = embedded(key, room=BLOCK)
    text = java.decode_utf8(topic) + "#" + java.decode_utf8(key)
    assert index_hash(java_hash(data, start, end, seed)) == key_hash(text)
    assert plain_key_hash(java_text(topic), java_text(key)) == key_hash(text)


@given(st.integers(-(2**31), 2**31 - 1))
@example(-(2**31))
@example(-(2**31) + 1)
@example(2**31 - 1)
@example(0)
def test_index_hash_is_javas_absolute_value(code: int) -> None:
    assert signed32(code % 2**32) == code
    assert index_hash(code % 2**32) == (0 if code == -(2**31) else abs(code))


def test_hashes_that_are_known() -> None:
    def hashed(text: str) -> int:
        data, start, end = embedded(text.encode())
        return signed32(java_hash(data, start, end, 0))

    assert hashed("") == 0
    assert hashed("Aa") == hashed("BB") == 2112
    assert hashed("polygenelubricants") == string_hash("polygenelubricants") == -(2**31)
    assert hashed("hello") == 99162322
    assert hashed("😀") == 0xD83D * 31 + 0xDE00


NUMBERS = st.one_of(
    st.integers(-(2**64), 2**64).map(str),
    st.sampled_from(sorted(RANGES.values())).flatmap(lambda top: st.integers(-top - 11, -top + 11).map(str)),
    st.sampled_from(sorted(RANGES.values())).flatmap(lambda top: st.integers(top - 11, top + 11).map(str)),
    st.integers(-99, 99).map(lambda n: f"{'-' if n < 0 else '+'}{'0' * abs(n)}{abs(n)}"),
    st.text(alphabet=DIGITS, max_size=20),
    st.text(alphabet=DIGITS + NO_DIGITS, max_size=6),
    st.text(max_size=3),
).map(str.encode)


@given(st.one_of(NUMBERS, JAVA_BYTES), st.sampled_from(sorted(RANGES)))
@example(b"", 32)
@example(b"-", 32)
@example(b"+", 64)
@example(b"--1", 32)
@example(b"-0", 32)
@example(b"-32768", 16)
@example(b"32768", 16)
@example(b"-9223372036854775808", 64)
@example(b"9223372036854775808", 64)
@example(b"0000000000000000000000000000000001", 16)
def test_numbers_parse_as_in_java(raw: bytes, bits: int) -> None:
    data, start, end = embedded(raw, before=b"1", after=b"23")
    expected = java.parse_number(java.decode_utf8(raw), bits)
    assert parse_number(data, start, end, -RANGES[bits], RANGES[bits] - 1) == (expected is not None, expected or 0)


@pytest.mark.parametrize(
    ("text", "value"), [("١٢", 12), ("-\uff17", -7), ("𝟘", None), ("²", None), ("1 ", None), ("0x1", None)]
)
def test_digits_of_other_scripts(text: str, value: int | None) -> None:
    data, start, end = embedded(text.encode())
    assert parse_number(data, start, end, -(2**31), 2**31 - 1) == (value is not None, value or 0)
