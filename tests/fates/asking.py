"""The official gRPC client, in a process of its own: sends messages of each kind, consumes them, writes down what it sees.

    python -m tests.fates.asking ADDRESS LINES JOURNAL GROUP TOPIC

It consumes TOPIC. LINES has how, name, topic and fate of each message (``tests.fates.script``). It ends with its stdin.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

INVISIBLE = 10
"""Seconds for which a message that was received stays away from others: a proxy takes no less"""
WAITS = 3600
CHILD = "child"
"""a lite topic"""
DECISIONS = {"": "done", "put off": "again", "let go": "again"}


class Asking:
    """The producer and the consumer."""

    def __init__(self, address: str, journal: Path, group: str, topic: str, others: set[str]) -> None:
        from rocketmq.v5.client import ClientConfiguration, Credentials
        from rocketmq.v5.consumer import SimpleConsumer
        from rocketmq.v5.model import FilterExpression
        from rocketmq.v5.producer import Producer, TransactionChecker

        class Checker(TransactionChecker):  # type: ignore[misc]  # untyped
            def check(self, message: Any) -> Any:
                raise AssertionError(f"{message} was decided at once")

        self._journal, self._group, self.is_over = journal, group, False
        settings = ClientConfiguration(address, Credentials(), request_timeout=30)
        self._producer = Producer(settings, (topic, *others), checker=Checker())
        self._consumer = SimpleConsumer(settings, group, {topic: FilterExpression()}, await_duration=2)
        self._producer.startup()
        self._consumer.startup()

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

    def consume(self) -> None:
        """Receive until the end."""
        while not self.is_over:
            self._receive()

    def _receive(self) -> None:
        try:
            for message in self._consumer.receive(16, INVISIBLE):
                self._take(message)
        except Exception:  # noqa: BLE001  a proxy that is not ready, or busy, is asked again
            traceback.print_exc()
            time.sleep(0.5)

    def _take(self, message: Any) -> None:
        times = message.delivery_attempt - 1
        fate = message.properties.get("FATE", "") if times == 0 else ""
        self._note("got", self._group, message.message_id, times, DECISIONS[fate])
        if fate == "":
            self._consumer.ack(message)
        elif fate == "put off":
            self._consumer.change_invisible_duration(message, INVISIBLE)


def main() -> None:
    address, lines, journal, group, topic = sys.argv[1:]
    asked = [line.split("\t") for line in Path(lines).read_text().splitlines()]
    asking = Asking(address, Path(journal), group, topic, {words[2] for words in asked} - {topic})
    consuming = threading.Thread(target=asking.consume, daemon=True)
    consuming.start()
    for words in asked:
        asking.send(*words)
    sys.stdin.read()
    asking.is_over = True
    consuming.join(60)
    # Its own threads of gRPC would keep it.
    os._exit(0)


if __name__ == "__main__":
    main()
