"""Whole preflights of small stores: what is said, and that nothing is written. The real stores' answers: tests/serving."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.preflight import preflight
from rocketmq_reindex.jobs.preflighting import folders, run
from rocketmq_reindex.storage_format.start.predict import predict
from tests.tools.encode import EPOCH, Message
from tests.tools.local_engine import local_build
from tests.tools.log_writer import LogWriter

SEGMENT = 1 << 12
SIZES: dict[str, Any] = {"cq_file_size": 400, "hash_slots": 7, "index_items": 40}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 5.3 with ConsumeQueues, index and checkpoint, and delayed messages of level 1."""
    store = tmp_path_factory.mktemp("built") / "store"
    with LogWriter(store / "commitlog", SEGMENT) as writer:
        for number in range(600):
            topic, properties = ("SCHEDULE_TOPIC_XXXX", {"DELAY": "1"}) if number % 20 == 0 else ("T", {"KEYS": f"k{number}"})
            writer.append(Message(topic=topic, properties=properties, store_timestamp=EPOCH + number * 100))
    summary = local_build(store, store.with_name("out"), broker_version="5.3", **SIZES)
    assert summary.exit == 0, summary.error
    for part in ("consumequeue", "index", "checkpoint"):
        shutil.move(store.with_name("out") / part, store / part)
    (store / "config").mkdir()
    (store / "config" / "delayOffset.json").write_text(json.dumps({"offsetTable": {1: 30}}))
    return store


@pytest.fixture
def store(built: Path, tmp_path: Path) -> Path:
    shutil.copytree(built, tmp_path / "store")
    return tmp_path / "store"


def told(store: Path, release: str = "5.3.3", **keywords: Any) -> rr.PreflightResult:
    return rr.preflight(store, broker_version=release, **keywords)  # type: ignore[arg-type]


def kinds(found: rr.PreflightResult) -> list[str]:
    return [loss["kind"] for loss in found.losses]


def error_of(store: Path, **keywords: Any) -> str:
    with pytest.raises(rr.InputError) as raised:
        told(store, **keywords)
    assert str(raised.value).isprintable()
    return str(raised.value)


def state_of(store: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        str(path.relative_to(store)): (path.stat().st_size, path.stat().st_mtime_ns, path.read_bytes())
        for path in store.rglob("*") if path.is_file()
    }  # fmt: skip


def test_a_whole_store_and_nothing_is_written(store: Path) -> None:
    before = state_of(store)
    found = told(store)
    assert (found.exit_status, found.loads, found.losses, found.warnings) == (0, True, [], [])
    assert found.text.startswith("starts ")
    assert state_of(store) == before
    (level,) = found.delayed
    assert (level["kept"], level["begins"], level["end"], level["waiting"]) == (30, 30, 30, 0)


