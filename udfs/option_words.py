"""Words that the command line's options and the data sources' options share."""

from __future__ import annotations

import re
from typing import Final

from storage_format.frame import CRC_ALL, CRC_BODY, CRC_NONE

DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""``MessageStoreConfig.messageDelayLevel``"""
CRC_MODES: Final = {"none": CRC_NONE, "body": CRC_BODY, "all": CRC_ALL}
UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def delay_levels(text: str) -> tuple[int, ...]:
    """``1s 5s ... 2h`` as milliseconds (``DefaultMessageStore.parseDelayLevel``). Raises ValueError for a word that is none."""
    levels = []
    for word in text.split(" "):
        found = re.fullmatch(r"(\d{1,9})([smhd])", word)
        if not found:
            raise ValueError(f"{word!r} is not a number followed by s, m, h or d")
        levels.append(int(found[1]) * UNITS[found[2]])
    return tuple(levels)


def moment(text: str) -> int:
    """Milliseconds since 1970, or an ISO time with its zone. Raises ValueError."""
    if re.fullmatch(r"-?\d{1,18}", text):
        return int(text)
    import pyarrow as pa

    try:
        return int(pa.scalar(text).cast(pa.timestamp("ms", "UTC")).value)
    except pa.ArrowInvalid:
        raise ValueError(
            f"{text!a}: take milliseconds since 1970, or a time with its zone as in 2026-01-31T12:00:00+01:00"
        ) from None
