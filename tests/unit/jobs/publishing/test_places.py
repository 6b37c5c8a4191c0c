"""Where a build may write: apart from its input, into nothing or over an earlier build."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rocketmq_reindex.jobs.publishing import layout
from rocketmq_reindex.jobs.publishing.local import lacks_manifest, strangers
from rocketmq_reindex.jobs.publishing.output import check_places
from rocketmq_reindex.storage_format.errors import InputError


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    return tmp_path / "store"


def check(store: Path, out: Path | str, overwrite: bool = False) -> str:
    return check_places([str(store), str(store / "commitlog")], str(out), overwrite)


def test_new_and_empty_folders(store: Path, tmp_path: Path) -> None:
    assert check(store, tmp_path / "new") == str(tmp_path / "new")
    (tmp_path / "empty").mkdir()
    assert check(store, f"{tmp_path}/empty/") == str(tmp_path / "empty")
    assert check(store, tmp_path / "storehouse") == str(tmp_path / "storehouse")
    assert list((tmp_path / "empty").iterdir()) == []


@pytest.mark.parametrize(
    "out", ["store", "store/out", "store/commitlog/x", ".", "store/../store/x", "other/../store/commitlog"]
)
def test_inside_the_input_or_around_it(store: Path, tmp_path: Path, out: str) -> None:
    (tmp_path / "other").mkdir()
    with pytest.raises(InputError, match=r"lies inside .* or around it"):
        check(store, tmp_path / out)
    with pytest.raises(InputError, match=r"lies inside .* or around it"):
        check(store, tmp_path / out, overwrite=True)


@pytest.mark.parametrize(
    "out",
    [
        "built/consumequeue/x", "built/consumequeue/T/0/x", "built/index", "built/index/x", "lost/consumequeue/x", "log/x",
        "dledger/dledger-n0/data/x",
    ],
)  # fmt: skip
def test_among_files_of_a_build_or_a_log(store: Path, tmp_path: Path, out: str) -> None:
    """Whichever they are; beside the parts of a build something may lie."""
    for folder in ("built/consumequeue/T/0", "lost/consumequeue", "log", "dledger/dledger-n0/data", "mine/index"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "built" / "reindex.json").write_text("{}")
    for folder in ("log", "dledger/dledger-n0/data"):
        (tmp_path / folder / f"{0:020d}").write_bytes(b"")
    with pytest.raises(InputError, match=r"lies inside .*, where "):
        check(store, tmp_path / out)
    with pytest.raises(InputError, match=r"--to .* lies inside .*, where .* name a file apart from it"):
        layout.check_no_store_around(f"--to {out}", str(tmp_path / out), "file")
    # A folder of that name is no segment: it may have an export of its day.
    (tmp_path / "exports" / "20261128000000000000").mkdir(parents=True)
    for place in ("built/x", "mine/index/x", "lost/x", "exports/x", "exports/20261128000000000000/x"):
        check(store, tmp_path / place)


def test_links_are_seen_through(store: Path, tmp_path: Path) -> None:
    (tmp_path / "away").symlink_to(store)
    with pytest.raises(InputError, match="lies inside"):
        check(store, tmp_path / "away" / "out")
    (tmp_path / "there").symlink_to(store / "commitlog" / "gone")
    with pytest.raises(InputError, match="lies inside"):
        check(store, tmp_path / "there")
    linked = tmp_path / "linked-store"
    linked.symlink_to(store)
    with pytest.raises(InputError, match="lies inside"):
        check(linked, store / "out")


def test_a_link_to_a_folder_is_that_folder(store: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert check(store, tmp_path / "link") == str(tmp_path / "real")


def test_relative_places(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert check(store, "out") == str(tmp_path / "out")
    with pytest.raises(InputError, match="lies inside"):
        check(store, "store/out")
    monkeypatch.chdir(store)
    with pytest.raises(InputError, match="lies inside"):
        check(store, "out")


def earlier(out: Path, *more: str) -> None:
    (out / "consumequeue").mkdir(parents=True)
    for name in ("reindex.json", *more):
        (out / name).write_bytes(b"{}")


def test_an_earlier_build_is_replaced_only_when_told(store: Path, tmp_path: Path) -> None:
    earlier(tmp_path / "out", "checkpoint")
    with pytest.raises(InputError, match=r"is not empty: .* or give --overwrite"):
        check(store, tmp_path / "out")
    assert check(store, tmp_path / "out", overwrite=True) == str(tmp_path / "out")


@pytest.mark.parametrize("name", ["commitlog", "config", "abort", "lock"])
def test_a_folder_that_a_broker_may_run_on_is_never_replaced(store: Path, tmp_path: Path, name: str) -> None:
    earlier(tmp_path / "out", name)
    for overwrite in (False, True):
        with pytest.raises(InputError, match="which no build writes: move it away"):
            check(store, tmp_path / "out", overwrite)


@pytest.mark.parametrize("name", ["notes.txt", ".hidden", "line\nbreak"])
def test_foreign_files_beside_a_build_stay(store: Path, tmp_path: Path, name: str) -> None:
    earlier(tmp_path / "out", name)
    with pytest.raises(InputError, match="which no build writes") as caught:
        check(store, tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert check(store, tmp_path / "out", overwrite=True) == str(tmp_path / "out")
    (tmp_path / "out" / "reindex.json").unlink()
    with pytest.raises(InputError, match="which no build writes: name an empty folder"):
        check(store, tmp_path / "out", overwrite=True)


def test_what_cannot_be_moved_into_the_new_build_is_refused(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mount point inside of DIR would end up in the staging folder of the build that is replaced."""
    earlier(tmp_path / "out", "notes.txt")
    (tmp_path / "out" / "disk").mkdir()
    monkeypatch.setattr(os.path, "ismount", lambda path: str(path) == str(tmp_path / "out" / "disk"))
    with pytest.raises(InputError, match="holds disk, which no build writes: move it away"):
        check(store, tmp_path / "out", overwrite=True)


