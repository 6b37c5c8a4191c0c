"""verify by version: which one fits a store, and what it then says of items of TAGS and of the checkpoint."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from rocketmq_reindex.storage_format.checkpoints import Checkpoint
from rocketmq_reindex.storage_format.versions import VERSIONS
from tests.golden.stores import NAMES, GoldenStore
from tests.golden.test_verify_mend import built, mended, written
from tests.reference.index_file import IndexFile
from tests.tools.compare import SMALL
from tests.tools.local_engine import InlineEngine
from tests.tools.local_verify import kinds, local_verify
from tests.tools.make_log import Message

COUNT = 60
FITS = {"4.9": ["5.3", "4.9"], "5.3": ["5.3"], "5.4": ["5.4"], "5.5": ["5.5"]}
"""The versions that fit what a build for each of them leaves: nothing tells 5.3's index from 4.9's, where it holds items."""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each record has TAGS, two in three have a key, too."""
    messages = (
        Message(topic="T", properties={"TAGS": f"tag-{number % 4}"} | ({"KEYS": f"key-{number}"} if number % 3 else {}))
        for number in range(COUNT)
    )  # fmt: skip
    return written(tmp_path_factory.mktemp("versions") / "log", *messages)


def store_with(log: Path, store: Path, tagged: Collection[int], lost: Collection[int] = ()) -> Path:
    """A 5.5 store whose index has tag items of the records ``tagged`` alone, and nothing of the records ``lost``."""
    shutil.copytree(log, store)
    built(store, broker_version="5.5")
    shutil.rmtree(store / "index")
    file, at = IndexFile(0, SMALL["hash_slots"], 200), 0
    places = places_of(store)
    for number, (place, time) in enumerate(places):
        if number in lost:
            continue
        if number % 3:
            file.put(f"T#key-{number}", place, time)
        if number in tagged:
            file.put(f"T#T#tag-{number % 4}", place, time)
        at = time
    (store / "index").mkdir()
    (store / "index" / "20240101000000000").write_bytes(file.to_bytes("5.5"))
    checkpoint = Checkpoint.from_bytes((store / "checkpoint").read_bytes())
    (store / "checkpoint").write_bytes(Checkpoint(at, at, 0, 0, checkpoint.confirm_offset, checkpoint.logics_offset).to_bytes())
    return store


