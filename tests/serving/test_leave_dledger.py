"""A broker leaves DLedger by ``repair --to-plain``: clients of a plain broker go on where they were with the one of DLedger.

`make slow` runs it from other releases and to others, too.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import struct
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rocketmq_reindex.jobs.cli import main
from tests.delayed.life import Life, queues
from tests.delayed.log import Stored, of_segment
from tests.golden.test_to_plain import all_files
from tests.serving.programs import PATIENCE
from tests.serving.test_half_messages import EACH, HALF, LATE, OP, SELDOM, TOPIC, checked, decisions, delivered, done, keys
from tests.tools.local_verify import kinds, local_verify
from tests.tools.ports import free_ports

READ, GIVEN_BACK, DELAYED, TIMED = "Read", "GivenBack", "Delayed", "Timed"
TOPICS = {TOPIC: 1, READ: 2, GIVEN_BACK: 1, DELAYED: 1, TIMED: 1}
COUNT = 20
LEVELS = "1s 25s"
"""Level 1 for what is given back, 2 for what waits until the plain broker runs"""
WAITS = 35_000
"""Milliseconds that a timer message waits"""
SETTINGS = {"messageDelayLevel": LEVELS}
WRITTEN = 7
"""Seconds after which a node has written its checkpoint: it does so every three"""
ENTRY = 48


class DLedgerLife(Life):
    """A broker with ``enableDLegerCommitLog``: a node of a group, whose ``ports`` are those of all; or the only one."""

    def __init__(self, version: str, store: Path, scratch: Path, node: int = 0, ports: Sequence[int] = ()) -> None:
        peers = ";".join(f"n{number}-127.0.0.1:{port}" for number, port in enumerate(ports or free_ports(1)))
        own = {
            "enableDLegerCommitLog": "true", "dLegerGroup": "g", "dLegerSelfId": f"n{node}", "dLegerPeers": peers,
            "preferredLeaderId": "n0",
        }  # fmt: skip
        super().__init__(version, store, scratch, LATE | SETTINGS | own)

    def log(self) -> list[Stored]:
        return entries_of(self.store)


def entries_of(store: Path) -> list[Stored]:
    """The records in the entries of a log."""
    found: list[Stored] = []
    for path in sorted(next(store.glob("dledger-*")).joinpath("data").iterdir()):
        data, at = path.read_bytes(), 0
        while at + ENTRY <= len(data):
            magic, size = struct.unpack_from(">ii", data, at)
            if magic != 1:
                break
            found += of_segment(data[at + ENTRY : at + size] + bytes(ENTRY), int(path.name) + at + ENTRY)
            at += size
    return found


def without_offset(record: Stored) -> tuple[object, ...]:
    """All but where it and its half message lie."""
    return (
        record.topic, record.queue, record.queue_offset, record.sysflag, record.store_time, record.reconsumed,
        record.properties, record.body,
    )  # fmt: skip


def lines(topic: str, prefix: int, *properties: str) -> list[str]:
    """Messages for Delayed.java's step send."""
    return [
        "\t".join(("0", topic, str(number % TOPICS[topic]), "tag", f"UNIQ_KEY={prefix + number:032X}", *properties))
        for number in range(COUNT)
    ]


def told(path: Path) -> Counter[str]:
    return Counter(path.read_text().splitlines() if path.exists() else [])


def until(path: Path, count: int) -> Counter[str]:
    """What a consumer has told, once there are so many lines."""
    end = time.monotonic() + PATIENCE
    while sum(told(path).values()) < count:
        assert time.monotonic() < end, f"{path} has {sum(told(path).values())} lines of {count}"
        time.sleep(0.1)
    return told(path)


