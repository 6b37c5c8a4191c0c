"""Records that are sound in the log and otherwise in a replica: told with what differs, and by majority taken."""

from __future__ import annotations

import random
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.jobs.building.summary import Summary
from rocketmq_reindex.jobs.verifying.against import Against
from rocketmq_reindex.jobs.verifying.settings import VerifySettings
from rocketmq_reindex.storage_format.errors import UsageError
from tests.builds.repair_log import SEGMENT, SIZES, Log, log_of, make_log
from tests.tools.encode import Message as NewMessage
from tests.tools.encode import encode
from tests.tools.local_engine import InlineEngine, QuietReporter, local_repair, single
from tests.tools.log_writer import LogWriter
from tests.tools.stale_log import copy_log

FLAG, BORN, RECONSUMED = 16, 40, 72
"""Where some fields lie in a record that no CRC covers."""
BODY_CRC, SYSFLAG, BODY = 8, 39, 95


@pytest.fixture
def whole(tmp_path: Path) -> Log:
    return make_log(tmp_path / "whole", 2)


def copy(whole: Log, store: Path) -> Log:
    return Log(copy_log(whole.store, store), whole.puts)


def repaired(log: Log, out: Path, *replicas: Log, **settings: Any) -> Summary:
    shutil.rmtree(out, ignore_errors=True)
    told = local_repair(
        log.store, out, InlineEngine(3, 2), replicas=tuple(str(one.store) for one in replicas), segment_size=SEGMENT,
        **(SIZES | settings),
    )  # fmt: skip
    assert told.error is None, told.error
    return told


def listed(told: Summary) -> list[dict[str, Any]]:
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


MAGIC = 4


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


def first_of_second(whole: Log) -> int:
    """The number of the first record of the second segment."""
    return next(k for k in range(1, len(whole.puts)) if whole.puts[k].offset >= SEGMENT)


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


def spoil(whole: Log, log: Log, replica: Log, first: int, pattern: str, field: int = FLAG) -> None:
    """Spoil the records from ``first`` on: ``x`` is damaged in the log, ``r`` in the replica, ``b`` in both, and ``c`` in its
    body, in the replica.

    ``~`` and ``-`` have another byte in ``field`` in the replica, or in the log; ``.`` is the same in both.
    """
    for number, kind in enumerate(pattern, first):
        put = whole.puts[number]
        for one in [log] * (kind in "xb") + [replica] * (kind in "rb"):
            one.change(put.offset + MAGIC, b"\0")
        if kind == "c":
            replica.change(put.offset + BODY, b"\xff")
        if kind in "~-":
            one = replica if kind == "~" else log
            one.change(put.offset + field, bytes([whole.at(put.offset + field, 1)[0] ^ 1]))


def kinds_of(out: Path, log: Log, *replicas: Log) -> str:
    """Of each record whose bytes it has: ``=`` of the log and all replicas, ``l``, or the number of a replica; else ``?``."""
    found = ""
    for put in log.puts:
        new = Log(out, log.puts).at(put.offset, put.size)
        having = "".join(
            name for name, one in zip("l12", (log, *replicas), strict=False) if one.at(put.offset, put.size) == new
        )
        found += "=" if len(having) == 1 + len(replicas) else having[:1] or "?"
    return found


PLACES = ("the log's beginning", "a segment's beginning", "within", "a segment's end", "across a border", "the log's end")


def place_of(whole: Log, place: str, size: int) -> int:
    """The number of the first of ``size`` records at that place."""
    second = first_of_second(whole)
    return {
        PLACES[0]: 0, PLACES[1]: second, PLACES[2]: second + 4, PLACES[3]: second - size, PLACES[4]: second - size // 2,
        PLACES[5]: len(whole.puts) - size,
    }[place]  # fmt: skip


PATTERNS = ("x-x", "x~~x", "x-~x", "x~~~x", "x.~x", "x~.x", "x~x~x", "x~x-~x", "~x~x~", "x~~~~x", "-x-", "x~x.~x")


