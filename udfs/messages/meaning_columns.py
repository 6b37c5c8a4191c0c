"""What the records of a batch mean, as Arrow columns: the rules of ``record.meaning`` for many records at once.

Most records are messages as clients get them, whose columns are there already. Only the others are looked into.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_reindex.storage_format.layouts import INT32_MAX, INT64_MAX
from rocketmq_reindex.storage_format.record import layout as r, meaning as m

Rows = npt.NDArray[np.int64]
"""indexes into a batch, int64"""
Numbers = npt.NDArray[np.int64]


_NUMBER: Final = "^[0-9]{1,19}$"


class MeaningArrays(NamedTuple):
    """What n records mean. Times are milliseconds since 1970."""

    kind: pa.Array
    """string (n,)"""
    topic: pa.Array
    """string (n,)"""
    queue_id: pa.Array
    """int32 (n,)"""
    queue_offset: pa.Array
    """int64 (n,)"""
    group: pa.Array
    """string (n,)"""
    origin_offset: pa.Array
    """int64 (n,)"""
    deliver_time: pa.Array
    """int64 (n,)"""


class MeantRecords(NamedTuple):
    """What the meaning of n records stands in. Numbers are int64 (n,); the last three are asked for by rows."""

    topics: pa.Array
    """string (n,)"""
    queue_id: Numbers
    sys_flag: Numbers
    prepared_offset: Numbers
    tags_code: Numbers
    properties: Callable[[Rows], pa.Array]
    """map<string, string>"""
    tags: Callable[[Rows], pa.Array]
    """string"""
    bodies: Callable[[Rows], pa.Array]
    """binary, as they are stored: a broker compresses no record of its own"""


class _Said(NamedTuple):
    """The columns of some rows but for their kind, as ``MeaningArrays`` has them."""

    rows: Rows
    topic: pa.Array
    queue_id: pa.Array
    queue_offset: pa.Array
    group: pa.Array
    origin_offset: pa.Array
    deliver_time: pa.Array


def meaning_arrays(records: MeantRecords) -> MeaningArrays:
    """Return what the records of a batch mean."""
    count = len(records.topics)
    by_name = records.topics.dictionary_encode()
    names = by_name.dictionary.to_pylist()
    kinds = np.array([m.kind_of(name) for name in names], object)
    number = by_name.indices.to_numpy()
    committed = records.sys_flag & r.FLAG_TRANSACTION_MASK == r.TRANSACTION_COMMIT
    # Copies of messages that waited; a half message is at offset 0 only where the log begins with it.
    if len(unsaid := np.flatnonzero(committed & (records.prepared_offset == 0))):
        committed[unsaid[_have_one(records.properties(unsaid), m.DELAYED)]] = False
    origin = pa.array(records.prepared_offset, pa.int64(), mask=~committed)
    queue_id = pa.array(records.queue_id.astype(np.int32))
    unknown = pa.nulls(count, pa.int64())
    plain = (records.topics, queue_id, unknown, pa.nulls(count, pa.string()), origin, unknown)
    said = [
        _of_kind(kind, np.flatnonzero(np.isin(number, np.flatnonzero(kinds == kind))), records)
        for kind in sorted(set(kinds) - {m.MESSAGE})
    ]
    kind = pa.array(kinds, pa.string()).take(by_name.indices)
    if not said:
        return MeaningArrays(kind, *plain)
    # The rows of other kinds take the place of what stands there of a message.
    source = np.arange(count)
    source[np.concatenate([some.rows for some in said])] = count + np.arange(sum(len(some.rows) for some in said))
    place = pa.array(source)
    columns = (pa.concat_arrays([column, *(some[k + 1] for some in said)]).take(place) for k, column in enumerate(plain))
    return MeaningArrays(kind, *columns)


def _have_one(properties: pa.Array, names: Iterable[str]) -> npt.NDArray[np.bool_]:
    """Return of which rows the properties have one of the names."""
    found = [pc.map_lookup(properties, query_key=pa.scalar(name), occurrence="last") for name in names]
    return np.asarray(pc.is_valid(pc.coalesce(*found)))


def _of_kind(kind: str, rows: Rows, records: MeantRecords) -> _Said:
    """Return what the records at ``rows`` say, all of them of one kind, which is not MESSAGE."""
    if kind in m.BODY_KINDS:
        return _of_bodies(kind, rows, records)
    texts, numbers = pa.nulls(len(rows), pa.string()), pa.nulls(len(rows), pa.int64())
    if kind == m.TRACE:
        return _Said(rows, texts, pa.nulls(len(rows), pa.int32()), numbers, texts, numbers, numbers)
    topics = records.topics.take(pa.array(rows))
    rule = m.RULES.get(kind)
    if rule is None:
        return _Said(rows, topics, pa.array(records.queue_id[rows].astype(np.int32)), numbers, texts, numbers, numbers)
    properties = records.properties(rows)

    def values(*names: str) -> pa.Array:
        """Return the first of some properties that is there."""
        found = [pc.map_lookup(properties, query_key=pa.scalar(name), occurrence="last") for name in names if name]
        return pc.coalesce(*found) if found else texts

    groups = named = texts
    if kind in (m.RETRY, m.DEAD_LETTER):
        by_name = topics.dictionary_encode()
        pairs = [m.group_of(name) for name in by_name.dictionary.to_pylist()]
        groups, named = (pa.array(half, pa.string()).take(by_name.indices) for half in zip(*pairs, strict=True))
    deliver_time = _numbers(values(rule.deliver_time), INT64_MAX)
    if kind == m.SCHEDULED:
        # The scan has made the time of it already: it is the tagsCode of the unit.
        is_delayed = pc.greater(_numbers(values("DELAY"), INT32_MAX), 0)
        deliver_time = pc.if_else(is_delayed, pa.array(records.tags_code[rows]), pa.scalar(None, pa.int64()))
    queue_id = _numbers(values(rule.queue), INT32_MAX).cast(pa.int32())
    return _Said(
        rows, pc.coalesce(values(*rule.topic), named), queue_id, numbers, groups, _offsets(values(*rule.origin)), deliver_time
    )


def _of_bodies(kind: str, rows: Rows, records: MeantRecords) -> _Said:
    # JSON is read record by record: these are few beside the messages, and small.
    bodies, tags = records.bodies(rows).to_pylist(), records.tags(rows).to_pylist()
    queue_ids = records.queue_id[rows].tolist()
    places = [m.said_by_body(kind, body, tag, queue) for body, tag, queue in zip(bodies, tags, queue_ids, strict=True)]

    def column(name: str, arrow: pa.DataType) -> Any:
        return pa.array([getattr(place, name) for place in places], arrow)

    return _Said(
        rows, column("topic", pa.string()), column("queue_id", pa.int32()),
        column("queue_offset", pa.int64()), column("group", pa.string()), pa.nulls(len(rows), pa.int64()),
        column("deliver_time", pa.int64()),
    )  # fmt: skip


def _numbers(texts: pa.Array, most: int) -> pa.Array:
    """Return the numbers from 0 to ``most`` that texts are (int64), as ``record.layout.as_number``; null for others."""
    digits = pc.if_else(pc.match_substring_regex(texts, _NUMBER), texts, pa.scalar(None, pa.string()))
    # 19 digits fit into 64 bits without a sign.
    numbers = digits.cast(pa.uint64())
    fitting = pc.less_equal(numbers, pa.scalar(most, pa.uint64()))
    return pc.if_else(fitting, numbers, pa.scalar(None, pa.uint64())).cast(pa.int64())


def _offsets(ids: pa.Array) -> pa.Array:
    """Return the offsets in the log that message ids have (int64), as ``meaning.offset_of_id``; null for unique keys."""
    is_offset = pc.fill_null(pc.match_substring_regex(ids, m.OFFSET_ID), fill_value=False)
    digits = pc.utf8_upper(pc.utf8_slice_codeunits(ids.filter(is_offset), -m.OFFSET_DIGITS))
    codes = np.frombuffer("".join(digits.to_pylist()).encode(), np.uint8).reshape(-1, m.OFFSET_DIGITS).astype(np.uint64)
    values = np.where(codes < ord("A"), codes - ord("0"), codes - ord("A") + 10)
    offsets = np.bitwise_or.reduce(values << (4 * np.arange(m.OFFSET_DIGITS, dtype=np.uint64)[::-1]), axis=1)
    found, where = np.zeros(len(ids), np.int64), is_offset.to_numpy(zero_copy_only=False)
    found[where] = offsets.astype(np.int64)
    return pa.array(found, mask=~where | (found < 0))
