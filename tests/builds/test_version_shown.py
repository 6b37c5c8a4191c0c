"""A build for which nobody named a version: it is for the broker whose files lie in STORE."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rocketmq_reindex.jobs.building.inputs import look_at
from rocketmq_reindex.jobs.building.options import BuildSettings, parse_settings
from tests.golden.stores import NAMES, GoldenStore, index_in_order, read_files, unpack
from tests.tools.local_engine import local_build


@pytest.fixture(params=NAMES)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> GoldenStore:
    return unpack(request.param, tmp_path)


def settings(store: Path, *words: str) -> BuildSettings:
    return look_at(parse_settings([str(store), "--out", str(store.parent / "out"), *words])).settings


def test_nothing_named_gives_the_bytes_of_the_broker(golden: GoldenStore, tmp_path: Path) -> None:
    summary = local_build(golden.path, tmp_path / "out", queue_order="broker", checkpoint="broker")
    assert (summary.exit, summary.error) == (0, None)
    found, wanted = read_files(tmp_path / "out"), golden.rebuilt()
    assert index_in_order(found) == index_in_order(wanted)
    assert {path: data for path, data in found.items() if path.startswith("consume")} == {
        path: data for path, data in wanted.items() if path.startswith("consume")
    }
    older = golden.broker_version in ("4.9", "5.3")
    shown = "version: 5.3, the newest of 5.3 and 4.9 that fit the files (" if older else "version: 5.5, taken from the files ("
    assert [note.startswith(shown) for note in summary.notes if note.startswith("version")] == [True]


def test_the_newest_of_several_versions_is_told(tmp_path: Path) -> None:
    """Without its checkpoint a store of 5.5 is like one of 5.4: the same version as where no file shows one is no guess."""
    store = unpack("basic-5.5", tmp_path).path
    (store / "checkpoint").unlink()
    summary = local_build(store, tmp_path / "out")
    told = "version: 5.5, the newest of 5.5 and 5.4 that fit the files (items of TAGS): --broker-version names another"
    assert [note for note in summary.notes if "version" in note] == [told]


def test_what_no_file_shows_is_told_in_one_line(tmp_path: Path) -> None:
    """Sizes of a --broker-conf are nobody's guess: what it leaves out, the broker has by default."""
    (tmp_path / "bare").mkdir()
    shutil.copytree(unpack("basic-5.3", tmp_path).path / "commitlog", tmp_path / "bare" / "commitlog")
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName=a\n")

    def notes(*words: str) -> tuple[str, ...]:
        return look_at(parse_settings([str(tmp_path / "bare"), "--out", str(tmp_path / "out"), *words])).notes

    def told(what: str, options: str) -> tuple[str, ...]:
        return (f"defaults, since no file shows others: {what}: give the broker's own by {options}",)

    queues, index = "ConsumeQueue files of 300,000 units", "IndexFiles of 5,000,000 slots and 20,000,000 items"
    both = "--broker-version and --broker-conf"
    assert notes() == told(f"RocketMQ 5.5, {queues}, {index}", both)
    assert notes("--cq-file-size", "4000") == told(f"RocketMQ 5.5, {index}", both)
    assert notes("--only", "index,checkpoint", "--broker-version", "5.5") == told(index, "--broker-conf")
    assert notes("--broker-conf", str(conf)) == told("RocketMQ 5.5", "--broker-version")
    assert notes("--broker-conf", str(conf), "--broker-version", "5.3") == ()


def test_another_version_that_is_named_is_taken_with_a_warning(tmp_path: Path) -> None:
    store = unpack("basic-5.3", tmp_path).path
    summary = local_build(store, tmp_path / "out", broker_version="5.5", named=frozenset(["broker_version"]))
    (warning,) = summary.warnings
    assert "its files fit RocketMQ 5.3 or 4.9 (" in warning
    assert warning.endswith("no items of TAGS): the build is for 5.5, as --broker-version says")


def test_a_version_that_is_named_wins(tmp_path: Path) -> None:
    store = unpack("basic-5.3", tmp_path).path
    for version in ("5.5", "5.4", "5.3", "4.9"):
        assert settings(store, "--broker-version", version).broker_version == version
    assert settings(store).broker_version == "5.3"


def test_sizes_that_are_named_do_not_change_the_version(tmp_path: Path) -> None:
    """The files in STORE have others: they are read by their own."""
    store = unpack("basic-5.3", tmp_path).path
    assert settings(store, "--hash-slots", "1000", "--index-items", "4000").broker_version == "5.3"


def test_a_log_alone_shows_no_version(tmp_path: Path) -> None:
    """Nor do files that cannot be read."""
    store = unpack("basic-5.3", tmp_path).path
    for part in ("index", "consumequeue", "checkpoint"):
        place = store / part
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink()
    assert settings(store).broker_version == "5.5"
    (store / "index").mkdir()
    for name in ("20240101000000000", "20240101000000001"):
        (store / "index" / name).write_bytes(b"no header" * 9)
    (store / "checkpoint").write_bytes(b"torn")
    assert settings(store).broker_version == "5.5"
