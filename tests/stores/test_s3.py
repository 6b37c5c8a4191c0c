"""Builds on s3://: whole ones, failed ones, several at a time."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rocketmq_reindex as rr
from rocketmq_reindex import files
from rocketmq_reindex.jobs.build import build
from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.building.summary import BuildResult
from rocketmq_reindex.jobs.cli import main
from rocketmq_reindex.jobs.commands import fetch, query
from rocketmq_reindex.jobs.fetching.record import RECORD
from rocketmq_reindex.jobs.inspecting.options import inspect
from rocketmq_reindex.jobs.publishing import builds as output_builds, layout, output
from rocketmq_reindex.storage_format.errors import InputError
from tests.fault.disk import tiny_store, tree
from tests.stores.whole import published
from tests.tools.faulty_s3 import faulty_s3
from tests.tools.local_engine import InlineEngine, local_build, run_build, single
from tests.tools.local_verify import local_verify
from tests.tools.s3_door import through
from tests.tools.upload import upload

SMALL: dict[str, Any] = {"cq_file_size": 400, "hash_slots": 50, "index_items": 60}


@pytest.fixture
def store(tmp_path: Path, s3_place: str) -> str:
    """A tiny store in the bucket, and the same one at tmp_path/store."""
    tiny_store(tmp_path / "store")
    upload(tmp_path / "store", files.join(s3_place, "store"), files.join(s3_place, "aside"))
    return files.join(s3_place, "store")


@pytest.fixture
def out(s3_place: str) -> str:
    return files.join(s3_place, "out")


def built(store: str, out: str, **more: object) -> BuildResult:
    settings = BuildSettings(store=store, out=out, **SMALL, **more)  # type: ignore[arg-type]
    return run_build(settings.check(), single(InlineEngine()))


def test_what_info_advises_takes_a_bucket(store: str, s3_place: str, tmp_path: Path) -> None:
    """Neither preflight nor fetch takes a store there: a build is fetched into the broker's own, and a sound store verified."""
    build_words, fetch_words = (shlex.split(command) for command in rr.info(store).next["commands"])
    assert build_words[:3] == ["rmq-reindex", "build", store]
    assert fetch_words == ["rmq-reindex", "fetch", build_words[build_words.index("--out") + 1], "--to", "STORE"]
    assert local_build(tmp_path / "store", tmp_path / "built", None, broker_version="5.3", **SMALL).exit == 0
    upload(tmp_path / "built", store, files.join(s3_place, "aside"))
    (verify_words,) = (shlex.split(command) for command in rr.info(store).next["commands"])
    assert verify_words == ["rmq-reindex", "verify", store]
    assert local_verify(store).exit == 0


def fetched(out: str, folder: Path) -> dict[str, bytes] | None:
    folder.mkdir()
    assert fetch([out, "--to", str(folder), "--json"]) == 0
    for name in ("lock", RECORD):
        (folder / name).unlink()
    return tree(folder)


def truth(tmp_path: Path) -> dict[str, bytes]:
    """What a local build of the same store leaves, without the manifest."""
    assert local_build(tmp_path / "store", tmp_path / "local", **SMALL).exit == 0
    found = tree(tmp_path / "local")
    assert found
    del found["reindex.json"]
    return found


def test_all_messages_of_a_log_in_a_bucket(store: str, tmp_path: Path) -> None:
    """What is not mapped into memory is read anew into one buffer: rows that are made meanwhile keep their bytes."""
    there, here = rr.messages(store).read_all(), rr.messages(tmp_path / "store").read_all()
    assert there.num_rows
    assert there.equals(here)


@pytest.mark.parametrize("keep", [False, True])
def test_zeros_at_the_end_are_not_stored(store: str, out: str, keep: bool, tmp_path: Path) -> None:
    assert built(store, out, keep_zeros=keep).exit == 0
    folder = published(out)
    manifest = json.loads(files.read_bytes(files.join(folder, "reindex.json")))
    assert {"consumequeue", "index"} <= {entry["path"].partition("/")[0] for entry in manifest["files"]}
    for entry in manifest["files"]:
        stored = files.entry_of(files.join(folder, entry.get("at", entry["path"]))).size
        whole = keep or entry["path"] == "checkpoint"
        assert stored == (entry["size"] if whole else entry["used"])
    assert any(entry["used"] < entry["size"] for entry in manifest["files"] if entry["path"] != "checkpoint")
    assert fetched(out, tmp_path / "target") == truth(tmp_path)


