"""What the options of a repair change: tombstones, records with a broken body, replicas, links."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
from pathlib import Path

import pytest

from rocketmq_reindex.jobs.repair import repair
from rocketmq_reindex.jobs.repairing.options import parse_settings
from rocketmq_reindex.storage_format.digest import new_digest
from rocketmq_reindex.storage_format.errors import UsageError
from rocketmq_reindex.storage_format.repair import LOST_FLAG
from rocketmq_reindex.udfs.repair.mend import NEIGHBOURS
from tests.builds.repair_log import SEGMENT, SIZES, Log, bytes_at, make_log, ranges_of, record_at
from tests.golden.stores import read_files
from tests.repair.repaired import DERIVED, tree
from tests.tools.encode import Message as NewMessage
from tests.tools.local_engine import local_build, local_repair
from tests.tools.log_writer import LogWriter
from tests.tools.seeds import cases
from tests.tools.stale_log import stale_log, write_at


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return make_log(tmp_path / "store", 2)


def test_tombstones_stand_at_lost_offsets(log: Log, tmp_path: Path) -> None:
    low, high = log.puts[10], log.puts[14]
    log.change(low.offset, b"\0" * (high.offset - low.offset))
    ranges_of(log, tmp_path / "out", tombstones=True)
    found = []
    at = low.offset
    while at < high.offset:
        record = record_at(tmp_path / "out", at)
        assert record.flag == LOST_FLAG
        if record.tags == "__LOST__":
            found.append((record.topic, record.queue_id, record.queue_offset))
        at += record.size
    assert at == high.offset
    assert sorted(found) == sorted(("TopicA", put.message.queue_id, put.queue_offset) for put in log.puts[10:14])
    told = local_build(tmp_path / "out", tmp_path / "built", None, queue_order="broker", **SIZES)
    assert told.decisions == []


@pytest.mark.parametrize(
    ("topic", "size"),
    [
        ("SCHEDULE_TOPIC_XXXX", 1),
        ("rmq_sys_wheel_timer", 1),
        ("RMQ_SYS_TRANS_HALF_TOPIC", 1),
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0),
    ],
)
def test_the_topics_that_a_broker_reads_itself(topic: str, size: int, tmp_path: Path) -> None:
    """It would stop at a tombstone. Of what waits, a fill that can be read would be delivered once more."""
    log = make_log(tmp_path / "store", 1, topic)
    low, high = log.puts[10], log.puts[14]
    log.change(low.offset, b"\0" * (high.offset - low.offset))
    ranges_of(log, tmp_path / "out", tombstones=True)
    assert record_at(tmp_path / "out", low.offset).topic == "rmq_sys_reindex_lost"
    units = b"".join(path.read_bytes() for path in sorted((tmp_path / "out/consumequeue" / topic / "0").iterdir()))
    found = [struct.unpack_from(">qi", units, 20 * at) for at in range(9, 16)]
    places = [(log.puts[at].offset, log.puts[at].size) for at in range(9, 16)]
    assert found == [places[0], *[(high.offset, size or high.size)] * 4, *places[5:]]


def test_broken_bodies_stay_where_the_broker_takes_them(log: Log, tmp_path: Path) -> None:
    put = log.puts[7]
    log.change(put.offset + 100, b"?")
    conf = tmp_path / "broker.conf"
    conf.write_text("checkCRCOnRecover=false\n")
    words = [str(log.store), "--out", str(tmp_path / "out"), "--include-broken"]
    with pytest.raises(UsageError, match="checkCRCOnRecover"):
        parse_settings(words)
    settings = parse_settings([*words, "--broker-conf", str(conf)])
    (found,) = ranges_of(log, tmp_path / "out", include_broken=True, crc_on_recover=settings.crc_on_recover)
    assert (found["offset"], found["how"]) == (put.offset, "kept")
    assert bytes_at(tmp_path / "out", put.offset, put.size) == log.at(put.offset, put.size)
    unit = (tmp_path / "out/consumequeue/TopicA/1/00000000000000000000").read_bytes()[3 * 20 : 4 * 20]
    assert struct.unpack(">qiq", unit)[0] == put.offset


def test_explain(log: Log, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put = log.puts[7]
    log.change(put.offset + 100, b"?")
    ranges_of(log, tmp_path / "out")
    assert repair(["--explain", str(tmp_path / "out/reindex.json")]) == 0
    told = capsys.readouterr().out
    assert f"bytes {put.offset} to {put.offset + put.size - 1}" in told
    assert "body CRC does not match" in told
    assert repair(["--explain", str(tmp_path / "out"), "--tombstones"]) == 2


def test_tombstones_do_not_hide_that_bytes_are_lost(tmp_path: Path) -> None:
    """Those of a queue with a gap of its own take all of the room. The gap of the other queue is explained all the same."""
    with LogWriter(tmp_path / "store/commitlog", SEGMENT) as writer:
        for number in range(12):
            writer.append(NewMessage("A", queue_offset=number if number < 6 else number + 50, body=b"x" * 100))
            if number in (4, 8):
                writer.append(NewMessage("B", body=b"x" * 100))
            if number == 5:
                for _ in range(2):
                    writer.append(NewMessage("B", body=b"x" * 100))
    log = Log(tmp_path / "store", writer.puts)
    lost = [put for put in log.puts if put.message.topic == "B"][1:3]
    for put in lost:
        log.change(put.offset, bytes(put.size))
    ranges_of(log, tmp_path / "out", tombstones=True)
    units = (tmp_path / "out/consumequeue/B/0" / f"{0:020d}").read_bytes()
    last = next(put for put in reversed(log.puts) if put.message.topic == "B")
    assert struct.unpack_from(">q", units, 20 * last.queue_offset) == (last.offset,)
    again = local_repair(tmp_path / "out", tmp_path / "again", None, tombstones=True, **SIZES)
    assert (again.exit, again.repair and again.repair["ranges"]) == (0, [])


def test_no_tombstone_stands_between_two_lives_of_a_queue(tmp_path: Path) -> None:
    """The lost bytes have room for one of three missing offsets, which no record of its life would follow."""
    with LogWriter(tmp_path / "store/commitlog", SEGMENT) as writer:
        for queue_offset in (*range(8, 14), *range(5, 14)):
            writer.append(NewMessage("A", queue_offset=queue_offset, body=b"x" * 20))
    log = Log(tmp_path / "store", writer.puts)
    log.change(log.puts[3].offset, b"?")
    for store, out, status in (("store", "out", 3), ("out", "again", 0)):
        told = local_repair(tmp_path / store, tmp_path / out, None, tombstones=True, **SIZES)
        assert (told.exit, told.error) == (status, None)
    assert record_at(tmp_path / "out", log.puts[3].offset).topic == "rmq_sys_reindex_lost"
    parts = ("commitlog/", *DERIVED)
    assert tree(tmp_path / "again", parts) == tree(tmp_path / "out", parts)


def test_more_tombstones_than_are_allowed(log: Log, tmp_path: Path) -> None:
    low, high = log.puts[10], log.puts[14]
    log.change(low.offset, bytes(high.offset - low.offset))
    told = local_repair(log.store, tmp_path / "out", None, tombstones=True, max_fill=3, **SIZES)
    assert (told.exit, "4 lost queue offsets, more than --max-fill 3" in (told.error or "")) == (5, True)
    assert local_repair(log.store, tmp_path / "out", None, max_fill=0, **SIZES).exit == 3, "damage explains the gap"


def test_a_replica_comes_before_what_is_broken(log: Log, tmp_path: Path) -> None:
    shutil.copytree(log.store / "commitlog", tmp_path / "replica")
    for put in (log.puts[7], log.puts[30]):
        log.change(put.offset + 100, b"?")
    spoilt = tmp_path / "replica" / f"{log.puts[30].offset // SEGMENT * SEGMENT:020d}"
    data = bytearray(spoilt.read_bytes())
    data[log.puts[30].offset % SEGMENT + 101] ^= 1
    spoilt.write_bytes(data)
    given = {"include_broken": True, "crc_on_recover": False, "replicas": (str(tmp_path / "replica"),)}
    found = ranges_of(log, tmp_path / "out", **given)
    assert [(one["offset"], one["how"]) for one in found] == [(log.puts[7].offset, "replica"), (log.puts[30].offset, "kept")]


def test_a_short_segment_is_taken_once(log: Log, tmp_path: Path) -> None:
    """From a replica, while broken records are kept."""
    shutil.copytree(log.store / "commitlog", tmp_path / "replica")
    whole = log.segment(SEGMENT).read_bytes()
    log.segment(SEGMENT).write_bytes(whole[: SEGMENT // 2])
    given = {"include_broken": True, "crc_on_recover": False, "replicas": (str(tmp_path / "replica"),)}
    (found,) = ranges_of(log, tmp_path / "out", **given)
    assert found["how"] == "replica"
    assert (tmp_path / "out/commitlog" / f"{SEGMENT:020d}").read_bytes() == whole
    paths = [entry["path"] for entry in json.loads((tmp_path / "out/reindex.json").read_text())["files"]]
    assert len(paths) == len(set(paths))


def test_the_replica_with_the_same_records_beside_the_damage(log: Log, tmp_path: Path) -> None:
    """The first one has a record beside it otherwise. It is taken only if there is no better one."""
    for name in ("other", "same"):
        shutil.copytree(log.store / "commitlog", tmp_path / name)
    beside, put = log.puts[6], log.puts[7]
    path = tmp_path / "other" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[beside.offset + data[beside.offset :].index(b"key-")] = ord("K")
    path.write_bytes(data)
    log.change(put.offset + 100, b"?")
    for places, number, low in ((["other", "same"], 2, put.offset), (["other"], 1, beside.offset)):
        out = tmp_path / f"out-{number}"
        told = local_repair(log.store, out, None, replicas=tuple(str(tmp_path / name) for name in places), **SIZES)
        assert told.repair is not None
        (found,) = told.repair["ranges"]
        assert (found["replica"], found["offset"]) == (number, low)
        assert any("records beside the damage are other ones" in text for text in told.warnings) == (number == 1)


def test_the_last_record_of_a_segment_has_a_border_in_the_next_one(log: Log, tmp_path: Path) -> None:
    """Another log goes on there."""
    first = next(put for put in log.puts if put.offset >= SEGMENT)
    last = log.puts[log.puts.index(first) - 1]
    shutil.copytree(log.store / "commitlog", tmp_path / "replica")
    log.change(last.offset + 100, b"?")
    for put in log.puts[log.puts.index(first) :][: NEIGHBOURS + 1]:
        at = put.offset + log.at(put.offset, put.size).index(b"key-")
        log.change(at, b"K")
    (found,) = ranges_of(log, tmp_path / "out", replicas=(str(tmp_path / "replica"),))
    assert (found["offset"], found["how"]) == (last.offset, "filler")


def test_nothing_follows_at_the_logs_end(log: Log, tmp_path: Path) -> None:
    put = log.puts[-1]
    shutil.copytree(log.store / "commitlog", tmp_path / "replica")
    log.change(put.offset + 12, struct.pack(">i", -1))
    told = local_repair(log.store, tmp_path / "out", None, replicas=(str(tmp_path / "replica"),), **SIZES)
    assert any("nothing follows in the damaged log" in text for text in told.warnings), told.warnings


def test_hard_links_of_segments_that_are_symbolic_links(log: Log, tmp_path: Path) -> None:
    path = log.segment(0)
    path.rename(tmp_path / "moved")
    (tmp_path / "deeper").mkdir()
    path.symlink_to(os.path.relpath(tmp_path / "moved", path.parent))
    assert ranges_of(log, tmp_path / "deeper/out", link="hard") == []
    new = tmp_path / "deeper/out/commitlog" / path.name
    assert not new.is_symlink()
    assert new.samefile(tmp_path / "moved")


def test_a_log_of_one_record_whose_version_nobody_names(tmp_path: Path) -> None:
    """A checkpoint of 5.5 says 0 of that record, as those of older brokers do: it shows no version."""
    with LogWriter(tmp_path / "store/commitlog", SEGMENT) as writer:
        writer.append(NewMessage("A", properties={"KEYS": "k", "TAGS": "t"}))
    for store, out in (("store", "out"), ("out", "again")):
        told = local_repair(tmp_path / store, tmp_path / out, None, **SIZES)
        assert (told.exit, told.error) == (0, None)
    assert (tmp_path / "again/checkpoint").read_bytes() == (tmp_path / "out/checkpoint").read_bytes()


def test_one_segment_whose_size_nobody_names(tmp_path: Path) -> None:
    with LogWriter(tmp_path / "store/commitlog", SEGMENT) as writer:
        writer.append(NewMessage())
    log = Log(tmp_path / "store", writer.puts)
    told = local_repair(log.store, tmp_path / "out", None, **SIZES)
    assert any("name --segment-size" in text for text in told.warnings)
    named = local_repair(log.store, tmp_path / "named", None, segment_size=SEGMENT, **SIZES)
    assert not any("name --segment-size" in text for text in named.warnings)


def test_segments_that_lie_too_far_apart(log: Log, tmp_path: Path) -> None:
    shutil.copy(log.segment(0), log.store / "commitlog" / f"{1 << 61:020d}")
    told = local_repair(log.store, tmp_path / "out", None, **SIZES)
    assert told.exit == 5
    assert not (tmp_path / "out").exists()


def test_a_log_that_no_crc_is_asked_of(log: Log, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--crc none"):
        local_repair(log.store, tmp_path / "out", None, crc="none", **SIZES)


def test_a_repair_before_a_stale_tail(seed: int, tmp_path: Path) -> None:
    """The range in which the log ends is cut there twice. Its records count once."""
    store = tmp_path / "store"
    log = stale_log(store, seed)
    write_at(store, log.live[3].offset + 100, b"????")
    for ranges in random.Random(seed).sample((0, 500, 2000), cases(3, 1)):
        out, again = tmp_path / f"out-{ranges}", tmp_path / f"again-{ranges}"
        told = local_repair(store, out, None, range_size=ranges, **SIZES)
        assert (told.exit, told.error, told.records) == (3, None, len(log.live)), told.damage
        built = local_build(out, again, None, **SIZES)
        assert (built.exit, built.records) == (0, len(log.live))
        found, wanted = read_files(out), read_files(again)
        assert {path: found[path] for path in wanted if path != "reindex.json"} == {
            path: data for path, data in wanted.items() if path != "reindex.json"
        }


def test_the_digest_of_old_bytes(log: Log, tmp_path: Path) -> None:
    """Of all that the file has there: a short one has less."""
    put, path = log.puts[7], log.segment(SEGMENT)
    log.change(put.offset + 95, b"?")
    path.write_bytes(path.read_bytes()[:1000])
    told = local_repair(log.store, tmp_path / "out", None, **SIZES)
    first, second = told.repair["ranges"] if told.repair else []
    assert first["old"] == new_digest([log.at(put.offset, put.size)]).digest().hex()
    low = second["offset"]
    assert (second["length"], second["old"]) == (2 * SEGMENT - low, new_digest([log.at(low, 1000)]).digest().hex())


def test_any_range_size_gives_the_same(tmp_path: Path) -> None:
    """A record that begins in a range with damage, ends in another, and covers those between. No scan sees that damage."""
    with LogWriter(tmp_path / "store/commitlog", SEGMENT) as writer:
        for number in range(30):
            writer.append(NewMessage(queue_id=number % 4, body=bytes(1200 if number == 10 else 30)))
    log = Log(tmp_path / "store", writer.puts)
    for number in (9, 11):
        log.change(log.puts[number].offset + 20, struct.pack(">q", 70))
    expected = None
    for size in (0, 200, 300, 450, 1000, 2000):
        out = tmp_path / f"out-{size}"
        told = local_repair(log.store, out, None, range_size=size, **SIZES)
        assert (told.exit, told.error, len((told.repair or {})["ranges"])) == (3, None, 2), size
        found = tree(out)
        expected = expected or found
        assert found == expected, size


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize("place", ["nowhere", "empty"])
def test_a_replica_without_segments_is_an_error_on_a_sound_log_too(place: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    told = local_repair(tmp_path / "store", tmp_path / "out", None, replicas=(str(tmp_path / place),), **SIZES)
    assert (told.exit, (tmp_path / "out").exists()) == (1, False)
    assert "--replica is a store, or a folder of segments" in str(told.error)


def test_any_release_goes_by_its_line() -> None:
    words = ["store", "--out", "out", "--broker-version"]
    lines = {"4.8.0": "4.9", "5.1.4": "5.3", "5.5.1": "5.5"}
    assert {release: parse_settings([*words, release]).broker_version for release in lines} == lines
    with pytest.raises(UsageError, match=r"5\.9\.0 is not known"):
        parse_settings([*words, "5.9.0"])
