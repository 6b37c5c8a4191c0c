"""``repair --to-plain --replica``: the other nodes of a group are compared, and one that has more is named."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.golden.test_dledger import data_of, entries_of, offset_of, spoil, store
from tests.golden.test_to_plain import all_files, plain

__all__ = ["store"]


@pytest.fixture
def other(store: Path, tmp_path: Path) -> Path:
    """The store of another node: the same log, in a folder of its own name."""
    shutil.copytree(store / "dledger-n0", tmp_path / "other" / "dledger-n1")
    return tmp_path / "other"


def of_nodes(store: Path, out: Path, *others: Path, size: int = 0, status: int = 0) -> list[str]:
    """The warnings about other nodes."""
    told = plain(store, out, size, replicas=tuple(map(str, others)))
    assert (told.exit, told.error) == (status, None)
    return [text for text in told.warnings if text.startswith("--replica")]


def test_a_node_with_the_same_log(store: Path, other: Path, tmp_path: Path) -> None:
    assert of_nodes(store, tmp_path / "out", other) == []
    assert of_nodes(store, tmp_path / "again", other / "dledger-n1" / "data", size=700) == []
    plain(store, tmp_path / "alone")
    assert all_files(tmp_path / "alone") == all_files(tmp_path / "out") == all_files(tmp_path / "again")


def test_a_byte_that_no_checksum_covers(store: Path, other: Path, tmp_path: Path) -> None:
    number = 30
    path, at, size = entries_of(store)[number]
    place = other / "dledger-n1" / "data" / path.name, at, size
    spoil(place, size - 3, b"#")
    (text,) = of_nodes(store, tmp_path / "out", other)
    assert text.startswith(f"--replica 1 ({other}): has other bytes than this log in entries that are sound here: 1 byte, the ")
    assert f"first at offset {offset_of(place) + size - 3} (offset {offset_of(place) + 48}: record of " in text


def test_a_node_that_is_behind(store: Path, other: Path, tmp_path: Path) -> None:
    path, at, size = entries_of(store)[90]
    behind = entries_of(store)[90:]
    for later, start, count in behind:
        spoil((other / "dledger-n1" / "data" / later.name, start, count), 0, bytes(count))
    (other / "dledger-n1" / "checkpoint").write_text("committedIndex=89\n")
    (text,) = of_nodes(store, tmp_path / "out", other)
    assert ": lacks " in text
    assert (path, at, size) == behind[0]
    # Named the other way round it is the one that has less.
    told = plain(other, tmp_path / "less", replicas=(str(store),))
    assert told.exit == 1
    assert (
        f"--replica 1 ({store}): knows entries of DLedger up to index 95 as committed, and this log has them up to 89"
        in str(told.error)
    )
    assert not (tmp_path / "less").exists()


@pytest.mark.parametrize("size", [0, 700])
def test_what_is_not_committed_is_not_compared(size: int, store: Path, other: Path, tmp_path: Path) -> None:
    for one in (store / "dledger-n0", other / "dledger-n1"):
        (one / "checkpoint").write_text("committedIndex=90\n")
    for number, told in ((91, 0), (90, 1)):
        path, at, count = entries_of(store)[number]
        spoil((other / "dledger-n1" / "data" / path.name, at, count), count - 3, b"#")
        assert len(of_nodes(store, tmp_path / f"out-{number}", other, size=size)) == told


@pytest.mark.parametrize("size", [0, 700])
def test_a_node_that_has_what_is_damaged_here(size: int, store: Path, other: Path, tmp_path: Path) -> None:
    place = entries_of(store)[40]
    spoil(place, 0, b"\x11" * place[2])
    (text,) = of_nodes(store, tmp_path / "out", other, size=size, status=3)
    assert ": has other bytes where this log is damaged: " in text


def test_a_place_that_is_no_node(store: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for place in (tmp_path / "empty", tmp_path / "nowhere", data_of(store).parent):
        told = plain(store, tmp_path / "out", replicas=(str(place),))
        wrong = "holds no log of DLedger" if place.exists() else "is not there"
        assert (told.exit, wrong in str(told.error)) == (1, True), place
