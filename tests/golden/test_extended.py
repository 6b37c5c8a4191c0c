"""``consumequeue_ext``: stores that RocketMQ's own dispatchers wrote, with bit maps of SQL92 expressions, come out the same."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketmq_reindex as rr
from tests.golden.stores import GoldenStore, read_files
from tests.tools.local_engine import InlineEngine, local_build
from tests.tools.local_verify import kinds, local_verify

Stores = Callable[[str], GoldenStore]
NAMES = ("extended-4.9", "extended-5.3", "extended-5.5")
"""Files of three and six units, so that queues have several; what made them: ``FilterStore`` of tests/oracle."""
SIZES: dict[str, Any] = {"cq_file_size": 200, "hash_slots": 50, "index_items": 100}
FILTERS = "config/consumerFilter.json"


def extended(root: Path) -> dict[str, bytes]:
    """{relative path: bytes} of ConsumeQueues and of consumequeue_ext."""
    folders = (root / "consumequeue", root / "consumequeue_ext")
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for folder in folders
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def store(golden_store: Stores, tmp_path: Path) -> Path:
    """A copy of one of the stores, which a test may change."""
    return Path(shutil.copytree(golden_store("extended-5.5").path, tmp_path / "store"))


@pytest.mark.parametrize("name", NAMES)
def test_queues_and_bit_maps_are_the_brokers(name: str, golden_store: Stores, tmp_path: Path) -> None:
    store = golden_store(name)
    manifests = set()
    for size, engine in ((0, InlineEngine(1, 1)), (3000, InlineEngine(7, 3))):
        out = tmp_path / f"{size}"
        summary = local_build(
            store.path, out, engine, range_size=size, broker_version=store.broker_version, cq_ext="bitmap",
            cq_ext_file_size=300, **SIZES,
        )  # fmt: skip
        assert (summary.exit, summary.error, summary.warnings) == (0, None, [])
        assert "config/consumerFilter.json: 7 registrations on 3 topics: bit maps of 112 bits" in summary.notes
        assert extended(out) == extended(store.path)
        manifests.add((out / "reindex.json").read_bytes())
    (manifest,) = manifests
    settings, files = json.loads(manifest)["settings"], json.loads(manifest)["files"]
    assert (settings["cq_ext"], settings["cq_ext_file_size"]) == ("bitmap", 300)
    assert {entry["path"] for entry in files} >= extended(store.path).keys()


def test_what_the_store_shows_is_built(store: Path, tmp_path: Path) -> None:
    summary = local_build(store, tmp_path / "out", broker_version="5.5", **SIZES)
    assert (summary.exit, extended(tmp_path / "out")) == (0, extended(store))
    assert "consumequeue_ext: files of 300 bytes, taken from the files" in summary.notes


def test_without_registrations_units_have_no_bits(store: Path, tmp_path: Path) -> None:
    """Of each unit the tagsCode and the store time are left, and one line says so."""
    (store / FILTERS).unlink()
    summary = local_build(store, tmp_path / "out", broker_version="5.5", cq_ext="bitmap", cq_ext_file_size=300, **SIZES)
    assert [note for note in summary.notes if note.startswith(FILTERS)] == [
        f"{FILTERS}: is not there, so no unit has a bit map, and a broker filters by the log alone"
    ]
    first = (tmp_path / "out" / "consumequeue_ext" / "Topic0" / "0" / f"{0:020d}").read_bytes()
    real = (store / "consumequeue_ext" / "Topic0" / "0" / f"{0:020d}").read_bytes()
    assert first[:20] == b"\0\x14" + real[2:18] + b"\0\0"
    local_build(store, tmp_path / "plain", broker_version="5.5", cq_ext="plain", cq_ext_file_size=300, **SIZES)
    assert extended(tmp_path / "plain") == extended(tmp_path / "out")


def test_a_build_without_it_is_as_before(store: Path, tmp_path: Path) -> None:
    """Units have their tagsCodes; the manifest does not speak of consumequeue_ext."""
    shutil.rmtree(store / "consumequeue_ext")
    assert local_build(store, tmp_path / "out", broker_version="5.5", **SIZES).exit == 0
    assert not (tmp_path / "out" / "consumequeue_ext").exists()
    assert "cq_ext" not in (tmp_path / "out" / "reindex.json").read_text()
    assert read_files(tmp_path / "out") != read_files(store)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace('"bitNum":112', '"bitNum":120', 1), "registrations of more than one bloom filter"),
        (lambda text: text.replace("a > 5 AND colour IS NOT NULL", "a > 5 rest"), "expression of group plain on topic Topic0"),
    ],
)
def test_registrations_that_a_broker_does_not_follow_are_told(
    change: Callable[[str], str], said: str, store: Path, tmp_path: Path
) -> None:  # fmt: skip
    (store / FILTERS).write_text(change((store / FILTERS).read_text()))
    summary = local_build(store, tmp_path / "out", broker_version="5.5", **SIZES)
    assert summary.exit == 0
    assert any(warning.startswith(f"{FILTERS}: {said}") for warning in summary.warnings)


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"filterDataByTopic": 3}', '{"filterDataByTopic": {"T": {"groupFilterData": {"g": null}}}}']
)
def test_registrations_that_are_none_are_refused(text: str, store: Path, tmp_path: Path) -> None:
    (store / FILTERS).write_text(text)
    summary = local_build(store, tmp_path / "out", broker_version="5.5", **SIZES)
    assert (summary.exit, summary.error) != (0, None)
    assert summary.error is not None
    assert "--cq-ext plain builds without bit maps" in summary.error
    assert "\n" not in summary.error


# --------------------------------------------------------------------------------------------------------------------- verify


@pytest.mark.parametrize("name", NAMES)
def test_verify_finds_nothing_in_what_a_broker_wrote(name: str, golden_store: Stores, tmp_path: Path) -> None:
    """Whether bits are compared or not; the manifest of no build is asked for."""
    store = Path(shutil.copytree(golden_store(name).path, tmp_path / "store"))
    for size in (0, 3000):
        summary = local_verify(store, InlineEngine(5, 3), range_size=size, broker_version=golden_store(name).broker_version)
        assert (summary.exit, summary.error, kinds(summary)) == (0, None, {})
    (store / FILTERS).unlink()
    summary = local_verify(store, broker_version=golden_store(name).broker_version)
    assert (summary.exit, kinds(summary)) == (0, {})
    assert "consumequeue_ext: tagsCodes and store times are compared; there are no registrations for bits" in summary.notes


def spoil(store: Path, change: Callable[[bytearray], None]) -> None:
    path = store / "consumequeue_ext" / "Topic2" / "0" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)


def clear_bits(data: bytearray) -> None:
    data[20:34] = bytes(14)


def clear_size(data: bytearray) -> None:
    data[0:2] = bytes(2)


def change_time(data: bytearray) -> None:
    data[17] ^= 1


def change_tags(data: bytearray) -> None:
    data[9] ^= 1


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (clear_bits, "queue-ext"),
        (change_time, "queue-ext"),
        (change_tags, "queue-unit-tags"),
        (clear_size, "queue-unit-tags"),
    ],
)
def test_verify_finds_what_is_spoilt(change: Callable[[bytearray], None], kind: str, store: Path) -> None:
    spoil(store, change)
    summary = local_verify(store, broker_version="5.5")
    assert (summary.exit, kinds(summary)) == (4, {kind: 1})


def test_bits_of_a_group_that_came_later_are_not_asked_for(store: Path) -> None:
    """A broker does not trust the bits of messages that were stored before it knew the group."""
    spoil(store, clear_bits)
    registered = json.loads((store / FILTERS).read_text())
    for group in registered["filterDataByTopic"]["Topic2"]["groupFilterData"].values():
        group["bornTime"] = 1 << 60
    (store / FILTERS).write_text(json.dumps(registered))
    assert kinds(local_verify(store, broker_version="5.5")) == {}


def test_verify_of_a_build(store: Path, tmp_path: Path) -> None:
    """Beside the store's log: also its bits, by the registrations in the store."""
    out = tmp_path / "out"
    assert local_build(store, out, broker_version="5.5", **SIZES).exit == 0
    log = (str(store / "commitlog"),)
    assert kinds(local_verify(out, commitlogs=log, broker_version="5.5")) == {}
    shutil.rmtree(out / "consumequeue_ext")
    assert kinds(local_verify(out, commitlogs=log, broker_version="5.5")) == {"queue-unit-tags": 150}


