"""What a repair takes from replicas at the end of the log: the torn record, and with --extend all that follows."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.jobs.building.summary import RepairResult
from rocketmq_reindex.jobs.repairing.options import explain
from rocketmq_reindex.storage_format.errors import UsageError
from tests.builds.repair_log import SEGMENT, SIZES, Log, log_of, make_log
from tests.golden.stores import read_files
from tests.tools.local_engine import InlineEngine, local_build, local_repair
from tests.tools.local_verify import kinds, local_verify
from tests.tools.stale_log import copy_log


@pytest.fixture
def whole(tmp_path: Path) -> Log:
    return make_log(tmp_path / "whole", 2)


def until(whole: Log, store: Path, end: int, *, torn: bytes = b"", ahead: int = 0) -> Path:
    """A log that ends at ``end``, with ``torn`` behind that and so many segments of zeros ahead."""
    copy_log(whole.store, store)
    for path in sorted((store / "commitlog").iterdir()):
        start, data = int(path.name), path.read_bytes()
        kept = max(0, end - start)
        if kept < len(data):
            path.write_bytes((data[:kept] + (torn if end - start >= 0 else b"")).ljust(SEGMENT, b"\0"))
        if start > end + ahead * SEGMENT:
            path.unlink()
    return store


def repaired(store: Path, out: Path, *replicas: Path, size: int = 0, **settings: Any) -> RepairResult:
    """The repair; what it made is whole, and a second repair changes nothing."""
    shutil.rmtree(out, ignore_errors=True)
    before = log_of(store)
    told = local_repair(
        store, out, InlineEngine(3, 2), replicas=tuple(map(str, replicas)), segment_size=SEGMENT, range_size=size,
        **(SIZES | settings),
    )  # fmt: skip
    assert told.error is None, told.error
    assert told.repair is not None
    assert json.loads((out / "reindex.json").read_text())["repair"] == told.repair
    assert log_of(store) == before
    if told.exit == 0:
        assert kinds(local_verify(out, None, **SIZES)) == {}
        again = local_repair(out, out.with_name("again"), None, segment_size=SEGMENT, **SIZES)
        assert again.repair is not None
        assert again.repair["ranges"] == []
        shutil.rmtree(out.with_name("again"))
    return told


@pytest.mark.parametrize("size", [0, 300])
@pytest.mark.parametrize("torn", [5, 60, 150])
def test_the_torn_record(whole: Log, torn: int, size: int, tmp_path: Path) -> None:
    """It is taken where the replica has it whole, and nothing behind it."""
    put = whole.puts[40]
    data = whole.at(put.offset, put.size)
    store = until(whole, tmp_path / "store", put.offset, torn=data[:torn])
    told = repaired(store, tmp_path / "out", whole.store, size=size)
    (entry,) = told.repair["ranges"] if told.repair else []
    assert (told.exit, entry["how"], entry["replica"]) == (0, "replica", 1)
    assert (entry["offset"], entry["length"]) == (put.offset, put.size)
    end = put.offset + put.size
    assert log_of(tmp_path / "out")[:end] == log_of(whole.store)[:end]
    assert not any(log_of(tmp_path / "out")[end:])
    assert told.records == 41
    assert any("nothing follows in the damaged log" in text for text in told.warnings)
    left = whole.puts[41:]
    (more,) = told.repair["behind"] if told.repair else []
    assert (more["replica"], more["offset"], more["records"]) == (1, put.offset, 1 + len(left))
    assert any("goes on behind the log's end" in text and text.endswith("--extend takes it") for text in told.warnings)
    assert (tmp_path / "out/quarantine" / f"{put.offset:020d}").read_bytes() == data[:torn].rstrip(b"\0")


@pytest.mark.parametrize("kept", [1, 5, 20])
def test_a_record_torn_in_its_properties(whole: Log, kept: int, tmp_path: Path) -> None:
    """No CRC shows that, but the replica does."""
    put = whole.puts[40]
    data = whole.at(put.offset, put.size)
    store = until(whole, tmp_path / "store", put.offset, torn=data[:-kept])
    told = repaired(store, tmp_path / "out")
    assert (told.records, told.repair and told.repair["ranges"]) == (41, [])
    told = repaired(store, tmp_path / "out", whole.store)
    (entry,) = told.repair["ranges"] if told.repair else []
    assert (told.exit, told.records, entry["how"], entry["offset"], entry["length"]) == (
        0, 41, "replica", put.offset, put.size,
    )  # fmt: skip
    assert entry["reason"] == "last record torn where no CRC covers it"
    assert log_of(tmp_path / "out")[: put.offset + put.size] == log_of(whole.store)[: put.offset + put.size]
    # Another last record is none that is torn.
    other = Log(copy_log(whole.store, tmp_path / "other"), whole.puts)
    other.change(put.offset + 16, b"\x01\x02")
    told = repaired(store, tmp_path / "out", other.store)
    assert (told.repair and told.repair["ranges"]) == []


@pytest.mark.parametrize("number", [1, 20, 40, 59])
@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize("torn", [0, 60])
def test_extend(whole: Log, number: int, ahead: int, torn: int, tmp_path: Path) -> None:
    """The log then is the replica's, and so is all that is derived from it."""
    put = whole.puts[number]
    data = whole.at(put.offset, put.size)[:torn]
    store = until(whole, tmp_path / "store", put.offset, torn=data, ahead=ahead)
    told = repaired(store, tmp_path / "out", whole.store, size=700, extend=True)
    assert (told.exit, told.records) == (0, 60)
    found, wanted = log_of(tmp_path / "out"), log_of(whole.store)
    assert found.rstrip(b"\0") == wanted.rstrip(b"\0")
    local_build(whole.store, tmp_path / "built", None, **SIZES)
    built, made = read_files(tmp_path / "built"), read_files(tmp_path / "out")
    assert {name: data for name, data in made.items() if name in built and name != "reindex.json"} == {
        name: data for name, data in built.items() if name != "reindex.json"
    }
    assert any("--extend: replica 1 goes on behind the log's end, and was taken" in text for text in told.warnings)


