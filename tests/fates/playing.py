"""A script played by real clients on real brokers, which may be killed amid it and started again."""

from __future__ import annotations

import contextlib
import json
import os
import random
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests import ROOT
from tests.delayed.log import Known, read_log
from tests.fates.script import LITE, Script, Sending
from tests.fates.seen import Seen, read
from tests.serving.programs import Program

VERSION = "5.5.0"
"""The newest of which Maven Central has broker, proxy, client and admin tools"""
TRACED = "RMQ_SYS_TRACE_TOPIC"
PATIENCE = 300.0
"""Seconds; the machine may be busy"""
ASKING = ("grpc", "turns", "lite")
"""kinds of groups of the gRPC client"""
DECIDED = ("transact", "commit")
QUIET = 3.0
"""Seconds without a new record: longer than a client keeps traces, or a broker op messages"""


@dataclass(frozen=True)
class Played:
    """The stores that a script left, what its clients saw, and what ``mqadmin queryMsgTraceById`` printed of each message."""

    script: Script
    stores: dict[str, Path]
    seen: Seen
    printed: dict[str, str]

    @property
    def sendings(self) -> dict[str, Sending]:
        """What was drawn, by unique key."""
        return _by_key(self.script, self.seen)


def play(script: Script, scratch: Path, asked: int = 5) -> Played:
    """Play it to its end; ``mqadmin`` is asked for so many messages, each of which takes it a second."""
    stores = {name: scratch / name for name in script.brokers}
    for store in stores.values():
        _configure(script, store)
    life = _Life(script, stores, scratch, asked)
    try:
        for number, part in enumerate(script.parts):
            life.run(number, part)
        printed = life.end()
    finally:
        life.kill()
    return Played(script, stores, life.seen(), printed)


def _by_key(script: Script, seen: Seen) -> dict[str, Sending]:
    drawn = script.sendings
    named = {key: drawn[name] for key, name in seen.named.items()}
    return {key: sending for key, sending in drawn.items() if sending.broker} | named


def _configure(script: Script, store: Path) -> None:
    (store / "config").mkdir(parents=True)
    # Of a topic that comes later clients know nothing for seconds.
    retries = {f"%RETRY%{group.name}": 1 for group in script.groups if group.kind != "light"}
    table = {
        name: {"topicName": name, "readQueueNums": count, "writeQueueNums": count, "perm": 6, "topicFilterType": "SINGLE_TAG",
               "topicSysFlag": 0, "order": False, "attributes": {"message.type": "LITE" if name == LITE else "MIXED"}}
        for name, count in (script.topics | {TRACED: 1} | retries).items()
    }  # fmt: skip
    (store / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))
    modes: dict[str, dict[str, dict[str, object]]] = {}
    for group in script.groups:
        for topic in group.topics if group.kind == "pop" else ():
            mode = {"consumerGroup": group.name, "topic": topic, "mode": "POP", "popShareQueueNum": 0}
            modes.setdefault(topic, {})[group.name] = mode
    orders = {
        group.name: {"groupName": group.name, "consumeMessageOrderly": group.kind == "turns",
                     "attributes": {"lite.bind.topic": LITE} if group.kind == "lite" else {}}
        for group in script.groups if group.kind in ("turns", "lite")
    }  # fmt: skip
    if orders:
        (store / "config" / "subscriptionGroup.json").write_text(json.dumps({"subscriptionGroupTable": orders}))
    (store / "config" / "messageRequestMode.json").write_text(json.dumps({"messageRequestModeMap": modes}))


