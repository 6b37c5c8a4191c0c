"""Look at the first bytes of a log: refuse what is no commitlog, and name what it is, instead of a torn tail.

By itself: what looks at a store needs it, and no compiled loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rocketmq_reindex import files
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.scan.ranges import HEAD, Segment, foreign, has_entry
from rocketmq_reindex.storage_format.showing import escape

if TYPE_CHECKING:
    from rocketmq_reindex.storage_format.scan.chain import Chain


def no_record(path: str, lead: int = 0) -> str:
    """Return that the file at ``path`` does not begin with a record, and with what; "" where it does, or is all zeros there.

    ``lead`` is the bytes in front of each record. Raises OSError and InputError where it cannot be read.
    """
    with files.Reader(path) as reader:
        head = reader.read(0, min(HEAD, reader.size()))
    begin = foreign(head[lead:] if lead and has_entry(head) else head)
    return f"{escape(path)}: does not begin with a RocketMQ record ({begin})" if begin else ""


def foreign_log(segments: Sequence[Segment], chain: Chain) -> str:
    """Return that the first segment is none of RocketMQ: it has no good record, and begins with none; "" otherwise.

    The records of a segment with the name of another are sound: its damage says so, and how to mend it.
    """
    first = segments[0] if segments else None
    # Brings numba, which no look at a store needs.
    from rocketmq_reindex.storage_format.scan.chain import misnamed

    wrong = misnamed(chain.holes)
    known = [*_good(chain), *([wrong.offset] if wrong else [])]
    if first is None or any(first.start <= offset < first.segment_end for offset in known):
        return ""
    return no_record(first.path, first.lead)


def check_is_log(segments: Sequence[Segment], chain: Chain) -> None:
    """Raise InputError for a log without a good record whose first segment is none of RocketMQ."""
    if not has_good(chain) and (fault := foreign_log(segments, chain)):
        raise InputError(f"{fault}: name a commitlog")


def has_good(chain: Chain) -> bool:
    """Return whether the log has a good record."""
    return any(offset >= 0 for offset in _good(chain))


def _good(chain: Chain) -> list[int]:
    return [max(summary.last_good, summary.after_tail, summary.later) for summary in chain.accepted]
