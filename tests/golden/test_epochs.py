"""Stores of a controller group: what ``verify`` and ``inspect`` say of ``epochFileCheckpoint``."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.storage_format.checkpoints import BACKUP, FILE, Checkpoint, Epoch, write_epochs
from tests.golden.stores import GoldenStore
from tests.tools import spoil
from tests.tools.local_verify import kinds, local_verify

Stores = Callable[[str], GoldenStore]


@pytest.fixture(scope="module")
def places(golden_store: Stores) -> list[int]:
    """The offsets of all records of the store, and its log's end."""
    table = rr.messages(golden_store("basic-5.5").path, columns=["commitLogOffset", "msgSize"]).read_all()
    offsets = table["commitLogOffset"].to_pylist()
    return [*offsets, offsets[-1] + table["msgSize"].to_pylist()[-1]]


@pytest.fixture
def store(golden_store: Stores, tmp_path: Path) -> Path:
    return spoil.copy_store(golden_store("basic-5.5").path, tmp_path / "store")


def examples(store: Path) -> dict[str, list[str]]:
    summary = local_verify(store, only=("log",))
    return {kind["kind"]: [example["text"] for example in kind["examples"]] for kind in summary.findings}


def test_sound_epochs(store: Path, places: list[int]) -> None:
    """At records, and the last one at the log's end, where a master began that has written nothing."""
    (store / FILE).write_bytes(write_epochs([Epoch(1, 0), Epoch(2, places[700]), Epoch(5, places[-1])]))
    summary = local_verify(store, only=("log",))
    assert (summary.exit, kinds(summary)) == (0, {})
    assert f"{FILE}: 3 epochs, the last one is 5, from offset {places[-1]} on" in summary.notes


def test_epochs_that_begin_nowhere(store: Path, places: list[int]) -> None:
    (store / FILE).write_bytes(write_epochs([Epoch(1, 0), Epoch(2, places[700] + 1), Epoch(3, places[-1] + 1)]))
    found = examples(store)
    assert list(found) == ["epoch-offset"]
    assert found["epoch-offset"] == [
        f"epoch 2 begins at offset {places[700] + 1}, where no record begins: bad magic code",
        f"epoch 3 begins at offset {places[-1] + 1}, which lies behind the log's end at {places[-1]}",
    ]


@pytest.mark.parametrize(
    ("data", "backup", "told"),
    [
        (b"", True, "line 1: line that is no number where one should be: a broker does not start"),
        (b"2\n7\n1-0\n2-5\n", True, f"line 2: CRC that is not that of the entries: a broker takes {BACKUP}"),
        (b"2\n7\n1-0\n2-5\n", False, "line 2: CRC that is not that of the entries: a broker takes no epoch"),
        (None, True, f"is not there: a broker takes {BACKUP}"),
    ],
)
def test_files_that_a_broker_does_not_take(data: bytes | None, backup: bool, told: str, store: Path) -> None:
    if data is not None:
        (store / FILE).write_bytes(data)
    if backup:
        (store / BACKUP).write_bytes(write_epochs([Epoch(1, 0)]))
    assert examples(store) == {"epoch-file": [told]}


def test_two_replicas(store: Path, places: list[int], tmp_path: Path) -> None:
    """Where they are the same by their epochs a slave cuts, and what differs behind that is no damage."""
    other = tmp_path / "other"
    shutil.copytree(store, other)

    def notes() -> list[str]:
        return [note for note in rr.verify(store, against=other, engine="local").notes if "epoch" in note]

    assert notes() == []
    (store / FILE).write_bytes(write_epochs([Epoch(1, 0), Epoch(2, places[700])]))
    assert notes() == ["only A has epochs of a controller group"]
    (other / FILE).write_bytes(write_epochs([Epoch(1, 0), Epoch(2, places[700])]))
    assert notes() == [f"epochs: the two logs are the same up to offset {places[-1]}, where both end"]
    (other / FILE).write_bytes(write_epochs([Epoch(1, 0), Epoch(3, places[900])]))
    cut = "a slave cuts what it has behind that, here A and B"
    assert notes() == [f"epochs: the two logs are the same up to offset {places[700]}, {cut}"]
    (other / FILE).write_bytes(write_epochs([Epoch(4, 0)]))
    assert notes() == ["epochs: the stores have none in common: a slave with the one log does not join a master with the other"]


@pytest.mark.parametrize("within", [0, 9])
def test_records_that_are_not_confirmed(within: int, store: Path, places: list[int]) -> None:
    """They are told, and no difference: any broker has such after a kill. A slave confirms bytes, not records."""
    records, first = len(places) - 1, 700

    def suspects(confirmed: int) -> list[str]:
        (store / "checkpoint").write_bytes(Checkpoint(confirm_offset=confirmed).to_bytes())
        summary = local_verify(store, only=("log",))
        assert (summary.exit, kinds(summary)) == (0, {})
        return [note for note in summary.notes if note.startswith("suspect: ")]

    assert suspects(places[first]) == []
    (store / FILE).write_bytes(write_epochs([Epoch(1, 0)]))
    confirmed = places[first] + within
    (note,) = suspects(confirmed)
    told = f"{records - first:,} records from offset {places[first]} on, which end behind the confirmed offset {confirmed}: "
    assert note.removeprefix("suspect: ").startswith(told)
    assert suspects(places[-1]) == suspects(places[-2]) == suspects(0) == []


def test_inspect(store: Path, places: list[int]) -> None:
    (store / FILE).write_bytes(write_epochs([Epoch(1, 0), Epoch(2, places[700])]))
    shutil.copy(store / FILE, store / BACKUP)
    for name in (FILE, BACKUP):
        found: Any = rr.inspect(store / name, records=True)
        assert (found.kind, found["epochs"], found["isRead"], found["findings"]) == (FILE, 2, True, [])
        assert list(found.records) == [
            {"epoch": 1, "startOffset": 0, "endOffset": places[700]},
            {"epoch": 2, "startOffset": places[700], "endOffset": None},
        ]
    (store / FILE).write_bytes(b"1\n\x1b[31m\n")
    found = rr.inspect(store / FILE)
    assert (found["epochs"], found["findings"][0]["code"]) == (0, "epoch-number")
