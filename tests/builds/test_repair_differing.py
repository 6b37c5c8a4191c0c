"""Records that are sound in the log and otherwise in a replica: told with what differs, and by majority taken."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.jobs.building.summary import RepairResult
from rocketmq_reindex.jobs.verifying.options import VerifySettings
from rocketmq_reindex.jobs.verifying.run import Against
from rocketmq_reindex.storage_format.errors import UsageError
from tests.builds.repair_log import (
    BORN,
    FLAG,
    MAGIC,
    RECONSUMED,
    SEGMENT,
    Log,
    copy,
    first_of_second,
    log_of,
    make_log,
    repaired,
)
from tests.tools.local_engine import InlineEngine, QuietReporter, single
from tests.tools.seeds import cases


@pytest.fixture
def whole(tmp_path: Path) -> Log:
    return make_log(tmp_path / "whole", 2)


def listed(told: RepairResult) -> list[dict[str, Any]]:
    assert told.repair is not None
    found: list[dict[str, Any]] = told.repair.get("differing", [])
    return found


def test_a_replica_that_differs(whole: Log, tmp_path: Path) -> None:
    """The record is told with its fields, and the log's own bytes stay."""
    one, other = copy(whole, tmp_path / "one"), whole.puts[30]
    key = other.offset + whole.at(other.offset, other.size).index(b"key-30")
    one.change(other.offset + FLAG, b"\x07")
    one.change(key, b"kex")
    told = repaired(whole, tmp_path / "out", one)
    (entry,) = listed(told)
    assert entry == {
        "replica": 1, "offset": other.offset, "size": other.size, "topic": "TopicA", "queue": 0, "queue_offset": 15,
        "fields": "flag, property KEYS", "taken": False,
    }  # fmt: skip
    assert told.exit == 0
    (text,) = (text for text in told.warnings if "records differ" in text)
    assert f"replica 1: offset {other.offset}: record of TopicA/0, queue offset 15: flag, property KEYS" in text
    assert log_of(tmp_path / "out") == log_of(whole.store)
    assert listed(repaired(whole, tmp_path / "out", copy(whole, tmp_path / "same"))) == []


def test_damage_is_told_as_damage(whole: Log, tmp_path: Path) -> None:
    """Of what is mended anyway nothing more is said, nor of what only the replica has."""
    log = copy(whole, tmp_path / "log")
    log.change(whole.puts[20].offset + 95, b"\xff")
    told = repaired(log, tmp_path / "out", whole)
    assert (told.exit, listed(told)) == (0, [])


