"""Half messages after a restore without config/: what a real broker asks its producers again, and what it delivers then.

`make slow` runs each test with other lines, too.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from rocketmq_reindex.jobs.cli import main
from rocketmq_reindex.storage_format import layouts
from tests.delayed.life import UNREAD, Life, queues, restore
from tests.delayed.log import Stored
from tests.tools.log_writer import overwrite

TOPIC, HALF, OP = "T", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
EACH = 40
"""More than the 32 op messages that a broker reads at once"""
KINDS = ("commit", "rollback", "unknow")
LATE = UNREAD | {"transactionTimeOut": 600_000, "transactionOpBatchInterval": 100}
"""No check while these are in force; 5.x collects op messages for 3 s by default, which a kill loses."""
SOON = UNREAD | {"transactionTimeOut": 500, "transactionCheckInterval": 300, "transactionOpBatchInterval": 100}
SELDOM = SOON | {"transactionCheckInterval": 5000}
"""A slow broker has its answers before it asks again."""
ROUNDS = UNREAD | {"transactionTimeOut": 3000, "transactionCheckInterval": 1500, "transactionOpBatchInterval": 100,
                  "flushConsumerOffsetInterval": 600_000}  # fmt: skip
"""A round of checks takes what is 3 s old. A broker that is killed leaves no consumerOffset.json."""


def keys(kind: str) -> list[str]:
    return [f"{KINDS.index(kind) * 1000 + number:032X}" for number in range(EACH)]


def decisions(kinds: Iterable[str]) -> list[str]:
    """Lines for Delayed.java's step transact, one kind after the other."""
    return [f"{TOPIC}\t{key}\t{kind}" for kind_keys in zip(*(keys(kind) for kind in kinds), strict=True)
            for key, kind in zip(kind_keys, kinds, strict=True)]  # fmt: skip


def delivered(log: Iterable[Stored]) -> Counter[str]:
    """UNIQ_KEYs of the messages in the topic; the greeting of a producer is none."""
    return Counter(record.key for record in log if record.topic == TOPIC and "DECISION" in record.properties)


def done(log: Iterable[Stored]) -> int:
    """How many half messages the op messages name: by 4.9 one each, by 5.x some, each with a comma behind."""
    return sum(max(1, record.body.count(b",")) for record in log if record.topic == OP)


def checked(life: Life) -> Counter[str]:
    return Counter(key for key in life.step("checked").split(",") if key)


