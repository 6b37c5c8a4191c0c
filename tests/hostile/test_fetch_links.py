"""What links in a store can do: fetch writes through none, and a repair keeps what was private so."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketmq_reindex.jobs.commands import fetch
from rocketmq_reindex.jobs.fetching import swap
from rocketmq_reindex.jobs.fetching.record import RECORD
from rocketmq_reindex.jobs.store.owner import give
from tests.fault.disk import SEGMENT, tiny_store, tree
from tests.tools.local_engine import local_build, local_repair
from tests.tools.log_writer import overwrite

WORK = ".rmq-reindex-fetch"
SIZES = {"cq_file_size": 400, "hash_slots": 7, "index_items": 40}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store beside a build of it, and a folder that is none of the store's."""
    tiny_store(tmp_path / "store")
    assert local_build(tmp_path / "store", tmp_path / "out", None, write_topics=True, **SIZES).exit == 0
    (tmp_path / "victim").mkdir()
    return tmp_path / "store"


def run(store: Path, *words: str) -> int:
    return fetch([str(store.parent / "out"), "--to", str(store), *words])


def _state(folder: Path) -> dict[str, int]:
    """All that is known of it but when it was last read: to list it is to read it."""
    found = folder.stat()
    return {name: getattr(found, name) for name in dir(found) if name.startswith("st_") and not name.startswith("st_atime")}


LINKS = {
    "config": "config: is a link, and fetch writes through none: put the folder itself there",
    "lock": "lock: is a link, as no broker's lock is: remove it",
    WORK: f"{WORK}: is a link, or no folder: fetch writes through no link: remove it",
    RECORD: "",
}


