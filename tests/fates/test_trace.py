"""``trace`` says of each message what its clients did and saw."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.cli import main
from tests.fates.life import AGAIN, DEAD, LEVELS, POPPING, TRACED, Fates, key
from tests.tools.encode import Message
from tests.tools.log_writer import LogWriter

WAYS = {
    "plain": ["born", "sent", "stored"],
    "light": ["born", "sent", "stored"],
    "level": ["born", "sent", "scheduled", "delivered"],
    "level-waits": ["born", "sent", "scheduled", "waits"],
    "timer": ["born", "sent", "timer", "delivered"],
    "timer-waits": ["born", "sent", "timer", "waits"],
    "recalled": ["born", "sent", "timer", "recalled", "not delivered"],
    "committed": ["born", "half", "committed"],
    "rolled-back": ["born", "half", "rolled back"],
    "undecided": ["born", "half", "undecided"],
    "dead": ["born", "sent", "stored", "dead letter", "passed"],
}
"""What happens to each, in order"""


def whats(message: rr.TraceResult) -> list[str]:
    return [event.what for event in message[0].events]


def traced(store: Path, unique_key: str, scan: bool = False) -> rr.TraceResult:
    found = rr.trace(store, unique_key=unique_key, delay_levels=LEVELS, scan=scan)
    assert (found.exit_status, len(found), found[0].message) == (0, 1, unique_key)
    return found


@pytest.mark.parametrize("name", WAYS)
def test_each_fate(fates: Fates, name: str) -> None:
    found = traced(fates.store, key(name))
    assert whats(found) == WAYS[name]
    certain = {event.what: event.certainty for event in found[0].events}
    follows = {"waits", "not delivered", "rolled back", "undecided", "passed"}
    assert {what for what, how in certain.items() if how == "follows"} == follows & set(WAYS[name])
    assert "unknown" not in certain.values()


@pytest.mark.parametrize("number", range(2))
def test_what_came_again(fates: Fates, number: int) -> None:
    """Each time that a client got it stands there as the client told it, and how that ended."""
    found = traced(fates.store, key("again", number))
    told = [(times, last) for unique, times, last in fates.told[AGAIN] if unique == key("again", number)]
    assert whats(found).count("retried") == len(told) - 1 == 2
    given = [event for event in found[0].events if event.what == "given"]
    consumed = [event.text for event in found[0].events if event.what == "consumed"]
    assert len(given) == len(consumed) == len(told)
    assert all(f"a client of group {AGAIN} on 127.0.0.1" in text for text in (*[event.text for event in given], *consumed))
    assert ["failure" in text for text in consumed] == [last == "again" for _, last in told]
    assert {event.group for event in (*given, *[event for event in found[0].events if event.what == "passed"])} == {AGAIN}


@pytest.mark.parametrize("number", range(12))
def test_what_was_popped(fates: Fates, number: int) -> None:
    told = [last for unique, _, last in fates.told[POPPING] if unique == key("popped", number)]
    found = traced(fates.store, key("popped", number))
    steps = [event.what for event in found[0].events if event.group == POPPING and event.time is not None]
    once = ["popped", "acknowledged"]
    assert steps == (once if told == ["done"] else ["popped", "put off", "retried", *once])
    assert not [event for event in found[0].events if event.certainty == "unknown"]


def test_nothing_of_a_message_is_left_out(fates: Fates) -> None:
    """Each record with its unique key is the evidence of an event, by the index and by the log itself."""
    records: dict[str, set[int]] = {}
    for record in fates.log:
        if record.key and record.topic not in ("rmq_sys_wheel_timer", TRACED) and "@" not in record.key:
            records.setdefault(record.key, set()).add(record.offset)
    assert len(records) > 25
    for unique_key, offsets in records.items():
        found = traced(fates.store, unique_key)
        assert {event.phy_offset for event in found[0].events} >= offsets
    for unique_key in (key("plain", 3), key("popped", 1), key("recalled")):
        scanned = traced(fates.store, unique_key, scan=True)
        assert scanned.to_dict()["messages"] == traced(fates.store, unique_key).to_dict()["messages"]


def test_by_key_and_by_offset(fates: Fates) -> None:
    (one,) = rr.trace(fates.store, topic="Plain", key="order-3")
    assert (one.message, one.keys) == (key("plain", 3), ("order-3", "all"))
    assert Counter(message.message for message in rr.trace(fates.store, topic="Plain", key="all")) == Counter(
        key("plain", number) for number in range(6)
    )
    some = rr.trace(fates.store, topic="Plain", key="all", max=2)
    assert [message.message for message in some] == [key("plain", 4), key("plain", 5)]
    (at,) = rr.trace(fates.store, topic="Popped", queue=0, queue_offset=4)
    assert at.message == key("popped", 4)


def test_two_stores(fates: Fates, tmp_path: Path) -> None:
    """A message is looked for in all of them: also where only one can name it."""
    other = tmp_path / "other"
    with LogWriter(other / "commitlog", 1 << 16) as writer:
        writer.append(Message(topic=f"%DLQ%{DEAD}", properties={"UNIQ_KEY": key("plain"), "DLQ_ORIGIN_TOPIC": "Plain"}))
    assert main(["build", str(other), "--out", str(tmp_path / "out"), "--engine", "local"]) == 0
    for part in ("index", "consumequeue"):
        shutil.copytree(tmp_path / "out" / part, other / part)
    found = rr.trace([f"a={fates.store}", f"b={other}"], topic="Plain", key="order-0")
    assert [(event.store, event.what) for event in found[0].events if event.what != "sent"] == [
        ("b", "born"), ("b", "dead letter"), ("a", "stored"),
    ]  # fmt: skip


def test_the_command(fates: Fates, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["trace", "--store", str(fates.store), "--delay-levels", LEVELS]
    assert main([*words, "--id", key("committed"), "--json"]) == 0
    (message,) = json.loads(capsys.readouterr().out)["messages"]
    assert [event["what"] for event in message["events"]] == WAYS["committed"]
    assert main([*words, "--id", key("committed")]) == 0
    assert "committed: stored in Sold, queue 0, offset 0" in capsys.readouterr().out
    assert main([*words, "--id", "nobody"]) == 4
    assert capsys.readouterr().out == "nothing found\n"
    no_index = tmp_path / "store"
    shutil.copytree(fates.store, no_index, ignore=shutil.ignore_patterns("index"))
    assert main(["trace", "--store", str(no_index), "--id", key("committed")]) == 1
    assert "add --scan to read the whole log" in capsys.readouterr().err
    assert main(["trace", "--store", str(no_index), "--id", key("committed"), "--scan"]) == 0
    shutil.rmtree(no_index / "consumequeue")
    capsys.readouterr()
    assert main(["trace", "--store", str(no_index), "--id", key("rolled-back"), "--scan", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "undecided" not in [event["what"] for event in found["messages"][0]["events"]], "nobody looked"