def test_a_log_that_ends_with_its_segment(whole: Log, tmp_path: Path) -> None:
    """What follows begins in a segment that the log does not have."""
    border = next(put.offset for put in whole.puts if put.offset == SEGMENT)
    store = until(whole, tmp_path / "store", border - 1)
    (store / "commitlog" / f"{SEGMENT:020d}").unlink(missing_ok=True)
    first = store / "commitlog" / f"{0:020d}"
    first.write_bytes((whole.store / "commitlog" / first.name).read_bytes())
    told = repaired(store, tmp_path / "out", whole.store)
    assert (told.exit, told.repair and told.repair["ranges"]) == (0, [])
    assert any("goes on behind the log's end" in text for text in told.warnings)
    assert log_of(tmp_path / "out") == log_of(store)
    told = repaired(store, tmp_path / "out", whole.store, extend=True)
    assert log_of(tmp_path / "out").rstrip(b"\0") == log_of(whole.store).rstrip(b"\0")


@pytest.mark.parametrize("extend", [False, True])
def test_the_torn_record_is_the_first_of_its_segment(whole: Log, extend: bool, tmp_path: Path) -> None:
    put = next(put for put in whole.puts if put.offset == SEGMENT)
    store = until(whole, tmp_path / "store", put.offset, torn=whole.at(put.offset, 60))
    told = repaired(store, tmp_path / "out", whole.store, extend=extend)
    assert (told.exit, told.records) == (0, 60 if extend else whole.puts.index(put) + 1)
    end = len(log_of(whole.store)) if extend else put.offset + put.size
    assert log_of(tmp_path / "out").rstrip(b"\0") == log_of(whole.store)[:end].rstrip(b"\0")


def test_a_replica_that_ends_with_its_segment(whole: Log, tmp_path: Path) -> None:
    store = until(whole, tmp_path / "store", whole.puts[5].offset)
    replica = copy_log(whole.store, tmp_path / "replica")
    first, *more = sorted((replica / "commitlog").iterdir())
    for path in more:
        path.unlink()
    told = repaired(store, tmp_path / "out", replica, extend=True)
    assert (told.exit, told.records) == (0, sum(put.offset < SEGMENT for put in whole.puts))
    assert log_of(tmp_path / "out")[:SEGMENT] == first.read_bytes()


def test_a_short_last_file(whole: Log, tmp_path: Path) -> None:
    put = whole.puts[40]
    store = until(whole, tmp_path / "store", put.offset)
    path = store / "commitlog" / f"{put.offset // SEGMENT * SEGMENT:020d}"
    path.write_bytes(whole.segment(put.offset).read_bytes()[: put.offset % SEGMENT + 70])
    told = repaired(store, tmp_path / "out", whole.store)
    assert (told.exit, told.records) == (0, 41)


