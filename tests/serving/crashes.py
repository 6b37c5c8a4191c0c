"""Stores that are opened, put more records and killed, with all that must be found in them afterwards."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.serving.programs import Program
from tests.serving.stores import Key, Queue, ask, keys_of, lost, options, queues_of, twice, wrong
from tests.tools.log_writer import Put

MORE = 50
TOPIC = "orders-0"
ALL = "maxMsgsNumBatch=100000"
"""with it a store answers with every record of a tag"""


@dataclass
class Due:
    """What is in the log: where the records with each key and each tag lie, and those of each queue."""

    keys: dict[Key, set[int]]
    tags: dict[Key, set[int]]
    queues: dict[Queue, list[int]]

    @property
    def records(self) -> int:
        return sum(map(len, self.queues.values()))

    def copy(self, *, tags: bool) -> Due:
        """Without ``tags``: no index has those so far."""
        queues = {queue: list(places) for queue, places in self.queues.items()}
        return Due(dict(self.keys), {tag: set(places) for tag, places in self.tags.items()} if tags else {}, queues)


def due_of(puts: Iterable[Put]) -> Due:
    puts = list(puts)
    tags: dict[Key, set[int]] = {}
    for put in puts:
        assert isinstance(put.message.properties, Mapping)
        assert isinstance(put.message.topic, str)
        tags.setdefault((put.message.topic, put.message.properties["TAGS"]), set()).add(put.offset)
    return Due(keys_of(puts), tags, {queue: [put.offset for put in of_queue] for queue, of_queue in queues_of(puts).items()})


@dataclass
class Store:
    """A store under test, with what must be found in it. ``settings`` are lines of its broker.conf."""

    name: str
    path: Path
    due: Due
    sizes: dict[str, int] = field(default_factory=dict)
    settings: tuple[str, ...] = ()
    crashes: int = 0

    def words(self) -> list[str]:
        return [*options(**self.sizes), "--set", ",".join([ALL, *self.settings])]

    def open(self, program: Program) -> None:
        program.step("open", self.name, self.path, *self.words())

    def loads(self, program: Program) -> bool:
        """Whether a start comes to its end. A store that does not load can be tried once in a program."""
        return program.step("loads", self.name, self.path, *self.words()) == "true"

    def add(self, program: Program, session: str) -> None:
        """Put records, which must be found from now on."""
        prefix = f"{self.name}-{session}"
        offsets = [int(offset) for offset in program.step("put", self.name, TOPIC, prefix, MORE).split(",")]
        for number, offset in enumerate(offsets):
            for key in (f"{prefix}-{number}", f"{prefix}-id-{number}"):
                self.due.keys[TOPIC, key] = {offset}
        self.due.tags[TOPIC, prefix] = set(offsets)
        self.due.queues[TOPIC, 0] += offsets

    def found(self, program: Program, scratch: Path) -> tuple[int, int, int]:
        """How many records a key leads to, how many keys are lost, and how many answers are wrong."""
        answers = ask(program, self.name, self.due.keys, scratch)
        # IndexService.buildIndex indexes the last record of a file again after a crash: that one comes twice.
        assert len({place for key in twice(answers) for place in answers[key] if answers[key].count(place) > 1}) <= self.crashes
        reached = {place for places in answers.values() for place in places}
        return len(reached), len(lost(self.due.keys, answers)), len(wrong(self.due.keys, answers))

    def served(self, program: Program) -> int:
        """How many messages are served: each queue's from its first offset to its last, which must be those of the log."""
        answers = program.step("serve", self.name, *(word for queue in self.due.queues for word in queue)).split(" ")
        served = {
            queue: [int(place) for place in line.split(",")] for queue, line in zip(self.due.queues, answers, strict=True)
        }
        assert served == self.due.queues, self.name
        return sum(map(len, served.values()))

    def is_whole(self, program: Program, scratch: Path, when: str, *, by_tag: bool) -> None:
        """Every message is served at its offset, every key is found and, ``by_tag``, every tag."""
        assert self.found(program, scratch) == (self.due.records, 0, 0), f"{self.name} {when}"
        assert self.served(program) == self.due.records, f"{self.name} {when}"
        if by_tag:
            answers = ask(program, self.name, self.due.tags, scratch, kind="T")
            lacking = [tag for tag, places in self.due.tags.items() if not places <= set(answers[tag])]
            assert (lacking, wrong(self.due.tags, answers)) == ([], []), f"{self.name} {when}"


def crash(*crashed: Store) -> None:
    for store in crashed:
        store.crashes += 1


def copied(log: Path, into: Path, due: Due, *names: str) -> list[Store]:
    """Stores of one log, bare."""
    stores = [Store(name, into / name, due.copy(tags=True)) for name in names]
    for store in stores:
        shutil.copytree(log, store.path)
    return stores
