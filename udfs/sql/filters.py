"""What filters of a query let a data source skip (``DataSourceReader.pushFilters``, Spark 4.1).

Spark applies every filter itself as well: here they only narrow what is read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from rocketmq_reindex.storage_format.integers import INT64_MAX
from rocketmq_reindex.udfs.sql.options import Bounds, Topics

OFFSET, TIME, TOPIC = "commitLogOffset", "storeTimestamp", "topic"
_BOUNDS = {OFFSET: ("start_offset", "end_offset"), TIME: ("start_time", "end_time")}


def _span(kind: str, value: Any) -> tuple[int, int] | None:
    """[low, high) of the numbers that a filter lets pass; None where it says nothing of the kind."""
    values = value if kind == "In" else (value,)
    if not values or not all(type(v) is int for v in values):
        return None
    low, high = min(values), max(values)
    below = -INT64_MAX - 1
    return {
        "EqualTo": (low, high + 1),
        "EqualNullSafe": (low, high + 1),
        "In": (low, high + 1),
        "GreaterThan": (low + 1, INT64_MAX + 1),
        "GreaterThanOrEqual": (low, INT64_MAX + 1),
        "LessThan": (below, high),
        "LessThanOrEqual": (below, high + 1),
    }.get(kind)


def narrow_bounds(bounds: Bounds, filters: Iterable[Any]) -> Bounds:
    """The bounds, narrower where filters on commitLogOffset and storeTimestamp allow."""
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
    """A glob for this topic alone."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in topic)


def narrow_topics(topics: Topics, filters: Iterable[Any]) -> Topics | None:
    """The topics, fewer where filters on the topic allow; None when there can be none."""
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
    """The numbers that filters leave for a column; None where they name none."""
    found: set[int] | None = None
    for one in filters:
        if getattr(one, "attribute", ()) == (column,) and type(one).__name__ in ("EqualTo", "EqualNullSafe", "In"):
            value: Any = one.value
            numbers = {v for v in (value if isinstance(value, (tuple, list)) else (value,)) if type(v) is int}
            found = numbers if found is None else found & numbers
    return found