def test_the_command(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert preflight([str(store), "--broker-version", "5.3.3", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    result = told(store).to_dict()
    assert shown.keys() == result.keys()
    assert {**shown, "seconds": 0} == {**result, "seconds": 0}
    assert preflight([str(store / "nothing")]) == 1
    assert preflight(["s3://bucket/x"]) == 2
    assert capsys.readouterr().err.count("error: ") == 2


def test_the_recovery_looks_at_ten_segments(store: Path, tmp_path: Path) -> None:
    shutil.rmtree(store / "consumequeue")
    assert kinds(told(store)) == []
    found = told(store, "5.5.1", **SIZES)
    assert found.exit_status == 4
    assert "records-hidden" in kinds(found)
    hidden = found.losses[0]
    segments = len(list((store / "commitlog").iterdir()))
    assert any(f"commitLogRecoverMaxNum={segments}" in advice for advice in hidden["advice"])
    assert hidden["commands"][0].startswith(f"rmq-reindex build {store} --out {store}.rebuilt --cq-file-size 400 ")
    conf = tmp_path / "broker.conf"
    conf.write_text(f"commitLogRecoverMaxNum={segments}\nmappedFileSizeConsumeQueue=400\nmaxHashSlotNum=7\nmaxIndexNum=40\n")
    assert "records-hidden" not in kinds(told(store, "5.5.1", broker_conf=conf))
    assert kinds(told(store, "5.3.3", **SIZES)) == []


def test_what_was_not_counted_is_said(store: Path) -> None:
    found = told(store, count_limit=0)
    assert (found.exit_status, found.dispatch and found.dispatch["hidden_records"]) == (0, -1)
    assert found.text.startswith("starts   and loses nothing, as far as the log was read")
    assert any("--count-limit" in note for note in found.notes)


def test_delayed_messages(store: Path) -> None:
    (store / "config" / "delayOffset.json").unlink()
    found = told(store)
    assert (found.exit_status, [warning["kind"] for warning in found.warnings]) == (0, ["delayed-again"])
    (level,) = found.delayed
    # Delayed by a second, and stored every two seconds, the last 1.9 seconds before the end.
    assert (level["kept"], level["waiting"], level["due"], level["again"]) == (-1, 30, 30, 30)
    shutil.rmtree(store / "consumequeue")
    (store / "config" / "delayOffset.json").write_text(json.dumps({"offsetTable": {1: 25}}))
    (level,) = told(store, **SIZES).delayed
    assert (level["begins"], level["begins_least"], level["again"], level["due"]) == (25, 0, 25, -1)
    (level,) = told(store, "4.9.8", **SIZES).delayed
    assert (level["begins"], level["begins_least"], level["again"]) == (25, 25, 0)
    (store / "config" / "delayOffset.json").write_text("{")
    found = told(store, **SIZES)
    assert found.delayed[0]["due"] == 30
    assert any("is no JSON" in note for note in found.notes)
    (store / "config" / "delayOffset.json.bak").write_text(json.dumps({"offsetTable": {1: 25}}))
    assert told(store, **SIZES).delayed[0]["kept"] == 25


def test_a_lock_that_is_held(store: Path) -> None:
    code = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, store / "lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holding:  # fmt: skip
        assert holding.stdout is not None
        holding.stdout.readline()
        found = told(store)
        with (store / "lock").open("r+") as lock, pytest.raises(OSError):  # noqa: PT011  it is still held
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        holding.communicate()
    assert (kinds(found), found.exit_status) == (["lock-held"], 4)
    assert f"process {holding.pid}" in found.refusals[0]["detail"]
    assert told(store).loads


def test_a_log_that_changes_meanwhile(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def changing(*arguments: Any) -> Any:
        os.utime(max((store / "commitlog").iterdir()), ns=(1, 1))
        return predict(*arguments)

    monkeypatch.setattr(run, "predict", changing)
    assert "the store changes while it is read" in error_of(store)


def test_rocksdb(store: Path, tmp_path: Path) -> None:
    (store / "consumequeue" / "CURRENT").write_text("MANIFEST-000005\n")
    assert "storeType=defaultRocksDB" in error_of(store)
    (tmp_path / "broker.conf").write_text("storeType=default\n")
    assert any("RocksDB" in note for note in told(store, broker_conf=tmp_path / "broker.conf").notes)


def test_no_store(tmp_path: Path) -> None:
    assert "is not a folder" in error_of(tmp_path / "none")
    assert "name the broker's store" in error_of(tmp_path)


def test_the_checkpoint_of_an_accelerated_recovery(store: Path, tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text("enableAcceleratedRecovery=true\n")
    (store / "checkpoint").write_bytes(struct.pack(">q", EPOCH).ljust(4096, b"\0"))
    found = told(store, "5.5.1", abort="yes", broker_conf=tmp_path / "broker.conf", **SIZES)
    assert (kinds(found), found.loads, found.exit_status) == (["checkpoint-logics-offset"], False, 4)


def _spoil_record(store: Path, at: int, data: bytes) -> None:
    """Overwrite bytes of the first record of the last segment."""
    with max((store / "commitlog").iterdir()).open("r+b") as segment:
        segment.seek(at)
        segment.write(data)


def test_a_record_too_large_for_java(store: Path) -> None:
    _spoil_record(store, 0, b"\x7f\xff\xff\xff")
    found = told(store, "4.9.8", abort="yes")
    assert (kinds(found), found.loads, found.exit_status) == (["record-too-large"], False, 4)
    _spoil_record(store, 0, b"\x7f\0\0\0")
    found = told(store, "4.9.8", abort="yes")
    assert found.loads
    assert any("2130706432 bytes: the broker makes an array" in note for note in found.notes)


def test_a_topic_that_cannot_be_a_folder(store: Path) -> None:
    newest = max((store / "commitlog").iterdir()).read_bytes()
    _spoil_record(store, newest.index(b"\x01T"), b"\x01\0")
    shutil.rmtree(store / "consumequeue")
    found = told(store, **SIZES)
    assert kinds(found)[:2] == ["records-hidden", "dispatch-stopped"]
    assert found.dispatch is not None
    assert found.dispatch["stopped_at"] == found.dispatch["hidden_from"]
    assert "\0" not in found.text


def test_no_segment(store: Path) -> None:
    shutil.rmtree(store / "commitlog")
    found = told(store)
    assert (kinds(found), found.exit_status) == (["log-missing"], 4)


@pytest.mark.parametrize("part", ["commitlog", "consumequeue", "index"])
def test_a_folder_that_is_none(part: str, store: Path) -> None:
    shutil.rmtree(store / part)
    (store / part).touch()
    assert "is no folder" in error_of(store)


def test_a_file_of_an_odd_name(store: Path) -> None:
    (store / "commitlog" / "7").write_bytes(bytes(SEGMENT))
    assert "is not the offset of a file of its size" in error_of(store)


def test_too_many_files(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "ENTRIES_MAX", 5)
    assert "has more than 5 files" in error_of(store)


def hostile_topic(store: Path) -> None:
    (store / "consumequeue" / "a\x1b[31m\n\udcff" / "0").mkdir(parents=True)
    (store / "consumequeue" / "a\x1b[31m\n\udcff" / "0" / "x\n").write_bytes(b"x")


def fifo(store: Path) -> None:
    os.mkfifo(store / "consumequeue" / "T" / "0" / "00000000000000000001")


def loop(store: Path) -> None:
    (store / "commitlog" / "0").symlink_to("0")


def device(store: Path) -> None:
    (store / "index" / "20261121015957822").symlink_to("/dev/zero")


def huge(store: Path) -> None:
    with (store / "commitlog" / "00000000000000000000").open("r+b") as file:
        file.truncate(1 << 40)


@pytest.mark.parametrize("spoil", [hostile_topic, fifo, loop, device, huge])
def test_hostile_files_are_refused_in_one_line_each(spoil: Callable[[Path], None], store: Path) -> None:
    spoil(store)
    found = told(store, **SIZES, segment_size=SEGMENT)
    assert (found.loads, found.exit_status) == (False, 4)
    assert found.refusals
    assert all(line.isprintable() for line in found.text.splitlines())
    assert json.loads(json.dumps(found.to_dict())) == found.to_dict()


def test_links_are_followed(store: Path, tmp_path: Path) -> None:
    """A commitlog on another disk."""
    shutil.move(store / "commitlog", tmp_path / "elsewhere")
    (store / "commitlog").symlink_to(tmp_path / "elsewhere")
    assert told(store).exit_status == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every folder")
def test_a_folder_that_cannot_be_read(store: Path) -> None:
    (store / "consumequeue" / "T").chmod(0)
    assert "Permission denied" in error_of(store)


def test_several_roots(store: Path, tmp_path: Path) -> None:
    other = tmp_path / "more"
    other.mkdir()
    for path in sorted((store / "commitlog").iterdir())[::2]:
        shutil.move(path, other / path.name)
    found = told(store, commitlog=[store / "commitlog", other])
    assert (found.exit_status, found.loads) == (0, True)
    os.truncate(max(other.iterdir()), 5)
    assert told(store, commitlog=[store / "commitlog", other]).refusals[0]["path"] == str(max(other.iterdir()))


def test_what_goes_is_named(store: Path) -> None:
    """Segments behind a cut, the units that pointed there, and IndexFiles that the checkpoint does not cover."""
    segments = sorted((store / "commitlog").iterdir())
    with segments[-3].open("r+b") as file:
        file.write(bytes(100))
    (store / "checkpoint").write_bytes(bytes(4096))
    found = told(store, abort="yes")
    assert found.index
    assert found.queues
    cut = sum(queue["units_cut"] for queue in found.queues)
    assert cut > 0
    assert f"2 segments deleted from {segments[-2].name} on" in found.text
    assert f"{cut} units cut from 2 queues" in found.text
    deleted = found.index["deleted"]
    assert len(deleted) > 3
    assert f"{len(deleted)} deleted before ({', '.join(deleted[:3])}, ...)" in found.text