@pytest.mark.parametrize(
    ("pattern", "place"),
    [
        *(("x~x", place) for place in PLACES),
        *zip(PATTERNS, PLACES + PLACES, strict=True),
        ("-x-", PLACES[0]),
        ("~x~x~", PLACES[4]),
    ],
)
def test_what_lies_between_two_damages_differs(whole: Log, tmp_path: Path, place: str, pattern: str) -> None:
    """The replica has what is lost, whatever it has otherwise beside that: nothing is lost."""
    log, replica = copy(whole, tmp_path / "log"), copy(whole, tmp_path / "replica")
    first = place_of(whole, place, len(pattern))
    if place == PLACES[5] and pattern.endswith("x"):
        # A damaged last record is the log's torn end.
        first -= 1
    spoil(whole, log, replica, first, pattern, {"x": BORN, "~": RECONSUMED}.get(pattern[1], FLAG))
    told = repaired(log, tmp_path / "out", replica)
    assert (told.exit, {entry["how"] for entry in told.repair["ranges"]} if told.repair else None) == (0, {"replica"})
    kinds = kinds_of(tmp_path / "out", log, replica)
    assert [kinds[first + k] for k, kind in enumerate(pattern) if kind == "x"] == ["1"] * pattern.count("x")
    assert "?" not in kinds
    for size in (200, 300):
        told = repaired(log, tmp_path / "again", replica, range_size=size)
        assert log_of(tmp_path / "again") == log_of(tmp_path / "out")


@pytest.mark.parametrize("range_size", [0, 200])
@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("x~~~~~x", "1111111"), ("x" + "~" * 17 + "x", "?" + "l" * 17 + "?"), ("~" * 17 + "x", "l" * 17 + "?"),
        ("x" + "~" * 17 + ".", "?" + "l" * 17 + "="), ("x~x~x~x~x~x", "1" * 11),
        ("x~x" + "~" * 17 + "x", "?l?" + "l" * 17 + "?"), ("x~~x~~x~~x", "1111111111"),
    ],
)  # fmt: skip
def test_more_of_them_than_are_passed(
    whole: Log, tmp_path: Path, pattern: str, expected: str, range_size: int
) -> None:  # fmt: skip
    """Sixteen on each side are passed, those between other damage among them; beside more of them the damage is lost."""
    log, replica = copy(whole, tmp_path / "log"), copy(whole, tmp_path / "replica")
    first = first_of_second(whole) + 1
    spoil(whole, log, replica, first, pattern)
    told = repaired(log, tmp_path / "out", replica, range_size=range_size)
    kinds = kinds_of(tmp_path / "out", log, replica)
    assert kinds == f"{'=' * first}{expected}".ljust(len(whole.puts), "=")
    assert told.exit == (3 if "?" in expected else 0)


@pytest.mark.parametrize("range_size", [0, 200])
@pytest.mark.parametrize("back", range(1, 6))
def test_damage_on_both_sides_of_a_border(whole: Log, tmp_path: Path, back: int, range_size: int) -> None:
    """Behind the border, too, the search goes on beyond damage, in whatever ranges the log is read."""
    log, replica, first = copy(whole, tmp_path / "log"), copy(whole, tmp_path / "replica"), first_of_second(whole)
    for at, pattern in ((first - back, ("~x" * 3)[6 - back :] + "x"), (first - back, "x" + ("~x" * 3)[:back])):
        shutil.rmtree(log.store)
        shutil.rmtree(replica.store)
        log, replica = copy(whole, log.store), copy(whole, replica.store)
        spoil(whole, log, replica, at, pattern)
        told = repaired(log, tmp_path / "out", replica, range_size=range_size)
        assert (told.exit, "?" in kinds_of(tmp_path / "out", log, replica)) == (0, False)


