"""Stores of a controller group: what preflight says of their epochs, and what real stores then do as master and as slave.

Until the controller gives a broker its role it is fenced, as here (``ReplicasManager``). ``make slow`` runs 5.3.3, too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.preflighting.options import preflight_settings
from rocketmq_reindex.jobs.preflighting.run import Preflight, PreflightResult
from rocketmq_reindex.storage_format.checkpoints import BACKUP, FILE, Checkpoint, Epoch, write_epochs
from rocketmq_reindex.storage_format.errors import NoListener
from tests.preflight.bases import complete
from tests.preflight.compare import Outcome, compare
from tests.preflight.disk import read_disk
from tests.preflight.log_walk import read_log
from tests.preflight.predicted import predict
from tests.preflight.real import RealStores
from tests.preflight.settings import Conf, Sizes
from tests.preflight.sweep import end_of as log_end, last_bytes
from tests.tools.log_writer import LogWriter, Put
from tests.tools.make_log import Message

SEGMENT = 1 << 14
CONF = Conf(Sizes(SEGMENT, 4000, 50, 400), {"enableControllerMode": "true"})
RECORDS, SHORT = 200, 50


@pytest.fixture(scope="module", params=[pytest.param("5.3.3", marks=pytest.mark.slow), "5.5.1"])
def real(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealStores]:
    with RealStores(request.param, tmp_path_factory.mktemp("groups")) as stores:
        yield stores


def write(
    store: Path, records: int, topics: Mapping[int, str] = MappingProxyType({}), *, other_from: int = RECORDS
) -> list[Put]:
    """Records, with other bodies from one on; some of other ``topics``."""
    with LogWriter(store / "commitlog", SEGMENT) as writer:
        for number in range(records):
            body = bytes([number >= other_from]) * 60
            topic = topics.get(number, "TopicA")
            writer.append(Message(topic=topic, queue_offset=number, body=body, properties={"KEYS": f"k{number}"}))
        return writer.puts


def confirm(store: Path, offset: int) -> None:
    """Have the store be of a group that has confirmed its log up to ``offset``."""
    (store / FILE).write_bytes(write_epochs([Epoch(1, 0)]))
    checkpoint = Checkpoint.from_bytes((store / "checkpoint").read_bytes())
    (store / "checkpoint").write_bytes(dataclasses.replace(checkpoint, confirm_offset=offset).to_bytes())


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
        became = real.slave(slave, master, 9, copies=name == "cut")
        assert became.said.max_offset == (short if name == "uncut" else end_of(puts))
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


def test_a_tail_that_a_slave_has_cut_comes_back(real: RealStores, tmp_path: Path) -> None:
    """A slave cuts its segment in memory alone: the records that it drops stay on the disk, and a start after a crash takes
    those that begin where its copy ends. They are then of the new master's epoch, so it never cuts them again."""
    slave, joined, parted, copied = tmp_path / "slave", tmp_path / "joined", 20, 30
    puts = write(slave, SHORT, other_from=parted)
    own = log_of(slave)
    write(joined, copied)
    complete(real, slave, CONF.sizes)
    confirm(slave, puts[parted].offset)
    epochs = [Epoch(1, 0), Epoch(9, puts[parted].offset)]
    (joined / FILE).write_bytes(write_epochs(epochs))
    for store in (joined, slave):
        assert real.start(store, CONF).loads
    real.master(joined, 10)
    became = real.slave(slave, joined, 10)
    assert (became.said.max_offset, became.epochs[:2]) == (puts[copied].offset, ("1-0", f"9-{puts[parted].offset}"))
    real.die()
    at = puts[copied].offset
    assert log_of(slave)[:at] == log_of(joined)[:at]
    assert log_of(slave)[at : end_of(puts)] == own[at : end_of(puts)]
    # What is suspect: records that the group has confirmed nothing of, by the checkpoint that the crash left.
    found = said(slave, real)
    assert (found["exit"], kinds(found, "warnings")) == (0, {"log-tail-suspect": SHORT - parted})
    assert f"from offset {puts[parted].offset} on" in found["warnings"][0]["text"]
    notes = rr.verify(slave, engine="local", broker_version=real.release).notes
    assert [note for note in notes if note.startswith("suspect:")] != []
    assert real.start(slave, CONF).max_offset == found["log"]["max_offset"] == end_of(puts)
    # The master has gone on meanwhile, in the epoch that the slave knows.
    master = tmp_path / "master"
    more = write(master, RECORDS)
    (master / FILE).write_bytes(write_epochs(epochs))
    assert real.start(master, CONF).loads
    real.master(master, 11)
    assert real.slave(slave, master, 11).said.max_offset == end_of(more)
    logs, end = [log_of(store)[: end_of(more)] for store in (slave, master)], end_of(puts)
    assert logs[0][at:end] == own[at:end] != logs[1][at:end]
    assert (logs[0][:at], logs[0][end:]) == (logs[1][:at], logs[1][end:])
    for store in (slave, master):
        real.close(store)
    against = rr.verify(slave, against=master, engine="local")
    assert against.exit_status == 4
    assert f"offset {at}" in str(against.findings)


