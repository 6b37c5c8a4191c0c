"""Stores of a controller group: what preflight says of their epochs, and what real stores then do as master and as slave.

Until the controller gives a broker its role it is fenced, as here (``ReplicasManager``). ``make slow`` runs 5.3.3, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.preflighting.options import preflight_settings
from rocketmq_reindex.jobs.preflighting.run import Preflight, PreflightResult
from rocketmq_reindex.storage_format.checkpoint import Checkpoint
from rocketmq_reindex.storage_format.epochs import BACKUP, FILE, Epoch, write_epochs
from rocketmq_reindex.storage_format.errors import NoListener
from tests.preflight.predicted import predict
from tests.preflight.real import RealStores
from tests.preflight.settings import Conf, Sizes
from tests.tools.log_writer import LogWriter, Put
from tests.tools.make_log import Message

SEGMENT = 1 << 14
CONF = Conf(Sizes(SEGMENT, 4000, 50, 400), {"enableControllerMode": "true"})
RECORDS, SHORT = 200, 50


@pytest.fixture(scope="module", params=[pytest.param("5.3.3", marks=pytest.mark.slow), "5.5.1"])
def real(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealStores]:
    with RealStores(request.param, tmp_path_factory.mktemp("groups")) as stores:
        yield stores


def write(store: Path, records: int, other_from: int = RECORDS) -> list[Put]:
    """Records, with other bodies from one on."""
    with LogWriter(store / "commitlog", SEGMENT) as writer:
        for number in range(records):
            body = bytes([number >= other_from]) * 60
            writer.append(Message(queue_offset=number, body=body, properties={"KEYS": f"k{number}"}))
        return writer.puts


def log_of(store: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((store / "commitlog").iterdir()))


def end_of(puts: list[Put]) -> int:
    return puts[-1].offset + puts[-1].size


def said(store: Path, real: RealStores, **more: str) -> dict[str, Any]:
    found = predict(store, real.release, CONF.with_(**more), store.parent)
    assert isinstance(found, dict), found
    return found


def kinds(found: dict[str, Any], part: str = "losses") -> dict[str, int]:
    return {loss["kind"]: loss["count"] for loss in found[part]}


def test_a_file_of_epochs_that_ends_the_start(real: RealStores, tmp_path: Path) -> None:
    store = tmp_path / "store"
    write(store, 10)
    (store / FILE).write_bytes(b"")
    (store / BACKUP).write_bytes(write_epochs([Epoch(1, 0)]))
    found = said(store, real)
    assert (found["loads"], found["exit"], kinds(found)) == (False, 4, {"epoch-file": 1})
    assert "NumberFormatException" in real.start(store, CONF).reason
    # As it advises.
    (store / FILE).unlink()
    found = said(store, real)
    assert (found["loads"], kinds(found)) == (True, {})
    assert real.start(store, CONF).loads
    assert real.master(store, 2).epochs == ("1-0", f"2-{found['log']['max_offset']}")
    real.leave(store)


def test_epochs_behind_the_end_of_the_log(real: RealStores, tmp_path: Path) -> None:
    """A slave whose log was cut, and its epochs were not, copies nothing; with the epochs cut to its log it does."""
    master = tmp_path / "master"
    puts = write(master, RECORDS)
    epochs = [Epoch(1, 0), Epoch(3, puts[100].offset)]
    (master / FILE).write_bytes(write_epochs(epochs))
    found = said(master, real)
    assert (found["exit"], kinds(found), kinds(found, "warnings")) == (0, {}, {})
    assert any("as master the broker keeps the log up to" in note for note in found["notes"])
    assert real.start(master, CONF).loads
    became = real.master(master, 9)
    assert (became.changed, became.said.max_offset) == (True, found["log"]["max_offset"])
    assert became.epochs == ("1-0", f"3-{epochs[1].start}", f"9-{end_of(puts)}")
    for name, kept in (("uncut", epochs), ("cut", epochs[:1])):
        slave = tmp_path / name
        short = end_of(write(slave, SHORT))
        (slave / FILE).write_bytes(write_epochs(kept))
        found = said(slave, real)
        assert (found["exit"], kinds(found)) == ((4, {"epoch-behind-log": 1}) if name == "uncut" else (0, {}))
        assert real.start(slave, CONF).loads
        assert real.slave(slave, master, 9).said.max_offset == (short if name == "uncut" else end_of(puts))
        real.leave(slave)
    real.leave(master)


def test_two_that_parted(real: RealStores, tmp_path: Path) -> None:
    """The slave cuts its log where ``verify --against`` says. 5.5.1 leaves the epoch of what it cut in the file."""
    master, slave = tmp_path / "master", tmp_path / "slave"
    puts = write(master, RECORDS)
    parted = puts[100].offset
    write(slave, RECORDS, other_from=100)
    (master / FILE).write_bytes(write_epochs([Epoch(1, 0), Epoch(3, parted)]))
    (slave / FILE).write_bytes(write_epochs([Epoch(1, 0), Epoch(2, parted)]))
    notes = rr.verify(slave, against=master, engine="local").notes
    cut = "a slave cuts what it has behind that, here A and B"
    assert f"epochs: the two logs are the same up to offset {parted}, {cut}" in notes
    assert any("as slave it cuts" in note for note in said(slave, real)["notes"])
    for store in (master, slave):
        assert real.start(store, CONF).loads
    real.master(master, 9)
    # So the slave is at its end only when it has copied.
    real.put(master, 1, 3, [("TopicA", 0)])
    end = real.look(master).max_offset
    became = real.slave(slave, master, 9)
    assert became.said.max_offset == end > end_of(puts)
    own = f"{2 if real.release == '5.5.1' else 3}-{parted}"
    assert became.epochs == ("1-0", own, f"9-{end_of(puts)}")
    assert log_of(slave)[:end] == log_of(master)[:end]
    for store in (slave, master):
        real.leave(store)


def test_a_master_without_epochs(real: RealStores, tmp_path: Path) -> None:
    """A slave that has epochs copies nothing from it. One without a log, and without epochs, has all of it."""
    master = tmp_path / "master"
    end = end_of(write(master, RECORDS))
    found = said(master, real)
    assert f"controller group: no epoch: as master the broker begins its first one at offset {end}" in found["notes"]
    assert real.start(master, CONF).loads
    assert real.master(master, 9).epochs == (f"9-{end}",)
    for name, copied in (("known", SHORT), ("new", RECORDS)):
        slave = tmp_path / name
        slave.mkdir()
        short = 0
        if name == "known":
            short = end_of(write(slave, SHORT))
            (slave / FILE).write_bytes(write_epochs([Epoch(1, 0)]))
        assert real.start(slave, CONF).loads
        assert real.slave(slave, master, 9).said.max_offset == (short if copied == SHORT else end)
        real.leave(slave)
    real.leave(master)


def test_records_that_are_not_confirmed(real: RealStores, tmp_path: Path) -> None:
    """After a crash they get no unit until the broker is master: then it keeps them all, whoever wrote them."""
    store, confirmed = tmp_path / "store", 150
    puts = write(store, RECORDS)
    (store / FILE).write_bytes(write_epochs([Epoch(1, 0)]))
    (store / "checkpoint").write_bytes(Checkpoint(confirm_offset=puts[confirmed].offset + 7).to_bytes())
    (store / "abort").touch()
    found = said(store, real)
    assert (found["exit"], kinds(found, "warnings")) == (0, {"log-tail-suspect": RECORDS - confirmed})
    assert f"from offset {puts[confirmed].offset} on" in found["warnings"][0]["text"]
    started = real.start(store, CONF)
    assert (started.records, started.max_offset) == (confirmed, end_of(puts))
    became = real.master(store, 2).said
    assert became.queues is not None
    assert became.queues["TopicA", 0].max_offset == found["queues"][0]["max_offset"] == RECORDS
    real.leave(store)


@pytest.mark.parametrize(("release", "conf", "told"), [
    ("5.5.1", None, "controller group: 1 epoch in epochFileCheckpoint"),
    ("5.5.1", "brokerName=b\n", f"{FILE}: a broker without enableControllerMode, or of 4.9, does not read it"),
    ("4.9.8", "enableControllerMode=true\n", f"{FILE}: a broker without enableControllerMode, or of 4.9, does not read it"),
])  # fmt: skip
def test_whose_epochs_are_read(release: str, conf: str | None, told: str, tmp_path: Path) -> None:
    store, given = tmp_path / "store", dict[str, Any]()
    write(store, 10)
    (store / FILE).write_bytes(write_epochs([Epoch(1, 0)]))
    if conf is not None:
        (tmp_path / "conf").write_text(conf)
        given["broker_conf"] = str(tmp_path / "conf")
    result = PreflightResult()
    given |= {"store": str(store), "broker_version": release, "segment_size": SEGMENT}
    Preflight(preflight_settings(given), result, NoListener()).run()
    assert (result.exit, [note for note in result.notes if note.startswith(told)] != []) == (0, True)
