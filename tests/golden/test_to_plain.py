"""``repair --to-plain``: stores that RocketMQ wrote with ``enableDLegerCommitLog`` become plain ones, record by record."""

from __future__ import annotations

import json
import random
import shutil
import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.building.summary import RepairResult
from rocketmq_reindex.jobs.repair import repair
from tests.golden.stores import GoldenStore, read_files
from tests.golden.test_dledger import ENTRY_HEAD, NAMES, SIZES, built, data_of, entries_of, offset_of, spoil, store
from tests.tools.dledger_log import as_dledger
from tests.tools.encode import Message
from tests.tools.local_engine import InlineEngine, local_build, local_repair
from tests.tools.local_verify import kinds, local_verify
from tests.tools.log_writer import LogWriter
from tests.tools.seeds import STEP, cases

__all__ = ["store"]
Stores = Callable[[str], GoldenStore]
SEGMENT = 8192


class Laid(NamedTuple):
    """A store with a log of DLedger, its entries as `as_dledger` gives them, and its messages."""

    store: Path
    entries: list[tuple[int, int]]
    messages: pa.Table


def plain(source: Path, out: Path, size: int = 0, **settings: Any) -> RepairResult:
    settings = {"broker_version": "5.3", "range_size": size, **SIZES, **settings}
    return local_repair(source, out, InlineEngine(5, 3), to_plain=True, **settings)


def messages_of(folder: Path) -> pa.Table:
    """All messages, but for where they lie in the log, and half messages that were made up."""
    rows = rr.messages(folder, body="stored").read_all()
    rows = rows.drop_columns(["commitLogOffset", "preparedTransactionOffset", "originOffset"])
    return rows.filter(pc.not_equal(rows["topic"], "rmq_sys_reindex_lost"))


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """The same as a list."""
    rows: list[dict[str, Any]] = messages_of(folder).to_pylist()
    return rows


def all_files(folder: Path) -> dict[str, bytes]:
    """All but the manifest, which has the size of the ranges."""
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {path: data for path, data in found.items() if path != "reindex.json"}


def table_of(folder: Path) -> pa.Table:
    return pa.concat_tables([pq.read_table(path) for path in sorted((folder / "offsets").iterdir())])


def laid_as_a_broker_does(log: Path) -> list[int]:
    """Walk a log: a record never crosses a segment, and a BLANK fills one that has no room for the next. Return the offsets."""
    offsets: list[int] = []
    segments = sorted(log.iterdir())
    for number, path in enumerate(segments):
        data, at, start = path.read_bytes(), 0, int(path.name)
        assert len(data) == SEGMENT
        while at + 8 <= len(data):
            size, magic = struct.unpack_from(">ii", data, at)
            if magic == -875286124 or not size:
                break
            assert struct.unpack_from(">q", data, at + 28)[0] == start + at
            offsets.append(start + at)
            at += size
        if number < len(segments) - 1:
            following = struct.unpack_from(">i", segments[number + 1].read_bytes())[0]
            assert struct.unpack_from(">ii", data, at) == (SEGMENT - at, -875286124)
            assert following + 8 > SEGMENT - at
        assert not any(data[at + 8 :])
    return offsets


@pytest.mark.parametrize("name", NAMES)
def test_a_plain_store_of_it(name: str, golden_store: Stores, tmp_path: Path) -> None:
    """All messages in their order, with all but their offsets in the log, whatever the ranges. The table says the offsets."""
    source = golden_store(name)
    before = read_files(source.path)
    outs = []
    for size in (0, 3000, 700):
        outs.append(tmp_path / f"{size}")
        told = plain(source.path, outs[-1], size, broker_version=source.broker_version)
        assert (told.exit, told.error, told.damage) == (0, None, [])
    assert read_files(source.path) == before
    first, *others = map(all_files, outs)
    assert others == [first, first]
    out = outs[0]
    assert rows_of(out) == rows_of(source.path)
    assert not (out / "dledger-n0").exists()
    offsets = laid_as_a_broker_does(out / "commitlog")
    old = rr.messages(source.path).read_all()
    table = table_of(out)
    assert table["commitLogOffset"].to_pylist() == offsets
    assert table["oldCommitLogOffset"].to_pylist() == old["commitLogOffset"].to_pylist()
    for column, known in (("topic", "topic"), ("queueId", "queueId"), ("consumeQueueOffset", "consumeQueueOffset")):
        assert table[column].to_pylist() == old[known].to_pylist()
    verified = local_verify(out, broker_version=source.broker_version)
    assert (verified.exit, verified.error, kinds(verified), verified.records) == (0, None, {}, len(offsets))
    # The old plain log in front of it keeps its offsets.
    border = int(min(data_of(source.path).iterdir()).name)
    kept = [offset for offset in old["commitLogOffset"].to_pylist() if offset < border]
    assert ("mixed" in name, offsets[: len(kept)]) == (bool(kept), kept)


