"""Which topics and consumer offsets count where a store has files of JSON, and databases of RocksDB; and what is said of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.jobs.building import queue_kinds
from rocketmq_reindex.jobs.building.options import BuildSettings, batch_topics_of
from rocketmq_reindex.jobs.commands import consumers
from rocketmq_reindex.jobs.exporting import new_store
from rocketmq_reindex.jobs.inspecting.options import inspect
from rocketmq_reindex.jobs.store import config_databases, consumer_offsets
from rocketmq_reindex.jobs.store.folders import Notes
from rocketmq_reindex.storage_format import topics
from rocketmq_reindex.storage_format.errors import InputError
from tests.tools.no_override import bound_by_permissions

rocksdict = pytest.importorskip("rocksdict")
Families = dict[str, dict[bytes, bytes]]


def write(folder: Path, families: Families) -> None:
    """A database of RocksDB, with a key that lies in its log alone."""
    options = rocksdict.Options(raw_mode=True)
    options.create_missing_column_families(True)
    others = {name: rocksdict.Options(raw_mode=True) for name in families if name != "default"}
    folder.mkdir(parents=True)
    database = rocksdict.Rdict(str(folder), options, column_families=others)
    for name, pairs in families.items():
        family = database if name == "default" else database.get_column_family(name)
        for key, value in pairs.items():
            family[key] = value
        del family
    database.close()
    (folder / "rocksdict-config.json").unlink()


def dump(said: object) -> bytes:
    return json.dumps(said).encode()


def alone(name: str, entry: object, counter: int) -> Families:
    """A database of one part, with one entry and a data version."""
    version = {topics.VERSION_KEY: dump({"counter": counter, "timestamp": 0, "stateVersion": 0})}
    return {"default": {name.encode(): dump(entry)}, "kvDataVersion": version}


def offsets_json(store: Path, offset: int, counter: int, time: int = 0) -> None:
    (store / "config").mkdir(parents=True, exist_ok=True)
    version = {"counter": counter, "timestamp": time, "stateVersion": 0}
    said = {"offsetTable": {"T@g": {"0": offset}}, "dataVersion": version}
    (store / "config/consumerOffset.json").write_bytes(dump(said))


def numbered(offset: int, time: int) -> Families:
    """A database of v2 with an offset."""
    head, stamp = b"\x01\x00\x01\x02", b"\x01\x00\x01\x01data_version"
    key = head + b"\x00\x01g\x01\x00\x01T\x01" + (0).to_bytes(4, "big")
    return {"default": {key: offset.to_bytes(8, "big"), stamp: b"".join(n.to_bytes(8, "big") for n in (0, time, 3))}}


def counting(store: Path) -> tuple[str, int | None, list[str]]:
    """The file that counts, its offset of the one group, and the notes."""
    notes: list[str] = []
    (file,) = consumer_offsets.of_store(str(store), Notes(notes.append))
    (entry,) = file.entries()
    return Path(file.path).name, entry.offset, notes


def test_the_higher_counter_counts(tmp_path: Path) -> None:
    """As ``RocksDBConsumerOffsetManager.merge``; of equal ones the database."""
    for json_counter, due in ((4, ("consumerOffsets", 7)), (5, ("consumerOffsets", 7)), (6, ("consumerOffset.json", 9))):
        store = tmp_path / str(json_counter)
        write(store / "config/consumerOffsets", alone("T@g", {"offsetTable": {"0": 7}}, 5))
        offsets_json(store, 9, json_counter)
        name, offset, (note,) = counting(store)
        assert (name, offset) == due
        assert f"which counts: its data version {'' if due[1] == 9 else 'is '}" in note
        # The same in both: nothing is said.
        offsets_json(store, 7, json_counter)
        assert counting(store)[1:] == (7, [])


def test_a_store_with_queue_files_alone_reads_files(tmp_path: Path) -> None:
    """storeType=default: the broker has left RocksDB, and its databases are old."""
    write(tmp_path / "config/consumerOffsets", alone("T@g", {"offsetTable": {"0": 7}}, 5))
    offsets_json(tmp_path, 9, 1)
    (tmp_path / "consumequeue/T/0").mkdir(parents=True)
    name, offset, (note,) = counting(tmp_path)
    assert (name, offset) == ("consumerOffset.json", 9)
    assert "its ConsumeQueues are files" in note
    (tmp_path / "config/consumerOffset.json").unlink()
    assert counting(tmp_path) == ("consumerOffsets", 7, [])


def test_one_database_for_all_and_those_before(tmp_path: Path) -> None:
    """``migrateFromSeparateRocksDBs``: what is higher is taken in."""
    write(tmp_path / "config/consumerOffsets", alone("T@g", {"offsetTable": {"0": 7}}, 5))
    shared = alone("T@g", {"offsetTable": {"0": 8}}, 5)
    families = {"default": {}, "consumerOffset": shared["default"], "consumerOffsetVersion": shared["kvDataVersion"]}
    write(tmp_path / "config/metadata", families)
    name, offset, (note,) = counting(tmp_path)
    assert (name, offset) == ("metadata", 8)
    assert "config/consumerOffsets: has other consumer offsets than" in note


@pytest.mark.parametrize(("time", "due"), [(9, ("rdb", 5)), (11, ("consumerOffset.json", 9))])
def test_v2_counts_by_its_time(time: int, due: tuple[str, int], tmp_path: Path) -> None:
    """No broker takes one into the other."""
    write(tmp_path / "config/rdb", numbered(5, 10))
    assert counting(tmp_path) == ("rdb", 5, [])
    offsets_json(tmp_path, 9, 0, time)
    name, offset, (note,) = counting(tmp_path)
    assert (name, offset) == due
    assert "its configManagerVersion says" in note


def test_batch_topics(tmp_path: Path) -> None:
    """A build finds them in the database, and those of a newer file beside them."""
    batch: dict[str, Any] = {"topicName": "B", "attributes": {"queue.type": "BatchCQ"}}
    write(tmp_path / "config/topics", alone("B", batch, 5))
    assert batch_topics_of(str(tmp_path), []) == ("B",)
    table = {"topicConfigTable": {"C": {**batch, "topicName": "C"}}, "dataVersion": {"counter": 6}}
    (tmp_path / "config/topics.json").write_bytes(dump(table))
    told: list[str] = []
    assert batch_topics_of(str(tmp_path), told) == ("B", "C")
    assert "other topics than" in told[0]


def test_what_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An entry that is no JSON is passed over and named; a database that is broken is a line."""
    families = alone("T@g", {"offsetTable": {"0": 7}}, 5)
    families["default"] |= {b"U@g\x1b": b"{", b"V@g": b"[]"}
    folder = tmp_path / "config/consumerOffsets"
    write(folder, families)
    name, offset, (note,) = counting(tmp_path)
    assert (name, offset) == ("consumerOffsets", 7)
    assert r"2 entries cannot be read, such as U@g\x1b and V@g: passed over" in note
    assert inspect([str(folder), "--json", "--records"]) == 0
    summary, row = map(json.loads, capsys.readouterr().out.splitlines())
    assert (summary["consumerOffsets"], summary["findings"][0]["count"]) == (1, 2)
    assert row == {"table": "offsetTable", "name": "T@g", "entry": {"0": 7}}
    next(folder.glob("MANIFEST-*")).write_bytes(b"broken")
    notes: list[str] = []
    assert consumer_offsets.of_store(str(tmp_path), Notes(notes.append)) == []
    (note,) = notes
    assert "RocksDB cannot read it" in note
    assert "the consumer offsets in it are not known" in note


