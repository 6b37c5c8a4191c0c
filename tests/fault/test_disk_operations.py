"""The n-th file operation of a build fails, for n = 1, 2, ... until a build passes."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fault.disk import Scene, sweep, tiny_store, tree
from tests.tools.faulty_files import Fault
from tests.tools.faulty_runs import command

PUBLISHING = ("rename", "renameat2", "syncfs", "fsync", "flock", "listdir")
Scenes = Callable[..., Scene]


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """In memory where there is such a folder: what the whole machine has to flush is then no matter."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None, prefix="rmq-reindex-test-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def store(place: Path) -> Path:
    return tiny_store(place / "store")


@pytest.fixture
def scenes(place: Path, store: Path) -> Iterator[Scenes]:
    folder = place / "place"
    yield lambda earlier=False, exchange=True: Scene(store, folder / "out", earlier, exchange)
    shutil.rmtree(folder)


# What few operations can do, at every n; what fails all over (EIO), and running out of space, at a third of them.
@pytest.mark.parametrize(
    ("kind", "step", "least"),
    [
        pytest.param("EIO", 1, 200, marks=pytest.mark.slow),
        ("EIO", 3, 70),
        ("ENOSPC", 3, 25),
        ("full", 3, 15),
        ("short", 1, 30),
        ("nothing", 1, 15),
        ("close", 1, 25),
    ],
)
def test_the_nth_operation_fails(kind: str, step: int, least: int, seed: int, scenes: Scenes) -> None:
    """Into a new folder. Half a read or write is no error: the rest is asked for; in clean-up one failure is made good."""
    exits: Counter[int] = Counter()
    operations = set()
    for where, summary in sweep(scenes(), kind, random.Random(seed).randrange(step) + 1, step):
        exits[summary["exit"]] += 1
        operations.add(where.partition(" ")[0])
        if summary["exit"]:
            told = {
                "ENOSPC": "No space left on device",
                "full": "No space left on device",
                "nothing": "nothing could be written",
            }
            reason = told.get(kind, "Input/output error")
            assert reason in summary["error"] or (where.startswith("stat") and "is not a folder" in summary["error"])
    assert sum(exits.values()) >= least, exits
    assert (exits[1] == 0) == (kind == "short")
    if (kind, step) == ("EIO", 1):
        assert operations >= {
            "open",
            "close",
            "stat",
            "preadv",
            "pwrite",
            "mkdir",
            "rename",
            "replace",
            "syncfs",
            "fsync",
            "flock",
        }


@pytest.mark.parametrize("exchange", [True, False])
def test_over_an_earlier_build(exchange: bool, seed: int, scenes: Scenes) -> None:
    """The earlier build stands as it was, or the new one does; also where names cannot be swapped."""
    scene = scenes(True, exchange)
    for kind in ("EIO", "ENOSPC"):
        hit = [where for where, _ in sweep(scene, kind, matches=lambda name, _path: name in PUBLISHING)]
        assert len(hit) >= (8 if kind == "EIO" else 5), hit
    assert len(list(sweep(scene, "EIO", random.Random(seed).randrange(13) + 1, 13))) > 15


@pytest.mark.parametrize("times", [1, 2, 3])
def test_renames_back_and_forth_fail(times: int, scenes: Scenes) -> None:
    """Without a swap: the new build cannot take its place, nor can the earlier one at once. It is put back all the same."""
    scene = scenes(True, False)
    fault = Fault("EIO", 1, lambda name, path: name == "rename" and path.endswith("/out"), times)
    summary, said = scene.run(fault)
    assert (summary["exit"], fault.fired) == (1, times)
    scene.check(fault, summary, said)


def test_interrupts(seed: int, scenes: Scenes) -> None:
    """SIGTERM behind any operation: what is said of publishing is true, and the clean-up is not cut short."""
    scene = scenes(True)
    hit = list(sweep(scene, "interrupt", matches=lambda name, _path: name in PUBLISHING))
    assert {summary["error"] for _, summary in hit} == {None, "interrupted: nothing was published"}
    published = [summary for where, summary in hit if where.startswith("renameat2")]
    assert [summary["exit"] for summary in published] == [0]
    assert published[0]["warnings"][-1] == "published all the same: interrupted"
    assert len(list(sweep(scene, "interrupt", random.Random(seed).randrange(9) + 1, 9))) > 20


def test_no_error_after_publishing_takes_it_back(store: Path, scenes: Scenes) -> None:
    """The rename is done, making it durable fails: published, with a warning."""
    scene = scenes()
    fault = Fault("EIO", 1, lambda name, _path: name == "fsync")
    summary, _ = scene.run(fault)
    assert (summary["exit"], fault.fired) == (0, 1)
    (warning,) = [text for text in summary["warnings"] if text.startswith("published all the same")]
    assert "Input/output error" in warning
    assert tree(scene.out) == scene.truth
    assert command(store, scene.out)[0]["error"].endswith("is not empty: name another folder, or give --overwrite")