@pytest.mark.parametrize("name", NAMES)
def test_a_start_loses_nothing(name: str, golden_store: Stores, tmp_path: Path) -> None:
    """Of the folder as it is, with the table and the manifest in it, by what preflight knows; and info reads it."""
    source = golden_store(name)
    version = source.broker_version
    plain(source.path, tmp_path / "out", broker_version=version)
    release = {"4.9": "4.9.8", "5.3": "5.3.3"}[version]
    told = rr.preflight(tmp_path / "out", broker_version=release, cq_file_size=400, hash_slots=50, index_items=100)
    assert (told.exit_status, told.losses, told.refusals) == (0, [], [])
    assert rr.info(tmp_path / "out").problems == []


@pytest.mark.parametrize("name", NAMES)
def test_what_is_derived_is_that_of_a_build_of_the_new_log(name: str, golden_store: Stores, tmp_path: Path) -> None:
    source = golden_store(name)
    plain(source.path, tmp_path / "out", broker_version=source.broker_version)
    shutil.copytree(tmp_path / "out" / "commitlog", tmp_path / "bare" / "commitlog")
    local_build(tmp_path / "bare", tmp_path / "built", broker_version=source.broker_version, **SIZES)
    assert read_files(tmp_path / "out") == read_files(tmp_path / "built")
    made = {path.name for path in (tmp_path / "out").iterdir()}
    assert made == {"commitlog", "consumequeue", "index", "checkpoint", "offsets", "reindex.json"}


def test_half_messages_are_named_where_they_lie_now(store: Path, tmp_path: Path) -> None:
    """The field of a committed one follows its half message; where the log has none it becomes 0, which is told."""
    entries = entries_of(store)
    at = 84
    for number, half in ((50, 10), (70, 60), (80, None)):
        path, start, _ = entries[number]
        record = start + 48
        v6 = sum(12 for bit in (0x10, 0x20) if struct.unpack_from(">i", path.read_bytes(), record + 36)[0] & bit)
        named = offset_of(entries[half]) + 48 if half is not None else 1_000_000
        spoil(entries[number], 48 + at - 8 + v6, struct.pack(">q", named))
    told = plain(store, tmp_path / "out")
    rows = rr.messages(tmp_path / "out").read_all().to_pylist()
    assert rows[50]["preparedTransactionOffset"] == rows[10]["commitLogOffset"]
    assert rows[70]["preparedTransactionOffset"] == rows[60]["commitLogOffset"]
    assert rows[80]["preparedTransactionOffset"] == 0
    assert told.exit == 0
    assert any("whose half message the old log does not have" in text for text in told.warnings)


@pytest.mark.parametrize("size", [0, 700])
def test_entries_that_are_not_committed_stay_out(size: int, store: Path, tmp_path: Path) -> None:
    (store / "dledger-n0" / "checkpoint").write_text("committedIndex=90\nendIndex=95\n")
    told = plain(store, tmp_path / "out", size)
    offset = offset_of(entries_of(store)[91])
    assert (told.exit, told.records) == (0, 91)
    (text,) = [text for text in told.warnings if "DLedger" in text]
    assert text.startswith(
        f"offset {offset}: entries of DLedger from index 91 on are not committed, by the node's checkpoint: "
    )
    assert "they are not in the new log" in text
    (store / "dledger-n0" / "checkpoint").unlink()
    told = plain(store, tmp_path / "all", size)
    assert (told.exit, told.records) == (0, 96)
    assert any("no checkpoint of DLedger says which entries are committed" in text for text in told.warnings)


