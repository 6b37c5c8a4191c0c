"""Java's signed integers: their bounds, and values that wrap as an ``int`` or a ``long`` does."""

from __future__ import annotations

from typing import Final

INT16_MIN: Final = -0x8000
INT16_MAX: Final = 0x7FFF
INT32_MIN: Final = -0x80000000
INT32_MAX: Final = 0x7FFFFFFF
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
UINT32_MAX: Final = 0xFFFFFFFF


def as_int(value: int) -> int:
    """``value`` of any size as a Java ``int``: its low 32 bits, signed."""
    return (value - INT32_MIN) % 2**32 + INT32_MIN


def as_long(value: int) -> int:
    """``value`` of any size as a Java ``long``: its low 64 bits, signed."""
    return (value - INT64_MIN) % 2**64 + INT64_MIN
