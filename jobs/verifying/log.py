"""The log's part of a verify: which segments are read, and which damage they have."""

from __future__ import annotations

from collections.abc import Iterable

from rocketmq_reindex.jobs.building import empty_log
from rocketmq_reindex.jobs.store.segments import Commitlog
from rocketmq_reindex.jobs.verifying.mend import MISSING_SEGMENT
from rocketmq_reindex.jobs.verifying.settings import VerifySettings
from rocketmq_reindex.jobs.verifying.summary import VerifySummary
from rocketmq_reindex.storage_format.checks.differences import Tally
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.plurals import counted
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.scan.chain import Chain
from rocketmq_reindex.storage_format.scan.ranges import RangeSummary, Segment


def sampled(segments: list[Segment], share: float) -> list[Segment]:
    """Return evenly spread segments, always the same ones, and the last, which says where the log ends."""
    count = len(segments)
    wanted = max(1, round(share * count)) if share < 1 else count
    chosen = {number * count // wanted for number in range(wanted)} | {count - 1}
    return [segment for number, segment in enumerate(segments) if number in chosen]


def between(offset: int, stretches: Iterable[tuple[int, int]]) -> bool:
    """Return whether an offset lies in one of the stretches (low, high)."""
    return any(low <= offset < high for low, high in stretches)


def unmounted(settings: VerifySettings, log: Commitlog, accepted: list[RangeSummary], summary: VerifySummary) -> str:
    """Return why no build is advised of a log that seems to lack a disk; "" where it seems whole."""
    bare = empty_log.bare_roots(settings, log)
    if bare:
        text = f"{escape(bare[0])}: holds no segment: is its disk mounted?"
    elif not any(found.records for found in accepted):
        text = "the log holds no record: is its disk mounted?"
    else:
        return ""
    summary.notes.append(text)
    return f"{text} A build drops all that the log does not hold"


def check_log(
    settings: VerifySettings,
    log: Commitlog,
    chain: Chain,
    unread: tuple[tuple[int, int], ...],
    tally: Tally,
    summary: VerifySummary,
) -> None:
    """Count the damage of the log; ``unread`` are the offsets that a sample leaves out."""
    for hole in chain.holes:
        if between(hole.offset, unread):
            continue  # not missing: left out of the sample
        kind = MISSING_SEGMENT if hole.reason == r.MISSING_SEGMENT else "log-damage"
        text = f"offset {hole.offset}, {counted(hole.length, 'byte')}: {hole.reason}"
        tally.add(kind, 1, f"commitlog/{hole.segment}", hole.offset, text)
        summary.add_damage(hole)
    if chain.stale:
        summary.notes.append(f"offset {chain.stale.offset}, {chain.stale.length:,} bytes: {chain.stale.reason}")
    elif chain.torn:
        torn = chain.torn
        summary.notes.append(
            f"torn tail at offset {torn.offset}, {counted(torn.length, 'byte')}: a crash leaves it, a broker cuts it"
        )
    last = log.segments[-1] if log.segments else None
    if last and last.data_end == last.start and settings.rules.drops_empty_files:
        summary.notes.append(f"commitlog/{last.name} has no bytes: a broker of 5.x removes it")
    elif last and last.data_end < last.segment_end:
        text = f"{last.data_end - last.start:,} of {last.segment_end - last.start:,} bytes"
        tally.add("log-segment-short", 1, f"commitlog/{last.name}", last.data_end, text)
