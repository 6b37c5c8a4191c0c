"""Times and durations: parsed from options, and shown to users. In the store they are milliseconds since 1970."""

import datetime as dt
import re
from typing import Final

from rocketmq_reindex.storage_format.errors import UsageError

DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""``MessageStoreConfig.messageDelayLevel``"""
EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SECONDS: Final = re.compile(r"[1-9][0-9]{9}")
_YEAR: Final = re.compile(r"(?:19|20)[0-9]{2}")
_LEAST_MILLISECONDS: Final = 10**11


def delay_levels(text: str) -> tuple[int, ...]:
    """Return ``1s 5s ... 2h`` as milliseconds (``DefaultMessageStore.parseDelayLevel``, RocketMQ 5.3).

    Raises ValueError for a word of another form.
    """
    levels = []
    for word in text.split(" "):
        match = re.fullmatch(r"(\d{1,9})([smhd])", word)
        if not match:
            raise ValueError(f"{word!r} is not a number followed by s, m, h or d")
        levels.append(int(match[1]) * UNITS[match[2]])
    return tuple(levels)


def time_of(text: str) -> int:
    """Return a time, given as milliseconds since 1970 or as an ISO time with its zone, in milliseconds.

    Raises ValueError, also for a number below 10^11: as milliseconds it lies before March 1973, long before RocketMQ. It may
    be seconds or a year. An ISO time may be as old.
    """
    if re.fullmatch(r"-?\d{1,18}", text):
        if int(text) < _LEAST_MILLISECONDS:
            raise ValueError(_too_small(text))
        return int(text)
    try:
        time = dt.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise ValueError(f"{text!a}: take milliseconds since 1970, or a time with its zone as in 2026-01-31T12:00:00+01:00")
    return (time - EPOCH) // dt.timedelta(milliseconds=1)


def _too_small(text: str) -> str:
    """Say what a number that is too small for milliseconds may be."""
    if _SECONDS.fullmatch(text):
        return f"{text}: ten digits are seconds: take milliseconds since 1970, such as {text}000"
    if _YEAR.fullmatch(text):
        return f"{text}: a year? Take a time with its zone, such as {text}-01-01T00:00:00Z, or milliseconds since 1970"
    return f"{text}: seconds? Take milliseconds since 1970, from {_LEAST_MILLISECONDS} on, or a time with its zone"


def parse_time(text: str, option: str = "--until-time") -> int:
    """Return a time as ``time_of`` does, for the option ``option``. Raises UsageError."""
    try:
        return time_of(text)
    except ValueError as error:
        raise UsageError(f"{option} {error}") from None


def show_time(milliseconds: int) -> str:
    """Return a time in ISO form, UTC, to the millisecond; a number that no calendar has is shown as it is."""
    try:
        shown = EPOCH + dt.timedelta(milliseconds=milliseconds)
    except OverflowError:
        return str(milliseconds)
    return shown.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def now() -> str:
    """Return the time of now, as summaries have it: ISO, UTC, to the second."""
    return dt.datetime.now(dt.timezone.utc).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"
