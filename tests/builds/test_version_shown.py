"""A build for which nobody named a version: it is for the broker whose files lie in STORE."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rocketmq_reindex.jobs.building.inputs import look_at
from rocketmq_reindex.jobs.building.options import parse_settings
from rocketmq_reindex.jobs.building.settings import BuildSettings
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
    assert any(note.startswith("version: 5.3, taken from the files (") for note in summary.notes) == older


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
