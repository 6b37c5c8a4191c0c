"""--write-delay and --consumer-offsets on logs that tests make."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.building.summary import BuildResult
from rocketmq_reindex.jobs.cli import main
from rocketmq_reindex.jobs.fetching.build import find_build
from rocketmq_reindex.storage_format.delay.timer_layout import TimerCheckpoint
from rocketmq_reindex.storage_format.errors import UsageError
from tests.tools.compare import SMALL
from tests.tools.encode import EPOCH, Message
from tests.tools.local_engine import local_build
from tests.tools.log_writer import LogWriter

DELAYS = "1s 5s"
HALF = "RMQ_SYS_TRANS_HALF_TOPIC"


def scheduled(number: int, level: int, key: bool = True) -> Message:
    """A message that waits in its level's queue."""
    properties = {"UNIQ_KEY": f"K{number}"} if key else {}
    properties |= {"DELAY": str(level), "REAL_TOPIC": "T", "REAL_QID": "1"}
    return Message("SCHEDULE_TOPIC_XXXX", level - 1, properties=properties, store_timestamp=EPOCH + number)


def copy(of: Message, later: int = 10_000) -> Message:
    """What the broker delivers of it."""
    return dataclasses.replace(of, topic="T", queue_id=1, store_timestamp=of.store_timestamp + later)


def timed(number: int, **more: str) -> Message:
    due = str(EPOCH + 60_000)
    properties = {"UNIQ_KEY": f"W{number}", "REAL_TOPIC": "T", "REAL_QID": "0", "TIMER_OUT_MS": due, **more}
    return Message("rmq_sys_wheel_timer", 0, properties=properties, store_timestamp=EPOCH + 20_000)


def fired(of: Message) -> Message:
    kept = {name: value for name, value in dict(of.properties).items() if not name.startswith("REAL")}  # type: ignore[arg-type]
    properties = kept | {"TIMER_DEQUEUE_MS": "1"}
    return dataclasses.replace(of, topic="T", queue_id=0, properties=properties, store_timestamp=EPOCH + 60_000)


def build(tmp_path: Path, records: list[Message], **settings: Any) -> BuildResult:
    with LogWriter(tmp_path / "store" / "commitlog", 1 << 12) as writer:
        for record in records:
            writer.append(record)
    given = SMALL | {"write_delay": True, "delay_levels": DELAYS} | settings
    return local_build(tmp_path / "store", tmp_path / "out", **given)


def offsets(tmp_path: Path) -> dict[str, int]:
    found: dict[str, int] = json.loads((tmp_path / "out" / "config" / "delayOffset.json").read_text())["offsetTable"]
    return found


def test_levels_go_on_behind_the_last_delivered_one(tmp_path: Path) -> None:
    waiting = [scheduled(number, 1 + number % 2) for number in range(8)]
    summary = build(tmp_path, [*waiting, *(copy(message) for message in waiting[:5])])
    assert offsets(tmp_path) == {"1": 3, "2": 2}
    assert summary.delay is not None
    assert [level["pending"] for level in summary.delay["levels"]] == [1, 2]
    assert summary.delay["undecided_count"] == 0
    told = "delayed  3 messages of delay levels and 0 timer messages wait to be delivered: their REAL_TOPIC has no copy of them"
    assert f"{told}; 0 messages undecided" in summary.to_text().splitlines()
    wanted = find_build(str(tmp_path / "out"))
    assert "config/delayOffset.json" in wanted.parts


@pytest.mark.parametrize(("policy", "wanted", "again"), [("deliver", 1, 1), ("drop", 3, 0)])
def test_one_that_has_no_copy_is_undecided(policy: str, wanted: int, again: int, tmp_path: Path) -> None:
    waiting = [scheduled(number, 1) for number in range(4)]
    summary = build(tmp_path, [*waiting, copy(waiting[0]), copy(waiting[2])], undecided=policy)
    assert offsets(tmp_path) == {"1": wanted}
    assert summary.delay is not None
    (level,), (message,) = summary.delay["levels"], summary.delay["undecided"]
    assert (level["again"], level["pending"]) == (again, 1)
    assert (message["uniq_key"], message["real_topic"], message["queue_offset"]) == ("K1", "T", 1)
    assert json.loads((tmp_path / "out" / "reindex.json").read_text())["delay"] == summary.delay


