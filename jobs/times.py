"""Times as words of the command line, and as they are shown: milliseconds since 1970 in the store."""

from __future__ import annotations

import datetime as dt
import re

from storage_format.errors import UsageError

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


def parse_time(text: str, option: str = "--until-time") -> int:
    """Milliseconds since 1970, or an ISO time with its zone. Raises UsageError."""
    if re.fullmatch(r"-?\d{1,18}", text):
        return int(text)
    try:
        moment = dt.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise UsageError(
            f"{option} {text!a}: take milliseconds since 1970, or a time with its zone as in 2026-01-31T12:00:00+01:00"
        )
    return (moment - _EPOCH) // dt.timedelta(milliseconds=1)


def show_time(milliseconds: int) -> str:
    """ISO, UTC, to the millisecond; a number no calendar has is shown as it is."""
    try:
        moment = _EPOCH + dt.timedelta(milliseconds=milliseconds)
    except OverflowError:
        return str(milliseconds)
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
