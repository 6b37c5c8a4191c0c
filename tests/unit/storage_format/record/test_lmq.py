"""Light message queues: what a record's two properties dispatch, against the broker's rules in plain Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from rocketmq_reindex.storage_format.record.loop import is_blank
from rocketmq_reindex.storage_format.scan.range_scan import RangeScanner
from rocketmq_reindex.storage_format.scan.ranges import RangeSpec
from rocketmq_reindex.storage_format.scan.settings import ScanSettings
from tests.reference import java, records
from tests.reference.names import HIGHEST_QUEUE_OFFSET, is_plain_component
from tests.reference.settings import Settings
from tests.tools.encode import COMMIT, PREPARED, ROLLBACK, Message, encode
from tests.tools.log_writer import LogWriter
from tests.tools.scans import MemoryLog, Unit, expected_units, scan_range
from tests.tools.seeds import cases
from tests.tools.strategies import JAVA_BYTES, embedded

QUEUES = st.lists(
    st.sampled_from(["%LMQ%a", "%LMQ%b", "plain", "x/y", "%LMQ%x/y", "", "..", "é", "\ufffd", "a b", "%LMQ%"]), max_size=5
).map(",".join)
OFFSETS = st.lists(
    st.sampled_from(
        ["0", "1", "7", "-1", "+2", "", "x", "9223372036854775807", "461168000000000000", "1000000000000000000", "٣", " 1"]
    ),
    max_size=5,
).map(",".join)
PAIRS = st.one_of(
    st.tuples(QUEUES, OFFSETS),
    st.integers(1, 4).flatmap(
        lambda n: st.tuples(
            st.lists(st.sampled_from(["%LMQ%a", "%LMQ%b", "p", "a/b", "é"]), min_size=n, max_size=n).map(",".join),
            st.lists(st.integers(0, 99).map(str), min_size=n, max_size=n).map(",".join),
        )
    ),
)


def scan_one(raw: bytes, version: str) -> tuple[list[Unit], list[list[int]], tuple[int, int], int]:
    """(units, holes, dispatches skipped for their names, records whose dispatch is malformed) of one record."""
    scanner = RangeScanner(ScanSettings(lmq=True, broker_version=version, block_rows=400))
    log = MemoryLog.__new__(MemoryLog)
    log.data, log.reads = {0: raw + bytes(200)}, []
    found = scan_range(scanner, RangeSpec(0, "", 0, 1 << 20, len(raw) + 200, 0, len(raw), True), log)
    summary = found.summary
    return found.units, summary.holes, (summary.lmq_slash, summary.lmq_no_file), summary.lmq_malformed


def is_decided(pair: tuple[str, str]) -> bool:
    """Whether the reference says what comes of it: not where a number is none beside a name that gets no unit anyway."""
    names, offsets = (java.split(text, ",") for text in pair)
    numbers = [java.parse_number(text, 64) for text in offsets]
    usable = all(number is not None and 0 <= number <= HIGHEST_QUEUE_OFFSET for number in numbers)
    return len(names) != len(offsets) or usable or all("/" not in name and is_plain_component(name) for name in names)


@given(
    PAIRS.filter(is_decided),
    st.sampled_from(["TopicA", "%RETRY%g", "rmq_sys_x", "SCHEDULE_TOPIC_XXXX", "%LMQ%a", "p"]),
    st.sampled_from([0, COMMIT, PREPARED, ROLLBACK]),
    st.sampled_from(["5.3", "4.9"]),
)
@example(("%LMQ%a,%LMQ%a", "3,4"), "TopicA", 0, "5.3")
@example(("%LMQ%a,,", "3,,,"), "TopicA", 0, "5.3")
@example((",", ","), "TopicA", 0, "5.3")
@example(("%LMQ%a,..", "0"), "TopicA", 0, "5.3")
@example(("\u3000", "0"), "TopicA", 0, "5.3")
@settings(max_examples=cases(300, 40))
def test_units_of_a_record(pair: tuple[str, str], topic: str, sysflag: int, version: str) -> None:
    properties = f"INNER_MULTI_DISPATCH\x01{pair[0]}\x02INNER_MULTI_QUEUE_OFFSET\x01{pair[1]}\x02".encode()
    raw = encode(Message(topic=topic, queue_id=5, queue_offset=9, sysflag=sysflag, properties=properties), 0)
    truth = records.parse(raw, 0, 0, 1 << 20, Settings(lmq=True, broker_version=version))
    units, holes, skipped, malformed = scan_one(raw, version)
    if isinstance(truth, records.Bad):
        assert holes == [[0, len(raw), holes[0][2]]]
        assert units == []
        return
    assert isinstance(truth, records.Record)
    assert (units, holes) == (expected_units([truth]), [])
    assert skipped == tuple(sum(word in warning for warning in truth.warnings) for word in ("slash", "file name"))
    assert malformed == sum("name" not in warning for warning in truth.warnings)


@given(
    st.one_of(
        JAVA_BYTES,
        st.text(alphabet=" \t\n\x0b\x1c\x1f\x85\xa0\u1680\u2007\u2008\u202f\u2028\u205f\u3000\u200b").map(str.encode),
    )
)
def test_blank_as_in_java(raw: bytes) -> None:
    data, start, end = embedded(raw)
    assert is_blank(data, start, end) == java.is_blank(java.decode_utf8(raw))


@pytest.mark.parametrize("names", [1, 200, 1500])
def test_many_queues_of_one_record(tmp_path: Path, names: int) -> None:
    """Each gets a unit; block and queue table are large enough for the longest properties there can be."""
    with LogWriter(tmp_path, 1 << 20) as writer:
        for _ in range(3):
            writer.append(Message(lmq=tuple(f"%LMQ%{k:x}" for k in range(names))))
    log = MemoryLog(tmp_path, 1 << 20)
    (specs,) = log.cut([]).values()
    found = scan_range(RangeScanner(ScanSettings(lmq=True, block_rows=16_500)), specs[0], log)
    assert len(found.units) == 3 * (names + 1)
    assert sorted(unit[2] for unit in found.units) == sorted([0, 1, 2] * (names + 1))
    places = np.array([unit[3] for unit in found.units])
    assert (np.diff(places) >= 0).all()
