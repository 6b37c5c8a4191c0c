"""Spark SQL over a store: the rows hold what the build saw, filters narrow what is planned, functions join the three."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import mmh3
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rocketmq_reindex.udfs.sql import functions, sources
from tests import ROOT
from tests.golden.guard import guarded
from tests.golden.stores import GoldenStore
from tests.reference import java
from tests.tools import spoil

Stores = Callable[[str], GoldenStore]

KEY_ITEMS = """
    SELECT index_hash(topic, key), commitLogOffset
    FROM (SELECT topic, commitLogOffset, explode(filter(
            concat(array(uniqKey), split(coalesce(keys, ''), ' ', -1)), k -> k IS NOT NULL AND k <> '')) AS key
          FROM log WHERE sysFlag & 12 <> 12)
"""
TAG_ITEMS = """
    SELECT index_tag_hash(topic, tags), commitLogOffset
    FROM log WHERE sysFlag & 12 <> 12 AND index_tag_hash(topic, tags) IS NOT NULL
"""


@pytest.fixture(scope="module")
def sql(spark: SparkSession) -> Iterator[SparkSession]:
    before = spark.conf.get(sources.PUSHDOWN, None)
    sources.register(spark)
    functions.register(spark)
    assert before is None
    assert spark.conf.get(sources.PUSHDOWN, None) == "true"
    yield spark
    spark.conf.unset(sources.PUSHDOWN)


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
        assert rows(sql.table("log").where("sysFlag & 12 IN (0, 8)").select(*unit)) == rows(units) != []
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


def test_filters_narrow_what_is_planned(golden_store: Stores, sql: SparkSession) -> None:
    store = golden_store("trimmed-head")
    log = sql.read.format("rocketmq-commitlog").option("columns", "topic,commitLogOffset,storeTimestamp").load(str(store.path))
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
    damaged = read.option("onDamage", "rows").load(str(store)).where("damage IS NOT NULL").collect()
    assert [(row.commitLogOffset, row.damage) for row in damaged] == [
        (spoil.record_offsets(store)[40][0], "body CRC does not match")
    ]
    with pytest.raises(Exception, match="body CRC does not match: read with onDamage skip or rows"):
        read.option("onDamage", "fail").load(str(store)).count()
    with pytest.raises(Exception, match="no option nonsense"):
        read.option("nonsense", "1").load(str(store))


def test_a_session_that_says_no_to_filters(golden_store: Stores, sql: SparkSession) -> None:
    """Spark refuses sources that take filters where they are off: other ones are registered then."""
    store = golden_store("trimmed-head")
    sql.conf.set(sources.PUSHDOWN, "false")
    try:
        sources.register(sql)
        assert sql.conf.get(sources.PUSHDOWN) == "false"
        for source in ("commitlog", "consumequeue", "index"):
            assert sql.read.format(f"rocketmq-{source}").load(str(store.path)).where("commitLogOffset > 0").count() > 0
    finally:
        sql.conf.set(sources.PUSHDOWN, "true")
        sources.register(sql)
