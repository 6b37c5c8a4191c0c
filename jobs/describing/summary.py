"""What ``info`` knows of a store, as one JSON object or as text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from rocketmq_reindex import __version__
from rocketmq_reindex.storage_format.plurals import counted

TOPICS_SHOWN: Final = 10
PROBLEMS_SHOWN: Final = 20


@dataclass
class InfoSummary:
    """Filled while the store is looked at; also given on failure. Names from the store are escaped."""

    version: str = __version__
    store: str = ""
    log: dict[str, Any] = field(default_factory=dict)
    """``segments``, ``bytes``, ``segment_size``, ``first_offset``, ``end_offset``, ``first_time``, ``last_time``,
    ``missing`` bytes between segments"""
    topics: list[dict[str, Any]] = field(default_factory=list)
    """``topic``, ``queues``, ``queues_looked_into``, ``messages``, ``first_time``, ``last_time``; the largest first"""
    queues: int = 0
    queues_looked_into: int = 0
    messages: int = 0
    """of the queues that were looked into, or of the sample"""
    sampled: int = 0
    """records of the log that were looked at, where no queue has a file"""
    sizes: dict[str, int] = field(default_factory=dict)
    """what the files show: ``cq_file_size``, ``batch_cq_file_size``, ``hash_slots``, ``index_items``"""
    fits: dict[str, Any] = field(default_factory=dict)
    """``versions`` of RocketMQ that fit what the files show, newest first, and the ``signs``"""
    index_files: int = 0
    clean_stop: bool = True
    """there is no file ``abort``"""
    broker: str | None = None
    """who holds the store's lock; None for nobody"""
    build: dict[str, Any] | None = None
    """``parts`` that a fetch put there, by the digest of their build's manifest"""
    problems: list[str] = field(default_factory=list)
    """what is missing, stale, or cannot be read"""
    next: dict[str, Any] = field(default_factory=dict)
    """``why``, and the ``commands`` to run next"""
    seconds: float = 0.0
    exit: int = 0
    error: str | None = None


def lines_of(summary: InfoSummary) -> list[str]:
    """Return the lines that people read; none for a run that failed."""
    if summary.error or not summary.log:
        return []
    log = summary.log
    found = [f"store    {summary.store}"]
    found.append(
        f"log      {counted(log['segments'], 'segment')}, {counted(log['bytes'], 'byte')}: "
        f"offsets {log['first_offset']} to {log['end_offset']}"
    )
    if log["first_time"] or log["last_time"]:
        found.append(f"stored   {log['first_time'] or 'not known'} to {log['last_time'] or 'not known'}")
    found += _queues(summary)
    sizes = ", ".join(f"{name} {value}" for name, value in summary.sizes.items())
    found += [f"sizes    segment_size {log['segment_size']}{', ' if sizes else ''}{sizes}"] if log["segments"] else []
    found.append(f"version  {_fits(summary.fits)}")
    found.append(f"broker   {summary.broker or 'none runs here'}; {_stop(summary)}")
    if summary.build:
        parts = summary.build["parts"]
        found.append(f"build    fetched: {', '.join(f'{part} of {digest[:12]}' for part, digest in parts.items())}")
    found += [f"problem  {text}" for text in summary.problems[:PROBLEMS_SHOWN]]
    if len(summary.problems) > PROBLEMS_SHOWN:
        found.append(f"problem  {len(summary.problems) - PROBLEMS_SHOWN} more, with --json")
    found.append(f"next     {summary.next['why']}")
    return found + [f"    run  {command}" for command in summary.next["commands"]]


def _stop(summary: InfoSummary) -> str:
    return "the last stop was clean" if summary.clean_stop else "the last stop was not clean (a file abort)"


def _fits(fits: dict[str, Any]) -> str:
    why = ", ".join(fits["signs"])
    return f"{' or '.join(fits['versions'])} ({why})" if why else "not known: no file shows one"


def _queues(summary: InfoSummary) -> list[str]:
    topics, queues = counted(len(summary.topics), "topic"), counted(summary.queues, "queue")
    if summary.sampled:
        first = f"queues   no files; in a sample of {counted(summary.sampled, 'record')}: {topics}, {queues}"
    else:
        partly = summary.queues_looked_into < summary.queues
        where = f" in the first {counted(summary.queues_looked_into, 'queue')}; others were not looked into" if partly else ""
        first = f"queues   {topics}, {queues}, {counted(summary.messages, 'message')}{where}"
    shown = [f"         {_topic(one, bool(summary.sampled))}" for one in summary.topics[:TOPICS_SHOWN]]
    rest = len(summary.topics) - len(shown)
    return [first, *shown, *([f"         {counted(rest, 'more topic')}, with --json"] if rest else [])]


def _topic(one: dict[str, Any], sampled: bool) -> str:
    queues, looked = counted(one["queues"], "queue"), one["queues_looked_into"]
    if not sampled and not looked:
        return f"{one['topic']}: {queues}, not looked into"
    partly = f"{looked:,} of " if not sampled and looked < one["queues"] else ""
    stored = f", stored {one['first_time']} to {one['last_time']}" if one["first_time"] else ""
    return f"{one['topic']}: {counted(one['messages'], 'message')} in {partly}{queues}{stored}"
