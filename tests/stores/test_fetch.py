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

from rocketmq_reindex.jobs.building.settings import BuildSettings
from rocketmq_reindex.jobs.fetch import fetch
from rocketmq_reindex.jobs.publishing import pointers
from rocketmq_reindex.jobs.publishing.layout import MANIFEST_MAX
from rocketmq_reindex.udfs.files import systems
from tests.fault.disk import tiny_store, tree
from tests.tools.faulty_files import Fault, faulty
from tests.tools.local_engine import LocalEngine, local_build, run_build, single

ROOT = Path(__file__).parents[2]
SMALL: dict[str, Any] = {"cq_file_size": 400, "hash_slots": 50, "index_items": 60}
OLD = {
    "checkpoint": b"old checkpoint",
    "config/consumerOffset.json": b"{}",
    "consumequeue/T/0/00000000000000000000": b"old queue",
    "index/20200101000000000": b"old index",
}


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
        found = tree(self.store)
        assert found is not None
        return found

    def laid_out(self, **previous: str) -> dict[str, bytes]:
        """What the store must hold behind a fetch; where the parts it had are now."""
        kept = {}
        for name, data in OLD.items():
            top, slash, rest = name.partition("/")
            kept[previous.get(top, top) + slash + rest] = data
        folders = {"/".join(name.split("/")[:k]): b"" for name in kept for k in range(1, name.count("/") + 1)}
        return self.log | folders | kept | self.new | {"lock": b""}

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


