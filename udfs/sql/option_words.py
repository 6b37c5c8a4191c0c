"""Values that options of the command line and of the data sources share."""

from __future__ import annotations

import datetime as dt
import re
from typing import Final

from rocketmq_reindex.storage_format.record.layout import CRC_ALL, CRC_BODY, CRC_NONE

DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""``MessageStoreConfig.messageDelayLevel``"""
CRC_MODES: Final = {"none": CRC_NONE, "body": CRC_BODY, "all": CRC_ALL}
EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SECONDS: Final = re.compile(r"[1-9][0-9]{9}")


def delay_levels(text: str) -> tuple[int, ...]:
    """Parse ``1s 5s ... 2h`` into milliseconds (``DefaultMessageStore.parseDelayLevel``, RocketMQ 5.3).

    Raises ValueError for a word of another form.
    """
    levels = []
    for word in text.split(" "):
        found = re.fullmatch(r"(\d{1,9})([smhd])", word)
        if not found:
            raise ValueError(f"{word!r} is not a number followed by s, m, h or d")
        levels.append(int(found[1]) * UNITS[found[2]])
    return tuple(levels)


def moment(text: str) -> int:
    """Parse a time, given as milliseconds since 1970 or as an ISO time with its zone, into milliseconds.

    Raises ValueError, also for ten digits: these are seconds, since as milliseconds they would lie in 1970.
    """
    if _SECONDS.fullmatch(text):
        raise ValueError(f"{text}: ten digits are seconds: take milliseconds since 1970, such as {text}000")
    if re.fullmatch(r"-?\d{1,18}", text):
        return int(text)
    try:
        found = dt.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise ValueError(f"{text!a}: take milliseconds since 1970, or a time with its zone as in 2026-01-31T12:00:00+01:00")
    return (found - EPOCH) // dt.timedelta(milliseconds=1)