def test_a_copy_may_lie_in_damage(tmp_path: Path) -> None:
    waiting = [scheduled(number, 1) for number in range(3)]
    lost = dataclasses.replace(copy(waiting[1]), body_crc=1)
    summary = build(tmp_path, [*waiting, copy(waiting[0]), lost, copy(scheduled(9, 2))], on_damage="salvage")
    assert summary.delay is not None
    assert [message["uniq_key"] for message in summary.delay["undecided"]] == ["K1", "K2"]
    assert offsets(tmp_path) == {"1": 1}


def test_a_copy_may_lie_behind_the_cut(tmp_path: Path) -> None:
    """--on-damage stop: the broker cuts the log there, and the copies that lie behind."""
    waiting = [scheduled(number, 1) for number in range(3)]
    half = [Message(HALF, properties={"UNIQ_KEY": "H"}) for _ in range(2)]
    lost = Message("T", body_crc=1)
    records = [*waiting, half[0], copy(waiting[0]), lost, copy(waiting[1]), half[1]]
    summary = build(tmp_path, records, on_damage="stop")
    assert summary.delay is not None
    assert [message["uniq_key"] for message in summary.delay["undecided"]] == ["K1", "K2"]
    assert offsets(tmp_path) == {"1": 1}
    assert not (tmp_path / "out" / "config" / "consumerOffset.json").exists()


def test_a_timer_message_whose_copy_may_lie_in_damage(tmp_path: Path) -> None:
    lost = dataclasses.replace(fired(timed(1)), body_crc=1)
    summary = build(tmp_path, [timed(1), timed(2), fired(timed(2)), lost, fired(timed(3))], on_damage="salvage")
    assert summary.delay is not None
    assert summary.delay["timers"] == {"pending": 0, "undecided": 1}
    (message,) = summary.delay["undecided"]
    assert (message["topic"], message["level"], message["queue_offset"]) == ("rmq_sys_wheel_timer", None, 0)
    assert (message["uniq_key"], message["reason"]) == ("W1", "was due, and its copy may lie in damage")


