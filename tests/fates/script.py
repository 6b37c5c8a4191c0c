"""What a seed draws: topics, groups and messages of mixed fates, and what befalls the brokers meanwhile."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

from tests.delayed.life import UNREAD

HOUR = 3_600_000
LEVELS = " ".join(["1s"] * 12 + ["3h"])
"""The client waits for level 3 + attempt where it sends a message back by itself: all but the last are short."""
LONG_LEVEL = 13
LITE = "Lite"
"""a topic whose messages lie in light queues of their own, one for each lite topic"""
CHILD = "child"
"""a lite topic"""
LONE = "b"
"""the broker that may be killed while the other one and all clients live on"""
ENDS = ("stopped", "killed")


@dataclass(frozen=True)
class Group:
    """A consumer group. One that ``ends`` does so before the last part.

    ``kind``: push, order, broadcast or pop; light, whose topics are light queues; or of the gRPC client grpc, turns (POP in
    order) or lite.
    """

    name: str
    kind: str
    topics: tuple[str, ...]
    stubborn: bool
    traced: bool
    ends: bool = False


@dataclass(frozen=True)
class Sending:
    """A message. ``how``: queue, order, any, transact or recall by the Java client, else of the gRPC client.

    ``reaches``: whether clients get it; ``fate``: how often a stubborn consumer gives it back, or dead.
    """

    how: str
    key: str
    topic: str
    broker: str
    queue: int
    fate: str
    reaches: bool
    properties: tuple[str, ...] = ()

    @property
    def queues(self) -> set[str]:
        """The topic, and the light queues in which it lies, too."""
        names = next((text.partition("=")[2] for text in self.properties if text.startswith("INNER_MULTI_DISPATCH=")), "")
        return {self.topic, *filter(None, names.split(","))} | ({light_queue(CHILD)} if self.how == "lite" else set())

    def line(self, pause: int) -> str:
        """The line that FatedClients.java sends."""
        head = [str(pause), self.how, self.topic, self.broker, str(self.queue), f"UNIQ_KEY={self.key}"]
        return "\t".join([*head, *([f"FATE={self.fate}"] if self.fate else []), *self.properties])


def light_queue(lite_topic: str) -> str:
    """Return the light queue of a lite topic (``LiteUtil.toLmqName``)."""
    return f"%LMQ%${LITE}${lite_topic}"


@dataclass(frozen=True)
class Script:
    """A life of brokers. ``parts`` are sent one after another. Between two of them all is killed and started again, or the
    broker ``emptied`` takes nothing more, or the broker ``lone`` is killed alone, and started again before the third part."""

    seed: int
    brokers: tuple[str, ...]
    topics: dict[str, int]
    """queues on each broker"""
    groups: tuple[Group, ...]
    parts: tuple[tuple[Sending, ...], ...]
    grpc: tuple[Sending, ...]
    settings: dict[str, str | int]
    pause: int
    is_killed: bool
    emptied: str | None
    lone: str | None
    end: str

    @property
    def sendings(self) -> dict[str, Sending]:
        """By unique key; those of the gRPC client have a name instead."""
        return {sending.key: sending for part in (*self.parts, self.grpc) for sending in part}

    @property
    def is_pop_kept(self) -> bool:
        """Whether RocksDB has what is popped, and the log nothing of it."""
        return self.settings.get("popConsumerKVServiceEnable") == "true"

    @property
    def is_lone_dead(self) -> bool:
        """Whether the broker that was killed alone is not started again."""
        return self.lone is not None and len(self.parts) == 2

    def is_harmed(self, broker: str) -> bool:
        """Whether a broker was killed, or may be one that was: a proxy does not say which it chose."""
        return self.is_killed or (self.lone is not None and broker in (self.lone, ""))


def draw(
    seed: int, *, count: int = 60, kills: int = 0, brokers: int = 1, grpc: bool = False, lone: bool = False, kept: bool = False
) -> Script:  # fmt: skip
    """The script of a seed: ``count`` messages, so many kills amid it, so many masters. With ``lone`` one of two is killed.

    ``kept``: what is popped is kept in RocksDB, and not in the log.
    """
    rng = random.Random(f"{seed} {count} {kills} {brokers} {grpc}")
    names = tuple("ab"[:brokers])
    kinds = ("plain", "ordered", "delayed", "sold", "popped", "light")
    # POP names a retry topic after group and topic: names with their separators are read apart all the same.
    topics = {kind: f"{kind}{rng.choice(('', '_x', '-x', '_a_b'))}" for kind in (*kinds, "asked")}
    checked = rng.random() < 0.5
    settings: dict[str, str | int] = {
        "messageDelayLevel": LEVELS, "enableMultiDispatch": "true", "enableLmq": "true", "traceTopicEnable": "true",
        "recallMessageEnable": "true", "transactionTimeOut": 1500 if checked else 600_000,
        "transactionCheckInterval": 2000 if checked else 600_000, "transactionOpBatchInterval": 100,
        "flushConsumerOffsetInterval": rng.choice((500, 5000)), "mappedFileSizeCommitLog": rng.choice((1 << 18, 1 << 20)),
        "mappedFileSizeConsumeQueue": 6000, "maxHashSlotNum": rng.choice((100, 5000)), "maxIndexNum": rng.choice((300, 20_000)),
        "enableRetryTopicV2": rng.choice(("true", "false")),
    }  # fmt: skip
    if not kills and not lone:
        settings |= UNREAD
    if kept:
        settings |= {"popConsumerKVServiceEnable": "true", "popConsumerKVServiceInit": "true"}
        settings["enablePopBufferMerge"] = rng.choice(("true", "false"))
    emptied = rng.choice((*names, None)) if brokers > 1 and kills == 0 and not grpc and not lone else None
    parts = [rng.randrange(count) for _ in range(kills)] if kills else [count // 2]
    if lone:
        parts = [rng.randrange(count // 4, count // 2), *[rng.randrange(count // 2, count)] * rng.choice((0, 1, 1))]
    bounds = [0, *sorted(parts), count]
    messages = [_message(rng, seed, number, topics, names, checked) for number in range(count)]
    if grpc:
        topics["turns"] = "turns"
    if emptied is not None:
        left = next(name for name in names if name != emptied)
        later = [_on(message, left) for message in messages[bounds[1] :]]
        messages = [*messages[: bounds[1]], *later]
    return Script(
        seed, names, {topic: rng.randint(1, 3) for topic in (*topics.values(), LITE)}, tuple(_groups(rng, topics, grpc)),
        tuple(tuple(messages[low:high]) for low, high in itertools.pairwise(bounds)),
        tuple(_grpc(rng, number, topics) for number in range(count // 3 if grpc else 0)),
        settings, rng.choice((0, 10, 30)), kills > 0, emptied, LONE if lone else None, rng.choice(ENDS) if kills else "stopped",
    )  # fmt: skip


def _on(message: Sending, broker: str) -> Sending:
    words = vars(message) | {"broker": broker}
    return Sending(**words)


def _message(
    rng: random.Random, seed: int, number: int, topics: dict[str, str], brokers: tuple[str, ...], checked: bool
) -> Sending:  # fmt: skip
    kind = rng.choice([name for name in topics if name != "asked"])
    key, fate = f"{seed % 16**8:08X}{number:024X}", rng.choice(("", "", "1", "2", "dead"))
    how, reaches, more = "queue", True, [f"KEYS=every {rng.choice('xyz')}"] if rng.random() < 0.5 else []
    # A dead letter names the light queues and offsets of its message. Where that is 0, a broker of 5.5 adds it to the queue,
    # and passes over the message whose place it takes (``ConsumeQueue.putMessagePositionInfo``).
    if kind in ("ordered", "popped", "light") and fate == "dead":
        fate = ""
    if kind == "plain":
        how = rng.choice(("queue", "any"))
    elif kind == "ordered":
        how = "order"
    elif kind == "light":
        more.append("INNER_MULTI_DISPATCH=%LMQ%one,%LMQ%two" if rng.random() < 0.5 else "INNER_MULTI_DISPATCH=%LMQ%one")
    elif kind == "delayed":
        way = rng.choice(("level", "level waits", "timer", "timer waits", "recall"))
        reaches = way in ("level", "timer")
        how = "recall" if way == "recall" else "queue"
        more.append({
            "level": f"DELAY={rng.randint(1, 3)}", "level waits": f"DELAY={LONG_LEVEL}",
            "timer": f"TIMER_DELAY_MS={rng.randrange(500, 3000)}", "timer waits": f"TIMER_DELAY_MS={HOUR}",
            "recall": f"TIMER_DELAY_MS={rng.randrange(20_000, 30_000)}",
        }[way])  # fmt: skip
    elif kind == "sold":
        how, first = "transact", rng.choice(("commit", "rollback", "unknow"))
        later = rng.choice(("commit", "rollback"))
        reaches = "commit" in (first, later if first == "unknow" and checked else "")
        more += [f"DECISION={first}", f"CHECKED={later if first == 'unknow' else first}"]
    return Sending(how, key, topics[kind], rng.choice(brokers), 0, fate, reaches, tuple(more))


def _groups(rng: random.Random, topics: dict[str, str], grpc: bool) -> Iterator[Group]:
    def some(least: int, *kinds: str) -> tuple[str, ...]:
        return tuple(topics[kind] for kind in sorted(rng.sample(kinds, rng.randint(least, len(kinds)))))

    def traced() -> bool:
        return rng.random() < 0.6

    yield Group("g_stubborn", "push", some(2, "plain", "delayed", "sold", "light"), True, traced())
    yield Group("g-calm", "push", some(1, "plain", "sold", "delayed"), False, traced())
    yield Group("g_ended", "push", some(1, "plain", "light"), rng.random() < 0.5, traced(), ends=True)
    yield Group("g_order", "order", (topics["ordered"],), True, traced())
    yield Group("g_all", "broadcast", some(1, "plain", "ordered"), False, traced())
    yield Group("g_pop", "pop", (topics["popped"],), True, traced())
    # Offsets of a group that is named as a light queue is have a table of their own.
    yield Group("g_light", "light", ("%LMQ%one", "%LMQ%two"), False, traced=False)
    yield Group("%LMQ%g-light", "light", ("%LMQ%one",), False, traced=False)
    if grpc:
        yield Group("g_asks", "grpc", (topics["asked"],), True, traced=False)
        yield Group("g_turns", "turns", (topics["turns"],), True, traced=False)
        yield Group("g_lite", "lite", (light_queue(CHILD),), True, traced=False)


def _grpc(rng: random.Random, number: int, topics: dict[str, str]) -> Sending:
    how = rng.choice(
        ("normal", "fifo", "delay", "delay waits", "recall by grpc", "commit", "rollback", "lite", "lite", "turn", "turn")
    )
    topic = LITE if how == "lite" else topics["turns" if how == "turn" else "asked"]
    reaches = how not in ("delay waits", "recall by grpc", "rollback")
    return Sending(how, f"grpc-{number}", topic, "", 0, rng.choice(("", "", "put off", "let go")), reaches)
