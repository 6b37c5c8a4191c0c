"""``preflight`` of the Python API, and what it returns."""

from dataclasses import dataclass
from typing import Any

from rocketmq_reindex.jobs.api import keywords as api_keywords, results, run_preflight as api_run_preflight
from rocketmq_reindex.jobs.command import option
from rocketmq_reindex.jobs.preflighting.options import preflight_settings

# ------------------------------------------------------------------------------------------------------------- preflight_result
# What ``preflight`` of the Python API returns.


@dataclass(frozen=True, repr=False)
class PreflightResult(results.Result):
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

    def _facts(self) -> dict[str, str]:
        return {
            "release": self.release,
            "loads": "yes" if self.loads else "no",
            "losses": ", ".join(each["kind"] for each in self.losses) or "none",
        }


# -------------------------------------------------------------------------------------------------------------------- preflight
# ``preflight`` of the Python API.


@api_keywords.says_keywords
def preflight(
    store: api_keywords.PathLike | None = None,
    *,
    broker_version: str | None = None,
    abort: option.Abort | None = None,
    broker_conf: api_keywords.PathLike | None = None,
    commitlog: api_keywords.Paths | None = None,
    segment_size: api_keywords.Size | None = None,
    cq_file_size: api_keywords.Size | None = None,
    batch_cq_file_size: api_keywords.Size | None = None,
    hash_slots: api_keywords.Size | None = None,
    index_items: api_keywords.Size | None = None,
    count_limit: api_keywords.Size | None = None,
) -> PreflightResult:
    """Say what the start of a broker will do to a store, as ``rmq-reindex preflight`` does: no broker, no Spark, no writing.

    Returns:
        All that the start does. Its ``exit_status`` is 0 where it loses nothing, and 4 where it loses or hides something or
        does not come about.

    Raises:
        UsageError: A keyword has a value that is not possible (exit status 2).
        InputError: The store cannot be read, changes while it is read, or belongs to a broker that ``preflight`` does not
            know (exit status 1).

    Example:
        >>> import rocketmq_reindex as rr
        >>> found = rr.preflight("store", broker_version="5.3.3")
        >>> found.loads, found.exit_status
        (True, 0)
    """
    keywords = dict(locals())
    return api_keywords.result_of(
        PreflightResult,
        api_run_preflight.run_preflight(lambda: preflight_settings(api_keywords.given("preflight", keywords)), quiet=True),
    )
