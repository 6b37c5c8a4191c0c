"""Warnings about what the log holds, from the counts of its ranges."""

from __future__ import annotations

from jobs.settings import BuildSettings
from jobs.summary import Summary
from storage_format.names import escape
from storage_format.range_summary import RangeSummary

NAMES_TOLD = 20


def unmarked_batches(settings: BuildSettings, accepted: list[RangeSummary], summary: Summary) -> None:
    """Inner batches of topics that nobody called batch topics: told first, since their offsets then jump."""
    count = sum(s.inner_batches for s in accepted)
    if count and "consumequeue" in settings.only and settings.broker_version != "4.9":
        summary.warnings.append(
            f"{count} records are inner batches: their topics have batch ConsumeQueues (queue.type=BatchCQ), but get plain "
            "units, on which no broker with such topics starts: give --topics-config"
        )


def of_counts(settings: BuildSettings, accepted: list[RangeSummary], summary: Summary) -> None:
    """What is built in another way than one may think."""
    warn = summary.warnings.append
    for name in sorted({name for s in accepted for name in s.unusual_names})[:NAMES_TOLD]:
        warn(f"topic {escape(name)}: a name that RocketMQ's TopicValidator refuses; built all the same")
    refused, empty = sum(s.batches_refused for s in accepted), sum(s.batches_empty for s in accepted)
    if refused:
        warn(f"{refused} records of batch topics without a unit, as by the broker: INNER_NUM or INNER_BASE below 0")
    if empty:
        told = "as by the broker, which forgets what follows it" if settings.queue_order == "broker" else "left out"
        warn(f"{empty} units of batch queues without a message (INNER_NUM 0): {told}")
    slash, malformed = sum(s.lmq_slash for s in accepted), sum(s.lmq_malformed for s in accepted)
    if slash:
        warn(f"skipped {slash} dispatches to LMQ names that hold a '/' (as the broker does) or are batch topics")
    if malformed:
        warn(f"skipped the LMQ dispatch of {malformed} records: offsets are no numbers or too few")
