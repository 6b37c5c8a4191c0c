"""A log scanned in ranges cut at any byte, through buffers and blocks of any size, gives what reading it whole gives."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rocketmq_reindex.jobs.command.option import parse_delay_levels
from rocketmq_reindex.storage_format.record.layout import CRC_ALL, CRC_BODY, CRC_NONE
from rocketmq_reindex.storage_format.scan.range_scan import RangeScanner
from rocketmq_reindex.storage_format.scan.ranges import RangeSummary
from rocketmq_reindex.storage_format.scan.settings import ScanSettings
from rocketmq_reindex.storage_format.versions import VERSIONS
from rocketmq_reindex.udfs.times import DELAY_LEVELS
from tests.reference.log import Log
from tests.tools.encode import property_bytes
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import FEATURES, Message, random_log
from tests.tools.scans import LogScan, MemoryLog, expected_items, expected_units, reference_walk, scan_log, scan_range

SEGMENT = 1 << 15
DELAYS = parse_delay_levels(DELAY_LEVELS)
CRC = {"none": CRC_NONE, "body": CRC_BODY, "all": CRC_ALL}


def assert_same(scan: LogScan, truth: Log) -> None:
    assert scan.units == expected_units(truth.records)
    assert scan.items == expected_items(truth.records)
    assert sum(s.records for s in scan.chain.accepted) == len(truth.records)
    tagged = [key.startswith(f"{record.topic}#T#") for record in truth.records for key in record.index_keys()]
    assert [sum(s.tag_items for s in scan.chain.accepted), sum(s.items for s in scan.chain.accepted)] == [
        sum(tagged),
        len(tagged),
    ]
    assert scan.chain.holes == []
    assert scan.chain.torn is None


def cuts(rng: random.Random, log: MemoryLog, count: int) -> list[int]:
    """Any bytes, and the bytes around where records begin."""
    first, last = log.segments[0].start, log.segments[-1].data_end
    return [rng.randrange(first, last) for _ in range(count)]


def facts(summary: RangeSummary) -> dict[str, object]:
    """All but the unusual names, which have a test of their own."""
    return {name: value for name, value in vars(summary).items() if name != "unusual_names"}


@pytest.mark.parametrize("crc", ["none", "body", "all"])
@pytest.mark.parametrize("chunk", [4096, 1 << 20])
def test_ranges_cut_at_any_byte(tmp_path: Path, seed: int, crc: str, chunk: int) -> None:
    rng = random.Random(seed)
    random_log(tmp_path, seed, segment_size=SEGMENT, first_offset=rng.choice((0, SEGMENT)), features=FEATURES)
    log = MemoryLog(tmp_path, SEGMENT)
    truth = reference_walk(tmp_path, SEGMENT, crc=crc, lmq=True)
    settings = ScanSettings(crc_mode=CRC[crc], lmq=True, delays=DELAYS, chunk=chunk, block_rows=1500)
    for ranges in (1, 3, 30, 150):
        assert_same(scan_log(log, cuts(rng, log, ranges), settings), truth)
    for around in (-1, 0, 1, 7, 8, 28, 36):
        places = [record.offset + around for record in rng.sample(truth.records, 40)]
        assert_same(scan_log(log, places, settings), truth)


@pytest.mark.parametrize("version", VERSIONS)
def test_settings_of_a_scan(tmp_path: Path, seed: int, version: str) -> None:
    random_log(tmp_path, seed, segment_size=SEGMENT, features=FEATURES - {"v2"})
    log = MemoryLog(tmp_path, SEGMENT)
    for lmq in (False, True):
        truth = reference_walk(tmp_path, SEGMENT, broker_version=version, lmq=lmq)
        settings = ScanSettings(broker_version=version, lmq=lmq, delays=DELAYS)
        scan = scan_log(log, [], settings)
        assert_same(scan, truth)
        assert sum(s.lmq_slash for s in scan.chain.accepted) == sum("slash" in w for r in truth.records for w in r.warnings)


def test_topics_units_and_items_left_out(tmp_path: Path, seed: int) -> None:
    random_log(tmp_path, seed, segment_size=SEGMENT)
    log, truth = MemoryLog(tmp_path, SEGMENT), reference_walk(tmp_path, SEGMENT)
    wanted = [r for r in truth.records if r.topic.startswith("T") and r.topic != "TopicB"]
    scan = scan_log(log, [SEGMENT // 2], ScanSettings(delays=DELAYS, include=("T*",), exclude=("TopicB",)))
    assert (scan.units, scan.items) == (expected_units(wanted), expected_items(wanted))
    assert sum(s.excluded for s in scan.chain.accepted) == len(truth.records) - len(wanted)
    neither = scan_log(log, [], ScanSettings(delays=DELAYS, want_units=False, want_items=False))
    assert (neither.units, neither.items) == ([], [])
    assert sum(s.records for s in neither.chain.accepted) == len(truth.records)


def test_until_time(tmp_path: Path, seed: int) -> None:
    random_log(tmp_path, seed, segment_size=SEGMENT)
    log, truth = MemoryLog(tmp_path, SEGMENT), reference_walk(tmp_path, SEGMENT)
    rng = random.Random(seed)
    for until in [rng.choice(truth.records).store_timestamp for _ in range(5)]:
        late = next((r.offset for r in truth.records if r.store_timestamp > until), -1)
        before = [r for r in truth.records if late < 0 or r.offset < late]
        scan = scan_log(log, cuts(rng, log, 20), ScanSettings(delays=DELAYS, until_time=until))
        assert scan.chain.later == late
        assert (scan.units, scan.items) == (expected_units(before), expected_items(before))


def test_records_longer_than_the_buffer_and_than_ranges(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    with LogWriter(tmp_path, 1 << 18) as writer:
        for body in (10, 20_000, 5, 90_000, 70_000, 1):
            writer.append(Message(body=rng.randbytes(body), properties={"KEYS": f"k{body}", "TAGS": "t" * 3000}))
    log, truth = MemoryLog(tmp_path, 1 << 18), reference_walk(tmp_path, 1 << 18)
    for places in ([], list(range(0, 1 << 18, 4096)), cuts(rng, log, 10)):
        assert_same(scan_log(log, places, ScanSettings(chunk=4096)), truth)


def test_blocks_fill_and_follow_on(tmp_path: Path, seed: int) -> None:
    """Makers count items over all blocks; a queue keeps its number; a scanner is used for range after range."""
    puts = random_log(tmp_path, seed, segment_size=1 << 17, records=900, features=frozenset(), topics=8, queues=9)
    log = MemoryLog(tmp_path, 1 << 17)
    # Just enough for the record with the longest properties.
    fewest = 2 + max(len(property_bytes(put.message.properties)) for put in puts) // 2
    small, large = (RangeScanner(ScanSettings(chunk=4096, block_rows=rows)) for rows in (fewest, 1 << 20))
    blocks = 0
    for specs in log.cut([1 << 14, 1 << 16]).values():
        for spec in specs:
            one, other = scan_range(small, spec, log), scan_range(large, spec, log)
            fresh = scan_range(RangeScanner(ScanSettings()), spec, log)
            assert other.blocks == 1
            assert (one.units, one.items, one.makers) == (other.units, other.items, other.makers)
            assert (fresh.units, fresh.items, fresh.makers) == (other.units, other.items, other.makers)
            assert facts(one.summary) == facts(other.summary) == facts(fresh.summary)
            blocks = max(blocks, one.blocks)
    assert blocks > 1


def test_more_queues_than_the_table_begins_with(tmp_path: Path) -> None:
    messages = 40_000
    with LogWriter(tmp_path, 1 << 22) as writer:
        for queue_id in range(messages):
            writer.append(Message(topic="T", queue_id=queue_id, body=b""))
    log = MemoryLog(tmp_path, 1 << 22)
    scan = scan_log(log, [], ScanSettings())
    assert [unit[1] for unit in scan.units] == list(range(messages))
    assert sum(s.queues for s in scan.chain.accepted) == messages
