"""kill -9 of a run at named points of publishing and at any file operation, then the same command again: the same bytes."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fault.disk import Scene, check_killed, kill_anywhere, tiny_store, tree
from tests.tools.faulty_children import Children, children
from tests.tools.faulty_files import Fault

POINTS = {
    "locked": ("kill-after", "flock", "lock$"),
    "staging folder half made": ("kill", "mkdir", "/made$"),
    "segment read": ("kill-after", "preadv", "/commitlog/"),
    "block of items written, not in its place": ("kill", "replace", "/blocks/"),
    "file half written": ("kill-after", "pwrite", "/temporary/"),
    "ConsumeQueue file in its place": ("kill-after", "replace", "/tree/consumequeue/"),
    "IndexFile made, not named": ("kill-after", "replace", "/made/"),
    "IndexFile named": ("kill-after", "replace", "/tree/index/"),
    "manifest written": ("kill-after", "replace", "/tree/reindex.json$"),
    "tree sealed": ("kill-after", "rename", "/sealed$"),
    "tree durable": ("kill-after", "syncfs", r"\.rmq-reindex-[0-9a-f]{12}$"),
    "published, rename not durable": ("kill-after", "rename|renameat2", "/out$"),
    "published, staging folder there": ("kill-after", "fsync", ""),
    "staging folder half removed": ("kill-after", "rmdir", "/parts$"),
    "staging folder removed": ("kill-after", "rmdir", r"\.out\.rmq-reindex-[0-9a-f]{12}$"),
    "lock removed": ("kill-after", "unlink", "lock$"),
}
AFTER = ("published", "staging folder half removed", "staging folder removed", "lock removed")
"""Points behind the rename begin so."""


@pytest.fixture(scope="module")
def warm() -> Iterator[Children]:
    with children() as found:
        yield found


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_store(tmp_path_factory.mktemp("kill") / "store")


@pytest.mark.parametrize("earlier", [False, True])
@pytest.mark.parametrize("point", POINTS)
def test_named_points(point: str, earlier: bool, warm: Children, store: Path, tmp_path: Path) -> None:
    scene = Scene(store, tmp_path / "place" / "out", earlier)
    kind, operations, path = POINTS[point]
    status = warm.run(store, scene.out, *scene.words, kind=kind, number=1, operations=operations, path=path)
    assert status == -signal.SIGKILL
    assert check_killed(scene, point) == point.startswith(AFTER)


@pytest.mark.parametrize(("path", "published"), [("/replaced$", None), ("/out$", True)])
def test_between_two_renames(path: str, published: bool | None, warm: Children, store: Path, tmp_path: Path) -> None:
    """Where names cannot be swapped DIR is away for a moment: the next run puts it back before anything else."""
    scene = Scene(store, tmp_path / "place" / "out", True, exchange=False)
    status = warm.run(
        store, scene.out, *scene.words, exchange=False, kind="kill-after", number=1, operations="rename", path=path
    )
    assert status == -signal.SIGKILL
    if published:
        assert check_killed(scene, path)
        return
    assert tree(scene.out) is None
    # A run that is refused changes nothing else.
    summary, _ = scene.run(Fault("EIO", 1, lambda _name, where: "/commitlog/" in where))
    assert summary["exit"] == 1
    summary, _ = scene.run(Fault("EIO", 1, lambda name, _where: name == "preadv"))
    assert summary["exit"] == 1
    assert tree(scene.out) == scene.before
    assert scene.beside() == []
    scene.check_next(path)


def test_any_operation(warm: Children, seed: int, store: Path, tmp_path: Path) -> None:
    """Before or after one of them, by chance."""
    rng = random.Random(seed)
    scene = Scene(store, tmp_path / "place" / "out", True, exchange=rng.random() < 0.7)
    kill_anywhere(scene, warm, rng)


def test_kill_after_kill(warm: Children, seed: int, store: Path, tmp_path: Path) -> None:
    """What several killed runs left is swept by one."""
    rng = random.Random(seed)
    scene = Scene(store, tmp_path / "place" / "out", False)
    for _ in range(4):
        warm.run(store, scene.out, kind="kill", number=rng.randrange(40, 200))
        assert tree(scene.out) is None
    assert len(scene.beside()) >= 1
    scene.check_next("many")
