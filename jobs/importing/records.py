"""Records made of rows: what each has to be so that a broker takes it, and nothing that a row does not say."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_reindex.jobs.exporting.new_store import has_unit
from rocketmq_reindex.jobs.importing.rows import Rows
from rocketmq_reindex.storage_format import topics as names
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.queue.units import BATCH_COUNT_MAX
from rocketmq_reindex.storage_format.record import layout as r, making, meaning
from rocketmq_reindex.storage_format.record.making import HOST_SIZE, RecordFields, Texts
from rocketmq_reindex.storage_format.record.message import COMPRESSION_BITS, FLAG_COMPRESSED, compression_of
from rocketmq_reindex.storage_format.showing import escape, listed
from rocketmq_reindex.udfs.exporting import formats
from rocketmq_reindex.udfs.exporting.formats import NewRecords
from rocketmq_reindex.udfs.messages.batches import BODY, string_buffers, true_in

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Check = Callable[[Mask, str | Callable[[int], str]], None]
"""Raises InputError for the first row of a mask: it takes what is wrong, or says it by the row's number."""

_OF_PROPERTIES: Final = {"keys": "KEYS", "tags": "TAGS", "uniqKey": "UNIQ_KEY"}
"""columns that say the same as a property"""
_CRC: Final = "__CRC32#"
"""covers where the record lay: a broker that has to write it does so itself"""
_TIME_MIN: Final = 1
_TIME_MAX: Final = 10**13
"""milliseconds: with more they are none, but microseconds"""
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}")
_NO_HOST: Final = bytes(HOST_SIZE)


