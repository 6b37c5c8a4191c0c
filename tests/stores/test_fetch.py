"""fetch: what it lays out, what it refuses, and that a kill at any point can be gone on from."""

from __future__ import annotations

import filecmp
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex import files
from rocketmq_reindex.files import systems
from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.commands import fetch
from rocketmq_reindex.jobs.fetching.record import RECORD
from rocketmq_reindex.jobs.publishing import layout
from rocketmq_reindex.jobs.publishing.layout import MANIFEST_MAX
from rocketmq_reindex.jobs.store.owner import store_locked
from rocketmq_reindex.storage_format.errors import InputError
from tests.fault.disk import state, tiny_store, tree
from tests.tools.faulty_files import Fault, faulty
from tests.tools.local_engine import InlineEngine, local_build, run_build, single

ROOT = Path(__file__).parents[2]
SMALL: dict[str, Any] = {"cq_file_size": 400, "hash_slots": 50, "index_items": 60}
OLD = {
    "checkpoint": b"old checkpoint",
    "config/consumerOffset.json": b"{}",
    "consumequeue/T/0/00000000000000000000": b"old queue",
    "index/20200101000000000": b"old index",
}


def laid(store: Path) -> dict[str, bytes]:
    found = tree(store)
    assert found is not None
    found.pop(RECORD, None)
    return found


class Scene:
    """A build, and a store with derived files of its own."""

    def __init__(self, template: Path, folder: Path) -> None:
        self.folder, self.store, self.out = folder, folder / "store", folder / "out"
        shutil.copytree(template, folder, dirs_exist_ok=True)
        self.log = {name: data for name, data in self.tree().items() if name.startswith("commitlog")}
        found = tree(self.out)
        assert found
        del found["reindex.json"]
        self.new = found

    def tree(self) -> dict[str, bytes]:
        """What is in the store, but for the record of what was fetched, which holds times."""
        return laid(self.store)

    def copies(self, part: str) -> set[str]:
        """The copies of a part that are kept."""
        return {name for name in os.listdir(self.store) if name.startswith(f"{part}.previous")}

    def build(self, **more: Any) -> None:
        """Another build in the place of the first."""
        shutil.rmtree(self.out)
        assert local_build(self.store, self.out, write_topics=True, **SMALL, **more).exit == 0

    def laid_out(self, **previous: str) -> dict[str, bytes]:
        """What the store must hold behind a fetch; where the parts it had are now."""
        kept = {}
        for name, data in OLD.items():
            top, slash, rest = name.partition("/")
            kept[previous.get(top, top) + slash + rest] = data
        folders = {"/".join(name.split("/")[:k]): b"" for name in kept for k in range(1, name.count("/") + 1)}
        return self.log | folders | kept | self.new | {"lock": b""}

    def second(self) -> dict[str, bytes]:
        """What a second fetch keeps of the first."""
        found = {name: data for name, data in self.new.items() if not name.startswith("config")}
        return {
            "/".join([f"{top}.previous.2", *rest]): data for name, data in found.items() for top, *rest in [name.split("/")]
        }

    def fetch(self, *words: str) -> int:
        return fetch([str(self.out), "--to", str(self.store), *words])


PREVIOUS = {"consumequeue": "consumequeue.previous", "index": "index.previous", "checkpoint": "checkpoint.previous"}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What every scene begins as, built once."""
    folder = tmp_path_factory.mktemp("template")
    store = tiny_store(folder / "store")
    assert local_build(store, folder / "out", write_topics=True, **SMALL).exit == 0
    for name, data in OLD.items():
        path = store / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


@pytest.fixture
def scene(template: Path, tmp_path: Path) -> Scene:
    return Scene(template, tmp_path)


def test_lays_a_build_out(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert scene.fetch("--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert scene.tree() == scene.laid_out(**PREVIOUS)
    assert told["swapped"] == ["consumequeue", "index", "checkpoint", "config/topics.json"]
    assert told["previous"] == PREVIOUS
    assert (told["exit"], told["error"], told["files"]) == (0, None, sum(bool(data) for data in scene.new.values()))


def test_each_failed_write_is_told(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The handle of the store is from before the first write: one that is opened later is not told what another process was."""
    handles, made = list[int](), list[set[int]]()
    mkdir, own = os.mkdir, scene.store.stat()

    def noted(path: str, *words: Any) -> None:
        made.append({int(handle) for handle in os.listdir("/proc/self/fd")})
        mkdir(path, *words)

    monkeypatch.setattr(os, "mkdir", noted)
    monkeypatch.setattr(files, "sync", lambda _, since=-1: handles.append(os.path.samestat(os.fstat(since), own) and since))
    assert scene.fetch() == 0
    assert len(handles) >= 4
    assert {*handles} <= made[0]


