"""A backup of commitlog/ and config/, restored by the commands that the docs name: each waiting timer message comes, once.

The control is the broker's own store, started again as the kill left it. `make slow` runs each test with the other line, too.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from rocketmq_reindex.jobs.cli import main
from rocketmq_reindex.storage_format.delay.timer_layout import TimerCheckpoint
from tests.delayed.judge import Message, delivered, due
from tests.delayed.life import SIZES, UNREAD, Life, Settings, queues
from tests.delayed.log import read_log
from tests.tools.encode import Message as Encoded
from tests.tools.log_writer import LogWriter

TOPICS = {"T0": 2}
SETTINGS: dict[str, str | int] = {"mappedFileSizeTimerLog": 52 * 1000}
COUNT = 200
LAST = 22_000
"""Milliseconds until the last message is due"""
OLDER = ["5.3.3", pytest.param("5.5.1", marks=pytest.mark.slow)]
NEWER = [pytest.param("5.3.3", marks=pytest.mark.slow), "5.5.1"]


def lived(version: str, folder: Path) -> tuple[Path, int]:
    """A store whose broker was killed when about a third of COUNT timer messages had been delivered; when the last is due."""
    store = folder / "store"
    queues(TOPICS, store)
    with Life(version, store, folder, SETTINGS) as life:
        now = int(time.time() * 1000)
        wait = [3000 + number * (LAST - 3000) // COUNT for number in range(COUNT)]
        life.send(
            f"0\tT0\t{number % 2}\ttag\tUNIQ_KEY={number:032X}\tTIMER_DELIVER_MS={now + wait[number]}"
            for number in range(COUNT)
        )
        life.step("sent")
        life.wait(lambda log: delivered(log).total() >= COUNT // 3, "so many deliveries")
    return store, now + LAST


def goes_on(version: str, store: Path, folder: Path, until: int, count: int) -> Counter[Message]:
    """What the log has of copies after another life, which lasts until all is due and, where they come, ``count`` are there."""
    with Life(version, store, folder, SETTINGS | UNREAD) as life:
        life.wait(lambda _: time.time() * 1000 > until + 1000, "the time of the last one")
        life.settle(2.5)
        if count:
            life.wait(lambda log: delivered(log).total() >= count, f"{count} copies")
        return delivered(life.log())


def commands(store: Path, folder: Path, *words: str, settings: Settings = SETTINGS) -> Path:
    """Run ``rmq-reindex build`` on what is there of ``store``; return the build."""
    conf, out = folder / "broker.conf", folder / "built"
    conf.write_text("".join(f"{name}={value}\n" for name, value in (SIZES | dict(settings)).items()))
    shutil.rmtree(out, ignore_errors=True)
    assert main(["build", str(store), "--broker-conf", str(conf), "--out", str(out), "--engine", "local", *words]) == 0
    return out


def backup(store: Path, folder: Path) -> Path:
    """commitlog/ and config/ alone."""
    copy = folder / "backup"
    for part in ("commitlog", "config"):
        shutil.copytree(store / part, copy / part)
    return copy


def told(store: Path, folder: Path, version: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, int]]:
    """The exit status of preflight, and the numbers of its losses and warnings by kind."""
    capsys.readouterr()
    words = ["preflight", str(store), "--broker-version", version, "--broker-conf", str(folder / "broker.conf"), "--json"]
    status = main(words)
    found = json.loads(capsys.readouterr().out)
    return status, {one["kind"]: one["count"] for one in (*found["losses"], *found["warnings"])}


@pytest.mark.parametrize("version", NEWER)
def test_a_backup_without_timerlog(version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, until = lived(version, tmp_path)
    saved = backup(store, tmp_path)
    sent, before = due(read_log(store / "commitlog")), delivered(read_log(store / "commitlog"))
    assert sent.total() == COUNT
    assert 0 < before.total() < COUNT
    built = commands(saved, tmp_path, "--write-topics", "--write-delay")
    assert main(["fetch", str(built), "--to", str(saved)]) == 0
    assert "the build's whole set takes its place" in capsys.readouterr().err
    assert (saved / "config/timercheck.previous").read_bytes() == (store / "config/timercheck").read_bytes()
    assert told(saved, tmp_path, version, capsys) == (0, {})
    assert goes_on(version, saved, tmp_path, until, COUNT) == sent
    control = goes_on(version, store, tmp_path, until, COUNT)
    assert not sent - control


@pytest.mark.parametrize("version", OLDER)
def test_what_preflight_says_of_timercheck_alone(version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The files of a build without timers, put in by hand: preflight counts what is lost, and its advice saves it."""
    store, until = lived(version, tmp_path)
    saved = backup(store, tmp_path)
    sent, before = due(read_log(store / "commitlog")), delivered(read_log(store / "commitlog"))
    built = commands(saved, tmp_path)
    for part in ("consumequeue", "index", "checkpoint"):
        shutil.move(built / part, saved / part)
    status, found = told(saved, tmp_path, version, capsys)
    assert (status, list(found)) == (4, ["timer-lost"])
    assert sent.total() - before.total() - 40 < found["timer-lost"] <= sent.total() - before.total()
    helped = tmp_path / "helped"
    shutil.copytree(saved, helped)
    after = goes_on(version, saved, tmp_path, until, 0)
    assert (sent - after).total() == found["timer-lost"]
    words = ["preflight", str(helped), "--broker-version", version, "--broker-conf", str(tmp_path / "broker.conf"), "--json"]
    main(words)
    (loss,) = json.loads(capsys.readouterr().out)["losses"]
    (line,) = loss["commands"]
    subprocess.run(
        ["bash", "-c", line], check=True, env=os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    )
    assert told(helped, tmp_path, version, capsys) == (0, {})
    assert goes_on(version, helped, tmp_path, until, COUNT) == sent


