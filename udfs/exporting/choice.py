"""Which messages an export takes.

By itself: a command has it before anything slow is imported, and so have its tasks.
"""

from __future__ import annotations

from dataclasses import dataclass

from rocketmq_reindex.storage_format import layouts, topics as names
from rocketmq_reindex.storage_format.record import meaning
from rocketmq_reindex.storage_format.record.selector import Selector


@dataclass(frozen=True)
class Choice:
    """Which of the messages that are read are taken. What is empty, or None, takes all.

    ``kinds`` are those of ``record.meaning``. Offsets are queue offsets: from ``begin_offset`` on, and below ``end_offset``.
    ``text`` is part of the body, ``regex`` an expression of RE2 that finds something in it. ``selector`` is
    asked of the properties.
    """

    topics: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    queue: int | None = None
    begin_offset: int = 0
    end_offset: int = layouts.INT64_MAX
    tags: tuple[str, ...] = ()
    text: str | None = None
    regex: str | None = None
    selector: Selector | None = None
    undecided: bool = False
    """half messages alone that nobody has decided"""
    unconsumed_by: str | None = None
    """messages alone that this group has not been given"""

    @property
    def taken_kinds(self) -> frozenset[str]:
        """The kinds that are taken: without any named, those of the named topics, or else messages as clients get them."""
        if self.undecided:
            return frozenset({meaning.HALF})
        if self.kinds:
            return frozenset(self.kinds)
        if self.unconsumed_by is not None:
            return frozenset({meaning.MESSAGE, meaning.RETRY})
        return frozenset(map(meaning.kind_of, self.topics)) or frozenset({meaning.MESSAGE})

    @property
    def read_topics(self) -> tuple[str, ...]:
        """The topics that are read: with those where messages of the named ones may wait, so that they can be counted."""
        if self.undecided:
            return (names.HALF_TOPIC,)
        again = () if self.unconsumed_by is None else (f"{names.RETRY_PREFIX}*",)
        return () if self.kinds or not self.topics else (*self.topics, *sorted(names.WAITING_TOPICS), *again)

    @property
    def needs_body(self) -> bool:
        """Whether it is looked into the bodies."""
        return self.text is not None or self.regex is not None
