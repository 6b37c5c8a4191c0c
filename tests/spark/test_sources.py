"""Spark SQL over a store: the rows hold what the build saw, filters narrow what is planned, functions join the three."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from operator import eq, ge, gt, le, lt
from pathlib import Path

import mmh3
import pytest
from pyspark.sql import DataFrame, SparkSession, functions as F

from rocketmq_reindex.udfs.sql import functions, sources
from tests import ROOT
from tests.golden.guard import guarded
from tests.golden.stores import GoldenStore
from tests.reference import java
from tests.tools import spoil
from tests.tools.encode import Message
from tests.tools.log_writer import LogWriter

Stores = Callable[[str], GoldenStore]

KEY_ITEMS = """
    SELECT index_hash(topic, key), commitLogOffset
    FROM (SELECT topic, commitLogOffset, explode(filter(
            concat(array(uniqKey), split(coalesce(keys, ''), ' ', -1)), k -> k IS NOT NULL AND k <> '')) AS key
          FROM log WHERE keyItems > 0)
"""
TAG_ITEMS = """
    SELECT index_tag_hash(topic, tags), commitLogOffset
    FROM log WHERE sysFlag & 12 <> 12 AND index_tag_hash(topic, tags) IS NOT NULL
"""


@pytest.fixture(scope="module")
def sql(spark: SparkSession) -> Iterator[SparkSession]:
    sources.register(spark)
    functions.register(spark)
    # Spark's default of 200 costs these small tables minutes.
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    assert spark.conf.get(sources.PUSHDOWN, None) is None
    yield spark
    spark.conf.unset("spark.sql.shuffle.partitions")


@pytest.fixture
def pushing(sql: SparkSession) -> Iterator[SparkSession]:
    """The same session, in which filters narrow what is read."""
    sources.register(sql, filters=True)
    assert sql.conf.get(sources.PUSHDOWN, None) == "true"
    yield sql
    sql.conf.unset(sources.PUSHDOWN)
    sources.register(sql)


def rows(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def test_units_and_items_come_out_of_the_records(golden_store: Stores, sql: SparkSession) -> None:
    """Derived in SQL alone, and equal to what RocketMQ's own rebuild wrote."""
    store = golden_store("transactions-delay")
    unit = ("topic", "queueId", "consumeQueueOffset", "commitLogOffset", "msgSize", "tagsCode")
    with guarded(store.path, store.path / "none"):
        log = sql.read.format("rocketmq-commitlog").option("rangeSize", 700_000).load(str(store.path))
        assert log.rdd.getNumPartitions() > 3
        log.createOrReplaceTempView("log")
        units = sql.read.format("rocketmq-consumequeue").load(str(store.path / "rebuilt")).select(*unit)
        assert rows(sql.table("log").where("hasUnit").select(*unit)) == rows(units) != []
        items = sql.read.format("rocketmq-index").load(str(store.path / "rebuilt")).select("keyHash", "commitLogOffset")
        assert rows(sql.sql(KEY_ITEMS)) == rows(items) != []
    store = golden_store("basic-5.5")
    sql.read.format("rocketmq-commitlog").load(str(store.path)).createOrReplaceTempView("log")
    items = sql.read.format("rocketmq-index").load(str(store.path / "rebuilt")).select("keyHash", "commitLogOffset")
    assert rows(sql.sql(f"{KEY_ITEMS} UNION ALL {TAG_ITEMS}")) == rows(items) != []


def test_functions(sql: SparkSession) -> None:
    known = json.loads((ROOT / "tests" / "oracle" / "known_answers.json").read_text(encoding="utf-8"))
    host, offset, told = known["ids"][9]
    found = sql.sql(
        "SELECT java_hash(a), tags_code(a), tags_code(NULL), message_id(h, o), hex(key_fingerprint(a, b)), "
        "broker_bloom_bits(a, b), java_hash(NULL), index_hash(a, b) "
        "FROM VALUES ('CID_ORDERS', 'orders', :host, :at) AS t(a, b, h, o)", {"host": host, "at": offset}
    ).first()  # fmt: skip
    (text,) = (known for known in known["texts"] if known["text"] == "CID_ORDERS#orders")
    assert found is not None
    digest = mmh3.mmh3_x64_128_digest(b"CID_ORDERS#orders").hex().upper()
    hashed = java.hash_code("CID_ORDERS")
    assert tuple(found) == (hashed, hashed, 0, told, digest, text["bits"][0], None, abs(text["hash"]))