@pytest.mark.parametrize("pattern", ["b~x", "x~b", "x-b", "b-x", "x~b~x", "b~x~b", "b-x~b-x"])
def test_two_replicas_with_one_damage_each(whole: Log, tmp_path: Path, pattern: str) -> None:
    """Each damage is taken from the one that has it, and no byte of a replica's damage is."""
    log, one, other = (copy(whole, tmp_path / name) for name in ("log", "one", "other"))
    first = first_of_second(whole) + 3
    spoil(whole, log, one, first, pattern)
    # What the first replica has whole, the second one has not, and the other way round.
    spoil(whole, log, other, first, pattern.translate(str.maketrans("bx-", "xb.")))
    told = repaired(log, tmp_path / "out", one, other)
    kinds = kinds_of(tmp_path / "out", log, one, other)
    assert (told.exit, "?" in kinds) == (0, False)
    assert [kinds[first + k] for k, kind in enumerate(pattern) if kind in "xb"] == [
        "1" if kind == "x" else "2" for kind in pattern if kind in "xb"
    ]


@pytest.mark.parametrize("pattern", ["xc", "cx", "x~c", "xc~x", "c~x~c", "xcccx"])
def test_the_replica_has_damage_beside_that(whole: Log, tmp_path: Path, pattern: str) -> None:
    """What it has lost itself is not taken, and is no reason to lose what it has."""
    log, replica, first = copy(whole, tmp_path / "log"), copy(whole, tmp_path / "replica"), first_of_second(whole) + 3
    spoil(whole, log, replica, first, pattern)
    told = repaired(log, tmp_path / "out", replica)
    kinds = kinds_of(tmp_path / "out", log, replica)[first : first + len(pattern)]
    assert (told.exit, kinds) == (0, "".join({"c": "l"}.get(kind, "1") for kind in pattern))


def test_a_record_without_a_body_differs_in_its_crc(tmp_path: Path) -> None:
    """Nothing is covered by that, and no broker looks at it."""
    with LogWriter(tmp_path / "whole/commitlog", SEGMENT) as writer:
        for number in range(40):
            writer.append(NewMessage("TopicA", number % 2, body=b"", properties={"UNIQ_KEY": f"id-{number:02d}"}))
    whole = Log(tmp_path / "whole", writer.puts)
    log = copy(whole, tmp_path / "log")
    spoil(whole, log, whole, 9, "x-x", BODY_CRC)
    told = repaired(log, tmp_path / "out", whole)
    assert told.exit == 0
    assert log_of(tmp_path / "out") == log_of(whole.store)


def test_a_small_hole_beside_what_a_replica_has(whole: Log, tmp_path: Path) -> None:
    """No log has the small one, which takes the record between along: the other damage stays the replica's."""
    first = first_of_second(whole) + 3
    between = whole.puts[first + 1]
    for small, lost in ((first, first + 2), (first + 2, first)):
        log, replica = (copy(whole, tmp_path / f"{name}-{small}") for name in ("log", "replica"))
        put = whole.puts[small]
        at = put.offset if small < lost else put.offset + 20
        shorter = encode(replace(put.message, body=b"x" * 80), at, put.queue_offset)
        for one in (log, replica):
            one.change(put.offset, shorter + b"\xff" * 20 if small < lost else b"\xff" * 20 + shorter)
        log.change(whole.puts[lost].offset + MAGIC, b"\0")
        # Rolled back it is the cheaper neighbour.
        log.change(between.offset + SYSFLAG, b"\x0c")
        out, again = tmp_path / f"out-{small}", tmp_path / f"again-{small}"
        told = repaired(log, out, replica)
        assert told.exit == 3
        ranges = told.repair["ranges"] if told.repair else []
        low = min(at + len(shorter), between.offset)
        assert [(entry["offset"], entry["length"], entry["how"]) for entry in ranges] == sorted([
            (whole.puts[lost].offset, put.size, "replica"), (low, between.size + 20, "filler"),
        ])  # fmt: skip
        assert kinds_of(out, whole)[lost] == "="
        for entry in ranges:
            kept = out / "quarantine" / f"{entry['offset']:020d}"
            assert kept.read_bytes() == log.at(entry["offset"], entry["length"])
        told = local_repair(out, again, None, segment_size=SEGMENT, **SIZES)
        assert (told.exit, told.repair and told.repair["ranges"]) == (0, [])


