"""Filters of a query narrow what a source reads, and never past what they let through."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from pyspark.sql import datasource as ds

from rocketmq_reindex.storage_format.layouts import INT64_MAX
from rocketmq_reindex.udfs.messages.log_rows import Bounds, Topics
from rocketmq_reindex.udfs.sql.base import narrow_bounds, narrow_topics, pushed_numbers

OFFSET, TIME, STAMP, TOPIC = ("commitLogOffset",), ("storeTimestamp",), ("storeTime",), ("topic",)


def at(milliseconds: float) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc) + dt.timedelta(milliseconds=milliseconds)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], Bounds()),
        ([ds.EqualTo(OFFSET, 7)], Bounds(7, 8)),
        ([ds.In(OFFSET, (9, 7))], Bounds(7, 10)),
        ([ds.GreaterThan(OFFSET, 7), ds.LessThan(OFFSET, 10)], Bounds(8, 10)),
        ([ds.GreaterThanOrEqual(OFFSET, 7), ds.LessThanOrEqual(OFFSET, 10)], Bounds(7, 11)),
        ([ds.EqualNullSafe(TIME, -4)], Bounds(start_time=-4, end_time=-3)),
        ([ds.LessThanOrEqual(TIME, INT64_MAX)], Bounds()),
        ([ds.GreaterThanOrEqual(TIME, -INT64_MAX - 1)], Bounds()),
        ([ds.GreaterThan(STAMP, at(7.5)), ds.LessThan(STAMP, at(9.5))], Bounds(start_time=8, end_time=10)),
        ([ds.GreaterThanOrEqual(STAMP, at(7)), ds.LessThan(STAMP, at(9))], Bounds(start_time=7, end_time=9)),
        ([ds.LessThanOrEqual(STAMP, at(-1.5))], Bounds(end_time=-1)),
        ([ds.EqualTo(STAMP, at(7).replace(tzinfo=None))], Bounds()),
        ([ds.Not(ds.EqualTo(OFFSET, 7)), ds.IsNotNull(OFFSET), ds.EqualTo(("queueId",), 3)], Bounds()),
        ([ds.EqualTo(OFFSET, None), ds.EqualTo(OFFSET, "7"), ds.EqualTo(OFFSET, 7.5), ds.EqualTo(("a", "b"), 1)], Bounds()),
        ([ds.In(OFFSET, ()), ds.In(OFFSET, (1, None))], Bounds()),
    ],
)  # fmt: skip
def test_bounds(filters: list[Any], expected: Bounds) -> None:
    assert narrow_bounds(Bounds(), filters) == expected


def test_bounds_meet_the_options() -> None:
    assert narrow_bounds(Bounds(5, 20), [ds.GreaterThan(OFFSET, 2), ds.LessThan(OFFSET, 9)]) == Bounds(5, 9)
    assert narrow_bounds(Bounds(5, 20), [ds.EqualTo(OFFSET, 99)]).empty


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([ds.EqualTo(TOPIC, "Topic*")], Topics(("Topic[*]",), ("*X",))),
        ([ds.EqualTo(TOPIC, "TopicX")], None),
        ([ds.EqualTo(TOPIC, "other")], None),
        ([ds.In(TOPIC, ("TopicB", "TopicA", "x")), ds.StringStartsWith(TOPIC, "Topic")], Topics(("TopicA", "TopicB"), ("*X",))),
        ([ds.EqualTo(TOPIC, "TopicA"), ds.EqualTo(TOPIC, "TopicB")], None),
        ([ds.StringStartsWith(TOPIC, "T")], Topics(("Topic*",), ("*X",))),
        ([ds.Not(ds.EqualTo(TOPIC, "TopicA"))], Topics(("Topic*",), ("*X",))),
        ([ds.EqualTo(("tags",), "TopicA"), ds.In(("keys",), ("x",))], Topics(("Topic*",), ("*X",))),
        ([ds.EqualTo(TOPIC, "TopicA"), ds.StringStartsWith(("tags",), "x")], Topics(("TopicA",), ("*X",))),
    ],
)  # fmt: skip
def test_topics(filters: list[Any], expected: Topics | None) -> None:
    assert narrow_topics(Topics(("Topic*",), ("*X",)), filters) == expected


def test_topics_by_prefix() -> None:
    narrowed = narrow_topics(Topics(), [ds.StringStartsWith(TOPIC, "a[b"), ds.StringStartsWith(TOPIC, "a")])
    assert narrowed == Topics(("a[[]b*",))
    assert narrowed.wants("a[bc")
    assert not narrowed.wants("ab")


def test_numbers() -> None:
    queue = ("queueId",)
    assert pushed_numbers("queueId", [ds.EqualTo(TOPIC, "x"), ds.EqualTo(("msgSize",), 2), ds.GreaterThan(queue, 2)]) is None
    assert pushed_numbers("queueId", [ds.In(queue, (1, 2, 3)), ds.EqualTo(queue, 2)]) == {2}
    assert pushed_numbers("queueId", [ds.EqualTo(queue, 1), ds.EqualTo(queue, 2)]) == set()