TWO_BUILDS = ({"max_fill": 1}, {"max_fill": 2})
"""settings that give other manifests, so other builds, of the same files"""


@pytest.mark.parametrize("keep", [0, 1, 2])
def test_the_newest_copies_are_kept(scene: Scene, keep: int, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(4):
        scene.build(**TWO_BUILDS[number % 2])
        capsys.readouterr()
        assert scene.fetch("--keep", str(keep), "--json") == 0
        told = json.loads(capsys.readouterr().out)
        names = [f"checkpoint.previous{f'.{k}' if k > 1 else ''}" for k in range(1, number + 2)]
        newest = names[len(names) - keep :] if keep else []
        assert scene.copies("checkpoint") == set(newest)
        assert told["previous"].get("checkpoint") == (newest[-1] if newest else None)
        gone = "checkpoint.previous" if not keep else names[number - keep] if number >= keep else None
        assert [name for name in told["removed"] if name.startswith("checkpoint")] == ([gone] if gone else [])
        assert {name: data for name, data in scene.tree().items() if ".previous" not in name} == {
            name: data for name, data in scene.laid_out(**PREVIOUS).items() if ".previous" not in name
        }


def test_by_default_one_copy_is_kept(scene: Scene) -> None:
    assert scene.fetch() == 0
    assert scene.copies("consumequeue") == {"consumequeue.previous"}
    scene.build(**TWO_BUILDS[0])
    assert scene.fetch() == 0
    assert scene.copies("consumequeue") == {"consumequeue.previous.2"}
    assert not (scene.store / ".rmq-reindex-fetch").exists()


def test_only_what_a_fetch_put_there_is_removed(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """Not what somebody made by hand, or an older version kept; nor what was changed or renamed since."""
    (scene.store / "consumequeue.previous").mkdir()
    (scene.store / "consumequeue.previous" / "mine").write_bytes(b"mine")
    (scene.store / "checkpoint.previous.7").write_bytes(b"of an older version")
    assert scene.fetch("--keep", "0", "--json") == 0
    told = json.loads((said := capsys.readouterr()).out)
    assert told["removed"] == ["consumequeue.previous.2", "index.previous", "checkpoint.previous.8"]
    assert "note: consumequeue.previous: not known to be as a fetch left it, so it stays" in said.err
    assert (scene.store / "consumequeue.previous" / "mine").read_bytes() == b"mine"
    assert (scene.store / "checkpoint.previous.7").read_bytes() == b"of an older version"

    scene.build(**TWO_BUILDS[0])
    assert scene.fetch() == 0
    # In the place of what the fetch put there; with the same name, and perhaps with the same inode.
    shutil.rmtree(scene.store / "index.previous")
    (scene.store / "index.previous").mkdir()
    # Put back by hand, and away again.
    (scene.store / "consumequeue.previous.2").rename(scene.store / "aside")
    (scene.store / "aside").rename(scene.store / "consumequeue.previous.2")
    scene.build(**TWO_BUILDS[1])
    assert scene.fetch("--keep", "0") == 0
    assert scene.copies("index") == {"index.previous"}
    assert scene.copies("consumequeue") == {"consumequeue.previous", "consumequeue.previous.2"}


def test_a_link_stays(scene: Scene, tmp_path: Path) -> None:
    """What it leads to is not of a fetch, and without the link nobody would find it."""
    (tmp_path / "elsewhere").mkdir()
    shutil.rmtree(scene.store / "index")
    (scene.store / "index").symlink_to(tmp_path / "elsewhere")
    assert scene.fetch("--keep", "0") == 0
    assert (scene.store / "index.previous").is_symlink()
    assert (tmp_path / "elsewhere").is_dir()


def test_the_build_that_is_there_is_not_fetched_again(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert scene.fetch() == 0
    before = state(scene.store)
    capsys.readouterr()
    for words in (("--dry-run",), ()):
        assert scene.fetch(*words, "--json") == 0
        told = json.loads((said := capsys.readouterr()).out)
        assert (told["already_there"], told["swapped"], told["files"], told["bytes"]) == (True, [], 0, 0)
        assert said.err == ""
        assert state(scene.store) == before
    assert scene.fetch() == 0
    assert "already there: consumequeue, index, checkpoint" in capsys.readouterr().out
    # What is to go by now goes.
    assert scene.fetch("--keep", "0") == 0
    assert not scene.copies("consumequeue")


def test_a_wrong_log_is_told_where_the_build_is_in_place(
    scene: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    """A folder that somebody names is looked at, whether anything is fetched or not."""
    assert scene.fetch() == 0
    before = state(scene.store)
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / f"{0:020d}").write_bytes(bytes(100))
    for folder, told in (
        (tmp_path / "empty", "holds no segment: name the folder of the broker's log"),
        (scene.store, "is a store, no folder of segments"),
        (tmp_path / "other", "ends at offset"),
    ):
        assert scene.fetch("--commitlog", str(folder)) == 1
        assert told in capsys.readouterr().err
    assert scene.fetch("--commitlog", str(tmp_path / "other"), "--other-log") == 0
    assert scene.fetch("--commitlog", str(scene.store / "commitlog")) == 0
    assert state(scene.store) == before


CHANGES: dict[str, Callable[[Scene], object]] = {
    "a byte": lambda scene: (scene.store / "checkpoint").write_bytes(scene.new["checkpoint"]),
    "a file gone": lambda scene: next((scene.store / "index").iterdir()).unlink(),
    "a part gone": lambda scene: (scene.store / "checkpoint").unlink(),
    "a file more": lambda scene: (scene.store / "consumequeue" / "more").touch(),
    "another build": lambda scene: scene.build(**TWO_BUILDS[0]),
    "no record": lambda scene: (scene.store / RECORD).unlink(),
    "no record but a text": lambda scene: (scene.store / RECORD).write_text('{"format": 1, "laid": []}'),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_build_is_fetched_where_anything_changed(change: str, scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert scene.fetch() == 0
    CHANGES[change](scene)
    capsys.readouterr()
    assert scene.fetch("--json") == 0
    told = json.loads((said := capsys.readouterr()).out)
    assert (told["already_there"], told["swapped"]) == (False, ["consumequeue", "index", "checkpoint"])
    assert ("is no record of a fetch" in said.err) == ("text" in change)
    assert {name: scene.tree()[name] for name in scene.new} == scene.new
    assert scene.fetch() == 0
    assert "already there" in capsys.readouterr().out


def test_zeros_are_holes(tmp_path: Path) -> None:
    store = tiny_store(tmp_path / "store")
    assert local_build(store, tmp_path / "out").exit == 0
    (tmp_path / "target").mkdir()
    assert fetch([str(tmp_path / "out"), "--to", str(tmp_path / "target")]) == 0
    (index,) = (tmp_path / "target" / "index").iterdir()
    found = index.stat()
    assert found.st_size == 40 + 4 * 5_000_000 + 20 * 20_000_000
    assert found.st_blocks * 512 < 12 << 20
    # Not in memory: twice 420 MB, beside another process of tests.
    assert filecmp.cmp(index, tmp_path / "out" / "index" / index.name, shallow=False)


def test_only_what_was_built(scene: Scene) -> None:
    shutil.rmtree(scene.out)
    assert local_build(scene.store, scene.out, only=("index",), **SMALL).exit == 0
    assert scene.fetch("--partial") == 0
    assert (scene.store / "checkpoint").read_bytes() == OLD["checkpoint"]
    assert sorted(os.listdir(scene.store)) == [
        RECORD, "checkpoint", "commitlog", "config", "consumequeue", "index", "index.previous", "lock",
    ]  # fmt: skip


def test_a_stores_own_topics_stay(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    (scene.store / "config" / "topics.json").write_bytes(b"own")
    assert scene.fetch() == 0
    assert "the store's own stays" in capsys.readouterr().err
    assert (scene.store / "config" / "topics.json").read_bytes() == b"own"
    assert scene.fetch("--topics") == 0
    assert (scene.store / "config" / "topics.json").read_bytes() == scene.new["config/topics.json"]
    assert (scene.store / "config" / "topics.json.previous").read_bytes() == b"own"


def test_a_new_file_is_the_brokers(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """As root: lock, config/ and all that was built get the owner of commitlog/; what was there keeps its own."""
    uid, gid = (12345, 54321) if os.geteuid() == 0 else (os.getuid(), os.getgid())
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    os.chown(scene.store / "commitlog", uid, gid)
    shutil.rmtree(scene.store / "config")
    assert scene.fetch() == 0
    for name in ("lock", "config", *scene.new):
        found = (scene.store / name).stat()
        assert (found.st_uid, found.st_gid) == (uid, gid), name
    assert (scene.store / "checkpoint.previous").stat().st_uid == os.getuid()


def test_room_that_an_earlier_fetch_took_counts(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is given back first: else a fetch that was killed on a narrow disk could never be gone on with."""
    full = os.statvfs_result((4096, 4096, 100, 0, 0, 100, 100, 100, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    assert scene.fetch() == 1
    assert "make room" in capsys.readouterr().err
    left = scene.store / ".rmq-reindex-fetch" / "new" / "index"
    left.mkdir(parents=True)
    (left / "half").write_bytes(b"x" * (1 << 20))
    assert scene.fetch("--dry-run") == 0
    assert scene.fetch() == 0
    assert scene.tree() == scene.laid_out(**PREVIOUS)


def test_what_no_rename_can_replace(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """Such as a config/ that is a link to another disk: told before anything is swapped."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        shutil.rmtree(scene.store / "config")
        (scene.store / "config").symlink_to(elsewhere)
        before = scene.tree()
        for words in (("--dry-run",), ()):
            assert scene.fetch(*words) == 1
            assert "config: is a link, and fetch writes through none" in capsys.readouterr().err
        assert scene.tree() == before
        # A link that is moved away is no more than a name.
        (scene.store / "config").unlink()
        shutil.rmtree(scene.store / "index")
        (scene.store / "index").symlink_to(elsewhere)
        assert scene.fetch() == 0
        assert os.readlink(scene.store / "index.previous") == elsewhere


def test_a_dry_run_changes_nothing(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    before = scene.tree()
    assert scene.fetch("--dry-run") == 0
    said = capsys.readouterr().out
    assert scene.tree() == before
    assert "would swap  consumequeue, index, checkpoint, config/topics.json" in said
    assert "would keep  index as index.previous" in said
    assert "would remove" not in said
    assert scene.fetch("--dry-run", "--keep", "0") == 0
    assert "would remove index\n" in (said := capsys.readouterr().out)
    assert "would keep" not in said
    assert scene.fetch() == 0
    scene.build(**TWO_BUILDS[0])
    capsys.readouterr()
    assert scene.fetch("--dry-run") == 0
    said = capsys.readouterr().out
    assert "would keep  index as index.previous.2" in said
    assert "would remove index.previous\n" in said


@pytest.fixture
def broker(scene: Scene) -> Iterator[subprocess.Popen[str]]:
    java = f"{(ROOT / '.java-home').read_text().strip()}/bin/java"
    with subprocess.Popen(
        [java, str(Path(__file__).with_name("HoldLock.java")), str(scene.store / "lock")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        yield process
        process.kill()


def test_not_while_a_broker_holds_the_lock(
    scene: Scene, broker: subprocess.Popen[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The real FileChannel.tryLock, as DefaultMessageStore calls it."""
    assert broker.stdout is not None
    assert broker.stdout.readline() == "true\n"
    before = scene.tree()
    for words in ((), ("--dry-run",)):
        assert scene.fetch(*words) == 1
        assert "a broker runs on this store" in capsys.readouterr().err
    assert scene.tree() == before
    broker.kill()
    broker.wait()
    assert scene.fetch() == 0


@pytest.mark.parametrize("part", ["consumequeue", "index", "checkpoint", "config"])
def test_a_file_that_is_not_as_the_manifest_says(scene: Scene, part: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = next(path for path in (scene.out / part, *sorted((scene.out / part).rglob("*"))) if path.is_file())
    data = bytearray(path.read_bytes())
    data[17] ^= 1
    path.write_bytes(data)
    before = scene.tree()
    assert scene.fetch() == 1
    assert "has digest" in capsys.readouterr().err
    assert scene.tree() == before | {"lock": b""}
    path.write_bytes(bytes(data) + b"x")
    assert scene.fetch() == 1
    assert "bytes instead of" in capsys.readouterr().err
    path.unlink()
    assert scene.fetch() == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if line.startswith("error: ")] == [
        f"error: {path}: is not there, and the manifest names it: bring the whole build here, or build again"
    ]
    assert scene.tree() == before | {"lock": b""}


def spoil(**fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda manifest: manifest["files"][0].update(fields)


HOSTILE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no file at all": lambda manifest: manifest.pop("files"),
    "no settings": lambda manifest: manifest.pop("settings"),
    "another format": lambda manifest: manifest.update(format=3),
    "a path out of it": spoil(path="consumequeue/../../x/0/00000000000000000000"),
    "dots": spoil(path="consumequeue/../0/00000000000000000000"),
    "an absolute path": spoil(path="/etc/passwd"),
    "the log": spoil(path="commitlog/00000000000000000000"),
    "a place out of it": spoil(at="../../etc/passwd"),
    "no path": spoil(path=7),
    "a size below zero": spoil(size=-1),
    "a size of terabytes": spoil(size=2**42),
    "more used than there is": spoil(used=2**30, size=5),
    "a size that is true": spoil(size=True),
    "no digest": spoil(digest="x"),
    "twice": lambda manifest: manifest["files"].append(manifest["files"][0]),
    "no checkpoint": lambda manifest: manifest["files"].remove(
        next(entry for entry in manifest["files"] if entry["path"] == "checkpoint")
    ),
    "other slots": lambda manifest: manifest["settings"].update(hash_slots=2**31 - 1),
    "files as a number": lambda manifest: manifest.update(files=5),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_manifest_is_not_believed(what: str, scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = json.loads((scene.out / "reindex.json").read_bytes())
    HOSTILE[what](manifest)
    (scene.out / "reindex.json").write_text(json.dumps(manifest))
    before = scene.tree()
    assert scene.fetch() == 1
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert "reindex.json" in said
    assert scene.tree() == before


def test_what_is_no_manifest(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    for text in (b"", b"[", b"[]", b"null", b"\xff", b'{"format": 1}', b"[" * 100_000):
        (scene.out / "reindex.json").write_bytes(text)
        assert scene.fetch() == 1
        assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_manifest_without_end(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """It is refused by its size, before a byte of it is read; so is a pointer."""
    with (scene.out / "reindex.json").open("r+b") as file:
        file.truncate(MANIFEST_MAX + 1)
    tracemalloc.start()
    try:
        assert scene.fetch() == 1
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    told = capsys.readouterr().err
    assert "reindex.json: has 268,435,457 bytes where at most 268,435,456 are read" in told
    (scene.out / "reindex.json").unlink()
    (scene.out / "published").mkdir()
    with (scene.out / "published" / f"0000000001-{'a' * 32}.json").open("wb") as file:
        file.truncate(1 << 40)
    assert scene.fetch() == 1
    assert "name what --out" in capsys.readouterr().err


def test_places(scene: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "other" / "commitlog").mkdir(parents=True)
    (tmp_path / "other" / "commitlog" / f"{1 << 40:020d}").touch()
    for words, status, text in (
        ([str(scene.out), "--to", str(tmp_path / "none")], 1, "make it first"),
        ([str(scene.out), "--to", str(scene.out)], 1, "lies inside"),
        ([str(scene.out), "--to", str(tmp_path)], 1, "lies inside"),
        ([str(tmp_path / "empty"), "--to", str(scene.store)], 1, "name what --out"),
        ([str(tmp_path / "none"), "--to", str(scene.store)], 1, "name what --out"),
        ([str(scene.out), "--to", str(tmp_path / "other")], 1, "none of the segments"),
        ([str(scene.out), "--to", ""], 2, "--to: is empty"),
        (["", "--to", str(scene.store)], 2, "BUILD: is empty"),
        ([str(scene.out), "--to", "s3://bucket/x"], 2, "name a folder on a disk"),
        (["ftp://a/b", "--to", str(scene.store)], 2, "unknown kind"),
        ([str(scene.out)], 2, "--to"),
        ([str(scene.out), "--to", str(scene.store), "--threads", "0"], 2, "--threads"),
        ([str(scene.out), "--to", str(scene.store), "--keep", "-1"], 2, "--keep"),
    ):
        assert fetch(words) == status, words
        assert text in capsys.readouterr().err


def test_a_build_behind_a_uri_and_one_below_it(scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = (tmp_path / "builds-of").as_uri()
    for overwrite in (False, True):
        settings = BuildSettings(store=str(scene.store), out=out, write_topics=True, overwrite=overwrite, **SMALL)
        assert run_build(settings.check(), single(InlineEngine())).exit == 0
    first = layout.build_folder(out, layout.pointers(out)[0].build)
    for number, place in enumerate((out, first)):
        target = tmp_path / f"target-{number}"
        target.mkdir()
        assert fetch([place, "--to", str(target)]) == 0
        assert laid(target) == scene.new | {"lock": b""}
    # What a mount of an object store holds lies there as behind a URI.
    monkeypatch.setattr(systems, "_MOUNTED", (f"{tmp_path}/mount/",))
    (tmp_path / "mount").mkdir()
    mounted = BuildSettings(store=str(scene.store), out=f"{tmp_path}/mount/out", write_topics=True, **SMALL)
    assert run_build(mounted.check(), single(InlineEngine())).exit == 0
    assert sorted(os.listdir(tmp_path / "mount" / "out")) == ["builds", "published", "work"]
    (tmp_path / "target-2").mkdir()
    assert fetch([mounted.out, "--to", str(tmp_path / "target-2")]) == 0
    assert laid(tmp_path / "target-2") == scene.new | {"lock": b""}
    # The pointer knows its manifest.
    last = tmp_path / "builds-of" / "builds" / layout.pointers(out)[-1].build / "reindex.json"
    last.write_bytes(last.read_bytes().replace(b'"warnings"', b'"warnings" '))
    assert fetch([out, "--to", str(tmp_path / "target-0")]) == 1


# ------------------------------------------------------------------------------------------------------- kills

POINTS = {
    "work folder there": ("kill-after", "mkdir", r"fetch/temporary$"),
    "a file half fetched": ("kill-after", "pwrite", r"/temporary/"),
    "a file fetched": ("kill-after", "replace", r"/new/index/"),
    "all fetched, not durable": ("kill", "syncfs", ""),
    "durable, no journal": ("kill-after", "syncfs", ""),
    "journal half written": ("kill", "replace", r"journal\.json$"),
    "journal there": ("kill-after", "replace", r"journal\.json$"),
    "queues moved away": ("kill-after", "rename", r"consumequeue\.previous$"),
    "queues swapped": ("kill-after", "rename", r"store/consumequeue$"),
    "index moved away": ("kill-after", "rename", r"index\.previous$"),
    "index swapped": ("kill-after", "rename", r"store/index$"),
    "checkpoint moved away": ("kill-after", "rename", r"checkpoint\.previous$"),
    "checkpoint swapped": ("kill-after", "rename", r"store/checkpoint$"),
    "topics swapped": ("kill-after", "rename", r"store/config/topics\.json$"),
    "record half written": ("kill", "replace", r"\.rmq-reindex-fetched$"),
    "record there": ("kill-after", "replace", r"\.rmq-reindex-fetched$"),
    "all swapped, journal there": ("kill", "unlink", r"journal\.json$"),
    "journal gone": ("kill-after", "unlink", r"journal\.json$"),
    "work folder half removed": ("kill-after", "rmdir", r"/new$"),
}


def killed_at(scene: Scene, point: tuple[str, str, str]) -> None:
    """A fetch that is killed at a point of POINTS or PRUNING."""
    kind, operation, path = point
    fault = Fault(kind, 1, lambda name, where: name == operation and re.search(path, where) is not None)
    assert killed(scene, fault) == -signal.SIGKILL


def killed(scene: Scene, fault: Fault) -> int:
    """A fetch in a process of its own, which ``fault`` hits; how it ended."""
    child = os.fork()
    if child == 0:
        status = 99
        try:
            with faulty(fault, str(scene.store)):
                status = scene.fetch("--threads", "1")
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def check_next(scene: Scene, before: dict[str, bytes]) -> None:
    """Behind a kill nothing of the store's own is lost, and the same command again lays all of it out."""
    found = scene.tree()
    for name, data in before.items():
        top, slash, rest = name.partition("/")
        assert any(found.get(place + slash + rest) == data for place in (top, f"{top}.previous")), name
    # Where it had ended in all but its own traces, this finds the build in its place.
    assert scene.fetch() == 0
    assert scene.tree() == scene.laid_out(**PREVIOUS)


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_named_points(point: str, scene: Scene) -> None:
    before = scene.tree()
    killed_at(scene, POINTS[point])
    check_next(scene, before)


def test_killed_at_any_operation(template: Path, tmp_path: Path, seed: int) -> None:
    """Each fifth operation, from a random one on."""
    scene = Scene(template, tmp_path / "count")
    count = Fault("EIO", 10**9)
    with faulty(count, str(scene.store)):
        assert scene.fetch("--threads", "1") == 0
    assert count.seen > 60
    for number in range(seed % 5 + 1, count.seen, 5):
        scene = Scene(template, tmp_path / str(number))
        before = scene.tree()
        status = killed(scene, Fault(("kill", "kill-after")[number % 2], number))
        assert status in (-signal.SIGKILL, 0), number
        check_next(scene, before)
        shutil.rmtree(scene.folder)


PRUNING = {
    "all swapped, nothing removed": ("kill", "rename", r"fetch/old/0$"),
    "a copy moved away": ("kill-after", "rename", r"fetch/old/0$"),
    "all copies moved away": ("kill-after", "rename", r"fetch/old/2$"),
    "all copies moved away, durable": ("kill", "rmdir", r""),
    "a copy half removed": ("kill-after", "unlink", r"/00000000000000000000$"),
    "copies removed": ("kill-after", "rmdir", r"fetch/old$"),
    "journal there": ("kill", "unlink", r"journal\.json$"),
    "journal gone": ("kill-after", "unlink", r"journal\.json$"),
    "a part moved away": ("kill-after", "rename", r"index\.previous\.2$"),
}


def check_pruned(scene: Scene) -> None:
    """Behind a kill of the second fetch the newest copy is there, whole, and the same command leaves no other."""
    for part in PREVIOUS:
        old = {f"{part}.previous{name.removeprefix(part)}": data for name, data in OLD.items() if name.startswith(part)}
        found = scene.tree()
        # Whole, or not under its name.
        assert old.items() <= found.items() or not old.keys() & found.keys()
        newest = {place: {name.removeprefix(place): found[name] for name in found if name.startswith(f"{place}/")
                          or name == place} for place in (part, f"{part}.previous.2")}  # fmt: skip
        expected = {name.removeprefix(part): data for name, data in scene.new.items() if name.split("/")[0] == part}
        assert expected in newest.values()
    assert scene.fetch() == 0
    left = {name: data for name, data in scene.laid_out(**PREVIOUS).items() if ".previous" not in name}
    assert scene.tree() == left | scene.second()
    assert not (scene.store / ".rmq-reindex-fetch").exists()


@pytest.mark.parametrize("point", PRUNING)
def test_killed_while_copies_are_removed(point: str, scene: Scene) -> None:
    assert scene.fetch() == 0
    scene.build(**TWO_BUILDS[0])
    killed_at(scene, PRUNING[point])
    check_pruned(scene)


def test_a_broker_between_a_kill_and_the_next_fetch_loses_nothing(scene: Scene) -> None:
    """It makes a ConsumeQueue anew where none is: that is kept as well."""
    killed_at(scene, POINTS["queues moved away"])
    own = scene.store / "consumequeue" / "T" / "0" / "00000000000000000000"
    own.parent.mkdir(parents=True)
    own.write_bytes(b"made by a broker")
    assert scene.fetch() == 0
    found = scene.tree()
    assert found["consumequeue.previous/T/0/00000000000000000000"] == b"old queue"
    assert found["consumequeue.previous.2/T/0/00000000000000000000"] == b"made by a broker"
    assert {name: found[name] for name in scene.new} == scene.new
    scene.build(**TWO_BUILDS[0])
    assert scene.fetch() == 0
    assert scene.copies("consumequeue") == {"consumequeue.previous.3"}


def test_what_took_the_place_of_a_copy_between_a_kill_and_the_next_fetch_stays(scene: Scene) -> None:
    """The journal names the store's own part; what somebody put under its name is another."""
    killed_at(scene, POINTS["journal there"])
    (scene.store / "consumequeue.previous").mkdir()
    (scene.store / "consumequeue.previous" / "mine").write_bytes(b"mine")
    assert scene.fetch("--keep", "0") == 0
    assert scene.copies("consumequeue") == {"consumequeue.previous"}
    assert (scene.store / "consumequeue.previous" / "mine").read_bytes() == b"mine"


def test_a_journal_of_an_older_version_is_finished(scene: Scene) -> None:
    """It does not say what was moved away, so all of that stays."""
    killed_at(scene, POINTS["index moved away"])
    journal = scene.store / ".rmq-reindex-fetch" / "journal.json"
    found = json.loads(journal.read_bytes())
    journal.write_text(json.dumps({"build": found["build"], "parts": found["parts"]}))
    assert scene.fetch("--keep", "0") == 0
    assert scene.copies("index") == {"index.previous"}
    assert scene.copies("consumequeue") == {"consumequeue.previous"}
    assert {name: scene.tree()[name] for name in scene.new} == scene.new


@pytest.mark.parametrize("operation", ["rename", "replace", "pwrite", "ftruncate", "mkdir", "syncfs"])
def test_errors_of_the_disk(operation: str, scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """Told in a line; what was begun is finished by the same command."""
    before = scene.tree()
    with faulty(Fault("EIO", 1, lambda name, _: name == operation), str(scene.store)) as fault:
        assert scene.fetch("--threads", "1") == 1
    assert fault.fired == 1
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    # Not by the names of this process's handles, which nobody else can follow.
    assert "/proc/" not in said
    check_next(scene, before)


def test_a_refused_fetch_leaves_no_lock(scene: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nor does one into the folder of segments, which is no store. What is laid out beside no log says what is missing."""
    before = scene.tree()
    for words in ([str(tmp_path / "none"), "--to", str(scene.store)], [str(scene.out), "--to", str(scene.store / "commitlog")]):
        assert fetch(words) == 1
    assert "did you mean the store around it" in capsys.readouterr().err
    assert scene.tree() == before
    (tmp_path / "empty").mkdir()
    assert fetch([str(scene.out), "--to", str(tmp_path / "empty")]) == 0
    assert "neither a log nor a broker's config/ comes with a build" in capsys.readouterr().err


def test_a_broker_that_starts_meanwhile(tmp_path: Path) -> None:
    with store_locked(str(tmp_path)) as lock:
        assert os.listdir(tmp_path) == []
        (tmp_path / "lock").touch()
        with pytest.raises(InputError, match="a broker was started on this store meanwhile"):
            lock()