def test_the_new_log_of_a_node_without_its_old_plain_one(golden_store: Stores, tmp_path: Path) -> None:
    """What lies before the log of DLedger is missing: nobody knows whether it has expired."""
    (data,) = golden_store("dledger-mixed-5.3").path.glob("dledger-*/data")
    settings = {"broker_version": "5.3", **SIZES, "commitlogs": (str(data),)}
    told = local_repair("", tmp_path / "out", InlineEngine(5, 3), to_plain=True, **settings)
    assert told.exit == 0
    (warning,) = [text for text in told.warnings if "begins at offset" in text]
    assert "or is in an old plain log: name that folder, too" in warning


def test_a_log_without_a_committed_entry(store: Path, tmp_path: Path) -> None:
    (store / "dledger-n0" / "checkpoint").write_text("committedIndex=3\n")
    for number, place in enumerate(entries_of(store)):
        spoil(place, 8, struct.pack(">q", 100 + number))
    told = plain(store, tmp_path / "out")
    assert told.exit == 1
    assert "committedIndex=3" in str(told.error)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("size", [0, 700, 3000])
def test_damage_costs_what_it_took_and_is_told(size: int, store: Path, tmp_path: Path) -> None:
    """Fillers of as many bytes stand in its place: queue offsets hold, and readers of the new log know that some are lost."""
    entries, sound = entries_of(store), rows_of(store)
    lost = [40, 41, 60]
    for number in lost:
        spoil(entries[number], 0, b"\x11" * entries[number][2])
    told = plain(store, tmp_path / "out", size)
    assert (told.exit, told.records) == (3, 96 - 3 + 2)
    places = [(entry["offset"], entry["length"]) for entry in told.damage]
    assert places == [
        (offset_of(entries[40]), entries[40][2] + entries[41][2]),
        (offset_of(entries[60]), entries[60][2]),
    ]
    assert told.repair is not None
    assert [(entry["offset"], entry["length"], entry["how"]) for entry in told.repair["ranges"]] == [
        (*place, "filler") for place in places
    ]
    assert rows_of(tmp_path / "out") == [row for number, row in enumerate(sound) if number not in lost]
    # A second repair finds nothing.
    again = local_repair(tmp_path / "out", tmp_path / "again", broker_version="5.3", **SIZES)
    assert (again.exit, again.repair and again.repair["ranges"]) == (0, [])
    assert kinds(local_verify(tmp_path / "out", broker_version="5.3")) == {}


def test_a_lost_file_is_a_gap_with_fillers(store: Path, tmp_path: Path) -> None:
    sound = rows_of(store)
    (data_of(store) / f"{16384:020d}").unlink()
    told = plain(store, tmp_path / "out")
    assert told.exit == 3
    assert [entry["reason"] for entry in told.damage] == ["segment missing"]
    rows = rows_of(tmp_path / "out")
    assert 0 < len(rows) < len(sound)
    assert all(row in sound for row in rows)
    assert kinds(local_verify(tmp_path / "out", broker_version="5.3")) == {}


