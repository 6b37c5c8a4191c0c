"""``rocketmq-commitlog``: each record's row is what the reference reads, however the log is cut; damage by policy."""

from __future__ import annotations

import datetime as dt
import ipaddress
import logging
import random
import re
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from rocketmq_reindex.storage_format.errors import RefusedError, UsageError
from rocketmq_reindex.udfs.sql.sources import CommitlogSource
from tests.reference import java, log as reference_log, meaning
from tests.reference.records import Record
from tests.reference.settings import Settings
from tests.tools import spoil
from tests.tools.encode import Message
from tests.tools.log_writer import LogWriter, Put
from tests.tools.make_log import FEATURES, evil_body, random_log
from tests.tools.read_rows import batches, make_reader, read_rows
from tests.tools.seeds import cases

SEGMENT = 1 << 14
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


def reference(store: Path, **rules: Any) -> reference_log.Log:
    segments, size = reference_log.read_segments([store / "commitlog"], rules.pop("segment_size", SEGMENT))
    return reference_log.walk(segments, size, Settings(**rules))


def host_text(host: tuple[str, int]) -> str:
    address = ipaddress.ip_address(host[0])
    return f"{address.compressed}:{host[1]}" if address.version == 4 else f"[{address.compressed}]:{host[1]}"


def time_of(milliseconds: int) -> dt.datetime | None:
    """A store's time; None for one that pandas, with 64 bits of nanoseconds, cannot have."""
    known = abs(milliseconds) < 2**63 // 10**6 - 86_400_000
    return EPOCH + dt.timedelta(milliseconds=milliseconds) if known else None


def expected_row(record: Record, message: Message, version: str) -> dict[str, Any]:
    properties = {java.python_text(name): java.python_text(value) for name, value in record.properties.items()}
    count, base = 1, record.queue_offset
    if version != "4.9" and {"INNER_NUM", "INNER_BASE"} <= record.properties.keys():
        count = java.parse_number(record.properties["INNER_NUM"], 16) or 0
        base = java.parse_number(record.properties["INNER_BASE"], 64) or 0
    keys = [key for key in (properties.get("UNIQ_KEY"), *properties.get("KEYS", "").split(" ")) if key]
    row = {
        "topic": java.python_text(record.topic),
        "queueId": record.queue_id,
        "commitLogOffset": record.offset,
        "msgSize": record.size,
        "tagsCode": record.tags_code,
        "storeTimestamp": record.store_timestamp,
        "storeTime": time_of(record.store_timestamp),
        "consumeQueueOffset": record.queue_offset,
        "keys": properties.get("KEYS"),
        "uniqKey": properties.get("UNIQ_KEY"),
        "sysFlag": record.sysflag,
        "preparedTransactionOffset": record.prepared_offset,
        "msgBaseOffset": base,
        "batchSize": count,
        "hasUnit": record.sysflag & 12 in (0, 8),
        "keyItems": 0 if record.sysflag & 12 == 12 else len(keys),
        "tags": properties.get("TAGS"),
        "bornTimestamp": message.born_timestamp,
        "bornTime": time_of(message.born_timestamp),
        "bornHost": host_text(message.born_host),
        "storeHost": host_text(message.store_host),
        "flag": message.flag,
        "reconsumeTimes": message.reconsume_times,
        "version": 1 if record.magic == 0xDAA320A7 else 2,
        "bodyLength": len(message.body),
        "bodyCRC": zlib.crc32(message.body) & 0x7FFFFFFF,
        "properties": properties,
        "body": message.body,
    }
    return row | meaning.columns_of(row)


def expected_rows(puts: list[Put], log: reference_log.Log, version: str) -> list[dict[str, Any]]:
    messages = {put.offset: put.message for put in puts}
    return [expected_row(record, messages[record.offset], version) for record in log.records]


