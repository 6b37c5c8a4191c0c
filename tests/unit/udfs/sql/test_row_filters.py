"""A filter that a source takes lets through what Spark's own filter does: rows for which it is true, not null."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import datasource as ds

from rocketmq_reindex.udfs.sql.base import row_filter

UTC = dt.timezone.utc
TIMES = [dt.datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3)]
ROWS = pa.record_batch(
    {
        "topic": pa.array(["a", "ab", None, "B", "*"]),
        "queueId": pa.array([1, 2, 3, None, 2**31 - 1], pa.int32()),
        "commitLogOffset": pa.array([None, 2, 3, -(2**63), 2**63 - 1], pa.int64()),
        "storeTime": pa.array([*TIMES, None, TIMES[0]], pa.timestamp("us", "UTC")),
        "hasUnit": pa.array([True, False, None, True, False]),
        "properties": pa.array([{}, None, {"a": "b"}, {}, {}], pa.map_(pa.string(), pa.string())),
    }
)
TOPIC, QUEUE, OFFSET, TIME, UNIT = ("topic",), ("queueId",), ("commitLogOffset",), ("storeTime",), ("hasUnit",)


@pytest.mark.parametrize(("given", "passed"), [
    (ds.EqualTo(TOPIC, "a"), [0]),
    (ds.EqualNullSafe(TOPIC, "ab"), [1]),
    (ds.GreaterThan(TOPIC, "a"), [1]),
    (ds.LessThanOrEqual(TOPIC, "a"), [0, 3, 4]),
    (ds.StringStartsWith(TOPIC, "a"), [0, 1]),
    (ds.StringStartsWith(TOPIC, "*"), [4]),
    (ds.StringStartsWith(TOPIC, ""), [0, 1, 3, 4]),
    (ds.In(TOPIC, ("B", "x", None)), [3]),
    (ds.IsNotNull(TOPIC), [0, 1, 3, 4]),
    (ds.IsNotNull(("properties",)), [0, 2, 3, 4]),
    (ds.EqualTo(QUEUE, 2**31 - 1), [4]),
    (ds.GreaterThanOrEqual(QUEUE, 2), [1, 2, 4]),
    (ds.LessThan(OFFSET, 3), [1, 3]),
    (ds.EqualTo(OFFSET, 2**63 - 1), [4]),
    (ds.In(OFFSET, (2, 3)), [1, 2]),
    (ds.GreaterThan(TIME, TIMES[0].astimezone(dt.timezone(dt.timedelta(hours=7)))), [1, 2]),
    (ds.In(TIME, (TIMES[0], TIMES[2])), [0, 2, 4]),
    (ds.EqualTo(UNIT, True), [0, 3]),
    (ds.EqualTo(UNIT, False), [1, 4]),
])  # fmt: skip
def test_what_passes(given: Any, passed: list[int]) -> None:
    taken = row_filter(given, ROWS.schema)
    assert taken
    assert taken.passed(ROWS).equals(ROWS.take(pa.array(passed)))


@pytest.mark.parametrize("given", [
    ds.Not(ds.EqualTo(TOPIC, "a")),
    ds.IsNull(TOPIC),
    ds.StringContains(TOPIC, "a"),
    ds.EqualNullSafe(TOPIC, None),
    ds.EqualTo(TOPIC, 1),
    ds.EqualTo(QUEUE, 2**31),
    ds.EqualTo(QUEUE, True),
    ds.EqualTo(OFFSET, 2.0),
    ds.EqualTo(UNIT, 1),
    ds.EqualTo(TIME, TIMES[0].replace(tzinfo=None)),
    ds.In(OFFSET, (None,)),
    ds.In(OFFSET, (1, "x")),
    ds.EqualTo(("other",), 1),
    ds.EqualTo(("topic", "x"), "a"),
    ds.StringStartsWith(QUEUE, "1"),
])  # fmt: skip
def test_what_is_left_to_spark(given: Any) -> None:
    assert row_filter(given, ROWS.schema) is None