def test_what_does_not_go_with_it(store: Path, golden_store: Stores, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    for words in (["--replica", str(store)], ["--tombstones"], ["--include-broken"], ["--link", "none"], ["--extend"]):
        assert repair([str(store), "--to-plain", "--out", out, "--engine", "local", *words]) == 2
    told = plain(golden_store("basic-5.3").path, tmp_path / "out")
    assert (told.exit, "holds no log of DLedger" in str(told.error)) == (1, True)
    told = local_repair(store, tmp_path / "out", broker_version="5.3", **SIZES)
    assert "--to-plain makes a plain log of it" in str(told.error)
    assert not (tmp_path / "out").exists()


def test_dir_is_never_written_over(store: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("x")
    assert plain(store, tmp_path / "out").exit == 1
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]
    inside = plain(store, store / "out")
    assert (inside.exit, (store / "out").exists()) == (1, False)


def test_a_segment_that_is_too_small(store: Path, tmp_path: Path) -> None:
    assert plain(store, tmp_path / "out", segment_size=4096).exit == 1
    assert not (tmp_path / "out").exists()


def test_explain(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain(store, tmp_path / "out")
    manifest = json.loads((tmp_path / "out" / "reindex.json").read_text())
    assert manifest["repair"]["to_plain"] == {"records": 96, "halves": 0, "lost_halves": 0, "wrong": 0, "ids": 0} | {
        key: manifest["repair"]["to_plain"][key] for key in ("lost_halves",)
    }
    assert repair(["--explain", str(tmp_path / "out")]) == 0
    assert "laid anew" in capsys.readouterr().out


def test_the_build_of_the_old_log_and_that_of_the_new_one_have_the_same_queues(store: Path, tmp_path: Path) -> None:
    """But for the offsets in them."""
    plain(store, tmp_path / "out")
    built(store, tmp_path / "old")
    new, old = read_files(tmp_path / "out"), read_files(tmp_path / "old")

    def queues(found: dict[str, bytes]) -> dict[str, list[bytes]]:
        return {
            path: [data[at + 8 : at + 20] for at in range(0, len(data), 20)]
            for path, data in found.items()
            if path.startswith("consumequeue/")
        }

    assert queues(new) == queues(old)


# ------------------------------------------------------------------------------------------------------------- there and back


@pytest.mark.parametrize("size", [0, 30_000])
@pytest.mark.parametrize("name", ["basic-4.9", "basic-5.5", "transactions-delay", "wide-keys", "batch-5.3"])
def test_a_plain_log_comes_back(name: str, size: int, golden_store: Stores, tmp_path: Path) -> None:
    """Its records as entries of DLedger, laid anew: the bytes that the broker wrote, offsets of half messages among them."""
    source = golden_store(name)
    log, out = source.path / "commitlog", tmp_path / "out"
    segments = sorted(log.iterdir())
    as_dledger(log, tmp_path / "store", max(path.stat().st_size for path in segments), int(segments[0].name))
    told = plain(tmp_path / "store", out, size, broker_version=source.broker_version)
    assert (told.exit, told.error, told.damage) == (0, None, [])
    back = {path.name: path.read_bytes().rstrip(b"\0") for path in (out / "commitlog").iterdir()}
    assert back == {path.name: data for path in segments if (data := path.read_bytes().rstrip(b"\0"))}


def test_a_log_whose_first_segments_have_expired(golden_store: Stores, tmp_path: Path) -> None:
    """The new one begins where it does. What names a half message that has expired names none, and is counted."""
    source = golden_store("trimmed-head")
    log, out = source.path / "commitlog", tmp_path / "out"
    segments = sorted(log.iterdir())
    as_dledger(log, tmp_path / "store", max(path.stat().st_size for path in segments), int(segments[0].name))
    told = plain(tmp_path / "store", out, broker_version=source.broker_version)
    assert (told.exit, min(path.name for path in (out / "commitlog").iterdir())) == (0, segments[0].name)
    assert rows_of(out) == rows_of(source.path)
    halves = [row["preparedTransactionOffset"] for row in rr.messages(source.path).read_all().to_pylist()]
    expired = sum(0 < half < int(segments[0].name) for half in halves)
    assert told.repair is not None
    assert (expired > 0, told.repair["to_plain"]["lost_halves"]) == (True, expired)


def test_checksums_over_whole_records(tmp_path: Path) -> None:
    """They cover the offsets. One that was wrong does not become right, and is told."""
    store, out = tmp_path / "store", tmp_path / "out"
    with LogWriter(tmp_path / "log", SEGMENT) as log:
        for number in range(200):
            log.append(Message(body=bytes(number), properties={"KEYS": f"k{number}"}, crc_property=number % 3 > 0))
    entries = as_dledger(tmp_path / "log", store, SEGMENT)
    told = plain(store, out, crc="all")
    assert (told.exit, told.repair and told.repair["to_plain"]["wrong"]) == (0, 0)
    assert all_files(out / "commitlog") == all_files(tmp_path / "log")
    assert local_verify(out, broker_version="5.3", crc="all").exit == 0
    at, size = entries[100]
    with (data_of(store) / f"{at // SEGMENT * SEGMENT:020d}").open("r+b") as file:
        file.seek(at % SEGMENT + size - 24)
        file.write(b"#")
    told = plain(store, tmp_path / "wrong")
    assert (told.exit, told.repair and told.repair["to_plain"]["wrong"]) == (0, 1)
    assert any("with a wrong __CRC32#, which stays wrong" in text for text in told.warnings)
    assert local_verify(tmp_path / "wrong", broker_version="5.3", crc="all").exit != 0
    assert plain(store, tmp_path / "damage", crc="all").exit == 3


def test_ids_that_name_old_offsets_are_told(tmp_path: Path) -> None:
    of_log, of_client = f"7F00000100002A9F{ENTRY_HEAD:016X}", "7F00000100071111" + "1" * 16
    with LogWriter(tmp_path / "log", SEGMENT) as log:
        log.append(Message(topic="T", properties={"UNIQ_KEY": "0" * 32}))
        log.append(Message(topic="%RETRY%g", properties={"ORIGIN_MESSAGE_ID": of_log}))
        log.append(Message(topic="%RETRY%g", properties={"ORIGIN_MESSAGE_ID": of_client}))
    as_dledger(tmp_path / "log", tmp_path / "store", SEGMENT)
    told = plain(tmp_path / "store", tmp_path / "out")
    assert (told.exit, told.repair and told.repair["to_plain"]["ids"]) == (0, 1)
    (text,) = [text for text in told.warnings if "ORIGIN_MESSAGE_ID" in text]
    assert text.startswith("1 record, the first at old offset ")


# ---------------------------------------------------------------------------------------------------------------------- damage


@pytest.fixture(scope="module")
def laid(golden_store: Stores, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], Laid]:
    """laid(name, bytes of a file): a golden store's log as DLedger has it, made once. Read it, do not change it."""

    @cache
    def get(name: str, segment: int) -> Laid:
        store = tmp_path_factory.mktemp("laid") / "store"
        entries = as_dledger(golden_store(name).path / "commitlog", store, segment)
        return Laid(store, entries, messages_of(store))

    return get


@pytest.mark.random
def test_random_damage(seed: int, golden_store: Stores, laid: Callable[[str, int], Laid], tmp_path: Path) -> None:
    """Whatever is spoilt: what is lost is told, all else is there as it was, and the new log is a sound one."""
    rng = random.Random(seed)
    source = golden_store(rng.choice(("basic-4.9", "transactions-delay", "wide-keys")))
    segment = rng.choice((100_000, 1 << 18, 1 << 20))
    whole, entries, sound = laid(source.name, segment)
    store = Path(shutil.copytree(whole, tmp_path / "store"))
    lost = set[int]()
    for _ in range(rng.randrange(1, 6)):
        first = rng.randrange(5, len(entries) - 50)
        for number in range(first, first + rng.choice((1, 1, 1, 2, 40))):
            at, size = entries[number]
            with (data_of(store) / f"{at // segment * segment:020d}").open("r+b") as file:
                file.seek(at % segment)
                file.write(rng.choice((bytes(60), rng.randbytes(60))) if rng.random() < 0.7 else rng.randbytes(size))
            lost.add(number)
    told = plain(store, tmp_path / "out", rng.choice((0, 5000, 100_000)), broker_version=source.broker_version)
    assert (told.exit, told.error) == (3, None)
    assert messages_of(tmp_path / "out") == sound.take([number for number in range(len(sound)) if number not in lost])
    for number in lost:
        at, size = entries[number]
        assert any(one["offset"] <= at and at + size <= one["offset"] + one["length"] for one in told.damage), number
    verified = local_verify(tmp_path / "out", broker_version=source.broker_version)
    assert (verified.error, kinds(verified)) == (None, {})
    if cases(True, seed // STEP % 4 == 0):
        again = local_repair(tmp_path / "out", tmp_path / "again", broker_version=source.broker_version, **SIZES)
        assert (again.error, again.repair and again.repair["ranges"]) == (None, [])
