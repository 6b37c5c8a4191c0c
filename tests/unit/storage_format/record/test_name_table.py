"""The table of names met in a task: found by their bytes, one canonical entry for one text, flags by the text."""

from __future__ import annotations

import random
import zlib

import numpy as np
import pytest
from hypothesis import given, strategies as st

from rocketmq_reindex.storage_format.kernels.java_text import signed32
from rocketmq_reindex.storage_format.record.name_table import NameTable, find_name
from rocketmq_reindex.storage_format.topics import DISPATCHES, INCLUDED, LMQ, PLAIN, SCHEDULE, SLASH
from tests.reference import java
from tests.reference.names import is_plain_component, lmq_applies
from tests.reference.settings import Settings
from tests.tools.strategies import JAVA_BYTES, embedded

LMQ_PROPERTIES = {"INNER_MULTI_DISPATCH": "q", "INNER_MULTI_QUEUE_OFFSET": "0"}
SPECIAL = [b"SCHEDULE_TOPIC_XXXX", b"%RETRY%g", b"rmq_sys_x", b"%LMQ%q", b"%LMQ%a/b", b"..", b"TopicA", b"", b"\0", b"a b"]


def find(table: NameTable, raw: bytes) -> int:
    data, start, end = embedded(raw)
    return find_name(table.arrays, data, start, end)


@given(st.lists(st.one_of(JAVA_BYTES, st.sampled_from(SPECIAL)), unique=True, max_size=20), st.sampled_from(["5.3", "4.9"]))
def test_what_is_known_of_a_name(raws: list[bytes], version: str) -> None:
    table = NameTable(version, (), ())
    for entry, raw in enumerate(raws):
        assert find(table, raw) == -1
        assert table.add(raw) == entry
    for entry, raw in enumerate(raws):
        text = java.decode_utf8(raw)
        assert find(table, raw) == entry
        assert table.texts[entry] == java.python_text(text)
        assert table.crc[entry] == zlib.crc32(java.python_text(text).encode())
        assert signed32(int(table.arrays.hash[entry])) == java.hash_code(text + "#")
        first = next(k for k, other in enumerate(raws) if java.decode_utf8(other) == text)
        assert table.arrays.canonical[entry] == first
        flags = int(table.arrays.flags[entry])
        assert bool(flags & PLAIN) == is_plain_component(text)
        assert bool(flags & SLASH) == ("/" in text)
        assert bool(flags & SCHEDULE) == (text == "SCHEDULE_TOPIC_XXXX")
        assert bool(flags & LMQ) == text.startswith("%LMQ%")
        assert bool(flags & DISPATCHES) == lmq_applies(text, LMQ_PROPERTIES, version)
        assert flags & INCLUDED


def test_two_spellings_of_one_text_share_an_entry() -> None:
    table = NameTable("5.3", (), ())
    lone, replacement, other = (table.add(raw) for raw in (b"x\xed\xa0\x80", "x\ufffd".encode(), b"x"))
    assert table.arrays.canonical[[lone, replacement, other]].tolist() == [lone, lone, other]


GLOBS = st.lists(st.sampled_from(["*", "a*", "*b", "[ab]*", "a?", "%RETRY%*", "A*", "", "[!a]*"]), max_size=2).map(tuple)


@given(GLOBS, GLOBS, st.text(alphabet="abA%", max_size=3))
def test_filters(include: tuple[str, ...], exclude: tuple[str, ...], name: str) -> None:
    table = NameTable("5.3", include, exclude)
    wanted = Settings(include_topic=include, exclude_topic=exclude).wants(name)
    assert bool(table.arrays.flags[table.add(name.encode())] & INCLUDED) == wanted


@pytest.mark.parametrize("count", [63, 64, 65, 5000])
def test_grows(seed: int, count: int) -> None:
    rng = random.Random(seed)
    raws = [b"%d-" % k + rng.randbytes(rng.choice((0, 3, 40, 3000 if k % 500 == 0 else 9))) for k in range(count)]
    table = NameTable("5.3", (), ())
    assert [table.add(raw) for raw in raws] == list(range(count))
    assert [find(table, raw) for raw in raws] == list(range(count))
    assert find(table, b"never met") == -1
    assert table.arrays.canonical[:count].tolist() == [table.texts.index(text) for text in table.texts]


def test_the_hash_table_grows_in_step_with_the_names() -> None:
    """A broker with many light message queues has 100,000s of names: their table must stay a table of that size."""
    table = NameTable("5.3", (), ())
    for k in range(20_000):
        table.add(b"%%LMQ%%%d" % k)
    slots = len(table.arrays.slots)
    assert int(np.count_nonzero(table.arrays.slots >= 0)) == 20_000
    assert 2 * 20_000 <= slots <= 16 * 20_000
