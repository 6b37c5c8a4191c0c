"""A broker that serves a store, and what its clients were given."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tests.serving.programs import Program
from tests.serving.stores import Key, Queue, options
from tests.tools.log_writer import Put


@dataclass(frozen=True)
class Pull:
    """One answer to a pull: what was asked for, the PullStatus, where to go on, and (queue offset, place) of each message."""

    queue: Queue
    offset: int
    status: str
    following: int
    messages: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Delivery:
    """One message as a listener got it."""

    queue: Queue
    offset: int
    place: int
    contents: str
    """a number for all but the place: properties, flag, times, hosts, reconsume times and body"""


def write_topics(store: Path, puts: Iterable[Put]) -> None:
    """config/topics.json as a broker keeps it: as many queues as the log names."""
    queues: dict[str, int] = {}
    for put in puts:
        assert isinstance(put.message.topic, str)
        queues[put.message.topic] = max(queues.get(put.message.topic, 0), put.message.queue_id + 1)
    table = {
        topic: {"topicName": topic, "readQueueNums": count, "writeQueueNums": count, "perm": 6,
                "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False}
        for topic, count in queues.items()
    }  # fmt: skip
    (store / "config").mkdir()
    (store / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))


class Broker:
    """A broker on ``store`` with a name server of its own, in the program ``Serve``; it ends with the ``with`` block."""

    def __init__(self, program: Program, name: str, store: Path, scratch: Path, *more: str, **sizes: int) -> None:
        self._program, self._name, self._scratch, self._closed = program, name, scratch, False
        end, *topics = program.step("boot", f"broker-{name}", store, *options(**sizes), *more).split(" ")
        self.end = int(end)
        self.topics = topics

    def __enter__(self) -> Broker:
        return self

    def close(self) -> None:
        """Stop it, and wait for all that it writes: seconds. The ``with`` block ends it then without a word."""
        self._program.step("stop", "wait")
        self._closed = True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self._closed:
            self._program.step("stop")

    def pulls(self, tags: str = "*", batch: int = 32) -> list[Pull]:
        """Every queue, pull by pull, from its begin to its end."""
        found = []
        for topic, queue, offset, status, following, *messages in self._lines("pull", tags, batch):
            numbers = [int(word) for word in messages]
            pairs = tuple(zip(numbers[::2], numbers[1::2], strict=True))
            found.append(Pull((topic, int(queue)), int(offset), status, int(following), pairs))
        return found

    def consumed(self, kind: str, due: int, quiet: int = 1500, *selected: str) -> list[Delivery]:
        """What a ``lite`` pull consumer, a ``push`` consumer or one that pops (``pop``) gets.

        It waits for ``due`` messages, however slow the machine, and then for ``quiet`` ms in which no more come. ``selected``
        are the group of a ``push`` consumer and the SQL92 expression of the messages that it takes.
        """
        return [Delivery((topic, int(queue)), int(offset), int(place), contents)
                for topic, queue, offset, place, contents in self._lines(kind, due, quiet, *selected)]  # fmt: skip

    def find(self, keys: Mapping[Key, set[int]]) -> dict[Key, list[int]]:
        """Physical offsets that the admin client finds for each key; a key of 32 characters is asked for as a UNIQ_KEY."""
        questions, answers = self._scratch / f"{self._name}.questions", self._scratch / f"{self._name}.answers"
        questions.write_text("".join(f"{topic}\t{'id' if len(key) == 32 else 'key'}\t{key}\n" for topic, key in keys))
        self._program.step("find", questions, answers)
        lines = answers.read_text().split("\n")[:-1]
        return {key: [int(word) for word in line.split(",") if word] for key, line in zip(keys, lines, strict=True)}

    def send(self, queue: Queue, prefix: str, count: int) -> list[int]:
        """Send messages with the keys PREFIX-0, PREFIX-1, ... and the tag PREFIX; where they lie in the log."""
        return [int(place) for place in self._program.step("send", *queue, prefix, count).split(",")]

    def offset_at(self, queue: Queue, time: int) -> int:
        """The queue offset from which a consumer that starts at a store time reads."""
        return int(self._program.step("time", *queue, time))

    def _lines(self, step: str, *words: str | int) -> list[list[str]]:
        out = self._scratch / f"{self._name}.{step}"
        self._program.step(step, out, *words)
        return [line.split("\t") for line in out.read_text().split("\n")[:-1]]


def by_queue(deliveries: Iterable[Delivery]) -> dict[Queue, list[tuple[int, int]]]:
    """(queue offset, place) of what came, in the order in which it came."""
    found: dict[Queue, list[tuple[int, int]]] = {}
    for delivery in deliveries:
        found.setdefault(delivery.queue, []).append((delivery.offset, delivery.place))
    return found


def by_pulls(pulls: Iterable[Pull]) -> dict[Queue, list[tuple[int, int]]]:
    """The same of pulls."""
    found: dict[Queue, list[tuple[int, int]]] = {}
    for pull in pulls:
        found.setdefault(pull.queue, []).extend(pull.messages)
    return found