def test_index_files_stay_where_they_were_written(store: str, out: str) -> None:
    """A rename is a copy there. What is left of attempts that came to nothing goes."""
    assert built(store, out).exit == 0
    folder = published(out)
    manifest = json.loads(files.read_bytes(files.join(folder, "reindex.json")))
    told = {entry["at"] for entry in manifest["files"] if entry["path"].startswith("index/")}
    assert told == {f"index/{name}" for name in files.names(files.join(folder, "index"))}


def test_a_second_build_needs_overwrite_and_old_ones_go(store: str, out: str) -> None:
    assert built(store, out).exit == 0
    second = built(store, out)
    assert (second.exit, "holds a build" in (second.error or "")) == (1, True)
    seen = [published(out)]
    for _ in range(3):
        assert built(store, out, overwrite=True).exit == 0
        seen.append(published(out))
    assert len(set(seen)) == 4
    # The one that counts, and the one before it.
    assert {files.join(out, "builds", name) for name in files.names(files.join(out, "builds"))} == set(seen[-2:])
    assert len(files.names(files.join(out, "published"))) == 2
    assert files.names(files.join(out, "work")) == []


def test_info_tells_the_same_of_a_store_in_a_bucket(store: str, s3_place: str, tmp_path: Path) -> None:
    """But for its name, and what is advised to paste."""
    local, elsewhere = tmp_path / "store", ("store", "seconds", "next")
    for parts in ((), ("consumequeue", "index", "checkpoint")):
        for part in parts:
            assert local_build(local, tmp_path / part, only=(part,), **SMALL).exit == 0
            (tmp_path / part / part).rename(local / part)
            if (local / part).is_dir():
                upload(local / part, files.join(store, part), files.join(s3_place, "aside"))
            else:
                files.write_bytes(files.join(s3_place, "aside"), files.join(store, part), [(local / part).read_bytes()])
        here, there = (rr.info(place).to_dict() for place in (local, store))
        assert {name: value for name, value in there.items() if name not in elsewhere} == {
            name: value for name, value in here.items() if name not in elsewhere
        }
        assert bool(there["problems"]) == (not parts)
        assert all("s3:" in command for command in there["next"]["commands"])


def test_what_info_advises_of_a_store_in_a_bucket_leads_to_the_end(store: str, s3_place: str, tmp_path: Path) -> None:
    """The bare log is built, and put into the broker's own store; what is whole is compared: no broker starts on it there."""
    own, conf = tmp_path / "store", tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeConsumeQueue=400\nmaxHashSlotNum=50\nmaxIndexNum=60\n")

    def follow(place: str) -> list[str]:
        """Run the commands that are advised, and return their names."""
        advised = rr.info(place).next
        names = []
        for command in advised["commands"]:
            _, name, *words = shlex.split(command)
            stands_for = {"BROKER_CONF": str(conf), "STORE": str(own), "VERSION": "5.5"}
            assert all(word in advised["why"] for word in words if word in stands_for)
            local = ["--engine", "local"] if name != "fetch" else []
            assert main([name, *(stands_for.get(word, word) for word in words), *local]) == 0
            names.append(name)
        return names

    assert follow(store) == ["build", "fetch"]
    upload(own, files.join(s3_place, "whole"), files.join(s3_place, "aside"))
    assert follow(files.join(s3_place, "whole")) == ["verify"]


REFUSED = (
    "/work/.*/alive-", "/work/.*/plans/", "/work/.*/blocks/", "/work/.*/ranges/", "/work/.*/parts/", "/builds/.*/consumequeue/",
    "/builds/.*/index/", "/builds/.*/checkpoint", "/builds/.*/reindex.json", "/published/.*json",
)  # fmt: skip


@pytest.mark.parametrize("pattern", REFUSED)
def test_a_write_that_is_refused_leaves_nothing(pattern: str, store: str, out: str) -> None:
    """As by a lost permission or a full quota."""
    with faulty_s3(os.environ["AWS_ENDPOINT_URL"], pattern) as (endpoint, refused):
        faulty = through(out, endpoint)
        with pytest.raises(OSError, match=r"(?i)access.?denied"):
            built(store, faulty)
    assert refused() > 0
    assert layout.pointers(out) == []
    assert [files.names(files.join(out, name)) for name in ("builds", "work", "published")] == [[], [], []]


def test_the_next_run_after_a_refused_one_needs_no_overwrite(store: str, out: str, tmp_path: Path) -> None:
    test_a_write_that_is_refused_leaves_nothing("/published/.*json", store, out)
    assert built(store, out).exit == 0
    assert fetched(out, tmp_path / "target") == truth(tmp_path)


KILLED = """
import sys, time
from rocketmq_reindex.jobs.publishing import output
from rocketmq_reindex import files
with output.staging(sys.argv[1], True, True) as stage:
    files.write_bytes(stage.temporary, files.join(stage.tree, "consumequeue", "T", "0", "0" * 20), [b"half"])
    print(files.base(stage.tree), flush=True)
    time.sleep(900)
"""