def until_stored(life: Life, *queues: str) -> None:
    """Wait until consumerOffset.json says of each topic and group that all is consumed. Clients tell a broker now and then.

    A client that is given no answer in time gives a message back once more: a topic may have more than was sent.
    """
    path, end = life.store / "config" / "consumerOffset.json", time.monotonic() + PATIENCE
    found, stored = dict[str, int](), Counter[str]()
    while any(found.get(name, 0) < max(COUNT, stored[name.split("@")[0]]) for name in queues):
        assert time.monotonic() < end, (found, stored)
        time.sleep(0.2)
        with contextlib.suppress(OSError, ValueError, struct.error):
            # RocketMQ writes numbers as names, without quotes.
            table = json.loads(re.sub(r"(\d+):(?=\d)", r'"\1":', path.read_text()))["offsetTable"]
            stored = Counter(record.topic for record in life.log())
            found = {name: sum(table.get(name, {}).values()) for name in queues}


def ended(log: Sequence[Stored]) -> set[str]:
    """The keys of half messages that an op message ends: it names their queue offsets (TransactionalMessageUtil)."""
    halves = {record.queue_offset: record.key for record in log if record.topic == HALF}
    named = (number for record in log if record.topic == OP for number in record.body.split(b",") if number)
    return {halves[int(number)] for number in named}


@pytest.mark.parametrize(
    ("version", "plain"),
    [
        pytest.param("4.9.8", "4.9.8", marks=pytest.mark.slow),
        ("5.3.3", "5.5.1"),
        pytest.param("5.3.3", "5.3.3", marks=pytest.mark.slow),
        pytest.param("4.9.8", "5.5.1", marks=pytest.mark.slow),
    ],
)
def test_clients_go_on(version: str, plain: str, tmp_path: Path) -> None:
    """Each message is served as it was, groups go on at their offsets, what waits is delivered, what is half is asked about."""
    old, out, new = (tmp_path / name for name in ("old", "out", "new"))
    timed = not version.startswith("4.") and not plain.startswith("4.")
    queues(TOPICS, old)
    with DLedgerLife(version, old, tmp_path) as life:
        life.send(lines(READ, 0x10000) + lines(GIVEN_BACK, 0x20000))
        life.step("sent")
        life.step("again", "readers", READ, 1, 0, tmp_path / "read")
        life.step("again", "back", GIVEN_BACK, 1, 1, tmp_path / "back")
        until(tmp_path / "read", COUNT)
        until(tmp_path / "back", 2 * COUNT)
        until_stored(life, f"{READ}@readers", f"{GIVEN_BACK}@back", "%RETRY%back@back")
        life.send(decisions(("commit", "rollback", "unknow")), "transact")
        life.step("sent")
        # A producer decides by a message without an answer. Where a put takes longer than DLedger waits for (2.5 s), or a
        # queue of the broker longer than 3 s, the decision is lost, and these brokers ask for it after ten minutes only.
        with contextlib.suppress(AssertionError):
            life.wait(lambda log: done(log) == 2 * EACH, "an op message for all that was decided", 30)
        life.send(lines(DELAYED, 0x30000, "DELAY=2"))
        if timed:
            due = int(time.time() * 1000) + WAITS
            life.send(lines(TIMED, 0x40000, f"TIMER_DELIVER_MS={due}"))
        life.step("sent")
        life.stop()
    before = entries_of(old)
    assert not [record for record in before if record.topic in (DELAYED, TIMED)]
    half = {*keys("commit"), *keys("rollback"), *keys("unknow")} - ended(before)
    assert half >= set(keys("unknow"))
    assert len(half) < 2 * EACH

    words = ["repair", str(old), "--to-plain", "--out", str(out), "--engine", "local", "--broker-version", plain[:3]]
    assert main([*words, "--segment-size", str(1 << 17), "--delay-levels", LEVELS, "--write-delay"]) == 0
    shutil.copytree(out, new, ignore=shutil.ignore_patterns("reindex.json", "offsets"))
    for path in (old / "config").iterdir():
        if path.is_file() and path.name != "timercheck":
            shutil.copy(path, new / "config" / path.name)

    with Life(plain, new, tmp_path, SELDOM | SETTINGS) as life:
        log = life.log()
        assert [without_offset(record) for record in log[: len(before)]] == [without_offset(record) for record in before]
        places = {record.offset for record in log[: len(before)] if record.topic == READ}
        assert life.pulled([READ]) >= places
        life.step("again", "readers", READ, 1, 0, tmp_path / "read-on")
        life.step("again", "back", GIVEN_BACK, 1, 1, tmp_path / "back-on")
        life.send(lines(READ, 0x50000))
        life.step("answer", TOPIC, "commit")
        life.step("sent")
        assert until(tmp_path / "read-on", COUNT).keys() == {f"{0x50000 + number:032X}\t0\tdone" for number in range(COUNT)}
        decided = delivered(before) + Counter(half)
        life.wait(lambda log: delivered(log) == decided, "what was half")
        waiting = COUNT * (2 if timed else 1)
        life.wait(lambda log: sum(record.topic in (DELAYED, TIMED) for record in log) >= waiting, "what was delayed")
        life.settle()
        log = life.log()
        assert checked(life).keys() == half
        assert delivered(log) == decided
        came = Counter(record.key for record in log if record.topic in (DELAYED, TIMED))
        prefixes = (0x30000, 0x40000) if timed else (0x30000,)
        assert came == Counter(f"{prefix + number:032X}" for prefix in prefixes for number in range(COUNT))
        assert told(tmp_path / "back-on") == {}
        halves = {record.offset: record.key for record in log if record.topic == "RMQ_SYS_TRANS_HALF_TOPIC"}
        committed = [record for record in log if record.topic == TOPIC and record.prepared]
        assert [halves[record.prepared] for record in committed] == [record.key for record in committed]
        assert len({record.offset for record in log}) == len(log)
        life.stop()
    verified = local_verify(new, broker_version=plain[:3], segment_size=1 << 17, delay_levels=LEVELS)
    assert (verified.error, kinds(verified)) == (None, {})


