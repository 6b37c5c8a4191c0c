"""What has a sound frame and CRC is never a torn tail, whatever it is refused for, and wherever ranges are cut."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from rocketmq_reindex.storage_format.record import layout as r
from tests.golden.test_damage import EXIT, POLICIES, build_and_compare
from tests.tools.compare import SMALL
from tests.tools.log_writer import LogWriter, Put
from tests.tools.make_log import Message, encode
from tests.tools.tiers import half

SIZES = (0, 700, 90)
DELAYED = b"DELAY\x01soon\x02"
REFUSED: dict[str, tuple[Message, int, dict[str, str]]] = {
    "topic": (Message(topic=b"a\tb"), r.BAD_TOPIC, {}),
    "queue id": (Message(queue_id=-1), r.BAD_QUEUE, {}),
    "queue offset": (Message(queue_offset=-1), r.BAD_QUEUE, {}),
    "delay level": (Message(topic="SCHEDULE_TOPIC_XXXX", properties=DELAYED), r.BAD_NUMBER, {}),
    "batch": (Message(properties=b"INNER_NUM\x01x\x02INNER_BASE\x010\x02"), r.BAD_NUMBER, {}),
    "version": (Message(version=2), r.BAD_VERSION, {"broker_version": "4.9"}),
    "position": (Message(physical_offset=77), r.BAD_POSITION, {}),
    "far position": (Message(physical_offset=2**63 - 1), r.BAD_POSITION, {}),
    "position before the log": (Message(physical_offset=-(2**63)), r.BAD_POSITION, {}),
}


def ten_records_and(message: Message, folder: Path) -> Put:
    """A log of ten good records with that one behind them; returns what was written of it."""
    with LogWriter(folder / "store" / "commitlog", 1 << 13) as writer:
        for _ in range(10):
            writer.append(Message(properties={"KEYS": "k"}))
        return writer.append(message)


@pytest.mark.parametrize(("kind", "policy"), half(REFUSED, POLICIES))
def test_a_refused_last_record_is_damage(kind: str, policy: str, tmp_path: Path) -> None:
    message, code, more = REFUSED[kind]
    bad = ten_records_and(message, tmp_path)
    for crc in ("body", "none"):
        for size in SIZES:
            summary = build_and_compare(tmp_path / "store", tmp_path / "out", size, on_damage=policy, crc=crc, **SMALL, **more)
            assert summary.exit == EXIT[policy]
            (damage,) = summary.damage
            assert (damage["offset"], damage["length"], damage["reason"]) == (bad.offset, bad.size, r.REASONS[code])
            assert policy == "fail" or summary.records == 10


@pytest.mark.parametrize("kind", REFUSED)
def test_where_a_broker_cuts_its_log(kind: str, tmp_path: Path) -> None:
    """``CommitLog.checkMessageAndReturnSize`` asks neither for a topic's characters nor for queues or places."""
    message, code, more = REFUSED[kind]
    with LogWriter(tmp_path / "store" / "commitlog", 1 << 13) as writer:
        writer.append(Message(properties={"KEYS": "k"}))
        bad = writer.append(message)
        writer.append(Message(properties={"KEYS": "k"}))
    summary = build_and_compare(tmp_path / "store", tmp_path / "out", 0, on_damage="salvage", **SMALL, **more)
    cuts = [warning for warning in summary.warnings if "a broker that starts cuts its log there" in warning]
    assert [f"offset {bad.offset}:" in warning for warning in cuts] == [True] * (code in (r.BAD_NUMBER, r.BAD_VERSION))


@pytest.mark.parametrize(("kind", "policy"), half(REFUSED, POLICIES))
def test_what_a_crash_tore_stays_torn(kind: str, policy: str, tmp_path: Path) -> None:
    """The same records with a body that is not what their CRC says: cut, as before."""
    message, _, more = REFUSED[kind]
    bad = ten_records_and(dataclasses.replace(message, body_crc=5), tmp_path)
    for size in SIZES:
        summary = build_and_compare(tmp_path / "store", tmp_path / "out", size, on_damage=policy, **SMALL, **more)
        assert (summary.exit, summary.records) == (0, 10)
        assert [(d["offset"], d["length"], d["reason"][:10]) for d in summary.damage] == [(bad.offset, bad.size, "torn tail:")]


