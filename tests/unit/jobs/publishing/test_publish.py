"""Publishing: one run at a time, everything aside until the end, then all of it or nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rocketmq_reindex import files
from rocketmq_reindex.jobs.publishing import local as output_local, output
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.udfs.staging import StagingFolder


def fill(staging: StagingFolder, text: str) -> None:
    (Path(staging.tree) / "index").mkdir()
    (Path(staging.tree) / "reindex.json").write_text(text)


def published(out: Path) -> str:
    assert sorted(path.name for path in out.iterdir()) == ["index", "reindex.json"]
    return (out / "reindex.json").read_text()


def run(out: Path, text: str, overwrite: bool = False) -> None:
    with output.locked(str(out)), output.staging(str(out)) as staging:
        fill(staging, text)
        output.publish(staging, str(out), overwrite)
        output.settle(str(out))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("there", [False, True])
def test_into_nothing(tmp_path: Path, there: bool) -> None:
    if there:
        (tmp_path / "out").mkdir()
    run(tmp_path / "out", "new")
    assert published(tmp_path / "out") == "new"
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("exchange", [True, False])
def test_over_an_earlier_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: bool) -> None:
    """In one step where the system can swap names, in two where it cannot."""
    if not exchange:
        monkeypatch.setattr(output_local, "_exchange", lambda one, other: False)  # noqa: ARG005
    run(tmp_path / "out", "old")
    run(tmp_path / "out", "new", overwrite=True)
    assert published(tmp_path / "out") == "new"
    assert names(tmp_path) == ["out"]


def test_what_is_half_removed_is_never_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run killed while it removes the earlier build, whose DIR is then moved away: the next one starts from nothing."""
    out = tmp_path / "out"
    monkeypatch.setattr(output_local, "_exchange", lambda one, other: False)  # noqa: ARG005
    run(out, "old")

    def half(root: str) -> None:
        for manifest in Path(root).glob("*/reindex.json"):
            manifest.unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(files, "remove_tree", half)
        with pytest.raises(KeyboardInterrupt):
            run(out, "new", overwrite=True)
    out.rename(tmp_path / "elsewhere")
    run(out, "newest")
    assert published(out) == "newest"
    assert names(tmp_path) == ["elsewhere", "out"]


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    run(tmp_path / "out", "old")
    for error in (ValueError, KeyboardInterrupt, SystemExit):
        with pytest.raises(error), output.locked(str(tmp_path / "out")), output.staging(str(tmp_path / "out")) as staging:  # noqa: PT012
            fill(staging, "half")
            raise error
        assert published(tmp_path / "out") == "old"
        assert names(tmp_path) == ["out"]


def test_the_second_of_two_renames_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a swap the old tree is moved aside first: it comes back when the new one cannot take its place."""
    monkeypatch.setattr(output_local, "_exchange", lambda one, other: False)  # noqa: ARG005
    run(tmp_path / "out", "old")
    with pytest.raises(OSError), output.staging(str(tmp_path / "out")) as staging:  # noqa: PT011, PT012
        fill(staging, "new")
        rename = os.rename

        def second_fails(source: str, target: str) -> None:
            if source == staging.sealed:
                raise OSError(28, "No space left on device")
            rename(source, target)

        monkeypatch.setattr(os, "rename", second_fails)
        output.publish(staging, str(tmp_path / "out"), overwrite=True)
    assert published(tmp_path / "out") == "old"


def test_what_came_meanwhile_is_not_lost(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for overwrite in (False, True):
        with pytest.raises(InputError), output.staging(str(out)) as staging:  # noqa: PT012
            fill(staging, "new")
            out.mkdir(exist_ok=True)
            (out / "precious").write_text("mine")
            output.publish(staging, str(out), overwrite)
        assert names(out) == ["precious"]


@pytest.mark.parametrize("exchange", [True, False])
def test_what_lies_beside_a_build_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: bool) -> None:
    """Also what comes between the last look and the rename; where its name is taken, it stays aside."""
    out = tmp_path / "out"
    if not exchange:
        monkeypatch.setattr(output_local, "_exchange", lambda one, other: False)  # noqa: ARG005
    run(out, "old")
    (out / "precious").write_text("mine")
    run(out, "new", overwrite=True)
    assert (names(out), names(tmp_path)) == (["index", "precious", "reindex.json"], ["out"])
    with output.locked(str(out)), output.staging(str(out)) as staging:
        fill(staging, "newest")
        output.publish(staging, str(out), overwrite=True)
        (out / "precious").write_text("another")
    aside = {path.read_text() for path in tmp_path.rglob("precious")}
    assert aside == {"mine", "another"}
    (out / "precious").unlink()
    run(out, "last", overwrite=True)
    assert ((out / "precious").read_text(), names(tmp_path)) == ("mine", ["out"])


def test_a_swept_folder_that_leads_elsewhere_gives_nothing(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").write_text("mine")
    left = tmp_path / ".out.rmq-reindex-0123456789ab"
    left.mkdir()
    (left / "sealed").symlink_to(tmp_path / "elsewhere")
    run(tmp_path / "out", "new")
    assert names(tmp_path) == ["elsewhere", "out"]
    assert names(tmp_path / "elsewhere") == ["file"]
    assert names(tmp_path / "out") == ["index", "reindex.json"]


def test_one_run_at_a_time(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    with output.locked(out):
        with pytest.raises(InputError, match="another build is writing there"), output.locked(out):
            raise AssertionError("held twice")
        with output.locked(str(tmp_path / "other")):
            pass
    with output.locked(out):
        pass
    assert names(tmp_path) == []


def test_a_lock_is_no_way_to_write_elsewhere(tmp_path: Path) -> None:
    (tmp_path / ".out.rmq-reindex.lock").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError), output.locked(str(tmp_path / "out")):  # noqa: PT011
        pass
    assert not (tmp_path / "victim").exists()


KILLED = """
import sys, time
from pathlib import Path
from rocketmq_reindex.jobs.publishing import output
out = sys.argv[1]
with output.locked(out), output.staging(out) as stage:  # noqa: PT012
    (Path(stage.tree) / "reindex.json").write_text("half")
    print("ready", flush=True)
    time.sleep(900)
"""


def test_what_a_killed_run_leaves_is_swept(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with subprocess.Popen([sys.executable, "-c", KILLED, str(out)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        with pytest.raises(InputError, match="another build"):
            run(out, "too early")
        process.send_signal(signal.SIGKILL)
        process.wait()
    left = names(tmp_path)
    assert len(left) == 2
    assert not out.exists()
    run(out, "new")
    assert published(out) == "new"
    assert names(tmp_path) == ["out"]


def test_neighbours_are_not_swept(tmp_path: Path) -> None:
    mine = [".out.rmq-reindex-0123456789ab", ".out.rmq-reindex-ffffffffffff"]
    others = [
        ".out.rmq-reindex-notes", ".out2.rmq-reindex-0123456789ab", "out.rmq-reindex-0123456789ab", ".out.rmq-reindex-0123",
        ".out.rmq-reindex-x.rmq-reindex-0123456789ab",
    ]  # fmt: skip
    for name in (*mine, *others):
        (tmp_path / name / "tree").mkdir(parents=True)
    run(tmp_path / "out", "new")
    assert names(tmp_path) == sorted(["out", *others])


def test_a_swept_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("mine")
    (tmp_path / ".out.rmq-reindex-0123456789ab").symlink_to(tmp_path / "precious")
    run(tmp_path / "out", "new")
    assert names(tmp_path) == ["out", "precious"]
    assert (tmp_path / "precious" / "file").read_text() == "mine"
