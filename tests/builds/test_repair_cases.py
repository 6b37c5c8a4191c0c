"""What a repair does with one kind of damage at a time."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.storage_format.record.layout import RECORD_MIN
from rocketmq_reindex.storage_format.repair import LOST_FLAG
from tests.builds.repair_log import SEGMENT, SIZES, Log, bytes_at, make_log, ranges_of, record_at
from tests.repair.repaired import DERIVED, tree
from tests.tools.encode import Message as NewMessage, encode
from tests.tools.local_engine import local_build, local_repair
from tests.tools.local_verify import kinds, local_verify
from tests.tools.log_writer import LogWriter


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return make_log(tmp_path / "store", 2)


def test_a_filler_stands_for_a_record(log: Log, tmp_path: Path) -> None:
    put = log.puts[7]
    log.change(put.offset + 100, b"?")
    (found,) = ranges_of(log, tmp_path / "out")
    assert (found["offset"], found["length"], found["how"], found["reason"]) == (
        put.offset, put.size, "filler", "body CRC does not match",
    )  # fmt: skip
    filler = record_at(tmp_path / "out", put.offset)
    assert (filler.size, filler.flag, filler.sys_flag, filler.topic) == (put.size, LOST_FLAG, 12, "rmq_sys_reindex_lost")
    assert filler.store_time == log.puts[6].message.store_timestamp
    unit = (tmp_path / "out/consumequeue/TopicA/1/00000000000000000000").read_bytes()[3 * 20 : 4 * 20]
    # The lost offset repeats the next message of its queue.
    assert struct.unpack(">qiq", unit)[0] == log.puts[9].offset


def test_what_was_there_is_kept(log: Log, tmp_path: Path) -> None:
    put = log.puts[7]
    log.change(put.offset + 100, b"?")
    ranges_of(log, tmp_path / "out")
    folder = tmp_path / "out/quarantine"
    assert (folder / f"{put.offset:020d}").read_bytes() == log.at(put.offset, put.size)
    listed = json.loads((folder / f"{put.offset:020d}.json").read_text())
    assert [(one["topic"], one["queue"], one["queue_offset"], one["unique_key"], one["keys"]) for one in listed["records"]] == [
        ("TopicA", 1, 3, "id-7", ["key-7"])
    ]
    assert listed["damage"] == [{"offset": put.offset, "length": put.size, "reason": "body CRC does not match"}]


def test_all_of_a_segment_is_one_filler_and_blank(log: Log, tmp_path: Path) -> None:
    log.segment(SEGMENT).unlink()
    (found,) = ranges_of(log, tmp_path / "out")
    assert (found["offset"], found["length"], found["reason"], found["old"]) == (SEGMENT, SEGMENT, "segment missing", None)
    first = record_at(tmp_path / "out", SEGMENT)
    assert (first.flag, first.body_size) == (LOST_FLAG, 0)
    rest = bytes_at(tmp_path / "out", SEGMENT + first.size, SEGMENT)
    assert rest == struct.pack(">iI4s", SEGMENT - first.size, 0xCBD43194, b"LOST").ljust(SEGMENT - first.size, b"\0")


def test_blank_stands_up_to_a_segments_end(log: Log, tmp_path: Path) -> None:
    last = max(put.offset for put in log.puts if put.offset < SEGMENT)
    log.change(last + 4, b"????")
    (found,) = ranges_of(log, tmp_path / "out")
    assert (found["offset"], found["length"]) == (last, SEGMENT - last)
    assert bytes_at(tmp_path / "out", last, 8) == struct.pack(">iI", SEGMENT - last, 0xCBD43194)


def test_a_small_hole_takes_the_smaller_neighbour(log: Log, tmp_path: Path) -> None:
    put = log.puts[7]
    smaller = encode(replace(put.message, body=b"x" * 80), put.offset + 20, put.queue_offset)
    log.change(put.offset, b"\xff" * 20 + smaller)
    (found,) = ranges_of(log, tmp_path / "out")
    assert found["damaged"] == [put.offset, 20]
    assert (found["offset"], found["length"]) == (put.offset, put.size)
    assert record_at(tmp_path / "out", put.offset).size == put.size
    kept = json.loads((tmp_path / f"out/quarantine/{put.offset:020d}.json").read_text())
    assert [record["unique_key"] for record in kept["records"]] == ["id-7"]


def test_a_record_out_of_line_is_damage(log: Log, tmp_path: Path) -> None:
    put = log.puts[20]
    log.change(put.offset + 20, struct.pack(">q", 5000))
    (found,) = ranges_of(log, tmp_path / "out")
    assert found["offset"] == put.offset
    assert found["reason"].startswith("queue offset out of line")
    assert found["segment"] == f"{put.offset // SEGMENT * SEGMENT:020d}"
    assert record_at(tmp_path / "out", put.offset).flag == LOST_FLAG


@pytest.mark.parametrize(("of_queue", "status"), [(False, 0), (True, 3)])
def test_a_record_out_of_line_behind_damage(log: Log, tmp_path: Path, of_queue: bool, status: int) -> None:
    """One high bit of its queue offset is flipped: lost bytes have no room for what would be missing. Two records follow.

    Where exactly its place is missing, it is sure to be wrong, and is mended. It stays where more is missing.
    """
    lost, put, *following = (log.puts[-1 - back] for back in (6 if of_queue else 5, 4, 2, 0))
    log.change(lost.offset, bytes(lost.size))
    log.change(put.offset + 20, struct.pack(">q", put.queue_offset + (1 << 17)))
    sizes: dict[str, Any] = SIZES | {"segment_size": SEGMENT}
    salvaged = local_build(log.store, tmp_path / "salvaged", on_damage="salvage", **sizes)
    reasons = {entry["offset"]: entry["reason"] for entry in salvaged.damage}
    assert reasons.keys() == {lost.offset, put.offset}
    assert reasons[put.offset].startswith("queue offset out of line")
    verified = local_verify(log.store, only=("log", "consumequeue"), **sizes)
    assert (verified.exit, kinds(verified)["log-out-of-line"]) == (4, 1)
    told = local_repair(log.store, tmp_path / "out", None, **sizes)
    assert told.repair is not None
    (found,) = told.repair["ranges"]
    is_mended = found["offset"] <= put.offset < found["offset"] + found["length"]
    assert (told.exit, is_mended) == (3, not of_queue)
    assert (bytes_at(tmp_path / "out", put.offset, put.size) == log.at(put.offset, put.size)) == of_queue
    queue = tmp_path / f"out/consumequeue/TopicA/{put.message.queue_id}"
    units = b"".join(path.read_bytes() for path in sorted(queue.iterdir()))
    for one in following:
        assert struct.unpack_from(">qi", units, 20 * one.queue_offset) == (one.offset, one.size)
    again = local_repair(tmp_path / "out", tmp_path / "again", None, **sizes)
    assert (again.exit, again.repair and again.repair["ranges"]) == (status, [])
    assert tree(tmp_path / "again", DERIVED) == tree(tmp_path / "out", DERIVED)
    built = local_build(tmp_path / "out", tmp_path / "built", **sizes)
    assert (built.exit, "or --on-damage stop" in (built.error or "")) == ((5, True) if of_queue else (0, False))
    verified = local_verify(tmp_path / "out", only=("log", "consumequeue"), **sizes)
    assert verified.exit == (4 if of_queue else 0)


def test_a_jump_that_lost_bytes_explain_stays(log: Log, tmp_path: Path) -> None:
    """Whether it is wrong, or the two records behind it are of a queue that began again, nobody can tell."""
    lost, put, *following = (log.puts[-1 - back] for back in (10, 4, 2, 0))
    for one in log.puts[-11:-5]:
        log.change(one.offset, bytes(one.size))
    assert (put.offset - lost.offset) // RECORD_MIN > 8
    log.change(put.offset + 20, struct.pack(">q", put.queue_offset + 4))
    told = local_repair(log.store, tmp_path / "out", None, segment_size=SEGMENT, **SIZES)
    pending = [(entry["offset"], entry["count"]) for entry in told.decisions if entry["kind"] == "pending"]
    assert (told.exit, pending) == (3, [(following[0].queue_offset, 2)])
    for one in (put, *following):
        assert bytes_at(tmp_path / "out", one.offset, one.size) == log.at(one.offset, one.size)


def test_a_torn_tail_stays(log: Log, tmp_path: Path) -> None:
    put = log.puts[-1]
    log.change(put.offset + 50, bytes(put.size - 50))
    told = local_repair(log.store, tmp_path / "out", None, **SIZES)
    assert (told.exit, told.repair and told.repair["ranges"]) == (0, [])
    assert bytes_at(tmp_path / "out", put.offset, put.size) == log.at(put.offset, put.size)


def test_a_short_last_segment_becomes_whole(log: Log, tmp_path: Path) -> None:
    last = log.segment(log.puts[-1].offset)
    whole = last.read_bytes()
    last.write_bytes(whole.rstrip(b"\0"))
    assert ranges_of(log, tmp_path / "out") == []
    assert (tmp_path / "out/commitlog" / last.name).read_bytes() == whole


def test_a_record_in_which_a_short_segment_ends_is_damage(log: Log, tmp_path: Path) -> None:
    """The zeros that fill the file up would make a record of it, with other properties."""
    put = log.puts[-1]
    path = log.segment(put.offset)
    path.write_bytes(path.read_bytes()[: (put.offset + put.size - 5) % SEGMENT])
    (found,) = ranges_of(log, tmp_path / "out")
    assert (found["offset"], found["length"], found["how"]) == (put.offset, put.size - 5, "filler")
    assert found["reason"] == "segment file is too short"
    assert local_repair(log.store, tmp_path / "more", None, **SIZES).exit == 3
    assert local_repair(tmp_path / "out", tmp_path / "again", None, **SIZES).exit == 0


def test_nothing_replaces_a_repaired_log(log: Log, tmp_path: Path) -> None:
    ranges_of(log, tmp_path / "out")
    before = (tmp_path / "out/reindex.json").read_bytes()
    for told in (
        local_repair(log.store, tmp_path / "out", None, **SIZES),
        local_build(log.store, tmp_path / "out", None, overwrite=True, **SIZES),
    ):
        assert (told.exit, "holds a repaired log" in (told.error or "")) == (1, True)
    assert (tmp_path / "out/reindex.json").read_bytes() == before


def test_a_misnamed_segment_is_refused(log: Log, tmp_path: Path) -> None:
    # Its records are sound, and say where they belong.
    log.segment(SEGMENT).rename(log.store / "commitlog" / f"{20 * SEGMENT:020d}")
    told = local_repair(log.store, tmp_path / "out", None, **SIZES)
    assert told.exit == 5
    assert "rename it" in (told.error or "")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("jump", "status"), [(1, 0), (40, 0), (200_000, 3)])
def test_a_last_record_that_jumps_stays(log: Log, tmp_path: Path, jump: int, status: int) -> None:
    """No CRC covers its queue offset: it may be as it was written. Nothing follows that says otherwise."""
    put = log.puts[-1]
    log.change(put.offset + 20, struct.pack(">q", put.queue_offset + jump))
    told = local_repair(log.store, tmp_path / "out", None, **SIZES)
    assert (told.exit, told.repair and told.repair["ranges"]) == (status, [])
    assert ("undamaged" in told.to_text()) == (status == 0)
    assert bytes_at(tmp_path / "out", put.offset, put.size) == log.at(put.offset, put.size)


def test_a_log_without_a_damaged_byte_stays_as_it_is(tmp_path: Path) -> None:
    """Queues that jump, go back and begin again: what cannot be placed is said, and not written over."""
    for number, (offsets, status) in enumerate((
        ((0, 1, 2, 5, 6), 0), ((0, 1, 2, 5), 0), ((0, 1, 2, 5, 6, 0), 0), ((0, 1, 2, 3, 1), 3), ((0, 1, 2, 3, 1, 5, 6), 3),
        ((0, 1, 2, 50, 3, 4), 3),
    )):  # fmt: skip
        store = tmp_path / f"{number}"
        with LogWriter(store / "commitlog", SEGMENT) as writer:
            for offset in offsets:
                writer.append(NewMessage(queue_offset=offset, body=bytes(100)))
        for tombstones in (False, True):
            out = tmp_path / f"out-{number}-{tombstones}"
            told = local_repair(store, out, None, segment_size=SEGMENT, tombstones=tombstones, **SIZES)
            assert (told.exit, told.repair and told.repair["ranges"]) == (status, []), offsets
            assert bytes_at(out, 0, SEGMENT) == bytes_at(store, 0, SEGMENT)


def test_a_last_record_behind_one_that_lies_in_another_queue_stays(log: Log, tmp_path: Path) -> None:
    before, put = log.puts[-3], log.puts[-1]
    assert (before.message.queue_id, before.queue_offset + 1) == (put.message.queue_id, put.queue_offset)
    log.change(before.offset + 12, struct.pack(">i", 41))
    assert ranges_of(log, tmp_path / "out") == []
    name = f"consumequeue/{put.message.topic!s}/{put.message.queue_id}/{put.queue_offset * 20 // 400 * 400:020d}"
    unit = (tmp_path / "out" / name).read_bytes()[put.queue_offset * 20 % 400 :][:12]
    assert struct.unpack(">qi", unit) == (put.offset, put.size)


def test_a_last_record_without_the_crc_it_must_have_is_damage(tmp_path: Path) -> None:
    """A broker that demands it cuts it, one that does not keeps it: it is no torn tail."""
    with LogWriter(tmp_path / "store/commitlog", SEGMENT) as writer:
        for number in range(10):
            writer.append(NewMessage(body=b"x" * 100, properties={"KEYS": "k"}, crc_property=number < 9))
    log, put = Log(tmp_path / "store", writer.puts), writer.puts[-1]
    assert ranges_of(log, tmp_path / "kept", crc="all") == []
    (found,) = ranges_of(log, tmp_path / "out", crc="all", property_crc_forced=True)
    assert (found["offset"], found["length"], found["how"]) == (put.offset, put.size, "filler")


def test_a_file_that_lacks_only_filler_is_completed(log: Log, tmp_path: Path) -> None:
    path = log.segment(0)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert ranges_of(log, tmp_path / "out") == []
    assert (tmp_path / "out/commitlog" / path.name).read_bytes() == whole


def test_a_short_file_behind_the_logs_end_is_completed(log: Log, tmp_path: Path) -> None:
    """A broker makes files ahead. The torn tail before them stays one."""
    put = log.puts[-1]
    log.change(put.offset + put.size - 30, bytes(30))
    end = (put.offset // SEGMENT + 1) * SEGMENT
    for number, size in enumerate((SEGMENT // 2, SEGMENT)):
        (log.store / "commitlog" / f"{end + number * SEGMENT:020d}").write_bytes(bytes(size))
    assert ranges_of(log, tmp_path / "out") == []
    assert (tmp_path / "out/commitlog" / f"{end:020d}").read_bytes() == bytes(SEGMENT)