@pytest.mark.parametrize("version", OLDER)
def test_slots_that_are_read_again_after_a_kill(version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """timercheck is written once a second: what was delivered since then is delivered again."""
    store, until = lived(version, tmp_path)
    commands(store, tmp_path, "--dry-run")
    before = delivered(read_log(store / "commitlog"))
    status, found = told(store, tmp_path, version, capsys)
    assert status == 0
    after = goes_on(version, store, tmp_path, until, COUNT)
    assert found.get("timer-again", 0) == sum(count - 1 for count in after.values())
    assert max(before.values()) == 1


@pytest.mark.parametrize("version", NEWER)
def test_overdue_messages_come_in_the_order_in_which_they_are_due(version: str, seed: int, tmp_path: Path) -> None:
    """The acknowledgement of a popped message is due before the end of its time: in another order it would come again."""
    rng, store, steps = random.Random(seed), tmp_path / "store", 60
    precision: dict[str, str | int] = {"timerPrecisionMs": 200}
    queues(TOPICS, store)
    with Life(version, store, tmp_path, SETTINGS | precision) as life:
        first = int(time.time() * 1000) + life.ahead
        order = rng.sample(range(steps), steps)
        life.send(f"0\tT0\t0\ttag\tUNIQ_KEY={number:032X}\tTIMER_DELIVER_MS={first + 200 * number}" for number in order)
        life.step("sent")
        life.wait(lambda log: due(log).total() == steps, "all of them")
        # The timer files of the control hold what was taken: TimerMessageStore.TimerFlushService writes timercheck last.
        check = store / "config/timercheck"
        life.wait(
            lambda _: TimerCheckpoint.from_bytes(check.read_bytes()).queue_offset == steps, "timercheck that tells of all"
        )
        assert not delivered(life.log())
    saved = backup(store, tmp_path)
    time.sleep(max(0.0, first / 1000 + 0.2 * steps - time.time()))
    built = commands(saved, tmp_path, "--write-delay", "--write-topics", settings=SETTINGS | precision)
    assert main(["fetch", str(built), "--to", str(saved)]) == 0
    for restored in (saved, store):
        with Life(version, restored, tmp_path, SETTINGS | precision | UNREAD) as life:
            log = life.wait(lambda log: delivered(log).total() >= steps, "all copies")
        assert [int(record.key, 16) for record in log if record.topic == "T0"] == list(range(steps))


@pytest.mark.parametrize("version", NEWER)
def test_a_recalled_message_stays_recalled(version: str, tmp_path: Path) -> None:
    """Also where it is due beyond the roll window, and the broker starts after it was due."""
    rolling: dict[str, str | int] = {"timerPrecisionMs": 200, "timerRollWindowSlot": 40}
    store = tmp_path / "store"
    queues(TOPICS, store)
    with LogWriter(tmp_path / "first" / "commitlog", 1 << 17) as writer:
        writer.append(Encoded())
    # What has to be compiled is not to take its time later, when messages fall due.
    commands(tmp_path / "first", tmp_path, "--write-delay")
    with Life(version, store, tmp_path, SETTINGS | rolling) as life:
        at = int(time.time() * 1000) + life.ahead
        lines = [f"0\tT0\t0\ttag\tUNIQ_KEY={number:032X}\tTIMER_DELIVER_MS={at}" for number in range(20)]
        for number in range(0, 20, 2):
            # Up to 5.3 a mark names the topic, too.
            marked = f"T0+{number:032X}" if version < "5.4" else f"{number:032X}"
            lines.append(f"0\tT0\t0\ttag\tUNIQ_KEY={number + 100:032X}\tTIMER_DELIVER_MS={at}\tTIMER_DEL_UNIQKEY={marked}")
        life.send(lines)
        life.step("sent")
        life.wait(lambda log: len(log) >= 30, "all of them")
    built = commands(store, tmp_path, "--write-delay", "--write-topics", "--snapshot", settings=SETTINGS | rolling)
    assert time.time() * 1000 < at, "they were overdue when the timer files were made"
    saved = tmp_path / "backup"
    shutil.copytree(store / "commitlog", saved / "commitlog")
    assert main(["fetch", str(built), "--to", str(saved)]) == 0
    time.sleep(max(0.0, at / 1000 + 1 - time.time()))
    with Life(version, saved, tmp_path, SETTINGS | rolling | UNREAD) as life:
        life.wait(lambda log: delivered(log).total() >= 10, "copies of what was not recalled")
        life.settle(2.5)
        came = delivered(life.log())
    assert sorted(int(message.key, 16) for message in came.elements()) == list(range(1, 20, 2))
