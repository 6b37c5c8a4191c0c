"""Whether ``trace`` and ``consumers`` say of each message of a script what its clients saw."""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.tracing.timeline import TracedMessage, TraceEvent
from tests.fates.playing import Played
from tests.fates.script import LEVELS, Group, Sending
from tests.fates.seen import Acknowledged, Seen

BROADCAST = "@broadcast"
POPPED = ("pop", "grpc")
"""kinds of groups whose POPs are in the log"""
IN_TURN = ("turns", "lite", "light")
"""kinds of groups of which the broker knows the newest batch, or the offset alone"""
PLACES = {"stored", "scheduled", "timer", "half"}
"""What the first record of a message is"""
_TOLD = re.compile(r"group (\S+) on (\S+) (?:sent it to \S+|is done): (success|failure) after (-?\d+) ms$")
_LIGHT = re.compile(r"%LMQ%[^ ,]+")
_WORDS = re.compile(r"  +")


def wrong(played: Played, judged: Counter[str] | None = None) -> Iterator[str]:
    """What is wrong, each told with its message. ``judged`` counts what was looked at."""
    judged = Counter() if judged is None else judged
    stores = [f"{name}={store}" for name, store in played.stores.items()]
    for key in played.sendings:
        found = rr.trace(stores, unique_key=key, delay_levels=LEVELS)
        if any("add --scan" in warning for warning in found.warnings):
            # As where no op message was stored yet: then its queue has no files.
            found = rr.trace(stores, unique_key=key, delay_levels=LEVELS, scan=True)
        # A broker that was killed early has noted no offset, or cut its file.
        harmed = played.script.is_killed or played.script.lone
        odd = [line for line in found.warnings if not (harmed and "onsumerOffset.json" in line)]
        if odd:
            yield f"{key}: {odd}"
        if len(found) == 0:
            if key in played.seen.sent or key in played.seen.given:
                yield f"{key}: clients saw it, trace finds nothing"
            continue
        message = _Message(played, key, found[0])
        judged.update(messages=1, events=len(found[0].events))
        yield from (f"{key} {played.seen.sent.get(key)}: {line}: {message.told}" for line in message.wrong())
    yield from _keys(played, stores)
    yield from _consumers(played, judged)


def _keys(played: Played, stores: list[str]) -> Iterator[str]:
    """Messages are found by their own keys, too; and what the index finds, a scan finds."""
    by_key: dict[tuple[str, str], set[str]] = {}
    for unique_key, sending in played.sendings.items():
        for word in next((text[5:].split() for text in sending.properties if text.startswith("KEYS=")), ()):
            by_key.setdefault((sending.topic, word), set()).add(unique_key)
    for (topic, word), drawn in by_key.items():
        found = {message.message for message in rr.trace(stores, topic=topic, key=word, max=1000, delay_levels=LEVELS)}
        if not drawn & played.seen.sent.keys() <= found <= drawn:
            yield f"key {word} of {topic}: {drawn & played.seen.sent.keys() ^ found}"
    for unique_key in sorted(played.seen.sent)[::10]:
        one, other = (rr.trace(stores, unique_key=unique_key, delay_levels=LEVELS, scan=scan) for scan in (False, True))
        if one.messages != other.messages and not one.warnings:
            told = [{event for message in found for event in message.events} for found in (one, other)]
            yield f"{unique_key}: a scan tells {told[0] ^ told[1]}"


