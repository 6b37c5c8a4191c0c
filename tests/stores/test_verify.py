"""verify of a build where it was published: in a bucket, and behind a mount of one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex import files
from rocketmq_reindex.files import systems
from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.commands import query, report
from rocketmq_reindex.jobs.publishing import layout
from tests.fault.disk import tiny_store
from tests.golden.stores import unpack
from tests.stores.whole import published
from tests.tools.local_engine import InlineEngine, local_build, run_build, single
from tests.tools.local_verify import kinds, local_verify

SMALL: dict[str, Any] = {"cq_file_size": 400, "hash_slots": 50, "index_items": 60}
INDEX: dict[str, Any] = {"hash_slots": 50, "index_items": 100}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tiny_store(tmp_path / "store")


def built(store: Path, out: str, **more: Any) -> str:
    """The folder of the build, in which an attempt that came to nothing has left an IndexFile."""
    assert run_build(BuildSettings(store=str(store), out=out, **SMALL, **more).check(), single(InlineEngine())).exit == 0
    folder = published(out)
    # As the run's tasks have it: a folder that is there.
    aside = files.join(out, "work")
    files.make_folder(aside)
    files.write_bytes(aside, files.join(folder, "index", f"0-{'f' * 32}"), [b"half"])
    return folder


@pytest.mark.parametrize("keep", [False, True])
def test_of_a_bucket(keep: bool, store: Path, s3_place: str) -> None:
    """The output and the one build below it, with its zeros stored or not; as a verify of a local build says it."""
    log, out = str(store / "commitlog"), files.join(s3_place, "out")
    folder = built(store, out, keep_zeros=keep, write_topics=True)
    local_build(store, store.parent / "local", write_topics=True, **SMALL)
    local = local_verify(store.parent / "local", commitlogs=(log,))
    for place in (out, folder):
        found = local_verify(place, commitlogs=(log,), work=files.join(s3_place, "work"))
        assert (found.exit, found.error, kinds(found), found.store) == (0, None, {}, place)
        assert (found.files, found.units, found.items) == (local.files, local.units, local.items)
        assert [one["name"] for one in found.index_list] == [one["name"] for one in local.index_list]


def test_of_units_with_bit_maps_in_a_bucket(tmp_path: Path, s3_place: str) -> None:
    """Files of consumequeue_ext end behind their units there, too: their size is that of the manifest."""
    store, out = unpack("extended-5.5", tmp_path).path, files.join(s3_place, "out")
    settings = BuildSettings(str(store), out=out, cq_file_size=200, cq_ext="bitmap", cq_ext_file_size=300, **INDEX)
    assert run_build(settings.check(), single(InlineEngine())).exit == 0
    found = local_verify(out, commitlogs=(str(store / "commitlog"),), work=files.join(s3_place, "work"))
    assert (found.exit, found.error, kinds(found)) == (0, None, {})


def test_again_in_a_bucket(store: Path, s3_place: str) -> None:
    """What a verify found in the log lies in the bucket as well; the build in it may be replaced."""
    out, log = files.join(s3_place, "out"), (str(store / "commitlog"),)
    again: dict[str, Any] = {"commitlogs": log, "incremental": True, "tables": files.join(s3_place, "tables")}
    for ranges_known in (0, 2):
        built(store, out, overwrite=True)
        found = local_verify(out, **again)
        assert (found.exit, found.error, kinds(found)) == (0, None, {})
        assert found.incremental is not None
        assert found.incremental["ranges_known"] == ranges_known
        assert found.units == local_verify(out, commitlogs=log).units == 30


def test_what_is_wrong_there_is_found(store: Path, s3_place: str) -> None:
    out = files.join(s3_place, "out")
    folder, aside = built(store, out), files.join(s3_place, "aside")
    manifest = json.loads(files.read_bytes(files.join(folder, "reindex.json")))
    place = {
        part: [e.get("at", e["path"]) for e in manifest["files"] if e["path"].startswith(part)] for part in ("cons", "ind")
    }
    queue, index = files.join(folder, place["cons"][0]), files.join(folder, place["ind"][-1])
    whole = files.read_bytes(queue)
    files.write_bytes(aside, queue, [whole[:-20]])
    assert kinds(local_verify(out, commitlogs=(str(store / "commitlog"),))) == {"queue-unit-missing": 1}
    files.write_bytes(aside, queue, [whole, bytes(400)])
    assert "queue-file-size" in kinds(local_verify(out, commitlogs=(str(store / "commitlog"),)))
    files.write_bytes(aside, queue, [whole])
    files.write_bytes(aside, index, [files.read_bytes(index)[:-20]])
    assert "index-item-missing" in kinds(local_verify(out, commitlogs=(str(store / "commitlog"),)))
    path = files.join(folder, "reindex.json")
    files.write_bytes(aside, path, [files.read_bytes(path), b"\n"])
    changed = local_verify(out, commitlogs=(str(store / "commitlog"),))
    assert (changed.exit, "has digest" in (changed.error or "")) == (1, True)


def test_of_a_mount(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the Databricks bundle does it: build, then verify, in /Volumes."""
    monkeypatch.setattr(systems, "_MOUNTED", (f"{tmp_path}/mount/",))
    (tmp_path / "mount").mkdir()
    out = f"{tmp_path}/mount/out"
    built(store, out)
    found = local_verify(out, commitlogs=(str(store / "commitlog"),), work=f"{out}/work")
    assert (found.exit, found.error, kinds(found)) == (0, None, {})
    assert sorted(path.name for path in (tmp_path / "mount").iterdir()) == ["out"]
    assert list((tmp_path / "mount/out/work").iterdir()) == []


def test_who_does_not_know_such_builds_says_so(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = (tmp_path / "out").as_uri()
    folder = built(store, out)
    assert layout.identity(folder) == folder.rpartition("/")[2]
    for place in (out, folder, str(tmp_path / "out")):
        assert query([place, "--commitlog", str(store / "commitlog"), "--topic", "TopicA", "--key", "k"]) == 1
        assert "`rmq-reindex fetch` lays one out" in capsys.readouterr().err
        # report reads no URI at all.
        told = (2, "is a URI: name a folder") if "://" in place else (1, "`rmq-reindex fetch` lays one out")
        assert report([place, "--out", str(tmp_path / "page.html")]) == told[0]
        assert told[1] in capsys.readouterr().err
        for pair in ((place, store), (store, place)):
            verified = local_verify(str(pair[0]), against=str(pair[1]))
            assert verified.exit == 1
