"""Each kind of difference has a store that was spoilt that way and is found by name; so is every random one."""

from __future__ import annotations

import random
import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.storage_format.checks.differences import KINDS
from rocketmq_reindex.storage_format.errors import CODES
from tests.golden.stores import GoldenStore
from tests.tools import spoil, spoil_derived
from tests.tools.batch_log import SIZES as BATCH_SIZES
from tests.tools.compare import SMALL
from tests.tools.local_engine import InlineEngine, local_build
from tests.tools.local_verify import kinds, local_verify
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import Message
from tests.tools.seeds import cases
from tests.tools.spoil_queues import Queue, queue_folders
from tests.tools.spoiling import NotHere, Sizes
from tests.tools.spoilt_stores import checked, full_index, make_store, spoilt, try_one

Stores = Callable[[str], GoldenStore]
RANDOM_STORES = 10


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A store without its first segments, one with a broker's checkpoint, and one whose last IndexFile has no item."""
    folder, rng = tmp_path_factory.mktemp("sound"), random.Random(7)
    trimmed = next(
        store
        for k in range(20)
        if not (store := make_store(folder / f"{k}", rng.randrange(2**31))).joinpath("commitlog", f"{0:020d}").exists()
    )
    stores = [trimmed, make_store(folder / "broker", 5, "broker"), full_index(folder / "full", 2)]
    for store in stores:
        assert kinds(local_verify(store, **SMALL)) == {}
    return stores


@pytest.mark.parametrize("name", sorted(spoil_derived.KINDS))
def test_found_by_name(name: str, sound: list[Path], seed: int, tmp_path: Path) -> None:
    for store in sound:
        try:
            kind = spoilt(store, tmp_path / "store", name, seed)
        except NotHere:
            continue
        summary, found = checked(tmp_path / "store", name, kind, InlineEngine(3, 2))
        assert (summary.exit, summary.error) == (4, None)
        assert found, kinds(summary)
        finding = next(entry for entry in summary.findings if entry["kind"] == found[0])
        assert finding["count"] >= 1
        assert finding["examples"][0]["where"]
        assert finding["mend"]
        assert found[0] in summary.to_text()
        return
    pytest.fail("none of the stores could be spoilt this way")


@pytest.mark.parametrize("begins", [0, 1])
def test_the_first_item_of_the_first_file(begins: int, tmp_path: Path) -> None:
    """Its timeDiff counts from the end of the file before: 0 in front of the log's first record, unknown where it expired."""
    store = tmp_path / "store"
    with LogWriter(store / "commitlog", 1 << 12, begins << 12) as writer:
        for number in range(9):
            writer.append(Message(topic="T", properties={"KEYS": f"k{number}"}))
    assert local_build(store, tmp_path / "out", **SMALL).exit == 0
    for name in ("consumequeue", "index", "checkpoint"):
        shutil.move(tmp_path / "out" / name, store / name)
    assert kinds(local_verify(store, **SMALL)) == {}
    (path,) = (store / "index").iterdir()
    data = bytearray(path.read_bytes())
    struct.pack_into(">i", data, 40 + 4 * SMALL["hash_slots"] + 20 + 12, 7)
    path.write_bytes(data)
    assert kinds(local_verify(store, **SMALL)) == ({} if begins else {"index-item-time": 1})


def test_every_kind_is_said_in_words() -> None:
    for said in (CODES, {name: kind.text for name, kind in KINDS.items()}):
        assert [name for name, text in said.items() if " " not in text] == []


def test_every_kind_is_tried() -> None:
    """The others have tests of their own, below, in test_verify_against.py and in test_verify_agrees.py."""
    tried = {kind for _, kind in spoil_derived.KINDS.values()} | {"log-out-of-line", "log-queue-gaps", "queue-unit-batch"}
    tried |= {"index-tag-missing", "index-tag-extra", "checkpoint-offset-ahead"}  # test_verify_versions.py
    tried.add("queue-ext")  # test_extended.py
    tried |= {"epoch-file", "epoch-offset"}  # test_epochs.py
    tried |= {"timer-beyond-log", "timer-other-record"}  # tests/builds/test_timers_beyond.py
    # tests/builds/test_rocksdb_queues.py
    tried |= {"queue-unit-time", "queue-end", "rocksdb-unit-missing", "rocksdb-unit-extra", "rocksdb-unit-differs"}
    assert {kind for kind in KINDS if not kind.startswith("against-")} == tried


