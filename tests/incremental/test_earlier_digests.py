"""Builds and scans that have murmur3 digests: fetched as ever, recognized, and read anew."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import mmh3
import pytest

from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.building.scanning import store_of
from rocketmq_reindex.jobs.building.summary import BuildResult
from rocketmq_reindex.jobs.commands import fetch
from rocketmq_reindex.jobs.publishing import builds, layout
from rocketmq_reindex.jobs.publishing.layout import SIZES as STORE_SIZES
from rocketmq_reindex.jobs.verifying.options import VerifySettings
from rocketmq_reindex.jobs.verifying.summary import VerifyResult
from rocketmq_reindex.jobs.watching.progress import Reporter
from rocketmq_reindex.storage_format.digest import EARLIER_KIND, KIND
from tests.golden.stores import read_files
from tests.incremental.verify_world import known
from tests.tools.local_engine import InlineEngine, LinesReporter, run_build, single
from tests.tools.local_verify import run_verify

SIZES: dict[str, Any] = {"cq_file_size": 400, "hash_slots": 50, "index_items": 60, "write_topics": True, "on_damage": "salvage"}
READ_AGAIN = "{}: what --tables knows has digests of murmur3-128: the log is read again"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """What version 0.1.0 left before it took xxh3.

    ``store``, the build ``out`` of it, and ``tables`` with what its build and its verify know; ``fetched``, a store into which
    a fetch brought that build; ``broker``, one in which a fetch of it was killed before its first rename.
    """
    with tarfile.open(Path(__file__).with_name("murmur3.tar.xz")) as archive:
        archive.extractall(tmp_path, filter="data")
    settings = BuildSettings(str(tmp_path / "store"), str(tmp_path / "out"), tables=str(tmp_path / "tables"))
    # The names stand for the path of DIR.
    for left in list((tmp_path / "tables" / "_scans").iterdir()):
        kind = "-verify" if left.name.endswith("-verify") else ""
        left.rename(store_of(settings, settings.out, kind).root)
    return tmp_path


def names(place: Path, kind: str) -> set[str]:
    """The files that builds ("") or verifies ("-verify") keep below ``tables``."""
    (kept,) = (one for one in (place / "tables" / "_scans").iterdir() if one.name.endswith("-verify") == bool(kind))
    return {path.name for path in kept.rglob("*") if path.is_file()}


def build(place: Path, reporter: Reporter | None = None, **more: Any) -> BuildResult:
    settings = BuildSettings(str(place / "store"), str(place / "out"), **SIZES, **more)
    return run_build(settings.check(), single(InlineEngine()), reporter)


def verify(place: Path, reporter: Reporter | None = None) -> VerifyResult:
    sizes = {name: SIZES[name] for name in STORE_SIZES if name in SIZES}
    settings = VerifySettings(
        str(place / "out"), commitlogs=(str(place / "store" / "commitlog"),), tables=str(place / "tables"), incremental=True,
        named=frozenset(sizes), **sizes,
    )  # fmt: skip
    return run_verify(settings, reporter=reporter)


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
    text = json.dumps(manifest(place / "out") | {"format": 2, "digest": "sum\n64"})
    (place / "out" / "reindex.json").write_text(text)
    assert fetch([str(place / "out"), "--to", str(place / "store")]) == 1
    assert "reindex.json: has digests of kind sum\\n64: take a newer rmq-reindex" in capsys.readouterr().err


def test_a_fetch_knows_what_it_laid_out(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And what it had begun to swap, before it was killed, it finishes."""
    words = {"fetched": "already there: consumequeue, index, checkpoint", "broker": "finished an earlier fetch of this build"}
    for name, said in words.items():
        assert fetch([str(place / "out"), "--to", str(place / name)]) == 0
        assert said in capsys.readouterr().out
        assert fetch([str(place / "out"), "--to", str(place / name)]) == 0
        assert words["fetched"] in capsys.readouterr().out
        assert read_files(place / name / "index") == read_files(place / "out" / "index")
        (place / name / "checkpoint").write_bytes(b"another")
        assert fetch([str(place / "out"), "--to", str(place / name)]) == 0
        assert "swapped consumequeue, index, checkpoint" in capsys.readouterr().out


def test_what_was_scanned_is_scanned_again(place: Path) -> None:
    before = read_files(place / "out")
    tables = {"incremental": True, "tables": str(place / "tables")}
    old = names(place, "")
    summary = build(place, first := LinesReporter(), **tables)
    assert (summary.exit, summary.error) == (0, None)
    assert first.lines.count(READ_AGAIN.format("incremental")) == 1
    assert summary.incremental is not None
    assert (summary.incremental["ranges_known"], summary.incremental["nothing_new"]) == (0, False)
    assert summary.incremental["bytes_read"] >= summary.bytes
    assert read_files(place / "out") == before
    assert manifest(place / "out")["digest"] == KIND
    assert not old & names(place, ""), "nobody needs them any more"
    again = build(place, second := LinesReporter(), **tables)
    assert again.incremental is not None
    assert again.incremental["nothing_new"]
    assert 0 < again.incremental["bytes_read"] <= 5 * 4096 * again.incremental["ranges"]
    assert READ_AGAIN.format("incremental") not in second.lines


def test_what_was_verified_is_read_again(place: Path) -> None:
    old = names(place, "-verify")
    found = verify(place, first := LinesReporter())
    assert (found.exit, found.findings, known(found)) == (0, [], (0, 2))
    assert first.lines.count(READ_AGAIN.format("verify")) == 1
    # The note on which ranges the verify of before used goes after a week.
    assert len(old & names(place, "-verify")) == 1
    again = verify(place, second := LinesReporter())
    assert known(again) == (2, 2)
    assert READ_AGAIN.format("verify") not in second.lines


def test_a_recheck_writes_all_files_again(place: Path) -> None:
    before = read_files(place / "out")
    index = min((place / "out" / "index").iterdir())
    index.write_bytes(bytes(index.stat().st_size))
    summary = build(place, incremental=True, recheck=True, tables=str(place / "tables"))
    assert (summary.exit, summary.error) == (0, None)
    assert read_files(place / "out") == before


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


def test_a_published_build_counts(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As behind a URI: the pointer to a build has a digest of its manifest."""
    name, content = "0" * 32, (place / "out" / "reindex.json").read_bytes()
    target = tmp_path / "bucket"
    shutil.copytree(place / "out", target / "builds" / name)
    (target / "published").mkdir()
    fields = {"build": name, "manifest": mmh3.mmh3_x64_128_digest(content).hex()}
    (target / "published" / layout.Pointer(1, name).name).write_text(json.dumps(fields))
    assert [pointer.kind for pointer in layout.pointers(str(target))] == [EARLIER_KIND]
    standing = builds.standing(str(target))
    assert standing is not None
    assert standing.digest == fields["manifest"]
    assert fetch([str(target), "--to", str(place / "fetched")]) == 0
    assert "already there" in capsys.readouterr().out
    (place / "other").mkdir()
    assert fetch([str(target), "--to", str(place / "other")]) == 0
    assert read_files(place / "other" / "index") == read_files(place / "out" / "index")
    (target / "builds" / name / "reindex.json").write_bytes(content + b"\n")
    assert builds.standing(str(target)) is None
    capsys.readouterr()
    assert fetch([str(target), "--to", str(place / "other")]) == 1
    assert f"instead of {fields['manifest']}: fetch again, or build again" in capsys.readouterr().err