class RecordMaker:
    """Makes records of rows, and keeps what there is to know of all of them."""

    def __init__(self) -> None:
        self.without_unit = 0
        """messages that no consumer gets: by their SYSFLAG they are half messages, or rolled back"""

    def __call__(self, rows: Rows) -> NewRecords:
        """Return the records of some rows. Raises InputError, which names the row, for one that no broker would take."""
        batch = rows.batch

        def check(mask: Mask, what: str | Callable[[int], str]) -> None:
            if mask.any():
                row = int(np.argmax(mask))
                raise InputError(f"{rows.place(row)}: {what if isinstance(what, str) else what(row)}")

        self._check_topics(batch, check)
        queue = self._number(batch, "queueId", 0)
        check((queue < 0) | (queue >= names.QUEUES_MAX), lambda row: f"queueId {queue[row]}: is the number of no queue")
        times = self._number(batch, "storeTimestamp", 0)
        check((times < _TIME_MIN) | (times > _TIME_MAX), "storeTimestamp: give milliseconds since 1970")
        properties, of_rows = self._properties(rows, check)
        bodies = pc.fill_null(batch.column(BODY), b"")
        sys_flag = self._sys_flag(batch, check)
        hosts = {name: _hosts(batch.column(name), name, check) for name in ("bornHost", "storeHost")}
        for name, bit in (("bornHost", r.FLAG_BORN_HOST_V6), ("storeHost", r.FLAG_STORE_HOST_V6)):
            sys_flag = np.where(hosts[name][1], sys_flag | bit, sys_flag & ~bit)
        self.without_unit += int((~has_unit(sys_flag)).sum())
        fields = RecordFields(
            queue, self._number(batch, "flag", 0), sys_flag, self._number(batch, "bornTimestamp", times), hosts["bornHost"][0],
            times, hosts["storeHost"][0], self._number(batch, "reconsumeTimes", 0),
            self._number(batch, "preparedTransactionOffset", 0), _texts(bodies), _texts(batch.column("topic")),
            _texts(properties),
        )  # fmt: skip
        check(
            fields.properties.sizes > r.PROPERTIES_MAX,
            lambda row: f"properties: {fields.properties.sizes[row]:,} bytes: a record has at most {r.PROPERTIES_MAX:,}",
        )
        counts = self._batch_sizes(batch, sys_flag, of_rows, check)
        columns = {name: batch.column(name) for name in ("topic", "consumeQueueOffset", "commitLogOffset")}
        columns |= {"queueId": pa.array(queue), "batchSize": pa.array(counts), "sysFlag": pa.array(sys_flag)}
        taken = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
        return NewRecords(making.make_records(fields), taken, rows.place)

    @staticmethod
    def _check_topics(batch: pa.RecordBatch, check: Check) -> None:
        topics = batch.column("topic")
        coded = topics.dictionary_encode()
        wrong = {
            number: what for number, name in enumerate(coded.dictionary.to_pylist()) if (what := _wrong_topic(name)) is not None
        }
        codes = coded.indices.fill_null(-1).to_numpy()
        check(codes < 0, "topic: is missing")
        check(np.isin(codes, list(wrong)), lambda row: wrong[int(codes[row])])

    @staticmethod
    def _number(batch: pa.RecordBatch, name: str, instead: int | Int64s) -> Int64s:
        """Return a column (int64); what is missing is ``instead``."""
        column = batch.column(name)
        values = column.cast(pa.int64()).fill_null(0).to_numpy()
        return np.where(np.asarray(column.is_null()), instead, values).astype(np.int64)

    def _sys_flag(self, batch: pa.RecordBatch, check: Check) -> Int64s:
        """Return SYSFLAG (int64): it says no longer that a body is packed which is not."""
        flags, packed = self._number(batch, "sysFlag", 0), batch.column(formats.PACKED)
        is_packed = np.asarray(packed.is_valid())
        said = packed.to_pylist()
        wrong = np.array([packing is not None and compression_of(flag) != packing
                          for flag, packing in zip(flags.tolist(), said, strict=True)], np.bool_)  # fmt: skip
        check(wrong, lambda row: f"{formats.PACKED} {escape(repr(said[row]), 40)}: is not what sysFlag says")
        return np.where(is_packed, flags, flags & ~(FLAG_COMPRESSED | COMPRESSION_BITS))

    def _properties(self, rows: Rows, check: Check) -> tuple[pa.Array, pa.Array]:
        """Return the properties as a record has them (string), and as maps; those of a row without any from its columns."""
        batch = rows.batch
        maps = batch.column("properties")
        said = {name: batch.column(name) for name in _OF_PROPERTIES}
        is_null = np.asarray(maps.is_null())
        if is_null.any():
            told = [
                [(_OF_PROPERTIES[name], value) for name, value in zip(said, values, strict=True) if value is not None]
                for values in zip(*(column.to_pylist() for column in said.values()), strict=True)
            ]
            maps = pa.array([own if none else known for own, known, none in
                             zip(told, maps.to_pylist(), is_null.tolist(), strict=True)], maps.type)  # fmt: skip
        for name in _OF_PROPERTIES.keys() & rows.named.keys():
            known = pc.map_lookup(maps, query_key=pa.scalar(_OF_PROPERTIES[name]), occurrence="last")
            differ = pc.or_(
                pc.fill_null(pc.not_equal(said[name], known), fill_value=False), pc.xor(said[name].is_null(), known.is_null())
            )
            what = f"{name} is not what properties say ({_OF_PROPERTIES[name]}): change both, or leave the column out"
            check(true_in(differ) & rows.named[name], what)
        # A slice's offsets begin anywhere.
        maps = pa.concat_arrays([maps])
        keys, values, offsets = maps.keys, maps.items, maps.offsets.to_numpy().astype(np.int64)
        odd = true_in(pc.match_substring_regex(keys, "[\x01\x02]")) | true_in(pc.match_substring(values, "\x02"))
        odd |= np.asarray(values.is_null())
        counts = np.concatenate([np.zeros(1, np.int64), np.cumsum(odd)])
        check(
            counts[offsets[1:]] > counts[offsets[:-1]],
            "properties: one has no value, or U+0002 in it, or U+0001 in its name: these separate properties",
        )
        kept = true_in(pc.not_equal(keys, _CRC))
        pairs = pc.binary_join_element_wise(keys, values, "\x01").filter(pa.array(kept))
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(kept)])[offsets]
        joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pairs), "\x02")
        ended = pc.binary_join_element_wise(joined, "\x02", "")
        return pc.if_else(pc.equal(joined, ""), joined, ended), maps

    @staticmethod
    def _batch_sizes(batch: pa.RecordBatch, sys_flag: Int64s, maps: pa.Array, check: Check) -> Int64s:
        """Return how many messages each record holds (int64): more than one only where it is a batch."""
        counts, is_batch = np.ones(batch.num_rows, np.int64), sys_flag & r.FLAG_INNER_BATCH != 0
        told = [pc.map_lookup(maps, query_key=pa.scalar(name), occurrence="last") for name in ("INNER_NUM", "INNER_BASE")]
        # CommitLog.setBatchSizeIfNeeded reads both where a record has both, whether it is a batch or not.
        rows = np.flatnonzero(true_in(pc.and_(*(column.is_valid() for column in told))))
        wrong, odd = np.zeros(batch.num_rows, np.bool_), np.zeros(batch.num_rows, np.bool_)
        for row, *texts in zip(rows.tolist(), *(column.take(pa.array(rows)).to_pylist() for column in told), strict=True):
            number, base = (int(text) if _NUMBER.fullmatch(text) else None for text in texts)
            odd[row] = number is None or base is None or not -BATCH_COUNT_MAX - 1 <= number <= BATCH_COUNT_MAX
            if is_batch[row] and number is not None:
                wrong[row], counts[row] = not 0 < number <= BATCH_COUNT_MAX, min(number, BATCH_COUNT_MAX)
        check(wrong, f"INNER_NUM: a batch has from 1 to {BATCH_COUNT_MAX} messages")
        check(odd, "INNER_NUM and INNER_BASE: one is no number that a broker reads")
        return counts


