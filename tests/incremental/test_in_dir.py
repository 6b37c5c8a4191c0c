"""What somebody does to DIR between two incremental builds: what is no build's stays, and what is a broker's is refused."""

from __future__ import annotations

import os
import random
import shutil
import signal

import pytest

from tests.fault.disk import tree
from tests.incremental.world import SALVAGE, World
from tests.tools.faulty_children import Children
from tests.tools.faulty_files import Fault
from tests.tools.faulty_runs import command


def test_strangers(world: World) -> None:
    """A broker maps whatever lies in DIR's folders: what no build left there is noticed, and gone after the next one."""
    world.build()
    whole = tree(world.out)
    queue = next((world.out / "consumequeue").rglob("?" * 20))
    strangers = (
        (queue.parent, f"{10**15:020d}"), (world.out / "consumequeue" / "new", "0"),
        (world.out / "index", "20260101000000000"), (world.out / "batchconsumequeue", ""),
    )  # fmt: skip
    for folder, name in strangers:
        folder.mkdir(exist_ok=True)
        if name:
            (folder / name).touch()
        assert tree(world.out) != whole
        summary = world.build()
        assert (summary["exit"], summary["incremental"]["ranges_known"]) == (0, summary["incremental"]["ranges"])
        assert tree(world.out) == whole
        assert world.incremental()["incremental"]["nothing_new"]


def test_what_lies_beside_a_build_stays(world: World) -> None:
    """What is no build's and no broker's is moved into the next DIR, and hides nothing."""
    world.build()
    (world.out / "notes.txt").write_text("mine")
    (world.out / "mine").mkdir()
    (world.out / "mine" / "file").write_text("mine, too")
    (world.out / "link").symlink_to("notes.txt")
    held = (world.out / "notes.txt").stat().st_ino
    assert world.incremental()["incremental"]["nothing_new"]
    for _ in range(2):
        world.append(random.Random(1), 5)
        summary = world.incremental()
        assert (summary["exit"], summary["error"]) == (0, None)
        assert (world.out / "notes.txt").stat().st_ino == held
        assert (world.out / "mine" / "file").read_text() == "mine, too"
        assert os.readlink(world.out / "link") == "notes.txt"
    assert sorted(os.listdir(world.out.parent)) == ["out"]
    for name in ("notes.txt", "link"):
        (world.out / name).unlink()
    shutil.rmtree(world.out / "mine")
    world.build()


def test_a_killed_run_keeps_what_lies_beside_the_build(world: World, warm: Children) -> None:
    world.build()
    (world.out / "notes.txt").write_text("mine")
    world.append(random.Random(1), 5)
    words = (*SALVAGE, "--incremental", "--tables", str(world.tables))
    status = warm.run(world.store, world.out, *words, kind="kill-after", number=1, operations="rename|renameat2", path="/out$")
    assert status == -signal.SIGKILL
    assert not (world.out / "notes.txt").exists()
    assert world.incremental()["incremental"]["nothing_new"]
    assert (world.out / "notes.txt").read_text() == "mine"
    world.append(random.Random(2), 5)
    assert world.incremental()["exit"] == 0
    assert (world.out / "notes.txt").read_text() == "mine"
    assert sorted(os.listdir(world.out.parent)) == ["out"]


@pytest.mark.parametrize("name", ["commitlog", "abort", "lock", "config/delayOffset.json"])
def test_a_folder_that_a_broker_may_run_on(world: World, name: str) -> None:
    world.build()
    (world.out / name).parent.mkdir(exist_ok=True)
    (world.out / name).write_text("a broker's")
    before = tree(world.out)
    world.append(random.Random(1), 5)
    summary = world.incremental()
    assert summary["exit"] == 1
    assert f"holds {name}, which no build writes: move it away" in summary["error"]
    assert tree(world.out) == before


def test_a_manifest_that_is_gone(world: World) -> None:
    """It is put back where all that lies in DIR is a known build's, and where it is not, nothing is touched."""
    words = world.words = (*world.words, "--write-topics")
    world.build()
    manifest, before = world.out / "reindex.json", tree(world.out)
    manifest.unlink()
    summary = world.incremental()
    assert (summary["exit"], summary["error"], tree(world.out)) == (0, None, before)
    assert summary["incremental"]["nothing_new"]
    queue = next((world.out / "consumequeue").rglob("?" * 20))
    (world.out / "notes.txt").write_text("mine")
    for removed in (queue, world.out / "checkpoint"):
        manifest.unlink()
        removed.unlink()
        assert world.incremental()["exit"] == 0
        assert (world.out / "notes.txt").exists()
        assert (tree(world.out) or {}).keys() - {"notes.txt"} == (before or {}).keys()
    (world.out / "notes.txt").unlink()
    manifest.unlink()
    world.append(random.Random(1), 5)
    assert world.build()["incremental"]["files_kept"]
    manifest.unlink()
    queue = next((world.out / "consumequeue").rglob("?" * 20))
    queue.write_bytes(bytes(queue.stat().st_size))
    before = tree(world.out)
    for more in ((), ("--recheck",)):
        summary, said = command(world.store, world.out, *words, "--incremental", "--tables", str(world.tables), *more)
        assert summary["exit"] == 1
        assert "was not written by a build (it has no reindex.json): name another folder, or move this one away" in said
        assert tree(world.out) == before
    shutil.move(world.out, world.out.with_name("away"))
    summary = world.build()
    assert summary["incremental"]["ranges_known"] == summary["incremental"]["ranges"]


def test_what_the_next_run_starts_from_is_durable_before_it_is_published(world: World) -> None:
    """After a power cut the store of scans must not lack a page of the build that stands in DIR."""
    world.build()
    world.append(random.Random(1), 5)
    seen = list[tuple[str, str]]()

    def passes(name: str, path: str) -> bool:
        seen.append((name, path))
        return False

    assert world.broken(Fault("EIO", matches=passes))["exit"] == 0
    tables = f"{world.tables}/"
    written = [k for k, (name, path) in enumerate(seen) if name in ("rename", "replace") and path.startswith(tables)]
    synced = [k for k, (name, path) in enumerate(seen) if name == "syncfs" and f"{path}/".startswith(tables)]
    published = [k for k, (name, path) in enumerate(seen) if name in ("rename", "renameat2") and path == str(world.out)]
    assert written
    assert published
    # A handle that is opened behind the writes is not told of a failure of which another process was told.
    opened = [
        k for k, (name, path) in enumerate(seen) if name == "open" and path == str(next((world.tables / "_scans").iterdir()))
    ]
    assert opened[0] < min(written)
    assert len(opened) == 1
    assert any(max(k for k in written if k < published[0]) < k < published[0] for k in synced), seen[written[-1] :]
