"""Logs of DLedger: stores that RocketMQ wrote with ``enableDLegerCommitLog`` are built, verified and read as plain ones are."""

from __future__ import annotations

import shlex
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.building.summary import BuildResult
from rocketmq_reindex.jobs.cli import main
from rocketmq_reindex.jobs.store.settings import roots_of
from rocketmq_reindex.udfs.messages.batches import fields
from rocketmq_reindex.udfs.messages.log_rows import Bounds, LogRowReader
from tests.golden.stores import GoldenStore, index_in_order, read_files
from tests.tools.local_engine import InlineEngine, local_build
from tests.tools.local_verify import kinds, local_verify

Stores = Callable[[str], GoldenStore]
NAMES = ("dledger-4.9", "dledger-5.3", "dledger-mixed-4.9", "dledger-mixed-5.3")
"""Of one node, the mixed ones behind an old plain log; what made them: ``DLedgerStore`` of tests/oracle."""
SIZES: dict[str, Any] = {"cq_file_size": 400, "hash_slots": 50, "index_items": 100}
ENTRY_HEAD = 48


def data_of(store: Path) -> Path:
    return store / "dledger-n0" / "data"


@pytest.fixture
def store(golden_store: Stores, tmp_path: Path) -> Path:
    """A copy of one of the stores, which a test may change."""
    return Path(shutil.copytree(golden_store("dledger-5.3").path, tmp_path / "store"))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_derived_is_the_brokers(name: str, golden_store: Stores, tmp_path: Path) -> None:
    """However the log is cut into ranges: the bytes of the store's own files, its checkpoint among them."""
    store = golden_store(name)
    real = read_files(store.path)
    for size, engine in ((0, InlineEngine(1, 1)), (3000, InlineEngine(7, 3))):
        out = tmp_path / f"{size}"
        summary = local_build(
            store.path, out, engine, range_size=size, broker_version=store.broker_version, queue_order="broker",
            checkpoint="broker", **SIZES,
        )  # fmt: skip
        assert (summary.exit, summary.error) == (0, None)
        assert [text for text in summary.warnings if "TopicValidator" not in text] == []
        built = read_files(out)
        assert index_in_order(built) == index_in_order(real)
        assert {k: v for k, v in built.items() if not k.startswith("index/")} == {
            k: v for k, v in real.items() if not k.startswith("index/")
        }


@pytest.mark.parametrize("name", NAMES)
def test_verify_finds_nothing_in_what_a_broker_wrote(name: str, golden_store: Stores) -> None:
    store = golden_store(name)
    for size in (0, 3000):
        summary = local_verify(store.path, InlineEngine(5, 3), range_size=size, broker_version=store.broker_version)
        assert (summary.exit, summary.error, kinds(summary)) == (0, None, {})


# --------------------------------------------------------------------------------------------------------------- the log's end


def entries_of(store: Path) -> list[tuple[Path, int, int]]:
    """The file, the place in it and the size of each entry of the log."""
    found = []
    for path in sorted(data_of(store).iterdir()):
        data, at = path.read_bytes(), 0
        while at + 8 <= len(data):
            kind, size = struct.unpack_from(">ii", data, at)
            if kind != 1:
                break
            found.append((path, at, size))
            at += size
    return found


def offset_of(place: tuple[Path, int, int]) -> int:
    return int(place[0].name) + place[1]


def spoil(place: tuple[Path, int, int], at: int, new: bytes) -> None:
    with place[0].open("r+b") as file:
        file.seek(place[1] + at)
        file.write(new)


def built(store: Path, out: Path, size: int = 0, **settings: Any) -> BuildResult:
    return local_build(store, out, InlineEngine(5, 3), range_size=size, broker_version="5.3", **SIZES, **settings)


