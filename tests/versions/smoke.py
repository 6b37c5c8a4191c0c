"""What other versions of the packages are tried with: `scripts/versions` runs it. A build, with tables where this Spark has a
Delta Lake, its verify, SQL and queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.command.tables_place import table_path
from rocketmq_reindex.jobs.spark import jars, session
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
    found, own = session.get_session("local[2]", delta=bool(jars.delta_packages()))
    assert own
    found.conf.set("spark.sql.shuffle.partitions", "2")
    yield found
    session.stop(found)


def test_what_was_built_is_whole_and_can_be_read(
    spark: SparkSession, golden_store: Stores, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store, out = golden_store(NAME), tmp_path / "out"
    tables = str(tmp_path / "tables") if jars.delta_packages() else None
    log = str(store.path / "commitlog")
    built = rr.build(str(store.path), out=str(out), tables=tables, spark=spark, **store.broker_settings())
    assert built.exit_status == 0
    assert_is_rebuilt(out, store)
    assert rr.verify(str(out), commitlog=log, work=str(tmp_path), spark=spark).findings == []
    # Spark 4.3 printed a trace for each look at a class of its own that names classes which it leaves out.
    assert "Exception" not in capfd.readouterr().err
    if tables:
        rows = spark.read.format("delta").load(table_path(tables, "builds")).collect()
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


def test_filters_of_a_view_that_is_read_twice(spark: SparkSession, golden_store: Stores) -> None:
    """The fault of Spark for which filters are not pushed down by default: where this test fails, they may be."""
    rr.sql.register(spark, filters=True)
    log = spark.read.format("rocketmq-commitlog").option("columns", "commitLogOffset").load(str(golden_store(NAME).path))
    offsets = sorted(row.commitLogOffset for row in log.collect())
    middle = offsets[len(offsets) // 2]
    low, high = log.where(f"commitLogOffset < {middle}"), log.where(f"commitLogOffset >= {middle}")
    found = sorted(row.commitLogOffset for row in low.unionAll(high).collect())
    assert found == sorted(2 * offsets[len(offsets) // 2 :]) != offsets


@pytest.mark.skipif(bool(jars.delta_packages()), reason="this Spark has a Delta Lake")
def test_tables_of_a_spark_without_a_delta_lake(golden_store: Stores, tmp_path: Path) -> None:
    store, out = golden_store(NAME), str(tmp_path / "out")
    with pytest.raises(rr.InputError) as raised:
        rr.build(str(store.path), out=out, tables=str(tmp_path / "tables"), master="local[2]", **store.broker_settings())
    words = f"Spark {pyspark.__version__} has no Delta Lake, and tables is tested with Spark 4.1 and 4.2 alone"
    assert (
        str(raised.value) == f"tables: {words}: pip install 'rocketmq-reindex[delta]' brings one that has, or leave out tables"
    )
