"""SQL functions that compute what RocketMQ computes: ``register(spark)``, then ``SELECT message_id(storeHost, ...)``.

Each takes and returns Arrow arrays: there is no Python object for each row.
"""

import functools
import ipaddress
import struct
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession, functions as F
from pyspark.sql.pandas.functions import pandas_udf

from rocketmq_reindex.storage_format.kernels import java_text
from rocketmq_reindex.storage_format.kernels.java_text import murmur3_128
from rocketmq_reindex.udfs.messages.batches import bitmap, string_buffers


def java_hash(text: pa.Array) -> pa.Array:
    """Return ``String.hashCode``: string -> int."""
    return _with_nulls(java_text.hash_texts(*string_buffers(text)), text)


def tags_code(tags: pa.Array) -> pa.Array:
    """Return a unit's tagsCode (``MessageExtBrokerInner.tagsString2tagsCode``): string -> bigint, 0 for no or empty tags.

    The units of delayed messages have the time at which they are due instead.
    """
    return java_hash(pc.fill_null(tags.cast(pa.string()), "")).cast(pa.int64())


def index_hash(topic: pa.Array, key: pa.Array) -> pa.Array:
    """Return an item's keyHash for a topic's key (``IndexFile.indexKeyHashMethod``): two strings -> int, never below 0."""
    text = _joined(topic, key)
    return _with_nulls(java_text.hash_keys(*string_buffers(text)), text)


def index_tag_hash(topic: pa.Array, tags: pa.Array) -> pa.Array:
    """Return the keyHash of a tag item, by topic and tags of a record (``IndexService.buildIndex``, 5.4.0): two strings -> int.

    Null for no or empty tags, which have no item.
    """
    tag_texts = tags.cast(pa.string())
    text = _joined(topic, pc.if_else(pc.not_equal(tag_texts, ""), tag_texts, None), "#T#")
    return _with_nulls(java_text.hash_keys(*string_buffers(text)), text)


def message_id(store_host: pa.Array, offset: pa.Array) -> pa.Array:
    """Return the broker's offset message id (``MessageDecoder.createMessageId``): host:port and physical offset -> string.

    Null where the host is no address and port.
    """
    hosts = pc.dictionary_encode(store_host.cast(pa.string()))
    packed = [_packed_host(host) for host in hosts.dictionary.to_pylist()]
    known = np.array([bool(p) for p in packed] + [False], np.bool_)
    lengths = np.array([len(p) for p in packed] + [0], np.int64)
    table = np.frombuffer(b"".join(p.ljust(20, b"\0") for p in [*packed, b""]), np.uint8).reshape(-1, 20)
    host_number = pc.fill_null(hosts.indices, len(packed)).to_numpy(zero_copy_only=False)
    valid = known[host_number] & offset.is_valid().to_numpy(zero_copy_only=False)
    numbers = pc.fill_null(offset, 0).cast(pa.int64()).to_numpy(zero_copy_only=False)
    offsets, data = java_text.hex_ids(table, lengths, host_number.astype(np.int64), np.ascontiguousarray(numbers), valid)
    return pa.Array.from_buffers(pa.string(), len(host_number), [bitmap(valid), pa.py_buffer(offsets), pa.py_buffer(data)])


def key_fingerprint(topic: pa.Array, key: pa.Array) -> pa.Array:
    """Return murmur3, 128 bits, of ``topic#key``: two strings -> binary(16).

    Many keys share an item's hash of 31 bits, but not this one: use it for joins and lookups.
    """
    text = _joined(topic, key)
    hashed = murmur3_128(*string_buffers(text))
    data = pa.py_buffer(hashed.astype("<u8").tobytes())
    offsets = pa.py_buffer(np.arange(0, 16 * len(text) + 1, 16, dtype=np.int32))
    return pa.Array.from_buffers(pa.binary(), len(text), [_validity(text), offsets, data])