@pytest.mark.parametrize("size", [0, 2000])
def test_entries_that_are_not_committed_are_left_out_and_told(size: int, store: Path, tmp_path: Path) -> None:
    """By the node's own checkpoint; without one all are kept, and that is said."""
    (store / "dledger-n0" / "checkpoint").write_text("committedIndex=90\nendIndex=95\n")
    summary = built(store, tmp_path / "out", size)
    offset = offset_of(entries_of(store)[91])
    assert (summary.exit, summary.records) == (0, 91)
    left = "they are left out, and a broker dispatches those that its group commits"
    assert [text for text in summary.warnings if "DLedger" in text] == [
        f"offset {offset}: entries of DLedger from index 91 on are not committed, by the node's checkpoint: {left}"
    ]
    (store / "dledger-n0" / "checkpoint").unlink()
    summary = built(store, tmp_path / "all", size)
    assert (summary.exit, summary.records) == (0, 96)
    assert [text for text in summary.warnings if "DLedger" in text] == [
        "no checkpoint of DLedger says which entries are committed: all are kept, and the group may drop the last ones"
    ]


@pytest.mark.parametrize("size", [0, 2000, 700])
@pytest.mark.parametrize("gap", [False, True])
def test_old_entries_behind_a_truncation_are_told_from_damage(gap: bool, size: int, store: Path, tmp_path: Path) -> None:
    """A follower cut its log and went on in a new term: old entries follow, right behind it or behind half of one."""
    entries = entries_of(store)
    (store / "dledger-n0" / "checkpoint").unlink()
    cut = 88
    for number, place in enumerate(entries[84:cut]):
        spoil(place, 16, struct.pack(">q", 1))
        # STORETIMESTAMP of the new ones: later than that of the old ones.
        data = place[0].read_bytes()
        v6 = 12 if struct.unpack_from(">i", data, place[1] + ENTRY_HEAD + 36)[0] & 0x10 else 0
        spoil(place, ENTRY_HEAD + 56 + v6, struct.pack(">q", 1 << 41 | number))
    if gap:
        place = entries[cut]
        spoil(place, 0, b"\x11" * (place[2] - 30))
    summary = built(store, tmp_path / "out", size)
    assert (summary.exit, summary.error, summary.records) == (0, None, cut)
    (told,) = [text for text in summary.warnings + summary.notes if "stale tail" in text]
    assert "left by a truncation" in told
    assert str(offset_of(entries[cut])) in told


# -------------------------------------------------------------------------------------------------------------------- damage


@pytest.mark.parametrize(
    ("at", "new", "reason"),
    [
        (0, b"\x00\x00\x00\x07", "bad header of a DLedger entry"),
        (0, b"\x00\x00\x00\x02", "DLedger entry without a message"),
        (4, b"\x7f\xff\xff\xff", "impossible record size"),
        (44, b"\x00\x00\x00\x01", "bad header of a DLedger entry"),
        (8, b"\x00\x00\x00\x00\x00\x00\x01\x00", "DLedger entry whose index does not follow"),
        (24, b"\x00\x00\x00\x00\x00\x00\x01\x00", "physical offset is not where the record lies"),
        (ENTRY_HEAD, b"\x00\x00\x00\x5b", "record size differs from the sum of its parts"),
        (ENTRY_HEAD + 28, b"\x00\x00\x00\x00\x00\x00\x01\x00", "physical offset is not where the record lies"),
        (ENTRY_HEAD + 8, b"\x00\x00\x00\x01", "body CRC does not match"),
    ],
)
@pytest.mark.parametrize("size", [0, 3000])
def test_damage_is_told_and_costs_one_entry(at: int, new: bytes, reason: str, size: int, store: Path, tmp_path: Path) -> None:
    place = entries_of(store)[40]
    spoil(place, at, new)
    summary = built(store, tmp_path / "out", size)
    assert summary.exit != 0
    assert f"damage at offset {offset_of(place)}: {reason} (1 in all)" in str(summary.error)
    summary = built(store, tmp_path / "salvaged", size, on_damage="salvage")
    assert summary.records == 95
    (damage,) = summary.damage
    assert (damage["offset"], damage["length"], damage["reason"]) == (offset_of(place), place[2], reason)