def test_topics_of_a_broken_database(tmp_path: Path) -> None:
    """A new store does without them with a warning; a build that needs the lite ones ends."""
    store, draft = tmp_path / "store", tmp_path / "topics.json"
    write(store / "config/topics", alone("B", {"topicName": "B", "readQueueNums": 16}, 5))
    draft.write_bytes(dump({"topicConfigTable": {"B": {"topicName": "B", "readQueueNums": 4}}}))
    assert new_store._with_own_topics(str(draft), str(store), []) == []
    assert json.loads(draft.read_text())["topicConfigTable"]["B"]["readQueueNums"] == 16
    light = BuildSettings(
        out=str(tmp_path / "out"), store=str(store), consumequeue_type="both", rocksdb=("x",), rocksdb_light=True
    )
    assert "no lite topic is known by config/" in queue_kinds.database_as_store_shows(light)[1][1]
    next((store / "config/topics").glob("MANIFEST-*")).write_bytes(b"broken")
    (told,) = new_store._with_own_topics(str(draft), str(store), [])
    assert "RocksDB cannot read it" in told
    assert "topics.json of the new store has nothing that it says" in told
    with pytest.raises(InputError, match="which topics are lite"):
        queue_kinds.database_as_store_shows(light)


def test_light_queues_that_neither_kind_takes(tmp_path: Path) -> None:
    """Units that a broker of both settings has nowhere are not left out in silence."""
    store = tmp_path / "store"
    (store / "config").mkdir(parents=True)
    lite = {"attributes": {"message.type": "LITE"}}
    (store / "config/topics.json").write_bytes(dump({"topicConfigTable": {"L": lite}}))
    given: dict[str, Any] = {"consumequeue_type": "both", "rocksdb": ("x",), "lmq": True}
    for light, alone_there, told in ((True, True, True), (True, False, False), (False, True, False)):
        settings = BuildSettings(
            out=str(tmp_path / "out"), store=str(store), rocksdb_light=light, rocksdb_lmq=alone_there, **given
        )
        notes = queue_kinds.database_as_store_shows(settings)[1]
        assert any("are in neither files nor RocksDB then" in note for note in notes) == told


