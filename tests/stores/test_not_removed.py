"""What a bucket does not let a run remove: it is counted and told, the build is good, and a later run removes it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex import files
from rocketmq_reindex.files import object_store
from rocketmq_reindex.jobs.building import last_build
from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.building.planning import store_scan
from rocketmq_reindex.jobs.publishing import builds as output_builds, layout
from rocketmq_reindex.jobs.publishing.layout import Leftovers
from rocketmq_reindex.jobs.verifying.options import VerifySettings
from rocketmq_reindex.jobs.verifying.parts import VerifyMemory
from rocketmq_reindex.jobs.verifying.summary import VerifyResult
from rocketmq_reindex.udfs.incremental.scan_store import ScanStore
from rocketmq_reindex.udfs.scan.segments import list_segments
from tests.fault.disk import tiny_store
from tests.tools.faulty_runs import command
from tests.tools.s3_door import EACH_KEY, Sought, s3_door, through


@pytest.fixture
def store(tmp_path: Path) -> str:
    tiny_store(tmp_path / "store")
    return str(tmp_path / "store")


def no_delete(sought: Sought) -> int:
    return 403 if sought.kind == "DELETE" else 0


def built(store: str, out: str, *more: str) -> dict[str, Any]:
    summary, said = command(store, out, *more)
    assert summary["exit"] == 0, summary["error"]
    assert [line for line in said.splitlines() if "could not be removed" in line] == [
        f"warning: {text}" for text in summary["warnings"] if "could not be removed" in text
    ]
    return summary


def folders(out: str) -> dict[str, list[str]]:
    return {name: sorted(files.names(files.join(out, name))) for name in ("builds", "work", "published")}


@pytest.fixture
def one_build_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the second build to a place supersedes the first."""
    monkeypatch.setattr(output_builds, "KEPT", 1)