def test_random_stores(seed: int, tmp_path: Path) -> None:
    for number in range(cases(RANDOM_STORES, 1)):
        folder = tmp_path / f"{number}"
        name, wrong = try_one(folder, seed + number)
        assert wrong == "", f"{name}: python -m tests.tools.spoilt_stores --count 1 --seed {seed + number}"
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    "name", ["unit-zeroed", "units-moved-up", "item-hash", "links-circular", "index-order", "checkpoint-stale"]
)
def test_a_brokers_own_store(name: str, golden_store: Stores, seed: int, tmp_path: Path) -> None:
    source = golden_store("basic-5.3")
    copy = tmp_path / "store"
    shutil.copytree(source.path, copy, ignore=shutil.ignore_patterns("rebuilt"))
    spoiler, kind = spoil_derived.KINDS[name]
    spoiler(copy, Sizes(**source.sizes()), random.Random(seed))
    assert kind in kinds(local_verify(copy))


def test_the_mend_mends(sound: list[Path], tmp_path: Path) -> None:
    """What it says to build is all that is wrong."""
    store, out = tmp_path / "store", tmp_path / "out"
    for name, parts in (
        ("units-moved-up", "consumequeue"),
        ("item-hash", "index,checkpoint"),
        ("checkpoint-stale", "checkpoint"),
    ):
        spoilt(sound[0], store, name, 3)
        summary = local_verify(store, **SMALL)
        assert summary.mend is not None
        assert f"--only {parts} --cq-file-size 400 --hash-slots 50 --index-items 60" in summary.mend
        assert local_build(store, out, only=tuple(parts.split(",")), overwrite=True, **SMALL).exit == 0
        for part in parts.split(","):
            old = store / part
            shutil.rmtree(old) if old.is_dir() else old.unlink()
            shutil.move(out / part, old)
        assert kinds(local_verify(store, **SMALL)) == {}


def test_what_a_crash_cost(sound: list[Path], tmp_path: Path) -> None:
    """Stretches of the log whose keys are gone: times, records and keys, joined over ranges."""
    spoilt(sound[0], tmp_path / "store", "index-removed", 1)
    for size in (0, 2000):
        summary = local_verify(tmp_path / "store", range_size=size, **SMALL)
        (lost,) = summary.lost_keys
        assert lost["keys"] == summary.items == kinds(summary)["index-item-missing"]
        assert lost["records"] <= summary.records
        assert lost["time_min"] <= lost["time_max"]
        (finding,) = (entry for entry in summary.findings if entry["kind"] == "index-item-missing")
        (example,) = finding["examples"]
        assert example["text"].startswith(f"{lost['keys']:,} keys of {lost['records']:,} records, stored ")
        assert (example["where"], example["at"]) == ("index", lost["first"])


@pytest.mark.parametrize("way", ["removed", "renamed", "last name"])
def test_an_index_file_that_is_gone_says_nothing_of_others(way: str, golden_store: Stores, tmp_path: Path) -> None:
    """The next one's first item was measured against its end, which is that of the item before it in the log."""
    source = golden_store("basic-5.3")
    for number in range(5):
        store = tmp_path / f"{number}"
        shutil.copytree(source.path, store, ignore=shutil.ignore_patterns("rebuilt"))
        path = sorted((store / "index").iterdir())[number]
        found = {"index-item-missing": 759 if number == 4 else 1499}
        if way == "removed":
            path.unlink()
        elif way == "renamed":
            path.rename(path.with_name(f"{path.name}.old"))
            found["index-file-name"] = 1
        else:
            path.rename(path.with_name("9" * 17))
            found = {} if number == 4 else {"index-order": 1}
        summary = local_verify(store)
        assert (kinds(summary), summary.error) == (found, None)


def test_findings_say_what_should_stand_there(sound: list[Path], tmp_path: Path) -> None:
    """The value that is there, and the one that should be; a size is a size."""
    told = {}
    for name in ("index-file-cut", "item-hash", "item-time", "link-cut", "slot-cleared", "header-field", "empty-header"):
        for store in sound:
            try:
                kind = spoilt(store, tmp_path / "store", name, 4)
            except NotHere:
                continue
            summary = local_verify(tmp_path / "store", **SMALL)
            (found,) = (entry["examples"] for entry in summary.findings if entry["kind"] == kind)
            told[name] = "\n".join(example["text"] for example in found)
            break
    for name, text in (
        ("index-file-cut", r"\d+ bytes instead of 1440"),
        ("item-hash", r"item \d+: hash \d+ instead of \d+ for phyOffset \d+"),
        ("item-time", r"item \d+: (timeDiff -?\d+ instead of \d+|negative timeDiff -\d+)"),
        ("link-cut", r"item \d+: links to item -?\d+ instead of \d+"),
        ("slot-cleared", r"slot \d+: begins with item -?\d+ instead of \d+"),
        ("header-field", r"[a-z]+[A-Z][A-Za-z]+ \d+ instead of \d+"),
        ("empty-header", r"[a-z]+[A-Z][A-Za-z]+ \d+ instead of \d+"),
    ):
        assert re.search(f"^{text}$", told[name], re.MULTILINE), told[name]