def test_a_brokers_own_folder_is_no_earlier_build(store: Path, tmp_path: Path) -> None:
    """It has the same names, but no manifest."""
    for name in ("consumequeue", "index"):
        (tmp_path / "live" / name).mkdir(parents=True)
    (tmp_path / "live" / "checkpoint").write_bytes(bytes(4096))
    with pytest.raises(InputError, match=r"was not written by a build \(it has no reindex.json\)"):
        check(store, tmp_path / "live", overwrite=True)


def test_what_is_no_folder(store: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    os.mkfifo(tmp_path / "fifo")
    for name in ("file", "fifo"):
        with pytest.raises(InputError, match="is not a folder: name another"):
            check(store, tmp_path / name, overwrite=True)
    for name in ("none/out", "file/out"):
        with pytest.raises(InputError, match="make it first"):
            check(store, tmp_path / name)


def test_the_root_folder(store: Path) -> None:
    for out in ("/", "/../..", "//"):
        with pytest.raises(InputError, match="is the root folder"):
            check(store, out)


@pytest.mark.skipif(not os.path.ismount("/proc"), reason="no mount point to try it on")
def test_a_mount_point_full_of_others_files(store: Path) -> None:
    with pytest.raises(InputError):
        check(store, "/proc", overwrite=True)


def test_what_is_no_builds(tmp_path: Path) -> None:
    earlier(tmp_path, "checkpoint", "notes.txt")
    (tmp_path / "config").mkdir()
    for name in ("topics.json", "users.json"):
        (tmp_path / "config" / name).write_bytes(b"{}")
    assert strangers(str(tmp_path), sorted(os.listdir(tmp_path))) == ["notes.txt", "config/users.json"]


def test_a_folder_that_lost_its_manifest(tmp_path: Path) -> None:
    assert not lacks_manifest(str(tmp_path / "none"))
    assert not lacks_manifest(str(tmp_path))
    earlier(tmp_path, "checkpoint")
    assert not lacks_manifest(str(tmp_path))
    (tmp_path / "reindex.json").unlink()
    assert lacks_manifest(str(tmp_path))
