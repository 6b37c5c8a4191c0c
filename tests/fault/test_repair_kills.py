"""kill -9 of a repair at named points and at any file operation: the input is as it was, DIR is whole or as it was.

A repaired log that waits for its name must never be taken for a broker's, and be moved into DIR by pieces.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fault.disk import check_killed, kill_anywhere, tree
from tests.fault.repairs import RepairScene, damaged_store
from tests.tools.faulty_children import Children, children

POINTS = {
    "damage planned": ("kill-after", "replace", "/plans/damage"),
    "damaged bytes kept": ("kill-after", "replace", "/tree/quarantine/[0-9]{20}$"),
    "listed in the quarantine": ("kill", "replace", r"/tree/quarantine/[0-9]{20}\.json$"),
    "segment written, not in its place": ("kill", "replace", "/tree/commitlog/"),
    "segment in its place": ("kill-after", "replace", "/tree/commitlog/"),
    "segment linked": ("kill-after", "link", "/tree/commitlog/"),
    "scanned again": ("kill-after", "preadv", "/tree/commitlog/"),
    "manifest written": ("kill-after", "replace", "/tree/reindex.json$"),
    "tree sealed": ("kill-after", "rename", "/sealed$"),
    "tree durable": ("kill-after", "syncfs", r"\.rmq-reindex-[0-9a-f]{12}$"),
    "published": ("kill-after", "rename", "/out$"),
    "published, staging folder there": ("kill-after", "fsync", ""),
    "published, lock removed": ("kill-after", "unlink", "lock$"),
}


@pytest.fixture(scope="module")
def warm() -> Iterator[Children]:
    with children() as found:
        yield found


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return damaged_store(tmp_path_factory.mktemp("kill") / "store")


@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("point", POINTS)
def test_named_points(point: str, empty: bool, warm: Children, store: Path, tmp_path: Path) -> None:
    scene = RepairScene(store, tmp_path / "place" / "out", empty, link="hard" if "link" in point else "none")
    kind, operations, path = POINTS[point]
    status = warm.run(store, scene.out, *scene.words, name="repair", kind=kind, number=1, operations=operations, path=path)
    assert status == -signal.SIGKILL
    assert check_killed(scene, point) == point.startswith("published")


@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("number", [1, 2, 5])
def test_killed_while_a_sealed_tree_is_removed(
    number: int, empty: bool, warm: Children, store: Path, tmp_path: Path
) -> None:  # fmt: skip
    """The next run sweeps a whole repaired log and dies in it: what is left then may lack its manifest."""
    scene = RepairScene(store, tmp_path / "place" / "out", empty)
    for nth, operations, path in ((1, "rename", "/sealed$"), (number, "unlink", "reindex.json|/sealed")):
        status = warm.run(
            store, scene.out, *scene.words, name="repair", kind="kill-after", number=nth, operations=operations, path=path
        )
        assert status == -signal.SIGKILL
        assert tree(scene.out) == scene.before
        assert scene.beside()
    assert check_killed(scene, "swept") is False


@pytest.mark.parametrize("link", ["none", "hard"])
def test_any_operation(link: str, warm: Children, seed: int, store: Path, tmp_path: Path) -> None:
    """Before or after one of them, by chance."""
    rng = random.Random(seed)
    scene = RepairScene(store, tmp_path / "place" / "out", rng.random() < 0.5, link=link)
    kill_anywhere(scene, warm, rng)
