"""How a run of the API ends: with its result, or with an error of the package that has one."""

from __future__ import annotations

from typing import TypeVar

from rocketmq_reindex.jobs.api.ended import Ended, S
from rocketmq_reindex.jobs.api.results import Result, made
from rocketmq_reindex.jobs.command.failures import was_interrupted
from rocketmq_reindex.storage_format.errors import ReindexError

R = TypeVar("R", bound=Result)


def result_of(kind: type[R], ended: Ended[S]) -> R:
    """The result of a run. Raises ReindexError where the command would end with 1, 2 or 5, and KeyboardInterrupt."""
    result = made(kind, ended.summary, ended.lines)
    error = ended.error
    if error is not None and (ended.interrupted or was_interrupted(error)):
        raise KeyboardInterrupt from error
    message = getattr(ended.summary, "error", None)
    if error is None or message is None:
        return result
    if isinstance(error, ReindexError):
        error.result = result
        raise error
    raised = ReindexError(message)
    raised.result = result
    raise raised from error
