"""A file ``abort`` in STORE while a part is not built: also where it comes, changes or goes after an incremental build."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.jobs.building.store_signs import bounded
from rocketmq_reindex.jobs.commands import fetch
from rocketmq_reindex.storage_format.checkpoints import Checkpoint
from tests.fault.disk import tiny_store, tree
from tests.tools.local_engine import local_build

SIZES: dict[str, Any] = {"cq_file_size": 400, "hash_slots": 7, "index_items": 40}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tiny_store(tmp_path / "store")


def built(out: Path) -> tuple[int, int]:
    found = Checkpoint.from_bytes((out / "checkpoint").read_bytes())
    return found.physic, found.logics


def test_an_abort_file_that_comes_later(store: Path, tmp_path: Path) -> None:
    """The log has nothing new, but the checkpoint has: the result stays that of a full build."""
    parts: dict[str, Any] = SIZES | {"only": ("index", "checkpoint")}
    known = parts | {"incremental": True, "tables": str(tmp_path / "tables")}
    out = tmp_path / "out"
    assert local_build(store, out, None, **known).warnings == []
    whole = built(out)

    def both(name: str) -> bool:
        """An incremental build equals a full one; returns whether it said that nothing is new."""
        full, one = local_build(store, tmp_path / name, None, **parts), local_build(store, out, None, **known)
        assert (full.exit, one.exit) == (0, 0)
        assert (tree(out), one.warnings) == (tree(tmp_path / name), full.warnings)
        assert one.incremental is not None
        return bool(one.incremental["nothing_new"])

    assert both("same")
    (store / "abort").touch()
    assert not both("aborted")
    assert built(out) == (0, 0)
    assert both("aborted again")
    (store / "checkpoint").write_bytes(Checkpoint(whole[0] - 1, whole[1] - 2, logics_offset=100).to_bytes())
    assert not both("another checkpoint")
    assert built(out) == (whole[0] - 1, whole[1] - 2)
    (store / "abort").unlink()
    assert not both("started and stopped")
    assert built(out) == whole


def test_each_part_that_stays_keeps_its_time() -> None:
    new, old = Checkpoint(50, 60, 70), Checkpoint(5, 6, 7)
    assert bounded(new, old, ["consumequeue", "checkpoint"]).index == 7
    assert bounded(new, old, ["index", "checkpoint"]).index == 70
    assert bounded(old, new, ["consumequeue", "checkpoint"]).index == 7
    for parts in (["consumequeue", "checkpoint"], ["index", "checkpoint"]):
        found = bounded(new, old, parts)
        assert (found.physic, found.logics) == (5, 6)


def test_all_parts_need_no_old_checkpoint(store: Path, tmp_path: Path) -> None:
    (store / "abort").touch()
    assert local_build(store, tmp_path / "all", None, **SIZES).warnings == []
    assert local_build(store, tmp_path / "index", None, only=("index",), **SIZES).exit == 0
    assert min(built(tmp_path / "all")) > 0


@pytest.mark.parametrize("parts", [("index", "checkpoint"), ("consumequeue", "checkpoint")], ids=",".join)
def test_fetch_into_a_store_with_an_abort_file(
    parts: tuple[str, ...], store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A build of a copy of the log alone does not know what the store lacks: its checkpoint would say that nothing is lost."""
    copy = tmp_path / "copy"
    shutil.copytree(store / "commitlog", copy / "commitlog")
    assert local_build(store, tmp_path / "first", None, **SIZES).exit == 0
    for name in ("consumequeue", "index", "checkpoint"):
        (tmp_path / "first" / name).rename(store / name)
    whole = built(store)
    (store / "checkpoint").write_bytes(Checkpoint(whole[0] - 5, whole[1] - 5, 0).to_bytes())
    assert local_build(copy, tmp_path / "out", None, only=parts, **SIZES).exit == 0
    assert local_build(copy, tmp_path / "all", None, **SIZES).exit == 0
    (store / "abort").touch()
    before = tree(store)
    for more in ([], ["--dry-run"]):
        assert fetch([str(tmp_path / "out"), "--to", str(store), "--partial", *more]) == 1
        assert "has a file abort" in capsys.readouterr().err
    assert {name: data for name, data in (tree(store) or {}).items() if name != "lock"} == before
    # What was built from the store itself says no more, and all parts need no old one.
    assert local_build(store, tmp_path / "own", None, only=parts, **SIZES).exit == 0
    assert fetch([str(tmp_path / "own"), "--to", str(store), "--partial"]) == 0
    assert fetch([str(tmp_path / "all"), "--to", str(store)]) == 0
    assert built(store) == whole
    (store / "abort").unlink()
    assert fetch([str(tmp_path / "out"), "--to", str(store), "--partial"]) == 0


def test_nothing_new_tells_what_is_seen_now(store: Path, tmp_path: Path) -> None:
    """Warnings of what lies beside the log are of this run, also where the rest is said again."""
    known = SIZES | {"incremental": True, "tables": str(tmp_path / "tables")}
    out = tmp_path / "out"
    assert local_build(store, out, None, **known).warnings == []
    (store / "lock").mkdir()
    summary = local_build(store, out, None, **known)
    assert summary.incremental is not None
    assert summary.incremental["nothing_new"]
    (told,) = summary.warnings
    assert "lock: is no regular file" in told
    before = tree(out)
    (store / "lock").rmdir()
    assert local_build(store, out, None, **known).warnings == []
    assert tree(out) == before
