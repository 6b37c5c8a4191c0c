"""What was asked for is there: the log is one, each glob of topics matches some, and the limits leave records."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from rocketmq_reindex.jobs.building.settings import BuildSettings
from rocketmq_reindex.jobs.command.times import show_time
from rocketmq_reindex.jobs.store import first_bytes
from rocketmq_reindex.jobs.store.log import message_at
from rocketmq_reindex.storage_format.errors import InputError, RefusedError
from rocketmq_reindex.storage_format.integers import INT64_MAX
from rocketmq_reindex.storage_format.names import NEAR_MAX, escape
from rocketmq_reindex.storage_format.record.message import Message
from rocketmq_reindex.storage_format.scan.chain import Chain
from rocketmq_reindex.storage_format.scan.name_tables import near
from rocketmq_reindex.storage_format.scan.ranges import RangeSummary, Segment
from rocketmq_reindex.udfs.files.pages import Pages

_ALL_THE_SAME = "--allow-empty builds it all the same"


def check_begins(settings: BuildSettings, segments: Sequence[Segment], chain: Chain) -> None:
    """Raise InputError where the first segment has no good record, and begins with none.

    Where good records follow in other segments, ``salvage`` builds from these, and what is in front is damage; else raises
    RefusedError.
    """
    if settings.allow_empty:
        return
    first_bytes.check_is_log(segments, chain)
    if settings.on_damage != "salvage" and (said := first_bytes.foreign_log(segments, chain)):
        raise RefusedError(f"{said}, and has none: put the right file in its place; --on-damage salvage passes over it")


def check_left(settings: BuildSettings, segments: Sequence[Segment], accepted: Sequence[RangeSummary], chain: Chain) -> None:
    """Raise InputError where a glob of topics matches none of them, or where the limits leave nothing of a log with records."""
    if settings.allow_empty:
        return
    read = sum(summary.records + summary.excluded for summary in accepted)
    if read:
        _check_globs(settings, accepted)
    if any(summary.records for summary in accepted):
        return
    if read:
        raise InputError(f"--exclude-topic: leaves none of the log's records out of {read:,}: {_ALL_THE_SAME}")
    if settings.until_time != INT64_MAX and chain.later >= 0:
        raise InputError(
            f"--until-time: {show_time(settings.until_time)} lies before the log's first record"
            f"{_stored(segments, chain.later)}: nothing would be built: take milliseconds since 1970, or a time with its zone; "
            f"{_ALL_THE_SAME}"
        )
    begin = segments[0].start if segments else 0
    if settings.until_offset != INT64_MAX and segments and _has_record(segments[0]):
        raise InputError(
            f"--until-offset: the log begins at {begin}, and no record of it lies before {settings.until_offset}: nothing "
            f"would be built: {_ALL_THE_SAME}"
        )


def _check_globs(settings: BuildSettings, accepted: Sequence[RangeSummary]) -> None:
    found = [summary.unmatched_globs for summary in accepted]
    for option, globs in (("--include-topic", settings.include_topics), ("--exclude-topic", settings.exclude_topics)):
        for glob in globs:
            if any(unmatched is None or glob not in unmatched for unmatched in found):
                # It matches a topic, or a range is known from a run that did not note this.
                continue
            names = near(glob, (name for unmatched in found if unmatched for name in unmatched[glob]))
            such = f": did you mean {' or '.join(map(escape, names[:NEAR_MAX]))}?" if names else ""
            raise InputError(f"{option} {escape(glob)}: matches no topic of the log{such}")


def _stored(segments: Sequence[Segment], offset: int) -> str:
    """When the record at ``offset`` was stored, in words; "" where that cannot be read."""
    message = _message(segments, offset)
    return f", stored at {show_time(message.store_time)}" if message else ""


def _has_record(segment: Segment) -> bool:
    return _message([segment], segment.start) is not None


def _message(segments: Sequence[Segment], offset: int) -> Message | None:
    segment = next((one for one in segments if one.start <= offset < one.data_end), None)
    if segment is None:
        return None
    with contextlib.closing(Pages(segment.path)) as pages:
        found = message_at(pages, segment.start, offset)
    return found if isinstance(found, Message) else None