@pytest.mark.parametrize("side", ["the last of a segment", "the first of a segment"])
@pytest.mark.parametrize("others", [1, 3])
def test_records_across_a_segment_border_differ(whole: Log, tmp_path: Path, side: str, others: int) -> None:
    """The replica has the lost record: what it has otherwise in the segment beside is no reason to lose it."""
    firsts = [k for k in range(1, len(whole.puts)) if whole.puts[k].offset // SEGMENT > whole.puts[k - 1].offset // SEGMENT]
    assert len(firsts) > 1
    for first in firsts:
        log, replica = copy(whole, tmp_path / f"log-{first}"), copy(whole, tmp_path / f"replica-{first}")
        lost, beside = (first - 1, range(first, first + others)) if side.startswith("the last") else (
            first, range(first - others, first))  # fmt: skip
        log.change(whole.puts[lost].offset + MAGIC, b"\0")
        for number in beside:
            replica.change(whole.puts[number].offset + FLAG, b"\x07")
        told = repaired(log, tmp_path / "out", replica)
        (entry,) = told.repair["ranges"] if told.repair else []
        assert (told.exit, entry["how"]) == (0, "replica")
        assert log_of(tmp_path / "out") == log_of(whole.store)


@pytest.mark.parametrize("side", ["left", "right"])
def test_those_of_the_segment_go_with_the_damage(whole: Log, tmp_path: Path, side: str) -> None:
    """Beside the damage one record of its segment differs, and one across the border: only the first is taken."""
    first = first_of_second(whole)
    lost, near, across = (first + 1, first, first - 1) if side == "left" else (first - 2, first - 1, first)
    log = copy(whole, tmp_path / "log")
    log.change(whole.puts[lost].offset + MAGIC, b"\0")
    for number in (near, across):
        log.change(whole.puts[number].offset + FLAG, b"\x07")
    told = repaired(log, tmp_path / "out", whole)
    (entry,) = told.repair["ranges"] if told.repair else []
    wanted = copy(whole, tmp_path / "wanted")
    wanted.change(whole.puts[across].offset + FLAG, b"\x07")
    assert entry["how"] == "replica"
    assert log_of(tmp_path / "out") == log_of(wanted.store)


def test_a_filler_is_no_end(whole: Log, tmp_path: Path) -> None:
    """The last record of a segment differs; behind its filler the next segment's first is equal."""
    first = first_of_second(whole)
    log = copy(whole, tmp_path / "log")
    log.change(whole.puts[first - 2].offset + MAGIC, b"\0")
    log.change(whole.puts[first - 1].offset + FLAG, b"\x07")
    told = repaired(log, tmp_path / "out", whole)
    (entry,) = told.repair["ranges"] if told.repair else []
    assert entry["how"] == "replica"
    assert log_of(tmp_path / "out") == log_of(whole.store)


def test_the_majority(whole: Log, tmp_path: Path) -> None:
    """Two of three have the same bytes; of three different ones none counts."""
    log, third = copy(whole, tmp_path / "log"), copy(whole, tmp_path / "third")
    spoilt, beside, odd = whole.puts[10], whole.puts[11], whole.puts[25]
    for put in (spoilt, beside):
        log.change(put.offset + BORN, b"\x01")
    log.change(odd.offset + FLAG, b"\x01")
    third.change(odd.offset + FLAG, b"\x02")
    told = repaired(log, tmp_path / "out", whole, third)
    assert [(one["replica"], one["offset"], one["taken"]) for one in listed(told)] == [
        (number, put.offset, False) for put in (spoilt, beside, odd) for number in (1, 2)
    ]
    assert log_of(tmp_path / "out") == log_of(log.store)

    told = repaired(log, tmp_path / "out", whole, third, majority=True)
    assert {one["offset"] for one in listed(told) if one["taken"]} == {spoilt.offset, beside.offset}
    assert any(text.startswith("--majority: 2 records taken as most of the logs have it") for text in told.warnings)
    (entry,) = told.repair["ranges"] if told.repair else []
    assert (entry["offset"], entry["length"]) == (spoilt.offset, spoilt.size + beside.size)
    assert (entry["how"], entry["replica"]) == ("replica", 1)
    assert entry["reason"] == "most of the logs have this record otherwise (born_time)"
    fixed = copy(whole, tmp_path / "fixed")
    fixed.change(odd.offset + FLAG, b"\x01")
    assert log_of(tmp_path / "out") == log_of(fixed.store)
    kept = (tmp_path / "out/quarantine" / f"{spoilt.offset:020d}").read_bytes()
    assert kept == log.at(spoilt.offset, len(kept))
    with pytest.raises(UsageError, match="--majority: one of two logs is no majority"):
        repaired(log, tmp_path / "out", whole, majority=True)


@pytest.mark.parametrize("number", [20, 40])
def test_a_majority_beside_what_one_replica_has_otherwise(whole: Log, tmp_path: Path, number: int) -> None:
    """The record is taken, and the one beside it stays: of that one most of the logs have the same bytes as this one."""
    log, one = copy(whole, tmp_path / "log"), copy(whole, tmp_path / "one")
    log.change(whole.puts[number].offset + BORN, b"\x01")
    for beside in (number - 1, number + 1):
        one.change(whole.puts[beside].offset + FLAG, b"\x07")
    repaired(log, tmp_path / "out", one, whole, majority=True)
    assert log_of(tmp_path / "out") == log_of(whole.store)


def test_a_record_at_the_begin_of_a_segment(whole: Log, tmp_path: Path) -> None:
    """Two of three have it like the log: what the third has otherwise is no majority."""
    one, put = copy(whole, tmp_path / "one"), whole.puts[first_of_second(whole)]
    assert put.offset % SEGMENT == 0
    one.change(put.offset + FLAG, b"\x07")
    told = repaired(whole, tmp_path / "out", copy(whole, tmp_path / "same"), one, majority=True)
    assert [(entry["offset"], entry["taken"]) for entry in listed(told)] == [(put.offset, False)]
    assert log_of(tmp_path / "out") == log_of(whole.store)


def test_random_differences(whole: Log, seed: int, tmp_path: Path) -> None:
    """Each log has its own wrong bytes: the majority has them all right, with any range size, and with damage among them."""
    rng = random.Random(seed)
    for number in range(cases(4, 1)):
        logs = [copy(whole, tmp_path / f"{number}-{k}") for k in range(3)]
        for at in rng.sample(range(1, 40), k=9):
            place = whole.puts[at].offset + rng.choice((FLAG, BORN, RECONSUMED))
            rng.choice(logs).change(place, bytes([rng.randrange(1, 255)]))
        # What lies beside damage goes with it where the replica has it otherwise.
        for at in rng.sample(range(42, 59), k=3):
            logs[0].change(whole.puts[at].offset + 95, b"\xff")
        told = repaired(logs[0], tmp_path / "out", *logs[1:], majority=True, range_size=rng.choice((0, 300, 999)))
        assert told.exit == 0
        assert log_of(tmp_path / "out") == log_of(whole.store)


def test_verify_against_names_the_records(whole: Log, tmp_path: Path) -> None:
    one, other = copy(whole, tmp_path / "one"), whole.puts[30]
    one.change(other.offset + FLAG, b"\x07\x07")
    one.change(other.offset + 95, b"\x07")
    job = Against(VerifySettings(str(whole.store), against=str(one.store)).check(), QuietReporter(), single(InlineEngine()))
    job.run()
    summary = job.result
    (finding,) = summary.findings
    assert (finding["kind"], finding["count"]) == ("against-log-differs", 3)
    (example,) = finding["examples"]
    assert (example["where"], example["at"]) == ("commitlog", other.offset + FLAG)
    assert example["text"] == f"offset {other.offset}: record of TopicA/0, queue offset 15: flag, body"
    assert any(note.startswith("1 record of A differ in B") for note in summary.notes)