@pytest.mark.parametrize("size", [0, 700, 3000])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(("first", "bit"), [(0, 1 << 28), (0, 1 << 4), (1, 1 << 28)])
def test_no_entry_ends_the_log_by_its_own_word(
    first: int, bit: int, known: bool, size: int, store: Path, tmp_path: Path
) -> None:  # fmt: skip
    """The index of the first entry is wrong, or that of the first one that can be read: those behind it say so."""
    entries = entries_of(store)
    if not known:
        (store / "dledger-n0" / "checkpoint").unlink()
    if first:
        spoil(entries[0], 0, b"\x11" * 200)
    spoil(entries[first], 8, struct.pack(">q", first ^ bit))
    reason = "DLedger entry whose index does not follow"
    summary = built(store, tmp_path / "out", size)
    assert (summary.exit != 0, f"damage at offset {offset_of(entries[0])}: " in str(summary.error)) == (True, True)
    summary = built(store, tmp_path / "salvaged", size, on_damage="salvage")
    assert summary.records == 95 - first
    damage = summary.damage[-1]
    assert (damage["offset"], damage["length"], damage["reason"]) == (offset_of(entries[first]), entries[first][2], reason)
    assert [text for text in summary.warnings if "not committed" in text] == []


@pytest.mark.parametrize("size", [0, 700])
def test_behind_damage_no_entry_is_taken_by_its_own_word(size: int, store: Path, tmp_path: Path) -> None:
    """The damage has room for so many entries that the index of the one behind it might be right."""
    (store / "dledger-n0" / "checkpoint").write_text("committedIndex=95\n")
    entries = entries_of(store)
    for place in entries[40:80]:
        spoil(place, 0, b"\x11" * place[2])
    spoil(entries[80], 8, struct.pack(">q", 80 ^ 32))
    summary = built(store, tmp_path / "out", size, on_damage="salvage")
    assert summary.records == 40 + 15
    assert summary.damage[-1]["offset"] == offset_of(entries[80])


@pytest.mark.parametrize("size", [0, 700])
def test_a_build_that_would_leave_out_all_is_refused(size: int, store: Path, tmp_path: Path) -> None:
    (store / "dledger-n0" / "checkpoint").write_text("committedIndex=3\n")
    entries = entries_of(store)
    for number, place in enumerate(entries):
        spoil(place, 8, struct.pack(">q", 100 + number))
    summary = built(store, tmp_path / "out", size)
    assert summary.exit != 0
    assert str(summary.error).startswith(f"{entries[0][0]}: offset 0: the log's first entry of DLedger has index 100, and ")
    assert not (tmp_path / "out").exists()


def test_a_lost_file_is_a_gap(store: Path, tmp_path: Path) -> None:
    (data_of(store) / f"{16384:020d}").unlink()
    summary = built(store, tmp_path / "out")
    assert "damage at offset 16384: segment missing" in str(summary.error)


# ------------------------------------------------------------------------------------------------------------ other commands


