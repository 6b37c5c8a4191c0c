"""The epochs of a controller group in a repair: they go with the log, cut where it is, and never in silence."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.building.summary import RepairResult
from rocketmq_reindex.jobs.fetching.build import find_build
from rocketmq_reindex.storage_format.checkpoint import Checkpoint
from rocketmq_reindex.storage_format.epochs import BACKUP, FILE, Epoch, write_epochs
from tests.builds.repair_log import SEGMENT, SIZES, Log, log_of, make_log
from tests.tools.local_engine import local_repair
from tests.tools.local_verify import kinds, local_verify
from tests.tools.stale_log import copy_log

CUT, NEXT = 40, 50


@pytest.fixture
def whole(tmp_path: Path) -> Log:
    return make_log(tmp_path / "whole", 2)


@pytest.fixture
def store(whole: Log, tmp_path: Path) -> Path:
    """Its log ends with record CUT - 1; the epoch behind that began with record NEXT."""
    store, end = tmp_path / "store", whole.puts[CUT].offset
    copy_log(whole.store, store)
    for path in sorted((store / "commitlog").iterdir()):
        kept = max(0, end - int(path.name))
        path.write_bytes(path.read_bytes()[:kept].ljust(SEGMENT, b"\0"))
    (store / FILE).write_bytes(write_epochs(epochs_of(whole)))
    return store


def epochs_of(whole: Log) -> list[Epoch]:
    return [Epoch(1, 0), Epoch(3, whole.puts[20].offset), Epoch(4, whole.puts[NEXT].offset)]


def repaired(store: Path, out: Path, **settings: Any) -> RepairResult:
    told = local_repair(store, out, segment_size=SEGMENT, **(SIZES | settings))
    assert told.error is None, told.error
    return told


def of_epochs(told: RepairResult) -> list[str]:
    return [text for text in told.warnings if text.startswith(FILE)]


def test_they_are_cut_with_the_log(whole: Log, store: Path, tmp_path: Path) -> None:
    before, out = (store / FILE).read_bytes(), tmp_path / "out"
    assert "epoch-offset" in kinds(local_verify(store, only=("log",)))
    told = repaired(store, out)
    end, left_out = whole.puts[CUT].offset, epochs_of(whole)[2]
    assert of_epochs(told) == [
        f"{FILE}: 1 epoch, from 4 at offset {left_out.start} on, left out: the new log ends at {end}"
    ]  # fmt: skip
    assert (out / FILE).read_bytes() == write_epochs(epochs_of(whole)[:2])
    assert (store / FILE).read_bytes() == before
    assert kinds(local_verify(out, None, **SIZES)) == {}
    # As the new log: no fetch puts it into a store.
    assert FILE in find_build(str(out)).own
    again = repaired(out, tmp_path / "again")
    assert of_epochs(again) == []
    assert (tmp_path / "again" / FILE).read_bytes() == (out / FILE).read_bytes()


def test_a_log_that_a_replica_makes_whole_has_all(whole: Log, store: Path, tmp_path: Path) -> None:
    told = repaired(store, tmp_path / "out", replicas=(str(whole.store),), extend=True)
    assert of_epochs(told) == []
    assert (tmp_path / "out" / FILE).read_bytes() == (store / FILE).read_bytes()


def test_one_that_begins_at_the_end_stays(whole: Log, store: Path, tmp_path: Path) -> None:
    """So does one of a master that has written nothing."""
    (store / FILE).write_bytes(write_epochs([Epoch(1, 0), Epoch(2, whole.puts[CUT].offset)]))
    assert of_epochs(repaired(store, tmp_path / "out")) == []
    assert (tmp_path / "out" / FILE).read_bytes() == (store / FILE).read_bytes()


def test_records_that_are_not_confirmed_are_kept_and_told(whole: Log, store: Path, tmp_path: Path) -> None:
    (store / FILE).write_bytes(write_epochs([Epoch(1, 0)]))
    confirmed, end = whole.puts[NEXT - 20].offset, whole.puts[CUT].offset
    (store / "checkpoint").write_bytes(Checkpoint(confirm_offset=confirmed).to_bytes())
    told = f"suspect: {CUT - NEXT + 20} records from offset {confirmed} on, which end behind the confirmed offset {confirmed}: "
    assert [text for text in rr.info(store).problems if text.startswith(told)]
    (warning,) = (text for text in repaired(store, tmp_path / "out").warnings if text.startswith(told))
    assert warning.endswith("The new log keeps them, and by its checkpoint they are confirmed")
    assert log_of(tmp_path / "out")[:end] == log_of(store)[:end]
    assert [text for text in repaired(tmp_path / "out", tmp_path / "again").warnings if text.startswith("suspect: ")] == []


def test_files_that_no_broker_reads(whole: Log, store: Path, tmp_path: Path) -> None:
    (store / FILE).write_bytes(b"1\n7\n1-0\n")
    (told,) = of_epochs(repaired(store, tmp_path / "neither"))
    assert told.startswith(f"{FILE}: is left out, since the store has none that a broker reads: ")
    assert not (tmp_path / "neither" / FILE).exists()
    (store / BACKUP).write_bytes(write_epochs([Epoch(1, 0)]))
    (told,) = of_epochs(repaired(store, tmp_path / "backup"))
    assert told == f"{FILE}: is made of {BACKUP}, as a broker does: the last change is missing"
    assert (tmp_path / "backup" / FILE).read_bytes() == write_epochs([Epoch(1, 0)])
    (store / FILE).write_bytes(write_epochs([Epoch(1, whole.puts[NEXT].offset)]))
    (told,) = of_epochs(repaired(store, tmp_path / "behind"))
    assert f"since all begin behind the log's end at {whole.puts[CUT].offset}" in told
    assert not (tmp_path / "behind" / FILE).exists()
    shutil.rmtree(tmp_path / "behind")
