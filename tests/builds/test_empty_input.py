"""A log that holds nothing, such as a disk that is not mounted: a warning, and it replaces no build that holds something."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.jobs.commands import fetch
from tests.fault.disk import SEGMENT, tiny_store, tree
from tests.tools.local_engine import local_build

SIZES: dict[str, Any] = {"cq_file_size": 400, "hash_slots": 7, "index_items": 40}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tiny_store(tmp_path / "store")


def nothing(store: Path, kind: str) -> dict[str, Any]:
    """Spoil a log, so that no record is left; returns what a build takes besides."""
    segments = sorted((store / "commitlog").iterdir())
    heads = [path.read_bytes()[:8] for path in segments]
    for path in segments:
        path.unlink()
    if kind == "zeros":
        # A broker that was started on a new disk: its first segment is there, and nothing in it.
        segments[0].write_bytes(bytes(SEGMENT))
    if kind == "no bytes":
        # Files that were made, and never filled: a copy on a full disk.
        segments[0].touch()
    if kind == "damage":
        # Records of a broker once, as their magic shows.
        for segment, head in list(zip(segments, heads, strict=True))[:2]:
            segment.write_bytes(head.ljust(SEGMENT, b"\1"))
    return {"on_damage": "salvage"} if kind == "damage" else {}


@pytest.mark.parametrize("kind", ["no segment", "no bytes", "zeros", "damage"])
@pytest.mark.parametrize("uri", [False, True], ids=["disk", "URI"])
def test_it_replaces_no_build(kind: str, uri: bool, store: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    out: Any = folder.as_uri() if uri else folder
    assert local_build(store, out, None, **SIZES).exit == 0
    before = tree(folder)
    more = nothing(store, kind)
    summary = local_build(store, out, None, overwrite=True, **SIZES, **more)
    assert summary.exit == 1
    assert f"{store}/commitlog: holds no record" in str(summary.error)
    assert "a build of 30 records stays" in str(summary.error)
    assert "--allow-empty" in str(summary.error)
    found = tree(folder)
    assert found is not None
    # Behind a URI an empty folder of runs may stay.
    assert {name: data for name, data in found.items() if data} == {name: data for name, data in (before or {}).items() if data}
    dry = local_build(store, out, None, overwrite=True, dry_run=True, **SIZES, **more)
    assert (dry.exit, any("--allow-empty" in text for text in dry.warnings)) == (0, kind == "no segment")
    summary = local_build(store, out, None, overwrite=True, allow_empty=True, **SIZES, **more)
    assert (summary.error, summary.records) == (None, 0)
    # One that holds nothing may be replaced by another.
    assert local_build(store, out, None, overwrite=True, **SIZES, **more).error is None


@pytest.mark.parametrize("kind", ["no segment", "no bytes", "zeros"])
def test_alone_it_warns(kind: str, store: Path, tmp_path: Path) -> None:
    nothing(store, kind)
    summary = local_build(store, tmp_path / "out", None, **SIZES)
    told = {
        "no segment": f"{store}/commitlog: holds no segment: what is built of it is empty: is its disk mounted?",
        "no bytes": "no record in 0 bytes of log: what is built of it is empty",
        "zeros": f"no record in {SEGMENT:,} bytes of log: what is built of it is empty",
    }
    assert (summary.exit, summary.warnings) == (0, [told[kind]])


def test_one_folder_of_several_is_empty(store: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    roots = (str(store / "commitlog"), str(tmp_path / "other"))
    summary = local_build("", tmp_path / "out", None, commitlogs=roots, **SIZES)
    assert (summary.exit, summary.records) == (0, 30)
    assert summary.warnings == [f"{tmp_path}/other: holds no segment: nothing is built from it"]


@pytest.mark.parametrize("kind", ["no segment", "zeros"])
def test_an_incremental_build(kind: str, store: Path, tmp_path: Path) -> None:
    """What is known of the log stays as well: with its disk back there is nothing new."""
    settings = SIZES | {"incremental": True, "tables": str(tmp_path / "tables")}
    shutil.copytree(store, tmp_path / "kept", copy_function=shutil.copy2)
    out = tmp_path / "out"
    assert local_build(store, out, None, **settings).exit == 0
    before = tree(out)
    nothing(store, kind)
    summary = local_build(store, out, None, **settings)
    assert (summary.exit, "holds no record" in str(summary.error)) == (1, True)
    assert tree(out) == before
    shutil.rmtree(store)
    shutil.copytree(tmp_path / "kept", store, copy_function=shutil.copy2)
    summary = local_build(store, out, None, **settings)
    assert summary.incremental is not None
    assert (summary.exit, summary.incremental["nothing_new"]) == (0, True)
    nothing(store, kind)
    summary = local_build(store, out, None, allow_empty=True, **settings)
    assert (summary.exit, summary.records, tree(out) == before) == (0, 0, False)


def test_what_stands_there_cannot_be_read(store: Path, tmp_path: Path) -> None:
    """It may hold anything: rather it stays."""
    assert local_build(store, tmp_path / "out", None, **SIZES).exit == 0
    (tmp_path / "out" / "reindex.json").write_text("no JSON")
    nothing(store, "no segment")
    summary = local_build(store, tmp_path / "out", None, overwrite=True, **SIZES)
    assert (summary.exit, "so a build stays in" in str(summary.error)) == (1, True)


def test_fetch_lays_no_empty_build_beside_a_log(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(store, tmp_path / "whole")
    nothing(store, "no segment")
    assert local_build(store, tmp_path / "out", None, **SIZES).exit == 0
    assert fetch([str(tmp_path / "out"), "--to", str(tmp_path / "whole")]) == 1
    assert "the build was made from none" in capsys.readouterr().err
    assert fetch([str(tmp_path / "out"), "--to", str(store)]) == 0
