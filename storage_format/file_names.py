"""Names of a store's files: each is a number in ASCII digits, which fits a signed 64-bit offset (``DefaultMappedFile``).

``str.isdigit`` and ``\\d`` take digits of any script, and Python's numbers have no end: a name becomes a number here, and
nowhere else.
"""

from __future__ import annotations

import re
from typing import Final

from rocketmq_reindex.storage_format.integers import INT32_MAX, INT64_MAX, INT64_MIN

FIRST_BYTE_MAX: Final = INT64_MAX + 1 - 2**41
"""Of a file's first byte: whatever is counted on from there, files and gaps between them, fits 64 bits, too."""
_FIRST_BYTE: Final = re.compile(r"[0-9]{20}")
_QUEUE_ID: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_NUMBER: Final = re.compile(r"[+-]?\d{1,255}")
_INDEX_FILE: Final = re.compile(r"[0-9]{1,19}")


def first_byte(name: str) -> int | None:
    """The offset of its first byte that names a segment or a ConsumeQueue file; None for any other name."""
    if not _FIRST_BYTE.fullmatch(name):
        return None
    found = int(name)
    return found if found <= FIRST_BYTE_MAX else None


def is_number(name: str) -> bool:
    """Whether ``Long.parseLong`` takes it, which also takes signs and digits of any script: a broker does not start on a
    ConsumeQueue file with another name, and finds other units in one with such a name."""
    return _NUMBER.fullmatch(name) is not None and INT64_MIN <= int(name) <= INT64_MAX


def queue_id(name: str) -> int | None:
    """The queue id that names a queue's folder; None for any other name."""
    if not _QUEUE_ID.fullmatch(name):
        return None
    found = int(name)
    return found if found <= INT32_MAX else None


def is_index_file(name: str) -> bool:
    """Whether a broker's clock could have named an IndexFile so: a number below 2^63."""
    return _INDEX_FILE.fullmatch(name) is not None and int(name) <= INT64_MAX