def test_earlier_previous_ones_are_never_lost(scene: Scene) -> None:
    for _ in range(3):
        assert scene.fetch() == 0
    found = scene.tree()
    assert found["checkpoint.previous"] == OLD["checkpoint"]
    assert found["checkpoint.previous.2"] == found["checkpoint.previous.3"] == found["checkpoint"] == scene.new["checkpoint"]
    assert {name for name in os.listdir(scene.store) if name.startswith("index")} == {
        "index", "index.previous", "index.previous.2", "index.previous.3",
    }  # fmt: skip


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
    assert scene.fetch() == 0
    assert (scene.store / "checkpoint").read_bytes() == OLD["checkpoint"]
    assert sorted(os.listdir(scene.store)) == [
        "checkpoint", "commitlog", "config", "consumequeue", "index", "index.previous", "lock",
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
    """Such as a config/ that is mounted: told before anything is swapped."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        shutil.rmtree(scene.store / "config")
        (scene.store / "config").symlink_to(elsewhere)
        before = scene.tree()
        for words in (("--dry-run",), ()):
            assert scene.fetch(*words) == 1
            assert "another file system" in capsys.readouterr().err
        assert scene.tree() == before | {"lock": b""}
        # A link to a folder elsewhere is no more than a name.
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
    assert scene.tree() == before | {"lock": b""}


def spoil(**fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda manifest: manifest["files"][0].update(fields)


HOSTILE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no file at all": lambda manifest: manifest.pop("files"),
    "no settings": lambda manifest: manifest.pop("settings"),
    "another format": lambda manifest: manifest.update(format=2),
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
    assert scene.tree() == before | {"lock": b""}


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
    assert "holds no build" in capsys.readouterr().err


def test_places(scene: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "other" / "commitlog").mkdir(parents=True)
    (tmp_path / "other" / "commitlog" / f"{1 << 40:020d}").touch()
    for words, status, text in (
        ([str(scene.out), "--to", str(tmp_path / "none")], 1, "make it first"),
        ([str(scene.out), "--to", str(scene.out)], 1, "lies inside"),
        ([str(scene.out), "--to", str(tmp_path)], 1, "lies inside"),
        ([str(tmp_path / "empty"), "--to", str(scene.store)], 1, "holds no build"),
        ([str(tmp_path / "none"), "--to", str(scene.store)], 1, "holds no build"),
        ([str(scene.out), "--to", str(tmp_path / "other")], 1, "none of the segments"),
        ([str(scene.out), "--to", ""], 2, "--to: is empty"),
        (["", "--to", str(scene.store)], 2, "BUILD: is empty"),
        ([str(scene.out), "--to", "s3://bucket/x"], 2, "name a folder on a disk"),
        (["ftp://a/b", "--to", str(scene.store)], 2, "unknown kind"),
        ([str(scene.out)], 2, "--to"),
        ([str(scene.out), "--to", str(scene.store), "--threads", "0"], 2, "--threads"),
    ):
        assert fetch(words) == status, words
        assert text in capsys.readouterr().err


def test_a_build_behind_a_uri_and_one_below_it(scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = (tmp_path / "builds-of").as_uri()
    for overwrite in (False, True):
        settings = BuildSettings(store=str(scene.store), out=out, write_topics=True, overwrite=overwrite, **SMALL)
        assert run_build(settings.check(), single(LocalEngine())).exit == 0
    first = pointers.build_folder(out, pointers.pointers(out)[0].build)
    for number, place in enumerate((out, first)):
        target = tmp_path / f"target-{number}"
        target.mkdir()
        assert fetch([place, "--to", str(target)]) == 0
        assert tree(target) == scene.new | {"lock": b""}
    # What a mount of an object store holds lies there as behind a URI.
    monkeypatch.setattr(systems, "_MOUNTED", (f"{tmp_path}/mount/",))
    (tmp_path / "mount").mkdir()
    mounted = BuildSettings(store=str(scene.store), out=f"{tmp_path}/mount/out", write_topics=True, **SMALL)
    assert run_build(mounted.check(), single(LocalEngine())).exit == 0
    assert sorted(os.listdir(tmp_path / "mount" / "out")) == ["builds", "published", "work"]
    (tmp_path / "target-2").mkdir()
    assert fetch([mounted.out, "--to", str(tmp_path / "target-2")]) == 0
    assert tree(tmp_path / "target-2") == scene.new | {"lock": b""}
    # The pointer knows its manifest.
    last = tmp_path / "builds-of" / "builds" / pointers.pointers(out)[-1].build / "reindex.json"
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
    "all swapped, journal there": ("kill", "unlink", r"journal\.json$"),
    "journal gone": ("kill-after", "unlink", r"journal\.json$"),
    "work folder half removed": ("kill-after", "rmdir", r"/new$"),
}


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
    begun = (scene.store / ".rmq-reindex-fetch" / "journal.json").exists()
    done = not begun and found.get("checkpoint") == scene.new["checkpoint"]
    assert scene.fetch() == 0
    expected = scene.laid_out(**PREVIOUS)
    found = scene.tree()
    if done:
        # It had ended in all but its own traces: this was a second fetch.
        found = {name: data for name, data in found.items() if ".previous.2" not in name}
    assert found == expected


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_named_points(point: str, scene: Scene) -> None:
    kind, operation, path = POINTS[point]
    before = scene.tree()
    fault = Fault(kind, 1, lambda name, where: name == operation and re.search(path, where) is not None)
    assert killed(scene, fault) == -signal.SIGKILL
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


def test_a_broker_between_a_kill_and_the_next_fetch_loses_nothing(scene: Scene) -> None:
    """It makes a ConsumeQueue anew where none is: that is kept as well."""
    kind, operation, path = POINTS["queues moved away"]
    fault = Fault(kind, 1, lambda name, where: name == operation and re.search(path, where) is not None)
    assert killed(scene, fault) == -signal.SIGKILL
    own = scene.store / "consumequeue" / "T" / "0" / "00000000000000000000"
    own.parent.mkdir(parents=True)
    own.write_bytes(b"made by a broker")
    assert scene.fetch() == 0
    found = scene.tree()
    assert found["consumequeue.previous/T/0/00000000000000000000"] == b"old queue"
    assert found["consumequeue.previous.2/T/0/00000000000000000000"] == b"made by a broker"
    assert {name: found[name] for name in scene.new} == scene.new


@pytest.mark.parametrize("operation", ["rename", "replace", "pwrite", "ftruncate", "mkdir", "syncfs"])
def test_errors_of_the_disk(operation: str, scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """Told in a line; what was begun is finished by the same command."""
    before = scene.tree()
    with faulty(Fault("EIO", 1, lambda name, _: name == operation), str(scene.store)) as fault:
        assert scene.fetch("--threads", "1") == 1
    assert fault.fired == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
    check_next(scene, before)
