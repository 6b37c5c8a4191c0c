"""The record scan: walk, check_record, find_record and RangeScanner over any bytes, beside the reference's walk.

input: 8 bytes of settings (``_Setting``), then the log.
"""

from __future__ import annotations

import random
import struct
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rocketmq_reindex.jobs.command.option import parse_delay_levels
from rocketmq_reindex.storage_format.record import frame, layout as r, loop, window
from rocketmq_reindex.storage_format.scan import range_notes, range_scan
from rocketmq_reindex.storage_format.scan.ranges import Segment
from rocketmq_reindex.storage_format.scan.settings import ScanSettings
from rocketmq_reindex.udfs.times import DELAY_LEVELS
from tests.fuzz.guard import allow, guard, guarded
from tests.reference import log as reference_log
from tests.reference.log import merged
from tests.reference.settings import Settings
from tests.tools.make_log import FEATURES, Message, encode, random_log
from tests.tools.scans import LogScan, MemoryLog, damage_spans, expected_items, expected_units, scan_log
from tests.unit.storage_format.scan.test_many_images import all_to_the_end

MAX_LEN = 1024
HEAD = 8
REPAIR, OLD, LMQ, STOP, TWO, CUT = 1, 2, 4, 8, 16, 32
BASES = (0, 1 << 14, 1 << 31, 1 << 40)
CHUNKS = (128, 300, 1000, 4096)
SHORT_BY = (0, 1, 8, 100)
CRC = ("body", "all", "none", "body")
DELAYS = parse_delay_levels(DELAY_LEVELS)
DICTIONARY = [
    struct.pack(">i", magic) for magic in (r.MAGIC_V1, r.MAGIC_V2, r.MAGIC_BLANK)
] + [
    *(struct.pack(">i", n) for n in (0, 1, -1, 8, 91, -(2**31), 2**31 - 1)), b"\x00\x00\x00\x5b\xda\xa3\x20\xa7",
    b"KEYS\x01", b"UNIQ_KEY\x01", b"TAGS\x01", b"DELAY\x01", b"INNER_NUM\x01", b"INNER_BASE\x01", b"__CRC32#\x01",
    b"INNER_MULTI_DISPATCH\x01", b"INNER_MULTI_QUEUE_OFFSET\x01", b"%LMQ%a,b/c", b"SCHEDULE_TOPIC_XXXX", b"../x", b"\x02",
]  # fmt: skip

for _module, _names, _filled in (
    (range_scan, ("find_record",), True),
    (loop, ("walk",), True),
    (window, ("int32_at", "int16_at"), False),
    (loop, ("new_lmqs",), False),
    (range_notes, ("pass_records", "find_elsewhere"), True),
    (range_notes, ("int64_at", "has_sound_body"), False),
):
    for _name in _names:
        setattr(_module, _name, guarded(getattr(_module, _name), filled=_filled))


@dataclass(frozen=True)
class _Setting:
    """The first bytes of an input: flags; base, CRC mode and shortness; chunk; three cuts, the split, a place to look at."""

    raw: bytes

    @property
    def flags(self) -> int:
        return self.raw[0]

    @property
    def base(self) -> int:
        return BASES[self.raw[1] & 3]

    @property
    def crc(self) -> str:
        return CRC[self.raw[1] >> 2 & 3]

    @property
    def short_by(self) -> int:
        return SHORT_BY[self.raw[1] >> 4 & 3]

    @property
    def chunk(self) -> int:
        return CHUNKS[self.raw[2] & 3]

    def part(self, number: int, length: int) -> int:
        return length * self.raw[number] // 256


def repair(log: bytearray, base: int) -> None:
    """Give every record that can be one its own place and the CRC of its body: mutations then get behind these checks."""
    at = 0
    while at + 91 <= len(log):
        size, magic = struct.unpack_from(">ii", log, at)
        if size < 91 or at + size > len(log) or magic not in (r.MAGIC_V1, r.MAGIC_V2):
            return
        struct.pack_into(">q", log, at + 28, base + at)
        extra = 12 * (bool(log[at + 39] & 0x10) + bool(log[at + 39] & 0x20))
        body = at + 88 + extra
        (length,) = struct.unpack_from(">i", log, min(body - 4, len(log) - 4))
        if 0 < length <= at + size - body:
            struct.pack_into(">I", log, at + 8, zlib.crc32(log[body : body + length]) & 0x7FFFFFFF)
        at += size


def memory_log(parts: list[tuple[int, bytes]], size: int) -> MemoryLog:
    """Segments as (first offset, bytes)."""
    log = MemoryLog.__new__(MemoryLog)
    log.data, log.reads, log.segment_size = dict(parts), [], size
    log.segments = [Segment(f"{base:020d}", "", base, base + len(data), base + size) for base, data in parts]
    return log