@pytest.mark.parametrize("version", ["4.9.8", pytest.param("5.3.3", marks=pytest.mark.slow)])
def test_what_is_pending_is_asked_and_delivered_once(version: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    queues({TOPIC: 1}, store)
    with Life(version, store, tmp_path, LATE) as life:
        life.send(decisions(KINDS), "transact")
        life.step("sent")
        life.wait(lambda log: done(log) == 2 * EACH, "an op message for all that was decided")
        assert checked(life) == {}
    restore(store, version, LATE)
    with Life(version, store, tmp_path, SELDOM) as life:
        life.step("answer", TOPIC, "commit")
        life.wait(lambda log: done(log) >= 3 * EACH, "the end of all that was pending")
        asked = checked(life)
        life.settle()
        assert checked(life) == asked
        log = life.log()
    assert asked.keys() == set(keys("unknow"))
    assert delivered(log) == Counter(keys("commit") + keys("unknow"))


@pytest.mark.parametrize("version", [pytest.param("4.9.8", marks=pytest.mark.slow), "5.3.3"])
def test_what_was_asked_before_is_asked_again_without_the_offset(version: str, tmp_path: Path) -> None:
    """Each check writes the half message anew, and only consumerOffset.json says that the old one is passed."""
    store = tmp_path / "store"
    queues({TOPIC: 1}, store)
    with Life(version, store, tmp_path, SELDOM) as life:
        life.send(decisions(["unknow"]), "transact")
        life.step("sent")
        life.step("answer", TOPIC, "commit")
        life.wait(lambda log: done(log) >= EACH, "the end of all that was pending")
        life.settle()
        log = life.log()
    assert delivered(log) == Counter(keys("unknow"))
    restore(store, version, SOON, "--write-delay")
    shutil.copytree(store, tmp_path / "bare")
    offsets = tmp_path / "bare" / "config" / "consumerOffset.json"
    table = json.loads(offsets.read_text())["offsetTable"]
    assert table == {f"{HALF}@CID_RMQ_SYS_TRANS": {"0": passed(log)}}
    offsets.unlink()
    with Life(version, store, tmp_path, SOON) as life:
        life.step("answer", TOPIC, "commit")
        life.settle()
        assert checked(life) == {}
        assert delivered(life.log()) == Counter(keys("unknow"))
    with Life(version, tmp_path / "bare", tmp_path, SOON) as life:
        life.step("answer", TOPIC, "commit")
        life.wait(lambda log: done(log) >= 2 * EACH, "the second end of all")
        life.settle()
        assert checked(life).keys() == set(keys("unknow"))
        counts = delivered(life.log())
    assert counts.keys() == set(keys("unknow"))
    assert min(counts.values()) > 1
    print(f"{version}: {counts.total()} deliveries of {EACH} messages without the offset")


@pytest.mark.parametrize("version", [pytest.param("4.9.8", marks=pytest.mark.slow), "5.3.3"])
def test_a_half_message_is_not_asked_for_those_that_are_lost(version: str, tmp_path: Path) -> None:
    """Units fill the places of the lost ones. Each that could be read would be asked about, and committed once more."""
    store = tmp_path / "store"
    queues({TOPIC: 1}, store)
    with Life(version, store, tmp_path, LATE) as life:
        life.send(decisions(["unknow"]), "transact")
        life.step("sent")
        log = life.log()
    halves = [record for record in log if record.topic == HALF]
    lost = halves[10:13]
    for record in lost:
        overwrite(store / "commitlog", record.offset + 20, bytes(50))
    bare, mended = tmp_path / "bare", tmp_path / "mended"
    shutil.move(store / "commitlog", bare / "commitlog")
    assert main(["repair", str(bare), "--out", str(mended), "--engine", "local", "--broker-version", version[:3]]) == 3
    shutil.move(mended / "commitlog", store)
    restore(store, version, LATE, "--write-delay")
    left = Counter(record.key for record in halves if record not in lost and "DECISION" in record.properties)
    with Life(version, store, tmp_path, SELDOM) as life:
        life.step("answer", TOPIC, "commit")
        life.wait(lambda log: delivered(log) == left, "all that is left")
        life.settle()
        assert checked(life).keys() == left.keys()
        assert delivered(life.log()) == left


@pytest.mark.parametrize(
    "version", [pytest.param("4.9.8", marks=pytest.mark.slow), pytest.param("5.3.3", marks=pytest.mark.slow), "5.5.1"]
)
def test_what_waits_among_old_copies_is_not_passed(version: str, tmp_path: Path) -> None:
    """Killed after a round of checks, a broker checks the same messages once more, and then all copies of both rounds.

    What is sent between two rounds stands behind the copies of one and before those of the next.
    """
    store, old, late = tmp_path / "store", keys("unknow"), keys("commit")[:10]
    queues({TOPIC: 1}, store)
    with Life(version, store, tmp_path, ROUNDS) as life:
        life.send([f"{TOPIC}\t{key}\tunknow" for key in old], "transact")
        life.step("sent")
        life.wait(lambda log: renewed(log) >= EACH, "a round of checks")
    with Life(version, store, tmp_path, ROUNDS) as life:
        life.step("answer", TOPIC, "unknow")
        before = len(life.wait(lambda log: renewed(log) >= 3 * EACH, "a round of both copies"))
        life.send([f"{TOPIC}\t{key}\tunknow" for key in late], "transact")
        life.step("sent")
        life.wait(lambda log: renewed(log[before:]) >= 2 * EACH, "one more")
        life.stop()
    log, offsets, given = life.log(), store / "config" / "consumerOffset.json", tmp_path / "given.json"
    shutil.copy(offsets, given)
    shutil.copytree(store, tmp_path / "control")
    assert half_offset(given) < passed(log)
    restore(store, version, LATE, "--write-delay")
    assert half_offset(offsets) <= first_pending(log)
    restore(store, version, LATE, "--write-delay", "--consumer-offsets", str(given))
    assert half_offset(offsets) == half_offset(given)
    counts = []
    for folder in (store, tmp_path / "control"):
        # Each answer is there before the next round, else a round asks twice.
        with Life(version, folder, tmp_path, SOON | {"transactionCheckInterval": 3000}) as life:
            life.step("answer", TOPIC, "commit")
            life.wait(lambda log: delivered(log).keys() == {*old, *late}, "each message")
            life.settle(5)
            counts.append(delivered(life.log()))
    assert counts[0] <= counts[1], "more often than by the broker's own store"


def half_offset(offsets: Path) -> int:
    """That of a consumerOffset.json."""
    found: int = layouts.loads(offsets.read_text())["offsetTable"][f"{HALF}@CID_RMQ_SYS_TRANS"]["0"]
    return found


def renewed(log: Iterable[Stored]) -> int:
    """How many half messages were written by checks."""
    return sum(record.topic == HALF and "TRANSACTION_CHECK_TIMES" in record.properties for record in log)


def first_pending(log: Iterable[Stored]) -> int:
    """The lowest queue offset of a newest copy that no op message names."""
    newest = {record.key: record.queue_offset for record in log if record.topic == HALF}
    named = {int(word) for record in log if record.topic == OP for word in record.body.split(b",") if word}
    return min(set(newest.values()) - named)


def passed(log: Iterable[Stored]) -> int:
    """Up to where a broker has worked through the half messages: behind the last one that it has written anew."""
    newest: dict[str, int] = {}
    found = 0
    for record in log:
        if record.topic == HALF:
            if record.key in newest:
                found = max(found, newest[record.key] + 1)
            newest[record.key] = record.queue_offset
    return found
