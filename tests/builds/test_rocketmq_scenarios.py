"""RocketMQ's own unit tests as scenarios, with their figures: what its classes promise, ours keep.

IndexFileTest, ConsumeQueueTest and StoreCheckpointTest of the store module, MessageDecoderTest of the common module (5.3.3).
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from rocketmq_reindex.storage_format.checkpoints import Checkpoint
from rocketmq_reindex.storage_format.record import frame, layout as r
from rocketmq_reindex.storage_format.record.frame import NAMES, scan_properties
from tests.golden.stores import index_in_order, read_files
from tests.tools.encode import EPOCH, Message, encode
from tests.tools.local_engine import local_build
from tests.tools.log_writer import LogWriter, Put
from tests.unit.storage_format.index.index_lookup import select

SLOTS, ITEMS = 100, 400
TOPIC, BODY = "abc", b"Once, there was a chance for me!"
IPV6 = {"born_host": ("1050::5:600:300c:326b", 123), "store_host": ("::1", 124)}


# -- IndexFileTest: 100 slots, 400 items ---------------------------------------------------------------------------------


def keyed_store(folder: Path, records: int) -> list[Put]:
    """Records whose keys are "0", "1", ..., one each."""
    with LogWriter(folder / "commitlog") as writer:
        for number in range(records):
            writer.append(Message(topic="T", body=b"", store_timestamp=EPOCH + number, properties={"KEYS": str(number)}))
        return writer.puts


def test_put_key(tmp_path: Path) -> None:
    """399 of 400 puts find room; the 400th is for the next file."""
    keyed_store(tmp_path / "store", 400)
    summary = local_build(tmp_path / "store", tmp_path / "out", hash_slots=SLOTS, index_items=ITEMS, checkpoint="broker")
    assert (summary.exit, summary.items, summary.files["index"]) == (0, 400, 2)
    full, after = index_in_order(read_files(tmp_path / "out"))
    assert len(full) == len(after) == 40 + 100 * 4 + 400 * 20
    assert struct.unpack_from(">i", full, 36) == (400,)
    assert struct.unpack_from(">i", after, 36) == (2,)


def test_399_puts_need_no_second_file(tmp_path: Path) -> None:
    keyed_store(tmp_path / "store", 399)
    summary = local_build(tmp_path / "store", tmp_path / "out", hash_slots=SLOTS, index_items=ITEMS)
    assert (summary.items, summary.files["index"]) == (399, 1)


def test_select_phy_offset(tmp_path: Path) -> None:
    """Of 399 keys in 100 slots, "60" gives one offset, and so does every other."""
    puts = keyed_store(tmp_path / "store", 400)
    local_build(tmp_path / "store", tmp_path / "out", hash_slots=SLOTS, index_items=ITEMS)
    full, after = index_in_order(read_files(tmp_path / "out"))
    assert select(full, SLOTS, "T#60", 10, 0, 2**63 - 1) == [puts[60].offset]
    for number in range(399):
        assert select(full, SLOTS, f"T#{number}", 10, 0, 2**63 - 1) == [puts[number].offset]
    assert select(full, SLOTS, "T#399", 10, 0, 2**63 - 1) == []
    assert select(after, SLOTS, "T#399", 10, 0, 2**63 - 1) == [puts[399].offset]


# -- ConsumeQueueTest: commitlog files of 8 KiB, ConsumeQueue files of ten units ---------------------------------------


def message(number: int, **more: object) -> Message:
    properties = {"TAGS": "TAG1", "KEYS": str(EPOCH + number), "0": "imagoodperson0"}
    return Message(topic=TOPIC, body=BODY, store_timestamp=EPOCH + number, properties=properties, **more)  # type: ignore[arg-type]


def queue_store(folder: Path, rounds: int) -> list[Put]:
    """Each round: 100 messages from IPv4 hosts, 100 from IPv6 ones, all to abc/0."""
    with LogWriter(folder / "commitlog", 1024 * 8) as writer:
        for number in range(200 * rounds):
            writer.append(message(number) if number % 200 < 100 else message(number, **IPV6))
        return writer.puts


def units_of(out: Path, topic: str, queue_id: int) -> list[tuple[int, int, int]]:
    """(physical offset, size, tagsCode) of every unit that a consumer sees."""
    files = sorted((out / "consumequeue" / topic / str(queue_id)).iterdir())
    units = [unit for file in files for unit in struct.iter_unpack(">qiq", file.read_bytes())]
    return [unit for unit in units if unit[0] >= 0 and unit[1] > 0]


def test_2000_messages_make_2000_units(tmp_path: Path) -> None:
    puts = queue_store(tmp_path / "store", 10)
    summary = local_build(tmp_path / "store", tmp_path / "out", only=("consumequeue",), cq_file_size=10 * 20)
    assert (summary.exit, summary.units, summary.files) == (0, 2000, {"consumequeue": 200, "index": 0})
    units = units_of(tmp_path / "out", TOPIC, 0)
    assert units == [(put.offset, put.size, 2567159) for put in puts]
    assert [path.name for path in (tmp_path / "out").iterdir() if path.name != "reindex.json"] == ["consumequeue"]
    names = sorted(path.name for path in (tmp_path / "out" / "consumequeue" / TOPIC / "0").iterdir())
    assert names == [f"{200 * number:020d}" for number in range(200)]


def test_dispatched_repeatedly(tmp_path: Path) -> None:
    """Records that come a second time give no second unit: ranges scanned twice, and a build over the one before."""
    queue_store(tmp_path / "store", 1)
    settings = {"cq_file_size": 200, "hash_slots": SLOTS, "index_items": ITEMS}
    local_build(tmp_path / "store", tmp_path / "out", **settings)  # type: ignore[arg-type]
    once = read_files(tmp_path / "out")
    for range_size in (0, 100):
        summary = local_build(tmp_path / "store", tmp_path / "out", overwrite=True, range_size=range_size, **settings)  # type: ignore[arg-type]
        assert (summary.exit, summary.units) == (0, 200)
        assert read_files(tmp_path / "out") == once


@pytest.mark.parametrize("lmq", [True, False])
def test_multi_dispatch(tmp_path: Path, lmq: bool) -> None:
    """Ten messages to two light queues as well: ten units in each of the three, of the same records."""
    with LogWriter(tmp_path / "store" / "commitlog", 1024 * 8) as writer:
        for number in range(10):
            writer.append(message(number, lmq=("%LMQ%123", "%LMQ%456")))
    local_build(tmp_path / "store", tmp_path / "out", lmq=lmq, cq_file_size=200, only=("consumequeue",))
    made = sorted(path.name for path in (tmp_path / "out" / "consumequeue").iterdir())
    assert made == (["%LMQ%123", "%LMQ%456", TOPIC] if lmq else [TOPIC])
    units = units_of(tmp_path / "out", TOPIC, 0)
    assert len(units) == 10
    for name in made:
        assert units_of(tmp_path / "out", name, 0) == units


def test_min_offset(tmp_path: Path) -> None:
    """With units of records of 100 bytes each, the first that lies at 2000 or later is number 20."""
    with LogWriter(tmp_path / "store" / "commitlog", 1 << 20) as writer:
        for _ in range(10_000):
            put = writer.append(Message(topic="T1", body=b"seven.."))
    assert (put.size, put.offset) == (100, 999_900)
    local_build(tmp_path / "store", tmp_path / "out", only=("consumequeue",))
    units = units_of(tmp_path / "out", "T1", 0)
    assert len(units) == 10_000
    assert next(number for number, unit in enumerate(units) if unit[0] >= 2000) == 20
    assert next((number for number, unit in enumerate(units) if unit[0] >= 10_000 * 100), 10_000) == 10_000


# -- StoreCheckpointTest -------------------------------------------------------------------------------------------------


def test_write_and_read() -> None:
    """0xAABB and 0xCCDD come back; the broker begins its recovery 3000 ms before the earlier of them."""
    again = Checkpoint.from_bytes(Checkpoint(physic=0xAABB, logics=0xCCDD).to_bytes())
    assert (again.physic, again.logics, again.index) == (0xAABB, 0xCCDD, 0)
    assert again.physic - (min(again.physic, again.logics) - 3000) == 3000


# -- MessageDecoderTest --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hosts", [{}, IPV6], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("version", [1, 2])
def test_encode_and_decode(hosts: dict[str, tuple[str, int]], version: int) -> None:
    """Queue 1, offset 123456, body hello!q!, topic abc, three properties."""
    properties = {"KEYS": "123", "TAGS": "hello", "UNIQ_KEY": "3.14"}
    sent = Message(TOPIC, 1, b"hello!q!", properties, queue_offset=123, version=version, **hosts)  # type: ignore[arg-type]
    raw = encode(sent, 123456)
    data = np.frombuffer(raw, np.uint8)
    record = rec, spans = frame.new_record()
    stretch = frame.Stretch(data, len(raw), 123456, 1 << 30, 123456 + len(raw))
    assert frame.check_record(stretch, 0, r.CRC_BODY, record) == r.GOOD
    assert rec[frame.TOTAL] == len(raw) == 91 + (24 if hosts else 0) + 8 + 3 + 34 + (version - 1)
    assert (rec[frame.QUEUE_ID], rec[frame.QUEUE_OFFSET]) == (1, 123)
    assert raw[rec[frame.TOPIC_START] : rec[frame.TOPIC_END]] == b"abc"
    found = {name: raw[spans[2 * k] : spans[2 * k + 1]] for k, name in enumerate(NAMES) if spans[2 * k] >= 0}
    assert found == {b"KEYS": b"123", b"TAGS": b"hello", b"UNIQ_KEY": b"3.14"}


ONE, TWO = {"KEYS": "v1"}, {"KEYS": "v1", "TAGS": "v2"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("KEYS\1v1", ONE),
        ("", {}),
        (" ", {}),
        ("aaa", {}),
        ("KEYS\1", {}),
        ("\1v1", {}),
        ("KEYS\1v1\2", ONE),
        ("KEYS\1v1\2TAGS\1v2", TWO),
        ("KEYS\1v1\2\1v2", ONE),
        ("KEYS\1v1\2TAGS\1", ONE),
        ("\1v1\2TAGS\1v2", {"TAGS": "v2"}),
        ("KEYS\1\2TAGS\1v2", {"TAGS": "v2"}),
        ("KEYS\0011\2TAGS\0012", {"KEYS": "1", "TAGS": "2"}),
        ("KEYS\1\2TAGS\0012", {"TAGS": "2"}),
        ("\0011\2TAGS\0012", {"TAGS": "2"}),
        ("KEYS\0011\2TAGS\1", {"KEYS": "1"}),
        ("KEYS\0011\2\0012", {"KEYS": "1"}),
    ],
)
def test_string_to_properties(text: str, found: dict[str, str]) -> None:
    data, spans = np.frombuffer(text.encode(), np.uint8), np.zeros(frame.SPANS_SIZE, np.int64)
    scan_properties(data, 0, len(data), spans)
    values = {name.decode(): text[spans[2 * k] : spans[2 * k + 1]] for k, name in enumerate(NAMES) if spans[2 * k] >= 0}
    assert values == found
