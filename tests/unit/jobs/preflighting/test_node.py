"""Preflights of a node of DLedger that need no broker: which log it reads, what it has lost, and what is refused by name."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.golden.stores import GoldenStore
from tests.preflight.spoil_dledger import INDEX_FILE, data_files, entries_in
from tests.unit.jobs.preflighting.told import error_of, kinds, told

NODE = "enableDLegerCommitLog=true\n"


@pytest.fixture
def store(golden_store: Callable[[str], GoldenStore], tmp_path: Path) -> Path:
    """A copy of a store that a node of 5.3.3 wrote."""
    copy = Path(shutil.copytree(golden_store("dledger-5.3").path, tmp_path / "store"))
    os.truncate(index_of(copy), INDEX_FILE)
    return copy


def index_of(store: Path) -> Path:
    return store / "dledger-n0" / "index" / f"{0:020d}"


def conf(store: Path, text: str) -> Path:
    path = store.with_name("broker.conf")
    path.write_text(NODE + text)
    return path


def checkpoint(store: Path, committed: int) -> None:
    (store / "dledger-n0" / "checkpoint").write_text(f"endIndex={committed}\ncommittedIndex={committed}\n")


# ------------------------------------------------------------------------------------------------- what the checkpoint knows


def test_committed_entries_that_are_gone_are_a_loss(store: Path) -> None:
    assert (told(store).exit_status, kinds(told(store))) == (0, [])
    paths = data_files(store)
    entries = sum(len(entries_in(path)) for path in paths)
    last = len(entries_in(paths[-1]))
    (store / "abort").touch()
    paths[-1].write_bytes(bytes(8192))
    found = told(store)
    (loss,) = (loss for loss in found.losses if loss["kind"] == "entries-committed-lost")
    assert (found.exit_status, loss["count"]) == (4, last)
    assert (
        f"up to index {entries - 1} committed, and after the start the log has them up to {entries - last - 1}" in loss["text"]
    )
    assert "copies its log from the leader" in loss["advice"][0]


def test_a_log_that_is_taken_for_empty_lacks_all_that_is_committed(store: Path) -> None:
    first, *others = data_files(store)
    first.write_bytes(bytes(8192))
    for path in others:
        path.unlink()
    found = told(store)
    (loss,) = (loss for loss in found.losses if loss["kind"] == "entries-committed-lost")
    assert (found.exit_status, loss["count"]) == (4, -1)
    assert "takes its log for empty" in loss["text"]


@pytest.mark.parametrize("position", [1 << 40, -48, 1])
def test_an_index_that_lies_of_the_last_committed_entry_is_refused(position: int, store: Path) -> None:
    """Nobody walks so far back that the index is compared."""
    checkpoint(store, 1)
    assert told(store).exit_status == 0
    with index_of(store).open("r+b") as file:
        file.seek(32 + 4)
        file.write(struct.pack(">q", position))
    assert "has another place for entry 1, the last committed one" in error_of(store)


# ------------------------------------------------------------------------------------------------------------ which log it is


def test_a_node_reads_its_own_log_alone(store: Path) -> None:
    found = error_of(store, broker_conf=conf(store, "dLegerSelfId=n1\n"))
    assert "dledger-n1/data: holds no log of DLedger of dLegerSelfId=n1" in found
    in_conf = store.with_name("broker.conf")
    in_conf.write_text(f"{NODE}dLegerSelfId=n1\nstorePathRootDir={store}\nstorePathCommitLog={store}/commitlog\n")
    assert "holds no log of DLedger" in error_of(store, broker_conf=in_conf)
    named = store / "dledger-n0" / "data"
    assert "holds no log of DLedger" in error_of(store, broker_conf=in_conf, commitlog=[named])


def test_of_two_logs_the_conf_says_which(store: Path) -> None:
    shutil.copytree(store / "dledger-n0" / "data", store / "dledger-n1" / "data")
    data_files(store)[0].write_bytes(bytes(8192))
    assert "has the logs of 2 nodes" in error_of(store)
    for name in ("n0", "n1"):
        found = told(store, broker_conf=conf(store, f"dLegerSelfId={name}\n"))
        assert any(f"dledger-{name}/data: a log of DLedger" in note for note in found.notes)
        assert all(
            f"--commitlog {store}/dledger-{name}/data" in command for loss in found.losses for command in loss["commands"]
        )


def test_a_log_that_lies_elsewhere_is_refused(store: Path) -> None:
    said = error_of(store, broker_conf=conf(store, "dLegerSelfId=n0\nstorePathDLedgerCommitLog=/elsewhere\n"))
    assert "has storePathDLedgerCommitLog=/elsewhere: preflight knows a log of DLedger only in" in said
    own = store / "dledger-n0" / "data"
    assert told(store, broker_conf=conf(store, f"dLegerSelfId=n0\nstorePathDLedgerCommitLog={own}\n")).exit_status == 0


def test_what_is_no_log_is_refused(store: Path) -> None:
    first, *others = data_files(store)
    first.write_bytes(b"\x1f\x8b\x08\0" + bytes(range(1, 200)) * 41 + bytes(29))
    for path in others:
        path.unlink()
    (store / "dledger-n0" / "checkpoint").unlink()
    assert "does not begin with a RocketMQ record" in error_of(store)


@pytest.mark.parametrize("make", [Path.touch, os.mkfifo])
def test_a_file_in_the_place_of_the_index_is_refused(make: Callable[[Path], None], store: Path) -> None:
    shutil.rmtree(store / "dledger-n0" / "index")
    make(store / "dledger-n0" / "index")
    assert "dledger-n0/index: is no folder" in error_of(store)


# ------------------------------------------------------------------------------------------------------------ what is not known


@pytest.mark.parametrize("switch", ["enableLmq", "enableConsumeQueueExt"])
def test_what_nothing_proves_is_refused_by_name(switch: str, store: Path) -> None:
    assert f"has {switch}=true: preflight does not know" in error_of(store, broker_conf=conf(store, f"{switch}=true\n"))


def test_units_with_extensions_are_refused_without_a_conf(store: Path) -> None:
    (store / "consumequeue_ext").mkdir()
    assert "a node of DLedger with enableConsumeQueueExt=true" in error_of(store)
    assert told(store, broker_conf=conf(store, "")).exit_status == 0


@pytest.mark.parametrize("text", ["", "1-0\n"])
def test_epochs_beside_a_log_of_dledger_are_not_read(text: str, store: Path) -> None:
    (store / "epochFileCheckpoint").write_text(text)
    found = told(store)
    assert (found.exit_status, kinds(found)) == (0, [])
    assert not any("as master" in note for note in found.notes)
    assert any("epochFileCheckpoint: a broker without enableControllerMode" in note for note in found.notes)
