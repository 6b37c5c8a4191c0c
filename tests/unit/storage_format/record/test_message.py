"""One message read for its fields: as the reference reads it, whatever stands there; and bodies unpacked within a bound."""

from __future__ import annotations

import random
import zlib
from pathlib import Path

import pyarrow as pa
import pytest

from rocketmq_reindex.storage_format.layouts import java_text
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.message import LZ4, ZLIB, ZSTD, Host, Message, glance, read_message
from rocketmq_reindex.udfs.messages.unpack_body import Unpacked, unpack
from tests.reference import java, records
from tests.reference.settings import Settings
from tests.tools import encode
from tests.tools.make_log import FEATURES, random_log

RULES = Settings(crc="none")


def at(data: bytes, place: int, base: int) -> Message | int:
    low = place - base

    def read(start: int, count: int) -> bytes:
        assert start >= 0
        assert count >= 0
        return data[low + start : low + start + count]

    return read_message(read, place, len(data) - low)


def agree(data: bytes, place: int, base: int) -> None:
    """Ours and the reference's reading of one place."""
    found, expected = at(data, place, base), records.parse(data, place - base, base, base + len(data), RULES)
    if isinstance(expected, records.Record):
        assert isinstance(found, Message)
        assert (found.phy_offset, found.size, found.queue_id) == (place, expected.size, expected.queue_id)
        assert (found.queue_offset, found.sys_flag, found.store_time) == (
            expected.queue_offset, expected.sysflag, expected.store_timestamp,
        )  # fmt: skip
        assert (found.topic, found.prepared_offset) == (java.python_text(expected.topic), expected.prepared_offset)
        assert found.properties == {java.python_text(k): java.python_text(v) for k, v in expected.properties.items()}
        keys = expected.properties.get("KEYS", "").split(" ")
        assert found.keys == [java.python_text(key) for key in keys if key]
    elif isinstance(expected, records.Blank):
        assert found == r.FILLER
    elif not expected.framed or expected.reason == records.POSITION:
        # A filler of a wrong size, and what only the record loop refuses, is told by the loop alone.
        assert isinstance(found, int), expected
        assert found in (r.FILLER, *r.REASONS)


def test_as_the_reference_reads_it(seed: int, tmp_path: Path) -> None:
    as_the_reference_reads_it(seed, tmp_path)


def test_a_queue_offset_that_only_the_record_loop_refuses(tmp_path: Path) -> None:
    """In a record whose body is spoilt, too: no CRC is asked here."""
    as_the_reference_reads_it(2_051_313_880, tmp_path)


def as_the_reference_reads_it(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    puts = random_log(tmp_path / "log", seed, records=150, features=FEATURES)
    for path in sorted((tmp_path / "log").iterdir()):
        data, base = path.read_bytes(), int(path.name)
        mine = [put for put in puts if base <= put.offset < base + len(data)]
        for put in mine:
            agree(data, put.offset, base)
            found = at(data, put.offset, base)
            assert isinstance(found, Message)
            *fields, topic = glance(data, put.offset - base)
            assert fields == [found.size, found.version, found.flag, found.sys_flag, found.store_time, found.body_size]
            assert java_text(topic) == found.topic
        for _ in range(100):
            agree(data, base + rng.randrange(len(data)), base)
        for put in rng.sample(mine, min(len(mine), 20)):
            spoilt = bytearray(data)
            for _ in range(rng.randrange(1, 4)):
                spoilt[put.offset - base + rng.randrange(min(put.size, 100))] ^= 1 << rng.randrange(8)
            agree(bytes(spoilt), put.offset, base)
            agree(data[: put.offset - base + rng.randrange(put.size)], put.offset, base)


def test_every_field() -> None:
    message = encode.Message(
        topic="T" * 200, queue_id=3, body=b"x" * 5000, sysflag=0x301, flag=-7, born_timestamp=11, store_timestamp=22,
        born_host=("2001:db8::1", 80), store_host=("10.0.0.9", 10911), reconsume_times=4, prepared_offset=99,
        properties={"KEYS": "a  b", "UNIQ_KEY": "u", "TAGS": "t"}, queue_offset=8,
    )  # fmt: skip
    found = at(encode.encode(message, 1000), 1000, 1000)
    assert isinstance(found, Message)
    assert (found.version, found.queue_id, found.flag, found.queue_offset) == (2, 3, -7, 8)
    assert (found.born_time, found.store_time, found.reconsume_times, found.prepared_offset) == (11, 22, 4, 99)
    assert found.born_host == Host(bytes.fromhex("20010db8000000000000000000000001"), 80)
    assert found.store_host == Host(bytes([10, 0, 0, 9]), 10911)
    assert (found.keys, found.unique_key, found.tags, found.compression) == (["a", "b"], "u", "t", ZLIB)
    assert found.message_id == "0A00000900002A9F00000000000003E8"
    assert (found.body_at, found.body_size) == (encode.body_start(message), 5000)
    assert found.body_crc == zlib.crc32(message.body) & 0x7FFFFFFF
    assert found.has_key("T" * 200, "b")
    assert found.has_key("T" * 200, "u")
    assert not found.has_key("T", "b")


def packed(data: bytes, kind: str) -> bytes:
    if kind == ZLIB:
        return zlib.compress(data)
    made: bytes = pa.Codec(kind).compress(data).to_pybytes()
    return made


@pytest.mark.parametrize("kind", [ZLIB, LZ4, ZSTD])
def test_unpacking(kind: str, seed: int) -> None:
    rng = random.Random(seed)
    data = rng.randbytes(200_000)
    raw = packed(data, kind)
    assert unpack(raw, kind, len(data)) == Unpacked(data, False, "")
    assert unpack(raw, kind, len(data) - 1) == Unpacked(data[:-1], True, "")
    assert unpack(raw, kind, 0) == Unpacked(b"", True, "")
    for cut in (rng.randrange(1, len(raw) - 1), len(raw) - 1):
        found = unpack(raw[:cut], kind, 10**6)
        assert found.fault
        assert data.startswith(found.data)
    found = unpack(b"no such thing", kind, 100)
    assert (found.data, bool(found.fault)) == (b"", True)


@pytest.mark.parametrize("kind", [ZLIB, LZ4, ZSTD])
def test_a_bomb_gives_no_more_than_asked(kind: str) -> None:
    raw = packed(bytes(64 << 20), kind)
    assert len(raw) < 1 << 19
    assert unpack(raw, kind, 1000) == Unpacked(bytes(1000), True, "")


def test_an_unknown_compression() -> None:
    assert unpack(b"x", "unknown", 5) == Unpacked(b"", False, "unknown compression")