def broker_bloom_bits(
    group: pa.Array, topic: pa.Array, error_rate: int = java_text.ERROR_RATE, consumers: int = java_text.CONSUMERS
) -> pa.Array:
    """Return the bits of a consumer group's subscription in the broker's filter (``ConsumerFilterManager``, ``BloomFilter``).

    Group and topic -> array<int>. The broker hashes ``group#topic``; error rate (percent) and consumers are its settings.
    """
    text = _joined(group, topic)
    shape = java_text.bloom_shape(error_rate, consumers)
    bits = java_text.bloom_bits(murmur3_128(*string_buffers(text))[:, 0], shape)
    offsets = pa.py_buffer(np.arange(0, bits.size + 1, shape.hashes, dtype=np.int32))
    values = pa.array(bits.reshape(-1), pa.int32())
    return pa.Array.from_buffers(pa.list_(pa.int32()), len(text), [_validity(text), offsets], children=[values])


FUNCTIONS: Final[dict[str, tuple[Callable[..., pa.Array], str, int]]] = {
    "java_hash": (java_hash, "int", 1),
    "tags_code": (tags_code, "bigint", 1),
    "index_hash": (index_hash, "int", 2),
    "index_tag_hash": (index_tag_hash, "int", 2),
    "message_id": (message_id, "string", 2),
    "key_fingerprint": (key_fingerprint, "binary", 2),
    "broker_bloom_bits": (broker_bloom_bits, "array<int>", 2),
}
"""name: (function, SQL type of its result, number of arguments)"""


def register(spark: SparkSession, error_rate: int = java_text.ERROR_RATE, consumers: int = java_text.CONSUMERS) -> None:
    """Register the functions with a session.

    ``error_rate`` (percent) and ``consumers`` are the broker's settings for ``broker_bloom_bits``. Raises ValueError when they
    are out of range.
    """
    java_text.bloom_shape(error_rate, consumers)
    for name, (function, gives, arguments) in FUNCTIONS.items():
        if name == "broker_bloom_bits":
            function = functools.partial(function, error_rate=error_rate, consumers=consumers)
        spark.udf.register(name, _udf(function, gives, arguments))


def _udf(function: Callable[..., pa.Array], gives: str, arguments: int) -> Any:
    """An Arrow UDF; a pandas UDF in Spark 4.0, which has no Arrow UDFs."""
    if not hasattr(F, "arrow_udf"):
        as_series: Any = pandas_udf
        return as_series(over_pandas(function, arguments), gives)

    def one(a: pa.Array) -> pa.Array:
        return function(a)

    def two(a: pa.Array, b: pa.Array) -> pa.Array:
        return function(a, b)

    return F.arrow_udf(one if arguments == 1 else two, gives)


def over_pandas(function: Callable[..., pa.Array], arguments: int) -> Callable[..., Any]:
    """Return the function over pandas series instead of Arrow arrays."""
    import pandas as pd  # type: ignore[import-untyped]

    def one(a: Any) -> Any:
        return _series(function(pa.Array.from_pandas(a)))

    def two(a: Any, b: Any) -> Any:
        return _series(function(pa.Array.from_pandas(a), pa.Array.from_pandas(b)))

    chosen = one if arguments == 1 else two
    # Spark takes the kind of UDF from the annotations.
    chosen.__annotations__ = dict.fromkeys([*"ab"[:arguments], "return"], pd.Series)
    return chosen


def _series(array: pa.Array) -> Any:
    """The array as a series of objects: integers stay integers where some are null."""
    import pandas as pd

    return pd.Series(array.to_pylist(), dtype=object)


def _packed_host(host: str | None) -> bytes:
    """Address and port of ``10.0.0.1:80`` or ``[::1]:80`` as bytes; b"" for any other text."""
    address, _, port = (host or "").rpartition(":")
    try:
        return ipaddress.ip_address(address.removeprefix("[").removesuffix("]")).packed + struct.pack(">i", int(port))
    except (ValueError, struct.error):
        return b""


def _joined(first: pa.Array, second: pa.Array, between: str = "#") -> pa.Array:
    return pc.binary_join_element_wise(first.cast(pa.string()), second.cast(pa.string()), between)


def _validity(array: pa.Array) -> pa.Buffer | None:
    return bitmap(array.is_valid().to_numpy(zero_copy_only=False))


def _with_nulls(values: npt.NDArray[np.int32], like: pa.Array) -> pa.Array:
    return pa.Array.from_buffers(pa.int32(), len(values), [_validity(like), pa.py_buffer(values)])