def test_what_a_killed_run_leaves_is_swept_when_it_is_old(
    store: str, out: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED, out], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        dead = process.stdout.readline().strip()
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert files.names(files.join(out, "builds")) == [dead]
    # It may be alive for all that can be known.
    assert built(store, out).exit == 0
    assert dead in files.names(files.join(out, "builds"))
    assert dead in files.names(files.join(out, "work"))
    monkeypatch.setattr(output_builds, "DEAD_NANOSECONDS", 0)
    assert built(store, out, overwrite=True).exit == 0
    assert dead not in files.names(files.join(out, "builds"))
    assert files.names(files.join(out, "work")) == []
    assert len(files.names(files.join(out, "builds"))) == 2
    assert fetched(out, tmp_path / "target") == truth(tmp_path)


def test_two_runs_at_the_same_time(out: str) -> None:
    """Each has a build of its own. The one that may not replace anything finds that the other was first."""
    with output.staging(out) as one, output.staging(out) as other:
        for staging in (one, other):
            files.write_bytes(staging.temporary, files.join(staging.tree, "reindex.json"), [files.base(staging.tree).encode()])
        output.publish(one, out, False)
        assert output.identity(out) == output.identity(one.tree)
        with pytest.raises(InputError, match="holds a build"):
            output.publish(other, out, False)
        output.publish(other, out, True)
        assert output.identity(out) == output.identity(other.tree)
    numbers = [pointer.number for pointer in layout.pointers(out)]
    assert numbers == [1, 2]
    for pointer in layout.pointers(out):
        folder = layout.build_folder(out, pointer.build)
        assert files.read_bytes(files.join(folder, "reindex.json")).decode() == pointer.build


def test_a_run_that_was_taken_for_dead_publishes_nothing(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="took this one for dead"), output.staging(out) as asleep:  # noqa: PT012
        files.write_bytes(asleep.temporary, files.join(asleep.tree, "reindex.json"), [b"{}"])
        with monkeypatch.context() as patched:
            patched.setattr(output_builds, "DEAD_NANOSECONDS", 0)
            with output.staging(out):
                pass
        output.publish(asleep, out, False)
    assert layout.pointers(out) == []


def test_a_pointer_that_is_only_begun_does_not_count(store: str, out: str) -> None:
    assert built(store, out).exit == 0
    before = layout.pointers(out)
    for number, text in enumerate((b"", b'{"build": "', b"[]", b"{}")):
        name = f"000000010{number}-{'0' * 32}.json"
        files.write_bytes(files.join(out, "aside"), files.join(out, "published", name), [text])
    assert layout.pointers(out) == before


def test_places(store: str, out: str, s3_place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Refused before anything is written, and no secret is shown."""
    head, _, query_part = s3_place.partition("?")
    secret = head.replace("s3://", "s3://someone:hunter2@") + f"?{query_part}"
    files.write_bytes(files.join(s3_place, "aside"), files.join(s3_place, "full", "precious"), [b"mine"])
    gone = f"s3://no-such-bucket/out?{query_part}"
    for words, text in (
        ([store, "--out", files.join(store, "out")], "lies inside"),
        ([store, "--out", s3_place], "lies inside"),
        ([store, "--out", files.join(secret, "store")], "lies inside"),
        ([store, "--out", files.join(secret, "full")], "holds precious"),
        ([store, "--out", gone], "make the bucket first"),
        ([str(tmp_path / "store"), "--out", f"s3://logs?{query_part}"], "a whole bucket"),
        ([files.join(secret, "none"), "--out", out], "is not there"),
        ([files.join(store, "commitlog"), "--out", out], f"did you mean the store around it, {store}?"),
        ([store, "--out", "s3://logs/a/../b"], "name the place itself"),
        ([store, "--out", "ftp://logs/a"], "of an unknown kind"),
    ):
        assert build(words) in (1, 2)
        said = capsys.readouterr().err
        assert text in said, said
        assert len(said.splitlines()) == 1
        assert "hunter2" not in said
    assert files.entry_of(out).kind == files.ABSENT


def test_look_at_a_bucket(store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """query and inspect read through the same layer."""
    assert local_build(tmp_path / "store", tmp_path / "local", **SMALL).exit == 0
    upload(tmp_path / "local", store, files.join(store, "aside"))
    segment = files.listing(files.join(store, "commitlog"))[0]
    assert inspect([segment.path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "segment"
    assert query([store, "--topic", "TopicA", "--key", "a3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["queueOffset"] == 3