@pytest.mark.slow
@pytest.mark.parametrize("version", ["4.9.8", "5.3.3"])
def test_a_group_of_three(version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A node that was killed is behind: it is told, and gives no store. The others have the same bytes, and the whole log."""
    stores, ports = [tmp_path / f"store-{node}" for node in range(3)], free_ports(3)

    def boot(node: int) -> DLedgerLife:
        queues(TOPICS, stores[node])
        (tmp_path / f"home-{node}").mkdir()
        return DLedgerLife(version, stores[node], tmp_path / f"home-{node}", node, ports)

    with ThreadPoolExecutor(3) as pool, contextlib.ExitStack() as stack:
        lives = [stack.enter_context(life) for life in pool.map(boot, range(3))]
        # Another node may lead first, and hand over then.
        lives[0].step("leads")
        lives[0].send(lines(READ, 0x10000))
        lives[0].step("sent")
        for life in lives:
            life.wait(lambda log: len(log) == COUNT, "what the leader has")
        lives[2].__exit__(None, None, None)
        lives[0].send(lines(GIVEN_BACK, 0x20000))
        lives[0].step("sent")
        lives[1].wait(lambda log: len(log) == 2 * COUNT, "what was sent meanwhile")
        time.sleep(WRITTEN)
        lives[1].stop()
        lives[0].stop()

    def leave(node: int) -> int:
        others = [word for other in range(3) if other != node for word in ("--replica", str(stores[other]))]
        words = ["repair", str(stores[node]), "--to-plain", "--out", str(tmp_path / f"out-{node}"), "--engine", "local"]
        return main([*words, "--broker-version", version[:3], "--segment-size", str(1 << 17), *others])

    assert leave(2) == 1
    assert f"knows entries of DLedger up to index {2 * COUNT - 1} as committed, and this log" in capsys.readouterr().err
    assert [leave(0), leave(1)] == [0, 0]
    told = capsys.readouterr().err
    assert told.count("lacks") == 2
    assert "has other bytes" not in told
    assert all_files(tmp_path / "out-0") == all_files(tmp_path / "out-1")
    queues(TOPICS, tmp_path / "out-0")
    with Life(version, tmp_path / "out-0", tmp_path, SETTINGS) as life:
        assert len(life.pulled([READ, GIVEN_BACK])) == 2 * COUNT