def places_of(store: Path) -> list[tuple[int, int]]:
    """Offset and store time of each record."""
    found = []
    for segment in sorted((store / "commitlog").iterdir()):
        data, at = segment.read_bytes(), 0
        while at + 8 < len(data) and data[at + 4 : at + 8] == bytes.fromhex("daa320a7"):
            found.append((int(segment.name) + at, int.from_bytes(data[at + 56 : at + 64], "big")))
            at += int.from_bytes(data[at : at + 4], "big")
    assert len(found) == COUNT
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_a_build_fits_its_version(version: str, log: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(log, store)
    built(store, broker_version=version)
    summary = local_verify(store)
    assert (summary.exit, summary.findings) == (0, [])
    assert (summary.fits, summary.broker_version) == (FITS[version], FITS[version][0])
    tags = COUNT if version in ("5.4", "5.5") else 0
    assert (summary.items, summary.tag_items, summary.tag_items_there) == (COUNT * 2 // 3, tags, tags)
    assert kinds(local_verify(store, broker_version=version)) == {}
    # By another version its tag items are too many, or missing.
    other = "5.3" if tags else "5.5"
    wrong = local_verify(store, broker_version=other)
    assert kinds(wrong) == {"index-tag-extra" if tags else "index-tag-missing": COUNT}
    assert wrong.fits == []


@pytest.mark.parametrize(("version", "fits"), [("5.5", ["5.5", "5.4", "5.3"]), ("4.9", ["4.9"])])
def test_an_index_without_items(version: str, fits: list[str], tmp_path: Path) -> None:
    """Only after a clean stop its header tells 4.9 from the others."""
    store = written(tmp_path / "store", *(Message(topic="T", properties={}) for _ in range(3)))
    built(store, broker_version=version)
    (store / "checkpoint").unlink()
    only = ("index", "log")
    assert local_verify(store, only=only).fits == fits
    (store / "abort").touch()
    assert local_verify(store, only=only).fits == (list(VERSIONS) if version == "4.9" else fits)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("tree", ["", "rebuilt"])
def test_brokers_stores_fit_their_version(name: str, tree: str, golden_store: Callable[[str], GoldenStore]) -> None:
    store = golden_store(name)
    summary = local_verify(store.path / tree, commitlogs=(str(store.path / "commitlog"),))
    assert summary.findings == []
    assert store.broker_version in summary.fits


@pytest.mark.parametrize("first", [1, 2, 30, 59])
@pytest.mark.parametrize("engine", [InlineEngine(), InlineEngine(5, 3)])
def test_an_upgraded_store_is_clean(first: int, engine: InlineEngine, log: Path, tmp_path: Path) -> None:
    """Keys alone from the older broker, tag items, too, from the newer one."""
    store = store_with(log, tmp_path / "store", range(first, COUNT))
    summary = local_verify(store, engine, range_size=1000)
    assert (summary.fits, summary.tag_items, summary.tag_items_there) == (["5.5"], COUNT - first + (first == 1), COUNT - first)
    if first == 1:
        # A single record without key and tag item: nothing there tells of an older broker.
        assert kinds(summary) == {"index-tag-missing": 1}
        return
    assert summary.findings == []
    offset = places_of(store)[first][0]
    assert any(
        note.startswith(f"no items of TAGS for {first} records before offset {offset}, as a broker before 5.4")
        for note in summary.notes
    )
    assert kinds(local_verify(store, engine, broker_version="5.5")) == {}


def test_a_store_that_was_upgraded_and_got_no_record_since(log: Path, tmp_path: Path) -> None:
    store = store_with(log, tmp_path / "store", [])
    summary = local_verify(store)
    assert (summary.findings, summary.fits) == ([], ["5.5"])
    assert "the signs are of several versions, as after an upgrade: checked as a store of 5.5" in summary.notes
    assert kinds(local_verify(store, broker_version="5.5")) == {"index-tag-missing": COUNT}


@pytest.mark.parametrize(("version", "found"), [("5.3", {"queue-file-empty": 1}), ("5.5", {})])
def test_only_the_index_tells_the_version(version: str, found: dict[str, int], log: Path, tmp_path: Path) -> None:
    """A 5.5 broker starts on a queue's file without a unit, an older one does not: the queues wait for what the index says."""
    store = tmp_path / "store"
    shutil.copytree(log, store)
    built(store, broker_version=version)
    (store / "checkpoint").unlink()
    last = max((store / "consumequeue" / "T" / "0").iterdir())
    (last.parent / f"{int(last.name) + last.stat().st_size:020d}").write_bytes(bytes(last.stat().st_size))
    summary = local_verify(store, only=("consumequeue", "index", "log"))
    assert (kinds(summary), summary.fits[0]) == (found, version)
    assert any(note.startswith("files without a unit") for note in summary.notes) == (not found)


def test_a_downgraded_store_is_clean(log: Path, tmp_path: Path) -> None:
    store = store_with(log, tmp_path / "store", range(40))
    summary = local_verify(store)
    assert summary.findings == []
    assert any("no items of TAGS for 20 records behind offset" in note for note in summary.notes)


def test_an_index_that_ends_early(log: Path, tmp_path: Path) -> None:
    """The last record has its key there, and its tag item would be next: no older broker leaves that."""
    store = store_with(log, tmp_path / "store", range(COUNT - 1))
    assert kinds(local_verify(store)) == {"index-tag-missing": 1}


def test_missing_tag_items(log: Path, tmp_path: Path) -> None:
    """Among others each one is a difference, and where the keys are gone, too."""
    store = store_with(log, tmp_path / "store", {*range(COUNT)} - {20, 21, 40})
    summary = local_verify(store, InlineEngine(5, 3), range_size=1000)
    assert kinds(summary) == {"index-tag-missing": 3}
    assert (summary.tag_items, summary.tag_items_there) == (COUNT, COUNT - 3)
    assert [(lost["keys"], lost["first"]) for lost in summary.lost_tags] == [
        (2, places_of(store)[20][0]),
        (1, places_of(store)[40][0]),
    ]
    assert "60 of TAGS (57 there)" in summary.to_text()
    assert summary.mend is not None
    assert kinds(mended(summary, store)) == {}
    lost = store_with(log, tmp_path / "lost", range(COUNT), range(45, COUNT))
    summary = local_verify(lost)
    assert kinds(summary) == {"index-item-missing": 10, "index-tag-missing": 15}
    assert (summary.items, summary.items_there) == (COUNT * 2 // 3, COUNT * 2 // 3 - 10)
    assert f"{COUNT * 2 // 3} items ({COUNT * 2 // 3 - 10} there) of keys" in summary.to_text()
    early = store_with(log, tmp_path / "early", range(COUNT), range(15))
    assert kinds(local_verify(early)) == {"index-item-missing": 10, "index-tag-missing": 15}


def test_an_offset_behind_the_log(log: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(log, store)
    built(store)
    data = bytearray((store / "checkpoint").read_bytes())
    data[40:48] = (1 << 40).to_bytes(8, "big")
    (store / "checkpoint").write_bytes(data)
    summary = local_verify(store)
    assert kinds(summary) == {"checkpoint-offset-ahead": 1}
    assert kinds(local_verify(store, broker_version="5.4")) == {}
    assert kinds(mended(summary, store)) == {}
