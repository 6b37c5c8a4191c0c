"""Warnings about what is asked for, and about what the log holds, from the counts of its ranges."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from rocketmq_reindex.jobs.building.advice import REPAIR, stopped
from rocketmq_reindex.jobs.building.settings import BuildSettings
from rocketmq_reindex.jobs.building.summary import Summary
from rocketmq_reindex.storage_format.checkpoint import CHECKPOINT_LAYOUT
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.plurals import counted
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.scan.chain import MISNAMED
from rocketmq_reindex.storage_format.scan.ranges import Hole, RangeSummary, Segment
from rocketmq_reindex.storage_format.versions import VersionRules

NAMES_LISTED = 20
_NO_CUT: Final = (r.REASONS[r.BAD_TOPIC], r.REASONS[r.BAD_QUEUE], r.REASONS[r.BAD_POSITION], MISNAMED)
"""how the reasons begin that a broker does not check (``CommitLog.checkMessageAndReturnSize``, 5.3): it reads on after them"""


def of_settings(settings: BuildSettings, summary: Summary) -> None:
    """Warn of settings whose result a broker may not use as one expects."""
    if "index" in settings.only and "checkpoint" not in settings.only:
        summary.warn(
            "index without checkpoint: with an older checkpoint the next crash deletes it: take --only index,checkpoint"
        )
    if (
        settings.accelerated
        and "checkpoint" in settings.only
        and settings.rules.checkpoint_fields < len(CHECKPOINT_LAYOUT.columns)
    ):
        summary.warn(
            "--broker-conf: has enableAcceleratedRecovery=true: after a crash a 5.5 broker does not load a store with this "
            "checkpoint: for 5.5 give --broker-version 5.5"
        )
    if settings.tables and not settings.keeps_rows:
        summary.notes.append("--tables: keeps what is known of the log; --engine local writes no rows of Delta tables")
    if settings.partial and "consumequeue" in settings.only:
        summary.warn("a partial build beside the full log: a broker re-dispatches only records above the newest unit")


def unmarked_batches(settings: BuildSettings, accepted: list[RangeSummary], summary: Summary) -> int:
    """Warn of inner batches of topics that nobody called batch topics; return in how many records they are.

    It comes first, since their offsets then jump.
    """
    count = sum(s.inner_batches for s in accepted)
    if not count or "consumequeue" not in settings.only or not settings.rules.batch_queues:
        return 0
    summary.warnings.append(
        f"inner batches in {counted(count, 'record')}: their topics have batch ConsumeQueues (queue.type=BatchCQ), but get "
        "plain units, on which no broker with such topics starts: give --topics-config"
    )
    return count


def broker_cuts(settings: BuildSettings, segments: list[Segment], holes: list[Hole], summary: Summary) -> None:
    """Warn of salvaged damage where a broker that starts cuts its log (``CommitLog.recoverNormally``, 5.3).

    ``IndexService.buildIndex`` passes over records below the end of the last IndexFile: what was built from beyond the cut
    then keeps new keys out.
    """
    cut = first_cut(settings.rules, segments, holes)
    if cut >= 0 and settings.on_damage == "salvage":
        summary.warnings.append(
            f"damage at offset {cut}: a broker that starts cuts its log there, and takes no new keys into this index "
            f"until the log has grown past its old end: keep a copy of the log, and for a broker {REPAIR} "
            f"(rmq-reindex repair), or build with --until-offset {cut}, which {stopped(cut)}"
        )


def first_cut(rules: VersionRules, segments: Sequence[Segment], holes: Iterable[Hole]) -> int:
    """Return the offset where a broker that starts cuts a log with this damage; -1 where it does not."""
    looked_at = segments[-rules.recovered_segments :]
    damaged = (hole.offset for hole in holes if not hole.reason.startswith(_NO_CUT))
    return min((offset for offset in damaged if looked_at and offset >= looked_at[0].start), default=-1)


def fillers(accepted: Iterable[RangeSummary]) -> str:
    """Return what to say of a log that a repair has put fillers in; "" where it has none."""
    stretches = [length for summary in accepted for _, length in summary.lost]
    if not stretches:
        return ""
    return f"{counted(sum(stretches), 'byte')} of the log are fillers of a repair: what was there is lost"


def of_counts(settings: BuildSettings, accepted: list[RangeSummary], summary: Summary) -> None:
    """Warn of records that are built in another way than one may expect."""
    warn = summary.warnings.append
    if text := fillers(accepted):
        warn(text)
    for name in sorted({name for s in accepted for name in s.unusual_names})[:NAMES_LISTED]:
        warn(f"topic {escape(name)}: a name that RocketMQ's TopicValidator refuses; built all the same")
    refused, empty = sum(s.batches_refused for s in accepted), sum(s.batches_empty for s in accepted)
    if refused:
        warn(f"{counted(refused, 'record')} of batch topics without a unit, as by the broker: INNER_NUM or INNER_BASE below 0")
    if empty:
        what = "as by the broker, which forgets what follows it" if settings.queue_order == "broker" else "left out"
        warn(f"{counted(empty, 'unit')} of batch queues without a message (INNER_NUM 0): {what}")
    slash, malformed = sum(s.lmq_slash for s in accepted), sum(s.lmq_malformed for s in accepted)
    no_file, again = sum(s.lmq_no_file for s in accepted), sum(s.lmq_again for s in accepted)
    if slash:
        what = counted(slash, "dispatch", "dispatches")
        warn(f"skipped {what} to LMQ names that hold a '/' (as the broker does) or are batch topics")
    if no_file:
        what = counted(no_file, "dispatch", "dispatches")
        warn(
            f"skipped {what} to LMQ names that are no plain file name (control characters, '..', more than 255 "
            "bytes): a broker makes what files it can of them; their records keep their own units and items"
        )
    if again:
        warn(
            f"{counted(again, 'time')} a record names a light queue again: one unit each, as by the broker, whose counter "
            "skips an offset then"
        )
    if malformed:
        warn(f"skipped the LMQ dispatch of {counted(malformed, 'record')}: offsets are no numbers or too few")
