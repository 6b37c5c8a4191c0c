"""The rules of a start, one entry for each release. This file imports little, because options show what stands here.

By itself: the parser of preflight imports it, and no numpy.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class StartRules:
    """The rules of one release; of ``CommitLog``, ``ConsumeQueueStore`` and ``ConsumeQueue`` unless they say otherwise."""

    release: str
    v2_records: bool
    """records with a topic length of two bytes; a record's size is checked against the file before it is read (5.x)"""
    negative_sizes: bool
    """a filler with a negative size ends a segment (before 5.5.1)"""
    dispatches_while_recovering: bool
    """``recoverNormally`` dispatches; in 4.9 only ``ReputMessageService`` does"""
    first_record_parses: bool
    """a segment is begun with only where its first record is accepted (5.3.4 on)"""
    limits_segments: bool
    """``commitLogRecoverMaxNum`` (5.4.0 on)"""
    logics_offset: bool
    """an abnormal start looks at the checkpoint's logicsPhysicalOffset (5.5.0 on)"""
    cuts_by_new_units: bool
    """units are cut where those just dispatched reach the log's end, too (5.3.4 on)"""
    searches_min_offset: bool
    """``correctMinOffset`` looks at the last unit, then searches the first file by halves (5.x)"""
    empty_file_fails: bool
    """``correctMinOffset`` fails at a last file without units (5.3.3 to 5.4.0)"""
    resets_empty_queue: bool
    """``correctMinOffset`` sets a queue without files back (5.5.1)"""
    tag_items: bool
    """a record with TAGS has an index item for them (``IndexService``, 5.4.0 on)"""


def _rules(release: str, number: int) -> StartRules:
    return StartRules(
        release,
        v2_records=number >= 1,
        negative_sizes=number < 5,
        dispatches_while_recovering=number >= 1,
        first_record_parses=number >= 2,
        limits_segments=number >= 3,
        logics_offset=number >= 4,
        cuts_by_new_units=number >= 2,
        searches_min_offset=number >= 1,
        empty_file_fails=1 <= number <= 3,
        resets_empty_queue=number >= 5,
        tag_items=number >= 3,
    )


RULES: Final = {
    release: _rules(release, number) for number, release in enumerate(("4.9.8", "5.3.3", "5.3.4", "5.4.0", "5.5.0", "5.5.1"))
}
"""oldest first"""
RELEASES: Final = tuple(RULES)
"""The releases whose start is known here, oldest first."""
