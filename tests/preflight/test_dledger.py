"""Stores of a node of DLedger: what a preflight says of a start is what the real node then does, alone in its group.

``python -m tests.preflight.dledger_sweep`` has many more of them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import shlex
import shutil
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.cli import main
from rocketmq_reindex.storage_format.checkpoints import Checkpoint
from rocketmq_reindex.storage_format.errors import InputError
from tests.preflight.bases import Base
from tests.preflight.dledger_sweep import LIFETIME, VERSIONS, copied, dledger, judged, make_base
from tests.preflight.predicted import predict
from tests.preflight.real import RealStart, RealStores
from tests.preflight.settings import Conf
from tests.preflight.spoil_dledger import NODE, data_files, entries_in
from tests.serving.programs import StepFailed

SEED = 3
COUNT = 5


@pytest.mark.parametrize("version", ["5.5.1", *(pytest.param(one, marks=pytest.mark.slow) for one in VERSIONS[:-1])])
def test_spoilt_stores(version: str, tmp_path: Path) -> None:
    with RealStores(version, tmp_path, LIFETIME) as real:
        found = list(judged(real, tmp_path, SEED, COUNT))
    assert [line for one in found for line in one.lines(version)] == []
    assert sum(one.comparison is not None for one in found) >= COUNT - 1


@dataclass
class World:
    """A real node, and a store that it wrote."""

    real: RealStores
    base: Base
    scratch: Path

    def copy(self, name: str) -> Path:
        store = self.scratch / name
        copied(self.base.path, store)
        return store

    def said(self, store: Path, **more: str) -> dict[str, Any]:
        answer = predict(store, self.real.release, self.conf(**more), self.scratch)
        assert isinstance(answer, dict), answer
        return answer

    def conf(self, **more: str) -> Conf:
        return Conf(self.base.sizes, dledger() | more)

    def start(self, store: Path, **more: str) -> RealStart:
        """Start it, and leave it."""
        told = self.real.start(store, self.conf(**more))
        if told.loads:
            self.real.leave(store)
        return told


@pytest.fixture(scope="module", params=["5.3.3", pytest.param("5.5.1", marks=pytest.mark.slow)])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    scratch = tmp_path_factory.mktemp("dledger")
    with RealStores(request.param, scratch, LIFETIME) as real:
        yield World(real, make_base(real, scratch / "base", 2), scratch)


def served(told: RealStart) -> int:
    assert told.queues is not None
    return sum(place >= 0 for queue in told.queues.values() for place in queue.served)


def run(command: str) -> None:
    for one in command.split(" && "):
        words = shlex.split(one)
        assert words[0] == "rmq-reindex"
        with contextlib.redirect_stdout(io.StringIO()):
            assert main([*words[1:], *(["--engine", "local"] if words[1] == "build" else [])]) == 0, one


def test_an_unclean_stop_hides_the_last_messages_and_advice_brings_them_back(world: World) -> None:
    """A node of 5.x that was killed cuts units of the last entries (``dledgerRecoverAbnormally`` counts no headers), and
    dispatches only what is not committed."""
    store, mended = world.copy("killed"), world.copy("mended")
    whole = served(world.start(world.copy("clean")))
    for killed in (store, mended):
        (killed / "abort").touch()
    if world.real.release == "5.5.1":
        # It asks the checkpoint how far the queues reach.
        unsaid = Path(shutil.copytree(store, world.scratch / "unsaid"))
        for killed, reach in ((unsaid, 0), (store, 1 << 40), (mended, 1 << 40)):
            checkpoint = Checkpoint.from_bytes((killed / "checkpoint").read_bytes())
            (killed / "checkpoint").write_bytes(dataclasses.replace(checkpoint, logics_offset=reach).to_bytes())
        assert "records-hidden" not in {loss["kind"] for loss in world.said(unsaid)["losses"]}
        assert served(world.start(unsaid)) == whole
    said = world.said(store)
    hidden = next(loss for loss in said["losses"] if loss["kind"] == "records-hidden")
    assert (said["exit"], hidden["count"] > 0) == (4, True)
    shutil.rmtree(mended / "consumequeue")
    assert "recheckReputOffsetFromCq=true" in hidden["advice"][-1]
    (command,) = hidden["commands"]
    assert served(world.start(store)) == whole - hidden["count"]
    run(command.replace(str(store), str(mended)))
    again = world.said(mended, recheckReputOffsetFromCq="true")
    assert (again["exit"], again["losses"]) == (0, [])
    assert served(world.start(mended, recheckReputOffsetFromCq="true")) == whole


def test_a_cut_names_the_leader(world: World) -> None:
    """An entry in the last file has another index: DLedger cuts there. No repair is advised: the leader has the bytes."""
    store = world.copy("cut")
    last = data_files(store)[-1]
    entries = entries_in(last)
    at, _ = entries[len(entries) // 2]
    with last.open("r+b") as file:
        file.seek(at + 8)
        file.write((1 << 40).to_bytes(8, "big"))
    said = world.said(store)
    (cut,) = (loss for loss in said["losses"] if loss["kind"] == "log-cut")
    assert (cut["count"], cut["commands"]) == (len(entries) - len(entries) // 2, [])
    assert "copies its log from the leader" in cut["advice"][0]
    assert said["log"]["max_offset"] == int(last.name) + at == world.start(store).max_offset
    assert any("of one node by itself" in note and "another leader" in note for note in said["notes"])


def test_an_index_that_is_moved_away_is_made_anew(world: World) -> None:
    store = world.copy("index")
    (file,) = (store / NODE / "index").iterdir()
    with file.open("r+b") as opened:
        opened.truncate(4096)
    said = world.said(store)
    (refusal,) = said["losses"]
    assert (said["loads"], refusal["kind"]) == (False, "entry-file-size")
    assert not world.start(store).loads
    assert "made anew where its folder is moved away" in refusal["advice"][0]
    shutil.move(store / NODE / "index", world.scratch / "old-index")
    assert world.said(store)["exit"] == 0
    assert world.start(store).loads


def test_what_is_not_known_is_refused_by_name(world: World) -> None:
    store = world.copy("unknown")
    for release, more, told in (
        ("5.5.1", {"storeType": "defaultRocksDB"}, "with a log of DLedger and queues in RocksDB"),
        ("5.3.3", {"enableDLegerCommitLog": "false"}, "which a broker without enableDLegerCommitLog=true does not read"),
        ("5.3.3", {"enableControllerMode": "true"}, "enableControllerMode=true"),
    ):
        try:
            answer = predict(store, release, world.conf(**more), world.scratch)
        except InputError as error:
            answer = str(error)
        assert told in str(answer)
    shutil.rmtree(store / NODE)
    assert "holds no log of DLedger" in str(predict(store, "5.3.3", world.conf(), world.scratch))


def test_only_a_node_that_ended_itself_did_not_start(world: World, tmp_path: Path) -> None:
    """A JVM that died of something else says nothing of the store."""
    store = world.copy("died")
    with RealStores(world.real.release, tmp_path) as real:
        assert real.start(store, world.conf()).loads
        assert real._program is not None
        process = real._program._process.pid
        # It has the step, and never takes it.
        os.kill(process, signal.SIGSTOP)
        threading.Timer(0.5, os.kill, (process, signal.SIGKILL)).start()
        with pytest.raises(StepFailed):
            real.start(world.copy("other"), world.conf())


def test_verify_of_a_node_that_was_killed_before_it_wrote_its_checkpoint(world: World) -> None:
    """It has dispatched more than its checkpoint says, and all of that is committed."""
    store, queues = world.copy("lagging"), [("TopicA", 0), ("TopicB", 0)]
    checkpoint = store / NODE / "checkpoint"
    before = checkpoint.read_bytes()
    assert world.real.start(store, world.conf()).loads
    puts = world.real.put(store, 1, 40, queues)
    assert world.real.look(store).behind == 0
    world.real.die()
    # As a kill within three seconds leaves it.
    checkpoint.write_bytes(before)
    found = rr.verify(store, engine="local", broker_version=world.real.release, only="consumequeue")
    assert (found.exit_status, found.findings) == (0, [])
    assert len([note for note in found.notes if "a broker dispatches no others" in note]) == 1
    assert found.units >= len(puts)
