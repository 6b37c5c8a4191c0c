"""What lies beside a damaged range: other damage, records that a replica has otherwise, damage of the replica."""

from __future__ import annotations

import random
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.builds.repair_log import (
    BODY_CRC,
    BORN,
    FLAG,
    MAGIC,
    RECONSUMED,
    SEGMENT,
    SIZES,
    SYSFLAG,
    Log,
    copy,
    first_of_second,
    kinds_of,
    log_of,
    make_log,
    repaired,
    spoil,
)  # fmt: skip
from tests.golden.stores import read_files
from tests.preflight.predicted import predict
from tests.preflight.settings import Conf, Sizes
from tests.tools.encode import Message as NewMessage, encode
from tests.tools.local_engine import local_build, local_repair
from tests.tools.local_verify import kinds as differences, local_verify
from tests.tools.log_writer import LogWriter
from tests.tools.seeds import cases

CONF = Conf(Sizes(SEGMENT, 400, 50, 150))


@pytest.fixture
def whole(tmp_path: Path) -> Log:
    return make_log(tmp_path / "whole", 2)


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


def test_random_neighbours(whole: Log, seed: int, tmp_path: Path) -> None:
    """Whatever lies beside each other: what a replica has whole is taken, no sound record is lost, and the new log is clean."""
    rng = random.Random(seed)
    for number in range(cases(8, 1)):
        place = tmp_path / f"{number}"
        log, one, other = (copy(whole, place / name) for name in ("log", "one", "other"))
        pattern = "".join(rng.choice("..xx~-rbc") for _ in range(rng.randrange(3, 13)))
        second = "".join(rng.choice("..~rc") for _ in pattern)
        first = rng.randrange(1, len(whole.puts) - len(pattern))
        spoil(whole, log, one, first, pattern, rng.choice((FLAG, BORN, RECONSUMED)))
        spoil(whole, log, other, first, second, rng.choice((FLAG, BORN, RECONSUMED)))
        replicas = [one] if rng.random() < 0.5 else [one, other]
        told = "seed", seed, number, pattern, second, first, len(replicas)
        changed = repaired(log, place / "out", *replicas).repair
        kinds = kinds_of(place / "out", log, *replicas)[first : first + len(pattern)]
        for stretch in re.finditer("[xb]+|[^xb]", pattern):
            # Damage that touches is one stretch, also across the record that ends a segment.
            found = kinds[stretch.start() : stretch.end()]
            having = [set("rcb").isdisjoint(kind[stretch.start() : stretch.end()]) for kind in (pattern, second)]
            if any(having[: len(replicas)]) or stretch[0][0] not in "xb":
                assert "?" not in found, (*told, kinds)
            assert not (stretch[0] in "rc" and found == "1"), (*told, kinds)
        for entry in changed["ranges"] if changed else []:
            kept = (place / "out/quarantine" / f"{entry['offset']:020d}").read_bytes()
            assert kept == log_of(log.store)[entry["offset"] :][: entry["length"]].rstrip(b"\0"), told
        repaired(log, place / "again", *replicas, range_size=rng.choice((200, 300, 1000)))
        assert log_of(place / "again") == log_of(place / "out"), told
        twice = local_repair(place / "out", place / "twice", None, segment_size=SEGMENT, **SIZES)
        assert (twice.exit, twice.repair and twice.repair["ranges"]) == (0, []), told
        assert log_of(place / "twice") == log_of(place / "out"), told
        assert read_files(place / "twice") == read_files(place / "out"), told
        assert local_build(place / "out", place / "built", None, segment_size=SEGMENT, **SIZES).exit == 0, told
        assert read_files(place / "built") == read_files(place / "out"), told
        assert differences(local_verify(place / "out", None, **SIZES)) == {}, told
        said = predict(place / "out", "5.5.0", CONF, place)
        assert isinstance(said, dict), told
        assert said["exit"] == 0, (*told, said["losses"], said["refusals"])
        shutil.rmtree(place)