def test_a_lite_topic_that_no_record_is_of(tmp_path: Path) -> None:
    """Half a surrogate pair has no bytes in a record."""
    (tmp_path / "config").mkdir()
    lite = {"attributes": {"message.type": "LITE"}}
    (tmp_path / "config/topics.json").write_bytes(dump({"topicConfigTable": {"\ud800": lite, "L": lite}}))
    assert config_databases.lite_topics(str(tmp_path)) == ["L"]


def test_queues_that_nobody_may_list(tmp_path: Path) -> None:
    """Which of the two counts depends on them."""
    write(tmp_path / "config/consumerOffsets", alone("T@g", {"offsetTable": {"0": 7}}, 5))
    offsets_json(tmp_path, 9, 6)
    (tmp_path / "consumequeue/T").mkdir(parents=True)
    (tmp_path / "consumequeue").chmod(0)
    with bound_by_permissions():
        for ask in (consumer_offsets.in_databases, lambda store: consumer_offsets.of_store(store, Notes.silent())):
            with pytest.raises(InputError, match="its ConsumeQueues cannot be listed"):
                ask(str(tmp_path))
    (tmp_path / "consumequeue").chmod(0o755)


def test_two_keys_of_one_name() -> None:
    """Keys that are no UTF-8: the later one counts, and the name is told."""
    pairs = [(key, dump({"offsetTable": {"0": at}})) for at, key in enumerate((b"\xfe@g", b"\xff@g"))]
    said, broken = topics.by_names(topics.OFFSETS, pairs, None)
    assert said["offsetTable"] == {"\ufffd@g": {"0": 1}}
    assert broken == ["\ufffd@g"]


def test_acknowledged_bits_that_are_null(tmp_path: Path) -> None:
    """They are 0, as fastjson reads a long."""
    (tmp_path / "config").mkdir()
    batch = {"popTime": 1, "o": [5], "cm": None}
    (tmp_path / "config/consumerOrderInfo.json").write_bytes(dump({"table": {"T@g": {"0": batch}}}))
    notes: list[str] = []
    _, taken = consumer_offsets.taken_in_order(str(tmp_path), Notes(notes.append))
    assert (len(taken), notes) == (1, [])