@pytest.mark.parametrize("pattern", [".x.", "x.x", "xx.x"])
def test_a_log_that_goes_another_way(tmp_path: Path, pattern: str) -> None:
    """The replica's messages are other ones from some record on: nothing is taken, also where the damage ends the log."""
    stores = []
    for name in ("log", "replica"):
        with LogWriter(tmp_path / name / "commitlog", SEGMENT) as writer:
            for number in range(30):
                body = bytes([number < 20 or name == "log"]) * 100
                writer.append(NewMessage("TopicA", number % 2, body=body, properties={"UNIQ_KEY": f"id-{number:02d}"}))
        stores.append(Log(tmp_path / name, writer.puts))
    log, replica = stores
    for first in (21, 30 - len(pattern)):
        damaged = copy(log, tmp_path / f"damaged-{first}")
        spoil(log, damaged, replica, first, pattern)
        if first > 21:
            # Up to the segment's end nothing says where the log ended.
            end = log.puts[-1].offset + log.puts[-1].size
            damaged.change(end, b"\xff" * (SEGMENT - end % SEGMENT))
        told = repaired(damaged, tmp_path / f"out-{first}", replica)
        assert (told.exit, {entry["how"] for entry in told.repair["ranges"]} if told.repair else None) == (3, {"filler"})


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


def test_random_neighbours(whole: Log, seed: int, tmp_path: Path) -> None:
    """Whatever lies beside each other: what the replica has whole is taken, and no sound record is lost."""
    rng = random.Random(seed)
    for number in range(20):
        log, replica = copy(whole, tmp_path / f"log-{number}"), copy(whole, tmp_path / f"replica-{number}")
        pattern = "".join(rng.choice("..xx~-rb") for _ in range(rng.randrange(3, 13)))
        first = rng.randrange(1, len(whole.puts) - len(pattern))
        spoil(whole, log, replica, first, pattern, rng.choice((FLAG, BORN, RECONSUMED)))
        out = tmp_path / f"out-{number}"
        repaired(log, out, replica)
        told = "seed", seed, number, pattern, first
        kinds = kinds_of(out, log, replica)[first : first + len(pattern)]
        for stretch in re.finditer("[xb]+|[^xb]", pattern):
            # Damage that touches is one stretch, also across the record that ends a segment.
            one = kinds[stretch.start() : stretch.end()]
            if "b" not in stretch[0]:
                assert "?" not in one, (*told, kinds)
            assert not (stretch[0] == "r" and one == "1"), (*told, kinds)
        repaired(log, tmp_path / f"again-{number}", replica, range_size=rng.choice((200, 300, 1000)))
        assert log_of(tmp_path / f"again-{number}") == log_of(out), told
        again = local_repair(out, tmp_path / f"twice-{number}", None, segment_size=SEGMENT, **SIZES)
        assert (again.exit, again.repair and again.repair["ranges"]) == (0, []), told


def test_random_differences(whole: Log, seed: int, tmp_path: Path) -> None:
    """Each log has its own wrong bytes: the majority has them all right, with any range size, and with damage among them."""
    rng = random.Random(seed)
    for number in range(4):
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
    summary = job.summary
    (finding,) = summary.findings
    assert (finding["kind"], finding["count"]) == ("against-log-differs", 3)
    (example,) = finding["examples"]
    assert (example["where"], example["at"]) == ("commitlog", other.offset + FLAG)
    assert example["text"] == f"offset {other.offset}: record of TopicA/0, queue offset 15: flag, body"
    assert any(note.startswith("1 record of A differ in B") for note in summary.notes)
