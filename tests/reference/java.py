"""The few Java behaviours the store format leans on.

A Java string is kept as a Python `str` in which every character is one UTF-16 code unit (a character above
U+FFFF is two surrogates), so `len`, `find`, slices and `split` count as Java counts.
"""

import functools
import re
import unicodedata

REPLACEMENT = "\ufffd"
INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


def int32(value: int) -> int:
    """The low 32 bits as Java's int."""
    return (value + 2**31) % 2**32 - 2**31


def int64(value: int) -> int:
    """The low 64 bits as Java's long."""
    return (value + 2**63) % 2**64 - 2**63


def divide(value: int, by: int) -> int:
    """Java's `/`: cut towards zero, where Python's `//` rounds down."""
    return value // by if value >= 0 else -(-value // by)


def _continues(byte: int) -> bool:
    return byte & 0xC0 == 0x80


def _bad_second_of_three(first: int, second: int) -> bool:
    return (first == 0xE0 and second < 0xA0) or not _continues(second)


def _bad_second_of_four(first: int, second: int) -> bool:
    if first == 0xF0 and second < 0x90:
        return True
    return (first == 0xF4 and second >= 0x90) or not _continues(second)


_ASCII = re.compile(rb"[\x00-\x7f]+")
KEPT = 1 << 16
"""Answers that are kept: tests read the same logs again and again."""


@functools.lru_cache(KEPT)
def decode_utf8(data: bytes) -> str:
    """`new String(data, UTF_8)`: one U+FFFD where Java puts one (tried against JDK 17 and 25)."""
    out: list[str] = []
    at = 0
    while at < len(data):
        if plain := _ASCII.match(data, at):
            out.append(plain[0].decode("ascii"))
            at = plain.end()
            continue
        text, used = _decode_one(data[at : at + 4])
        out.append(text)
        at += used
    return "".join(out)


def _decode_one(window: bytes) -> tuple[str, int]:
    """The code units of one character above 0x7F, or one replacement, and how many of the bytes given it takes."""
    first = window[0]
    if 0xC2 <= first <= 0xDF:
        if len(window) > 1 and _continues(window[1]):
            return chr((first & 0x1F) << 6 | window[1] & 0x3F), 2
        return REPLACEMENT, 1
    if 0xE0 <= first <= 0xEF:
        return _decode_three(window[:3])
    if 0xF0 <= first <= 0xF4:
        return _decode_four(window)
    return REPLACEMENT, 1


def _decode_three(window: bytes) -> tuple[str, int]:
    if len(window) < 2 or _bad_second_of_three(window[0], window[1]):
        return REPLACEMENT, 1
    if len(window) < 3 or not _continues(window[2]):
        return REPLACEMENT, 2
    code = (window[0] & 0x0F) << 12 | (window[1] & 0x3F) << 6 | window[2] & 0x3F
    # A surrogate written as three bytes is one replacement in Java, three in Python.
    return (REPLACEMENT if 0xD800 <= code <= 0xDFFF else chr(code)), 3


def _decode_four(window: bytes) -> tuple[str, int]:
    if len(window) < 2 or _bad_second_of_four(window[0], window[1]):
        return REPLACEMENT, 1
    if len(window) < 3 or not _continues(window[2]):
        return REPLACEMENT, 2
    if len(window) < 4 or not _continues(window[3]):
        return REPLACEMENT, 3
    code = (window[0] & 7) << 18 | (window[1] & 0x3F) << 12 | (window[2] & 0x3F) << 6 | window[3] & 0x3F
    code -= 0x10000
    return chr(0xD800 + (code >> 10)) + chr(0xDC00 + (code & 0x3FF)), 4


def code_units(text: str) -> list[int]:
    """The UTF-16 code units of a Java string as numbers."""
    return [ord(unit) for unit in text]


def java_text(text: str) -> str:
    """A Python text as a Java string: characters above U+FFFF become two surrogates."""
    return "".join(
        chr(0xD800 + (ord(c) - 0x10000 >> 10)) + chr(0xDC00 + (ord(c) - 0x10000 & 0x3FF)) if ord(c) > 0xFFFF else c
        for c in text
    )


def python_text(text: str) -> str:
    """A Java string as a Python text: surrogate pairs become one character."""
    return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")


@functools.lru_cache(KEPT)
def hash_code(text: str) -> int:
    """`String.hashCode` of a Java string: a signed 32-bit number."""
    value = 0
    for unit in code_units(text):
        value = (31 * value + unit) & 0xFFFFFFFF
    return int32(value)


def split(text: str, separator: str) -> list[str]:
    """`String.split` on one plain character: empty pieces at the end go (a text without it stays whole)."""
    pieces = text.split(separator)
    if len(pieces) == 1:
        return pieces
    while pieces and not pieces[-1]:
        pieces.pop()
    return pieces


def parse_number(text: str, bits: int) -> int | None:
    """`Short.parseShort` / `Integer.parseInt` / `Long.parseLong`: None where Java throws.

    One sign, then decimal digits of any script, but only those that are a single code unit.
    """
    digits = text[1:] if text[:1] in ("+", "-") and text else text
    if not digits or any(unicodedata.category(d) != "Nd" for d in digits):
        return None
    value = 0
    for digit in digits:
        value = value * 10 + unicodedata.decimal(digit)
    if text.startswith("-"):
        value = -value
    return value if -(2 ** (bits - 1)) <= value < 2 ** (bits - 1) else None


def is_blank(text: str | None) -> bool:
    """commons-lang `StringUtils.isBlank`: None, empty, or only `Character.isWhitespace`."""
    return text is None or all(_is_whitespace(c) for c in text)


def _is_whitespace(c: str) -> bool:
    if c in "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f":
        return True
    return unicodedata.category(c) in ("Zs", "Zl", "Zp") and c not in "\u00a0\u2007\u202f"