def test_a_master_without_epochs(real: RealStores, tmp_path: Path) -> None:
    """A slave that has epochs copies nothing from it. One without a log, and without epochs, has all of it."""
    master = tmp_path / "master"
    end = end_of(write(master, RECORDS))
    found = said(master, real)
    assert f"controller group: no epoch: as master the broker begins its first one at offset {end}" in found["notes"]
    assert real.start(master, CONF).loads
    assert real.master(master, 9).epochs == (f"9-{end}",)
    for name in ("known", "new"):
        slave = tmp_path / name
        slave.mkdir()
        short = 0
        if name == "known":
            short = end_of(write(slave, SHORT))
            (slave / FILE).write_bytes(write_epochs([Epoch(1, 0)]))
        assert real.start(slave, CONF).loads
        became = real.slave(slave, master, 9, copies=name == "new")
        assert became.said.max_offset == (end if name == "new" else short)
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


@pytest.mark.parametrize(("abnormal", "confirmed", "more"), [
    (True, 30, {}), (True, 190, {}), (True, RECORDS, {}), (True, -1, {}),
    (False, 30, {}), (False, RECORDS - 1, {}), (False, RECORDS, {}), (False, -1, {}),
    (True, 30, {"recheckReputOffsetFromCq": "true"}), (True, 30, {"enableAcceleratedRecovery": "true"}),
])  # fmt: skip
def test_dispatch_goes_on_from_what_is_confirmed(
    real: RealStores, tmp_path: Path, abnormal: bool, confirmed: int, more: dict[str, str]
) -> None:
    """The recovery begins in the last segment; ``confirmed`` is a record, or none."""
    store, conf = tmp_path / "store", CONF.with_(**more)
    puts = write(store, RECORDS)
    complete(real, store, CONF.sizes)
    confirm(store, 0 if confirmed < 0 else end_of(puts[:confirmed]))
    if abnormal:
        (store / "abort").touch()
    found = said(store, real, **more)
    before, log, last = read_disk(store, 50), read_log(store / "commitlog", real.release, True), last_bytes(store)
    assert real.start(store, conf).loads
    told = real.master(store, 2).said
    after, end = read_disk(store, 50), log_end(last, told.max_offset)
    # It dispatches in front of where the recovery begins.
    outcome = Outcome(real.release, abnormal, told, before, after, log, *end, index_enabled=True, reputs=True)
    comparison = compare(found, outcome)
    assert comparison.differences == []
    assert comparison.counts["dispatch.records"] == 1
    # The recovery of 5.3.3 begins with the log, since the checkpoint has no time of its last records.
    if confirmed == 30 and "recheckReputOffsetFromCq" not in more and real.release != "5.3.3":
        assert found["dispatch"]["from_offset"] == puts[30].offset < SEGMENT
        assert found["dispatch"]["records"] >= RECORDS - 30
    real.leave(store)


@pytest.mark.parametrize("abnormal", [True, False])
@pytest.mark.parametrize("odd", ["inside a record", "a long topic", "a damaged record"])
def test_what_stands_behind_the_confirmed_offset(real: RealStores, tmp_path: Path, odd: str, abnormal: bool) -> None:
    """A broker of a group follows the records from there while it loads; one that is none of the first format ends the load.

    One that it refuses for its checksum ends that, and the log where the recovery meets it.
    """
    store = tmp_path / "store"
    puts = write(store, RECORDS, {120: "T" * 200} if odd == "a long topic" else {})
    complete(real, store, CONF.sizes)
    confirm(store, puts[30].offset + 7 * (odd == "inside a record"))
    if odd == "a damaged record":
        segment = store / "commitlog" / f"{0:020}"
        data = bytearray(segment.read_bytes())
        data[puts[50].offset + 120] ^= 1
        segment.write_bytes(data)
    if abnormal:
        (store / "abort").touch()
    found = said(store, real)
    started = real.start(store, CONF)
    # From the log's begin on, the recovery of 5.3.3 finds the last record that is confirmed.
    from_begin = real.release == "5.3.3" and abnormal and odd == "inside a record"
    assert (found["loads"], started.loads) == ((odd == "a damaged record" or from_begin,) * 2)
    if started.loads:
        real.leave(store)
    else:
        assert kinds(found) == {"confirmed-offset": 1}
        at = puts[120].offset if odd == "a long topic" else puts[30].offset + 7
        assert f"at offset {at} " in found["losses"][0]["text"]


@pytest.mark.parametrize("odd", ["inside a record", "a wrong length"])
def test_where_a_master_cuts_its_log(real: RealStores, tmp_path: Path, odd: str) -> None:
    """Its load passes over a size that is too large, and over a record that is refused. Who becomes master cuts there."""
    store = tmp_path / "store"
    puts = write(store, RECORDS)
    complete(real, store, CONF.sizes)
    confirm(store, puts[30].offset + 8 * (odd == "inside a record"))
    place = puts[30].offset + 8
    if odd == "a wrong length":
        place, segment = puts[50].offset, store / "commitlog" / f"{0:020}"
        data = bytearray(segment.read_bytes())
        data[place + 84 + 3] += 1
        segment.write_bytes(data)
    found = said(store, real)
    assert (found["loads"], kinds(found)["log-cut-as-master"]) == (True, 1)
    assert f"at offset {place}," in next(loss["text"] for loss in found["losses"] if loss["kind"] == "log-cut-as-master")
    started = real.start(store, CONF)
    assert (started.loads, started.max_offset) == (True, end_of(puts))
    # What its thread has dispatched by then stays.
    assert real.master(store, 2).said.max_offset in (place, end_of(puts))
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
