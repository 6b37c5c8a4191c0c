"""What a preflight says, as --json prints it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rocketmq_reindex import __version__
from rocketmq_reindex.storage_format.start.prediction import QueueOutcome

_OF_QUEUE: Final = tuple(one.name for one in dataclasses.fields(QueueOutcome))


@dataclass
class PreflightSummary:
    """The answer; true at every moment, also when the run fails."""

    version: str = __version__
    store: str = ""
    release: str = ""
    """the release whose start is worked out"""
    release_from: str = ""
    """where it comes from, in words: the option, or the default and what the store's files fit"""
    abort: bool = False
    """the start is one after an unclean stop"""
    sizes: dict[str, int] = field(default_factory=dict)
    """settings of the broker: of the files, and ``recover_max_segments``"""
    loads: bool = False
    refusals: list[dict[str, Any]] = field(default_factory=list)
    log: dict[str, Any] | None = None
    dispatch: dict[str, Any] | None = None
    queues: Sequence[dict[str, Any]] = field(default_factory=list)
    index: dict[str, Any] | None = None
    delayed: list[dict[str, Any]] = field(default_factory=list)
    timers: dict[str, Any] | None = None
    losses: list[dict[str, Any]] = field(default_factory=list)
    """kinds of loss, or reasons not to start: each with ``kind``, ``count``, ``text``, ``advice``, ``commands``"""
    warnings: list[dict[str, Any]] = field(default_factory=list)
    """the same of what costs no message"""
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    exit: int = 1
    error: str | None = None


def plain(found: Any) -> dict[str, Any]:
    """A dataclass as JSON would give it back: dicts and lists."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in dataclasses.asdict(found).items()}


def shallow(queue: QueueOutcome) -> dict[str, Any]:
    """A queue as JSON would give it back: ``plain`` for the one kind of which there may be hundreds of thousands."""
    return {name: getattr(queue, name) for name in _OF_QUEUE}