def first_file(store: Path) -> Path:
    return store / "consumequeue_ext" / "Topic2" / "0" / f"{0:020d}"


@pytest.mark.parametrize(
    ("deed", "kind"),
    [
        (lambda path: path.write_bytes(path.read_bytes() + bytes(4)), "queue-file-size"),
        (lambda path: path.write_bytes(path.read_bytes()[:-4]), "queue-file-size"),
        (lambda path: (path.parent / f"{299:020d}").write_bytes(path.read_bytes()), "queue-file-name"),
        (lambda path: (path.parent / "copy").write_bytes(path.read_bytes()), "queue-file-stray"),
    ],
)
def test_verify_looks_at_the_files(deed: Callable[[Path], object], kind: str, store: Path) -> None:
    """A broker does not start on the first two and the last, and finds other units in the third."""
    assert "consumequeue_ext: files of 300 bytes, taken from the files" in local_verify(store, broker_version="5.5").notes
    deed(first_file(store))
    for found in (local_verify(store, broker_version="5.5"), local_verify(store, broker_version="5.5", cq_ext_file_size=300)):
        assert (found.exit, kinds(found)) == (4, {kind: 1})
    assert local_verify(store, broker_version="5.5", only=("index",)).exit == 0


def test_verify_by_a_size_of_its_own(store: Path) -> None:
    found = local_verify(store, broker_version="5.5", cq_ext_file_size=400)
    files = list((store / "consumequeue_ext").glob("*/*/*"))
    wrong = [path for path in files if int(path.name) % 400]
    assert kinds(found) == {"queue-file-name": len(wrong), "queue-file-size": len(files) - len(wrong)}


