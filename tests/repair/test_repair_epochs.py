"""The epochs of a controller group in a repair: they go with the log, cut where it is, and never in silence."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.building.summary import RepairResult
from rocketmq_reindex.jobs.fetching.build import find_build
from rocketmq_reindex.storage_format.checkpoints import BACKUP, FILE, Checkpoint, Epoch, write_epochs
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


def repaired(store: Path | str, out: Path, **settings: Any) -> RepairResult:
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
    (whole.store / FILE).write_bytes((store / FILE).read_bytes())
    told = repaired(store, tmp_path / "out", replicas=(str(whole.store),), extend=True)
    assert of_epochs(told) == []
    assert not [text for text in told.warnings if "epochs" in text]
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


def test_records_of_later_epochs_have_these(whole: Log, store: Path, tmp_path: Path) -> None:
    """A folder of segments has the epochs of its store."""
    (store / FILE).write_bytes(write_epochs(epochs_of(whole)[:2]))
    later = [*epochs_of(whole), Epoch(9, whole.puts[-1].offset + 10_000)]
    (whole.store / FILE).write_bytes(write_epochs(later))
    told = repaired(store, tmp_path / "out", replicas=(str(whole.store / "commitlog"),), extend=True)
    assert (tmp_path / "out" / FILE).read_bytes() == write_epochs(later[:3])
    taken, cut = of_epochs(told)
    assert taken.startswith(f"{FILE}: has epochs of replica 1, too, from offset {later[2].start} on")
    assert cut.startswith(f"{FILE}: 1 epoch, from 9 at offset {later[3].start} on, left out")
    assert kinds(local_verify(tmp_path / "out", None, **SIZES)) == {}
    # Without --extend none of these records is there, nor their epochs.
    told = repaired(store, tmp_path / "short", replicas=(str(whole.store),))
    assert (tmp_path / "short" / FILE).read_bytes() == (store / FILE).read_bytes()
    assert of_epochs(told) == []


@pytest.mark.parametrize(("mine", "others", "parted"), [
    ([(1, 0)], [(1, 0), (7, 30)], 30),
    ([(1, 0), (2, NEXT)], [(1, 0), (7, NEXT)], NEXT),
    ([(1, 0), (2, NEXT)], [(1, 0)], NEXT),
    ([(2, 0)], [(3, 0)], 0),
])  # fmt: skip
def test_no_record_gets_the_epoch_of_another_master(
    mine: list[tuple[int, int]], others: list[tuple[int, int]], parted: int, whole: Log, store: Path, tmp_path: Path
) -> None:
    for place, entries in ((store, mine), (whole.store, others)):
        (place / FILE).write_bytes(write_epochs([Epoch(number, whole.puts[at].offset) for number, at in entries]))
    settings: dict[str, Any] = {"segment_size": SEGMENT, "replicas": (str(whole.store),)} | SIZES
    told = local_repair(store, tmp_path / "out", **settings, extend=True)
    assert told.exit == 5
    assert told.error is not None
    assert f"another master wrote what it has from offset {whole.puts[parted].offset} on" in told.error
    # It is told, too, where its bytes may mend what lies before the end.
    told = local_repair(store, tmp_path / "mended", **settings)
    warned = [text for text in told.warnings if text.startswith("--replica: replica 1: by its epochs another master wrote")]
    assert (told.error, len(warned)) == (None, int(parted < CUT))


def test_epochs_that_one_of_them_lacks(whole: Log, store: Path, tmp_path: Path) -> None:
    told = repaired(store, tmp_path / "out", replicas=(str(whole.store),), extend=True)
    end = whole.puts[CUT].offset
    says = f"has no epochs: nothing says whether the masters of what was taken from offset {end} on"
    assert [text for text in told.warnings if text.startswith(f"--replica: replica 1 {says}")]
    assert (tmp_path / "out" / FILE).read_bytes() == (store / FILE).read_bytes()
    (store / FILE).rename(whole.store / FILE)
    told = repaired(store, tmp_path / "none", replicas=(str(whole.store),), extend=True)
    assert [text for text in told.warnings if text.startswith(f"--replica: the store {says}")]
    assert of_epochs(told) == [f"{FILE}: is left out, since the store has none, and replica 1 has one"]
    assert not (tmp_path / "none" / FILE).exists()
    # A replica that cannot be used is no error.
    (whole.store / FILE).write_bytes(bytes(2 << 20))
    told = repaired(store, tmp_path / "unread", replicas=(str(whole.store),))
    assert [text for text in told.warnings if text.startswith("--replica: replica 1: its epochs cannot be read: ")]


def test_a_file_that_ends_the_start_of_a_broker(store: Path, tmp_path: Path) -> None:
    """As ``preflight`` says: with that moved away the broker takes the other one."""
    (store / FILE).write_bytes(b"")
    (store / BACKUP).write_bytes(write_epochs([Epoch(1, 0)]))
    (told,) = of_epochs(repaired(store, tmp_path / "out"))
    assert told.startswith(f"{FILE}: no broker starts with it (line 1: line that is no number where one should be): ")
    assert (tmp_path / "out" / FILE).read_bytes() == write_epochs([Epoch(1, 0)])


def test_a_file_that_is_too_large_ends_it_before_the_log_is_copied(store: Path, tmp_path: Path) -> None:
    (store / FILE).write_bytes(bytes(2 << 20))
    told = local_repair(store, tmp_path / "out", None, segment_size=SEGMENT, **SIZES)
    assert told.error is not None
    assert "has 2,097,152 bytes where at most" in told.error
    assert told.records == 0
    assert [text for text in rr.info(store).problems if "has 2,097,152 bytes where at most" in text]


def test_a_log_without_its_store(store: Path, tmp_path: Path) -> None:
    told = repaired("", tmp_path / "out", commitlogs=(str(store / "commitlog"),))
    assert [text for text in of_epochs(told) if "is left out, since no STORE is named" in text]
