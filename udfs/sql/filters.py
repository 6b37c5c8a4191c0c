"""Narrow what a data source reads by the filters of a query (``DataSourceReader.pushFilters``, Spark 4.1).

Rows that pass no filter may be read: ``row_filters``, or Spark, leaves them out.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Iterable
from typing import Any

from rocketmq_reindex.storage_format.integers import INT64_MAX, INT64_MIN
from rocketmq_reindex.udfs.sql.option_words import EPOCH
from rocketmq_reindex.udfs.sql.options import Bounds, Topics

OFFSET, MILLISECONDS, TIME, TOPIC = "commitLogOffset", "storeTimestamp", "storeTime", "topic"
_OF_TIME = ("start_time", "end_time")
_BOUNDS = {OFFSET: ("start_offset", "end_offset"), MILLISECONDS: _OF_TIME, TIME: _OF_TIME}


def _span(kind: str, value: Any) -> tuple[int, int] | None:
    """[low, high) with all numbers that a filter passes; None for a filter of another kind."""
    given = [_number(v) for v in (value if kind == "In" else (value,))]
    values = [v for v in given if v is not None]
    if not values or len(values) < len(given):
        return None
    low, high = min(values), max(values)
    if kind == "LessThan" and isinstance(value, dt.datetime) and value.microsecond % 1000:
        high += 1
    return {
        "EqualTo": (low, high + 1),
        "EqualNullSafe": (low, high + 1),
        "In": (low, high + 1),
        "GreaterThan": (low + 1, INT64_MAX + 1),
        "GreaterThanOrEqual": (low, INT64_MAX + 1),
        "LessThan": (INT64_MIN, high),
        "LessThanOrEqual": (INT64_MIN, high + 1),
    }.get(kind)


def _number(value: Any) -> int | None:
    """An integer as it is, a time as whole milliseconds since 1970, rounded down; None for any other value."""
    if isinstance(value, dt.datetime):
        return (value - EPOCH) // dt.timedelta(milliseconds=1) if value.tzinfo else None
    return value if type(value) is int else None


def narrow_bounds(bounds: Bounds, filters: Iterable[Any]) -> Bounds:
    """The bounds, narrowed by filters on commitLogOffset, storeTimestamp and storeTime."""
    for one in filters:
        names = _BOUNDS.get(".".join(getattr(one, "attribute", ())))
        span = _span(type(one).__name__, getattr(one, "value", None)) if names else None
        if names and span:
            low, high = names
            bounds = dataclasses.replace(
                bounds, **{low: max(getattr(bounds, low), span[0]), high: min(getattr(bounds, high), span[1])}
            )
    return bounds


def _literal(topic: str) -> str:
    """A glob that matches only this topic."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in topic)


def narrow_topics(topics: Topics, filters: Iterable[Any]) -> Topics | None:
    """The topics, narrowed by filters on the topic; None when no topic passes."""
    names: set[str] | None = None
    prefixes: list[str] = []
    for one in filters:
        if getattr(one, "attribute", ()) != (TOPIC,):
            continue
        kind: str = type(one).__name__
        value: Any = getattr(one, "value", None)
        if kind == "StringStartsWith":
            prefixes.append(str(value))
        elif kind in ("EqualTo", "EqualNullSafe", "In"):
            found = {v for v in (value if kind == "In" else (value,)) if isinstance(v, str)}
            names = found if names is None else names & found
    if names is not None:
        wanted = sorted(name for name in names if topics.wants(name) and all(name.startswith(start) for start in prefixes))
        return Topics(tuple(_literal(name) for name in wanted), topics.exclude) if wanted else None
    if prefixes and not topics.include:
        return Topics((f"{_literal(max(prefixes, key=len))}*",), topics.exclude)
    return topics


def pushed_numbers(column: str, filters: Iterable[Any]) -> set[int] | None:
    """The numbers that filters leave for a column; None when no filter names any."""
    found: set[int] | None = None
    for one in filters:
        if getattr(one, "attribute", ()) == (column,) and type(one).__name__ in ("EqualTo", "EqualNullSafe", "In"):
            value: Any = one.value
            numbers = {v for v in (value if isinstance(value, (tuple, list)) else (value,)) if type(v) is int}
            found = numbers if found is None else found & numbers
    return found
