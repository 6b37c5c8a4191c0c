"""What ``preflight`` of the Python API returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rocketmq_reindex.jobs.api.results import Result


@dataclass(frozen=True, repr=False)
class PreflightResult(Result):
    """What the start of a broker will do to a store.

    ``exit_status`` is 0 where the start loses nothing, and 4 where it loses or hides something or does not come about. Offsets
    are bytes of the log or queue offsets; -1 stands for what is not known or was not counted. Without ``loads`` the start's
    parts are None or empty.
    """

    version: str
    """of rocketmq-reindex"""
    store: str
    release: str
    """the release of RocketMQ whose start is worked out"""
    release_from: str
    """where it comes from, in words: the option, or the default and what the store's files fit"""
    abort: bool
    """the start is one after an unclean stop"""
    sizes: dict[str, int]
    """the broker's settings for its files, and ``recover_max_segments``"""
    loads: bool
    """the store loads, and the broker starts"""
    refusals: list[dict[str, Any]]
    """why it does not: ``kind``, ``path``, ``detail``"""
    log: dict[str, Any] | None
    """where the recovery begins, where the log is cut, and what is deleted"""
    dispatch: dict[str, Any] | None
    """what is dispatched again, and what is not"""
    queues: list[dict[str, Any]]
    """what consumers will see of each queue, and what the log holds"""
    index: dict[str, Any] | None
    """IndexFiles that are deleted, and items that are lost"""
    delayed: list[dict[str, Any]]
    """delayed messages by level"""
    timers: dict[str, Any] | None
    """timer messages"""
    losses: list[dict[str, Any]]
    """what is lost or hidden: ``kind``, ``count``, ``text``, ``advice``, ``commands``"""
    warnings: list[dict[str, Any]]
    """the same of what costs no message"""
    notes: list[str]
    seconds: float
    error: str | None

    def _order(self, names: list[str]) -> list[str]:
        return [*names[:-1], "exit", "error"]

    def _facts(self) -> dict[str, str]:
        return {
            "release": self.release,
            "loads": "yes" if self.loads else "no",
            "losses": ", ".join(each["kind"] for each in self.losses) or "none",
        }