def check(data: bytes) -> None:
    if len(data) <= HEAD:
        return
    setting, raw = _Setting(data[:HEAD]), bytearray(data[HEAD:])
    base, flags = setting.base, setting.flags
    if flags & REPAIR:
        repair(raw, base)
    size = len(raw) + setting.short_by
    parts = [(base, bytes(raw))]
    if flags & TWO:
        size = max(1, setting.part(6, len(raw)), -(-len(raw) // 2))
        parts = [(base, bytes(raw[:size]))] + ([(base + size, bytes(raw[size:]))] if len(raw) > size else [])
    old, lmq = bool(flags & OLD), bool(flags & LMQ)
    rules = Settings(crc=setting.crc, broker_version="4.9" if old else "5.3", lmq=lmq)
    truth = reference_log.walk([reference_log.Segment(*part) for part in parts], size, rules)
    modes = {"body": r.CRC_BODY, "all": r.CRC_ALL, "none": r.CRC_NONE}
    settings = ScanSettings(
        modes[setting.crc], rules.broker_version, lmq, delays=DELAYS, chunk=setting.chunk, block_rows=2 * len(raw) + 64,
        stop_at_damage=bool(flags & STOP),
    )  # fmt: skip
    log = memory_log(parts, size)
    cuts = [base + setting.part(k, len(raw)) for k in (3, 4, 5)]
    # An access or a few for each byte, a few dozen for each record; twice over, and again for each range scanned again.
    allow(20_000 + 600 * len(raw))
    for places in ([], cuts) if flags & CUT else ([],):
        scan = scan_log(log, places, settings)
        if flags & STOP:
            compare_stop(scan, truth)
        else:
            compare(scan, truth)
    look_at(setting, raw, settings.crc_mode)


def compare(scan: LogScan, truth: reference_log.Log) -> None:
    """All of a log that is read to its end."""
    assert scan.units == expected_units(truth.records)
    assert scan.items == expected_items(truth.records)
    assert damage_spans(scan) == merged(truth.damage)
    torn, tail = scan.chain.torn, truth.torn_tail
    assert (torn and (torn.offset, torn.length)) == (tail and (tail.offset, tail.length))


def compare_stop(scan: LogScan, truth: reference_log.Log) -> None:
    """A log that is read up to its first damage."""
    first = truth.damage[0].offset if truth.damage else 1 << 62
    before = [record for record in truth.records if record.offset < first]
    found, expected = [hole.offset for hole in scan.chain.holes[:1]], [damage.offset for damage in truth.damage[:1]]
    # A search behind the stop looks into bad records as well: an image there makes damage of what the walk calls a torn tail.
    assert found == expected or (truth.torn_tail and not expected and found == [truth.torn_tail.offset])
    assert [unit for unit in scan.units if unit[3] < first] == expected_units(before)
    assert [item for item in scan.items if item[1] < first] == expected_items(before)


def look_at(setting: _Setting, raw: bytearray, crc_mode: int) -> None:
    """A look at one place says the same however little of the log is there, or that more is wanted."""
    data, at = np.frombuffer(bytes(raw), np.uint8), setting.part(7, len(raw))
    end, said = setting.base + len(raw), []
    for filled in (len(raw), at, min(at + 95, len(raw)), (at + len(raw)) // 2):
        record = frame.new_record()
        stretch = frame.Stretch(data[:filled], filled, setting.base, end, end)
        code = frame.check_record(guard(stretch), at, crc_mode, guard(record))
        if code == r.MORE:
            assert at + record.rec[frame.TOTAL] > filled, "more is wanted than nothing"
            assert record.rec[frame.TOTAL] <= len(raw) - at, "more is wanted than the log has"
        said.append(int(code))
    assert said[0] != r.MORE
    assert {said[0], r.MORE}.issuperset(said)


def seeds(rng: random.Random) -> list[bytes]:
    found = []
    for _ in range(40):
        features = [feature for feature in sorted(FEATURES) if rng.random() < 0.5]
        with tempfile.TemporaryDirectory() as folder:
            random_log(
                Path(folder), rng.randrange(2**31), records=rng.randrange(1, 4), segment_size=4096, features=features,
                first_offset=1 << 14, biggest_body=40,
            )  # fmt: skip
            log = min(Path(folder).iterdir()).read_bytes()
        log = log[: max(100, len(log.rstrip(b"\0")) + rng.choice((-3, 0, 5, 40)))]
        flags = (
            rng.choice((0, REPAIR))
            | rng.choice((0, CUT))
            | rng.choice((0, 0, OLD))
            | rng.choice((0, LMQ))
            | rng.choice((0, 0, STOP, TWO))
        )
        head = bytes((flags, 1 | rng.randrange(4) << 2 | rng.randrange(4) << 4, *rng.randbytes(6)))
        found.append((head + log)[:MAX_LEN])
    for size in (300, 700, MAX_LEN - HEAD):
        # Base 0; more sums than bytes: each range is then summed up from parts.
        log = bytes(all_to_the_end(size - 100)) + encode(Message(properties={"KEYS": "k"}), size - 100)
        found.append((bytes((rng.choice((0, LMQ, CUT, STOP)), rng.randrange(4) << 2, *rng.randbytes(6))) + log)[:MAX_LEN])
    return found