def _wrong_topic(name: str) -> str | None:
    """Return what is wrong with a topic; None for one that a new store may have."""
    if names.path_component(name) is None:
        return f"topic {escape(name, 80)}: cannot be the name of a folder"
    if (kind := meaning.kind_of(name)) not in meaning.OF_CLIENTS:
        return f"topic {escape(name, 80)}: is the broker's own ({kind}): import takes {listed(sorted(meaning.OF_CLIENTS))}"
    return None


def _texts(column: pa.Array) -> Texts:
    """Return a column of texts or bytes without nulls as its bytes."""
    offsets, data = string_buffers(column)
    return Texts(offsets.astype(np.int64), data)


def _hosts(column: pa.Array, name: str, check: Check) -> tuple[npt.NDArray[np.uint8], Mask]:
    """Return hosts (uint8, n by HOST_SIZE), and which are IPv6 ones (bool); one that is missing is 0.0.0.0:0."""
    coded = column.dictionary_encode()
    parsed = [_host(text) for text in coded.dictionary.to_pylist()]
    codes = coded.indices.fill_null(len(parsed)).to_numpy()
    wrong = [number for number, host in enumerate(parsed) if host is None]
    check(
        np.isin(codes, wrong),
        lambda row: f"{name} {escape(repr(column[row].as_py()), 60)}: is no address with a port, such as 10.0.0.1:10911",
    )
    table = np.frombuffer(b"".join([*(host[0] for host in parsed if host), _NO_HOST]), np.uint8).reshape(-1, HOST_SIZE)
    is_v6 = np.array([*(host[1] for host in parsed if host), False], np.bool_)
    return np.ascontiguousarray(table[codes]), is_v6[codes]


def _host(text: str) -> tuple[bytes, bool] | None:
    address, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or len(port) > 10 or int(port) >= 1 << 31:
        return None
    is_v6 = address.startswith("[") and address.endswith("]")
    try:
        packed = ipaddress.IPv6Address(address[1:-1]).packed if is_v6 else ipaddress.IPv4Address(address).packed
    except ValueError:
        return None
    return (packed + int(port).to_bytes(4, "big")).ljust(HOST_SIZE, b"\0"), is_v6
