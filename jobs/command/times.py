"""Times as words of the command line, and as they are shown: milliseconds since 1970 in the store."""

from __future__ import annotations

import datetime as dt

from rocketmq_reindex.storage_format.errors import UsageError
from rocketmq_reindex.udfs.sql.option_words import EPOCH, moment


def parse_time(text: str, option: str = "--until-time") -> int:
    """Milliseconds since 1970, or an ISO time with its zone. Raises UsageError."""
    try:
        return moment(text)
    except ValueError as error:
        raise UsageError(f"{option} {error}") from None


def show_time(milliseconds: int) -> str:
    """ISO, UTC, to the millisecond; a number no calendar has is shown as it is."""
    try:
        shown = EPOCH + dt.timedelta(milliseconds=milliseconds)
    except OverflowError:
        return str(milliseconds)
    return shown.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def now() -> str:
    """The time of now, as summaries have it: ISO, UTC, to the second."""
    return dt.datetime.now(dt.timezone.utc).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"
