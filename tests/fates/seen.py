"""What clients wrote down of what they saw: sends that were answered, decisions, and messages that they were given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Acknowledged:
    """A send that the broker answered, and where it says the message lies."""

    how: str
    topic: str
    broker: str
    queue: int
    offset: int


@dataclass(frozen=True)
class Given:
    """A message as a client got it, and what it did: done, again, dead, or what a gRPC client can do."""

    group: str
    times: int
    decision: str


@dataclass
class Seen:
    """All that clients saw, by unique key."""

    sent: dict[str, Acknowledged] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    recalling: set[str] = field(default_factory=set)
    recalled: set[str] = field(default_factory=set)
    decided: dict[str, list[str]] = field(default_factory=dict)
    given: dict[str, list[Given]] = field(default_factory=dict)
    named: dict[str, str] = field(default_factory=dict)
    """names of messages whose keys their client made"""

    def groups(self, key: str) -> set[str]:
        """Groups that got a message."""
        return {given.group for given in self.given.get(key, ())}

    def of_group(self, key: str, group: str) -> list[Given]:
        """What a group saw of a message."""
        return [given for given in self.given.get(key, ()) if given.group == group]

    def is_done(self, key: str, group: str) -> bool:
        """Whether the group needs nothing more of it."""
        return any(given.decision in ("done", "dead") for given in self.of_group(key, group))


def read(journal: Path) -> Seen:
    """What stands in the file so far: FatedClients.java says how."""
    seen = Seen()
    for words in _lines(journal):
        what, *rest = words
        if what == "sent":
            how, key, topic, broker, queue, offset, status = rest
            assert status == "SEND_OK", words
            seen.sent[key] = Acknowledged(how, topic, broker, int(queue), int(offset))
        elif what == "failed":
            seen.failed.add(rest[1])
        elif what == "named":
            seen.named[rest[0]] = rest[1]
        elif what == "recalling":
            seen.recalling.add(rest[0])
        elif what == "recalled":
            seen.recalled.add(rest[0])
        elif what == "decided":
            seen.decided.setdefault(rest[0], []).append(rest[1])
        else:
            group, key, times, decision = rest
            seen.given.setdefault(key, []).append(Given(group, int(times), decision))
    return seen


def _lines(journal: Path) -> Iterator[list[str]]:
    if journal.exists():
        # A kill may cut the last line.
        for line in journal.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                yield line.rstrip("\n").split("\t")