@pytest.mark.usefixtures("one_build_is_kept")
@pytest.mark.parametrize(("status", "reason"), [(500, "INTERNAL_FAILURE"), (EACH_KEY, "ACCESS_DENIED")])
def test_a_refusal_is_told(status: int, reason: str, store: str, s3_place: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(object_store, "FIRST_PAUSE", 0.001)
    out, metrics = files.join(s3_place, "out"), tmp_path / "metrics.prom"
    assert built(store, out)["not_removed"] == []

    def refuses(sought: Sought) -> int:
        if sought.kind == "DELETE":
            return 403 if status == EACH_KEY else status
        return status if sought.kind == "REMOVE" else 0

    with s3_door(os.environ["AWS_ENDPOINT_URL"], refuses) as (endpoint, _):
        told = built(store, through(out, endpoint), "--overwrite", "--metrics", str(metrics))
    # The build that counts is whole: its manifest is the one that was published, and says nothing of this.
    assert output_builds.standing(out)
    manifest = json.loads(
        files.read_bytes(files.join(layout.build_folder(out, layout.pointers(out)[-1].build), "reindex.json"))
    )
    assert not [text for text in manifest["warnings"] if "removed" in text]
    stays = {files.base(entry["folder"].partition("?")[0]): entry for entry in told["not_removed"]}
    assert set(stays) == {"builds", "work", "published"}
    assert all(reason in entry["reason"] for name, entry in stays.items() if name == "work"), stays
    work = files.below(files.join(out, "work"))
    assert (stays["work"]["count"], stays["work"]["files"]) == (1, len(work))
    assert stays["work"]["bytes"] == sum(entry.size for entry in work)
    assert stays["builds"]["names"] == [layout.pointers(out)[0].build]
    assert len([text for text in told["warnings"] if "could not be removed" in text]) == 3
    count = sum(entry["files"] for entry in told["not_removed"])
    assert count > len(work)
    assert f'rmq_reindex_files_not_removed{{command="build",store="{store}"}} {float(count)}' in metrics.read_text()
    # The next run removes all of it, work/ once its run counts as dead.
    monkeypatch.setattr(output_builds, "DEAD_NANOSECONDS", 0)
    assert built(store, out, "--overwrite")["not_removed"] == []
    left = folders(out)
    assert (len(left["builds"]), left["work"], len(left["published"])) == (1, [], 1)


def test_a_failed_run_tells_what_it_leaves(store: str, s3_place: str) -> None:
    out = files.join(s3_place, "out")

    def refuses(sought: Sought) -> int:
        written = sought.kind == "PUT" and "/published/" in sought.path and sought.path.endswith(".json")
        return 403 if written or sought.kind in ("REMOVE", "DELETE") else 0

    with s3_door(os.environ["AWS_ENDPOINT_URL"], refuses) as (endpoint, _):
        told, said = command(store, through(out, endpoint))
    assert (told["exit"], layout.pointers(out)) == (1, [])
    assert sum(entry["files"] for entry in told["not_removed"]) == len(files.below(files.join(out, "builds"))) + len(
        files.below(files.join(out, "work"))
    )
    assert said.count("could not be removed") == 2
    assert "\nerror: " in said


def test_old_scans_are_told(store: str, bucket_by_environment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The door is in the environment: behind another endpoint the scans would be those of another DIR."""
    out, tables = (files.join(bucket_by_environment, name) for name in ("out", "tables"))
    built(store, out, "--incremental", "--tables", tables)
    data = next(entry.path for entry in files.below(files.join(tables, "_scans")) if "/data/" in entry.path)
    # What no build knows.
    files.write_bytes(out, files.join(files.parent(data), "f" * 32), [b"12345"])

    def refuses(sought: Sought) -> int:
        return 403 if sought.kind == "DELETE" and "/_scans/" in sought.path else 0

    with s3_door(os.environ["AWS_ENDPOINT_URL"], refuses) as (endpoint, _):
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{endpoint}")
        # Connections are kept by URI.
        door = [re.sub("region=[^&]*", "region=door-of-scans", place) for place in (out, tables)]
        told = built(store, door[0], "--incremental", "--lmq", "--tables", door[1])
    (entry,) = told["not_removed"]
    assert (entry["names"], entry["files"], entry["bytes"]) == (["f" * 32], 1, 5)


def test_the_mark_of_missing_rows_is_told(store: str, s3_place: str) -> None:
    """While it stays every run writes the rows of the build again."""
    scans, out = ScanStore(files.join(s3_place, "scans")), files.join(s3_place, "out")
    scans.make()
    log = list_segments((f"{store}/commitlog",), 0)
    build = last_build.of_log(log, BuildSettings(store, out=out), "fingerprint")
    last_build.mark_rows_missing(scans, build)

    with s3_door(os.environ["AWS_ENDPOINT_URL"], no_delete) as (endpoint, _):
        left = Leftovers()
        last_build.mark_rows_written(ScanStore(through(scans.root, endpoint)), build, left)
    ((told,),) = (left.entries(),)
    assert (told["names"], told["files"], told["bytes"]) == ([".owed"], 1, 5)
    assert "ACCESS_DENIED" in told["reason"]
    assert last_build.are_rows_missing(scans, build)
    last_build.mark_rows_written(scans, build, left := Leftovers())
    assert (left.entries(), last_build.are_rows_missing(scans, build)) == ([], False)


def test_what_a_verify_knows_and_needs_no_longer_is_told(s3_place: str) -> None:
    root, summary = files.join(s3_place, "scans"), VerifyResult()
    ScanStore(root).make()
    files.write_bytes(root, files.join(root, "data", "old"), [b"12345"])

    with s3_door(os.environ["AWS_ENDPOINT_URL"], no_delete) as (endpoint, _):
        scans, scan = ScanStore(through(root, endpoint)), store_scan(VerifySettings("store"))
        with summary.telling_leftovers(), VerifyMemory(scans, scan, False, summary.leftovers) as memory:
            memory.save()
    said = [
        re.search(r": (run|old)\S* could not be removed \(.*ACCESS_DENIED.*\): 1 file, (\d+) bytes stay there", text)
        for text in summary.notes
    ]
    assert [found and found.groups() for found in said] == [("run", "10"), ("old", "5")]
    assert summary.counts()["files_not_removed"] == 2


@pytest.mark.usefixtures("one_build_is_kept")
def test_a_server_that_cannot_remove_many(store: str, s3_place: str) -> None:
    """Each object is then removed by a request of its own, the marks of folders as well."""
    out = files.join(s3_place, "out")
    with s3_door(os.environ["AWS_ENDPOINT_URL"], lambda sought: 501 if sought.kind == "REMOVE" else 0) as (endpoint, asked):
        for _ in range(2):
            assert built(store, through(out, endpoint), "--overwrite")["not_removed"] == []
    assert [one for one in asked if one.kind == "DELETE"]
    left = folders(out)
    assert (len(left["builds"]), left["work"], len(left["published"])) == (1, [], 1)
