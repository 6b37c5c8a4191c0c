"""What ``info`` of the Python API returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rocketmq_reindex.jobs.api.results import Result
from rocketmq_reindex.storage_format.plurals import counted


@dataclass(frozen=True, repr=False)
class InfoResult(Result):
    """What is in a store. ``exit_status`` is 0 also where something is missing: ``problems`` says so."""

    version: str
    """of rocketmq-reindex"""
    store: str
    log: dict[str, Any]
    """``segments``, ``bytes``, ``segment_size``, ``first_offset``, ``end_offset``, ``first_time``, ``last_time``,
    ``missing`` bytes between segments"""
    topics: list[dict[str, Any]]
    """``topic``, ``queues``, ``queues_looked_into``, ``messages``, ``first_time`` and ``last_time``; the largest first"""
    queues: int
    queues_looked_into: int
    messages: int
    """of the queues that were looked into, or of the sample"""
    sampled: int
    """records of the log that were looked at, where no queue has a file"""
    sizes: dict[str, int]
    """what the files show"""
    fits: dict[str, Any]
    """``versions`` of RocketMQ that fit what the files show, newest first, and the ``signs``"""
    index_files: int
    clean_stop: bool
    """there is no file ``abort``"""
    broker: str | None
    """who holds the store's lock; None for nobody"""
    build: dict[str, Any] | None
    """``parts`` that a fetch put there, by the digest of their build's manifest"""
    problems: list[str]
    """what is missing, stale, or cannot be read"""
    next: dict[str, Any]
    """``why``, and the ``commands`` to run next"""
    seconds: float
    error: str | None

    def _order(self, names: list[str]) -> list[str]:
        return [*names[:-1], "exit", "error"]

    def _facts(self) -> dict[str, str]:
        log = self.log
        if not log:
            return {"store": self.store}
        return {
            "store": self.store,
            "log": f"{counted(log['segments'], 'segment')}, offsets {log['first_offset']} to {log['end_offset']}",
            "stored": f"{log['first_time']} to {log['last_time']}",
            "queues": f"{counted(len(self.topics), 'topic')}, {counted(self.queues, 'queue')}",
            "messages": f"{self.messages:,}",
            "version": " or ".join(self.fits["versions"]) or "not known",
            "broker": self.broker or "none runs here",
            "problems": "; ".join(self.problems) or "none",
            "next": " && ".join(self.next["commands"]) or self.next["why"],
        }