@pytest.mark.parametrize("dangling", [False, True], ids=["folder", "dangling"])
@pytest.mark.parametrize("name", LINKS)
def test_nothing_is_written_through_a_link(
    name: str, dangling: bool, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Refused, or the link itself is replaced."""
    (store / name).symlink_to(tmp_path / "victim" / ("new" if dangling else ""))
    before = _state(tmp_path / "victim")
    assert run(store) == (1 if LINKS[name] else 0)
    assert LINKS[name] in capsys.readouterr().err
    assert list((tmp_path / "victim").iterdir()) == []
    assert _state(tmp_path / "victim") == before
    # As the advice says.
    if (store / name).is_symlink():
        (store / name).unlink()
    assert run(store) == 0
    assert (store / "config" / "topics.json").is_file()


@pytest.mark.parametrize("when", ["the files are there", "the journal is there"])
def test_a_link_that_comes_later(when: str, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who owns the store puts links in the place of the work folder and of config/ while fetch runs."""
    victim = tmp_path / "victim"
    for name in ("new", "temporary"):
        (victim / name).mkdir()
    before = tree(victim)

    def exchange() -> None:
        (store / WORK).rename(store / "aside")
        (store / WORK).symlink_to(victim)
        (store / "config").symlink_to(victim)

    begin, finish = swap.Swap.begin, swap.Swap.finish

    def begin_later(self: swap.Swap, *words: object) -> object:
        exchange()
        return begin(self, *words)  # type: ignore[arg-type]

    def finish_later(self: swap.Swap, *words: object) -> object:
        exchange()
        return finish(self, *words)  # type: ignore[arg-type]

    if when == "the files are there":
        monkeypatch.setattr(swap.Swap, "begin", begin_later)
    else:
        monkeypatch.setattr(swap.Swap, "finish", finish_later)
    assert run(store) == 1
    assert tree(victim) == before


def test_the_work_folder_is_this_users_alone(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes = []
    begin = swap.Swap.begin

    def looking(self: swap.Swap, *words: object) -> object:
        modes.append((store / WORK).stat().st_mode & 0o777)
        return begin(self, *words)  # type: ignore[arg-type]

    monkeypatch.setattr(swap.Swap, "begin", looking)
    assert run(store) == 0
    assert modes == [0o700]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_is_given_away_is_no_links_end(store: Path, tmp_path: Path) -> None:
    """A link in a folder is given, not what it leads to."""
    os.chown(store / "commitlog", 12345, 54321)
    secret = tmp_path / "secret"
    secret.write_bytes(b"x")
    (tmp_path / "made" / "inner").mkdir(parents=True)
    (tmp_path / "made" / "inner" / "link").symlink_to(secret)
    (tmp_path / "made" / "folder").symlink_to(tmp_path / "victim")
    give(str(tmp_path / "made"), str(store))
    assert (tmp_path / "made" / "inner").stat().st_uid == 12345
    assert (tmp_path / "made" / "inner" / "link").lstat().st_uid == 12345
    assert secret.stat().st_uid == (tmp_path / "victim").stat().st_uid == 0


# -- a forged journal


def journal(store: Path, **fields: object) -> None:
    (store / WORK / "new").mkdir(parents=True)
    (store / WORK / "temporary").mkdir()
    (store / WORK / "journal.json").write_text(json.dumps({"build": "b", "parts": ["index"], **fields}))


def record_in_the_way(store: Path) -> None:
    journal(store)
    (store / RECORD / "inner").mkdir(parents=True)


def config_in_the_way(store: Path) -> None:
    journal(store, parts=["config/topics.json"])
    (store / WORK / "new" / "config").mkdir()
    (store / WORK / "new" / "config" / "topics.json").write_bytes(b"{}")
    (store / "config").write_bytes(b"no folder")


def long_names(store: Path) -> None:
    journal(store)
    (store / WORK / "new" / "index").mkdir()
    (store / "index").mkdir()
    (store / f"index.previous.{'9' * (255 - len('index.previous.'))}").mkdir()


def no_temporary(store: Path) -> None:
    journal(store)
    (store / WORK / "temporary").rmdir()


FORGED: dict[str, Callable[[Path], None]] = {
    "a record that is a folder": record_in_the_way,
    "config/ that is a file": config_in_the_way,
    "names without end": long_names,
    "no folder to write in": no_temporary,
}


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_journal_asks_for_no_run_for_ever(what: str, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What it says cannot be done: that is told, with what ends it, and that leads to the end."""
    FORGED[what](store)
    assert run(store) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert not line.endswith("run it again to go on")
    assert "remove" in line
    for name in (WORK, RECORD):
        shutil.rmtree(store / name, ignore_errors=True)
    for path in (store / "config", *store.glob("index.previous.9*")):
        path.unlink() if path.is_file() else path.rmdir() if path.name != "config" else None
    assert run(store) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_another_users_journal(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal(store)
    os.chown(store / WORK, 12345, 54321)
    assert run(store) == 1
    assert "was left by another user's fetch: fetch as that user, or remove" in capsys.readouterr().err
    shutil.rmtree(store / WORK)
    assert run(store) == 0


# -- a repair


def test_a_repair_keeps_what_was_private_so(store: Path, tmp_path: Path) -> None:
    """A segment that is a link to a private file, bytes of a private replica, and what was kept of damage."""
    shutil.copytree(store, tmp_path / "replica")
    segments = sorted((store / "commitlog").iterdir())
    segments[1].rename(tmp_path / "private")
    (tmp_path / "private").chmod(0o600)
    segments[1].symlink_to(tmp_path / "private")
    segments[0].chmod(0o640)
    for link in ("none", "reflink"):
        assert local_repair(store, tmp_path / link, None, link=link, **SIZES).exit == 0
        assert [path.stat().st_mode & 0o777 for path in sorted((tmp_path / link / "commitlog").iterdir())] == [0o640, 0o600]
    overwrite(store / "commitlog", SEGMENT + 10, b"\1\1\1")
    assert local_repair(store, tmp_path / "filled", None, **SIZES).exit == 3
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "filled" / "quarantine").iterdir()} == {0o600}
    # The broker's user must be able to write on in what nobody could write to.
    for path in (tmp_path / "replica" / "commitlog").iterdir():
        path.chmod(0o400)
    segments[0].chmod(0o644)
    overwrite(store / "commitlog", 200, b"\1\1\1")
    replicas = (str(tmp_path / "replica"),)
    assert local_repair(store, tmp_path / "taken", None, replicas=replicas, **SIZES).error is None
    assert [path.stat().st_mode & 0o777 for path in sorted((tmp_path / "taken" / "commitlog").iterdir())] == [0o600, 0o600]