def test_a_replica_that_is_another_log(whole: Log, tmp_path: Path) -> None:
    """Its record before the end is another one, or its own is torn as well: nothing is taken, and the tail stays."""
    put, before = whole.puts[40], whole.puts[39]
    store = until(whole, tmp_path / "store", put.offset, torn=whole.at(put.offset, 60))
    other = Log(copy_log(whole.store, tmp_path / "other"), whole.puts)
    other.change(before.offset + 16, b"\x01\x02")
    torn = until(whole, tmp_path / "torn", put.offset, torn=whole.at(put.offset, 80))
    behind = until(whole, tmp_path / "behind", before.offset)
    for replica in (other.store, torn, behind):
        for extend in (False, True):
            told = repaired(store, tmp_path / "out", replica, extend=extend)
            assert (told.exit, told.records) == (0, 40)
            assert told.repair is not None
            assert (told.repair["ranges"], "behind" in told.repair) == ([], False)
            assert log_of(tmp_path / "out") == log_of(store)


def test_the_one_that_goes_farthest(whole: Log, tmp_path: Path) -> None:
    """Both are told of, and --extend takes all from one of them."""
    put = whole.puts[30]
    store = until(whole, tmp_path / "store", put.offset, torn=whole.at(put.offset, 40))
    near = until(whole, tmp_path / "near", whole.puts[33].offset)
    told = repaired(store, tmp_path / "out", near, whole.store)
    assert told.repair is not None
    assert [(one["replica"], one["records"]) for one in told.repair["behind"]] == [(1, 3), (2, 30)]
    assert [entry["replica"] for entry in told.repair["ranges"]] == [1]
    told = repaired(store, tmp_path / "out", near, whole.store, extend=True)
    assert told.records == 60
    assert told.repair is not None
    assert {entry["replica"] for entry in told.repair["ranges"]} == {2}


def test_up_to_damage_in_the_replica(whole: Log, tmp_path: Path) -> None:
    store = until(whole, tmp_path / "store", whole.puts[30].offset)
    replica = Log(copy_log(whole.store, tmp_path / "replica"), whole.puts)
    replica.change(whole.puts[33].offset + 95, b"\xff\xff")
    told = repaired(store, tmp_path / "out", replica.store, extend=True)
    assert (told.exit, told.records) == (0, 33)


def test_with_damage_elsewhere(whole: Log, seed: int, tmp_path: Path) -> None:
    """Random logs that end anywhere, with damage that a replica has, and more replicas that may be behind."""
    rng = random.Random(seed)
    for number in range(6):
        at = rng.randrange(5, 60)
        put = whole.puts[at]
        torn = whole.at(put.offset, rng.randrange(put.size))
        store = until(whole, tmp_path / f"{number}", put.offset, torn=torn, ahead=rng.randrange(2))
        hit = whole.puts[rng.randrange(1, at - 2)]
        Log(store, whole.puts).change(hit.offset + rng.randrange(90, 130), b"\xff" * 20)
        near = until(whole, tmp_path / f"{number}-near", whole.puts[rng.randrange(at - 1, 60)].offset)
        replicas = rng.sample([near, whole.store], k=2)
        told = repaired(store, tmp_path / "out", *replicas, size=rng.choice((0, 200, 999)), extend=True)
        assert (told.exit, told.records) == (0, 60)
        assert log_of(tmp_path / "out").rstrip(b"\0") == log_of(whole.store).rstrip(b"\0")


def test_extend_needs_a_replica(whole: Log, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--extend: takes what a replica has"):
        local_repair(whole.store, tmp_path / "out", None, extend=True, **SIZES)


def test_a_last_segment_that_is_too_short(whole: Log, tmp_path: Path) -> None:
    """Its zeros are all that changes, and without them no broker starts: so the log is not called as it was."""
    store, out = until(whole, tmp_path / "store", whole.puts[-2].offset), tmp_path / "out"
    told = repaired(store, out)
    assert told.repair is not None
    assert "zeros" not in told.repair
    assert "repaired nothing: the log is undamaged, and commitlog/ is as it was" in told.to_text()
    last = max((store / "commitlog").iterdir())
    short = 100
    last.write_bytes(last.read_bytes()[: SEGMENT - short])
    told = repaired(store, out)
    assert told.repair is not None
    assert (told.repair["ranges"], told.repair["zeros"]) == ([], short)
    now = f"the log is undamaged, and {short} bytes of zeros fill its last segment"
    assert f"repaired the length of a file: {now}\n" in told.to_text()
    assert log_of(out) == log_of(store) + bytes(short)
    assert next(explain(str(out))).endswith(f"{short} bytes of zeros fill its last segment, which was too short")
