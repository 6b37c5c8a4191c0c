"""``info`` of the Python API, and what it returns."""

from dataclasses import dataclass
from typing import Any

from rocketmq_reindex.jobs.api import keywords as api_keywords, results, run_info as api_run_info
from rocketmq_reindex.jobs.describing.look import info_settings
from rocketmq_reindex.storage_format.names import counted

# ------------------------------------------------------------------------------------------------------------------ info_result
# What ``info`` of the Python API returns.


@dataclass(frozen=True, repr=False)
class InfoResult(results.Result):
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


# ------------------------------------------------------------------------------------------------------------------------- info
# ``info`` of the Python API.


@api_keywords.says_keywords
def info(store: api_keywords.PathLike, *, commitlog: api_keywords.Paths | None = None) -> InfoResult:
    """Say what is in a store, what is missing or stale, and what to run next, as ``rmq-reindex info`` does.

    No file is read whole: counts come from the ends of files, and from a sample of the log where queues have no files.

    Returns:
        What is known of the store. In a notebook it is shown as a table.

    Raises:
        UsageError: A keyword has a value that is not possible (exit status 2).
        InputError: ``store`` is no store, or cannot be read (exit status 1).

    Example:
        >>> import rocketmq_reindex as rr
        >>> found = rr.info("store")
        >>> found.log["segments"], found.log["end_offset"]
        (5, 4529583)
    """
    keywords = dict(locals())
    return api_keywords.result_of(
        InfoResult, api_run_info.run_info(lambda: info_settings(api_keywords.given("info", keywords)))
    )