class _Life:
    def __init__(self, script: Script, stores: dict[str, Path], scratch: Path, asked: int) -> None:
        self._asked = asked
        self._script, self._stores, self._scratch = script, stores, scratch
        self._journal = scratch / "journal"
        self._known: dict[str, Known] = {name: {} for name in stores}
        self._rng = random.Random(script.seed)
        self._ended: set[str] = set()
        self._lone: Program | None = None
        self._asking: subprocess.Popen[str] | None = None
        self._program = self._start()
        try:
            if script.lone:
                self._lone = self._start_lone()
            self._asking = self._ask() if script.grpc else None
        except BaseException:
            self.kill()
            raise

    def _ask(self) -> subprocess.Popen[str]:
        """Begin what the gRPC client does, or go on with it."""
        lines, seen = self._scratch / "asked", self.seen()
        left = [sending for sending in self._script.grpc if sending.key not in {*seen.named.values(), *seen.failed}]
        lines.write_text("".join(f"{sending.how}\t{sending.key}\t{sending.topic}\t{sending.fate}\n" for sending in left))
        groups = [f"{group.kind}={group.name}={group.topics[0]}" for group in self._script.groups if group.kind in ASKING]
        pause = "0.3" if self._script.is_killed or self._script.lone else "0"
        address = f"127.0.0.1:{self._program.step('proxy')}"
        words = [sys.executable, "-m", "tests.fates.asking", address, str(lines), str(self._journal), pause, *groups]
        # The client opens a log file below the user's home.
        more = {"HOME": str(self._scratch), "PYTHONPATH": str(ROOT)}
        with (self._scratch / "asking.log").open("a") as log:
            return subprocess.Popen(
                words, stdin=subprocess.PIPE, stderr=log, text=True, env=os.environ | more, start_new_session=True
            )

    @property
    def _settings(self) -> tuple[str, str, str]:
        return "--timer-wheel", "--set", ",".join(f"{name}={value}" for name, value in self._script.settings.items())

    def _start(self) -> Program:
        program = Program(VERSION, "Fated", self._scratch, heap="1g")
        try:
            for name, store in self._stores.items():
                if name != self._script.lone:
                    program.step("boot", name, store, *self._settings)
            program.step("clients", self._journal)
        except BaseException:
            program.kill()
            raise
        return program

    def _start_lone(self) -> Program:
        """The broker that is killed alone has a process of its own."""
        name = self._script.lone
        assert name is not None
        (self._scratch / "lone").mkdir(exist_ok=True)
        program = Program(VERSION, "Fated", self._scratch / "lone", heap="1g")
        try:
            address = self._program.step("name server")
            program.step("boot", name, self._stores[name], *self._settings, "--name-server", address)
            end = time.monotonic() + PATIENCE
            while self._program.step("knows", name) != "true":
                assert time.monotonic() < end, f"the name server does not know broker {name}"
                program.step("register", name)
                time.sleep(0.1)
        except BaseException:
            program.kill()
            raise
        return program

    def kill(self) -> None:
        self._program.kill()
        if self._lone is not None:
            self._lone.kill()
        self._end_asking()

    def _end_asking(self) -> None:
        if self._asking is not None:
            self._asking.kill()
            self._asking.communicate()

    def seen(self) -> Seen:
        return read(self._journal)

    def _consume(self) -> None:
        for group in self._script.groups:
            if group.kind == "light":
                self._program.step("consume", "light", group.name, ",".join([LITE, *self._stores]), *group.topics)
            elif group.kind not in ASKING and group.name not in self._ended:
                traits = ",".join(["-", *["stubborn"] * group.stubborn, *["traced"] * group.traced])
                self._program.step("consume", group.kind, group.name, traits, *group.topics)

    def run(self, number: int, part: tuple[Sending, ...]) -> None:
        """Send a part; all but the last one end as the script says."""
        script, path = self._script, self._scratch / "lines"
        is_last = number == len(script.parts) - 1
        begins_full = number == 0 and script.emptied is not None
        if is_last:
            self._end_groups()
        if (number == 0 or script.is_killed) and not begins_full:
            self._consume()
        path.write_text("".join(f"{sending.line(script.pause)}\n" for sending in part))
        before = len(self.seen().sent)
        self._program.step("send", path)
        if (script.is_killed and not is_last) or (script.lone and number == 0):
            # The kill falls anywhere: amid the sends, or while consumers work.
            share, after = self._rng.random(), self._rng.choice((0.0, 0.5, 2.0))
            self._wait(lambda seen: len(seen.sent) - before >= share * len(part) or _is_sent(part, seen), "some messages sent")
            time.sleep(after)
            if self._lone is not None:
                self._lone.kill()
                self._lone = None
                return
            # The gRPC client tells another proxy who it is only after minutes: a new one goes on.
            self._program.kill()
            self._end_asking()
            self._program = self._start()
            self._asking = self._ask() if script.grpc else None
            return
        self._program.step("sent")
        if script.lone and not is_last:
            self._lone = self._start_lone()
        if script.emptied is not None and not is_last:
            self._program.step("empty", script.emptied)
            self._consume()

    def _end_groups(self) -> None:
        """Groups that end before the last part have got something by then, if there was something."""
        for group in self._script.groups:
            if group.ends:
                if not self._script.is_killed:
                    self._program.step("end", group.name)
                self._ended.add(group.name)

    def end(self) -> dict[str, str]:
        """All comes to its end, and so do clients and brokers."""
        self._wait(self._is_done, "each message where it belongs")
        if self._script.end == "killed":
            self._program.kill()
            return {}
        self._settle()
        if self._asking is not None:
            self._asking.communicate(timeout=PATIENCE)
        self._program.step("part")
        self._settle()
        ids = self._scratch / "ids"
        sent = sorted(self.seen().sent)
        ids.write_text("".join(f"{key}\n" for key in self._rng.sample(sent, min(len(sent), self._asked))))
        self._program.step("mqadmin", self._scratch / "printed", ids)
        if self._lone is not None:
            self._lone.step("stop")
        self._program.step("stop")
        return {path.name: path.read_text() for path in (self._scratch / "printed").iterdir()}

    def _is_done(self, seen: Seen) -> bool:
        return not self._open(seen)

    def _open(self, seen: Seen) -> list[str]:
        """What has not come yet of what was acknowledged."""
        script = self._script
        sendings = _by_key(script, seen)
        known = [
            (key, sending) for key, sending in sendings.items() if key in seen.sent and sending.key not in seen.failed
            and not (script.is_lone_dead and script.is_harmed(seen.sent[key].broker))
        ]  # fmt: skip
        harmed = {
            key for key, _ in known if script.is_harmed(seen.sent[key].broker) or (script.lone and not seen.sent[key].broker)
        }
        wanted = [
            f"{group.name} {key}" for key, sending in known if sending.reaches for group in script.groups
            if not sending.queues.isdisjoint(group.topics) and not group.ends and group.kind != "broadcast"
            and not seen.is_done(key, group.name)
            # What was decided amid a kill is lost to the broker, until it asks again.
            and not (sending.how in DECIDED and key in harmed)
        ]  # fmt: skip
        wanted += [key for key in seen.recalling - seen.recalled if not (script.is_killed or script.lone)]
        wanted += [
            key for key, sending in known if sending.how == "transact" and key not in harmed
            and script.settings["transactionTimeOut"] == 1500 and set(seen.decided[key]) == {"unknow"}
        ]  # fmt: skip
        wanted += [sending.key for sending in script.grpc if sending.key not in {*seen.named.values(), *seen.failed}]
        return wanted

    def _wait(self, done: Callable[[Seen], bool], what: str) -> None:
        end = time.monotonic() + PATIENCE
        while not done(seen := self.seen()):
            assert self._asking is None or self._asking.poll() is None, (self._scratch / "asking.log").read_text()[-2000:]
            assert time.monotonic() < end, f"after {PATIENCE} s there is not yet {what}: {self._open(seen)[:10]}"
            time.sleep(0.1)

    def _settle(self) -> None:
        last, since, end = -1, time.monotonic(), time.monotonic() + PATIENCE
        while time.monotonic() - since < QUIET and time.monotonic() < end:
            # A record may be there in part: then a later look finds it whole.
            with contextlib.suppress(struct.error, UnicodeDecodeError, AssertionError):
                if (count := self._count()) != last:
                    last, since = count, time.monotonic()
            time.sleep(0.1)

    def _count(self) -> int:
        return sum(len(read_log(store / "commitlog", self._known[name])) for name, store in self._stores.items())


def _is_sent(part: tuple[Sending, ...], seen: Seen) -> bool:
    return all(sending.key in seen.sent or sending.key in seen.failed for sending in part)
