"""Builds and scans that have murmur3 digests: fetched as ever, recognized, and read anew."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import mmh3
import pytest

from rocketmq_reindex.jobs.building.scan_place import store_of
from rocketmq_reindex.jobs.building.settings import BuildSettings
from rocketmq_reindex.jobs.building.summary import Summary
from rocketmq_reindex.jobs.fetch import fetch
from rocketmq_reindex.jobs.publishing import builds, pointers
from rocketmq_reindex.storage_format.digest import EARLIER_KIND, KIND
from tests.golden.stores import read_files
from tests.tools.local_engine import local_build

SIZES: dict[str, Any] = {"cq_file_size": 400, "hash_slots": 50, "index_items": 60, "write_topics": True, "on_damage": "salvage"}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """``store``, the build ``out`` of it, and its ``tables``, as version 0.1.0 left them before it took xxh3."""
    with tarfile.open(Path(__file__).with_name("murmur3.tar.xz")) as archive:
        archive.extractall(tmp_path, filter="data")
    (left,) = (tmp_path / "tables" / "_scans").iterdir()
    settings = BuildSettings(str(tmp_path / "store"), str(tmp_path / "out"), tables=str(tmp_path / "tables"))
    left.rename(store_of(settings, settings.out).root)
    return tmp_path


def build(place: Path, **more: Any) -> Summary:
    return local_build(place / "store", place / "out", **SIZES, **more)


def manifest(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "reindex.json").read_bytes())
    return found


def test_a_build_is_fetched_and_checked(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "digest" not in manifest(place / "out")
    assert fetch([str(place / "out"), "--to", str(place / "store")]) == 0
    assert read_files(place / "store" / "consumequeue") == read_files(place / "out" / "consumequeue")
    queue = next(path for path in sorted((place / "out" / "consumequeue").rglob("*")) if path.is_file())
    queue.write_bytes(b"\xff" + queue.read_bytes()[1:])
    (place / "other").mkdir()
    assert fetch([str(place / "out"), "--to", str(place / "other")]) == 1
    assert ": has digest " in capsys.readouterr().err


def test_a_kind_of_the_future_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = json.dumps(manifest(place / "out") | {"digest": "sum\n64"})
    (place / "out" / "reindex.json").write_text(text)
    assert fetch([str(place / "out"), "--to", str(place / "store")]) == 1
    assert "reindex.json: has digests of kind sum\\n64: take a newer rmq-reindex" in capsys.readouterr().err


def test_what_was_scanned_is_scanned_again(place: Path) -> None:
    before = read_files(place / "out")
    tables = {"incremental": True, "tables": str(place / "tables")}
    old = {path.name for path in (place / "tables").rglob("*") if path.is_file()}
    summary = build(place, **tables)
    assert (summary.exit, summary.error) == (0, None)
    assert summary.incremental is not None
    assert (summary.incremental["ranges_known"], summary.incremental["nothing_new"]) == (0, False)
    assert summary.incremental["bytes_read"] >= summary.bytes
    assert read_files(place / "out") == before
    assert manifest(place / "out")["digest"] == KIND
    assert not old & {path.name for path in (place / "tables").rglob("*") if path.is_file()}, "nobody needs them any more"
    again = build(place, **tables)
    assert again.incremental is not None
    assert again.incremental["nothing_new"]


def test_the_draft_of_topics_is_known(place: Path) -> None:
    """It may be replaced; one that somebody edited may not."""
    draft = place / "out" / "config" / "topics.json"
    content = draft.read_bytes()
    draft.write_bytes(content + b" ")
    refused = build(place, overwrite=True)
    assert refused.exit == 1
    assert refused.error is not None
    assert "is not as a build drafted it" in refused.error
    draft.write_bytes(content)
    assert build(place, overwrite=True).exit == 0


def test_a_published_build_counts(place: Path, tmp_path: Path) -> None:
    """As behind a URI: the pointer to a build has a digest of its manifest."""
    name, content = "0" * 32, (place / "out" / "reindex.json").read_bytes()
    target = tmp_path / "bucket"
    (target / "builds" / name).mkdir(parents=True)
    (target / "builds" / name / "reindex.json").write_bytes(content)
    (target / "published").mkdir()
    fields = {"build": name, "manifest": mmh3.mmh3_x64_128_digest(content).hex()}
    (target / "published" / pointers.Pointer(1, name).name).write_text(json.dumps(fields))
    assert [pointer.kind for pointer in pointers.pointers(str(target))] == [EARLIER_KIND]
    standing = builds.standing(str(target))
    assert standing is not None
    assert standing.digest == fields["manifest"]
    (target / "builds" / name / "reindex.json").write_bytes(content + b"\n")
    assert builds.standing(str(target)) is None