def test_without_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line says what to install."""
    write(tmp_path / "config/consumerOffsets", alone("T@g", {"offsetTable": {"0": 7}}, 5))
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    notes: list[str] = []
    assert consumer_offsets.of_store(str(tmp_path), Notes(notes.append)) == []
    (note,) = notes
    assert "pip install 'rocketmq-reindex[rocksdb]'" in note
    assert "the consumer offsets in it are not known" in note


def with_queue(store: Path, queues: bool = True) -> Path:
    """A store whose one queue is T/0, as a file; without it, what is a store of RocksDB alone."""
    (store / "commitlog").mkdir(parents=True)
    if queues:
        (store / "consumequeue/T/0").mkdir(parents=True)
        (store / "consumequeue/T/0" / f"{0:020}").write_bytes(bytes(20))
    return store


def test_a_new_file_is_taken_in(tmp_path: Path) -> None:
    """What ``consumers --out`` writes has a higher counter than the database: a broker takes in no other file."""
    store, named = with_queue(tmp_path / "store"), tmp_path / "named"
    write(named, alone("T@g", {"offsetTable": {"0": 7}}, 5))
    out = tmp_path / "new.json"
    assert consumers([str(store), "--consumer-offsets", str(named), "--out", str(out)]) in (0, 4)
    said = json.loads(out.read_text())
    assert said["dataVersion"]["counter"] == 6
    assert "T@g" in said["offsetTable"]


def test_a_new_file_is_above_the_database_of_the_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where the offsets are those of another file."""
    store, replica, out = with_queue(tmp_path / "store"), tmp_path / "replica", tmp_path / "new.json"
    write(store / "config/consumerOffsets", alone("T@g", {"offsetTable": {"0": 7}}, 100))
    offsets_json(replica, 0, 5)
    named = str(replica / "config/consumerOffset.json")
    assert consumers([str(store), "--consumer-offsets", named, "--out", str(out)]) in (0, 4)
    assert json.loads(out.read_text())["dataVersion"]["counter"] == 101
    errors = capsys.readouterr().err
    assert "config/consumerOffsets: a broker that keeps offsets there takes the new file in" in errors
    assert "note: " not in errors


def test_no_new_file_beside_a_broken_database(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Which offsets count there is not known. A broker with ConsumeQueue files alone does not read it."""
    store, out = with_queue(tmp_path / "store", queues=False), tmp_path / "new.json"
    folder = store / "config/consumerOffsets"
    write(folder, alone("T@g", {"offsetTable": {"0": 7}}, 5))
    next(folder.glob("MANIFEST-*")).write_bytes(b"broken")
    offsets_json(store, 0, 4)
    own = str(store / "config/consumerOffset.json")
    for options in ([], ["--consumer-offsets", own]):
        assert consumers([str(store), *options, "--out", str(out)]) == 1
        assert "--out: which offsets count, and which counter" in capsys.readouterr().err
        assert not out.exists()
    (store / "consumequeue/T/0").mkdir(parents=True)
    (store / "consumequeue/T/0" / f"{0:020}").write_bytes(bytes(20))
    assert consumers([str(store), "--out", str(out)]) in (0, 4)
    assert json.loads(out.read_text())["dataVersion"]["counter"] == 4


def test_a_data_version_that_is_none(tmp_path: Path) -> None:
    """It counts as 0, and where a database has it, it is named."""
    folder = tmp_path / "config/consumerOffsets"
    families = alone("T@g", {"offsetTable": {"0": 7}}, 5)
    families["kvDataVersion"][topics.VERSION_KEY] = b"[1,2]"
    write(folder, families)
    notes: list[str] = []
    files = consumer_offsets.of_store(str(tmp_path), Notes(notes.append))
    assert consumer_offsets.made(files, {})["dataVersion"] == {"stateVersion": 0, "timestamp": 0, "counter": 1}
    assert "1 entry cannot be read, such as kvDataVersionKey" in notes[0]
    for version in (None, [1], "x"):
        named = consumer_offsets.OffsetFile("named", {"offsetTable": {}, "dataVersion": version})
        assert consumer_offsets.made([named, *files], {})["dataVersion"]["counter"] == 1
