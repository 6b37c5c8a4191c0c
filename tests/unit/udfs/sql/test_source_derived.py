"""``rocketmq-consumequeue`` and ``rocketmq-index``: units and items as rows, of sound files and of broken ones."""

from __future__ import annotations

import datetime as dt
import logging
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.storage_format.errors import InputError, RefusedError, UsageError
from rocketmq_reindex.udfs.sql import sources as source_index
from rocketmq_reindex.udfs.sql.queue_source import ConsumeQueueSource
from rocketmq_reindex.udfs.sql.sources import IndexSource
from tests.golden.stores import GoldenStore
from tests.tools.batch_log import MADE, random_batch_log
from tests.tools.local_engine import local_build
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import Message, random_log
from tests.tools.read_rows import make_reader, read_rows

Stores = Callable[[str], GoldenStore]
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
UNIT = struct.Struct(">qiq")
ITEM = struct.Struct(">iqii")


def units_of(folder: Path) -> list[tuple[str, int, int, int, int, int]]:
    """Every unit of a consumequeue/ folder: topic, queue id, position, offset, size, tagsCode."""
    found = []
    for path in sorted(folder.glob("*/*/*"), key=lambda p: (p.parts[-3], int(p.parts[-2]), p.name)):
        for number, unit in enumerate(UNIT.iter_unpack(path.read_bytes())):
            if unit[1] > 0 and unit != (0, 2147483647, 0):
                found.append((path.parts[-3], int(path.parts[-2]), int(path.name) // 20 + number, *unit))
    return found


def items_of(folder: Path, slots: int) -> list[dict[str, Any]]:
    found = []
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        begin, _, _, _, _, count = struct.unpack_from(">qqqqii", data)
        for number, (key_hash, place, seconds, prev) in enumerate(ITEM.iter_unpack(data[40 + 4 * slots :])):
            if 0 < number < count and (key_hash, place, seconds, prev) != (0, 0, 0, 0):
                found.append(
                    {
                        "file": path.name,
                        "item": number,
                        "keyHash": key_hash,
                        "slot": key_hash % slots,
                        "commitLogOffset": place,
                        "storeTimestamp": begin + 1000 * seconds,
                        "storeTime": EPOCH + dt.timedelta(milliseconds=begin + 1000 * seconds),
                        "timeDiff": seconds,
                        "prevItem": prev,
                    }
                )
    return found


@pytest.mark.parametrize("name", ["transactions-delay", "trimmed-head", "wide-keys"])
def test_golden_stores(name: str, golden_store: Stores) -> None:
    """What RocketMQ's own rebuild wrote, also with pre-blank units before it."""
    store = golden_store(name)
    rebuilt = store.path / "rebuilt"
    rows = read_rows(ConsumeQueueSource, rebuilt)
    assert [tuple(row.values())[:6] for row in rows] == units_of(rebuilt / "consumequeue")
    assert {(row["storeTimestamp"], row["storeTime"], row["batchSize"]) for row in rows} == {(None, None, None)}
    wanted = items_of(rebuilt / "index", store.sizes()["hash_slots"])
    for options in ({}, {"hashSlots": store.sizes()["hash_slots"], "indexItems": store.sizes()["index_items"]}):
        for policy in ("skip", "rows", "fail"):
            rows = read_rows(IndexSource, rebuilt, damage=policy, **options)
            assert {row.pop("damage", None) for row in rows} == {None}
            assert rows == wanted


def test_a_folder_of_its_own_topics_and_queues(golden_store: Stores) -> None:
    folder = golden_store("wide-keys").path / "rebuilt" / "consumequeue"
    whole = read_rows(ConsumeQueueSource, folder)
    topics = sorted({row["topic"] for row in whole})
    queues = sorted({row["queueId"] for row in whole})
    one = read_rows(ConsumeQueueSource, folder, topic=topics[0], queueId=queues[-1])
    assert one == [row for row in whole if row["topic"] == topics[0] and row["queueId"] == queues[-1]]
    assert read_rows(ConsumeQueueSource, folder, excludeTopic="*") == []
    assert read_rows(ConsumeQueueSource, folder, columns="tagsCode") == [{"tagsCode": row["tagsCode"]} for row in whole]
    with pytest.raises(UsageError, match="queueId 'x': take numbers"):
        make_reader(ConsumeQueueSource, folder, queueId="x")
    with pytest.raises(InputError, match="is not there: name a store"):
        make_reader(ConsumeQueueSource, folder / "none").partitions()


def test_batch_queues(seed: int, tmp_path: Path) -> None:
    random_batch_log(tmp_path / "store" / "commitlog", seed)
    summary = local_build(tmp_path / "store", tmp_path / "out", **{**MADE, "on_damage": "salvage", "max_fill": 10**7})
    assert summary.exit in (0, 3), summary.error
    batch = struct.Struct(">qiqqqhii")
    wanted = []
    folder = tmp_path / "out" / "batchconsumequeue"
    for path in sorted(folder.glob("*/*/*"), key=lambda p: (p.parts[-3], int(p.parts[-2]), p.name)):
        for place, size, code, time, base, count, _, _ in batch.iter_unpack(path.read_bytes()):
            if size > 0:
                stamp = EPOCH + dt.timedelta(milliseconds=time)
                wanted.append((path.parts[-3], int(path.parts[-2]), base, place, size, code, time, stamp, count))
    rows = read_rows(ConsumeQueueSource, tmp_path / "out")
    assert [tuple(row.values()) for row in rows if row["batchSize"] is not None] == wanted != []
    assert [tuple(row.values()) for row in read_rows(ConsumeQueueSource, folder)] == wanted
    plain = [tuple(row.values())[:6] for row in rows if row["batchSize"] is None]
    assert plain == units_of(tmp_path / "out" / "consumequeue")


def test_a_folder_whose_name_is_no_text(tmp_path: Path) -> None:
    folder = bytes(tmp_path) + b"/consumequeue/a\xff\xed\xa0\x80/0"
    os.makedirs(folder)
    with open(folder + b"/" + b"0" * 20, "wb") as file:
        file.write(UNIT.pack(7, 100, 5) + bytes(40))
    (row,) = read_rows(ConsumeQueueSource, tmp_path)
    assert row["topic"].startswith("a\ufffd")
    assert (row["queueId"], row["consumeQueueOffset"], row["commitLogOffset"], row["msgSize"]) == (0, 0, 7, 100)


def build(tmp_path: Path, records: int = 90) -> Path:
    random_log(tmp_path / "store" / "commitlog", 5, records=records, segment_size=1 << 14, queues=1, topics=1)
    summary = local_build(tmp_path / "store", tmp_path / "out", cq_file_size=20_000, hash_slots=40, index_items=200)
    assert summary.exit == 0
    return tmp_path / "out"


def test_broken_units(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    out = build(tmp_path)
    path = max(out.glob("consumequeue/*/0/*"), key=lambda p: len(p.read_bytes().rstrip(b"\0")))
    topic = path.parts[-3]
    whole = read_rows(ConsumeQueueSource, out, topic=topic)
    data = bytearray(path.read_bytes())
    assert len(whole) > 9
    UNIT.pack_into(data, 20 * 3, -5, 100, 1)
    UNIT.pack_into(data, 20 * 5, 0, 0, 0)
    UNIT.pack_into(data, 20 * 7, 1, 100, 1)
    path.write_bytes(data)
    with caplog.at_level(logging.WARNING):
        rows = read_rows(ConsumeQueueSource, out, topic=topic)
    positions = [row["consumeQueueOffset"] for row in rows]
    assert positions == [row["consumeQueueOffset"] for row in whole if row["consumeQueueOffset"] not in (3, 5)]
    assert [record.getMessage() for record in caplog.records] == [
        f"rocketmq-consumequeue: {path}: passed over 2 damaged places, the first: position 3"
    ]
    rows = read_rows(ConsumeQueueSource, out, topic=topic, damage="rows")
    told = {row["consumeQueueOffset"]: row["damage"] for row in rows if row["damage"]}
    assert told == {
        3: "unit with a negative position, no size, or past the largest offset",
        5: "zeros where a unit should be, before a later one",
        7: "unit that lies before the one before it",
    }
    assert rows[3]["commitLogOffset"] == -5
    with pytest.raises(RefusedError, match="damage: unit with a negative position"):
        read_rows(ConsumeQueueSource, out, damage="fail")


def test_broken_items(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    out = build(tmp_path)
    path = min((out / "index").iterdir())
    whole = read_rows(IndexSource, out)
    data = bytearray(path.read_bytes())
    first = 40 + 4 * 40
    struct.pack_into(">i", data, first + 20 * 3, -7)
    struct.pack_into(">q", data, first + 20 * 6 + 4, -1)
    path.write_bytes(data)
    with caplog.at_level(logging.WARNING):
        rows = read_rows(IndexSource, out, hashSlots=40, indexItems=200)
    assert rows == [row for row in whole if row["file"] != path.name or row["item"] not in (3, 6)]
    assert [record.getMessage() for record in caplog.records] == [
        f"rocketmq-index: {path}: passed over 2 damaged places, the first: item 3: no item has a negative hash or offset"
    ]
    rows = read_rows(IndexSource, out, damage="rows", hashSlots=40, indexItems=200)
    assert len(rows) == len(whole)
    told = {row["item"]: row["damage"] for row in rows if row["damage"] and row["file"] == path.name}
    assert "item with a negative hash" in told[3]
    assert "item with a negative offset, or one below the item before" in told[6]
    assert rows[2]["slot"] == -1
    with pytest.raises(RefusedError, match="damage: "):
        read_rows(IndexSource, out, damage="fail", hashSlots=40, indexItems=200)


def test_items_of_a_time_and_of_offsets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = build(tmp_path)
    whole = read_rows(IndexSource, out)
    times, places = sorted(row["storeTimestamp"] for row in whole), sorted(row["commitLogOffset"] for row in whole)
    low, high = times[len(times) // 3], times[-len(times) // 4]
    monkeypatch.setattr(source_index, "ITEMS", 30)
    monkeypatch.setattr(source_index, "BATCH_ITEMS", 7)
    assert read_rows(IndexSource, out) == whole
    assert read_rows(IndexSource, out, startTime=low, endTime=high) == [r for r in whole if low <= r["storeTimestamp"] < high]
    rows = read_rows(IndexSource, out, startOffset=places[10], endOffset=places[-10])
    assert rows == [row for row in whole if places[10] <= row["commitLogOffset"] < places[-10]]
    assert read_rows(IndexSource, out, endTime="1970-01-01T00:00:00.001Z") == []


def test_sizes_that_nobody_knows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "20260101000000000").write_bytes(bytes(36) + b"\0\0\0\x09" + bytes(range(200)))
    (tmp_path / "index" / "short").write_bytes(b"x")
    with caplog.at_level(logging.WARNING):
        assert read_rows(IndexSource, tmp_path) == []
    (record,) = caplog.records
    assert record.getMessage().endswith("its slots and items are not known: give hashSlots and indexItems")
    with pytest.raises(InputError, match="give hashSlots and indexItems"):
        read_rows(IndexSource, tmp_path, damage="fail")
    with pytest.raises(UsageError, match="give both or none"):
        make_reader(IndexSource, tmp_path, hashSlots=5)


@pytest.mark.parametrize(("count", "told"), [(1, 0), (2, 1)])
def test_an_index_of_unknown_sizes_without_items(
    count: int, told: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:  # fmt: skip
    """Its header counts from 1: nothing can be missing of one whose indexCount is 1."""
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "20260101000000000").write_bytes(bytes(36) + count.to_bytes(4, "big") + bytes(range(200)))
    with caplog.at_level(logging.WARNING):
        assert read_rows(IndexSource, tmp_path) == []
    assert len(caplog.records) == told


def test_a_store_without_keys(tmp_path: Path) -> None:
    with LogWriter(tmp_path / "store" / "commitlog", 1 << 14) as writer:
        writer.append(Message())
    local_build(tmp_path / "store", tmp_path / "out", hash_slots=40, index_items=200)
    assert read_rows(IndexSource, tmp_path / "out") == []
    assert len(read_rows(ConsumeQueueSource, tmp_path / "out")) == 1