class _Message:
    """One message: ``_all`` says that it must come to its end: no broker was killed, and clients got their answers."""

    def __init__(self, played: Played, key: str, traced: TracedMessage) -> None:
        self._script, self._seen, self._key = played.script, played.seen, key
        self._printed = played.printed.get(key)
        self._events = traced.events
        self._sent: Acknowledged | None = played.seen.sent.get(key)
        self._sending: Sending | None = played.sendings.get(key)
        # Of what had no answer nobody knows whether it was done.
        no_answer = key in played.seen.failed or (self._sending is not None and self._sending.key in played.seen.failed)
        # A proxy does not say which broker it chose.
        harmed = self._script.is_killed or (
            self._script.lone and (self._sent is None or self._sent.broker in ("", self._script.lone))
        )
        self._all = not harmed and not no_answer
        self._sent_once = self._sending is None or bool(self._sending.broker) or not harmed

    @property
    def told(self) -> list[str]:
        """Its events, for people."""
        return [f"{event.store} {event.what} {event.group or ''} {event.evidence} {event.certainty}" for event in self._events]

    def _of(self, what: str, group: str | None = None) -> list[TraceEvent]:
        return [event for event in self._events if event.what == what and group in (None, event.group)]

    def wrong(self) -> Iterator[str]:
        yield from self._place()
        yield from self._delays()
        yield from self._transaction()
        for group in self._script.groups:
            yield from self._retries(group)
            yield from self._pops(group)
            yield from self._offsets(group)
            yield from self._traces(group)
        known = {group.name for group in self._script.groups} | {"producing"}
        known |= {f"{group.name}{BROADCAST}" for group in self._script.groups if group.kind == "broadcast"}
        yield from (f"nobody knows group {event.group}" for event in self._events if event.group not in (None, *known))
        if self._all:
            yield from (f"unknown: {event.what}" for event in self._events if event.certainty == "unknown")
        if self._printed is not None:
            yield from self._admin(self._printed)

    def _place(self) -> Iterator[str]:
        if len(self._of("born")) != 1:
            yield "born once"
        if self._sent is None:
            return
        places = [event for event in self._events if event.what in PLACES or (event.what == "checked" and self._all)]
        here = [event for event in places if event.store == self._sent.broker or not self._sent.broker]
        if not any(int(event.evidence.rpartition("/")[2]) == self._sent.offset for event in here):
            yield "the broker named another offset"
        stored = self._of("stored")
        # A proxy chooses the queue, and does not say which.
        if stored and self._sent.broker and stored[0].evidence != f"{self._sent.topic}/{self._sent.queue}/{self._sent.offset}":
            yield "the broker named another place"
        yield from self._light(" ".join(event.text for event in stored)) if stored else ()
        # The gRPC client sends again where no answer comes.
        if self._sent_once and len([event for event in places if event.what == "stored"]) > 1:
            yield "stored twice"

    def _light(self, text: str) -> Iterator[str]:
        wanted = {name for name in self._sending.queues if name.startswith("%LMQ%")} if self._sending else set()
        if set(_LIGHT.findall(text)) != wanted:
            yield f"light queues {wanted}"

    def _delays(self) -> Iterator[str]:
        waited = [event for event in (*self._of("scheduled"), *self._of("timer")) if "%RETRY%" not in event.text]
        came = self._key in self._seen.given
        ends = Counter(event.what for event in self._events if event.what in ("delivered", "waits", "not delivered"))
        if not waited or self._sending is None:
            return
        if came and not ends["delivered"]:
            yield "a client got it, and it is not delivered"
        if self._of("stored"):
            yield "it was not stored at once"
        if self._all and ends["delivered"] != self._sending.reaches:
            yield "delivered or not"
        if self._key in self._seen.recalled and not self._of("recalled"):
            yield "the broker has taken the recall"
        if self._of("recalled") and self._key not in self._seen.recalling:
            yield "nobody took it back"
        if self._all and not self._sending.reaches:
            wanted = "not delivered" if self._sending.how.startswith("recall") else "waits"
            if ends[wanted] != 1:
                yield f"it is {wanted}"

    def _transaction(self) -> Iterator[str]:
        states = self._seen.decided.get(self._key, [])
        ends = {event.what for event in self._events if event.what in ("committed", "rolled back", "undecided")}
        told = {event.text.rpartition(": ")[2].removesuffix("_MESSAGE").lower() for event in self._of("decided")}
        if not told <= set(states):
            yield f"it tells {told}, the client said {states}"
        if not self._of("half"):
            if ends:
                yield "no transaction"
            return
        wanted = {"commit": "committed", "rollback": "rolled back"}
        if not ends <= {"undecided", *(wanted[state] for state in states if state in wanted)}:
            yield f"the client said {states}"
        if len(ends) != 1:
            yield "one end of a transaction"
        if self._key in self._seen.given and ends != {"committed"}:
            yield "a client got it"
        if self._all and states and ends != {wanted.get(states[-1], "undecided")}:
            yield f"the client said {states} at last"

    def _retries(self, group: Group) -> Iterator[str]:
        told = self._seen.of_group(self._key, group.name)
        retried = {_attempt(event) for event in self._of("retried", group.name)}
        given_back = {given.times + 1 for given in told if given.decision != "done"}
        again = {given.times for given in told if given.times}
        if group.kind in ("order", "broadcast", *IN_TURN):
            given_back = again = set()
        if not again <= retried:
            yield f"{group.name} got it again, attempts {again}, not {retried}"
        # What POP gives to a client that is too late for it comes again without a word of the client.
        if not retried <= given_back and group.kind not in POPPED:
            yield f"{group.name} gave it back, attempts {given_back}, not {retried}"
        dead, letters = any(given.decision == "dead" for given in told), self._of("dead letter", group.name)
        if (letters and not dead) or (dead and not letters and self._all):
            yield f"dead letter of {group.name}"

    def _pops(self, group: Group) -> Iterator[str]:
        popped, acknowledged = self._of("popped", group.name), self._of("acknowledged", group.name)
        told = self._seen.of_group(self._key, group.name)
        if group.kind == "turns":
            # Its newest batch of each queue.
            if {_attempt(event) - 1 if "attempt" in event.text else 0 for event in popped} - {given.times for given in told}:
                yield f"{group.name} got it {told}"
            if acknowledged and not self._seen.is_done(self._key, group.name):
                yield f"{group.name} acknowledged nothing"
            return
        if group.kind in POPPED and self._script.is_pop_kept:
            # What is not done with, as far as RocksDB has it: a kill loses what it holds in memory.
            if acknowledged or (popped and not told):
                yield f"{group.name} got {told}"
            if popped and self._all and self._seen.is_done(self._key, group.name):
                yield f"{group.name} has acknowledged it"
            return
        if group.kind not in POPPED:
            if popped or acknowledged:
                yield f"{group.name} does not pop"
            return
        if told and not popped:
            yield f"{group.name} got it by POP"
        if acknowledged and not told:
            yield f"{group.name} acknowledged nothing"
        if self._all and self._seen.is_done(self._key, group.name) and not acknowledged:
            yield f"{group.name} has acknowledged it"

    def _offsets(self, group: Group) -> Iterator[str]:
        passed, not_reached = self._of("passed", group.name), self._of("not reached", group.name)
        told = self._seen.of_group(self._key, group.name)
        if group.kind == "broadcast":
            if passed or not_reached:
                yield f"the broker does not know where {group.name} is"
            if self._of("passed", group.name + BROADCAST) and not told:
                yield f"no client of {group.name} got it"
        if group.kind in POPPED or group.kind == "broadcast":
            return
        if passed and not told:
            yield f"{group.name} never got it"
        if passed and group.kind in IN_TURN and not self._seen.is_done(self._key, group.name):
            yield f"{group.name} is behind it before it acknowledges it"
        if self._all and not_reached and self._seen.is_done(self._key, group.name) and not group.ends:
            yield f"{group.name} is through with it"
        if self._all and told and not passed and not group.ends:
            yield f"{group.name} has got it"

    def _traces(self, group: Group) -> Iterator[str]:
        told = self._seen.of_group(self._key, group.name)
        given, consumed = self._of("given", group.name), self._of("consumed", group.name)
        if not group.traced and (given or consumed):
            yield f"{group.name} writes no traces"
        if max(len(given), len(consumed)) > len(told):
            yield f"{group.name} got it {len(told)} times"
        ends = Counter("failure" in event.text for event in consumed)
        if ends[False] > sum(each.decision == "done" for each in told):
            yield f"{group.name} was done {told}"

    def _admin(self, printed: str) -> Iterator[str]:
        theirs = Counter(_printed_rows(printed))
        ours = Counter(map(self._admin_row, (*self._of("sent"), *self._of("consumed"))))
        if theirs != ours and not (self._script.is_lone_dead and theirs <= ours):
            yield f"mqadmin prints {theirs - ours}, trace {ours - theirs}"

    def _admin_row(self, event: TraceEvent) -> tuple[str, ...]:
        """A trace of a client as mqadmin prints it."""
        found = _TOLD.search(event.text)
        assert found is not None, event.text
        assert event.time is not None
        time = datetime.datetime.fromtimestamp(event.time // 1000).strftime("%Y-%m-%d %H:%M:%S")  # noqa: DTZ006  as mqadmin
        status = {"success": "success", "failure": "failed"}[found[3]]
        return "Pub" if event.what == "sent" else "Sub", found[1], found[2], time, f"{found[4]}ms", status


def _printed_rows(printed: str) -> Iterator[tuple[str, ...]]:
    for line in printed.splitlines():
        if line and not line.startswith("#"):
            yield tuple(_WORDS.split(line.strip()))


def _attempt(event: TraceEvent) -> int:
    found = re.search(r"attempt (\d+)", event.text)
    assert found is not None, event.text
    return int(found[1])


def _consumers(played: Played, judged: Counter[str]) -> Iterator[str]:
    """Groups stand behind all that they got, and before what they did not; a bound is a message that they got."""
    groups = {group.name: group for group in played.script.groups}
    for name, store in played.stores.items():
        is_harmed = played.script.is_harmed(name)
        places: Mapping[tuple[str, int], dict[int, str]] = _places(store)
        for row in (*_standing(store, is_harmed=is_harmed), *rr.consumers(store, bounds=True)):
            judged.update({"places of groups": 1})
            group = groups.get(row.group)
            here = places.get((row.topic, row.queue_id), {})
            if group is None or group.kind in POPPED:
                continue
            if row.offset is not None:
                left = None if is_harmed else row.left
                yield from (f"consumers: {name} {row}: {line}" for line in _offset(played, group, row.offset, left, here))
            if row.evidence is not None and not played.seen.of_group(here[row.evidence.offset], group.name):
                yield f"consumers: {name} {row}: it never got that"
            if None not in (row.offset, row.at_least) and not is_harmed and row.at_least > row.offset:
                yield f"consumers: {name} {row}: the bound is too high"


def _standing(store: Path, *, is_harmed: bool) -> Sequence[rr.GroupOffset]:
    try:
        return rr.consumers(store).groups
    except rr.InputError:
        # As above.
        if is_harmed:
            return ()
        raise


def _offset(played: Played, group: Group, offset: int, left: int | None, here: Mapping[int, str]) -> Iterator[str]:
    if group.kind == "broadcast":
        yield "no broker knows the offsets of the group"
    for at, key in here.items():
        if at < offset and not played.seen.of_group(key, group.name):
            yield f"it never got {key}"
    if left and not group.ends:
        yield "it got all"


def _places(store: Path) -> dict[tuple[str, int], dict[int, str]]:
    """Unique keys by topic and queue, and queue offset; those of light queues, too."""
    found: dict[tuple[str, int], dict[int, str]] = {}
    columns = ["topic", "queueId", "consumeQueueOffset", "uniqKey", "kind", "properties"]
    for batch in rr.messages(store, columns=columns, damage="skip"):
        for row in batch.to_pylist():
            found.setdefault((row["topic"], row["queueId"]), {})[row["consumeQueueOffset"]] = row["uniqKey"]
            said = dict(row["properties"] or ())
            names, offsets = (said.get(f"INNER_MULTI_{name}", "").split(",") for name in ("DISPATCH", "QUEUE_OFFSET"))
            for light, offset in zip(names, offsets, strict=True) if row["kind"] == "message" and any(names) else ():
                found.setdefault((light, 0), {})[int(offset)] = row["uniqKey"]
    return found


def numbers(played: Played) -> str:
    """What a life had, in words."""
    seen: Seen = played.seen
    decisions = Counter(given.decision for all_given in seen.given.values() for given in all_given)
    told = ", ".join(f"{count} {word}" for word, count in sorted(decisions.items()))
    traces = sum(1 for printed in played.printed.values() for _ in _printed_rows(printed))
    return f"{len(seen.sent)} messages, {len(seen.failed)} without an answer; given: {told}; mqadmin printed {traces} traces"
