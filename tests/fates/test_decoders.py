"""What the decoders say of a real broker's records, beside what its clients did and saw."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.cli import main
from tests.fates.life import AGAIN, DEAD, LEVELS, POPPING, Fates, key
from tests.reference import meaning as reference


@pytest.fixture(scope="module")
def rows(fates: Fates) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        rr.messages(fates.store, damage="skip", delay_levels=LEVELS).read_all().to_pylist(maps_as_pydicts="strict")
    )
    assert [row["commitLogOffset"] for row in found] == [record.offset for record in fates.log]
    return found


def of_kind(rows: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["kind"] == kind]


def test_each_column_is_the_references(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        wanted = reference.columns_of(row)
        assert {name: row[name] for name in wanted} == wanted
    assert {row["kind"] for row in rows} == {
        "message", "half", "op", "scheduled", "timer", "retry", "dead_letter", "pop", "trace",
    }  # fmt: skip


def test_waiting_messages(fates: Fates, rows: list[dict[str, Any]]) -> None:
    """Each copy that a broker delivered came when its record says, to the queue that it says."""
    waited = {row["uniqKey"]: row for row in of_kind(rows, "scheduled") if row["realTopic"] == "Delayed"}
    waited |= {row["uniqKey"]: row for row in of_kind(rows, "timer") if row["realTopic"] == "Delayed"}
    assert set(waited) == {key(name) for name in ("level", "level-waits", "timer", "timer-waits", "recalled", "mark")}
    copies = {row["uniqKey"]: row for row in of_kind(rows, "message") if row["topic"] == "Delayed"}
    assert set(copies) == {key("level"), key("timer")}
    for unique, copy in copies.items():
        assert waited[unique]["realQueueId"] == copy["queueId"] == 0
        assert copy["storeTimestamp"] >= waited[unique]["deliverTimestamp"] - 1000
    assert all(waited[key(name)]["deliverTimestamp"] > fates.log[-1].store_time for name in ("level-waits", "timer-waits"))


def test_transactions(rows: list[dict[str, Any]]) -> None:
    halves = {row["uniqKey"]: row for row in of_kind(rows, "half")}
    assert set(halves) == {key("committed"), key("rolled-back"), key("undecided")}
    (sold,) = [row for row in of_kind(rows, "message") if row["topic"] == "Sold"]
    assert (sold["uniqKey"], sold["originOffset"]) == (key("committed"), halves[key("committed")]["commitLogOffset"])
    assert {row["realTopic"] for row in of_kind(rows, "op")} == {"RMQ_SYS_TRANS_HALF_TOPIC"}


def test_what_came_again(fates: Fates, rows: list[dict[str, Any]]) -> None:
    retries = [row for row in of_kind(rows, "retry") if row["consumerGroup"] == AGAIN]
    told = Counter((unique, times) for unique, times, _ in fates.told[AGAIN] if times)
    assert Counter((row["uniqKey"], row["reconsumeTimes"]) for row in retries) == told
    places = {row["uniqKey"]: row["commitLogOffset"] for row in rows if row["topic"] in ("Again", "Dead")}
    letters = of_kind(rows, "dead_letter")
    assert {row["uniqKey"] for row in letters} == {key("dead", 0), key("dead", 1)}
    assert {row["consumerGroup"] for row in letters} == {DEAD}
    for row in retries + letters:
        assert row["originOffset"] == places[row["uniqKey"]]
        assert row["realTopic"] == ("Dead" if row["kind"] == "dead_letter" else "Again")


def test_pop(fates: Fates, rows: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    """Each message that the client acknowledged has a record that says so; those that it gave back came again."""
    offsets = {row["consumeQueueOffset"]: row["uniqKey"] for row in rows if row["topic"] == "Popped"}
    records = [row for row in of_kind(rows, "pop") if row["realTopic"] == "Popped"]
    assert {row["consumerGroup"] for row in records} == {POPPING}
    taken, acknowledged = Counter[str](), Counter[str]()
    for row in records:
        said = asked(fates.store, row["commitLogOffset"], capsys)["meaning"]["pop"]
        assert (said["topic"], said["queueId"], said["group"]) == ("Popped", 0, POPPING)
        for offset in said["offsets"]:
            (taken if said["record"] == "checkPoint" else acknowledged)[offsets[offset]] += 1
    first = [(unique, last) for unique, times, last in fates.told[POPPING] if times == 0]
    assert set(taken) == {unique for unique, _ in first}
    assert set(acknowledged) >= {unique for unique, last in first if last == "done"}
    came_again = {row["uniqKey"] for row in of_kind(rows, "retry") if row["topic"].startswith(f"%RETRY%{POPPING}")}
    assert came_again == {unique for unique, last in first if last == "again"}


def test_traces(fates: Fates, rows: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    """Each record of each trace is what RocketMQ's own decoder reads."""
    read: list[dict[str, str]] = []
    for row in of_kind(rows, "trace"):
        for trace in asked(fates.store, row["commitLogOffset"], capsys)["meaning"]["traces"]:
            texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in trace.items()}
            read.append({"offset": str(row["commitLogOffset"]), **texts})
    assert {trace["traceType"] for trace in read} == {"Pub", "SubBefore", "SubAfter"}
    assert len(read) == len(fates.traces)
    for ours, theirs in zip(read, fates.traces, strict=True):
        assert ours == {name: theirs[name].replace("null", "None") for name in ours}


def asked(store: Path, offset: int, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["query", str(store), "--physical", str(offset), "--json", "--delay-levels", LEVELS]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_inspect_says_the_same(fates: Fates, rows: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    """``inspect --records`` has of each record the meaning that ``query`` has, and the words for it."""
    (segment,) = sorted((fates.store / "commitlog").iterdir())[:1]
    listed = {
        record["physicalOffset"]: record["meaning"] for record in rr.inspect(segment, records=True, delay_levels=LEVELS).records
    }
    assert [meaning["kind"] for meaning in listed.values()] == [row["kind"] for row in rows]
    for row in rows[:: max(1, len(rows) // 20)]:
        assert asked(fates.store, row["commitLogOffset"], capsys)["meaning"] == listed[row["commitLogOffset"]]
    words = {meaning["kind"]: meaning["text"] for meaning in listed.values()}
    assert words["half"] == "half message for Sold, queue 0: clients get it once it is committed"
    assert words["dead_letter"] == f"dead letter of group {DEAD} of Dead"
    assert words["retry"] == f"comes again to group {AGAIN} of Again, attempt 2"
