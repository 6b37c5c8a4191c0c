"""The official gRPC client, in a process of its own: sends messages of each kind, consumes them, writes down what it sees.

    python -m tests.fates.asking ADDRESS LINES JOURNAL PAUSE KIND=GROUP=TOPIC...

It consumes each TOPIC: as grpc or in turns, whose group is one that POPs in order, or lite, where TOPIC is the light queue of
``tests.fates.script.CHILD``. LINES has how, name, topic and fate of each message (``tests.fates.script``), which are sent PAUSE
seconds apart. It ends with its stdin.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.fates.script import CHILD, LITE

INVISIBLE = 10
"""Seconds for which a message that was received stays away from others: a proxy takes no less"""
WAITS = 3600
DECISIONS = {"": "done", "put off": "again", "let go": "again"}


def _patiently(call: Callable[[], object]) -> None:
    """Call until it works: a broker may be killed meanwhile, and each of them has to answer."""
    end = time.monotonic() + 240
    while True:
        try:
            call()
            return
        except Exception:
            traceback.print_exc()
            if time.monotonic() > end:
                raise
        time.sleep(0.5)


class Asking:
    """The producer and the consumer."""

    def __init__(self, address: str, journal: Path, groups: list[list[str]], asked: list[list[str]]) -> None:
        from rocketmq.grpc_protocol import TransactionResolution
        from rocketmq.v5.client import ClientConfiguration, Credentials
        from rocketmq.v5.consumer import ConsumeResult, LitePushConsumer, MessageListener, SimpleConsumer
        from rocketmq.v5.model import FilterExpression
        from rocketmq.v5.producer import Producer, TransactionChecker

        decided = {name: how for how, name, *_ in asked}

        class Checker(TransactionChecker):  # type: ignore[misc]  # untyped
            """A broker asks where the answer did not reach it."""

            def check(_self, message: Any) -> Any:
                how = decided[message.body.decode()]
                self._note("decided", message.message_id, how)
                return TransactionResolution.Value(how.upper())

        class Listener(MessageListener):  # type: ignore[misc]  # untyped
            """Of a lite consumer."""

            def __init__(_self, group: str) -> None:
                _self._group = group

            def consume(_self, message: Any) -> Any:
                return ConsumeResult.SUCCESS if self._decide(_self._group, message) == "" else ConsumeResult.FAILURE

        self._journal, self.is_over = journal, False
        settings = ClientConfiguration(address, Credentials(), request_timeout=30)
        topics = {words[2] for words in asked} | {LITE if kind == "lite" else topic for kind, _, topic in groups}
        self._producer = Producer(settings, topics, checker=Checker())
        self._producer.startup()
        self.consumers: dict[str, Any] = {}
        self._lite = [LitePushConsumer(settings, group, LITE, Listener(group)) for kind, group, _ in groups if kind == "lite"]
        for consumer in self._lite:
            consumer.startup()
            _patiently(partial(consumer.subscribe_lite, CHILD))
        for _, group, topic in (words for words in groups if words[0] != "lite"):
            self.consumers[group] = SimpleConsumer(settings, group, {topic: FilterExpression()}, await_duration=2)
            self.consumers[group].startup()

    def _note(self, *words: object) -> None:
        line = "\t".join(map(str, words)) + "\n"
        descriptor = os.open(self._journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, line.encode())
        os.close(descriptor)

    def send(self, how: str, name: str, topic: str, fate: str) -> None:
        """Send a message, and decide it or take it back where it says so. Where no answer comes, nobody knows."""
        try:
            self._send(how, name, topic, fate)
        except Exception as error:  # noqa: BLE001  told
            traceback.print_exc()
            self._note("failed", how, name, " ".join(str(error).split()))

    def _send(self, how: str, name: str, topic: str, fate: str) -> None:
        from rocketmq.v5.model import Message

        message = Message()
        message.topic, message.body, message.keys = topic, name.encode(), f"every {name}"
        if fate:
            message.add_property("FATE", fate)
        if how == "fifo":
            message.message_group = "one"
        elif how == "turn":
            message.message_group = f"group-{len(name) % 2}-{name[-1]}"
        elif how == "lite":
            message.lite_topic = CHILD
        elif how in ("delay", "delay waits", "recall by grpc"):
            message.delivery_timestamp = int(time.time()) + (2 if how == "delay" else WAITS)
        transaction = self._producer.begin_transaction() if how in ("commit", "rollback") else None
        receipt = self._producer.send(message, transaction)
        key = receipt.message_id
        self._note("named", key, name)
        self._note("sent", how, key, topic, "", 0, receipt.offset, "SEND_OK")
        if transaction is not None:
            self._note("decided", key, how)
            transaction.commit() if how == "commit" else transaction.rollback()
        if how == "recall by grpc":
            self._note("recalling", key)
            self._producer.recall_message(topic, receipt.recall_handle)
            self._note("recalled", key)

    def consume(self, group: str) -> None:
        """Receive until the end."""
        while not self.is_over:
            self._receive(group)

    def _receive(self, group: str) -> None:
        try:
            for message in self.consumers[group].receive(16, INVISIBLE):
                self._take(group, message)
        except Exception:  # noqa: BLE001  a proxy that is not ready, or busy, is asked again
            traceback.print_exc()
            time.sleep(0.5)

    def _decide(self, group: str, message: Any) -> str:
        times = message.delivery_attempt - 1
        fate = message.properties.get("FATE", "") if times == 0 else ""
        self._note("got", group, message.message_id, times, DECISIONS[fate])
        return fate

    def _take(self, group: str, message: Any) -> None:
        fate = self._decide(group, message)
        if fate == "":
            self.consumers[group].ack(message)
        elif fate == "put off":
            self.consumers[group].change_invisible_duration(message, INVISIBLE)


def main() -> None:
    address, lines, journal, pause, *groups = sys.argv[1:]
    asked = [line.split("\t") for line in Path(lines).read_text().splitlines()]
    asking = Asking(address, Path(journal), [words.split("=") for words in groups], asked)
    consuming = [threading.Thread(target=asking.consume, args=[group], daemon=True) for group in asking.consumers]
    for one in consuming:
        one.start()
    for words in asked:
        asking.send(*words)
        time.sleep(float(pause))
    sys.stdin.read()
    asking.is_over = True
    for one in consuming:
        one.join(60)
    # Its own threads of gRPC would keep it.
    os._exit(0)


if __name__ == "__main__":
    main()
