"""Queues that are in RocksDB alone, beside ConsumeQueue files of others: verify compares them with the log.

Both stores are of a real store of 5.5.1 with rocksdbCQDoubleWriteEnable and combineCQUseRocksdbForLmq: light queues have no
files. Records of a lite topic and of a plain one name the same light queues (``mixed_log``). lite-5.5 also had
rocksdbCQSelectiveDoubleWriteEnable: RocksDB has units of records of the lite topic alone. pairs.txt has all pairs of each, as
the jar of 5.5.1 reads them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.files.rocksdb import Database
from rocketmq_reindex.jobs.describing import queues as describing_queues
from rocketmq_reindex.jobs.describing.look import lines_of
from rocketmq_reindex.storage_format.queue import rocksdb as pairs
from rocketmq_reindex.storage_format.queue.rocksdb import QueueName
from rocketmq_reindex.udfs.queue_database import QueueDatabase
from tests.builds.test_rocksdb_queues import changed, unit
from tests.golden.stores import unpack
from tests.tools.local_engine import InlineEngine, local_build
from tests.tools.local_verify import kinds, local_verify

NAMES = ("lite-5.5", "light-5.5")
A, ODD, PLAIN = QueueName(b"%LMQ%$lite$a", 0), QueueName(b"%LMQ%odd", 0), QueueName(b"plain", 0)
SIZES: dict[str, Any] = {"cq_file_size": 6000, "hash_slots": 1000, "index_items": 20_000}
LOG_END = 1 << 16


@pytest.fixture
def lite(tmp_path: Path) -> Path:
    return unpack("lite-5.5", tmp_path).path


@pytest.fixture
def light(tmp_path: Path) -> Path:
    return unpack("light-5.5", tmp_path).path


def value_of(store: Path, queue: QueueName, offset: int) -> bytes:
    with Database(str(store / "consumequeue")) as database:
        value = database.get("default", unit(queue, offset))
    assert value is not None
    return value


@pytest.mark.parametrize("name", NAMES)
def test_pairs_as_the_jar_reads_them(name: str, tmp_path: Path) -> None:
    store = unpack(name, tmp_path).path
    with Database(str(store / "consumequeue")) as database:
        ours = [f"{kind}\t{key.hex()}\t{value.hex()}" for kind in ("default", "offset") for key, value in database.pairs(kind)]
    assert ours == (store / "pairs.txt").read_text().splitlines()


@pytest.mark.parametrize(("name", "alone", "units"), [("lite-5.5", 3, 182), ("light-5.5", 3, 244)])
@pytest.mark.parametrize("settings", [{}, {"lmq": True}, {"range_size": 700}, {"sample": 0.5}], ids=str)
def test_a_sound_store(name: str, alone: int, units: int, settings: dict[str, Any], tmp_path: Path) -> None:
    """Of lite-5.5 the units of plain records are not missed: 62 of light queues."""
    summary = local_verify(unpack(name, tmp_path).path, InlineEngine(3, 2), **settings)
    assert (summary.exit, kinds(summary), summary.units, summary.units_there) == (0, {}, units, units)
    assert "light queues have no files: those in RocksDB are compared with the log" in summary.notes
    text = f"{alone} queues in RocksDB alone, compared with the log"
    assert ("sample" in settings) or any(text in note for note in summary.notes)


def test_incremental(lite: Path, tmp_path: Path) -> None:
    """Twice, and once more with a unit that is lost; store times are not compared."""
    words: dict[str, Any] = {"incremental": True, "tables": str(tmp_path / "tables"), "work": str(tmp_path)}
    for _ in range(2):
        summary = local_verify(lite, **words)
        assert (summary.exit, kinds(summary), summary.units_there) == (0, {}, 182)
    assert "queues in RocksDB: --incremental compares no store times" in summary.notes
    value = value_of(lite, A, 1)
    changed(lite, {unit(A, 1): None, unit(A, 3): value_of(lite, A, 3)[:20] + bytes(8)})
    assert kinds(local_verify(lite, **words)) == {"queue-unit-missing": 1}
    assert kinds(local_verify(lite)) == {"queue-unit-missing": 1, "queue-unit-time": 1}
    changed(lite, {unit(A, 1): value})


def differences() -> Iterator[Any]:
    """(pairs by a store, family, kinds that verify finds, what the first example says)"""

    def field(at: int, size: int) -> Any:
        def spoil(store: Path) -> dict[bytes, bytes | None]:
            value = value_of(store, A, 1)
            return {unit(A, 1): value[:at] + bytes([value[at + size - 1] ^ 1] * size) + value[at + size :]}

        return spoil

    def copied(target: QueueName, offset: int, source: int) -> Any:
        return lambda store: {unit(target, offset): value_of(store, A, source)}

    far = LOG_END.to_bytes(8, "big") + (100).to_bytes(4, "big") + bytes(16)
    yield pytest.param(lambda _: {unit(A, 1): None}, "default", {"queue-unit-missing": 1}, "nothing instead", id="missing")
    yield pytest.param(field(8, 4), "default", {"queue-unit-size": 1}, "size", id="size")
    yield pytest.param(field(12, 8), "default", {"queue-unit-tags": 1}, "tagsCode", id="tags")
    yield pytest.param(field(20, 8), "default", {"queue-unit-time": 1}, "another store time", id="time")
    yield pytest.param(field(0, 8), "default", {"queue-unit-no-record": 1}, "instead of", id="place")
    yield pytest.param(copied(A, 3, 5), "default", {"queue-unit-other": 1}, "queue offset 3: ", id="other")
    yield pytest.param(
        lambda _: {pairs.end_key(A, True): None}, "offset", {"queue-unit-missing": None}, "no end in RocksDB", id="no-end"
    )
    yield pytest.param(
        lambda _: {pairs.end_key(A, True): pairs.end_value(1, 51)}, "offset", {"queue-unit-missing": None}, "", id="early-end"
    )
    yield pytest.param(
        lambda _: {pairs.end_key(A, True): pairs.end_value(1, 90)}, "offset", {"queue-end": 1}, "no unit", id="late-end"
    )
    yield pytest.param(
        lambda _: {pairs.end_key(QueueName(b"%LMQ%none", 0), True): pairs.end_value(1, 4)}, "offset",
        {"queue-end": 1}, "no unit", id="queue-without-units",
    )  # fmt: skip
    yield pytest.param(
        lambda _: {pairs.end_key(A, True): pairs.end_value(1, -5)}, "offset",
        {"queue-end": 1, "queue-unit-missing": None}, "", id="impossible-end",
    )  # fmt: skip
    yield pytest.param(lambda _: {unit(A, 60): far}, "default", {}, "", id="behind-the-end")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("spoil", "family", "found", "text"), [*differences()])
def test_spoilt(name: str, spoil: Any, family: str, found: dict[str, int | None], text: str, tmp_path: Path) -> None:
    store = unpack(name, tmp_path).path
    changed(store, spoil(store), family)
    summary = local_verify(store, InlineEngine(3, 2), range_size=3000)
    assert summary.exit == (4 if found else 0)
    assert kinds(summary).keys() == found.keys(), summary.to_text()
    assert all(count in (None, kinds(summary)[kind]) for kind, count in found.items())
    assert text in json.dumps(summary.findings)


@pytest.mark.parametrize("name", NAMES)
def test_units_beyond_the_log(name: str, tmp_path: Path) -> None:
    """A queue that goes on where the log has ended."""
    store = unpack(name, tmp_path).path
    changed(store, {unit(A, 60): (LOG_END + 99).to_bytes(8, "big") + (100).to_bytes(4, "big") + bytes(16)})
    changed(store, {pairs.end_key(A, True): pairs.end_value(LOG_END + 99, 60)}, "offset")
    assert kinds(local_verify(store)) == {"queue-unit-no-record": 1}


@pytest.mark.parametrize("name", NAMES)
def test_a_queue_of_which_the_log_has_nothing(name: str, tmp_path: Path) -> None:
    store, none = unpack(name, tmp_path).path, QueueName(b"%LMQ%none", 0)
    changed(store, {unit(none, 0): value_of(store, A, 1)})
    changed(store, {pairs.end_key(none, True): pairs.end_value(1, 0)}, "offset")
    summary = local_verify(store)
    assert kinds(summary) == {"queue-unit-extra": 1}
    assert any("4 queues in RocksDB alone, compared with the log" in note for note in summary.notes)


def test_units_of_plain_records(lite: Path) -> None:
    """They need not be there. One that is there has to be right."""
    light = unpack("light-5.5", lite.parent).path
    with Database(str(lite / "consumequeue")) as database:
        assert database.get("default", unit(A, 2)) is None
    value = value_of(light, A, 2)
    changed(lite, {unit(A, 2): value})
    assert kinds(local_verify(lite)) == {}
    changed(lite, {unit(A, 2): value[:11] + b"\7" + value[12:]})
    assert kinds(local_verify(lite)) == {"queue-unit-size": 1}


def test_lite_topics_that_are_not_known(lite: Path) -> None:
    """The names of light queues say them. What that does not say is not missed, and is compared where it is there."""
    shutil.rmtree(lite / "config")
    assert kinds(local_verify(lite)) == {}
    changed(lite, {unit(A, 1): None, unit(ODD, 2): value_of(lite, ODD, 2)[:20] + bytes(8)})
    assert kinds(local_verify(lite)) == {"queue-unit-missing": 1, "queue-unit-time": 1}


def test_files_that_are_lost(light: Path) -> None:
    """Of a queue that has records in the log, and no light one: its files are missing, and RocksDB is compared, too."""
    shutil.rmtree(light / "consumequeue" / "plain")
    summary = local_verify(light)
    assert kinds(summary) == {"queue-unit-missing": 60}
    assert "queue has no folder: 60 units from queue offset 0 on" in json.dumps(summary.findings)
    assert any("4 queues in RocksDB alone, compared with the log" in note for note in summary.notes)
    changed(light, {unit(PLAIN, 3): None, unit(PLAIN, 4): value_of(light, PLAIN, 4)[:20] + bytes(8)})
    summary = local_verify(light)
    assert kinds(summary) == {"queue-unit-missing": 61, "queue-unit-time": 1}
    texts = [example["text"] for finding in summary.findings for example in finding["examples"]]
    assert sum(text.startswith("in RocksDB: queue offset ") for text in texts) == 2
    # A folder without a file is none.
    (light / "consumequeue" / "plain" / "0").mkdir(parents=True)
    assert kinds(local_verify(light)) == {"queue-unit-missing": 61, "queue-unit-time": 1}


def test_files_of_some_light_queues(light: Path, tmp_path: Path) -> None:
    """Where light queues have files, those of the others are missing."""
    built = local_build(light, tmp_path / "out", consumequeue_type="both", lmq=True, broker_version="5.5", **SIZES)
    assert built.exit == 0
    shutil.copytree(tmp_path / "out" / "consumequeue" / "%LMQ%odd", light / "consumequeue" / "%LMQ%odd")
    summary = local_verify(light)
    assert kinds(summary) == {"queue-unit-missing": 84}
    assert any("3 queues compared with the files; 2 queues in RocksDB alone" in note for note in summary.notes)


def test_advice(light: Path, tmp_path: Path) -> None:
    """A build puts light queues into RocksDB alone where a broker.conf says so."""
    changed(light, {unit(A, 1): None})
    assert "light queues are in RocksDB alone, and a build writes them so by a broker.conf" in local_verify(light).to_text()
    conf = tmp_path / "broker.conf"
    conf.write_text("rocksdbCQDoubleWriteEnable=true\ncombineCQUseRocksdbForLmq=true\n")
    told = local_verify(light, broker_conf=str(conf)).to_text()
    assert f"--broker-conf {conf}" in told
    assert "--consumequeue-type" not in told


def test_light_queues_are_passed_over_in_one_step(light: Path) -> None:
    """Those of one length together, whatever their number is."""
    database = QueueDatabase(str(light / "consumequeue"))
    try:
        assert {queue.topic for queue in database.queues_with_units(b"%LMQ%")} == {b"lite", b"plain"}
        assert {queue.topic for queue in database.queues_with_units()} > {b"lite", b"plain", ODD.topic}
    finally:
        database.close()


def test_info_looks_into_light_queues_last(light: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be millions: those that are not looked into are counted, and not listed."""
    assert [(row["topic"], row["queues"]) for row in sorted(rr.info(light).topics, key=lambda row: str(row["topic"]))] == [
        ("%LMQ%$lite$a", 1), ("%LMQ%$lite$b", 1), ("%LMQ%odd", 1), ("lite", 1), ("plain", 1),
    ]  # fmt: skip
    monkeypatch.setattr(describing_queues, "QUEUES_MAX", 3)
    found = rr.info(light)
    assert {row["topic"] for row in found.topics} == {"lite", "plain", "%LMQ%odd"}
    assert (found.queues, found.queues_looked_into, found.light_unlisted) == (5, 3, 2)
    text = "in the first 3 queues; others were not looked into, and 2 light ones are not listed"
    assert any(line.endswith(text) for line in lines_of(found))
