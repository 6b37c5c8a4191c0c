"""What stands at a place of the log: check_record against the plain reference, on whole, mutated and cut records."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
from hypothesis import example, given, settings, strategies as st

from rocketmq_reindex.storage_format.record import frame, layout as r
from tests.reference import java, records
from tests.reference.settings import Settings
from tests.tools.encode import EPOCH, Message, blank, encode
from tests.tools.seeds import cases
from tests.tools.strategies import JAVA_BYTES

BASE = 3 << 20
"""Where the data lie in the log, in a segment of 1 MiB."""
SEGMENT_END = 4 << 20

MESSAGES = st.builds(
    Message,
    topic=st.one_of(st.sampled_from(["TopicA", "é" * 60, "L" * 128]), JAVA_BYTES.filter(lambda raw: len(raw) <= 127)),
    queue_id=st.integers(0, 2**31 - 1),
    body=st.one_of(st.just(b""), st.binary(max_size=120)),
    properties=st.one_of(st.just({}), st.just({"KEYS": "a b", "TAGS": "t"}), JAVA_BYTES),
    sysflag=st.sampled_from([0, 1, 4, 8, 12, 0x301]),
    store_timestamp=st.one_of(st.just(EPOCH), st.integers(-(2**63), 2**63 - 1)),
    born_host=st.sampled_from([("10.0.0.1", 1), ("::1", 2)]),
    store_host=st.sampled_from([("10.0.0.9", 1), ("::9", 2)]),
    version=st.sampled_from([None, None, 2]),
    queue_offset=st.integers(0, 2**40),
    crc_property=st.booleans(),
)
MODES = {"none": r.CRC_NONE, "body": r.CRC_BODY, "all": r.CRC_ALL}


class Checker:
    """check_record on bytes that begin at BASE."""

    def __init__(self, log: bytes, crc: str = "body", data_end: int | None = None) -> None:
        self.data = np.frombuffer(log, np.uint8)
        self.log, self.crc = log, crc
        self.data_end = BASE + len(log) if data_end is None else data_end
        self.rec = np.full(frame.REC_SIZE, -9, np.int64)
        self.spans = np.zeros(frame.SPANS_SIZE, np.int64)

    def check(self, at: int, filled: int | None = None) -> int:
        have = len(self.data) if filled is None else filled
        # Nothing behind what is there may be read: it is overwritten.
        seen = np.concatenate([self.data[:have], np.full(len(self.data) - have, 0xDB, np.uint8)])
        stretch = frame.Stretch(seen, have, BASE, SEGMENT_END, self.data_end)
        return int(frame.check_record(stretch, at, MODES[self.crc], frame.RecordArrays(self.rec, self.spans)))

    def expected(self, at: int) -> records.Record | records.Blank | records.Bad:
        return records.parse(self.log, at, BASE, SEGMENT_END, Settings(crc=self.crc))


def agree(checker: Checker, at: int) -> int:
    """Assert that the verdict is the reference's; returns it."""
    code, expected = checker.check(at), checker.expected(at)
    if isinstance(expected, records.Record) or (isinstance(expected, records.Bad) and expected.reason in SEEN_LATER):
        assert code == r.GOOD
    elif isinstance(expected, records.Blank):
        assert code == r.FILLER
    elif expected.framed:
        assert code >= r.FIRST_FRAMED
        assert checker.rec[frame.TOTAL] == expected.framed
    else:
        assert code == r.ZERO or r.FIRST_DAMAGE <= code < r.FIRST_FRAMED
    return code


# What check_record leaves to the walk, which knows the topic; --crc all is told apart from them below.
SEEN_LATER = (records.NUMBER, records.TOPIC, records.QUEUE, records.VERSION)


def log_of(messages: list[Message]) -> tuple[bytes, list[int]]:
    log, places = b"", []
    for message in messages:
        places.append(len(log))
        log += encode(message, BASE + len(log))
    return log, places


