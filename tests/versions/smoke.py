"""One test for other versions of the packages: `scripts/versions` runs it. A build with tables, its verify, SQL and queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.command.tables_place import table_path
from rocketmq_reindex.jobs.spark import session
from rocketmq_reindex.udfs.sql import functions, sources
from tests.golden.stores import GoldenStore
from tests.golden.test_build import assert_is_rebuilt

Stores = Callable[[str], GoldenStore]
NAME = "v2-ipv6-batch"
JOINED = """
    SELECT * FROM log l JOIN items i ON index_hash(l.topic, l.uniqKey) = i.keyHash AND l.commitLogOffset = i.commitLogOffset
"""


@pytest.fixture
def spark() -> Iterator[SparkSession]:
    found, own = session.get_session("local[2]", delta=True)
    assert own
    found.conf.set("spark.sql.shuffle.partitions", "2")
    yield found
    session.stop(found)


def test_what_was_built_is_whole_and_can_be_read(spark: SparkSession, golden_store: Stores, tmp_path: Path) -> None:
    store, out, tables = golden_store(NAME), tmp_path / "out", tmp_path / "tables"
    log = str(store.path / "commitlog")
    built = rr.build(str(store.path), out=str(out), tables=str(tables), spark=spark, **store.broker_settings())
    assert built.exit_status == 0
    assert_is_rebuilt(out, store)
    assert rr.verify(str(out), commitlog=log, work=str(tmp_path), spark=spark).findings == []
    rows = spark.read.format("delta").load(table_path(str(tables), "builds")).collect()
    assert [(row.state, row.records) for row in rows] == [("published", built.records)]
    sources.register(spark)
    functions.register(spark)
    messages = spark.read.format("rocketmq-commitlog").load(str(store.path))
    items = spark.read.format("rocketmq-index").load(str(out))
    messages.createOrReplaceTempView("log")
    items.createOrReplaceTempView("items")
    assert messages.count() == built.records
    keyed = spark.sql("SELECT topic, uniqKey FROM log WHERE uniqKey IS NOT NULL LIMIT 1").collect()[0]
    assert spark.sql(f"{JOINED} WHERE l.uniqKey = '{keyed.uniqKey}'").count() == 1
    found = rr.query(str(out), commitlog=log, topic=keyed.topic, key=keyed.uniqKey)
    assert [message.topic for message in found.messages] == [keyed.topic]
