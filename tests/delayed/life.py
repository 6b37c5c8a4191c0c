"""A life of a broker: it is started on a store, sent messages, watched through its log, and killed."""

from __future__ import annotations

import contextlib
import json
import shutil
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType

from rocketmq_reindex.jobs.cli import main
from tests.delayed.log import Known, Stored, read_log
from tests.serving.broker import write_topics
from tests.serving.programs import PATIENCE, Program
from tests.tools.encode import Message
from tests.tools.log_writer import Put

SIZES = {"mappedFileSizeCommitLog": 1 << 17, "mappedFileSizeConsumeQueue": 6000, "maxHashSlotNum": 1000, "maxIndexNum": 20_000}
"""As broker.conf has them"""
UNREAD: dict[str, str | int] = {"timerFlushIntervalMs": 60_000}
"""Settings of a life without timer messages, or after which nobody reads its timer files: a broker compares 37 MB of its wheel
with the file each second, a quarter of one core."""

Settings = Mapping[str, str | int]


class Life:
    """A broker of ``version`` on ``store``, with ``settings`` of broker.conf. The end of the ``with`` block kills it."""

    def __init__(self, version: str, store: Path, scratch: Path, settings: Settings) -> None:
        self.store, self._scratch = store, scratch
        self._known: Known = {}
        self._program = Program(version, "Delayed", scratch)
        words = ",".join(f"{name}={value}" for name, value in (SIZES | dict(settings)).items())
        timers = [] if version.startswith("4.") else ["--timer-wheel"]
        began = time.monotonic()
        try:
            self._program.step("boot", "broker", store, *timers, "--set", words)
        except BaseException:
            self._program.kill()
            raise
        self._took = time.monotonic() - began

    @property
    def ahead(self) -> int:
        """Milliseconds in which this machine, as busy as it is, starts five such brokers; 30 s at least: it may become busier.

        What is due so late is not yet due when all is sent, looked at and, after a kill, sent to one more broker.
        """
        return int(1000 * max(30.0, 5 * self._took))

    def __enter__(self) -> Life:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._program.kill()

    def step(self, *words: str | int | Path) -> str:
        """A step of Delayed.java."""
        return self._program.step(*words)

    def send(self, lines: Iterable[str], how: str = "send") -> None:
        """Begin to send what Delayed.java's step ``how`` understands."""
        path = self._scratch / f"{how}.lines"
        path.write_text("".join(f"{line}\n" for line in lines))
        self.step(how, path)

    def stop(self) -> None:
        """Stop the broker as an operator does."""
        self.step("stop")

    def log(self) -> list[Stored]:
        """What it has stored so far."""
        return read_log(self.store / "commitlog", self._known)

    def wait(self, done: Callable[[list[Stored]], bool], what: str, patience: float = PATIENCE) -> list[Stored]:
        """The log, as soon as ``done`` says of it that all is there."""
        end = time.monotonic() + patience
        while True:
            # A record may be there in part: then a later look finds it whole.
            with contextlib.suppress(struct.error, UnicodeDecodeError, AssertionError):
                if done(log := self.log()):
                    return log
            assert time.monotonic() < end, f"after {patience} s there is not yet {what}"
            time.sleep(0.1)

    def settle(self, quiet: float = 1.5) -> bool:
        """Wait until the log has not grown for so many seconds; returns True."""
        last, since = -1, time.monotonic()
        while time.monotonic() - since < quiet:
            with contextlib.suppress(struct.error, UnicodeDecodeError, AssertionError):
                if (count := len(self.log())) != last:
                    last, since = count, time.monotonic()
            time.sleep(0.1)
        return True

    def pulled(self, topics: Iterable[str]) -> set[int]:
        """Physical offsets of the messages that a consumer gets; none comes twice."""
        out = self._scratch / "pulled"
        self.step("pull", out, *topics)
        places = [int(place) for line in out.read_text().splitlines() for place in line.split("\t")[6::2]]
        assert len(places) == len(set(places))
        return set(places)


def queues(topics: Mapping[str, int], store: Path) -> None:
    """config/topics.json with so many queues of each topic."""
    store.mkdir(parents=True, exist_ok=True)
    write_topics(store, [Put(0, 0, 0, Message(topic=topic, queue_id=count - 1)) for topic, count in topics.items()])


def pop_mode(store: Path, topic: str, group: str) -> None:
    """Have the broker tell clients of a group to pop (``MessageRequestModeManager``)."""
    mode = {"consumerGroup": group, "topic": topic, "mode": "POP", "popShareQueueNum": 0}
    (store / "config" / "messageRequestMode.json").write_text(json.dumps({"messageRequestModeMap": {topic: {group: mode}}}))


def restore(store: Path, version: str, settings: Settings, *options: str, keep_topics: bool = True) -> Path:
    """Leave nothing of ``store`` but its commitlog, build all else from that, and put it in place.

    Returns the manifest. Without ``keep_topics`` topics.json is what the build drafts.
    """
    out, conf = store.with_name("out"), store.with_name("broker.conf")
    shutil.rmtree(out, ignore_errors=True)
    conf.write_text("".join(f"{name}={value}\n" for name, value in (SIZES | dict(settings)).items()))
    topics = (store / "config" / "topics.json").read_bytes()
    for path in store.iterdir():
        if path.name != "commitlog":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    words = ["build", "--commitlog", str(store / "commitlog"), "--out", str(out), "--engine", "local"]
    words += ["--broker-conf", str(conf), "--broker-version", version[:3], *options]
    words += [] if keep_topics else ["--write-topics"]
    assert main(words) == 0
    for path in out.iterdir():
        if path.name != "reindex.json":
            shutil.move(path, store / path.name)
    if keep_topics:
        (store / "config").mkdir(exist_ok=True)
        (store / "config" / "topics.json").write_bytes(topics)
    return out / "reindex.json"