@pytest.mark.parametrize("name", NAMES)
def test_messages_are_found_and_read(name: str, golden_store: Stores) -> None:
    """By queue offset, key, physical offset, in a scan, and as rows: each once, at the offset that its record names."""
    store = golden_store(name).path
    rows = rr.messages(store).read_all().to_pylist()
    offsets = [row["commitLogOffset"] for row in rows]
    last = offset_of(entries_of(store)[-1]) + ENTRY_HEAD
    assert offsets == sorted(set(offsets))
    assert (offsets[-1], len(rows)) == (last, local_verify(store, broker_version="5.3").records)
    middle = offsets[len(offsets) // 2]
    schema = pa.schema([fields(body=False, damage=False).field("commitLogOffset")])
    reader = LogRowReader(schema, roots_of(str(store)), Bounds(middle, last), range_size=5000)
    found = [batch.column(0).to_pylist() for part in reader.plan() for batch in reader.rows(part, [])]
    assert [offset for batch in found for offset in batch] == [offset for offset in offsets if middle <= offset < last]
    for offset, asked in ((offsets[0], offsets[0]), (middle, middle), (last, last), (last, last - ENTRY_HEAD)):
        (message,) = rr.query(store, physical=asked)
        assert message["physicalOffset"] == offset
    unit = next(row for row in rows if row["uniqKey"])
    for scan in (False, True):
        (message,) = rr.query(store, topic=unit["topic"], key=unit["uniqKey"], scan=scan)
        assert message["physicalOffset"] == unit["commitLogOffset"]


def test_what_is_not_committed_is_no_row(store: Path) -> None:
    (store / "dledger-n0" / "checkpoint").write_text("committedIndex=90\n")
    rows = rr.messages(store).read_all()
    assert (len(rows), rows["commitLogOffset"][-1].as_py()) == (91, offset_of(entries_of(store)[90]) + ENTRY_HEAD)


def test_inspect(store: Path) -> None:
    path = data_of(store) / f"{16384:020d}"
    found = rr.inspect(path, records=True)
    assert (found.kind, found["firstOffset"], found["firstIndex"], found["lastIndex"]) == ("segment", 16384, 34, 48)
    assert (found["records"], found["damage"], found["endsWith"]) == (15, [], "a BLANK, or exactly full")
    assert [row["physicalOffset"] for row in found.records] == [
        offset_of(place) + ENTRY_HEAD for place in entries_of(store) if place[0] == path
    ]
    shutil.copy(path, store / "copy")
    assert rr.inspect(store / "copy")["firstOffset"] == 16384


@pytest.mark.parametrize("name", NAMES)
def test_info(name: str, golden_store: Stores) -> None:
    store = golden_store(name).path
    found = rr.info(store)
    path, at, size = entries_of(store)[-1]
    assert (found.log["first_offset"], found.log["end_offset"]) == (0, int(path.name) + at + size)
    assert [text for text in found.problems if "lock" not in text] == []
    (command,) = found.next["commands"]
    assert command.startswith(f"rmq-reindex preflight {store} --broker-version ")
    assert main([*shlex.split(command)[1:], "--json"]) in (0, 4)


def test_a_data_folder_by_itself(store: Path, tmp_path: Path) -> None:
    """Under any name: what it begins with says what it is. Which entries are committed is not known then."""
    data = tmp_path / "copy"
    shutil.copytree(data_of(store), data)
    real = read_files(store)
    for log in (data_of(store), data):
        out = tmp_path / f"out-{log.name}"
        summary = local_build("", out, commitlogs=(str(log),), broker_version="5.3", **SIZES)
        assert (summary.exit, summary.records) == (0, 96)
        assert {k: v for k, v in read_files(out).items() if k.startswith("consumequeue")} == {
            k: v for k, v in real.items() if k.startswith("consumequeue")
        }


def test_an_incremental_build_of_a_grown_log(store: Path, tmp_path: Path) -> None:
    """What was not committed is read when it is."""
    checkpoint = store / "dledger-n0" / "checkpoint"
    whole = checkpoint.read_bytes()
    settings = {"incremental": True, "tables": str(tmp_path / "tables"), "overwrite": "build"}
    checkpoint.write_text("committedIndex=60\n")
    assert built(store, tmp_path / "out", 4000, **settings).records == 61
    checkpoint.write_bytes(whole)
    summary = built(store, tmp_path / "out", 4000, **settings)
    assert (summary.exit, summary.records) == (0, 96)
    assert summary.incremental is not None
    assert summary.incremental["ranges_known"] > 5
    built(store, tmp_path / "full", 4000)
    assert read_files(tmp_path / "out") == read_files(tmp_path / "full")


def test_what_does_not_read_it_says_so(store: Path, tmp_path: Path) -> None:
    log = data_of(store)
    for run in (
        lambda: rr.repair(store, out=tmp_path / "out", engine="local", broker_version="5.3"),
        lambda: rr.verify(store, against=tmp_path, engine="local"),
    ):
        with pytest.raises(rr.InputError, match=f"{log}: is a log of DLedger, "):
            run()


def test_logs_of_several_nodes_are_not_one(store: Path, tmp_path: Path) -> None:
    shutil.copytree(store / "dledger-n0", store / "dledger-n1")
    with pytest.raises(rr.InputError, match="has the logs of 2 nodes of DLedger: name one by commitlog"):
        rr.build(store, out=tmp_path / "out", engine="local", broker_version="5.3")


def test_verify_takes_what_was_dispatched_for_committed(store: Path) -> None:
    """The checkpoint of a node that was killed is behind; a broker dispatches no entry that is not committed."""
    whole = local_verify(store, broker_version="5.3")
    (store / "dledger-n0" / "checkpoint").write_text("committedIndex=90\n")
    summary = local_verify(store, broker_version="5.3")
    assert (summary.exit, kinds(summary), summary.records) == (whole.exit, kinds(whole), whole.records)
    (note,) = [text for text in summary.notes if "DLedger" in text]
    assert note.startswith(
        "the node's checkpoint calls entries of DLedger up to index 90 committed, and units lead to entries up to 95"
    )


def test_verify_says_what_a_checkpoint_that_is_behind_makes(store: Path) -> None:
    """Units that lead to no record of theirs say nothing of what is committed: they differ."""
    (store / "dledger-n0" / "checkpoint").write_text("committedIndex=90\n")
    # Each queue has its own units, and the last one of its first queue once more.
    for queue in (path for path in (store / "consumequeue").glob("*/*") if path.is_dir()):
        last = max(queue.iterdir())
        data = last.read_bytes()
        used = len(data.rstrip(b"\0")) + 19
        used -= used % 20
        if used + 20 <= len(data):
            last.write_bytes(data[:used] + data[used - 20 : used] + data[used + 20 :])
        else:
            (queue / f"{int(last.name) + len(data):020d}").write_bytes(data[used - 20 : used].ljust(len(data), b"\0"))
    summary = local_verify(store, broker_version="5.3")
    offset = offset_of(entries_of(store)[91])
    (note,) = [text for text in summary.notes if "DLedger" in text]
    assert note.startswith(
        f"offset {offset}: entries of DLedger from index 91 on are not committed, by the node's checkpoint: "
    )
    assert note.endswith("units and items of them are no damage, though they differ")
    assert not any(kind.startswith("log-") for kind in kinds(summary))


def test_a_leftover_without_a_segment_changes_nothing(golden_store: Stores, tmp_path: Path) -> None:
    plain = Path(shutil.copytree(golden_store("dledger-mixed-5.3").path, tmp_path / "plain"))
    shutil.rmtree(plain / "dledger-n0")
    left = Path(shutil.copytree(plain, tmp_path / "left"))
    data_of(left).mkdir(parents=True)
    assert roots_of(str(left)) == (str(left / "commitlog"),)
    for store in (plain, left):
        assert built(store, tmp_path / f"{store.name}-out").exit == 0
    assert read_files(tmp_path / "plain-out") == read_files(tmp_path / "left-out")
    rr.preflight(left, broker_version="5.3.3")
    rr.repair(left, out=tmp_path / "repaired", engine="local", broker_version="5.3", **SIZES)


def test_a_leftover_log_is_told_by_where_it_begins(golden_store: Stores, tmp_path: Path) -> None:
    store = Path(shutil.copytree(golden_store("dledger-mixed-5.3").path, tmp_path / "store"))
    log, data, conf = store / "commitlog", data_of(store), tmp_path / "broker.conf"
    conf.write_text("enableDLegerCommitLog=false\n")
    with pytest.raises(rr.InputError, match=f'{data}: is a log of DLedger, .*name the plain log: commitlog="{log}"'):
        rr.preflight(store, broker_version="5.5", broker_conf=conf)
    first = min(data.iterdir())
    start = int(first.name)
    first.unlink()
    second = int(min(path.name for path in data.iterdir()))
    error = str(built(store, tmp_path / "out").error)
    assert f"{log} begins at offset 0 and ends at {start}, {data} begins at {second}: one of them may be a leftover" in error
    for path in sorted(log.iterdir(), reverse=True):
        path.rename(log / f"{int(path.name) + 100 * 16384:020d}")
    error = str(built(store, tmp_path / "out").error)
    assert f"{data}: is a log of DLedger that begins at offset {second}, in front of {log}, which begins at " in error
    assert "it may be a leftover: name the log that is meant, --commitlog" in error


def test_no_repair_is_advised(store: Path, tmp_path: Path) -> None:
    """The leader has the bytes."""
    spoil(entries_of(store)[40], ENTRY_HEAD + 8, b"\x00\x00\x00\x01")
    copied = "stop the node, move its dledger-.../, consumequeue/, index/ and checkpoint away, and start it: it copies its log"
    error = str(built(store, tmp_path / "out").error)
    assert (copied in error, "repair" in error) == (True, False)
    salvaged = built(store, tmp_path / "out", on_damage="salvage")
    assert [text for text in salvaged.warnings if "repair" in text] == []
    summary = local_verify(store, broker_version="5.3")
    text = summary.to_text()
    assert (summary.exit != 0, copied in text, "repair" in text, summary.mend) == (True, True, False, None)
