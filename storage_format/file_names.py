"""Names of a store's files: each is a number in ASCII digits that fits a signed 64-bit offset (``DefaultMappedFile``).

Names become numbers here and nowhere else: ``str.isdigit`` and ``\\d`` take digits of any script, and Python's integers have
no bounds.
"""

from __future__ import annotations

import re
from typing import Final

from rocketmq_reindex.storage_format.integers import INT32_MAX, INT64_MAX, INT64_MIN

FIRST_BYTE_MAX: Final = INT64_MAX + 1 - 2**41
"""The largest first byte of a file that is taken: offsets counted on from there, over files and gaps, still fit 64 bits."""
_FIRST_BYTE: Final = re.compile(r"[0-9]{20}")
_QUEUE_ID: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_NUMBER: Final = re.compile(r"[+-]?\d{1,255}")
_INDEX_FILE: Final = re.compile(r"[0-9]{1,19}")


def first_byte(name: str) -> int | None:
    """The offset of the first byte of a segment or a ConsumeQueue file with this name; None where it is no such name."""
    if not _FIRST_BYTE.fullmatch(name):
        return None
    found = int(name)
    return found if found <= FIRST_BYTE_MAX else None


def is_number(name: str) -> bool:
    """Whether ``Long.parseLong`` takes the name, which it does with a sign and with digits of any script, too.

    A broker does not start on a ConsumeQueue file with a name that is no number.
    """
    return _NUMBER.fullmatch(name) is not None and INT64_MIN <= int(name) <= INT64_MAX


def queue_id(name: str) -> int | None:
    """The queue id of a folder with this name; None where it is no such name."""
    if not _QUEUE_ID.fullmatch(name):
        return None
    found = int(name)
    return found if found <= INT32_MAX else None


def is_index_file(name: str) -> bool:
    """Whether it is the name of an IndexFile, which a broker takes from its clock: a number below 2^63."""
    return _INDEX_FILE.fullmatch(name) is not None and int(name) <= INT64_MAX