def test_words_that_an_old_broker_does_not_know(golden_store: Stores, tmp_path: Path) -> None:
    """A 4.9 passes over them, and its bits are others: which version has set them is not known without the option."""
    store = Path(shutil.copytree(golden_store("extended-4.9").path, tmp_path / "store"))
    registered = json.loads((store / FILTERS).read_text())
    topics = registered["filterDataByTopic"]
    for topic in topics.values():
        for group in topic["groupFilterData"].values():
            group["expression"] = f"({group['expression']}) OR colour CONTAINS 'e'"
    (store / FILTERS).write_text(json.dumps(registered))
    found = local_verify(store)
    assert (found.exit, kinds(found)) == (0, {})
    note = "config/consumerFilter.json: 7 expressions with CONTAINS, STARTSWITH or ENDSWITH, which 4.9 does not know"
    assert [line for line in found.notes if line.startswith(note)], found.notes
    assert kinds(local_verify(store, broker_version="4.9")) == {}
    assert "queue-ext" in kinds(local_verify(store, broker_version="5.5")), "a broker of 5.x sets more"


def test_an_incremental_verify_compares_tags_codes(store: Path, tmp_path: Path) -> None:
    """And says so: store times and bits are not among what it keeps of the log."""
    said = "consumequeue_ext: --incremental compares the tagsCodes in it alone"
    for change, wrong in ((clear_bits, {}), (change_time, {}), (change_tags, {"queue-unit-tags": 1})):
        spoil(store, change)
        for _ in range(2):
            found = local_verify(store, broker_version="5.5", incremental=True, tables=str(tmp_path / "tables"))
            assert (found.error, kinds(found), said in found.notes) == (None, wrong, True)
    first_file(store).write_bytes(first_file(store).read_bytes()[:-4])
    found = local_verify(store, broker_version="5.5", incremental=True, tables=str(tmp_path / "tables"))
    assert kinds(found) == {"queue-unit-tags": 1, "queue-file-size": 1}


# ------------------------------------------------------------------------------------------------------------- inspect, fetch


def test_inspect(golden_store: Stores) -> None:
    path = golden_store("extended-5.5").path / "consumequeue_ext" / "Topic2" / "0" / f"{0:020d}"
    found = rr.inspect(path, records=True)
    units = list(found.records)
    assert (found.kind, found["bytes"], found["units"], found["unitsWithBitMap"]) == ("consumequeue_ext", 300, 8, 8)
    assert (found["goesOnInTheNextFile"], found["findings"], len(units)) == (True, [], 8)
    assert units[1]["address"] == 34 - (1 << 63)
    assert len(units[1]["bitMap"]) == 28


def test_inspect_says_what_is_spoilt(store: Path) -> None:
    path = store / "consumequeue_ext" / "Topic2" / "0" / f"{0:020d}"
    for change, code in ((clear_size, "ext-stray"), (lambda data: data.__setitem__(1, 7), "ext-unit")):
        copy = bytearray(path.read_bytes())
        change(copy)
        (store / "copy").write_bytes(copy)
        (finding,) = rr.inspect(store / "copy", kind="consumequeue_ext", first_offset=0)["findings"]
        assert finding["code"] == code


def test_an_exported_store_has_none(store: Path, tmp_path: Path) -> None:
    """Its units have their tagsCodes themselves."""
    rr.export(store, format="store", to=tmp_path / "new")
    assert not (tmp_path / "new" / "consumequeue_ext").exists()
    assert kinds(local_verify(tmp_path / "new", broker_version="5.5")) == {}


def test_a_repair_has_it(store: Path, tmp_path: Path) -> None:
    assert rr.repair(store, out=tmp_path / "out", engine="local", broker_version="5.5").exit_status == 0
    assert extended(tmp_path / "out") == extended(store)


def test_fetch_puts_both_folders_in_place(store: Path, tmp_path: Path) -> None:
    out, before = tmp_path / "out", extended(store)
    assert local_build(store, out, broker_version="5.5", **SIZES).exit == 0
    shutil.rmtree(store / "consumequeue_ext")
    shutil.rmtree(store / "consumequeue" / "Topic0")
    rr.fetch(out, to=store)
    assert extended(store) == before
