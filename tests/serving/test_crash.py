"""The real store is opened on what was built, put more records, and dies: every key, old and new, is found afterwards.

Beside them, as the contrast, the same on the broker's own rebuild, whose index a crash takes away.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.golden.stores import read_files
from tests.serving.crashes import MORE, Due, Store, copied, crash, due_of
from tests.serving.programs import Program
from tests.serving.stores import build_into, keyed_log

OLD = 2057
FEW_ITEMS = 90
"""An IndexFile that the records of one session more than fill."""
TAIL = 90
"""Records in the last segment, where there is room for all that are put: so a crash never meets a segment just begun, whose
turn loses keys of new records on any store: the broker dispatches again from the last segment that is older than 3 s."""


@pytest.mark.parametrize("version", ["5.5.1", pytest.param("4.9.8", marks=pytest.mark.slow)])
def test_no_crash_loses_a_key(version: str, seed: int, tmp_path: Path) -> None:
    log = tmp_path / "log"
    due = due_of(keyed_log(log, OLD, seed, tail=TAIL))
    settings = {"broker_version": version[:3]}
    by_tag = version == "5.5.1"

    def built(name: str, checkpoint: str = "safe", **sizes: int) -> Store:
        (store,) = copied(log, tmp_path, due, name)
        build_into(store.path, checkpoint=checkpoint, **settings, **sizes)
        store.sizes = sizes
        return store

    killed, flushed, aborted = built("killed"), built("flushed"), built("aborted")
    rolled = built("rolled", index_items=FEW_ITEMS)
    contrast = built("contrast", checkpoint="broker")
    names = index_files(rolled)
    crash(aborted)
    (aborted.path / "abort").touch()
    with Program(version, "Crash", tmp_path) as program:
        own, indexed, alone = whole(log, tmp_path, program, due, "own", "indexed", "alone")
        index_again(indexed, ("index", "checkpoint"), **settings)
        index_again(alone, ("index",), **settings)
        ours, theirs = [killed, flushed, aborted, rolled, indexed, alone], [own, contrast]
        for store in [*ours, *theirs]:
            store.open(program)
            store.is_whole(program, tmp_path, "as it was built", by_tag=by_tag)
            store.add(program, "first")
        # Of the others a crash leaves a checkpoint that knows nothing of the log's end, and the broker would build all again.
        for store in [flushed, *theirs]:
            program.step("flush", store.name)
        program.kill()
    crash(*ours, *theirs)

    with Program(version, "Crash", tmp_path) as program:
        for store in [*ours, *theirs]:
            store.open(program)
        for store in ours:
            store.is_whole(program, tmp_path, "after kill -9", by_tag=by_tag)
        # All but what lies in the last segment, where the broker begins to dispatch again, is gone for good.
        left = [store.found(program, tmp_path)[0] for store in theirs]
        print(f"{version}: after its own rebuild and a crash a key leads to {left[0]} of {OLD + MORE} records")
        assert left == [TAIL + MORE, TAIL + MORE]
        for store in ours:
            store.add(program, "second")
        program.halt()
    crash(*ours)

    with Program(version, "Crash", tmp_path) as program:
        for store in ours:
            store.open(program)
            store.is_whole(program, tmp_path, "after a halt", by_tag=by_tag)
            store.add(program, "third")
        program.step("close", *(store.name for store in ours))
        for store in ours:
            assert not (store.path / "abort").exists()
            store.open(program)
            store.is_whole(program, tmp_path, "after a clean stop", by_tag=by_tag)
            assert store.due.records == OLD + 3 * MORE
        program.step("close", *(store.name for store in ours))
    # What the broker made since then is named by its clock, and sorts behind.
    assert len(names) > 5
    assert index_files(rolled)[: len(names)] == names
    assert len(index_files(rolled)) >= len(names) + 3


def test_an_index_without_its_checkpoint(seed: int, tmp_path: Path) -> None:
    """A crash before anything is put: the broker deletes an index that its checkpoint does not know, and leaves the other."""
    log = tmp_path / "log"
    due = due_of(keyed_log(log, OLD, seed, tail=TAIL))
    with Program("5.3.3", "Crash", tmp_path) as program:
        alone, together = stores = whole(log, tmp_path, program, due, "alone", "together")
        for store in stores:
            store.open(program)
            store.add(program, "early")
            program.step("flush", store.name)  # from now on its checkpoint knows how far the log is on the disk
        program.step("close", alone.name, together.name)
        index_again(alone, ("index",), broker_version="5.3")
        index_again(together, ("index", "checkpoint"), broker_version="5.3")
        crash(*stores)
        for store in stores:
            (store.path / "abort").touch()
            store.open(program)
        assert together.found(program, tmp_path) == (OLD + MORE, 0, 0)
        reached, missing, _ = alone.found(program, tmp_path)
        print(f"the index alone, after a crash: a key leads to {reached} of {OLD + MORE} records")
        assert reached == TAIL + MORE
        assert missing


def whole(log: Path, into: Path, program: Program, due: Due, *names: str) -> list[Store]:
    """Stores that RocketMQ itself builds from the commitlog, and closes."""
    made = copied(log, into, due, *names)
    for store in made:
        store.open(program)
    program.step("close", *names)
    return made


def index_files(store: Store) -> list[str]:
    return sorted(path.name for path in (store.path / "index").iterdir())


def index_again(store: Store, only: tuple[str, ...], **settings: str) -> None:
    """The index of a whole store is deleted; ``only`` these parts are built and put in its place."""
    shutil.rmtree(store.path / "index")
    before = {name: content for name, content in read_files(store.path).items() if name not in only}
    build_into(store.path, only=only, **settings)
    assert before.items() <= read_files(store.path).items()
