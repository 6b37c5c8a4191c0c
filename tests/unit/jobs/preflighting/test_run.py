"""Whole preflights of small stores: what is said, and that nothing is written. The real stores' answers: tests/serving."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.commands import preflight
from rocketmq_reindex.jobs.preflighting import run
from rocketmq_reindex.jobs.preflighting.options import preflight_settings
from rocketmq_reindex.jobs.preflighting.run import PreflightResult, lines_of
from rocketmq_reindex.storage_format.broker_start.predict import predict
from rocketmq_reindex.storage_format.errors import NoListener
from tests.golden.stores import unpack
from tests.tools.encode import EPOCH
from tests.tools.local_engine import local_build
from tests.unit.jobs.preflighting.told import SIZES, error_of, kinds, state_of, told


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


def test_the_headline_names_the_version_and_where_it_is_from(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def headline(*words: str) -> str:
        preflight([str(store), *words])
        return capsys.readouterr().out.splitlines()[0]

    assert headline("--broker-version", "5.3") == "starts   and loses nothing: RocketMQ 5.3.4 (--broker-version 5.3)"
    default = "RocketMQ 5.5.1 (by default; {}: --broker-version names another)"
    assert headline().endswith(default.format("the store's files fit 5.4 or 5.3"))
    for part in ("checkpoint", "index"):
        os.rename(store / part, store.parent / part)
    assert headline().endswith(default.format("no file of the store shows one"))
    conf = store.parent / "broker.conf"
    conf.write_text("messageDelayLevel=1x")
    refused = "refused  RocketMQ 4.9.8 (--broker-version 4.9) does not start: delay-levels 1"
    assert headline("--broker-version", "4.9", "--broker-conf", str(conf)) == refused


@pytest.mark.parametrize(("hidden", "said"), [(5, ", 5 hidden"), (0, ""), (-1, "")])
def test_a_queue_that_loses_messages(store: Path, hidden: int, said: str) -> None:
    summary = PreflightResult()
    run.Preflight(preflight_settings({"store": str(store), "broker_version": "5.3.3"}), summary, NoListener()).run()
    queue = dict(next(queue for queue in summary.queues if queue["topic"] == "T"))
    assert (queue["max_offset"], queue["log_max"]) == (570, 570)
    summary.queues = [queue | {"max_offset": 500, "hidden": hidden}]
    (line,) = (line for line in lines_of(summary) if line.lstrip().startswith("T/0 "))
    assert line.split(maxsplit=1)[1] == f"consumers see 0 to 500, the log holds 0 to 570{said}"


def test_the_recovery_looks_at_ten_segments(store: Path, tmp_path: Path) -> None:
    shutil.rmtree(store / "consumequeue")
    assert kinds(told(store)) == []
    found = told(store, "5.5.1", **SIZES)
    assert found.exit_status == 4
    assert "records-hidden" in kinds(found)
    hidden = found.losses[0]
    assert found.dispatch is not None
    assert found.log is not None
    # They can be pasted behind --physical: without separators.
    assert f" at offsets {found.dispatch['hidden_from']} to {found.dispatch['hidden_to']} get no unit" in hidden["text"]
    assert f"\nlog      offsets 0 to {found.log['max_offset']}, " in found.text
    assert found.log["max_offset"] > 1000
    segments = len(list((store / "commitlog").iterdir()))
    assert any(f"commitLogRecoverMaxNum={segments}" in advice for advice in hidden["advice"])
    assert hidden["commands"][0].startswith(f"rmq-reindex build {store} --out {store}.rebuilt --cq-file-size 400 ")
    conf = tmp_path / "broker.conf"
    conf.write_text(f"commitLogRecoverMaxNum={segments}\nmappedFileSizeConsumeQueue=400\nmaxHashSlotNum=7\nmaxIndexNum=40\n")
    assert "records-hidden" not in kinds(told(store, "5.5.1", broker_conf=conf))
    assert kinds(told(store, "5.3.3", **SIZES)) == []


def test_a_record_out_of_place_needs_no_more_segments(store: Path) -> None:
    """The recovery after a crash looks at ten segments, and the queues begin before them: more segments give it no unit."""
    _spoil_record(store, 20, struct.pack(">q", 3))
    out = store.with_name("salvaged")
    assert local_build(store, out, broker_version="5.5", on_damage="salvage", **SIZES).exit == 3
    for part in ("consumequeue", "index"):
        shutil.rmtree(store / part)
        shutil.move(out / part, store / part)
    (store / "checkpoint").unlink()
    found = told(store, "5.5.1", abort="yes", **SIZES)
    assert found.log is not None
    assert found.log["limited"]
    (hidden,) = (loss for loss in found.losses if loss["kind"] == "records-hidden")
    assert (hidden["count"], "commitLogRecoverMaxNum" in " ".join((hidden["text"], *hidden["advice"]))) == (1, False)
    assert [command.split()[1] for command in hidden["commands"]] == ["verify"]


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
    assert "say by broker_conf which of them the broker reads" in error_of(store)
    (tmp_path / "broker.conf").write_text("storeType=default\n")
    assert any("RocksDB" in note for note in told(store, broker_conf=tmp_path / "broker.conf").notes)
    (tmp_path / "broker.conf").write_text("storeType=defaultRocksDB\n")
    assert "RocksDB cannot read it" in error_of(store, broker_conf=tmp_path / "broker.conf")
    with pytest.raises(rr.InputError, match=r"4\.9\.8 has no such store"):
        told(store, "4.9.8", broker_conf=tmp_path / "broker.conf")


@pytest.mark.parametrize("name", ["rocksdb-5.3", "rocksdb-5.5"])
def test_a_database_of_a_real_broker(name: str, tmp_path: Path) -> None:
    """Without a broker.conf a store whose queues are in RocksDB alone is taken for one of a broker that reads them."""
    place = unpack(name, tmp_path).path
    for topic in (place / "consumequeue").iterdir():
        if topic.is_dir():
            shutil.rmtree(topic)
    before = state_of(place)
    found = told(place, "5.3.3" if name == "rocksdb-5.3" else "5.5.1")
    assert (found.loads, [queue["max_offset"] > 0 for queue in found.queues]) == (True, [True] * 4)
    assert any("storeType=defaultRocksDB" in note for note in found.notes)
    # The broker of 5.3 began with an empty database: it passed over the record at offset 0.
    assert kinds(found) == ([] if name == "rocksdb-5.5" else ["records-hidden", "index-items-missing"])
    assert state_of(place) == before
    os.rename(place / "consumequeue", place / "consumequeue_rocksdb")
    assert [queue["max_offset"] for queue in told(place, "5.5.1").queues] == [queue["max_offset"] for queue in found.queues]


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
    assert any("2,130,706,432 bytes: the broker makes an array" in note for note in found.notes)


def test_the_other_case_of_the_file_abort_is_told(store: Path) -> None:
    def other(**keywords: Any) -> list[str]:
        return [note for note in told(store, **keywords).notes if "file abort" in note]

    assert other() == other(abort="no") == []
    assert other(abort="yes") == ["the store has no file abort: this is the other case"]
    (store / "abort").touch()
    assert other() == other(abort="yes") == []
    assert other(abort="no") == ["the store has a file abort: this is the other case"]


def test_what_to_do_for_delayed_messages_that_come_again(store: Path) -> None:
    """Without their offset a backup of it helps; where the queue is filled while the delivery starts, a rebuild does."""
    (store / "config" / "delayOffset.json").write_text("{}")
    (warning,) = told(store).warnings
    assert warning["text"] == "30 delayed messages, config/delayOffset.json has no offset of 1 level"
    assert warning["advice"] == ["restore config/delayOffset.json from a backup; if there is none, build with --write-delay"]
    shutil.rmtree(store / "consumequeue")
    (store / "config" / "delayOffset.json").write_text(json.dumps({"offsetTable": {1: 25}}))
    (warning,) = told(store, **SIZES).warnings
    assert (warning["text"], warning["advice"]) == ("at most 25 delayed messages", ["rebuild before the start"])


def test_the_logs_first_record_has_a_topic_that_cannot_be_a_folder(store: Path) -> None:
    """Offset 0 is a place as any other."""
    first = min((store / "commitlog").iterdir())
    data = bytearray(first.read_bytes())
    at = data.index(b"\x13SCHEDULE_TOPIC_XXXX")
    data[at + 1] = 0
    first.write_bytes(data)
    shutil.rmtree(store / "consumequeue")
    found = told(store, **SIZES)
    assert found.dispatch is not None
    assert found.dispatch["stopped_at"] == found.dispatch["hidden_from"] == 0
    hidden, stopped = found.losses[:2]
    assert (hidden["kind"], stopped["kind"]) == ("records-hidden", "dispatch-stopped")
    assert " at offsets 0 to " in hidden["text"]
    assert "the record at offset 0 cannot be a folder" in stopped["text"]


def test_a_topic_that_cannot_be_a_folder(store: Path) -> None:
    newest = max((store / "commitlog").iterdir()).read_bytes()
    _spoil_record(store, newest.index(b"\x01T"), b"\x01\0")
    shutil.rmtree(store / "consumequeue")
    found = told(store, **SIZES)
    assert kinds(found)[:2] == ["records-hidden", "dispatch-stopped"]
    # A build refuses the record as damage.
    for loss in found.losses:
        assert [command.split()[1] for command in loss["commands"]] == ["repair"]
    assert found.dispatch is not None
    assert found.dispatch["stopped_at"] == found.dispatch["hidden_from"]
    assert "\0" not in found.text


def test_no_segment(store: Path) -> None:
    shutil.rmtree(store / "commitlog")
    found = told(store)
    assert (kinds(found), found.exit_status) == (["log-missing"], 4)
    assert "\nlog      no segment\n" in found.text, "no offset of -1"


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
    # The cut ends where a record begins that had items. It is gone from the log, so these are not lost.
    assert found.log
    assert found.log["max_offset"] == int(segments[-3].name)
    assert found.index["items_lost"] == 0
    assert f"{len(deleted)} deleted before ({', '.join(deleted[:3])}, ...)" in found.text
