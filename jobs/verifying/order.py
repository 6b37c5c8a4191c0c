"""The order of the log's queues: a verify takes the very decisions of a build, and tells what a build would refuse."""

from __future__ import annotations

from dataclasses import dataclass

from rocketmq_reindex.jobs.building.decisions import odd_queues
from rocketmq_reindex.jobs.building.scanning import Scan
from rocketmq_reindex.jobs.verifying.settings import VerifySettings
from rocketmq_reindex.jobs.verifying.summary import VerifySummary
from rocketmq_reindex.storage_format.checks.differences import Tally
from rocketmq_reindex.storage_format.errors import RefusedError
from rocketmq_reindex.storage_format.plurals import counted
from rocketmq_reindex.storage_format.scan.chain import Chain
from rocketmq_reindex.storage_format.scan.ranges import Segment


@dataclass(frozen=True)
class LogOrder:
    """Where ``--queue-order logical`` puts the units of queues out of order: plans (``PlanWriter``), or ""."""

    placements: str = ""
    batches: str = ""
    """the same of batch queues"""
    max_fill: int = 0
    """--max-fill that a build needs; 0 where its own is enough"""
    wrong: tuple[int, ...] = ()
    """offsets of records whose queue offsets are sure to be wrong: a repair mends them, and no others out of line"""


def check_order(
    scan: Scan, settings: VerifySettings, segments: list[Segment], chain: Chain, tally: Tally, summary: VerifySummary
) -> LogOrder:
    """Decide on the queues of the whole log as a build does (``--queue-order logical``), and count what it refuses.

    A queue that would take more fills than a build makes by itself is in no plan.
    """
    most = chain.fills(settings.max_fill)
    try:
        odd = odd_queues(scan, settings.mending_build(), segments, chain)
        found = odd.outcome(segments, "log", most)
    except RefusedError as error:
        tally.add("log-out-of-line", 1, "commitlog", 0, str(error))
        return LogOrder()
    for hole in found.lost.first:
        text = f"offset {hole.offset}, {counted(hole.length, 'byte')}: {hole.reason}"
        tally.add("log-out-of-line", 1, f"commitlog/{hole.segment}", hole.offset, text)
        summary.add_damage(hole)
    if more := found.lost_records - len(found.lost.first):
        tally.add("log-out-of-line", more, "commitlog", found.lost.more_end, f"more, up to offset {found.lost.more_end}")
    wrong = odd.wrong_places() if found.lost.first else ()
    # What a build warns of: nothing tells whether these records are in line.
    if pending := [text for text, (_, entry) in found.notes.about.items() if entry.get("kind") == "pending"]:
        others = f"; {counted(len(pending) - 1, 'more queue')} likewise" if len(pending) > 1 else ""
        summary.notes.append(f"{pending[0]}{others}")
    if found.filled <= most:
        return LogOrder(found.placements, found.batches, wrong=wrong)
    needed = found.filled - (most - settings.max_fill)
    text = f"{found.filled:,} missing queue offsets: a build fills at most {most} with --max-fill {settings.max_fill}"
    tally.add("log-queue-gaps", found.filled, "commitlog", 0, text)
    return LogOrder(found.placements, found.batches, needed, wrong)