@pytest.mark.parametrize("version", ["5.3", "4.9"])
def test_rows_of_random_logs(version: str, seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    features = FEATURES - ({"v2"} if version == "4.9" else set())
    puts = random_log(tmp_path / "commitlog", seed, records=120, segment_size=SEGMENT, features=features)
    log = reference(tmp_path, broker_version=version)
    # Without registrations of consumer groups no message has a bit map.
    wanted = [row | {"bitMap": None} for row in expected_rows(puts, log, version)]
    assert len(wanted) == len(puts)
    for size in rng.sample((1 << 20, 5000, rng.randrange(150, 2000)), cases(3, 1)):
        rows = read_rows(CommitlogSource, tmp_path, body=True, brokerVersion=version, rangeSize=size)
        assert rows == wanted, f"range size {size}"


def test_a_body_full_of_images_of_records(seed: int, tmp_path: Path) -> None:
    """Images that tell where they truly lie begin no row, wherever ranges and offsets are cut."""
    rng = random.Random(seed)
    with LogWriter(tmp_path / "commitlog", SEGMENT) as writer:
        for number in range(30):
            message = Message(topic=f"T{number % 3}", properties={"KEYS": f"k{number}"})
            writer.append(evil_body(writer, message, rng) if number % 2 else replace(message, body=rng.randbytes(200)))
    places = [put.offset for put in writer.puts]
    sizes, starts = (1 << 20, *range(100, 500, 41)), range(0, writer.end, 97)
    for size in rng.sample(sizes, cases(len(sizes), 2)):
        assert [r["commitLogOffset"] for r in read_rows(CommitlogSource, tmp_path, rangeSize=size)] == places
    for start in rng.sample(starts, cases(len(starts), 5)):
        rows = read_rows(CommitlogSource, tmp_path, startOffset=start, endOffset=start + 900, columns="commitLogOffset")
        assert [r["commitLogOffset"] for r in rows] == [place for place in places if start <= place < start + 900]


def test_columns(tmp_path: Path) -> None:
    random_log(tmp_path / "commitlog", 7, records=20, segment_size=SEGMENT)
    whole = read_rows(CommitlogSource, tmp_path)
    names = list(whole[0])
    for name in names:
        rows = read_rows(CommitlogSource, tmp_path, columns=name)
        assert rows == [{name: row[name]} for row in whole]
    with pytest.raises(UsageError, match="there is no nonsense: take of topic"):
        make_reader(CommitlogSource, tmp_path, columns="topic,nonsense")
    with pytest.raises(UsageError, match="no option colums"):
        make_reader(CommitlogSource, tmp_path, colums="topic")
    source = CommitlogSource({"path": str(tmp_path)})
    reader = source.reader(StructType([source.schema()["tagsCode"], source.schema()["topic"]]))
    assert [row for batch in batches(reader) for row in batch.to_pylist()] == [
        {"tagsCode": row["tagsCode"], "topic": row["topic"]} for row in whole
    ]
    with pytest.raises(UsageError, match="there is no queueId string"):
        source.reader(StructType().add("queueId", "string"))


def test_topics_times_and_offsets(seed: int, tmp_path: Path) -> None:
    puts = random_log(tmp_path / "commitlog", seed, records=100, segment_size=SEGMENT)
    whole = read_rows(CommitlogSource, tmp_path, columns="topic,storeTimestamp,commitLogOffset")
    times = sorted(put.message.store_timestamp for put in puts)
    low, high = times[20], times[80]

    def read(**options: Any) -> list[dict[str, Any]]:
        return read_rows(CommitlogSource, tmp_path, columns="topic,storeTimestamp,commitLogOffset", rangeSize=3000, **options)

    assert read(startTime=low, endTime=high) == [row for row in whole if low <= row["storeTimestamp"] < high]
    assert read(topic="Topic*,S*", excludeTopic="*B") == [
        row for row in whole if row["topic"][:1] in "ST" and row["topic"].startswith(("Topic", "S")) and row["topic"][-1] != "B"
    ]
    reader = make_reader(CommitlogSource, tmp_path, startOffset=SEGMENT, endOffset=2 * SEGMENT, rangeSize=1 << 20)
    assert len(reader.partitions()) == 1, "ranges outside of the offsets are not planned"
    assert read(startOffset=10, endOffset=10) == []
    iso = read(startTime="2023-11-14T22:13:20Z")
    assert iso == [row for row in whole if row["storeTimestamp"] >= 1_700_000_000_000]
    with pytest.raises(UsageError, match="startTime '2023-11-14'"):
        make_reader(CommitlogSource, tmp_path, startTime="2023-11-14")


def test_times_at_the_ends_of_what_a_long_holds(tmp_path: Path) -> None:
    with LogWriter(tmp_path / "commitlog", SEGMENT) as writer:
        for time in (-(2**63), 2**63 - 1, 0):
            writer.append(Message(store_timestamp=time, born_timestamp=-time - 1, born_host=("0.0.0.0", -(2**31))))
    rows = read_rows(CommitlogSource, tmp_path)
    assert [row["storeTimestamp"] for row in rows] == [-(2**63), 2**63 - 1, 0]
    assert [row["storeTime"] for row in rows] == [None, None, EPOCH]
    assert rows[0]["bornHost"] == "0.0.0.0:-2147483648"
    late = read_rows(CommitlogSource, tmp_path, startTime="1970-01-01T00:00:00.001Z", columns="storeTimestamp")
    assert late == [{"storeTimestamp": 2**63 - 1}]


def test_times_are_timestamps(tmp_path: Path) -> None:
    """Null where no clock gave them: neither collect nor toPandas fails for such a record."""
    times = [-1, 1, 1_700_000_000_123, -9_223_285_600_000, 9_223_285_600_000, -9_223_285_600_001, 9_223_285_600_001]
    with LogWriter(tmp_path / "commitlog", SEGMENT) as writer:
        for time in times:
            writer.append(Message(store_timestamp=time, born_timestamp=-time))
    rows = read_rows(CommitlogSource, tmp_path, columns="storeTime,bornTime")
    assert [row["storeTime"] for row in rows] == [*(EPOCH + dt.timedelta(milliseconds=time) for time in times[:5]), None, None]
    assert [row["bornTime"] for row in rows] == [*(EPOCH - dt.timedelta(milliseconds=time) for time in times[:5]), None, None]
    for batch in batches(make_reader(CommitlogSource, tmp_path)):
        assert batch.to_pandas()["storeTime"].isna().sum() == 2


def test_what_a_broker_derives(tmp_path: Path) -> None:
    """No unit of prepared and rolled back records, and no items of the latter; keys that are blank give none."""
    given = [({}, 0), ({"UNIQ_KEY": "u"}, 1), ({"KEYS": "  a  b "}, 2), ({"KEYS": " "}, 0), ({"TAGS": "t"}, 0)]
    with LogWriter(tmp_path / "commitlog", SEGMENT) as writer:
        for properties, _ in given:
            for transaction in (0, 4, 8, 12):
                writer.append(Message(properties=properties, sysflag=transaction))
    rows = read_rows(CommitlogSource, tmp_path, columns="hasUnit,keyItems")
    assert [row["hasUnit"] for row in rows] == [True, False, True, False] * len(given)
    assert [row["keyItems"] for row in rows] == [n for _, count in given for n in (count, count, count, 0)]


# -- damage -----------------------------------------------------------------------------------------------------------


def damage_of(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    for row in sorted((row for row in rows if row["damage"]), key=lambda row: row["commitLogOffset"]):
        start, end = row["commitLogOffset"], row["commitLogOffset"] + row["msgSize"]
        if spans and start <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        else:
            spans.append((start, end))
    return spans


def damage_expected(log: reference_log.Log) -> list[tuple[int, int]]:
    return reference_log.merged([*log.damage, *([log.torn_tail] if log.torn_tail else [])])


def spoilt(tmp_path: Path, seed: int) -> Path:
    rng = random.Random(seed)
    store = tmp_path / "store"
    puts = random_log(store / "commitlog", seed, records=150, segment_size=SEGMENT, features=FEATURES)
    # From behind: a spoilt record hides the ones behind it from who counts records.
    for record in sorted(rng.sample(range(5, len(puts) - 5), 4), reverse=True):
        spoil.spoil_any(store, record, rng)
    return store


def test_damage_is_what_the_reference_finds(seed: int, tmp_path: Path) -> None:
    store = spoilt(tmp_path, seed)
    log = reference(store)
    rng = random.Random(seed)
    for size in rng.sample((1 << 20, 4000, rng.randrange(150, 900)), cases(3, 1)):
        rows = read_rows(CommitlogSource, store, damage="rows", rangeSize=size, segmentSize=SEGMENT)
        assert [row["commitLogOffset"] for row in rows if not row["damage"]] == [r.offset for r in log.records], size
        assert damage_of(rows) == damage_expected(log), f"range size {size}"
        assert all(row["topic"] is None and row["properties"] is None for row in rows if row["damage"])


def test_damage_is_passed_over_or_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = tmp_path / "store"
    puts = random_log(store / "commitlog", 3, records=60, segment_size=SEGMENT)
    spoil.garbage(store, 20, 3)
    with caplog.at_level(logging.WARNING):
        rows = read_rows(CommitlogSource, store)
    assert [row["commitLogOffset"] for row in rows] == [put.offset for put in puts if put != puts[20]]
    assert "damage" not in rows[0]
    hit = f"offset {puts[20].offset}, {puts[20].size} bytes: bad magic code"
    segment = f"{puts[20].offset // SEGMENT * SEGMENT:020d}"
    told = f"rocketmq-commitlog: segment {segment}: passed over 1 damaged place, the first: {hit}"
    assert [record.getMessage() for record in caplog.records] == [told]
    with pytest.raises(RefusedError, match=f"damage: {hit}"):
        read_rows(CommitlogSource, store, damage="fail")
    rows = read_rows(CommitlogSource, store, damage="fail", startOffset=puts[21].offset)
    assert len(rows) == len(puts) - 21
    with pytest.raises(UsageError, match="damage 'hope': take skip or rows or fail"):
        make_reader(CommitlogSource, store, damage="hope")


def test_missing_segments_and_torn_tails(tmp_path: Path) -> None:
    store = tmp_path / "store"
    puts = random_log(store / "commitlog", 5, records=120, segment_size=SEGMENT)
    spoil.torn_record(store)
    rows = read_rows(CommitlogSource, store, damage="rows")
    assert re.match("torn tail: ", rows[-1]["damage"])
    assert [row["commitLogOffset"] for row in rows] == [put.offset for put in puts]
    assert len(read_rows(CommitlogSource, store, damage="fail")) == len(puts) - 1, "a torn tail is no damage"
    gone = spoil.segment_paths(store)[1]
    gone.unlink()
    rows = read_rows(CommitlogSource, store, damage="rows", rangeSize=5000)
    (missing,) = [row for row in rows if row["damage"] == "segment missing"]
    assert (missing["commitLogOffset"], missing["msgSize"]) == (int(gone.name), SEGMENT)
    with pytest.raises(RefusedError, match=f"segment {gone.name}: damage"):
        read_rows(CommitlogSource, store, damage="fail")


def test_bodies_are_unpacked_within_bounds(tmp_path: Path) -> None:
    text = b"a body that packs well " * 500
    packed = {
        0x1: zlib.compress(text),
        0x301: zlib.compress(text),
        0x201: pa.compress(text, "zstd", asbytes=True),
        0x101: _lz4_frame(text),
    }
    with LogWriter(tmp_path / "commitlog", 1 << 18) as writer:
        for flag, body in packed.items():
            writer.append(Message(body=body, sysflag=flag))
        writer.append(Message(body=text))
        writer.append(Message(body=b"no zlib", sysflag=1))
        writer.append(Message(body=text, sysflag=0x701))
        writer.append(Message(body=zlib.compress(text)[:-9], sysflag=1))
        writer.append(Message(body=zlib.compress(bytes(1 << 20)), sysflag=1))
    rows = read_rows(CommitlogSource, tmp_path, unpack=True, maxBody=len(text), columns="body,bodyLength")
    assert [row["body"] for row in rows] == [text] * 5 + [None] * 4
    assert [row["bodyLength"] for row in rows] == [put.message.body.__len__() for put in writer.puts]
    rows = read_rows(CommitlogSource, tmp_path, unpack=True, maxBody=len(text) - 1, columns="body")
    assert [row["body"] for row in rows] == [None] * 4 + [text] + [None] * 4, "the bound is for what is unpacked"
    rows = read_rows(CommitlogSource, tmp_path, body=True, columns="body")
    assert [row["body"] for row in rows] == [put.message.body for put in writer.puts]


def _lz4_frame(text: bytes) -> bytes:
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, "lz4") as stream:
        stream.write(text)
    return bytes(out.getvalue())


def test_batches_stay_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch ends by rows, by bytes of records, and by bytes of unpacked bodies."""
    from rocketmq_reindex.udfs.messages import batches as message_batches

    with LogWriter(tmp_path / "commitlog", 1 << 16) as writer:
        for number in range(40):
            writer.append(Message(body=zlib.compress(bytes(10_000)) if number % 2 else b"x" * 300, sysflag=number % 2))
    sizes = [put.size for put in writer.puts]

    def read(**options: Any) -> list[int]:
        found = list(batches(make_reader(CommitlogSource, tmp_path, **options)))
        places = [row["commitLogOffset"] for batch in found for row in batch.to_pylist()]
        assert places == [put.offset for put in writer.puts]
        return [batch.num_rows for batch in found]

    assert read() == [40]
    monkeypatch.setattr(message_batches, "BATCH_ROWS", 16)
    assert read() == [16, 16, 8]
    monkeypatch.setattr(message_batches, "BATCH_BYTES", 1000)
    counts = read()
    ends = [sum(counts[: k + 1]) for k in range(len(counts))]
    assert all(sum(sizes[end - count : end]) <= 1000 for count, end in zip(counts, ends, strict=True))
    monkeypatch.setattr(message_batches, "BATCH_BYTES", 1)
    assert read() == [1] * 40
    monkeypatch.setattr(message_batches, "BATCH_BYTES", 1 << 20)
    monkeypatch.setattr(message_batches, "UNPACKED_BYTES", 25_000)
    assert read(unpack=True) == [6, 6, 4, 6, 6, 4, 6, 2]


def test_no_store(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    assert read_rows(CommitlogSource, tmp_path) == []
    reader = make_reader(CommitlogSource, tmp_path / "commitlog")
    assert reader.partitions() == []
    with pytest.raises(Exception, match="is not there: name a store"):
        make_reader(CommitlogSource, tmp_path / "none")


def test_the_smallest_range_is_a_byte(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    assert make_reader(CommitlogSource, tmp_path, rangeSize=1).log.range_size == 1  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match="rangeSize"):
        make_reader(CommitlogSource, tmp_path, rangeSize=0)
