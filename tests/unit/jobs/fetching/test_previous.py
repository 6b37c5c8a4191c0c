"""The names of a store's earlier parts, and which of them go."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketmq_reindex.jobs.fetching import swap
from rocketmq_reindex.jobs.fetching.record import Copy, Pinned, Record

PART = "consumequeue"


def made(store: Path, *names: str) -> None:
    for name in names:
        (store / name).mkdir(parents=True)


@pytest.mark.parametrize(
    ("names", "following"),
    [
        ((), "consumequeue.previous"),
        (("consumequeue.previous",), "consumequeue.previous.2"),
        (("consumequeue.previous.7", "consumequeue.previous"), "consumequeue.previous.8"),
        (("consumequeue.previous.10", "consumequeue.previous.9"), "consumequeue.previous.11"),
        (("consumequeue.previous.1", "consumequeue.previous.x", "consumequeue.previous.02", "index.previous.9"),
         "consumequeue.previous"),
    ],
)  # fmt: skip
def test_no_number_comes_again_below_one_that_is_there(names: tuple[str, ...], following: str, tmp_path: Path) -> None:
    made(tmp_path, *names)
    assert swap.next_name(str(tmp_path), PART) == following


def test_a_part_in_a_folder(tmp_path: Path) -> None:
    part = "config/topics.json"
    assert swap.next_name(str(tmp_path), part) == "config/topics.json.previous"
    made(tmp_path, "config/topics.json.previous")
    assert swap.next_name(str(tmp_path), part) == "config/topics.json.previous.2"


def recorded(store: Path, **fetches: int) -> Record:
    """Copies by the numbers in their names, each of the fetch of that number."""
    record = Record()
    for name, fetch in fetches.items():
        path = swap.name_of(PART, int(name.removeprefix("n")))
        made(store, path)
        copy = Copy.of(str(store / path), fetch)
        assert copy
        record.copies[path] = copy
    return record


def test_the_newest_fetches_are_kept(tmp_path: Path) -> None:
    """A fetch has two copies of a part where a broker ran between a kill and the fetch that went on."""
    record = recorded(tmp_path, n1=1, n2=2, n3=2, n4=3)
    for keep, gone in ((0, [4, 3, 2, 1]), (1, [3, 2, 1]), (2, [1]), (3, []), (9, [])):
        found, notes = swap.surplus_copies(str(tmp_path), (PART,), record, keep)
        assert (found, notes) == ([swap.name_of(PART, number) for number in gone], [])


def test_what_is_not_recorded_stays_and_does_not_count(tmp_path: Path) -> None:
    record = recorded(tmp_path, n2=1, n9=2)
    made(tmp_path, "consumequeue.previous", *(f"consumequeue.previous.{k}" for k in (5, 6, 11)))
    found, (note,) = swap.surplus_copies(str(tmp_path), (PART, "index"), record, 1)
    assert found == ["consumequeue.previous.2"]
    assert note.startswith(
        "consumequeue.previous.11, consumequeue.previous.6, consumequeue.previous.5 and 1 more: not known to be as a fetch"
    )


def test_only_copies_in_the_store_are_named(tmp_path: Path) -> None:
    """They are what the error for a full disk says may be removed: a record may name anything."""
    store = tmp_path / "store"
    record = recorded(store, n1=1, n3=2)
    made(store, "consumequeue.previous.2", "mine")
    for name in ("../store", "mine"):
        copy = Copy.of(str(store / name), 1)
        assert copy
        record.copies[name] = copy
    assert swap.copies(str(store), (PART, "index"), record) == ["consumequeue.previous", "consumequeue.previous.3"]


@pytest.mark.parametrize(
    ("name", "is_one"),
    [("index.previous", True), ("index.previous.2", True), ("index.previous.1", False), ("index.previous.02", False),
     ("index.previous\n", False), ("index.previous.2\n", False), ("../index.previous", False), ("index", False)],
)  # fmt: skip
def test_names_of_copies(name: str, is_one: bool) -> None:
    assert swap.is_name("index", name) is is_one


def test_what_goes_is_moved_away_first(tmp_path: Path) -> None:
    made(tmp_path, "consumequeue.previous/T/0", "work")
    swap.retire(Pinned(str(tmp_path)), ["consumequeue.previous"], str(tmp_path / "work" / "old"))
    assert [path.name for path in tmp_path.iterdir()] == ["work"]
    assert list((tmp_path / "work").iterdir()) == []