def test_a_shift_is_told_from_its_first_slot_on(sound: list[Path], tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(sound[1], store)
    folder = max(queue_folders(store), key=lambda path: len(Queue(path).filled))
    queue = Queue(folder)
    slots = queue.filled
    del queue.units[slots[4]]
    queue.units.append((0, 0, 0))
    queue.write()
    summary = local_verify(store, **SMALL)
    assert kinds(summary) == {"queue-shifted": len(slots) - 5, "queue-unit-missing": 1}
    (finding,) = (entry for entry in summary.findings if entry["kind"] == "queue-shifted")
    (shift,) = finding["examples"]
    assert shift["at"] == int(queue.paths[0].name) // 20 + slots[4]
    (bad,) = (entry for entry in summary.queue_list if entry["differences"])
    assert bad["first_bad"] == shift["at"]


def test_a_record_out_of_line(tmp_path: Path) -> None:
    """Its queue offset is under no checksum. The unit that it has is that of another offset."""
    store = tmp_path / "store"
    with LogWriter(store / "commitlog", 1 << 14) as writer:
        for offset in range(40):
            writer.append(Message(topic="T", queue_offset=offset))
    assert local_build(store, tmp_path / "out", **SMALL).exit == 0
    place, _ = spoil.record_offsets(store)[20]
    path = spoil.segment_paths(store)[0]
    data = bytearray(path.read_bytes())
    data[place + 20 : place + 28] = struct.pack(">q", 3)
    path.write_bytes(data)
    summary = local_verify(tmp_path / "out", commitlogs=(str(store / "commitlog"),), **SMALL)
    assert kinds(summary) == {"log-out-of-line": 1, "queue-unit-other": 1}
    assert summary.orders == {"logical": 1}
    assert "--on-damage salvage" in (summary.mend or "")


def test_a_salvaged_log(sound: list[Path], tmp_path: Path) -> None:
    """What a build leaves out of a damaged log is no difference, but the damage is; what was built before points into it."""
    store = tmp_path / "store"
    shutil.copytree(sound[1], store)
    queue = max((Queue(folder) for folder in queue_folders(store)), key=lambda queue: len(queue.filled))
    place = queue.units[queue.filled[3]][0]
    spoil.bad_magic(store, [offset for offset, _ in spoil.record_offsets(store)].index(place))
    summary = local_verify(store, **SMALL)
    assert {"log-damage", "queue-unit-no-record"} <= kinds(summary).keys()
    assert summary.damage[0]["offset"] == place
    assert (summary.mend or "").startswith("rmq-reindex repair ")
    assert any("--on-damage salvage" in way["command"] for way in summary.other_ways)
    assert local_build(store, tmp_path / "out", on_damage="salvage", **SMALL).exit == 3
    found = kinds(local_verify(tmp_path / "out", commitlogs=(str(store / "commitlog"),), **SMALL))
    assert found == {"log-damage": len(summary.damage)}


@pytest.mark.parametrize(
    ("field", "kind"), [(0, "queue-unit-no-record"), (8, "queue-unit-size"), (12, "queue-unit-tags"), (28, "queue-unit-batch")]
)
def test_units_of_batch_queues(field: int, kind: str, golden_store: Stores, tmp_path: Path) -> None:
    source, store = golden_store("batch-5.3").path, tmp_path / "store"
    for part in ("commitlog", "config"):
        shutil.copytree(source / part, store / part)
    shutil.copytree(source / "rebuilt", store, dirs_exist_ok=True)
    path = store / "batchconsumequeue" / "BatchA" / "1" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[46 * 3 + field + (7 if field in (0, 12, 28) else 3)] ^= 1
    path.write_bytes(data)
    sizes: dict[str, Any] = dict(BATCH_SIZES)
    summary = local_verify(store, **sizes)
    assert kinds(summary) == {kind: 1}
    assert summary.findings[0]["examples"][0]["where"] == f"batchconsumequeue/BatchA/1/{0:020d}"