@given(MESSAGES, st.sampled_from(["none", "body", "all"]), st.binary(max_size=12))
def test_fields_of_a_whole_record(message: Message, crc: str, before: bytes) -> None:
    at = len(before)
    raw = encode(message, BASE + at)
    checker = Checker(before + raw + b"\xda\xa3", crc)
    assert checker.check(at) == r.GOOD
    record = records.parse(before + raw, at, BASE, SEGMENT_END, Settings(crc="none", broker_version="4.9"))
    rec = checker.rec.tolist()
    assert rec[frame.TOTAL] == len(raw)
    assert (rec[frame.QUEUE_ID], rec[frame.QUEUE_OFFSET]) == (message.queue_id, message.queue_offset)
    assert rec[frame.STORE_TIME] == message.store_timestamp
    topic = message.topic if isinstance(message.topic, bytes) else message.topic.encode()
    assert (before + raw)[rec[frame.TOPIC_START] : rec[frame.TOPIC_END]] == topic
    assert rec[frame.PROPS_END] == at + len(raw)
    if isinstance(record, records.Record):
        assert rec[frame.SYS_FLAG] == record.sysflag
        raw_properties = (before + raw)[rec[frame.PROPS_START] : rec[frame.PROPS_END]]
        assert records.parse_properties(java.decode_utf8(raw_properties)) == record.properties


@given(MESSAGES, st.data())
def test_more_is_asked_for_until_all_is_there(message: Message, data: st.DataObject) -> None:
    raw = encode(message, BASE)
    checker = Checker(raw)
    filled = data.draw(st.integers(0, len(raw)))
    asked = []
    while (code := checker.check(0, filled)) == r.MORE:
        wanted = int(checker.rec[frame.TOTAL])
        assert filled < wanted <= len(raw)
        asked.append(wanted)
        filled = wanted
    assert code == r.GOOD
    assert asked == sorted(asked)
    assert len(asked) <= 3


@settings(max_examples=cases(250, 40))
@given(st.lists(MESSAGES, min_size=1, max_size=3), st.sampled_from(["none", "body", "all"]), st.data())
def test_mutated_records_get_the_references_verdict(messages: list[Message], crc: str, data: st.DataObject) -> None:
    # Numbers that do not parse are the walk's: with --crc all the reference sees them first.
    log, places = log_of([replace(m, properties={"KEYS": "k"} if crc == "all" else m.properties) for m in messages])
    spoilt = bytearray(log)
    for _ in range(data.draw(st.integers(0, 3))):
        place = data.draw(st.sampled_from(places)) + data.draw(st.integers(0, 110))
        value = data.draw(
            st.one_of(st.binary(min_size=1, max_size=8), st.integers(-300, 300).map(lambda v: struct.pack(">i", v)))
        )
        spoilt[place : place + len(value)] = value[: max(0, len(spoilt) - place)]
    cut = data.draw(st.one_of(st.just(len(spoilt)), st.integers(0, len(spoilt))))
    checker = Checker(bytes(spoilt[:cut]), crc)
    for at in [*(p for p in places if p <= cut), data.draw(st.integers(0, cut))]:
        agree(checker, at)


@given(st.binary(min_size=88, max_size=100), st.integers(-8, 300))
@example(bytes(100), 0)
def test_noise_behind_a_true_head(noise: bytes, size: int) -> None:
    head = struct.pack(">iI", size, records.MAGIC_V1) + noise[:20] + struct.pack(">q", BASE) + noise[20:]
    agree(Checker(head + bytes(200)), 0)


def test_fillers_reach_to_the_segments_end() -> None:
    for data_end in (SEGMENT_END, BASE + 4096):
        at = 8
        log = bytes(at) + blank(SEGMENT_END - BASE - at) + b"rest"
        checker = Checker(log, data_end=data_end)
        assert checker.check(at) == r.FILLER
        for wrong in (8, SEGMENT_END - BASE, -1):
            assert Checker(bytes(at) + blank(wrong), data_end=data_end).check(at) == r.BAD_FILLER


def test_the_last_bytes_of_a_file() -> None:
    for room in range(9):
        code = Checker(bytes(room)).check(0)
        assert code == (r.NO_ROOM if room < 8 else r.ZERO)