@pytest.mark.parametrize("policy", POLICIES)
def test_what_lies_before_a_refused_record_is_damage_and_what_lies_behind_may_be_torn(policy: str, tmp_path: Path) -> None:
    with LogWriter(tmp_path / "store" / "commitlog", 1 << 13) as writer:
        writer.append(Message())
        garbage = writer.append_raw(b"no record")
        bad = writer.append(Message(topic=b"a\tb"))
        torn = writer.append(Message(body_crc=5))
    for size in SIZES:
        summary = build_and_compare(tmp_path / "store", tmp_path / "out", size, on_damage=policy, **SMALL)
        assert summary.exit == EXIT[policy]
        found = [(d["offset"], d["length"]) for d in summary.damage]
        expected = [(garbage, 9), (bad.offset, bad.size), (torn.offset, torn.size)]
        assert found == (expected[:1] if policy == "stop" else expected)
        assert [d["reason"].startswith("torn tail") for d in summary.damage] == [False, False, True][: len(found)]


def misnamed(folder: Path, first: bytes = b"", segments: int = 1, records: int = 40) -> Path:
    """A store whose last segment, the records of the fourth one, is called as the one behind; ``first``: bytes of its head."""
    size = 1 << 13
    with LogWriter(folder / "commitlog", size, (4 - segments) * size) as writer:
        for _ in range(segments - 1):
            writer.append(Message(properties={"KEYS": "k"}))
            writer.roll()
        for _ in range(records):
            writer.append(Message(properties={"KEYS": "k"}))
    path = folder / "commitlog" / f"{3 * size:020d}"
    data = path.read_bytes()
    path.write_bytes(first + data[len(first) :])
    return path.rename(path.with_name(f"{4 * size:020d}"))


@pytest.mark.parametrize(("first", "policy"), half([b"", b"\xff" * 30, bytes(200)], POLICIES))
@pytest.mark.parametrize("segments", [1, 2])
def test_a_segment_under_a_wrong_name(policy: str, segments: int, first: bytes, tmp_path: Path) -> None:
    """It is told with its right name, and under that its records are built."""
    store, out = tmp_path / "store", tmp_path / "out"
    wrong = misnamed(store, first, segments)
    right = f"{3 << 13:020d}"
    for crc in ("body", "none"):
        for size in SIZES:
            summary = build_and_compare(store, out, size, on_damage=policy, crc=crc, segment_size=1 << 13, **SMALL)
            assert summary.exit == EXIT[policy]
            told = [d for d in summary.damage if d["reason"].startswith("segment is misnamed")]
            assert len(told) == (0 if policy == "stop" and segments == 2 else 1)
            assert all(d["segment"] == wrong.name and d["reason"].endswith(f"its name should be {right}") for d in told)
            if policy == "fail":
                assert summary.error is not None
                assert right in summary.error
                assert summary.error.endswith("rename it")
    wrong.rename(wrong.with_name(right))
    summary = build_and_compare(store, out, 0, on_damage="salvage", **SMALL)
    assert summary.records > 30
    assert summary.exit == (3 if first else 0)


def test_a_log_in_messages_is_a_torn_tail_all_the_same(tmp_path: Path) -> None:
    """The body of the one record that a crash tore holds a record of another log: one alone says nothing."""
    inner = encode(Message(topic="Other"), 1 << 20)
    with LogWriter(tmp_path / "store" / "commitlog", 1 << 13) as writer:
        writer.append(Message(body=inner))
        writer.segment[:4] = b"\xff" * 4
    for size in SIZES:
        summary = build_and_compare(tmp_path / "store", tmp_path / "out", size, **SMALL)
        assert (summary.exit, summary.records) == (0, 0)