def test_the_order_of_a_broker_moves_units_away(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs --queue-order logical"):
        build(tmp_path, [scheduled(1, 1)], queue_order="broker")


def test_a_timer_message_with_a_delay_level_of_0(tmp_path: Path) -> None:
    first = timed(1, DELAY="0")
    properties = {**dict(first.properties), "TIMER_DEQUEUE_MS": "1"}  # type: ignore[arg-type]
    summary = build(tmp_path, [first, dataclasses.replace(fired(first), properties=properties)])
    assert summary.delay is not None
    assert summary.delay["timers"] == {"pending": 0, "undecided": 0}


def test_what_no_broker_wrote_into_the_timer_topic(tmp_path: Path) -> None:
    """It lacks what a broker needs to deliver it."""
    summary = build(tmp_path, [timed(1), Message("rmq_sys_wheel_timer", 0)])
    assert summary.delay is not None
    assert summary.delay["timers"] == {"pending": 1, "undecided": 0}


def test_a_message_of_the_same_key_and_level_and_without_a_key(tmp_path: Path) -> None:
    twice = [scheduled(1, 1), dataclasses.replace(scheduled(1, 1), born_timestamp=EPOCH + 5)]
    bare = [scheduled(2, 2, key=False), dataclasses.replace(scheduled(2, 2, key=False), body=b"other")]
    build(tmp_path, [*twice, *bare, copy(twice[0]), copy(twice[0]), copy(bare[0])])
    assert offsets(tmp_path) == {"1": 1, "2": 1}


def test_timer_files_have_the_pending_ones(tmp_path: Path) -> None:
    first, second, third = timed(1), timed(2), timed(3)
    rolled = timed(3, TIMER_ROLL_TIMES="1")
    summary = build(tmp_path, [first, second, third, rolled, fired(first)])
    assert summary.delay is not None
    assert summary.delay["timers"] == {"pending": 2, "undecided": 0}
    out = tmp_path / "out"
    assert (out / "timerwheel").stat().st_size
    assert list((out / "timerlog").iterdir())
    check = TimerCheckpoint.from_bytes((out / "config" / "timercheck").read_bytes())
    assert 4 in dataclasses.astuple(check)
    assert {"timerlog", "timerwheel", "config/timercheck"} <= set(find_build(str(out)).parts)


def test_what_has_no_unit_never_waits(tmp_path: Path) -> None:
    """A broker reads its own topics through their queues, which have no unit of a rollback."""
    records = [scheduled(1, 1), timed(1), Message(HALF, properties={"UNIQ_KEY": "H"})]
    summary = build(tmp_path, [*(dataclasses.replace(record, sysflag=0x0C) for record in records), scheduled(2, 2)])
    assert summary.delay is not None
    assert [(level["level"], level["pending"]) for level in summary.delay["levels"]] == [(2, 1)]
    assert summary.delay["timers"] == {"pending": 0, "undecided": 0}
    assert offsets(tmp_path) == {"2": 0}


def test_consumer_offsets_are_checked(tmp_path: Path) -> None:
    backup = tmp_path / "consumerOffset.json"
    text = '{"offsetTable":{"A@g":{0:2,1:0},"A@far":{0:9},"B@gone":{0:1}}}'
    backup.write_text(text)
    summary = build(tmp_path, [Message("A"), Message("A")], write_delay=False, consumer_offsets=str(backup))
    assert (tmp_path / "out" / "config" / "consumerOffset.json").read_text() == text
    warned = [warning for warning in summary.warnings if "consumerOffset" in warning]
    assert len(warned) == 2
    assert "group far stands at offset 9 of A/0: the queue ends at 2: set it to that" in warned[0]
    assert "group gone" in warned[1]


def test_many_wrong_consumer_offsets_are_counted(tmp_path: Path) -> None:
    backup = tmp_path / "consumerOffset.json"
    backup.write_text(json.dumps({"offsetTable": {f"A@g{number}": {"0": 9} for number in range(23)}}))
    summary = build(tmp_path, [Message("A")], write_delay=False, consumer_offsets=str(backup))
    *named, rest = [warning for warning in summary.warnings if "consumerOffset" in warning]
    assert len(named) == 20
    assert rest == "config/consumerOffset.json: 3 more offsets outside of their queues"


def test_what_is_no_backup_is_refused(tmp_path: Path) -> None:
    backup = tmp_path / "consumerOffset.json"
    backup.write_text('{"offsetTable":{"A@g":{"0":"x"}}}')
    summary = build(tmp_path, [Message("A")], write_delay=False, consumer_offsets=str(backup))
    assert (summary.error or "").endswith("is no consumerOffset.json: name the consumerOffset.json of a backup")
    older = tmp_path / "consumerOffset.json.bak"
    older.write_text('{"offsetTable":{}}')
    summary = build(tmp_path, [Message("A")], write_delay=False, consumer_offsets=str(backup))
    assert (summary.error or "").endswith(f"is no consumerOffset.json: name {older}")
    backup.unlink()
    summary = build(tmp_path, [Message("A")], write_delay=False, consumer_offsets=str(backup))
    assert (summary.error or "").endswith(f"cannot be read (No such file or directory): name {older}")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "more", [["--only", "index"], ["--include-topic", "A"], ["--until-offset", "9"], ["--until-time", "100000000009"]]
)
def test_less_than_the_whole_log_is_refused(more: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", str(tmp_path), "--out", str(tmp_path / "out"), "--write-delay", *more]) == 2
    assert "--write-delay: needs all of the log" in capsys.readouterr().err


def test_nothing_waits(tmp_path: Path) -> None:
    waiting = scheduled(0, 1)
    summary = build(tmp_path, [waiting, copy(waiting)])
    assert "delayed  no message waits to be delivered" in summary.to_text().splitlines()


def test_what_a_build_and_preflight_count(tmp_path: Path) -> None:
    """The build counts messages without a copy, preflight all units of a level from its offset on; both say so."""
    waiting = [scheduled(number, 1) for number in range(4)]
    nameless = dataclasses.replace(waiting[0], properties={"UNIQ_KEY": "K9", "DELAY": "1"})
    store = tmp_path / "store"
    summary = build(tmp_path, [*waiting, nameless, copy(waiting[0])], broker_version="5.3")
    told = "delayed  3 messages of delay levels and 0 timer messages wait to be delivered: their REAL_TOPIC has no copy of them"
    assert f"{told}; 0 messages undecided" in summary.to_text().splitlines()
    for name in ("consumequeue", "index", "checkpoint", "config"):
        shutil.move(tmp_path / "out" / name, store / name)
    conf = tmp_path / "broker.conf"
    conf.write_text(f"messageDelayLevel={DELAYS}\n")
    for count in (4, 5):
        lines = rr.preflight(store, broker_conf=conf, broker_version="5.3").text.splitlines()
        told = f"delayed  {count} messages will be delivered: all units of 1 level from the offset on where each goes on"
        assert [line.partition(", ")[0] for line in lines if line.startswith("delayed ")] == [told]
        (store / "config" / "delayOffset.json").unlink(missing_ok=True)
