"""The SQL functions answer as RocketMQ's own code did: ``known_answers.json`` is what ``oracle.KnownAnswers`` printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import mmh3
import pyarrow as pa
import pytest
from hypothesis import example, given, strategies as st

from rocketmq_reindex.storage_format.kernels.java_text import BloomShape, bloom_shape
from rocketmq_reindex.storage_format.layouts import tag_hash
from rocketmq_reindex.udfs.sql import functions
from tests import ROOT
from tests.reference import java
from tests.reference.index_file import key_hash

KNOWN = json.loads((ROOT / "tests" / "oracle" / "known_answers.json").read_text(encoding="utf-8"))
TEXT = st.text(st.characters(codec="utf-8"), max_size=40)


def _java(text: str) -> str:
    return java.decode_utf8(text.encode())


def strings(values: list[str | None]) -> pa.Array:
    return pa.array(values, pa.string())


def test_hashes_and_tags_codes_are_rocketmqs() -> None:
    texts = [known["text"] for known in KNOWN["texts"]]
    assert functions.java_hash(strings(texts)).to_pylist() == [known["hash"] for known in KNOWN["texts"]]
    assert functions.tags_code(strings(texts)).to_pylist() == [known["tags_code"] for known in KNOWN["texts"]]


def test_hashes_of_tag_items_are_rocketmqs() -> None:
    """RocketMQ 5.5.0 indexed records of TopicA with these TAGS."""
    texts = [known["text"] for known in KNOWN["texts"]]
    hashed = functions.index_tag_hash(strings(["TopicA"] * len(texts)), strings(texts)).to_pylist()
    assert [[] if one is None else [one] for one in hashed] == [known["tag_items"] for known in KNOWN["texts"]]
    assert [tag_hash("TopicA", text) for text in texts if text] == [
        known for text in KNOWN["texts"] for known in text["tag_items"]
    ]


def test_message_ids_are_rocketmqs() -> None:
    hosts, offsets, ids = zip(*KNOWN["ids"], strict=True)
    assert functions.message_id(strings(list(hosts)), pa.array(offsets, pa.int64())).to_pylist() == list(ids)


def test_bloom_bits_are_rocketmqs() -> None:
    """RocketMQ hashed the whole texts: those with a ``#`` are a group and a topic."""
    known = [known for known in KNOWN["texts"] if "#" in known["text"]]
    assert len(known) >= 2
    groups, topics = zip(*(known["text"].split("#", 1) for known in known), strict=True)
    for number, fn in enumerate(KNOWN["filters"]):
        assert bloom_shape(fn["f"], fn["n"]) == BloomShape(fn["k"], fn["m"])
        found = functions.broker_bloom_bits(strings(list(groups)), strings(list(topics)), fn["f"], fn["n"])
        assert found.to_pylist() == [known["bits"][number] for known in known]


def test_bloom_bits_of_any_text_are_rocketmqs() -> None:
    from rocketmq_reindex.storage_format.kernels.java_text import bloom_bits, murmur3_128
    from rocketmq_reindex.udfs.messages.batches import string_buffers

    hashed = murmur3_128(*string_buffers(strings([known["text"] for known in KNOWN["texts"]])))
    for number, fn in enumerate(KNOWN["filters"]):
        bits = bloom_bits(hashed[:, 0], BloomShape(fn["k"], fn["m"]))
        assert bits.tolist() == [known["bits"][number] for known in KNOWN["texts"]]


@given(st.lists(st.none() | TEXT, max_size=6), st.lists(st.none() | TEXT, max_size=6))
@example(["ab", None, ""], [None, "cd", "e"])
@example(["T"], ["jllgx0D"])
def test_any_text(first: list[str | None], second: list[str | None]) -> None:
    count = min(len(first), len(second))
    topic, key = first[:count], second[:count]
    hashed = functions.java_hash(strings(topic)).to_pylist()
    assert hashed == [None if t is None else java.hash_code(_java(t)) for t in topic]
    keys = functions.index_hash(strings(topic), strings(key)).to_pylist()
    assert keys == [None if t is None or k is None else key_hash(_java(f"{t}#{k}")) for t, k in zip(topic, key, strict=True)]
    tags = functions.index_tag_hash(strings(topic), strings(key)).to_pylist()
    assert tags == [None if t is None or not k else key_hash(_java(f"{t}#T#{k}")) for t, k in zip(topic, key, strict=True)]
    fingerprints = functions.key_fingerprint(strings(topic), strings(key)).to_pylist()
    joined = [None if t is None or k is None else f"{t}#{k}".encode() for t, k in zip(topic, key, strict=True)]
    assert fingerprints == [None if text is None else mmh3.mmh3_x64_128_digest(text) for text in joined]
    bits = functions.broker_bloom_bits(strings(topic), strings(key)).to_pylist()
    assert [None if b is None else len(b) for b in bits] == [None if text is None else 3 for text in joined]


def test_slices_of_longer_arrays() -> None:
    """Spark cuts batches: an array's values may begin in the middle of its buffers."""
    texts = strings(["zero", "one", None, "three", "four"])[1:4]
    assert functions.java_hash(texts).to_pylist() == functions.java_hash(strings(["one", None, "three"])).to_pylist()
    large = pa.array(["zero", "one", None], pa.large_string())[1:]
    assert functions.java_hash(large).to_pylist() == functions.java_hash(strings(["one", None])).to_pylist()
    hosts, offsets = strings(["x", "1.2.3.4:5", None])[1:], pa.array([0, 7, 8])[1:]
    assert functions.message_id(hosts, offsets).to_pylist() == ["01020304000000050000000000000007", None]
    assert functions.key_fingerprint(texts, texts).to_pylist()[1] is None


NO_HOSTS = ("", "x", "1.2.3.4", "1.2.3.4:", "1.2.3.4:x", "1.2.3.4:99999999999", "[::1]", "::1:5:zz", "1.2.3:80")


@pytest.mark.parametrize("host", NO_HOSTS)
def test_no_host(host: str) -> None:
    assert functions.message_id(strings([host]), pa.array([1])).to_pylist() == [None]


@pytest.mark.parametrize(("rate", "consumers"), [(0, 32), (100, 32), (20, 0), (-1, -1)])
def test_no_filter(rate: int, consumers: int) -> None:
    with pytest.raises(ValueError, match="a bloom filter has"):
        bloom_shape(rate, consumers)


@pytest.mark.parametrize("name", sorted(functions.FUNCTIONS))
def test_over_pandas(name: str) -> None:
    """What Spark 4.0 runs, which has no Arrow UDFs."""
    function, _, arguments = functions.FUNCTIONS[name]
    columns: list[Any] = [strings(["10.0.0.1:80", "b", None]), strings(["x", None, "y"])]
    if name == "message_id":
        columns[1] = pa.array([1, 2, 3])
    over: Callable[..., Any] = functions.over_pandas(function, arguments)
    found = over(*(column.to_pandas() for column in columns[:arguments]))
    expected = function(*columns[:arguments])
    assert pa.Array.from_pandas(found, type=expected.type).to_pylist() == expected.to_pylist()