def test_functions_without_arrow_udfs(sql: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Spark 4.0 runs them."""
    values = "VALUES ('a', 'b', '10.0.0.1:80', 1), (NULL, 'c', 'x', 2) AS t(a, b, h, o)"
    asked = "java_hash(a), tags_code(a), index_hash(a, b), index_tag_hash(a, b), message_id(h, o), key_fingerprint(a, b), "
    asked += "broker_bloom_bits(a, b)"
    expected = sql.sql(f"SELECT {asked} FROM {values}").collect()
    try:
        with monkeypatch.context() as old:
            old.delattr(F, "arrow_udf")
            functions.register(sql)
        assert sql.sql(f"SELECT {asked} FROM {values}").collect() == expected
    finally:
        functions.register(sql)


def test_a_view_that_is_read_twice(golden_store: Stores, sql: SparkSession) -> None:
    """Spark gives both scans the reader of the last: it must not have taken the filter of one of them."""
    columns = "topic,commitLogOffset,keyItems"
    log = sql.read.format("rocketmq-commitlog").option("columns", columns).load(str(golden_store("trimmed-head").path))
    found = [tuple(row) for row in log.collect()]
    middle = found[len(found) // 2][1]
    twice = log.where(f"commitLogOffset < {middle}").unionAll(log.where(f"commitLogOffset >= {middle}"))
    assert sorted(tuple(row) for row in twice.collect()) == sorted(found)


def test_filters_narrow_what_is_planned(golden_store: Stores, pushing: SparkSession) -> None:
    store = golden_store("trimmed-head")
    log = (
        pushing.read.format("rocketmq-commitlog")
        .option("columns", "topic,commitLogOffset,storeTimestamp")
        .load(str(store.path))
    )
    found = [tuple(row) for row in log.collect()]
    first, last = found[0][1], found[-1][1]
    middle = found[len(found) // 2]
    assert log.rdd.getNumPartitions() > 1
    near = log.where(f"commitLogOffset < {first + 1000}")
    assert near.rdd.getNumPartitions() == 1
    assert [tuple(row) for row in near.collect()] == [row for row in found if row[1] < first + 1000]
    topic = middle[0]
    some = log.where(f"topic = '{topic}' AND storeTimestamp >= {middle[2]}")
    assert [tuple(row) for row in some.collect()] == [row for row in found if row[0] == topic and row[2] >= middle[2]]
    assert log.where(f"commitLogOffset > {last}").count() == 0
    assert log.where("topic = 'no such topic'").count() == 0


def test_properties_bodies_and_a_given_schema(golden_store: Stores, sql: SparkSession) -> None:
    store = golden_store("wide-keys")
    given = "uniqKey string, properties map<string, string>, body binary, bodyLength int, bodyCRC int"
    log = sql.read.format("rocketmq-commitlog").option("body", "true").schema(given).load(str(store.path))
    counted = log.selectExpr(
        "count(*)",
        "count_if(properties['UNIQ_KEY'] <=> uniqKey)",
        "count_if(length(body) = bodyLength)",
        "count_if(crc32(body) & 2147483647 = bodyCRC)",
    ).first()
    assert counted is not None
    assert len(set(counted)) == 1
    assert counted[0] > 0


def test_damage(golden_store: Stores, sql: SparkSession, tmp_path: Path) -> None:
    store = spoil.copy_store(golden_store("trimmed-head").path, tmp_path / "store")
    spoil.flip_body(store, 40)
    read = sql.read.format("rocketmq-commitlog")
    damaged = read.option("damage", "rows").load(str(store)).where("damage IS NOT NULL").collect()
    assert [(row.commitLogOffset, row.damage) for row in damaged] == [
        (spoil.record_offsets(store)[40][0], "body CRC does not match")
    ]
    with pytest.raises(Exception, match="body CRC does not match: read with damage=skip or damage=rows"):
        read.option("damage", "fail").load(str(store)).count()
    with pytest.raises(Exception, match="no option nonsense"):
        read.option("nonsense", "1").load(str(store))


def test_a_session_that_says_no_to_filters(golden_store: Stores, sql: SparkSession) -> None:
    """Spark refuses sources that take filters where they are off: other ones are registered then."""
    store = golden_store("trimmed-head")
    sql.conf.set(sources.PUSHDOWN, "false")
    try:
        sources.register(sql, filters=True)
        assert sql.conf.get(sources.PUSHDOWN) == "false"
        for source in ("commitlog", "consumequeue", "index"):
            assert sql.read.format(f"rocketmq-{source}").load(str(store.path)).where("commitLogOffset > 0").count() > 0
    finally:
        sql.conf.unset(sources.PUSHDOWN)
        sources.register(sql)


# -- what is lost


ANTI_JOINS = [
    query
    for query in (
        *re.findall(r'spark\.sql\("""(.*?)"""\)', (ROOT / "docs/how-to/sql.md").read_text(encoding="utf-8"), re.DOTALL),
        *(cell.replace("# MAGIC", "") for cell in (ROOT / "notebooks/explore.py").read_text().split("# MAGIC %sql")),
    )
    if "ANTI JOIN" in query
]
"""The examples of the page and of the notebook."""


def lost(sql: SparkSession, query: str) -> DataFrame:
    return sql.sql(re.sub(r"LIMIT \d+", "", query.partition("# COMMAND")[0]))


def views(sql: SparkSession, store: Path, derived: Path) -> None:
    for view, source, path in [("log", "commitlog", store), ("units", "consumequeue", derived), ("items", "index", derived)]:
        columns = "topic,queueId,consumeQueueOffset,commitLogOffset,uniqKey,storeHost,hasUnit,keyItems" if view == "log" else ""
        sql.read.format(f"rocketmq-{source}").option("columns", columns).load(str(path)).createOrReplaceTempView(view)


def test_a_sound_store_has_lost_nothing(golden_store: Stores, sql: SparkSession) -> None:
    """RocketMQ's own rebuild: no broker indexes rolled back records, or gives prepared ones units."""
    store = golden_store("transactions-delay")
    views(sql, store.path, store.path / "rebuilt")
    assert sql.table("log").where("keyItems = 0 AND uniqKey IS NOT NULL AND NOT hasUnit").count() > 0
    assert len(ANTI_JOINS) == 4
    for query in ANTI_JOINS:
        assert lost(sql, query).collect() == [], query


def test_what_a_store_has_lost(golden_store: Stores, sql: SparkSession, tmp_path: Path) -> None:
    """One queue, and one IndexFile: exactly the records of their units and items are listed."""
    store = golden_store("transactions-delay")
    derived = tmp_path / "rebuilt"
    shutil.copytree(store.path / "rebuilt", derived)
    views(sql, store.path, derived)
    queue = min(path for path in (derived / "consumequeue").glob("*/*"))
    units = {row[0] for row in sql.sql("SELECT commitLogOffset, topic, queueId FROM units").collect()
             if (row.topic, row.queueId) == (queue.parent.name, int(queue.name))}  # fmt: skip
    index = max((derived / "index").iterdir())
    hashes = {(row.keyHash, row.commitLogOffset) for row in sql.table("items").where(f"file = '{index.name}'").collect()}
    unique = sql.sql(
        "SELECT index_hash(topic, uniqKey), commitLogOffset, topic, uniqKey FROM log WHERE uniqKey IS NOT NULL"
    ).collect()
    keys = {(row.topic, row.uniqKey) for row in unique if tuple(row)[:2] in hashes}
    assert units
    assert keys
    shutil.rmtree(queue)
    index.unlink()
    # A view lists its files once.
    views(sql, store.path, derived)
    in_page, of_keys_in_page, of_units, of_keys = [*ANTI_JOINS[:2][::-1], *ANTI_JOINS[2:]]
    assert [tuple(row) for row in lost(sql, in_page).collect()] == [(queue.parent.name, int(queue.name), len(units))]
    assert {row.commitLogOffset for row in lost(sql, of_units).collect()} == units
    assert {(row.topic, row.uniqKey) for row in lost(sql, of_keys).collect()} == keys
    found = {(row.topic, row.uniqKey) for row in lost(sql, of_keys_in_page).collect()}
    assert found == {(topic, key) for topic, key in keys if topic.startswith("Topic")}


@pytest.mark.parametrize("source", ["commitlog", "consumequeue", "index"])
def test_a_path_that_is_no_store(source: str, sql: SparkSession, tmp_path: Path) -> None:
    """One line, without stacks, when the table is made or, with a schema of the user's, when the query is planned."""
    read = sql.read.format(f"rocketmq-{source}")
    for path, text in [(tmp_path, f"has no folder {source}/"), (tmp_path / "none", "is not there: name a store")]:
        with pytest.raises(Exception, match=text) as raised:
            read.load(str(path))
        assert len(str(raised.value).splitlines()) <= 2, str(raised.value)
        with pytest.raises(Exception, match=text) as raised:
            sql.read.format(f"rocketmq-{source}").schema("commitLogOffset bigint").load(str(path)).count()
        assert "Traceback" not in str(raised.value)
    (tmp_path / source).mkdir()
    assert read.load(str(tmp_path)).count() == 0


def test_times_of_any_number_of_milliseconds(pushing: SparkSession, tmp_path: Path) -> None:
    times = [-(2**63), -1, 0, 1_700_000_000_123, 1_700_000_000_124, 2**63 - 1]
    with LogWriter(tmp_path / "commitlog", 1 << 14) as writer:
        for time in times:
            writer.append(Message(store_timestamp=time))
    log = pushing.read.format("rocketmq-commitlog").option("columns", "storeTimestamp,storeTime").load(str(tmp_path))
    assert [row.storeTimestamp for row in log.collect()] == times
    assert log.where("storeTime IS NULL").count() == 2
    assert len(log.toPandas()) == len(times)
    shown = [tuple(row) for row in sorted(log.where("storeTime IS NOT NULL").collect())]
    for stamp, micros in (
        ("1970-01-01T00:00:00Z", 0),
        ("2023-11-14T22:13:20.123Z", 1_700_000_000_123_000),
        ("2023-11-14T22:13:20.1235Z", 1_700_000_000_123_500),
    ):
        for compared, holds in (("<", lt), ("<=", le), ("=", eq), (">=", ge), (">", gt)):
            some = log.where(f"storeTime {compared} timestamp'{stamp}'")
            assert rows(some) == [row for row in shown if holds(row[0] * 1000, micros)], (compared, stamp)


def test_filters_and_columns_show_in_the_plan(
    golden_store: Stores, pushing: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    log = (
        pushing.read.format("rocketmq-commitlog").schema("topic string, queueId int").load(str(golden_store("wide-keys").path))
    )
    log.where("topic LIKE 'Top%' AND queueId IN (0, 1) AND length(topic) > 3").explain("formatted")
    plan = capsys.readouterr().out
    (pushed,) = re.findall(r"PushedFilters: (.*)", plan)
    for text in ("StringStartsWith(topic,Top)", "In(queueId, [0,1])"):
        assert text in pushed
    (left,) = re.findall(r"Condition : (.*)", plan)
    assert "queueId" not in left
    assert "ReadSchema: struct<topic:string,queueId:int>" in plan


EXTENDED = ("extended-4.9", "extended-5.3", "extended-5.5")
UNIT_OF = ("topic", "queueId", "consumeQueueOffset", "tagsCode")


def units_there(store: Path) -> dict[tuple[str, int, int], tuple[int, bytes]]:
    """tagsCode and bit map of each unit of a store, as consumequeue_ext has them."""
    found = {}
    for queue in sorted((store / "consumequeue_ext").glob("*/*")):
        number = 0
        for path in sorted(queue.iterdir()):
            data, at = path.read_bytes(), 0
            while (size := int.from_bytes(data[at : at + 2], "big", signed=True)) > 0:
                tags = int.from_bytes(data[at + 2 : at + 10], "big", signed=True)
                found[queue.parent.name, int(queue.name), number] = tags, data[at + 20 : at + size]
                at, number = at + size, number + 1
    return found


@pytest.mark.parametrize("name", EXTENDED)
def test_bit_maps_are_the_brokers(name: str, golden_store: Stores, sql: SparkSession) -> None:
    store = golden_store(name).path
    expected = units_there(store)
    log = sql.read.format("rocketmq-commitlog").option("columns", "topic,queueId,consumeQueueOffset,bitMap").load(str(store))
    found = {tuple(row[:3]): row[3] for row in log.collect()}
    # A topic without a registration has no bit map.
    assert {unit: None if bits is None else bytes(bits) for unit, bits in found.items()} == {
        unit: bits or None for unit, (_, bits) in expected.items()
    }
    assert any(bits is None for bits in found.values())
    units = sql.read.format("rocketmq-consumequeue").load(str(store)).select(*UNIT_OF)
    assert {tuple(row[:3]): row[3] for row in units.collect()} == {unit: tags for unit, (tags, _) in expected.items()}
    ours = sql.read.format("rocketmq-commitlog").load(str(store)).where("hasUnit").select(*UNIT_OF)
    assert rows(ours) == rows(units)


def test_bit_maps_of_a_store_without_registrations(golden_store: Stores, sql: SparkSession, tmp_path: Path) -> None:
    store = Path(shutil.copytree(golden_store("extended-5.5").path, tmp_path / "store"))
    source = sql.read.format("rocketmq-commitlog")
    folder = source.option("columns", "bitMap").load(str(store / "commitlog"))
    assert folder.where("bitMap IS NOT NULL").count() > 0, "the folder of a store that has them"
    (store / "config" / "consumerFilter.json").write_text("{")
    with pytest.raises(Exception, match=r"consumerFilter.json: .*: leave out bitMap \(option columns\)"):
        source.load(str(store)).count()
    assert source.option("columns", "topic").load(str(store)).count() == folder.count()
    (store / "config" / "consumerFilter.json").unlink()
    log = sql.read.format("rocketmq-commitlog").load(str(store))
    assert log.count() == log.where("bitMap IS NULL").count() > 0
    # With a schema of one's own it is asked for by its name, among others.
    given = (
        sql.read.format("rocketmq-commitlog").schema("bitMap binary, topic string").load(str(golden_store("extended-5.5").path))
    )
    assert given.where("bitMap IS NOT NULL").count() > 0
